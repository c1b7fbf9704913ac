"""A template that fails on a type gets a simpler one. Nothing else in the conversation changes."""

from __future__ import annotations

import pytest

from tests.real_templates.conftest import Open
from tests.real_templates.driver import Json
from tests.real_templates.templates import BY_NAME
from tests.real_templates.test_round_trip import TOOL, USER

CALL: Json = {
    "id": "abcdefgh0",
    "type": "function",
    "function": {"name": "note", "arguments": '{"text": "seen"}'},
}
NULLABLE = {"type": "object", "properties": {"a": {"type": ["string", "null"]}, "b": {"type": "null"}}}
FAILS_ON: dict[str, list[Json]] = {
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": [NULLABLE],
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": [NULLABLE],
    "CohereForAI-c4ai-command-r-plus-tool_use": [
        NULLABLE,
        {"type": "object", "properties": {"a": {"type": "array", "items": {"type": ["integer", "null"]}}}},
    ],
    "GigaChat3.1-10B-A1.8B": [NULLABLE],
    "google-gemma-4-31B-it": [{"type": "object", "properties": {"a": {"type": "array", "items": NULLABLE}}}],
    "ByteDance-Seed-OSS": [{"type": "object", "properties": {"a": {}, "b": {"anyOf": [{"type": "null"}]}}}],
}


@pytest.mark.parametrize("name", FAILS_ON)
def test_a_template_is_told_of_types_it_can_write(name: str, opened: Open) -> None:
    model = opened(BY_NAME[name])
    calls = [CALL, CALL | {"id": "abcdefgh1"}]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "done"} for call in calls]
    past: list[Json] = [USER, {"role": "assistant", "content": "", "tool_calls": calls}, *results]
    for parameters in FAILS_ON[name]:
        tool = {"type": "function", "function": {"name": "note", "description": "Notes.", "parameters": parameters}}
        assert "note" in model.render({"messages": [USER], "tools": [tool]}).text
        texts = [model.render({"messages": past, "tools": [tool_]}).text for tool_ in (tool, TOOL)]
        after_question = [text[text.rindex("Hello") :] for text in texts]
        assert after_question[0] == after_question[1]  # the conversation is not changed
