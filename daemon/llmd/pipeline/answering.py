"""Answers one request: its generations as one sequence of parts.

Owned by the event loop. Exactly one task awaits `admission`, then `parts` or `whole`; in the end it calls `release`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from ..core.asked import Asked, PlainMessage
from ..core.errors import ApiError
from ..core.parts import End, Failed, Part, SessionReport, TextPart, UsedTokens
from ..engine.bell import Bell
from ..engine.generation import CancelReason, Generation, Work
from .parsing import Parser, Parsing
from .prompt import Prepared, prepared
from .remembered import keep_answer, message_of, resident_answer, turn_of
from .served import Sender, Served
from .work import seed_of, work_of


@dataclass(frozen=True, slots=True)
class Observer:
    """Who counts and measures one generation."""

    text: Callable[[], None]
    """Some came."""
    ended: Callable[[Generation], None]


@dataclass(frozen=True, slots=True)
class Ready:
    """A request that only has to be begun."""

    asked: Asked
    prepared: Prepared
    work: Work
    parsers: Sequence[Parser]
    """One for each answer; none: answers are text."""


async def make_ready(served: Served, asked: Asked, sender: Sender) -> Ready:
    """Everything before the engine: checks, rendering, tokenizing. Raises ApiError. What the engine cannot do, readers
    refuse: they know what the client calls it."""
    assert asked.n_logprobs is None and not (asked.returns_tokens or asked.returns_progress or asked.echoes)
    work = work_of(served, asked, sender.owner)
    found = await prepared(served, asked, sender)
    prompt = found.prompt
    parsers = await served.engine.parsers(sender.owner, prompt.syntax, asked.n_answers) if prompt.syntax else []
    stop = [*asked.stop, *prompt.stops]
    return Ready(asked, found, work(prompt=prompt, constraint=prompt.constraint, stop=stop), parsers)


class Answering:
    def __init__(self, served: Served, ready: Ready, observe: Callable[[], Observer]) -> None:
        """Queues the work. Raises ApiError when the engine cannot take it."""
        self._served = served
        self._owner = ready.work.owner
        self._bell = Bell(served.engine.loop)
        in_thread = partial(served.engine.parsed, self._owner)
        self._parsings = [Parsing(index, parser, in_thread) for index, parser in enumerate(ready.parsers)]
        """One for each answer; none: answers are text."""
        self._keeping: dict[int, Callable[[PlainMessage], None]] = {}
        """By index of the answer: what keeps it as this message, when it has ended and before that is told."""
        self.generations: list[Generation] = []
        """One for each answer; its index is that of its parts."""
        try:
            for index in range(ready.asked.n_answers):
                self.generations.append(self._begun(ready, index, observe()))
        except ApiError:
            self.release()
            raise
        self._open = list(enumerate(self.generations))
        """Those that may have more parts."""
        self.is_over = False
        """All parts were taken."""
        self.error: ApiError | None = None
        """Of the first answer that failed."""

    def _begun(self, ready: Ready, index: int, observer: Observer) -> Generation:
        served, work, digest = self._served, ready.work, ready.prepared.digest
        if index:
            seed = seed_of(work.sampling.seed, index)
            work = dataclasses.replace(work, sampling=msgspec.structs.replace(work.sampling, seed=seed))
        came_ms = int(time.time() * 1000)
        visit = served.turns.look(work.owner, work.key.id, work.prompt.tokens)
        kept = served.answers.visit(work.owner, work.key.id) if digest else None

        def on_end(ended: Generation) -> None:
            observer.ended(ended)
            served.turns.add(visit, turn_of(ended, came_ms, visit.sights))
            answer = resident_answer(served, ended) if kept is not None else None
            if kept is None or answer is None:
                return
            if self._parsings:  # what was said is known when all of it was parsed
                self._keeping[index] = lambda said: keep_answer(served, kept, digest, said, answer)
            else:
                keep_answer(served, kept, digest, message_of(ended.said() or ""), answer)

        return Generation(
            served.engine,
            work,
            self._bell,
            is_stream=ready.asked.is_stream,
            is_remembered=kept is not None,
            after=self.generations[0] if index else None,
            on_start=lambda _: served.turns.started(visit, ready.prepared.user_starts),
            on_text=observer.text,
            on_end=on_end,
        )

    # --- what comes --------------------------------------------------------------------------------------------------

    async def admission(self) -> None:
        """Returns when all have their places; raises ApiError when one never gets its own."""
        for generation in self.generations:
            await generation.admission()

    async def parts(self) -> list[Part]:
        """What has come since the last call, waiting for it; nothing after a nudge."""
        bell = self._bell
        while True:
            if not bell.has_news:
                await bell.wait()
            has_news, bell.has_news = bell.has_news, False
            if len(self._open) == 1 and not self._parsings:  # nearly always: a token costs one look
                index, generation = self._open[0]
                if generation.finished is None:
                    text = generation.taken()
                    return [TextPart(index, text)] if text else []
            found = await self._found()
            if found or not has_news:  # a parser may hold back what has come
                return found

    async def _found(self) -> list[Part]:
        found: list[Part] = []
        for index, generation in self._open:
            is_over, text = generation.finished is not None, generation.taken()
            if self._parsings:
                found += await self._parsings[index].fed(text, is_over)
            elif text:
                found.append(TextPart(index, text))
            if is_over:
                found.append(await self._end(index, generation))
                self._open = [one for one in self._open if one[0] != index]
                self.is_over = not self._open
        return found

    async def whole(self) -> list[Part]:
        """All parts, when everything has ended. Raises ApiError as soon as anything fails: nobody gets the rest."""
        while any(generation.finished is None for generation in self.generations):
            if error := next(filter(None, (generation.error() for generation in self.generations)), None):
                raise error
            await self._bell.wait()
        found = await self.parts()
        if self.error is not None:
            raise self.error
        return found

    async def _end(self, index: int, generation: Generation) -> End | Failed:
        error = generation.error()
        if error is not None:
            self.error = self.error or error
            return Failed(index, error)
        n_reasoning = 0
        if self._parsings:
            parsing = self._parsings[index]
            n_reasoning = await self._n_tokens(parsing.reasoning)
            if keep := self._keeping.pop(index, None):
                keep(parsing.message())
        return End(index, generation.end_reason(), usage_of(generation, n_reasoning), report_of(generation))

    async def _n_tokens(self, text: str) -> int:
        """That the text would be: nobody counts them as they come. 0 where too much waits to be counted."""
        try:
            tokens = await self._served.engine.tokenize(self._owner, text, add_special=False) if text else b""
        except ApiError:
            return 0
        return len(tokens) // 4

    # --- the side of who delivers it ---------------------------------------------------------------------------------

    def nudge(self) -> None:
        """Wakes who waits for parts, with or without any."""
        self._bell.ring()

    def cancel(self, reason: CancelReason) -> None:
        for generation in self.generations:
            generation.cancel(reason)

    def release(self) -> None:
        """Nobody takes more parts."""
        for generation in self.generations:
            generation.release()


def usage_of(generation: Generation, n_reasoning: int) -> UsedTokens:
    finished = generation.finished
    assert finished is not None
    n_generated = finished.n_generated
    n_prompt = generation.work.prompt.n_tokens
    return UsedTokens(n_prompt, finished.n_reused, n_generated, min(n_reasoning, n_generated))


def report_of(generation: Generation) -> SessionReport:
    finished = generation.finished
    assert finished is not None
    at, before, after = generation.divergence() or (None, None, None)
    return SessionReport(
        id=generation.work.key.id or None,
        reused_prompt_tokens=finished.n_reused,
        prefilled_prompt_tokens=finished.n_prefilled,
        session_reset_reason=generation.reason_word,
        queue_ms=finished.queue_us / 1000,
        prefill_ms=finished.prefill_us / 1000,
        decode_ms=finished.decode_us / 1000,
        diverged_at=at,
        diverged_before=before,
        diverged_after=after,
    )
