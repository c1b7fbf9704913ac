"""Messages to and from libllm are compared with its tables. Token details arrive with the text."""

from __future__ import annotations

import asyncio
import math
from array import array
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from llmd.core.errors import ApiError
from llmd.core.sampling_table import SAMPLING
from llmd.engine import loader, wire
from llmd.engine.engine import Engine
from llmd.engine.loader import EngineLoader
from llmd.engine.native import COMMANDS, EVENTS, SAMPLING_FIELDS, Field, GenerateFlag, ffi
from llmd.engine.opening import EngineError, EngineOptions
from llmd.engine.text import Prompt
from llmd.engine.wire import Admitted, Consumed, Finished, Generate, Sampling, Started, Text

PROMPT = Prompt(array("i", range(300, 340)).tobytes())


# --- the tables ------------------------------------------------------------------------------------------------------


def test_both_sides_agree() -> None:
    assert wire.differences() == []
    assert len(COMMANDS) == 12 and len(EVENTS) == 7


def changed(command: str, index: int, **to: Any) -> dict[str, tuple[int, tuple[Field, ...]]]:
    number, fields = COMMANDS[command]
    field = Field(**{name: getattr(fields[index], name) for name in Field.__slots__} | to)
    return COMMANDS | {command: (number, (*fields[:index], field, *fields[index + 1 :]))}


@pytest.mark.parametrize(
    ("commands", "found"),
    [
        (COMMANDS | {"DREAM": (13, ())}, ["DREAM: only the daemon or only libllm knows it"]),
        (COMMANDS | {"PARK": (70, COMMANDS["PARK"][1])}, ["Park: libllm has the number 70"]),
        (
            changed("SAVE", 3, name="tag"),
            [f"Save.{name}: only the daemon or only libllm knows it" for name in ("label", "tag")],
        ),
        (changed("FORK", 5, is_needed=True), ["Fork.replace: only the daemon or only libllm requires it"]),
        (changed("FORK", 4, default=7), ["Fork.at: libllm has the default 7"]),
    ],
)
def test_a_command_that_differs_is_found(monkeypatch: pytest.MonkeyPatch, commands: Any, found: list[str]) -> None:
    monkeypatch.setattr(wire, "COMMANDS", commands)
    assert wire.differences() == found


def test_an_event_that_differs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "EVENTS", EVENTS | {"REPLY": (5, ("request", "place", "status", "n_tokens"))})
    assert wire.differences() == [
        "REPLY: libllm has the number 5 and the members ('request', 'place', 'status', 'n_tokens')"
    ]


async def test_nothing_is_opened_that_would_be_misunderstood(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[EngineOptions] = []
    monkeypatch.setattr(loader, "differences", lambda: ["Save.label: only the daemon or only libllm knows it"])
    monkeypatch.setattr(loader, "open_engine", opened.append)
    begun = EngineLoader(EngineOptions(model="sim:dense"))
    with pytest.raises(EngineError, match=r"Save\.label: only the daemon or only libllm knows it"):
        begun.begin()  # as the process does, before it has an event loop
    with pytest.raises(EngineError, match=r"Save\.label: only the daemon or only libllm knows it"):
        await Engine.open(begun)
    begun.thread.shutdown()  # work that was given to it would have run by now
    assert opened == []


def test_sampling_is_the_table() -> None:
    names = [name for name, _ in ffi.typeof("llm_sampling").fields]
    assert [field.name for field in SAMPLING_FIELDS] == names == list(Sampling.__struct_fields__)
    assert sorted(row.name for row in SAMPLING) == sorted(names)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(Sampling())) == {}  # defaults are not sent
    assert Sampling().penalty_last_n == 64 and Sampling().top_p == 1.0 and Sampling().seed is None
    with pytest.raises(TypeError, match="top_q"):
        Sampling(top_q=1.0)


# --- through an engine -----------------------------------------------------------------------------------------------


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    engine = await Engine.open(EngineOptions(model="sim:hybrid,length=0", n_scratch=3))
    yield engine
    await engine.close()


