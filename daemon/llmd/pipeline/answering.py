"""Answers one request: starts a generation for each of its answers, and joins their output into one sequence of parts.

The event loop owns all objects of this module. Exactly one task awaits `admission`, then `parts` or `all_parts`, and
calls `release` at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import msgspec

from ..core.errors import ApiError
from ..core.generation_request import ChatPrompt, GenerationRequest, PlainMessage
from ..core.parts import ContentPart, End, Failed, Part, Progress, SessionReport, TextPart, UsedTokens
from ..core.session_key import SCRATCH, SessionKey
from ..engine.generation import CancelReason, Generation, Notifier, Work
from ..engine.native import GenerateFlag
from ..turns.user_starts import UserMessages
from .answer_record import keep_answer, message_of, resident_answer, turn_of
from .parsing import Parser, Parsing
from .prompt import Prepared, prepared
from .services import Sender, Services
from .token_details import TokenDetails, likeliest, needs_token_details
from .truncation import prepared_truncated
from .work import answers_each, check, in_scratch, seed_of, without_session, work_of


@dataclass(frozen=True, slots=True)
class Observer:
    """Callbacks that count and measure one generation."""

    text: Callable[[], None]
    """Called when text has arrived."""
    ended: Callable[[Generation], None]


@dataclass(frozen=True, slots=True)
class Ready:
    request: GenerationRequest
    prompts: tuple[tuple[Prepared, Work], ...]
    parsers: Sequence[Parser]
    """One parser for each answer. Empty if answers are plain text."""


async def make_ready(services: Services, request: GenerationRequest, sender: Sender) -> Ready:
    """Does all work that comes before the engine: checks, rendering and tokenizing. Raises ApiError. Unsupported
    parameters were refused earlier, by the reader of the API, which knows the client's names of the parameters.
    """
    prompts: list[tuple[Prepared, Work]] = []
    parsers: list[Parser] = []
    for prompt in (request.prompt, *request.more_prompts):
        one = msgspec.structs.replace(request, prompt=prompt)
        check(services, one)
        may_truncate = isinstance(prompt, ChatPrompt) and prompt.may_truncate
        found = await (prepared_truncated if may_truncate else prepared)(services, one, sender)
        if found.prompt.syntax:
            parsers += await services.engine.parsers(sender.owner, found.prompt.syntax, answers_each(request))
        prompts.append((found, work_of(services, one, sender.owner, found.prompt)))
    return Ready(request, tuple(prompts), parsers)


class Answering:
    def __init__(self, services: Services, ready: Ready, observe: Callable[[], Observer]) -> None:
        """Queues the work. Raises ApiError if the engine cannot accept it."""
        self._services = services
        self._observe = observe
        self._request = request = ready.request
        self._notifier = Notifier(services.engine.loop)
        self.is_nudged = False
        """True if the stream must send something to the client, even if no part has arrived. The stream resets this
        flag.
        """
        in_thread = partial(services.engine.parsed, ready.prompts[0][1].owner)
        self._parsings = [Parsing(index, parser, in_thread) for index, parser in enumerate(ready.parsers)]
        """One Parsing for each answer. Empty if answers are plain text."""
        self._keeping: dict[int, Callable[[PlainMessage], None]] = {}
        """For each generated answer whose text is still being parsed, a function that keeps the answer for later
        prompts. It is called with the parsed message, before the end of the answer is reported. The keys are indexes of
        answers.
        """
        self._stops = ready.request.stop
        self.generations: list[Generation] = []
        """One generation for each answer, by the index of the answer."""
        self._token_details: list[TokenDetails] = []
        """The TokenDetails of each answer, by the index of the answer. Empty if the request needs no token details."""
        self._is_plain = not (ready.parsers or needs_token_details(request) or request.prefill_only)
        self._prompts = ready.prompts
        self._open: list[tuple[int, Generation]] = []
        """Generations that can have more parts, each with the index of its answer."""
        self.is_over = False
        """True when all parts have been returned. The first answer that fails ends the whole request, because a request
        has only one error.
        """
        self.error: ApiError | None = None
        self.session_left_reason: Literal["queue_full"] | None = None
        """Why the request is answered without the session that prompt_cache_key or a similar member named. None if the
        request is answered in its session.
        """
        self._begin()

    def _begin(self) -> None:
        try:
            for prepared_prompt, work in self._prompts:
                first: Generation | None = None
                for number in range(answers_each(self._request)):
                    is_lead = not self.generations
                    one = self._start(
                        prepared_prompt, work if is_lead else _further_answer(work, number), first, self._observe()
                    )
                    first = first or one
        except ApiError:
            self.release()
            raise
        self._open = list(enumerate(self.generations))

    def _begin_without_session(self) -> None:
        """Starts the generations again, without a session. Called before any part has arrived."""
        self.release()
        self.generations, self._token_details = [], []
        self._request = msgspec.structs.replace(self._request, key=SCRATCH, parent="")
        self._prompts = tuple(
            (prepared_prompt, without_session(self._services, work)) for prepared_prompt, work in self._prompts
        )
        self._begin()

    def _start(self, prepared_prompt: Prepared, work: Work, after: Generation | None, observer: Observer) -> Generation:
        services, request, index = self._services, self._request, len(self.generations)
        came_ms = int(time.time() * 1000)
        trace = services.turns.begin_trace(work.owner, work.key.id, work.prompt.tokens)
        is_recorded = bool(prepared_prompt.digest) and not request.prefill_only
        record = services.answers.record(work.owner, request.key.id) if is_recorded else None
        by_user = UserMessages(prepared_prompt.n_by_user, prepared_prompt.facts.user_starts)

        def on_end(ended: Generation) -> None:
            observer.ended(ended)
            services.turns.add(trace, turn_of(ended, came_ms, trace.matches))
            answer = resident_answer(services, prepared_prompt, ended) if record is not None else None
            if record is None or answer is None:
                return
            if self._parsings:  # the message is known only when all text has been parsed
                self._keeping[index] = lambda message: keep_answer(services, record, prepared_prompt, message, answer)
            else:
                keep_answer(services, record, prepared_prompt, message_of(ended.answer_text() or ""), answer)

        has_details = needs_token_details(request)
        generation = Generation(
            services.engine,
            work,
            self._notifier,
            is_stream=request.is_stream,
            keeps_text=record is not None,
            keeps_events=has_details,
            after=after,
            on_start=lambda _: services.turns.started(trace, by_user),
            on_text=observer.text,
            token_ends=self._parsings[index].ends if self._parsings else None,
            on_end=on_end,
        )
        if has_details:
            self._token_details.append(
                TokenDetails(request, index, generation, services.engine.pieces, prepared_prompt.echo)
            )
        self.generations.append(generation)
        return generation

    # --- parts -------------------------------------------------------------------------------------------------------

    async def admission(self) -> None:
        """Waits until all generations have entries in the session table. Raises ApiError if a generation cannot get an
        entry.
        """
        try:
            await self._admitted()
        except ApiError as error:
            if error.code != "queue_full" or not self.key.is_hint:
                raise
            self.session_left_reason = "queue_full"
            self._begin_without_session()
            await self._admitted()

    async def _admitted(self) -> None:
        for generation in self.generations:
            await generation.admission()

    @property
    def key(self) -> SessionKey:
        return self._request.key

    async def parts(self) -> list[Part]:
        """Waits for parts, and returns the parts that have arrived since the previous call. After a call of `nudge`,
        the list can be empty.
        """
        notifier = self._notifier
        while True:
            if not notifier.has_events:
                await notifier.wait()
            has_events, notifier.has_events = notifier.has_events, False
            if len(self._open) == 1 and self._is_plain:  # the most frequent case, so it has a short path
                index, generation = self._open[0]
                if generation.finished is None:
                    text = generation.take_text()
                    return [TextPart(index, text)] if text else []
            found = await self._new_parts()
            if found or not has_events or self.is_nudged:  # else the parser holds back the text: wait again
                return found

    async def _new_parts(self) -> list[Part]:
        found: list[Part] = []
        for index, generation in self._open:
            is_over, text = generation.finished is not None, generation.take_text()
            events = generation.take_events()
            parts: list[ContentPart] = [TextPart(index, text)] if text else []
            if self._parsings:
                parts = await self._parsings[index].fed(text, is_over, generation.is_cut)
            found += self._token_details[index].with_details(parts, events) if self._token_details else parts
            if is_over:
                found.append(self._end(index, generation))
                self._open = [one for one in self._open if one[0] != index]
                self.is_over = not self._open
                if self.error is not None:
                    self.is_over = True
                    break
        return _silent(found) if self._request.prefill_only else found

    async def all_parts(self) -> list[Part]:
        """Waits for the end of all answers, and returns all parts. Raises ApiError as soon as a generation fails,
        because the client then gets no answer at all.
        """
        notifier, found = self._notifier, list[Part]()
        while True:
            notifier.has_events = False
            if all(generation.finished is not None for generation in self.generations):
                break
            if error := next(filter(None, (generation.error() for generation in self.generations)), None):
                raise error
            if self._token_details:
                found += await self._new_parts()  # parse early, so that little is left to do at the end
            if not notifier.has_events:
                await notifier.wait()
        found += await self._new_parts()
        if self.error is not None:
            raise self.error
        return likeliest(found, self._request, self._token_details) if self._request.n_tried else found

    def _end(self, index: int, generation: Generation) -> End | Failed:
        error = generation.error()
        if error is not None:
            self.error = error
            return Failed(index, error)
        reason, n_reasoning, has_broken_call = generation.end_reason(), 0, False
        if self._parsings:
            parsing = self._parsings[index]
            n_reasoning = parsing.n_reasoning
            has_broken_call = parsing.has_unfinished_call()
            if keep := self._keeping.pop(index, None):
                keep(parsing.message())
        report = msgspec.structs.replace(
            report_of(generation), id=self.key.id or None, session_left_reason=self.session_left_reason
        )
        usage = usage_of(generation, n_reasoning)
        return End(index, reason, usage, report, self._stop_of(generation), has_broken_call)

    def _stop_of(self, generation: Generation) -> str | None:
        """Returns the client's stop string that ended the answer, or None. None is also returned for a stop string of
        the template, which counts as an end by the model.
        """
        finished = generation.finished
        found = self._stops[finished.stop_index :][:1] if finished is not None and finished.stop_index >= 0 else []
        return found[0] if found else None

    # --- delivery ----------------------------------------------------------------------------------------------------

    def nudge(self) -> None:
        """Makes `parts` return at once, even without parts, and asks the stream to send something to the client in any
        case.
        """
        self.is_nudged = True
        self._notifier.wake()

    def cancel(self, reason: CancelReason) -> None:
        for generation in self.generations:
            generation.cancel(reason)

    def release(self) -> None:
        """Cancels unfinished generations and drops their output. Called when no more parts are needed."""
        for generation in self.generations:
            generation.release()


def _silent(parts: Sequence[Part]) -> list[Part]:
    """Removes the text, and the number of generated tokens, from the parts of a request that only prefills its prompt.
    The engine generates one token even for such a request.
    """
    found: list[Part] = []
    for part in parts:
        if isinstance(part, End):
            usage = msgspec.structs.replace(part.usage, n_generated=0, n_reasoning=0)
            found.append(msgspec.structs.replace(part, reason="length", usage=usage))
        elif isinstance(part, Failed | Progress):
            found.append(part)
    return found


def _further_answer(work: Work, number: int) -> Work:
    """Returns the work for any answer of a request except the first one. `number` counts the answers to the same
    prompt, from 0. Only the first answer of the request uses the session. Several answers in one session would run one
    after the other, and the session would keep only the last one. If `number` is not 0, the state of the prompt is
    copied from the prompt's answer 0. This is done even if the request forbids the reuse of older states.
    """
    sampling, flags = work.command.sampling, work.command.flags
    if number:
        sampling = msgspec.structs.replace(sampling, seed=seed_of(sampling.seed, number))
        flags &= ~GenerateFlag.COLD
    return in_scratch(work, sampling=sampling, flags=flags)


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
        drafted_tokens=finished.n_drafted,
        accepted_tokens=finished.n_accepted,
        grammar_drafted_tokens=finished.n_grammar_drafted,
        grammar_accepted_tokens=finished.n_grammar_accepted,
        model_drafted_tokens=finished.n_model_drafted,
        model_accepted_tokens=finished.n_model_accepted,
        history="resident" if generation.work.prompt.is_after else None,
    )
