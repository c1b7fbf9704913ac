"""Parts of an answer in the form of Anthropic's API. Anthropic's own client assembles the events."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import anthropic
import httpx2
import msgspec
import pytest

from llmd.core.context_limits import ContextLimits
from llmd.core.errors import ApiError
from llmd.core.parts import (
    End,
    EndReason,
    Failed,
    Part,
    Progress,
    PromptTokens,
    ReasoningPart,
    SessionReport,
    TextPart,
    ToolCallPiece,
    UsedTokens,
)
from llmd.dialects.anthropic.writer import MessageWriter
from tests.serving import Daemon, Json

REPORT = SessionReport("s", 3, 4, "new", 0.5, 1.5, 2.5)
STARTED = Progress(0, 7, 3, 3, 0.0)
USAGE = {"input_tokens": 4, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 3, "output_tokens": 11}


def end(reason: EndReason = "end", stop: str | None = None) -> End:
    return End(0, reason, UsedTokens(7, 3, 11), REPORT, stop)


def call(number: int, *pieces: str, id: str | None = None, name: str = "weather") -> list[Part]:
    first = ToolCallPiece(0, number, pieces[0] if pieces else "", id, name)
    return [first, *(ToolCallPiece(0, number, piece) for piece in pieces[1:])]


def thought(*pieces: str) -> list[Part]:
    return [ReasoningPart(0, piece) for piece in pieces]


def said(*pieces: str) -> list[Part]:
    return [TextPart(0, piece) for piece in pieces]


PLACE = ('{"pla', 'ce":"Ro', 'me"}')
ANSWERS: dict[str, tuple[list[Part], list[Json], str, str | None]] = {
    "text": ([*said("Hel", 'lo "é"\n'), end()], [{"type": "text", "text": 'Hello "é"\n'}], "end_turn", None),
    "nothing": ([end()], [], "end_turn", None),
    "cut": ([*said("x"), end("length")], [{"type": "text", "text": "x"}], "max_tokens", None),
    "stopped": ([*said("x"), end("stop", "END")], [{"type": "text", "text": "x"}], "stop_sequence", "END"),
    "stop token": ([*said("x"), end("stop")], [{"type": "text", "text": "x"}], "end_turn", None),
    "thought": (
        [*thought("h", "m"), *said("yes"), end()],
        [{"type": "thinking", "thinking": "hm", "signature": "llmd"}, {"type": "text", "text": "yes"}],
        "end_turn",
        None,
    ),
    "calls": (
        [*thought("hm"), *said("I look."), *call(0, *PLACE, id="c1"), *call(1, "", "{}", id="c2", name="f"), end()],
        [
            {"type": "thinking", "thinking": "hm", "signature": "llmd"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "c1", "name": "weather", "input": {"place": "Rome"}},
            {"type": "tool_use", "id": "c2", "name": "f", "input": {}},
        ],
        "tool_use",
        None,
    ),
    "a call without arguments": (
        [*call(0, id="c1"), end("stop")],
        [{"type": "tool_use", "id": "c1", "name": "weather", "input": {}}],
        "tool_use",
        None,
    ),
    "between calls": (
        [*call(0, "{}", id="a"), *said("and"), *call(1, "{}", id="b"), *thought("so"), *said("x", "y"), end()],
        [
            {"type": "tool_use", "id": "a", "name": "weather", "input": {}},
            {"type": "text", "text": "and"},
            {"type": "tool_use", "id": "b", "name": "weather", "input": {}},
            {"type": "thinking", "thinking": "so", "signature": "llmd"},
            {"type": "text", "text": "xy"},
        ],
        "tool_use",
        None,
    ),
}
"""Parts of answers, each with the content, stop_reason and stop_sequence that the writer must return."""
EACH = pytest.mark.parametrize("name", ANSWERS)


def writer_of(daemon: Daemon) -> MessageWriter:
    return MessageWriter(daemon.state, n_tokens_max=11)


def streamed(writer: MessageWriter, *batches: Sequence[Part]) -> bytes:
    return writer.opening() + b"".join(writer.events(parts) for parts in batches) + writer.ending()


def events_of(stream: bytes) -> list[Json]:
    """Returns the events of a stream. Checks that each event is a name, one line of data and an empty line, and that
    the name equals the type.
    """
    found = []
    for block in stream.decode().split("\n\n")[:-1]:
        matched = re.fullmatch(r"event: (\w+)\ndata: ({.*})", block)
        assert matched is not None, block
        found.append(json.loads(matched[2]))
        assert found[-1]["type"] == matched[1]
    return found


def put_together(stream: bytes) -> anthropic.types.Message:
    """Returns the message that the official client builds from the events."""

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"Content-Type": "text/event-stream"}, content=stream)

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    client = anthropic.Anthropic(api_key="none", http_client=http)
    with client.messages.stream(model="m", max_tokens=1, messages=[{"role": "user", "content": "x"}]) as found:
        return found.get_final_message()


def plain(message: anthropic.types.Message) -> list[Json]:
    return [block.model_dump(exclude_none=True, include={*_MEMBERS}) for block in message.content]


_MEMBERS = ("type", "text", "thinking", "signature", "id", "name", "input")


@EACH
async def test_events(daemon: Daemon, name: str) -> None:
    parts, content, reason, stop = ANSWERS[name]
    one_by_one = streamed(writer_of(daemon), [STARTED], *([part] for part in parts))
    at_once = streamed(writer_of(daemon), [STARTED, *parts])
    for stream in (one_by_one, at_once):
        message = put_together(stream)
        assert (plain(message), message.stop_reason, message.stop_sequence) == (content, reason, stop)
        assert message.usage.model_dump(include={*USAGE}) == USAGE and message.model == daemon.state.model_id
    assert re.sub(b"msg_[0-9a-f]+", b"", one_by_one) == re.sub(b"msg_[0-9a-f]+", b"", at_once)


@EACH
async def test_the_order_of_events(daemon: Daemon, name: str) -> None:
    """The order is message_start, the blocks one after the other, message_delta, message_stop."""
    events = events_of(streamed(writer_of(daemon), [STARTED, *ANSWERS[name][0]]))
    blocks = len(ANSWERS[name][1])
    kinds = [event["type"] for event in events if event["type"] != "content_block_delta"]
    block = ["content_block_start", "content_block_stop"]
    assert kinds == ["message_start", *block * blocks, "message_delta", "message_stop"]
    placed = [event["index"] for event in events if event["type"].startswith("content_block")]
    assert placed == sorted(placed) and set(placed) == set(range(blocks))
    started = events[0]["message"]
    assert started["usage"] == {**USAGE, "output_tokens": 0} and started["content"] == []
    assert events[-2]["usage"] == USAGE and events[-2]["session"]["id"] == "s"


@EACH
async def test_a_whole(daemon: Daemon, name: str) -> None:
    parts, content, reason, stop = ANSWERS[name]
    answer = json.loads(writer_of(daemon).complete([STARTED, *parts]))
    assert [{key: block[key] for key in block if key in _MEMBERS} for block in answer["content"]] == content
    assert (answer["stop_reason"], answer["stop_sequence"], answer["usage"]) == (reason, stop, USAGE)
    assert answer["type"] == "message" and answer["role"] == "assistant" and answer["session"]["id"] == "s"


@pytest.mark.parametrize("arguments", ["[1]", '{"a":', "nonsense", '"x"', '{"a":' * 300, '{"a": 1e400}x'])
async def test_a_call_that_is_no_object_stays_visible(daemon: Daemon, arguments: str) -> None:
    answer = json.loads(writer_of(daemon).complete([*said("so: "), *call(0, arguments), end()]))
    assert [block["type"] for block in answer["content"]] == ["text", "text"]
    assert answer["content"][1]["text"] == f"weather({arguments})" and answer["stop_reason"] == "end_turn"


async def test_a_call_that_a_stop_cut_is_not_to_be_run(daemon: Daemon) -> None:
    cut = msgspec.structs.replace(end("stop", "Human:"), has_broken_call=True)
    parts = [*call(0, '{"path": "a", "text": "x'), cut]
    events = events_of(streamed(writer_of(daemon), [STARTED, *parts]))
    whole = json.loads(writer_of(daemon).complete(parts))
    for told in (whole, events[-2]["delta"]):
        assert (told["stop_reason"], told["stop_sequence"]) == ("stop_sequence", "Human:")


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ("", {}),
        ("{", {}),
        ('{"a', {}),
        ('{"a": "x', {}),
        ('{"a": "x\\"', {}),
        ('{"a": "x"', {"a": "x"}),
        ('{"a": 1', {}),
        ('{"a": 1,', {"a": 1}),
        ('{"a": true, "b"', {"a": True}),
        ('{"a": "{,:", "b": [{"c": 1}, ', {"a": "{,:"}),
        ('{"a": {"b": [1]}', {"a": {"b": [1]}}),
        ('{"a": 1}', {"a": 1}),
    ],
)
async def test_a_call_that_was_cut_is_a_call_as_far_as_it_came(daemon: Daemon, arguments: str, found: Json) -> None:
    parts = [*said("so: "), *call(0, arguments), end("length")]
    whole = json.loads(writer_of(daemon).complete(parts))
    assert [block["type"] for block in whole["content"]] == ["text", "tool_use"]
    assert (whole["content"][1]["name"], whole["content"][1]["input"]) == ("weather", found)
    told = put_together(streamed(writer_of(daemon), [STARTED, *parts]))
    assert [block.type for block in told.content] == ["text", "tool_use"]
    assert whole["stop_reason"] == told.stop_reason == "max_tokens"


async def test_who_has_less_room_than_was_allowed_is_told_so(daemon: Daemon) -> None:
    writer = MessageWriter(daemon.state, n_tokens_max=12)
    expected = ("model_context_window_exceeded", None)
    for parts in ([*said("x"), end("length")], [*call(0, '{"pla'), end("length")]):
        whole = json.loads(writer.complete(parts))
        told = put_together(streamed(MessageWriter(daemon.state, n_tokens_max=12), [STARTED, *parts]))
        assert (whole["stop_reason"], whole["stop_sequence"]) == expected
        assert (told.stop_reason, told.stop_sequence) == expected


async def test_thoughts_are_counted_apart(daemon: Daemon) -> None:
    parts = [*thought("hm"), *said("yes"), End(0, "end", UsedTokens(7, 3, 11, 5), REPORT)]
    whole = json.loads(writer_of(daemon).complete(parts))["usage"]
    assert whole == {**USAGE, "output_tokens_details": {"thinking_tokens": 5}}
    assert events_of(streamed(writer_of(daemon), [STARTED, *parts]))[-2]["usage"] == whole


async def test_a_failure_is_the_last_event(daemon: Daemon) -> None:
    for parts in ([], [STARTED], [STARTED, *said("x")]):
        events = events_of(streamed(writer_of(daemon), [*parts, Failed(0, ApiError("step_failed"))]))
        assert events[-1]["error"]["type"] == "api_error" and events[-1]["error"]["code"] == "step_failed"
    overflow = streamed(writer_of(daemon), [Failed(0, ContextLimits(64, 7).error(70, "messages"))])
    assert "prompt is too long: 71 tokens > 64 maximum" in events_of(overflow)[0]["error"]["message"]
    with pytest.raises(anthropic.APIStatusError, match="too long"):
        put_together(overflow)


async def test_progress_keeps_it_alive(daemon: Daemon) -> None:
    further: list[Any] = [Progress(0, 7, 3, n, 1.0) for n in (5, 7)]
    events = events_of(streamed(writer_of(daemon), [STARTED], further, [*said("x"), end()]))
    assert [event["type"] for event in events[:3]] == ["message_start", "ping", "ping"]
    [ping] = events_of(MessageWriter.framing.keep_alive)
    assert ping == {"type": "ping"}


async def test_what_nobody_asked_for_is_not_written(daemon: Daemon) -> None:
    with pytest.raises(TypeError, match="PromptTokens"):
        writer_of(daemon).events([PromptTokens(0, [1])])
