"""From a GenerationRequest to the parts of answers, without HTTP and without a dialect."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from llmd.answers.digest import digests_of
from llmd.answers.memory import AnswerMemory
from llmd.core import limits
from llmd.core.errors import ApiError
from llmd.core.generation_request import ChatPrompt, GenerationRequest, PlainMessage, RawPrompt
from llmd.core.parts import End, Failed, Part, Progress, TextPart
from llmd.core.sampling_table import RequestedSampling
from llmd.core.session_key import SCRATCH
from llmd.dialects.anthropic.wire import MessagesRequest
from llmd.dialects.llamacpp.wire import NativeCompletionRequest
from llmd.dialects.ollama.wire import OllamaChatRequest, OllamaGenerateRequest
from llmd.dialects.openai.wire import ChatCompletionRequest, CompletionRequest
from llmd.dialects.reading import generation
from llmd.dialects.responses.wire import ResponseRequest
from llmd.engine.engine import Engine
from llmd.engine.generation import CancelReason, Generation
from llmd.engine.native import GenerateFlag
from llmd.engine.opening import EngineOptions
from llmd.pipeline import answer_record
from llmd.pipeline.answering import Answering, Observer, make_ready
from llmd.pipeline.services import Sender, Services
from llmd.pipeline.work import seed_of
from llmd.turns.log import TurnLog
from tests.fake_parser import FakeParser
from tests.serving import SETTLE_S, Json

SENDER = Sender(owner=0, n_bytes=100, is_large=False)
RANDOM = (1 << 64) - 1


@asynccontextmanager
async def serving(model: str) -> AsyncIterator[Services]:
    engine = await Engine.open(EngineOptions(model=model, n_ctx=100_000))
    turns = TurnLog(engine.session_table)
    yield Services(engine=engine, answers=AnswerMemory(), turns=turns, history="resident", scratch_reuse=True)
    await engine.close()


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    async with serving("sim:dense,ctx=100000") as services:
        yield services


def asked(**fields: Any) -> GenerationRequest:
    wanted: Json = {
        "prompt": RawPrompt("once upon a time"),
        "key": SCRATCH,
        "sampling": RequestedSampling(temperature=1.0, seed=7),
        "max_tokens": 40,
        "is_stream": True,
        "ignore_end": True,
    }
    return GenerationRequest(**{**wanted, **fields})


class Counted:
    """Counts the calls of observers."""

    def __init__(self) -> None:
        self.ended: list[Generation] = []
        self.n_texts = 0

    def observer(self) -> Observer:
        return Observer(self._text, self.ended.append)

    def _text(self) -> None:
        self.n_texts += 1


async def answering(services: Services, counted: Counted | None = None, **fields: Any) -> Answering:
    ready = await make_ready(services, asked(**fields), SENDER)
    return Answering(services, ready, (counted or Counted()).observer)


async def all_parts(one: Answering) -> list[Part]:
    await one.admission()
    found: list[Part] = []
    while not one.is_over:
        found += await one.parts()
    one.release()
    return found


def pushed(services: Services, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Returns a list that receives the commands that the engine gets from now on."""
    commands: list[Any] = []
    push = services.engine._push

    def noted(command: Any) -> int:
        commands.append(command)
        return int(push(command))

    monkeypatch.setattr(services.engine, "_push", noted)
    return commands


def text_of(parts: list[Part], index: int) -> str:
    return "".join(part.text for part in parts if isinstance(part, TextPart) and part.index == index)


async def test_one_answer(services: Services) -> None:
    counted = Counted()
    parts = await all_parts(await answering(services, counted))
    assert text_of(parts, 0) and counted.n_texts > 0
    end = parts[-1]
    assert isinstance(end, End) and [type(part) for part in parts].count(End) == 1
    assert (end.index, end.reason, end.usage.n_generated) == (0, "length", 40)
    assert end.session.prefilled_prompt_tokens == end.usage.n_prompt
    assert [one.outcome_word for one in counted.ended] == ["length"]


async def test_a_conversation(services: Services) -> None:
    said = ChatPrompt([PlainMessage("system", "be brief"), PlainMessage("user", "hello")])
    parts = await all_parts(await answering(services, prompt=said))
    assert text_of(parts, 0)


