"""Random conversations of several sessions at once, and a check that each text equals that of a new session."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace

from llmd.engine.native import OUTCOME_WORDS, STATUS_WORDS, GenerateFlag, Outcome
from llmd.engine.wire import ALL_TOKENS, Cancel, Close, Fork, Load, Park, Pin, Rename, Reset, Save
from tests.storm.engine import Answer, Engine, Places

TURN_START, TURN_END, NEWLINE = 257, 258, 10
WORDS = range(300, 500)
SYSTEMS = ([*range(300, 340)], [*range(350, 386)])
NAMES = "abcdef"
HISTORY_TOKENS_MAX = 1200

WAITED_IN_VAIN = {"capacity_exhausted", "queue_full", "overloaded"}
"""Errors that a busy engine may return."""


@dataclass(frozen=True)
class Asked:
    session: str
    prompt: tuple[int, ...]
    n_tokens: int


@dataclass
class Reference:
    """The answers of a new session, one for each prompt. Its engine has no injected failures."""

    engine: Engine
    known: dict[tuple[tuple[int, ...], int], Answer] = field(default_factory=dict)

    def answer(self, asked: Asked) -> Answer:
        key = asked.prompt, asked.n_tokens
        if key not in self.known:
            self.known[key] = self.engine.cold(list(asked.prompt), asked.n_tokens)
        return self.known[key]


@dataclass
class Outcomes:
    """Counts of what happened in a storm, so that a test can check that something did."""

    reasons: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    n_prompt: int = 0
    n_prefilled: int = 0


def boundaries_of(prompt: list[int]) -> list[int]:
    """Returns the ends of a prompt's parts: the system text, each message, the generation prompt."""
    return [k for k, token in enumerate(prompt) if token == TURN_START and k > 0] + [len(prompt)]


