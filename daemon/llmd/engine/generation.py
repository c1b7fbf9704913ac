"""The life of one answer in the daemon.

    queued ──admitted──► admitted ──started──► running ──finished──► finished
      └───────────────────────── finished(refused) ─────────────────────▲

The event loop owns all objects of this module. When an event arrives, the engine calls one of the `on_` methods. The
method wakes the task that waits for the notifier. Exactly one task waits, and takes the text that has arrived. Text
that has accumulated is returned as one text. So a slow client gets fewer writes instead of a growing delay. If too much
text of a stream accumulates, the engine pauses the generation until the text is taken. `cancel_reason` says why a
generation was cancelled. Like every generation, a cancelled generation ends only with the last event of the engine.
"""

from __future__ import annotations

import asyncio
import enum
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from ..core import limits
from ..core.errors import ApiError, code_of_status
from ..core.parts import EndReason
from ..core.session_key import SessionKey
from .engine import Engine
from .native import OUTCOME_WORDS, REASON_WORDS, STATUS_WORDS, GenerateFlag, Outcome, Status
from .text import Prompt
from .wire import Admitted, Consumed, Finished, Generate, Started, Text


class CancelReason(enum.StrEnum):
    CLIENT_GONE = "client_gone"
    SLOW_READER = "slow_reader"
    DEADLINE = "deadline_exceeded"
    SHUTDOWN = "shutting_down"


class Notifier:
    """Wakes the one task that waits for the events of several generations. The task must check `has_events` before it
    waits: a wake-up has no effect while the task does not wait.
    """

    __slots__ = ("_create_future", "_waiter", "has_events")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._create_future = loop.create_future  # get_running_loop() costs a system call each time
        self._waiter: asyncio.Future[None] | None = None
        self.has_events = False
        """True if events have arrived. The task resets this flag when it takes the events."""

    def notify(self) -> None:
        self.has_events = True
        self.wake()

    def wake(self) -> None:
        """Wakes the task without reporting events."""
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def wait(self) -> asyncio.Future[None]:
        """Returns the future of the next wake-up, which must be awaited at once."""
        self._waiter = waiter = self._create_future()
        return waiter


class TokenEnds:
    """Stores, for each token of an answer, the position in characters at which the token's text ends."""

    __slots__ = ("_ends", "_n_chars")

    def __init__(self) -> None:
        self._ends = array("Q")
        self._n_chars = 0

    def came(self, text: str, ends: bytes) -> None:
        """Adds the ends of the tokens of `text`. `ends` are uint32 numbers of characters, counted from the beginning of
        `text`.
        """
        before = self._n_chars
        self._ends.extend([before + end for end in memoryview(ends).cast("I")])
        self._n_chars += len(text)

    def count(self, begin: int, end: int) -> int:
        """Returns the number of tokens whose text is in this range of characters. A token without text, or one that
        ends within a character, is counted with the characters that follow the token.
        """
        ends = self._ends
        first = bisect_left(ends, begin)
        if 0 < begin and first < len(ends) and ends[first] == begin:
            first += 1
        return max(min(bisect_left(ends, end) + 1, len(ends)) - first, 0) if end > begin else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """An answer to generate: the command for the engine, and facts about the request for later use."""

    command: Generate
    """The command. Engine.generate sets the request number."""
    key: SessionKey
    prompt: Prompt
    prompt_param: str
    """The client's name of the field with the prompt."""
    n_stops_returned: int = 0
    """If one of the first `n_stops_returned` stop strings ends the answer, the answer includes the stop string."""

    @property
    def owner(self) -> int:
        return self.command.owner


