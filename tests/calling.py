"""A simulated model that generates reasoning and tool calls as many models do: a chat template in that form, and the
texts that the model generates.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.serving import Json

TEMPLATE = """\
{%- if tools %}<|im_start|>system
<tools>{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
</tools><|im_end|>
{% endif %}
{%- for m in messages %}
{%- if m.role == 'assistant' %}<|im_start|>assistant
{% if m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}
{%- for call in m.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% elif m.role == 'tool' %}<|im_start|>user
<tool_response>
{{ m.content }}
</tool_response><|im_end|>
{% else %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}
{%- endif %}"""

READ: Json = {
    "type": "function",
    "function": {
        "name": "read",
        "description": "Reads a file",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}


def call(path: str) -> str:
    return f'<tool_call>\n{{"name": "read", "arguments": {{"path": "{path}"}}}}\n</tool_call>'


REPLIES = {
    "one file": f"<think>\nwhich one?\n</think>\n\nI look.\n{call('a.txt')}",
    "two files": f"{call('b')}\n{call('c')}",
    "ponder": "<think>\nhm\n</think>\n\nYes.",
    "plain": "Just text.",
}
"""Texts that the simulated model generates, by the name of the case."""


def calling(directory: Path, replies: Mapping[str, str] = REPLIES) -> dict[str, Any]:
    """Returns the options of a daemon with this model."""
    script, template = directory / "script", directory / "calling.jinja"
    script.write_text("".join(f"? {trigger}\n{reply}\n" for trigger, reply in replies.items()))
    template.write_text(TEMPLATE)
    return {"model": f"sim:hybrid,script={script}", "chat_template_file": template}