class Heard:
    """A listener of one generation that keeps its events."""

    def __init__(self) -> None:
        self.texts: list[Text] = []
        self.consumed: list[Consumed] = []
        self.started: Started | None = None
        self.finished: Finished | None = None
        self.done = asyncio.Event()

    def on_admitted(self, event: Admitted) -> None: ...

    def on_started(self, event: Started) -> None:
        self.started = event

    def on_consumed(self, event: Consumed) -> None:
        self.consumed.append(event)

    def on_text(self, event: Text) -> None:
        self.texts.append(event)

    def on_finished(self, event: Finished) -> None:
        self.finished = event
        self.done.set()

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.texts)


def generate(engine: Engine, after: int = 0, **asked: Any) -> tuple[Heard, int]:
    heard = Heard()
    sampling = asked.pop("sampling", Sampling())
    flags = asked.pop("flags", GenerateFlag(0)) | GenerateFlag.IGNORE_END
    command = Generate(request=0, owner=0, prompt=PROMPT.tokens, max_tokens=30, sampling=sampling, flags=flags, **asked)
    return heard, engine.generate(heard, command, after)


async def heard_out(*all_heard: Heard) -> None:
    async with asyncio.timeout(30):
        for heard in all_heard:
            await heard.done.wait()


def floats(raw: bytes) -> list[float]:
    return list(array("f", raw))


def pairs(raw: bytes) -> list[tuple[int, float]]:
    return list(zip(array("i", raw)[::2], floats(raw)[1::2], strict=True))


async def test_text_alone_unless_asked(engine: Engine) -> None:
    plain, _ = generate(engine)
    await heard_out(plain)
    assert plain.text and {event.tokens + event.ends + event.logprobs + event.likeliest for event in plain.texts} == {
        b""
    }


async def test_tokens_come_with_their_text(engine: Engine) -> None:
    plain, _ = generate(engine)
    told, _ = generate(engine, flags=GenerateFlag.RETURN_TOKENS)
    await heard_out(plain, told)
    tokens = b"".join(event.tokens for event in told.texts)
    assert len(tokens) == 4 * 30
    assert told.text == plain.text == engine.spell(tokens).decode()
    for event in told.texts:
        before = 0
        for token, end in zip(array("i", event.tokens), array("I", event.ends), strict=True):
            assert event.text[before:end] == engine.spell(array("i", [token]).tobytes()).decode()
            before = end
        assert before == len(event.text) and event.logprobs == event.likeliest == b""


async def test_log_probabilities(engine: Engine) -> None:
    told, _ = generate(engine, n_logprobs=2)
    await heard_out(told)
    tokens = array("i", b"".join(event.tokens for event in told.texts))
    chosen = floats(b"".join(event.logprobs for event in told.texts))
    likeliest = pairs(b"".join(event.likeliest for event in told.texts))
    assert len(tokens) == len(chosen) == 30 and len(likeliest) == 60
    for number, (token, logprob) in enumerate(zip(tokens, chosen, strict=True)):
        first, second = likeliest[2 * number : 2 * number + 2]
        assert first == (token, logprob) and second[1] <= logprob <= 0  # greedy
        assert math.exp(first[1]) + math.exp(second[1]) <= 1.0001


async def test_how_far_the_prompt_is(engine: Engine) -> None:
    plain, _ = generate(engine)
    told, _ = generate(engine, flags=GenerateFlag.RETURN_CONSUMED | GenerateFlag.COLD)
    await heard_out(plain, told)
    assert plain.consumed == [] and plain.text == told.text
    assert told.consumed[-1].n_tokens == PROMPT.n_tokens


async def test_several_answers_to_one_prompt(engine: Engine) -> None:
    """There is only one prefill: the other answers begin when the prompt of the first has been prefilled."""
    first, request = generate(engine, sampling=Sampling(temperature=1.0, seed=1))
    others = [generate(engine, sampling=Sampling(temperature=1.0, seed=seed), after=request)[0] for seed in (2, 3)]
    await heard_out(first, *others)
    assert [heard.finished.n_prefilled for heard in (first, *others) if heard.finished] == [PROMPT.n_tokens, 0, 0]
    assert len({heard.text for heard in (first, *others)}) == 3


async def test_what_is_refused_is_named(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ApiError) as error:
        generate(engine, sampling=Sampling(top_p=7.0))
    assert error.value.code == "internal_error" and engine.n_live == 0
    (record,) = caplog.records
    assert record.__dict__["fields"] == {"op": "Generate", "field": "sampling.top_p"}
