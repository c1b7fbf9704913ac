"""Parts of answers in OpenAI's format that no daemon produces yet: several answers to one prompt."""

from __future__ import annotations

import json

import pytest

from llmd.core.errors import ApiError
from llmd.core.parts import (
    Details,
    End,
    EndReason,
    Failed,
    GeneratedToken,
    Part,
    PromptTokens,
    ReasoningPart,
    RunningUsage,
    SessionReport,
    TextPart,
    ToolCallPiece,
    UsedTokens,
)
from llmd.dialects.openai.chat_writer import ChatWriter
from llmd.dialects.openai.writer import CompletionWriter
from tests.serving import Daemon, Json, parse_events

REPORT = SessionReport("s", 3, 4, "new", 0.5, 1.5, 2.5)


def end(index: int, reason: EndReason, n_generated: int) -> End:
    return End(index, reason, UsedTokens(7, 3, n_generated), REPORT)


PARTS: tuple[list[Part], ...] = (
    [TextPart(0, "Hel"), TextPart(1, 'a "quoted" word\n')],
    [TextPart(0, "lo"), end(0, "stop", 5)],
    [TextPart(1, "é"), end(1, "length", 6)],
)
USAGE = {"prompt_tokens": 7, "completion_tokens": 11, "total_tokens": 18, "prompt_tokens_details": {"cached_tokens": 3}}
KINDS = pytest.mark.parametrize("kind", [ChatWriter, CompletionWriter])


def written(writer: ChatWriter | CompletionWriter, *batches: list[Part]) -> bytes:
    return writer.opening() + b"".join(writer.events(parts) for parts in batches) + writer.ending()


def said(choice: Json) -> str:
    return str(choice.get("text", "") or choice.get("delta", {}).get("content", ""))


@KINDS
@pytest.mark.parametrize("include_usage", [True, False])
async def test_events_say_which_answer_they_are_of(
    daemon: Daemon, kind: type[ChatWriter] | type[CompletionWriter], include_usage: bool
) -> None:
    writer = kind(daemon.state, n_answers=2, include_usage=include_usage)
    events = parse_events(written(writer, *PARTS))
    choices = [choice for chunk in events.chunks for choice in chunk["choices"]]
    texts = ["".join(said(choice) for choice in choices if choice["index"] == index) for index in (0, 1)]
    assert texts == ["Hello", 'a "quoted" word\né'] and events.done
    ended = {choice["index"]: choice["finish_reason"] for choice in choices if choice["finish_reason"] is not None}
    assert ended == {0: "stop", 1: "length"}
    if kind is ChatWriter:
        opened = [choice["index"] for choice in choices if "role" in choice.get("delta", {})]
        assert opened == [0, 1]
    usages = [chunk for chunk in events.chunks if "usage" in chunk]
    assert [chunk["usage"] for chunk in usages] == ([USAGE] if include_usage else [])


@KINDS
async def test_a_whole_has_every_answer(daemon: Daemon, kind: type[ChatWriter] | type[CompletionWriter]) -> None:
    writer = kind(daemon.state, n_answers=2, include_usage=False)
    answer = json.loads(writer.complete([part for batch in PARTS for part in batch]))
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    texts = [choice.get("text") or choice["message"]["content"] for choice in answer["choices"]]
    assert texts == ["Hello", 'a "quoted" word\né']
    assert answer["usage"] == USAGE and answer["session"]["id"] == "s"


@KINDS
async def test_one_failure_leaves_the_other_answers(
    daemon: Daemon, kind: type[ChatWriter] | type[CompletionWriter]
) -> None:
    writer = kind(daemon.state, n_answers=2, include_usage=True)
    events = parse_events(written(writer, [Failed(0, ApiError("step_failed"))], [TextPart(1, "x"), end(1, "end", 1)]))
    assert events.error is not None and events.error["code"] == "step_failed"
    assert events.text == "x" and events.finish_reasons == ["stop"] and events.done


CALLS: list[Part] = [
    ReasoningPart(0, "hm "),
    ReasoningPart(0, '"so"'),
    ToolCallPiece(0, 0, "", "c1", "f"),
    ToolCallPiece(0, 0, '{"x":'),
    ToolCallPiece(1, 0, "{}", "c2", "g"),
    ToolCallPiece(0, 0, " 1}"),
    ToolCallPiece(0, 1, "{", "c3", "g"),
    end(0, "end", 5),
    end(1, "length", 6),
]


async def test_calls_and_thoughts_are_deltas(daemon: Daemon) -> None:
    events = parse_events(written(ChatWriter(daemon.state, n_answers=2, include_usage=False), CALLS))
    deltas = [(choice["index"], choice["delta"]) for chunk in events.chunks for choice in chunk["choices"]]
    function = {"type": "function"}
    assert deltas[2:] == [
        (0, {"reasoning_content": "hm "}),
        (0, {"reasoning_content": '"so"'}),
        (0, {"tool_calls": [{"index": 0, "id": "c1", **function, "function": {"name": "f", "arguments": ""}}]}),
        (0, {"tool_calls": [{"index": 0, "function": {"arguments": '{"x":'}}]}),
        (1, {"tool_calls": [{"index": 0, "id": "c2", **function, "function": {"name": "g", "arguments": "{}"}}]}),
        (0, {"tool_calls": [{"index": 0, "function": {"arguments": " 1}"}}]}),
        (0, {"tool_calls": [{"index": 1, "id": "c3", **function, "function": {"name": "g", "arguments": "{"}}]}),
        (0, {}),
        (1, {}),
    ]
    assert events.finish_reasons == ["tool_calls", "length"], "what was cut off is no reason to call"


