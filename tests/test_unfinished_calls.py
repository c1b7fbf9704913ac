"""A tool call that a stop text or a limit cut, in every dialect, streamed and not. The answer contains the part that
was generated, and does not ask the client to run it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.calling import calling
from tests.conftest import Serve
from tests.serving import Daemon, Json
from tests.test_chat_tools import ask, gathered, message
from tests.test_messages_writer import put_together

PARAMETERS: Json = {"type": "object", "properties": {"path": {"type": "string"}, "text": {"type": "string"}}}
WRITE: Json = {"type": "function", "function": {"name": "write", "description": "Writes", "parameters": PARAMETERS}}
REPLY = 'I do.\n<tool_call>\n{"name": "write", "arguments": {"path": "a.txt", "text": "one two three"}}\n</tool_call>'
STOP = "two"
BEGINNING = '{"path": "a.txt", "text": "one'
MEMBERS = {"path": "a.txt"}
MESSAGES: list[Json] = [{"role": "user", "content": "do it"}]


@pytest.fixture
async def caller(serve: Serve, tmp_path: Path) -> Daemon:
    return await serve(**calling(tmp_path, {"do it": REPLY}))


async def test_chat(caller: Daemon) -> None:
    body = ask("do it", tools=[WRITE], stop=[STOP])
    said, reason = await message(caller, body)
    streamed, streamed_reason = gathered(await caller.stream(body))
    for one in (said, streamed):
        [call] = one["tool_calls"]
        assert (one["content"], call["function"]["arguments"]) == ("I do.", BEGINNING)
    assert reason == streamed_reason == "stop"


async def test_responses(caller: Daemon) -> None:
    tools = [{"type": "function", **WRITE["function"]}]
    body: Json = {"input": "do it", "tools": tools, "temperature": 0}
    found = set()
    for n in range(10, 70, 4):
        limited = {**body, "max_output_tokens": n}
        whole = (await caller.ask("POST", "/v1/responses", limited)).json
        stream = (await caller.ask("POST", "/v1/responses", {**limited, "stream": True})).body.decode()
        last = json.loads(stream.strip().rsplit("data: ", 1)[1])["response"]
        calls = [[item for item in one["output"] if item["type"] == "function_call"] for one in (whole, last)]
        assert [(one["arguments"], one["status"]) for one in calls[0]] == [
            (one["arguments"], one["status"]) for one in calls[1]
        ]
        if whole["status"] == "incomplete":
            assert all(one["status"] == "incomplete" for one in calls[0])
            found |= {one["arguments"] for one in calls[0]}
    assert len(found) > 1 and max(found).startswith(BEGINNING[:20])


async def test_messages(caller: Daemon) -> None:
    tool = {"name": "write", "input_schema": PARAMETERS}
    body: Json = {"model": "m", "max_tokens": 200, "temperature": 0, "messages": MESSAGES, "tools": [tool]}
    body["stop_sequences"] = [STOP]
    whole = (await caller.ask("POST", "/v1/messages", body)).json
    stream = put_together((await caller.ask("POST", "/v1/messages", {**body, "stream": True})).body)
    both: tuple[list[Any], ...] = (whole["content"], [block.model_dump() for block in stream.content])
    for blocks in both:
        assert [block["text"] for block in blocks if block["type"] == "text"] == ["I do."]
        [used] = [block for block in blocks if block["type"] == "tool_use"]
        assert used["input"]["path"] == "a.txt"
    assert whole["stop_reason"] == stream.stop_reason == "stop_sequence"


async def test_ollama(caller: Daemon) -> None:
    options = {"num_predict": 200, "temperature": 0, "stop": [STOP]}
    body: Json = {"model": "m", "messages": MESSAGES, "tools": [WRITE], "options": options}
    whole = (await caller.ask("POST", "/api/chat", {**body, "stream": False})).json
    lines = [json.loads(line) for line in (await caller.ask("POST", "/api/chat", body)).body.splitlines()]
    assert whole["message"]["content"] == "".join(line["message"]["content"] for line in lines) == "I do."
    told = [call for line in lines for call in line["message"].get("tool_calls", ())]
    for calls in (whole["message"]["tool_calls"], told):
        assert [call["function"]["arguments"] for call in calls] == [MEMBERS]
