"""After any operations, a session generates the same text as a new one, and reuses as much of its state as it can."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from llmd.engine.wire import ALL_TOKENS, Close, Fork, Load, Park, Save
from tests.storm.engine import POLICY_EVICT, Engine, Places, serving_engine
from tests.storm.storm import (
    NEWLINE,
    SYSTEMS,
    TURN_END,
    TURN_START,
    Asked,
    Reference,
    Storm,
    boundaries_of,
    check_sensitivity,
)

CLASSES = ("dense", "window", "recurrent", "hybrid")
FAULTS = ("batch", "all", "half", "cells")
N_STEPS = 300


def tight(state_dir: Path, n_ctx: int = 0) -> Places:
    """Returns limits with little memory for parked states, so that many move to the disk, and for checkpoints, so that
    many are evicted.
    """
    return Places(state_dir=state_dir, n_ctx=n_ctx, parked_bytes=20_000, checkpoint_bytes=200_000)


@pytest.fixture(scope="module")
def reference() -> Iterator[Reference]:
    """Equal tokens give equal states in every memory class, so one model can generate all expected answers."""
    with serving_engine("sim:dense", n_sessions=1, policy=POLICY_EVICT) as engine:
        yield Reference(engine)


# --- storms ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("memory", CLASSES)
def test_a_storm(reference: Reference, tmp_path: Path, memory: str, seed: int) -> None:
    storm = Storm(f"sim:{memory}", tight(tmp_path), seed)
    try:
        storm.run(N_STEPS)
        found = storm.check(reference)
    finally:
        storm.engine.close()
    assert not storm.complaints
    # The order of the steps decides whether a session still has its slot (exact_prefix) or was restored to one
    # (restored), and whether an answer is requested again before its session was moved. In each order, at least one of
    # these reasons occurs.
    assert {"new", "shared"} <= found.reasons.keys(), found
    assert found.reasons.keys() & {"exact_prefix", "restored", "equal"}, found
    assert found.ends["length"] > 20 and found.ends["cancelled"] > 0, found
    assert "torn" not in found.reasons and found.n_prefilled < found.n_prompt / 2, found


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("memory", CLASSES)
def test_a_storm_with_faults(reference: Reference, tmp_path: Path, memory: str, kind: str) -> None:
    model = f"sim:{memory},fail_every=37,fail_kind={kind}"
    storm = Storm(model, tight(tmp_path), seed=7)
    try:
        storm.run(N_STEPS)
        found = storm.check(reference, faults=True)
        n_failed = storm.engine.counter("steps_failed_total") if storm.n_restarts == 0 else None
    finally:
        storm.engine.close()
    if kind != "cells":
        assert n_failed != 0 and found.ends["failed"] > 0, found
    assert found.ends["length"] > 20, found


@pytest.mark.parametrize("memory", ["dense", "window", "hybrid"])
def test_a_storm_in_too_few_cells(reference: Reference, tmp_path: Path, memory: str) -> None:
    """Two sessions and a scratch session do not fit into memory together. They take turns, and no request fails."""
    storm = Storm(f"sim:{memory},cells=1600", tight(tmp_path, n_ctx=1500), seed=3)
    try:
        storm.run(N_STEPS)
        found = storm.check(reference)
    finally:
        storm.engine.close()
    assert found.ends["length"] > 20, found


def test_another_early_token_gives_another_text(reference: Reference) -> None:
    prompt = (*SYSTEMS[0], TURN_START, *range(400, 440), TURN_START)
    check_sensitivity(reference, Asked("a", prompt, 24))


def test_a_state_of_other_tokens_shows(reference: Reference) -> None:
    """A control for the storms: if a session had kept one wrong token, its text would differ."""
    prompt = [*SYSTEMS[0], TURN_START, *range(400, 440), TURN_START]
    expected = reference.answer(Asked("a", tuple(prompt), 24)).text
    for k in range(0, len(prompt), 7):
        changed = [*prompt[:k], prompt[k] + 1, *prompt[k + 1 :]]
        assert reference.answer(Asked("a", tuple(changed), 24)).text != expected


# --- what must be reused ---------------------------------------------------------------------------------------------


class Talk:
    """A conversation of one session with the boundaries that a chat has. Its history contains exactly the generated
    tokens.
    """

    def __init__(self, engine: Engine, name: str, system: list[int] = SYSTEMS[0]) -> None:
        self.engine, self.name = engine, name
        self.prompt = [*system]
        self.has_answer = False
        self.before_last: list[int] = []
        """The history up to the user's last message. If that message is edited, the histories differ from here on."""

    def user(self, first: int, n: int = 20) -> list[int]:
        words = (300 + (first * 31 + i * 7) % 200 for i in range(n))
        return [TURN_START, *words, TURN_END, NEWLINE, TURN_START]

    def ask(self, prompt: list[int], n_tokens: int = 12) -> tuple[str, int, int]:
        """Returns the reason, the reused tokens and the prefilled tokens. The text must equal that of a new session."""
        warm = self.engine.say(self.name, prompt, n_tokens, boundaries=boundaries_of(prompt))
        assert warm.is_whole
        assert warm.text == self.engine.cold(prompt, n_tokens).text
        return warm.reason, warm.reused, warm.end.n_prefilled

    def turn(self, number: int) -> tuple[str, int, int]:
        """Sends another user message and adds its answer to the history."""
        self.before_last = [*self.prompt, *([TURN_END, NEWLINE] if self.has_answer else [])]
        prompt = [*self.before_last, *self.user(number)]
        warm = self.engine.say(self.name, prompt, 12, boundaries=boundaries_of(prompt))
        assert warm.is_whole and warm.text == self.engine.cold(prompt, 12).text
        self.has_answer = True
        self.prompt = next(t for t in self.engine.resident(self.name) if t[: len(prompt)] == prompt)
        return warm.reason, warm.reused, warm.end.n_prefilled


