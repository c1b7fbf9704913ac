"""Answers one request: its generations as one sequence of parts.

Owned by the event loop. Exactly one task awaits `admission`, then `parts` or `whole`; in the end it calls `release`.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from ..core.asked import Asked, RawPrompt
from ..core.errors import ApiError
from ..core.parts import End, Failed, Part, SessionReport, TextPart, UsedTokens
from ..engine.bell import Bell
from ..engine.generation import CancelReason, Generation, Work
from .prompt import Prepared, prepared
from .remembered import keep_answer, turn_of
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


async def make_ready(served: Served, asked: Asked, sender: Sender) -> Ready:
    """Everything before the engine: checks, rendering, tokenizing. Raises ApiError. What the engine cannot do, readers
    refuse: they know what the client calls it."""
    assert isinstance(asked.prompt, RawPrompt) or (asked.constraint is None and not asked.prompt.tools)
    assert asked.n_logprobs is None and not (asked.returns_tokens or asked.returns_progress or asked.echoes)
    assert asked.thinking_tokens_max is None
    work = work_of(served, asked, sender.owner)
    found = await prepared(served, asked, sender)
    return Ready(asked, found, work(prompt=found.prompt, constraint=found.prompt.constraint))


class Answering:
    def __init__(self, served: Served, ready: Ready, observe: Callable[[], Observer]) -> None:
        """Queues the work. Raises ApiError when the engine cannot take it."""
        self._served = served
        self._bell = Bell(served.engine.loop)
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
            if kept is not None:
                keep_answer(served, kept, digest, ended)

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
        if not bell.has_news:
            await bell.wait()
        bell.has_news = False
        if len(self._open) == 1:  # nearly always: a token costs one look
            index, generation = self._open[0]
            if generation.finished is None:
                text = generation.taken()
                return [TextPart(index, text)] if text else []
        found: list[Part] = []
        for index, generation in self._open:
            text = generation.taken()
            if text:
                found.append(TextPart(index, text))
            if generation.finished is not None:
                found.append(self._end(index, generation))
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

    def _end(self, index: int, generation: Generation) -> End | Failed:
        error = generation.error()
        if error is not None:
            self.error = self.error or error
            return Failed(index, error)
        return End(index, generation.end_reason(), usage_of(generation), report_of(generation))

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


def usage_of(generation: Generation) -> UsedTokens:
    finished = generation.finished
    assert finished is not None
    return UsedTokens(generation.work.prompt.n_tokens, finished.n_reused, finished.n_generated)


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
