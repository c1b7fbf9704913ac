"""The parameters of Anthropic's messages, and what else their clients send."""

from __future__ import annotations

from ...core import limits
from ..parameters import Table, accepted, honoured, refused

_PROMPT = (
    honoured({
        "model": "any name is accepted and this daemon's model answers, under its own name",
        "messages": "the conversation; roles user, assistant, system; a text or blocks: text, thinking, tool_use, "
            "tool_result (a text, or parts, of which those that are no text are told as [image: not shown, this model "
            "reads text only]); search_result, and document with a source of type text or content, of users and in "
            "results; tool_addition, tool_removal and clear_at of the system; compaction of the assistant, as text; "
            "passed over: redacted_thinking, fallback, mcp_tool_listing, server_tool_use with its results, and "
            "output_config of a message of the system; other images and documents are refused in the user's newest "
            "message, and told likewise in earlier ones; a last message of the assistant is gone on with; what some "
            "clients write there for an empty text ((no content), and the like) is none",
        "tool_choice": "auto, any, tool with a name, or none; disable_parallel_tool_use",
        "thinking": "enabled or disabled: the template variable enable_thinking; others: as the template has it; "
            "budget_tokens: after so many thinking is ended; display is not read, thoughts are told whole",
        "output_config": "effort: the template variable reasoning_effort, xhigh and max as high; format: a JSON schema "
            "that the answer keeps to",
        "output_format": "the same as output_config.format",
        "metadata": "user_id: where it is JSON with a session_id, or ends with _session_ and an id, this names the "
            "session when nothing else does",
        "session_id": "the session that this request continues",
    }),
    honoured({
        "system": "a text or blocks of text; a line x-anthropic-billing-header at its beginning, which differs from "
            "request to request, is left out",
    }, limits.JSON_TEXT_BYTES_MAX),
    honoured({
        "tools": "name, description, input_schema; those with defer_loading are no part of the prompt until a "
            "tool_reference in a result names them: the first has the definition, and from then on they may be called; "
            "of those of a type without a schema the ones that the server would run (web_search, code_execution, ...) "
            "are passed over, and refused where no other is offered; those of clients (bash, text_editor, memory, "
            "computer, browser) are refused: the model knows no more of them than it is told",
    }, limits.TOOLS_BYTES_MAX),
    accepted({
        "cache_control": "here and in tools: the state at the end of what is marked so is kept anyway, and everything "
            "is cached; a mark in a block of system or messages keeps the state there, too, where the model's memory "
            "cannot be cut back: of the last 4 of a request",
        "service_tier": "", "container": "", "context_management": "", "compaction": "",
        "inference_geo": "", "speed": "", "diagnostics": "", "user_profile_id": "", "workspace_id": "",
        "billing_policy": "", "fallbacks": "", "fallback_credit_token": "", "thread": "", "betas": "",
        "anthropic_beta": "", "anthropic_version": "",
    }),
    refused({"mcp_servers": ("servers of tools that the daemon would call", ([],))}),
)  # fmt: skip

_ANSWER = honoured({
    "max_tokens": "longest answer; cut to the room left in the context, and then stop_reason is "
        "model_context_window_exceeded; 0: the prompt is read, and nothing is answered",
    "stream": "events instead of one message",
    "stop_sequences": "up to 16 texts that end the answer and are not part of it; stop_sequence says which did",
    "temperature": "0 to 100; 0 is greedy",
    "top_p": "0 to 1",
    "top_k": "0 or -1: off",
})  # fmt: skip

MESSAGES = Table("messages", "messages", *_PROMPT, _ANSWER)
COUNT_TOKENS = Table(
    "count_tokens", "messages", *_PROMPT, accepted({row.name: "of what would be generated" for row in _ANSWER})
)
TABLES = (MESSAGES, COUNT_TOKENS)
