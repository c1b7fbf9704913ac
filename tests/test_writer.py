"""Parts of answers as OpenAI's bytes, where no daemon makes them yet: several answers to one prompt."""

from __future__ import annotations

import json

import pytest

from llmd.core.errors import ApiError
from llmd.core.parts import End, EndReason, Failed, Part, ReasoningPart, SessionReport, TextPart, UsedTokens
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
    answer = json.loads(writer.whole([part for batch in PARTS for part in batch]))
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


async def test_what_was_refused_is_not_written(daemon: Daemon) -> None:
    """Readers refuse what would make such parts."""
    writer = CompletionWriter(daemon.state, n_answers=1, include_usage=False)
    writer.opening()
    with pytest.raises(TypeError, match="Reasoning"):
        writer.events([ReasoningPart(0, "hm")])