@pytest.fixture(params=CLASSES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with serving_engine(f"sim:{request.param},length=0", n_sessions=4, state_dir=tmp_path) as engine:
        yield engine


def test_appending_is_never_cold(engine: Engine) -> None:
    talk = Talk(engine, "a")
    talk.turn(0)
    for number in range(1, 6):
        before = len(talk.prompt)
        reason, reused, prefilled = talk.turn(number)
        assert (reason, reused, prefilled) == ("exact_prefix", before, len(talk.user(number)) + 2)


def test_regenerating_prefills_nothing(engine: Engine) -> None:
    talk = Talk(engine, "a")
    talk.turn(0)
    talk.turn(1)
    prompt = [*talk.before_last, *talk.user(1)]
    for _ in range(3):
        reason, reused, prefilled = talk.ask(prompt)
        assert reused >= len(prompt) - 1 and prefilled <= 1 and reason in {"equal", "rewind", "checkpoint"}


def test_editing_the_last_message_reuses_what_stands_before_it(engine: Engine) -> None:
    talk = Talk(engine, "a")
    for number in range(4):
        talk.turn(number)
    for number in range(50, 54):
        edited = [*talk.before_last, *talk.user(number)]
        _, reused, _ = talk.ask(edited)
        assert reused >= len(talk.before_last)


def test_branching_at_an_early_turn_reuses_up_to_it(engine: Engine) -> None:
    talk = Talk(engine, "a")
    lengths = []
    for number in range(6):
        talk.turn(number)
        lengths.append(len(talk.before_last))
    for turn in (3, 1, 2):
        _, reused, _ = talk.ask([*talk.prompt[: lengths[turn]], *talk.user(70 + turn)])
        assert reused >= lengths[turn]


def test_a_stripped_answer_reuses_up_to_the_answer(engine: Engine) -> None:
    """A client sends the answer back without its reasoning, so the histories differ from where the generation began."""
    talk = Talk(engine, "a")
    talk.turn(0)
    begun = len(talk.before_last) + len(talk.user(0))
    _, reused, _ = talk.ask([*talk.prompt[:begun], 299, 298, *talk.user(1)])
    assert reused >= begun - 1


def test_the_way_back_is_warm_after_each_kind_of_leave(engine: Engine) -> None:
    talk = Talk(engine, "a")
    for number in range(3):
        talk.turn(number)
    assert engine.do(Park, "a").status == 0
    reason, reused, _ = talk.turn(3)
    assert (reason, reused) == ("restored", len(talk.before_last) - 2)
    assert engine.do(Save, "a", "kept").status == 0
    assert engine.do(Load, "b", "kept").status == 0
    other = Talk(engine, "b")
    other.prompt, other.has_answer = talk.prompt, True
    assert other.turn(9)[1] == len(other.before_last) - 2
    assert engine.do(Fork, "a", "c", ALL_TOKENS, True).status == 0
    fork = Talk(engine, "c")
    fork.prompt, fork.has_answer = talk.prompt, True
    assert fork.turn(10)[1] >= len(fork.before_last) - 2


def test_a_restarted_engine_goes_on(tmp_path: Path) -> None:
    for memory in CLASSES:
        directory = tmp_path / memory
        directory.mkdir()
        with serving_engine(f"sim:{memory},length=0", state_dir=directory) as engine:
            talk = Talk(engine, "a")
            for number in range(3):
                talk.turn(number)
        with serving_engine(f"sim:{memory},length=0", state_dir=directory) as engine:
            talk.engine = engine
            reason, reused, prefilled = talk.turn(3)
            assert (reason, reused, prefilled) == ("restored", len(talk.before_last) - 2, len(talk.user(3)) + 2)
            _, reused, _ = talk.ask([*talk.before_last, *talk.user(60)])
            assert reused >= len(talk.before_last), "its checkpoints came back, too"


@pytest.mark.parametrize("memory", ["dense", "window,window=16", "recurrent", "hybrid"])
def test_a_session_moved_to_the_disk_keeps_its_checkpoints(tmp_path: Path, memory: str) -> None:
    """The session is on disk when the engine stops. The first request after the restart edits the session's last
    message.
    """
    places = Places(n_sessions=1, parked_bytes=1, state_dir=tmp_path)
    with serving_engine(f"sim:{memory},length=0", places) as engine:
        talk, _ = conversation(engine, 3)
        Talk(engine, "b", SYSTEMS[1]).turn(0)  # uses the only slot
    with serving_engine(f"sim:{memory},length=0", places) as engine:
        talk.engine = engine
        _, reused, _ = talk.ask([*talk.before_last, *talk.user(60)])
        assert reused >= len(talk.before_last)


def test_a_shared_system_text_is_consumed_once(engine: Engine) -> None:
    system = [300 + i % 190 for i in range(200)]
    Talk(engine, "a", system).turn(0)
    for number, name in enumerate("bcd"):
        reason, reused, _ = Talk(engine, name, system).turn(number + 1)
        assert reason == "shared" and reused >= len(system)


def test_a_shared_system_text_is_found_behind_what_a_closed_session_left(engine: Engine) -> None:
    """A hundred longer checkpoints match too, but they need attention state that was deleted with their session."""
    system = [300 + i % 190 for i in range(200)]
    talk = Talk(engine, "a")
    prompt = [*system, *talk.user(0)]
    engine.say("a", prompt, 100 * engine.places.checkpoint_every, boundaries=boundaries_of(prompt))
    history = next(iter(engine.resident("a")))
    assert engine.do(Close, "a").status == 0
    again = [*history, TURN_END, NEWLINE, *talk.user(1)]
    warm, cold = engine.say("b", again, 12, boundaries=boundaries_of(again)), engine.cold(again, 12)
    assert warm.reason == "shared" and warm.reused >= len(system)
    assert warm.text == cold.text


# --- the states in which a server that judges by memory positions loses a valid checkpoint ----------------------------


def conversation(engine: Engine, n_turns: int) -> tuple[Talk, list[int]]:
    """Returns a conversation and the length of its history before each turn."""
    talk, lengths = Talk(engine, "a"), []
    for number in range(n_turns):
        talk.turn(number)
        lengths.append(len(talk.before_last))
    return talk, lengths


def test_checkpoint_survives_the_restore_of_an_earlier_one(engine: Engine) -> None:
    """Restoring a checkpoint does not delete later ones, which may match the next prompt."""
    talk, lengths = conversation(engine, 5)
    assert talk.ask([*talk.prompt[: lengths[1]], *talk.user(80)])[1] >= lengths[1]
    assert talk.ask([*talk.prompt[: lengths[4]], *talk.user(81)])[1] >= lengths[4]


def test_checkpoint_survives_a_full_reset_to_zero(engine: Engine) -> None:
    """A request that shares nothing starts at zero in the same session. The checkpoints of the other history stay."""
    talk, lengths = conversation(engine, 4)
    foreign = [*SYSTEMS[1], *talk.user(90, 60)]
    assert talk.ask(foreign)[1] == 0
    assert talk.ask([*talk.prompt[: lengths[3]], *talk.user(91)])[1] >= lengths[3]


def test_checkpoint_survives_with_the_coverage_of_its_payload() -> None:
    """A checkpoint of a window covers only the positions that it saved. A rewind to a position before these is
    refused.
    """
    with serving_engine("sim:window,window=16,length=0", timelines=1) as engine:
        talk, lengths = conversation(engine, 5)
        assert talk.ask([*talk.prompt[: lengths[2]], *talk.user(80)])[1] >= lengths[2]
        for back in (3, 15, 16, 17, 40):  # in the restored window, at its edge and before it
            prompt = [*talk.prompt[: lengths[2] - back], *talk.user(81 + back)]
            assert talk.ask(prompt)[1] <= lengths[2] - back


def test_checkpoint_survives_only_up_to_the_divergence(engine: Engine) -> None:
    """A checkpoint after the common prefix contains other tokens, so it is not used for this prompt."""
    talk, lengths = conversation(engine, 5)
    for back in range(1, 12):
        common = lengths[3] + 2 - back
        edited = [*talk.prompt[:common], 299, *talk.prompt[common + 1 :], *talk.user(back)]
        assert talk.ask(edited)[1] <= common


def test_checkpoint_survives_a_short_unrelated_request(tmp_path: Path) -> None:
    """A short request that shares the template's header does not hide a long parked conversation. Reusing that
    conversation does not delete it.
    """
    for memory in CLASSES:
        with serving_engine(f"sim:{memory},length=0", n_sessions=1, timelines=1) as engine:
            talk, lengths = conversation(engine, 5)
            for number in range(3):
                short = Talk(engine, f"short-{number}")
                short.ask([*SYSTEMS[0], *short.user(100 + number, 4)])
                _, reused, _ = talk.ask([*talk.prompt[: lengths[4]], *talk.user(110 + number)])
                assert reused >= lengths[4], memory


def test_checkpoint_budget_is_kept(tmp_path: Path) -> None:
    with serving_engine("sim:hybrid,length=0,state_kb=16", checkpoint_bytes=1 << 18) as engine:
        for name in "ab":
            talk = Talk(engine, name)
            for number in range(8):
                talk.turn(number)
                assert engine.counter("checkpoint_bytes") <= 1 << 18
        assert engine.counter("checkpoints_evicted_total") > 0
        _, reused, _ = talk.ask([*talk.before_last, *talk.user(60)])
        assert reused >= len(SYSTEMS[0])