async def test_several_answers(services: Services) -> None:
    """Each answer has its own text and its own end. The first answer equals the answer to a request for one answer."""
    counted = Counted()
    parts = await all_parts(await answering(services, counted, n_answers=3))
    ends = [part for part in parts if isinstance(part, End)]
    assert sorted(end.index for end in ends) == [0, 1, 2] and len(counted.ended) == 3
    texts = [text_of(parts, index) for index in range(3)]
    assert len(set(texts)) == 3 and all(texts)
    assert text_of(await all_parts(await answering(services)), 0) == texts[0]
    prefilled = sorted(end.session.prefilled_prompt_tokens for end in ends)
    assert prefilled[1] <= 1 and prefilled[2] == ends[0].usage.n_prompt, "one of them reads the prompt for all"
    for end in ends:
        behind = parts[parts.index(end) + 1 :]
        assert all(part.index != end.index for part in behind), "something came after its end"


async def test_several_whole_answers(services: Services) -> None:
    one = await answering(services, n_answers=2, is_stream=False)
    await one.admission()
    parts = await one.all_parts()
    assert [(type(part), part.index) for part in parts] == [(TextPart, 0), (End, 0), (TextPart, 1), (End, 1)]


async def test_a_whole_fails_with_its_first_answer_that_fails(services: Services) -> None:
    """The client would not get the other answers."""
    one = await answering(services, n_answers=2, max_tokens=90_000, is_stream=False)
    await one.admission()
    one.generations[1].cancel(CancelReason.DEADLINE)
    with pytest.raises(ApiError, match="deadline_exceeded"):
        await one.all_parts()
    assert one.generations[0].finished is None
    one.release()


def until_ended(services: Services, n: int) -> None:
    """Blocks the event loop until all `n` answers have ended, so that it receives the ends of all at the same time."""
    while services.engine.session_table.counters()["finished_length_total"] < n:
        time.sleep(0.001)


async def test_each_of_several_answers_is_kept_with_its_own_tokens() -> None:
    """Without a session, answers can be found only by their prompt, and both answers have the same prompt."""
    async with serving("sim:dense,ctx=100000,step_us=5000") as services:  # the answers run at the same time
        said, n_tokens = [PlainMessage("user", "hello")], 20
        one = await answering(services, prompt=ChatPrompt(said), n_answers=2, max_tokens=n_tokens)
        until_ended(services, 2)
        parts = await all_parts(one)
        for index in (0, 1):
            answer = answer_record.message_of(text_of(parts, index))
            kept = services.answers.past(0, SCRATCH.id, [digests_of([*said, answer])[-1]])
            assert kept is not None and len(kept.tokens) // 4 >= n_tokens - 1, "the last one is not resident"


