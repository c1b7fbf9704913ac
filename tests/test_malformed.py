"""Whatever a client sends, the response is an answer, or an error that names the fault, and never an internal error."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from llmd.dialects.openai.wire import ChatCompletionRequest, CompletionRequest
from llmd.dialects.responses.wire import ResponseRequest
from llmd.http.parameters import parameters_of
from tests.serving import Answer, Daemon, chat

ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 1 << 31, 1 << 63, -(1 << 63), 1 << 200, 0.5, -0.0, 1e308, 5e-324, "", " ", "x",
    "ü\0\n", "\ud800", "x" * 5000, "1", [], [[]], [None], [0], ["x"], {}, {"": {}}, {"0": 1}, {"-1": 0}, {"x": None},
    {"role": "user"}, [{"role": "user", "content": "x"}], [{"role": "user", "content": [{"type": "text"}]}],
    [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": [1]}}}]}],
    [{"role": "tool", "content": None}], [{"role": "user", "content": [{"type": "text", "text": "x"}]}] * 3,
)  # fmt: skip
N_MIXED = 150


def supported(kind: type[Any]) -> list[str]:
    """Returns the names of members that are decoded. Other members stay raw JSON (tests/test_rows.py sends values of
    every kind for these).
    """
    return [one.name for one in parameters_of(kind).values() if one.treatment == "supported"]


def judged(answer: Answer) -> None:
    if answer.status != 200:
        assert 400 <= answer.status < 500, answer.body
        assert answer.error["message"] and answer.error["code"] != "internal_error"


async def send(daemon: Daemon, path: str, body: dict[str, Any]) -> None:
    judged(await daemon.ask("POST", path, json.dumps(body).encode()))


@pytest.mark.parametrize("field", supported(ChatCompletionRequest))
async def test_any_value_of_any_chat_field(daemon: Daemon, field: str) -> None:
    for value in ODD_VALUES:
        await send(daemon, "/v1/chat/completions", {**chat(max_tokens=2), field: value})


@pytest.mark.parametrize("field", supported(CompletionRequest))
async def test_any_value_of_any_completion_field(daemon: Daemon, field: str) -> None:
    for value in ODD_VALUES:
        await send(daemon, "/v1/completions", {"prompt": "x", "max_tokens": 2, field: value})


@pytest.mark.parametrize("field", supported(ResponseRequest))
async def test_any_value_of_any_response_field(daemon: Daemon, field: str) -> None:
    for value in ODD_VALUES:
        await send(daemon, "/v1/responses", {"input": "x", "max_output_tokens": 2, field: value})


ITEM_TYPES = (
    "message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output",
    "local_shell_call", "item_reference", "additional_tools", "something_call", "something_call_output", "something",
)  # fmt: skip
ITEM_MEMBERS = (
    "role", "content", "name", "arguments", "call_id", "output", "input", "summary", "encrypted_content", "id", "tools",
    "action", "namespace",
)  # fmt: skip


@pytest.mark.parametrize("kind", ITEM_TYPES)
async def test_any_value_of_any_item(daemon: Daemon, kind: str) -> None:
    chance = random.Random(kind)
    for _ in range(N_MIXED):
        odd = {chance.choice(ITEM_MEMBERS): chance.choice(ODD_VALUES) for _ in range(4)}
        items = [{"role": "user", "content": "x"}, {"type": kind, **odd}]
        await send(daemon, "/v1/responses", {"input": items, "max_output_tokens": 2})


async def test_any_value_of_any_tool(daemon: Daemon) -> None:
    chance = random.Random(3)
    members = ("name", "description", "parameters", "format", "tools", "strict")
    for _ in range(N_MIXED):
        odd = {chance.choice(members): chance.choice(ODD_VALUES) for _ in range(3)}
        tools = [{"type": chance.choice(("function", "custom", "namespace", "other")), **odd}]
        await send(daemon, "/v1/responses", {"input": "x", "max_output_tokens": 2, "tools": tools})


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize", "/apply-template"])
async def test_any_value_elsewhere(daemon: Daemon, path: str) -> None:
    for field in ("content", "tokens", "messages", "with_pieces"):
        for value in ODD_VALUES:
            await send(daemon, path, {field: value})


async def test_mixtures(daemon: Daemon) -> None:
    chance = random.Random(1)
    fields = ChatCompletionRequest.__struct_fields__
    for _ in range(N_MIXED):
        odd = {chance.choice(fields): chance.choice(ODD_VALUES) for _ in range(3)}
        await send(daemon, "/v1/chat/completions", {**chat(max_tokens=2), **odd})


async def test_mutilated_bodies(daemon: Daemon) -> None:
    chance = random.Random(2)
    whole = json.dumps(chat(max_tokens=2, stop=["a", "b"], logit_bias={"5": 1}, session_id="s")).encode()
    for _ in range(N_MIXED):
        cut = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            cut[chance.randrange(len(cut))] = chance.randrange(256)
        judged(await daemon.ask("POST", "/v1/chat/completions", bytes(cut)))
