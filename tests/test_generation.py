"""The class Engine, and the life of a generation, without HTTP."""

from __future__ import annotations

import asyncio
import os
from array import array
from collections.abc import AsyncIterator

import pytest

from llmd.core.errors import ApiError
from llmd.core.session_key import SCRATCH, SessionKey
from llmd.engine.engine import Engine
from llmd.engine.generation import CancelReason, Generation, Notifier, Work
from llmd.engine.native import GenerateFlag, Status, lib
from llmd.engine.opening import EngineError, EngineOptions
from llmd.engine.text import Prompt
from llmd.engine.wire import Close, Command, Generate, Reset, Sampling

GREEDY = Sampling(temperature=0.0)
PAGE = "/llmd-test-lives"


def tokens_of(tokens: list[int]) -> bytes:
    return array("i", tokens).tobytes()


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    engine = await Engine.open(EngineOptions(model="sim:dense,ctx=100000,length=0", n_ctx=100_000))
    yield engine
    await engine.close()


ENDED: list[Generation] = []


def generation(
    engine: Engine, *, n: int = 8, name: str = "", is_stream: bool = False, prompt: bytes = b""
) -> Generation:
    key, tokens = SessionKey(name, "session_id") if name else SCRATCH, prompt or tokens_of([300, 301, 302])
    flags = GenerateFlag.IGNORE_END
    command = Generate(request=0, owner=0, session=key.id, prompt=tokens, max_tokens=n, sampling=GREEDY, flags=flags)
    work = Work(command=command, key=key, prompt=Prompt(tokens), prompt_param="prompt")
    return Generation(engine, work, Notifier(engine.loop), is_stream=is_stream, on_end=ENDED.append)


async def taken(one: Generation) -> str:
    """Waits for text, and returns the text that has arrived."""
    if not one._notifier.has_events:
        await one._notifier.wait()
    one._notifier.has_events = False
    return one.take_text()


async def whole(one: Generation) -> str:
    """Waits for the end, and returns all text that was not taken before."""
    while one.finished is None:
        await one._notifier.wait()
    one._notifier.has_events = False
    return one.take_text()


def how_it_ended(one: Generation) -> tuple[str, str | None, str, ApiError | None]:
    return one.outcome_word, one.reason_word, one.end_reason(), one.error()


async def test_a_life(engine: Engine) -> None:
    ENDED.clear()
    one = generation(engine)
    assert one.outcome_word == "running" and one.reason_word is None
    await one.admission()
    text = await whole(one)
    assert text and one.finished is not None and one.finished.n_generated == 8
    assert how_it_ended(one) == ("length", "new", "length", None)
    assert ENDED == [one] and engine.n_live == 0
    one.release()
    one.cancel(CancelReason.DEADLINE)  # has no effect after the end
    assert one.outcome_word == "length"