class Storm:
    """One engine under random operations. `step` does one operation, and `check` compares all texts."""

    def __init__(self, model: str, places: Places, seed: int) -> None:
        self.model, self.places = model, places
        self.random = random.Random(seed)
        self.engine = Engine(model, places)
        self.asked: dict[int, Asked] = {}
        self.answers: dict[int, Answer] = {}
        self.histories: dict[str, list[int]] = {}
        self.complaints: list[str] = []
        self.n_restarts = 0

    # --- prompts -----------------------------------------------------------------------------------------------------

    def _message(self) -> list[int]:
        words = [self.random.choice(WORDS) for _ in range(self.random.randrange(3, 30))]
        return [TURN_START, *words, TURN_END, NEWLINE]

    def _fresh(self) -> list[int]:
        return [*self.random.choice(SYSTEMS), *self._message(), TURN_START]

    def _history(self, name: str) -> list[int]:
        if len(self.histories.get(name, ())) > HISTORY_TOKENS_MAX:
            del self.histories[name]
        return self.histories.setdefault(name, self._fresh())

    def _branch(self, history: list[int], turn: int) -> list[int]:
        """Returns the history in which another message replaces that turn and all later ones."""
        starts = [k for k, token in enumerate(history[:-1]) if token == TURN_START]
        return [*history[: starts[min(turn, len(starts) - 1)]], *self._message(), TURN_START]

    def _prompt(self, name: str) -> tuple[list[int], bool]:
        """Returns a prompt, and whether the conversation continues with it."""
        history, way = self._history(name), self.random.random()
        if way < 0.55:
            return history, True
        if way < 0.7:
            return self._branch(history, len(history)), True
        if way < 0.8:
            return self._branch(history, 1), False
        if way < 0.9:
            return self._fresh(), False
        return history[: self.random.randrange(5, len(history))], False

    # --- operations --------------------------------------------------------------------------------------------------

    def generate(self) -> None:
        name = self.random.choice(NAMES)
        prompt, goes_on = self._prompt(name)
        n_tokens = self.random.randrange(1, 40)
        session = name if self.random.random() < 0.9 else ""
        parent = self.random.choice(["", "", "a", "b"])
        request = self.engine.generate(session, prompt, n_tokens, boundaries=boundaries_of(prompt), parent=parent)
        self.asked[request] = Asked(session, tuple(prompt), n_tokens)
        self.answers[request] = self.engine.answers[request]
        if self.random.random() < 0.12:
            self.engine.push(Cancel(request))
        if goes_on and self.random.random() < 0.8:
            self._go_on(name, prompt, request)

    def _go_on(self, name: str, prompt: list[int], request: int) -> None:
        self.engine.wait([request])
        answer = self.answers[request]
        if answer.is_whole and self.random.random() < 0.85:  # else the same answer is requested again
            said = self.engine.tokenize(answer.text)
            self.histories[name] = [*prompt, *said, TURN_END, NEWLINE, *self._message(), TURN_START]

    def command(self) -> None:
        choose, name = self.random.choice, self.random.choice(NAMES)
        match choose([Reset, Close, Park, Park, Fork, Fork, Save, Load, Pin, Rename]):
            case other if other is Fork:
                self.engine.ask(Fork, name, choose("abcdefxy"), choose([ALL_TOKENS, 50, 120]), True)
            case other if other is Save:
                self.engine.ask(Save, name, "saved-" + name)
            case other if other is Load:
                self.engine.ask(Load, name, "saved-" + choose(NAMES))
            case other if other is Pin:
                self.engine.ask(Pin, name, choose([True, False, False]))
            case other if other is Rename:
                self.engine.ask(Rename, name, choose("abcdefxy"))
            case other:
                self.engine.ask(other, name)

    def restart(self) -> None:
        """Stops the engine normally and starts another one with the same state directory."""
        self.engine.wait_all()
        self.complaints += self.engine.complaints()
        self.engine.close()
        self.engine = Engine(self.model, self.places, self.engine.next_request)
        self.n_restarts += 1

    def step(self) -> None:
        what = self.random.random()
        if what < 0.66:
            self.generate()
        elif what < 0.97:
            self.command()
        elif self.places.state_dir is not None:
            self.restart()
        self.engine.poll()
        self.check_budgets()

    def run(self, n_steps: int) -> None:
        for _ in range(n_steps):
            self.step()
        self.engine.wait_all()
        self.complaints += self.engine.complaints()

    # --- checks ------------------------------------------------------------------------------------------------------

    def check_budgets(self) -> None:
        counters, info = self.engine.session_table.counters(), self.engine.info
        assert counters["checkpoint_bytes"] <= info.checkpoint_bytes_max
        assert counters["sessions_open"] <= info.n_entries

    def check(self, reference: Reference, *, faults: bool = False) -> Outcomes:
        found = Outcomes()
        for request, asked in self.asked.items():
            answer, end = self.answers[request], self.answers[request].end
            found.ends[OUTCOME_WORDS[end.outcome]] += 1
            found.n_prompt += end.n_prompt
            found.n_prefilled += end.n_prefilled
            if answer.started is not None:
                found.reasons[answer.reason] += 1
            self._check_text(asked, answer, reference.answer(asked), faults)
        return found

    def _check_text(self, asked: Asked, answer: Answer, cold: Answer, faults: bool) -> None:
        told = f"{asked.session!r}, {len(asked.prompt)} tokens, {answer.started}, {answer.finished}"
        if answer.is_whole:
            assert (answer.text, answer.end.outcome) == (cold.text, cold.end.outcome), told
            return
        assert cold.text.startswith(answer.text), told
        word = STATUS_WORDS[answer.end.status]
        match answer.end.outcome:
            case Outcome.CANCELLED:
                pass
            case Outcome.REFUSED:
                assert word in WAITED_IN_VAIN and answer.text == "", told
            case Outcome.FAILED:
                assert faults and word in {"step_failed", "kv_cache_full"}, told
            case _:
                raise AssertionError(told)


def check_sensitivity(reference: Reference, asked: Asked) -> None:
    """Checks that one different early token changes the text. Otherwise equal texts would prove nothing."""
    prompt = list(asked.prompt)
    prompt[1] = prompt[1] + 1
    other = reference.engine.say("", prompt, asked.n_tokens, flags=GenerateFlag.COLD)
    assert other.text != reference.answer(replace(asked)).text
