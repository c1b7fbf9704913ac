"""Tools and parameters keep their names, even if these differ only in punctuation or are names that grammars use."""

from __future__ import annotations

import pytest

from tests.real_templates.conftest import Open
from tests.real_templates.driver import Json
from tests.real_templates.templates import TEMPLATES, Template
from tests.real_templates.test_masks import beginning, names, tool, walk
from tests.real_templates.test_templates import MESSAGES

TOOL_NAMES = [
    "read_file",
    "read-file",
    "call",
    "calls",
    "call-root",
    "root",
    "space",
    "until",
    "tool",
    "tool-call",
    "tool-0",
]
PARAMETERS: Json = {
    "type": "object",
    "properties": {"a_b": {"type": "integer"}, "a-b": {"type": "integer"}},
    "required": ["a_b", "a-b"],
    "additionalProperties": False,
}
TOOLS = [tool(name, PARAMETERS) for name in TOOL_NAMES]


@pytest.mark.parametrize("template", TEMPLATES, ids=names)
def test_each_tool_is_called_under_its_own_name(template: Template, opened: Open) -> None:
    model = opened(template)
    for name in TOOL_NAMES:
        request = {"tools": TOOLS, "tool_choice": {"mode": "required", "names": [name]}, "parallel_tool_calls": False}
        prompt = model.render({"messages": MESSAGES, "follows_thinking": True, **request})
        begin = beginning(template, model, prompt)
        said = [walk(template, model, prompt, begin, seed) for seed in range(3)]
        ended = [one for one in said if one.is_complete]
        assert ended, (name, said)
        for one in ended:
            calls = model.parse(prompt.syntax, one.raw, pieces=[3]).calls
            assert [call.name for call in calls] == [name], one.text
            assert set(calls[0].values()) == {"a_b", "a-b"}, one.text
