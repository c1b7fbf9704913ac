"""A tool loop over /v1/messages with Anthropic's client: reasoning, calls and results. Each turn reuses the session's
tokens.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import pytest

from tests.calling import call, calling
from tests.conftest import Serve
from tests.serving import Daemon, Json

REPLIES = {
    "compare them": "<think>\nWhich files? Both.\n</think>\n\nI look.\n"
    '<tool_call>\n{"name": "read", "arguments": {"path": "a.txt", "lines": [1, 2.0]}}\n</tool_call>',
    "first one": call("b.txt"),
    "second one": "They differ.",
    "read both": f"{call('a')}\n{call('b')}",
    "now both": "Both read.",
}
READ: Any = {
    "name": "read",
    "description": "Reads a file",
    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}, "lines": {"type": "array"}}},
}
RESULTS = ("first one: x", [{"type": "text", "text": "second one: y", "cache_control": {"type": "ephemeral"}}])


@pytest.fixture
async def scripted(serve: Serve, tmp_path: Path) -> Daemon:
    return await serve(**calling(tmp_path, REPLIES))


@pytest.fixture
async def client(scripted: Daemon) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=scripted.url, api_key="none", max_retries=0) as client:
        yield client


async def asked(client: anthropic.AsyncAnthropic, is_stream: bool, messages: list[Any]) -> anthropic.types.Message:
    fields: Any = {
        "model": "any", "max_tokens": 200, "messages": messages, "tools": [READ], "extra_body": {"temperature": 0},
        "system": "be brief, " * 20, "extra_headers": {"X-Claude-Code-Session-Id": "loop"},
    }  # fmt: skip
    if not is_stream:
        return await client.messages.create(**fields)  # type: ignore[no-any-return]
    async with client.messages.stream(**fields) as stream:
        return await stream.get_final_message()


def resent(block: Any) -> Json:
    """Returns a block as agents send it back, with members in another order."""
    found: Json = block.model_dump(exclude_none=True)
    if found["type"] == "tool_use":
        found["input"] = dict(reversed(found["input"].items()))
    return found


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("thoughts", [True, False], ids=["thoughts", "without"])
async def test_a_loop(client: anthropic.AsyncAnthropic, is_stream: bool, thoughts: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": "compare them"}]
    shapes, cold = [], []
    for result in (*RESULTS, None):
        answer = await asked(client, is_stream, messages)
        shapes.append([block.type for block in answer.content])
        cold.append(answer.usage.input_tokens)
        if result is None:
            break
        assert answer.stop_reason == "tool_use"
        blocks = [resent(block) for block in answer.content if thoughts or block.type != "thinking"]
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": result}
            for block in blocks
            if block["type"] == "tool_use"
        ]
        messages += [{"role": "assistant", "content": blocks}, {"role": "user", "content": results}]
    assert shapes == [["thinking", "text", "tool_use"], ["tool_use"], ["text"]]
    assert answer.stop_reason == "end_turn" and answer.content[0].model_dump()["text"] == "They differ."
    assert messages[1]["content"][-1]["input"] == {"path": "a.txt", "lines": [1, 2.0]}
    assert messages[3]["content"][-1]["input"] == {"path": "b.txt"}
    assert cold[0] > 100 and max(cold[1:]) < 60, cold  # only a result, and the template's text around it


async def test_results_of_parallel_calls_in_any_order(client: anthropic.AsyncAnthropic) -> None:
    """If the results are sent again in another order, only the new answer is not resident."""
    question: Any = {"role": "user", "content": "read both"}
    answer = await asked(client, False, [question])
    said: Any = {"role": "assistant", "content": answer.content}
    results = [
        {"type": "tool_result", "tool_use_id": block.model_dump()["id"], "content": f"now both: {number}"}
        for number, block in enumerate(answer.content)
    ]
    assert len(results) == 2
    first = await asked(client, False, [question, said, {"role": "user", "content": results}])
    again = await asked(client, True, [question, said, {"role": "user", "content": results[::-1]}])
    assert first.content[0].model_dump()["text"] == again.content[0].model_dump()["text"] == "Both read."
    assert first.usage.input_tokens > 20 and again.usage.input_tokens == 0, "a state is kept at its end"


async def test_a_form(client: anthropic.AsyncAnthropic) -> None:
    """The script of the model has another text, but the schema is enforced."""
    schema = {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"], "additionalProperties": False}
    answer = await client.messages.create(
        model="any",
        max_tokens=200,
        messages=[{"role": "user", "content": "hello"}],
        output_config={"format": {"type": "json_schema", "schema": schema}},
        thinking={"type": "disabled"},
    )
    assert json.loads(answer.content[0].model_dump()["text"]) == {"a": 1}


async def test_a_named_tool_is_called(client: anthropic.AsyncAnthropic) -> None:
    properties = {"a": {"enum": [1]}}
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    look: Any = {"name": "look", "input_schema": schema}
    answer = await client.messages.create(
        model="any",
        max_tokens=1000,
        messages=[{"role": "user", "content": "hello"}],
        tools=[look, READ],
        tool_choice={"type": "tool", "name": "look", "disable_parallel_tool_use": True},
        thinking={"type": "disabled"},
        extra_body={"temperature": 0},
    )
    called = [block.model_dump() for block in answer.content if block.type == "tool_use"]
    assert {block["name"] for block in called} == {"look"} and answer.stop_reason == "tool_use"
    assert all(block["input"] in ({}, {"a": 1}) for block in called)


async def test_tools_count(client: anthropic.AsyncAnthropic) -> None:
    messages: list[Any] = [{"role": "user", "content": "compare them"}]
    with_tools = await client.messages.count_tokens(model="any", messages=messages, tools=[READ])
    without = await client.messages.count_tokens(model="any", messages=messages)
    assert with_tools.input_tokens > without.input_tokens + 20


async def test_a_loop_that_a_chat_began(scripted: Daemon) -> None:
    function = {"name": READ["name"], "description": READ["description"], "parameters": READ["input_schema"]}
    system, question = "be brief, " * 20, {"role": "user", "content": "compare them"}
    chat = {
        "messages": [{"role": "system", "content": system}, question], "session_id": "s", "temperature": 0,
        "tools": [{"type": "function", "function": function}],
    }  # fmt: skip
    answer = await scripted.ask("POST", "/v1/chat/completions", chat)
    [called] = answer.json["choices"][0]["message"]["tool_calls"]
    said = [
        {"type": "text", "text": answer.json["choices"][0]["message"]["content"]},
        {"type": "tool_use", "id": called["id"], "name": "read", "input": {"lines": [1, 2], "path": "a.txt"}},
    ]
    result = {"type": "tool_result", "tool_use_id": called["id"], "content": RESULTS[0]}
    turns = [question, {"role": "assistant", "content": said}, {"role": "user", "content": [result]}]
    body = {
        "max_tokens": 200, "temperature": 0, "system": system, "messages": turns, "tools": [READ], "session_id": "s"
    }  # fmt: skip
    following = (await scripted.ask("POST", "/v1/messages", body)).json
    assert [block["type"] for block in following["content"]] == ["tool_use"]
    assert following["session"]["prefilled_prompt_tokens"] < 60 < following["session"]["reused_prompt_tokens"]
