"""The parameters of Ollama's chat and generate, and of the options in them."""

from __future__ import annotations

from ...core import limits
from ..parameters import Table, accepted, honoured, refused
from ..sampling import USUAL_NOTES

_CHAT = (
    honoured({
        "messages": "the conversation; roles system, user, assistant, tool; of each message the template reads role, "
            "content, thinking, tool_calls, tool_name, tool_call_id; images of a result, and of an earlier message of "
            "the user than the newest, are told as [image: not shown, this model reads text only]; the answer goes on "
            "with a last message of the assistant; without messages nothing is generated",
        "truncate": "false: a conversation that does not fit the context is refused; default: its beginning is left "
            "out, except system messages",
    }),
    honoured({
        "tools": "functions that the answer may call; their arguments come as objects",
    }, bytes_max=limits.TOOLS_BYTES_MAX),
)  # fmt: skip

_GENERATE = (
    honoured({
        "prompt": "text of the user; without it nothing is generated",
        "raw": "true: the prompt is continued as it is, without the model's chat template",
    }),
    honoured({
        "system": "a system message in front",
        "suffix": "text behind the answer: the model fills in the middle",
    }, bytes_max=limits.JSON_TEXT_BYTES_MAX),
    accepted({"truncate": "what does not fit the context is refused"}),
    refused({
        "template": ("templates from requests; use --chat-template-file", ("",)),
        "context": ("tokens of an earlier answer; name a session, or use /api/chat", ([],)),
        "images": ("images", ([],)),
    }),
)  # fmt: skip

_BOTH = (
    honoured({
        "model": "any name is accepted and this daemon's model answers, under its own name",
        "stream": "false: one answer instead of a line of JSON for each piece",
        "format": "json, or a JSON schema that the answer follows",
        "options": "a table of its own",
        "think": "true, low, medium, high or false: the template variable enable_thinking, and reasoning_effort",
        "logprobs": "true: the log probability of each token",
        "top_logprobs": "with logprobs: 0 to 20 of the likeliest tokens beside each one",
        "keep_alive": "0 without a prompt is answered as if the model had been unloaded; it stays",
    }),
    accepted({"shift": "the context is never shifted"}),
    refused({
        "_debug_render_only": ("the prompt instead of an answer; use /apply-template", (False,)),
    }),
)  # fmt: skip

_EMBED = (
    honoured({
        "input": "a text, or several",
        "truncate": "false: what is too long is refused, not cut",
        "dimensions": "so many numbers of each vector, the first ones, made length 1 again; at most the model's",
    }),
)  # fmt: skip
_EMBED_PROMPT = (honoured({"prompt": "a text; what is too long is cut"}),)
_EMBEDS = (
    honoured({"model": "any name is accepted and this daemon's model answers, under its own name"}),
    accepted({"options": "", "keep_alive": ""}),
)

_MACHINE = "decided when the daemon starts"
_OPTIONS = (
    honoured({
        "num_predict": "longest answer; 0 and less: no limit",
        **USUAL_NOTES,
        "stop": "text or up to 16 texts that end the answer and are not part of it",
    }),
    accepted({
        "num_ctx": "--ctx-size decides", "num_keep": "the context is never shifted", "num_batch": _MACHINE,
        "num_gpu": _MACHINE, "main_gpu": _MACHINE, "num_thread": _MACHINE, "use_mmap": _MACHINE, "use_mlock": _MACHINE,
        "numa": _MACHINE, "low_vram": _MACHINE, "f16_kv": _MACHINE, "vocab_only": _MACHINE, "logits_all": _MACHINE,
        "embedding_only": _MACHINE, "penalize_newline": "no sampler has it any more", "tfs_z": "likewise",
    }),
)  # fmt: skip

OPTIONS = Table("options", "", *_OPTIONS, within="options", ignores_unknown=True)
CHAT = Table("chat", "messages", *_CHAT, *_BOTH, inner=OPTIONS, ignores_unknown=True)
GENERATE = Table("generate", "prompt", *_GENERATE, *_BOTH, inner=OPTIONS, ignores_unknown=True)
EMBED = Table("embed", "input", *_EMBED, *_EMBEDS, ignores_unknown=True)
EMBED_PROMPT = Table("embeddings", "prompt", *_EMBED_PROMPT, *_EMBEDS, ignores_unknown=True)
TABLES = (CHAT, GENERATE, OPTIONS, EMBED, EMBED_PROMPT)
"""What else a request holds is ignored, as Ollama ignores it: its clients send options of all its versions."""