async def test_an_answer_that_cannot_be_queued_takes_the_others_with_it(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, generate = Counted(), services.engine.generate

    def full_after_two(*args: Any, **kwargs: Any) -> int:
        if services.engine.n_live == 2:
            raise ApiError("overloaded")
        return generate(*args, **kwargs)

    monkeypatch.setattr(services.engine, "generate", full_after_two)
    with pytest.raises(ApiError, match="overloaded"):
        await answering(services, counted, n_answers=3, max_tokens=90_000)
    await services.engine.idle()
    assert [one.outcome_word for one in counted.ended] == ["client_gone", "client_gone"]


async def test_a_failure_is_a_part_of_a_stream_and_an_error_of_a_whole(services: Services) -> None:
    one = await answering(services, max_tokens=90_000)
    await one.admission()
    one.cancel(CancelReason.DEADLINE)
    failed = (await all_parts(one))[-1]
    assert isinstance(failed, Failed) and failed.error.code == "deadline_exceeded" and one.error is failed.error
    one = await answering(services, max_tokens=90_000, is_stream=False)
    await one.admission()
    one.cancel(CancelReason.DEADLINE)
    with pytest.raises(ApiError, match="deadline_exceeded"):
        await one.all_parts()
    one.release()


async def test_an_answer_that_is_parsed_waits_for_who_takes_it(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text that is not taken is not parsed, and the engine pauses the generation."""
    paused, pause = asyncio.Queue[bool](), services.engine.pause

    def noted(request: int, is_paused: bool) -> None:
        paused.put_nowait(is_paused)
        pause(request, is_paused)

    monkeypatch.setattr(services.engine, "pause", noted)
    ready = await make_ready(services, asked(max_tokens=90_000), SENDER)
    one = Answering(services, dataclasses.replace(ready, parsers=[FakeParser()]), Counted().observer)
    async with asyncio.timeout(SETTLE_S):
        assert await paused.get() is True
    n_chars = len(text_of(await one.parts(), 0))
    assert limits.PENDING_TEXT_CHARS_MAX < n_chars < 2 * limits.PENDING_TEXT_CHARS_MAX
    assert await paused.get() is False
    parts = await all_parts(one)
    assert isinstance(parts[-1], End) and parts[-1].usage.n_generated == 90_000


async def test_the_stop_string_that_ended_it_is_told(services: Services) -> None:
    said = text_of(await all_parts(await answering(services)), 0)
    for stops, wanted in (([said[5:9]], said[5:9]), (["never, ever", said[:2]], said[:2]), (["never, ever"], None)):
        end = (await all_parts(await answering(services, stop=stops)))[-1]
        assert isinstance(end, End) and (end.stop, end.reason) == (wanted, "stop" if wanted else "length")


async def test_the_beginning_is_told_to_who_asks(services: Services) -> None:
    for n_answers in (1, 2):
        parts = await all_parts(await answering(services, returns_progress=True, n_answers=n_answers))
        for index in range(n_answers):
            own = [part for part in parts if part.index == index]
            first, end = own[0], own[-1]
            assert isinstance(first, Progress) and isinstance(end, End)
            assert (first.n_prompt, first.n_cached) == (end.usage.n_prompt, end.usage.n_cached)
            assert first.n_processed == first.n_cached


@pytest.mark.parametrize(
    ("wanted", "fields"),
    [
        (ChatCompletionRequest, {"messages": []}),
        (CompletionRequest, {"prompt": "a"}),
        (ResponseRequest, {}),
        (MessagesRequest, {"messages": [], "max_tokens": 1}),
        (OllamaGenerateRequest, {}),
        (OllamaChatRequest, {}),
        (NativeCompletionRequest, {"prompt": "a"}),
    ],
)
async def test_a_request_can_do_without_drafts(
    services: Services, monkeypatch: pytest.MonkeyPatch, wanted: type[msgspec.Struct], fields: dict[str, Any]
) -> None:
    """In every API, the engine gets the value of `speculate`."""
    commands = pushed(services, monkeypatch)
    for value in ({"speculate": "off"}, {"speculate": "auto"}, {"speculate": None}, {}):
        request = generation(msgspec.convert(fields | value, wanted), (SCRATCH, ""), RawPrompt("a"), max_tokens=1)
        await all_parts(Answering(services, await make_ready(services, request, SENDER), Counted().observer))
    flags = [GenerateFlag(command.flags) for command in commands]
    assert [GenerateFlag.NO_DRAFTS in each for each in flags] == [True, False, False, False]


async def test_a_nudge_brings_nothing(services: Services) -> None:
    one = await answering(services)
    waiting = one.parts()
    waiting.send(None)  # without the event loop, so that no event arrives in between
    one.nudge()
    with pytest.raises(StopIteration) as returned:
        waiting.send(None)
    assert returned.value.value == [] and not one.is_over
    assert isinstance((await all_parts(one))[-1], End)


@pytest.mark.parametrize(
    ("seed", "index", "expected"),
    [
        (None, 1, None), (-1, 0, None), (RANDOM, 0, None), (5, 0, 5), (5, 2, 7), (-2, 0, RANDOM - 1),
        (RANDOM - 1, 1, 0), (-(1 << 63), 0, 1 << 63),
    ],
)  # fmt: skip
def test_seeds(seed: int | None, index: int, expected: int | None) -> None:
    """No seed of an answer is by chance the number that means a random seed."""
    assert seed_of(seed, index) == expected