async def test_a_failing_listener_harms_nobody_else(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """One batch has the events of many requests."""

    def fail(_: Generation) -> None:
        raise ValueError("of one only")

    failing = [generation(engine, n=3) for _ in range(3)]
    for one in failing:
        one._on_end = fail
    others = [generation(engine, n=3) for _ in range(3)]
    async with asyncio.timeout(30):
        texts = [await whole(one) for one in (*failing, *others)]
    assert all(texts) and engine.n_live == 0
    assert sum("could not be handled" in record.message for record in caplog.records) == 3


async def test_pieces_add_up(engine: Engine) -> None:
    one, two = generation(engine, n=500, is_stream=True), generation(engine, n=500)
    pieces = []
    while one.finished is None:
        pieces.append(await taken(one))
    pieces.append(one.take_text())
    assert "".join(pieces) == await whole(two)


async def test_the_first_reason_counts(engine: Engine) -> None:
    one = generation(engine, n=90_000)
    await one.admission()
    one.cancel(CancelReason.DEADLINE)
    one.cancel(CancelReason.CLIENT_GONE)
    await whole(one)
    error = one.error()
    assert one.outcome_word == "deadline_exceeded" and error is not None and error.code == "deadline_exceeded"


async def test_release_drops_text_and_still_hears_the_end(engine: Engine) -> None:
    ENDED.clear()
    one = generation(engine, n=90_000, is_stream=True)
    await one.admission()
    one.release()
    await engine.idle()
    assert ENDED == [one] and one.outcome_word == "client_gone"
    assert one.take_text() == ""


async def test_a_cancel_survives_a_full_ring(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    one = generation(engine, n=90_000)
    await one.admission()
    push, refusals = engine._push, iter([Status.FULL, Status.FULL, Status.FULL])
    monkeypatch.setattr(engine, "_push", lambda command: next(refusals, None) or push(command))
    one.cancel(CancelReason.DEADLINE)
    engine.cancel(10**9)  # queued after it; no such request exists
    await whole(one)
    assert one.outcome_word == "deadline_exceeded" and next(refusals, None) is None


async def test_full_refuses_a_generation(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_push", lambda command: int(Status.FULL))
    with pytest.raises(ApiError) as caught:
        generation(engine)
    assert (caught.value.code, caught.value.status) == ("overloaded", 503)
    with pytest.raises(ApiError):
        await engine.ask(Reset, 0, "a")
    assert engine.n_live == 0


async def test_a_prompt_that_does_not_fit(engine: Engine) -> None:
    with pytest.raises(ApiError) as caught:
        generation(engine, prompt=tokens_of([300] * 100_001))
    assert caught.value.code == "context_length_exceeded"
    exact = generation(engine, prompt=tokens_of([300] * 100_000))
    try:
        await exact.admission()
        await whole(exact)
    except ApiError as error:
        assert error.code == "context_length_exceeded"


async def test_reset_and_close_of_nobody(engine: Engine) -> None:
    assert (await engine.ask(Reset, 0, "nobody")).status == Status.NOT_FOUND
    assert (await engine.ask(Close, 0, "nobody")).status == Status.NOT_FOUND


async def test_closing_the_engine_ends_what_runs() -> None:
    engine = await Engine.open(EngineOptions(model="sim:dense,ctx=100000,length=0", n_ctx=100_000))
    many = [generation(engine, n=90_000, name=f"s{n}") for n in range(8)]
    for one in many:
        await one.admission()
    await engine.close()
    assert [one.outcome_word for one in many] == ["shutdown"] * 8
    assert {error.code for one in many if (error := one.error())} == {"shutting_down"}


async def test_nothing_is_pushed_to_an_engine_that_is_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = await Engine.open(EngineOptions(model="sim:dense,ctx=100000,length=0", n_ctx=100_000))
    pushed: list[Command] = []

    def full(command: Command) -> int:
        pushed.append(command)
        return int(Status.FULL)

    monkeypatch.setattr(engine, "_push", full)
    engine.cancel(1)
    assert pushed
    await engine.close()
    pushed.clear()
    engine._push_unsent()  # the timer, which still runs, calls this
    assert not pushed


@pytest.mark.parametrize("model", ["sim:none", "sim:dense,nonsense=1", "/no/such/file.gguf"])
async def test_a_model_that_does_not_open(model: str) -> None:
    with pytest.raises(EngineError, match=r"\w+"):
        await Engine.open(EngineOptions(model=model))


async def test_fifty_lives_leave_nothing() -> None:
    def open_now() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    opened = []
    for _ in range(50):
        engine = await Engine.open(EngineOptions(model="sim:hybrid", table_name=PAGE))
        await whole(generation(engine))
        await engine.close()
        assert PAGE.lstrip("/") not in os.listdir("/dev/shm")
        opened.append(open_now())
    assert opened[-1][0] == opened[0][0]
    assert opened[-1][1] < opened[0][1] + 10  # a joined thread may take a moment to leave the list


def test_the_buffer_is_large_enough() -> None:
    assert lib.LLM_DRAIN_BYTES_MIN >= lib.LLM_OUTBOX_BYTES_MAX