async def test_calls_of_the_first_interface_are_deltas(daemon: Daemon) -> None:
    writer = ChatWriter(daemon.state, n_answers=2, include_usage=False, is_legacy=True)
    events = parse_events(written(writer, CALLS))
    deltas = [choice["delta"] for chunk in events.chunks for choice in chunk["choices"] if choice["index"] == 0]
    calls = [delta["function_call"] for delta in deltas if "function_call" in delta]
    assert calls == [{"name": "f", "arguments": ""}, {"arguments": '{"x":'}, {"arguments": " 1}"}]
    assert events.finish_reasons == ["function_call", "length"]


@pytest.mark.parametrize(("is_legacy", "reason"), [(False, "tool_calls"), (True, "function_call")])
async def test_a_whole_with_calls(daemon: Daemon, is_legacy: bool, reason: str) -> None:
    answer = json.loads(ChatWriter(daemon.state, n_answers=2, include_usage=False, is_legacy=is_legacy).complete(CALLS))
    [first, second] = answer["choices"]
    assert (first["finish_reason"], second["finish_reason"]) == (reason, "length")
    assert first["message"]["content"] is None and first["message"]["reasoning_content"] == 'hm "so"'
    if is_legacy:
        assert first["message"]["function_call"] == {"name": "f", "arguments": '{"x": 1}'}
    else:
        assert [(call["id"], call["function"]) for call in first["message"]["tool_calls"]] == [
            ("c1", {"name": "f", "arguments": '{"x": 1}'}), ("c3", {"name": "g", "arguments": "{"}),
        ]  # fmt: skip
    assert ("tool_calls" in first["message"]) is not is_legacy


def token(text: bytes) -> GeneratedToken:
    return GeneratedToken(len(text), text, -0.5, [])


DETAILED: list[Part] = [
    PromptTokens(0, [8, 9]),
    ReasoningPart(0, "hm", Details([token(b"hm")], [2])),
    TextPart(0, "", Details([token(b"</think>")], [8])),
    TextPart(0, "a", Details([], [], RunningUsage(UsedTokens(7, 3, 3), 4, 1.5, 2.5))),
    ToolCallPiece(0, 0, "{", "c1", "patch", Details([token(b"{")], [1])),
    ToolCallPiece(0, 0, " ", details=Details([token(b" "), token(b" ")], [1, 1])),
    end(0, "end", 5),
]


async def test_details_are_members_of_the_event_of_their_text(daemon: Daemon) -> None:
    """Details without text have an event of their own, also if the writer holds back the text."""
    flags: Json = {"n_answers": 1, "include_usage": False, "has_running_usage": True, "customs": frozenset(["patch"])}
    events = parse_events(written(ChatWriter(daemon.state, **flags), DETAILED))
    choices = [chunk["choices"][0] for chunk in events.chunks][1:-1]
    told = [[one["token"] for one in (choice.get("logprobs") or {"content": []})["content"]] for choice in choices]
    assert told == [[], ["hm"], ["</think>"], [], ["{"], [" ", " "]]
    assert [choice.get("token_ids") for choice in choices] == [None, [2], [8], None, [1], [1, 1]]
    deltas = [choice["delta"] for choice in choices]
    custom = {"index": 0, "id": "c1", "type": "custom", "custom": {"name": "patch", "input": ""}}
    expected: list[Json] = [{}, {"reasoning_content": "hm"}, {}, {"content": "a"}, {"tool_calls": [custom]}, {}]
    assert deltas == expected
    used = [chunk["usage"]["completion_tokens"] for chunk in events.chunks if "usage" in chunk]
    assert used == [3, 5] and events.chunks[1]["prompt_token_ids"] == [8, 9]


async def test_a_whole_has_the_details_of_all_parts(daemon: Daemon) -> None:
    answer = json.loads(ChatWriter(daemon.state, n_answers=1, include_usage=False).complete(DETAILED))
    [choice] = answer["choices"]
    assert "".join(one["token"] for one in choice["logprobs"]["content"]) == "hm</think>{  "
    assert choice["token_ids"] == [2, 8, 1, 1, 1] and answer["prompt_token_ids"] == [8, 9]
    answer = json.loads(
        CompletionWriter(daemon.state, n_answers=1, include_usage=False).complete([DETAILED[0], end(0, "end", 0)])
    )
    [choice] = answer["choices"]
    assert (choice["token_ids"], choice["prompt_token_ids"]) == ([], [8, 9]), "an answer without tokens"


async def test_what_was_refused_is_not_written(daemon: Daemon) -> None:
    """Requests that would lead to such parts are refused earlier."""
    writer = CompletionWriter(daemon.state, n_answers=1, include_usage=False)
    writer.opening()
    with pytest.raises(TypeError, match="Reasoning"):
        writer.events([ReasoningPart(0, "hm")])