class Generation:
    __slots__ = (
        "_answer_texts", "_delivering", "_engine", "_events", "_notifier", "_notify", "_on_end", "_on_start",
        "_on_text", "_paused", "_pending", "_pending_chars", "_request", "_token_ends", "admitted", "cancel_reason",
        "consumed", "finished", "first_text_s", "is_stream", "started", "started_s", "work",
    )  # fmt: skip

    def __init__(
        self,
        engine: Engine,
        work: Work,
        notifier: Notifier,
        *,
        is_stream: bool,
        keeps_text: bool = False,
        keeps_events: bool = False,
        after: Generation | None = None,
        on_start: Callable[[Generation], None] | None = None,
        on_text: Callable[[], None] | None = None,
        token_ends: TokenEnds | None = None,
        on_end: Callable[[Generation], None],
    ) -> None:
        """Queues the work. Raises ApiError if the engine cannot accept it. `answer_text` needs `keeps_text`, and
        `take_events` needs `keeps_events`. If `after` is not None, the work waits until that generation has prefilled
        the same prompt. `token_ends` gets the ends of tokens if the command has the flag RETURN_TOKENS.
        """
        self.work = work
        self.is_stream = is_stream
        self.admitted: Admitted | None = None
        self.started: Started | None = None
        self.consumed: Consumed | None = None  # the newest event about prefill, if the command requests such events
        self.finished: Finished | None = None
        self.started_s = self.first_text_s = 0.0
        self.cancel_reason: CancelReason | None = None
        self._engine = engine
        self._notifier, self._notify = notifier, notifier.notify
        self._on_start = on_start
        self._on_text = on_text
        self._token_ends = token_ends
        self._on_end = on_end
        self._pending: list[str] = []
        self._pending_chars, self._paused, self._delivering = 0, False, True
        self._answer_texts: list[str] | None = [] if keeps_text else None
        self._events: list[Text] | None = [] if keeps_events else None
        if work.prompt.n_tokens > engine.info.n_ctx:
            raise self._length_error()
        self._request: int = engine.generate(self, work.command, after._request if after is not None else 0)

    # --- the engine's side -------------------------------------------------------------------------------------------

    def on_admitted(self, event: Admitted) -> None:
        self.admitted = event
        self._notifier.wake()

    def on_started(self, event: Started) -> None:
        self.started, self.started_s = event, time.monotonic()
        if self._on_start is not None:
            self._on_start(self)
        if self.work.command.flags & GenerateFlag.RETURN_CONSUMED:
            self._notify()

    def on_consumed(self, event: Consumed) -> None:
        self.consumed = event
        self._notify()

    def on_text(self, event: Text) -> None:
        if not self._delivering:
            return
        if self._on_text is not None:
            self._on_text()
        text = event.text
        if self._token_ends is not None:
            self._token_ends.came(text, event.ends)
        if self._events is not None:
            self.first_text_s = self.first_text_s or time.monotonic()
            self._events.append(event)
            # ids and log probabilities count as text, because they need as much memory
            self._pending_chars += (len(event.tokens) + len(event.likeliest)) // 4
        self._pending.append(text)
        if self._answer_texts is not None:
            self._answer_texts.append(text)
        self._pending_chars += len(text)
        if self._pending_chars > limits.PENDING_TEXT_CHARS_MAX and self.is_stream and not self._paused:
            self._paused = True
            self._engine.pause(self._request, True)
        self._notify()

    def on_finished(self, event: Finished) -> None:
        self.finished = event
        if 0 <= event.stop_index < self.work.n_stops_returned and self._delivering:
            stop = self.work.command.stop[event.stop_index]
            self._pending.append(stop)
            if self._answer_texts is not None:
                self._answer_texts.append(stop)
        self._notify()
        self._on_end(self)

    # --- delivery ----------------------------------------------------------------------------------------------------

    async def admission(self) -> None:
        """Waits until the generation has an entry in the session table. Raises ApiError if the generation ends without
        an entry.
        """
        while self.admitted is None:
            if self.finished is not None:
                raise self.error() or ApiError("internal_error")
            await self._notifier.wait()

    def take_text(self) -> str:
        """Returns the text that has arrived since the previous call."""
        pending = self._pending
        text = pending[0] if len(pending) == 1 else "".join(pending)
        pending.clear()
        self._pending_chars = 0
        if self._paused:
            self._paused = False
            self._engine.pause(self._request, False)
        return text

    def take_events(self) -> list[Text]:
        """Returns the events of the text that `take_text` has just returned. Must be called right after `take_text`,
        before anything is awaited.
        """
        if not self._events:
            return []
        events, self._events = self._events, []
        return events

    def cancel(self, reason: CancelReason) -> None:
        """Ends the generation early. Only the first reason counts. Does nothing if the generation has ended."""
        if self.finished is None and self.cancel_reason is None:
            self.cancel_reason = reason
            self._engine.cancel(self._request)

    def release(self) -> None:
        """Stops delivery: cancels the generation if it has not ended, and drops its text."""
        self._delivering = False
        self._pending.clear()
        self._events = None
        self.cancel(CancelReason.CLIENT_GONE)

    def answer_text(self) -> str | None:
        """Returns the text of the complete answer. Returns None if the text was not kept, or if the answer has failed
        or has not ended.
        """
        if self._answer_texts is None or not self._delivering or self.finished is None or self.error() is not None:
            return None
        return "".join(self._answer_texts)

    # --- how it ended ------------------------------------------------------------------------------------------------

    @property
    def outcome_word(self) -> str:
        """The word for the outcome. It is "running" before the end, and the cancel reason if the generation was
        cancelled. Otherwise it is the engine's word for the outcome.
        """
        if self.cancel_reason is not None and (self.finished is None or self.finished.outcome == Outcome.CANCELLED):
            return self.cancel_reason
        return OUTCOME_WORDS[self.finished.outcome] if self.finished is not None else "running"

    @property
    def reason_word(self) -> str | None:
        return REASON_WORDS[self.started.reason] if self.started is not None else None

    @property
    def is_cut(self) -> bool:
        """Whether the answer was cut off, for example at its maximum length. Otherwise it has ended with an end token
        of the model or a stop string.
        """
        return self.finished is not None and self.finished.outcome not in (Outcome.END, Outcome.STOP)

    def end_reason(self) -> EndReason:
        assert self.finished is not None and self.error() is None
        return cast(EndReason, OUTCOME_WORDS[self.finished.outcome])

    def error(self) -> ApiError | None:
        """Returns the error for the client, or None if the generation runs or has ended normally."""
        finished = self.finished
        if finished is None or finished.outcome in (Outcome.END, Outcome.STOP, Outcome.LENGTH):
            return None
        if finished.outcome == Outcome.SHUTDOWN:
            return ApiError("shutting_down")
        if finished.outcome == Outcome.CANCELLED:
            reason = self.cancel_reason
            return ApiError("cancelled" if reason in (None, CancelReason.CLIENT_GONE) else str(reason))
        if finished.status == Status.CONTEXT_LENGTH:
            return self._length_error()
        if finished.status == Status.CAPACITY:
            return self._capacity_error()
        return ApiError(code_of_status(STATUS_WORDS[finished.status]))

    def _length_error(self) -> ApiError:
        return self._engine.context_limits.error(self.work.prompt.n_tokens, self.work.prompt_param)

    def _capacity_error(self) -> ApiError:
        """Returns the error for a session that gets no entry in the session table. The message names the sessions of
        this owner that have entries, and the number of entries of other owners.
        """
        holders = self._engine.session_table.names()
        own = [name for owner, name in holders if owner == self.work.owner]
        info, n_others = self._engine.info, len(holders) - len(own)
        n_names = info.n_entries - info.n_scratch
        usage = f"All {n_names} session entries are taken"
        if len(holders) < n_names:
            usage = f"Your share of the {n_names} session entries, which is {len(own)}, is taken"
        more = f" and {n_others} of other owners" if n_others else ""
        options = "--max-sessions or --max-parked" if n_names > info.n_sessions else "--max-sessions"
        return ApiError(
            "capacity_exhausted",
            f"{usage} (by {_listed(sorted(set(own)))}{more}). Close a session with DELETE /v1/sessions/ID, or start "
            f"llmd with a larger {options}.",
            "session_id",
        )

    def divergence(self) -> tuple[int, str, str] | None:
        """Returns the index of the first prompt token that differs from the tokens of the branch. Also returns the
        prompt's text before and after that point. Returns None if the prompt did not diverge.
        """
        if self.started is None or self.started.diverged_at < 0:
            return None
        at, shown = self.started.diverged_at, limits.DIVERGENCE_TOKENS_SHOWN
        tokens = self.work.prompt.tokens
        before = tokens[4 * max(at - shown, 0) : 4 * at]
        after = tokens[4 * at : 4 * (at + shown)]
        return at, self._engine.piece(before), self._engine.piece(after)


def _listed(names: list[str]) -> str:
    shown, n_more = names[: limits.HOLDERS_SHOWN], len(names) - limits.HOLDERS_SHOWN
    return (", ".join(shown) or "none of yours") + (f" and {n_more} more of yours" if n_more > 0 else "")
