"""Runs one generation and delivers it: as one JSON answer or as server-sent events.

Admission comes before the first byte, so that a refusal is an HTTP status. After the first byte a failure is one error
event, then `[DONE]`.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from aiohttp import web

from ..core.errors import ApiError
from ..dialects.openai.wire import (
    DONE,
    KEEP_ALIVE,
    AssistantMessage,
    ChatChoice,
    ChatCompletion,
    ChunkTemplate,
    Completion,
    CompletionChoice,
    PromptTokensDetails,
    SessionReport,
    Usage,
    error_event,
)
from ..engine.generation import CancelReason, Generation, Work
from .connection import unread_s
from .context import FACTS, STATE, Facts, State
from .deadline import deadline_of
from .history import keep_answer
from .metrics import STREAM_BYTES

SESSION_HEADER = "X-LLM-Session-Id"
_STREAM_HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # a proxy in front must not collect the events
}
_TICKS_PER_LIMIT = 4

Kind = Literal["chat", "completions"]
_encode_text = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Delivery:
    """How the client wants its answer."""

    kind: Kind
    is_stream: bool
    include_usage: bool


async def answer(request: web.Request, work: Work, delivery: Delivery) -> web.StreamResponse:
    state = request.app[STATE]
    if state.is_stopping:
        raise ApiError("shutting_down")
    generation = _begin(state, request[FACTS], work, delivery.is_stream)
    request[FACTS].generation = generation
    deadline = _deadline(request, generation)
    try:
        await generation.admission()
        if delivery.is_stream:
            return await _Stream(request, generation, delivery).run()
        return await _whole(request, generation, delivery)
    finally:
        if deadline is not None:
            deadline.cancel()
        generation.release()


def _begin(state: State, facts: Facts, work: Work, is_stream: bool) -> Generation:
    came_ms = int(time.time() * 1000)
    watch = state.metrics.watch(facts.came_s)
    visit = state.turns.look(work.owner, work.key.id, work.prompt.tokens)
    kept = state.histories.visit(work.owner, work.key.id) if work.history else None

    def on_start(_: Generation) -> None:
        state.turns.started(visit, work.user_starts)

    def on_end(ended: Generation) -> None:
        state.metrics.generation_ended(facts.endpoint, ended, watch.seconds())
        state.turns.add(visit, ended.turn(came_ms, visit.sights))
        if kept is not None:
            keep_answer(state, kept, ended)

    return Generation(state.engine, work, is_stream=is_stream, on_start=on_start, on_text=watch.text, on_end=on_end)


def _deadline(request: web.Request, generation: Generation) -> asyncio.TimerHandle | None:
    end = deadline_of(request)
    if end is None:
        return None
    return asyncio.get_running_loop().call_at(end, generation.cancel, CancelReason.DEADLINE)


def _answer_id(kind: Kind) -> str:
    return ("chatcmpl-" if kind == "chat" else "cmpl-") + secrets.token_hex(12)


def _session_headers(generation: Generation) -> dict[str, str]:
    key = generation.work.key
    return {} if key.is_scratch else {SESSION_HEADER: key.id}


# --- one answer ------------------------------------------------------------------------------------------------------


async def _whole(request: web.Request, generation: Generation, delivery: Delivery) -> web.Response:
    state = request.app[STATE]
    text = await generation.whole_text()
    error = generation.error()
    if error is not None:
        raise error
    reason = generation.finish_reason()
    facts: dict[str, Any] = {
        "id": _answer_id(delivery.kind),
        "created": int(time.time()),
        "model": state.model_id,
        "system_fingerprint": state.fingerprint,
        "usage": usage_of(generation),
        "session": report_of(generation),
    }
    body: ChatCompletion | Completion
    if delivery.kind == "chat":
        body = ChatCompletion(
            choices=[ChatChoice(message=AssistantMessage(content=text), finish_reason=reason)], **facts
        )
    else:
        body = Completion(choices=[CompletionChoice(text=text, finish_reason=reason)], **facts)
    return web.Response(
        body=msgspec.json.encode(body), content_type="application/json", headers=_session_headers(generation)
    )


def usage_of(generation: Generation) -> Usage:
    finished = generation.finished
    assert finished is not None
    n_prompt = generation.work.prompt.n_tokens
    return Usage(
        prompt_tokens=n_prompt,
        completion_tokens=finished.n_generated,
        total_tokens=n_prompt + finished.n_generated,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=finished.n_reused),
    )


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


# --- a stream --------------------------------------------------------------------------------------------------------


class _Stream:
    """Writes one event stream. One timer watches it: a silent one gets a comment, a stuck one is cut off."""

    def __init__(self, request: web.Request, generation: Generation, delivery: Delivery) -> None:
        self._state = request.app[STATE]
        self._request = request
        self._generation = generation
        self._include_usage = delivery.include_usage
        self._template = ChunkTemplate(
            id=_answer_id(delivery.kind),
            created=int(time.time()),
            model=self._state.model_id,
            is_chat=delivery.kind == "chat",
            fingerprint=self._state.fingerprint,
        )
        self._response = web.StreamResponse(headers={**_STREAM_HEADERS, **_session_headers(generation)})
        self._loop = asyncio.get_running_loop()
        config = self._state.config
        self._tick_s = min(config.keepalive_interval, config.slow_reader_timeout) / _TICKS_PER_LIMIT
        self._n_writes = 0
        self._is_writing = False
        self._n_writes_seen = 0
        self._seen_at = self._loop.time()
        self._timer = self._loop.call_later(self._tick_s, self._tick)

    async def run(self) -> web.StreamResponse:
        metrics = self._state.metrics
        metrics.streams_open += 1
        try:
            await self._response.prepare(self._request)
            await self._deliver()
            await self._response.write_eof()
        except ConnectionError:
            self._generation.cancel(CancelReason.CLIENT_GONE)
        finally:
            self._timer.cancel()
            metrics.streams_open -= 1
        return self._response

    async def _deliver(self) -> None:
        generation, template = self._generation, self._template
        opening = template.opening()
        if opening:
            await self._write(opening)
        while True:
            text = await generation.text()
            if generation.finished is not None:
                break
            await self._write(template.text(_encode_text(text)) if text else KEEP_ALIVE)
        last = template.text(_encode_text(text)) if text else b""
        await self._write(last + self._ending() + DONE)

    def _ending(self) -> bytes:
        error = self._generation.error()
        if error is not None:
            self._request[FACTS].error_code = error.code
            return error_event(error.body())
        reason = self._generation.finish_reason()
        report = report_of(self._generation)
        if not self._include_usage:
            return self._template.finish(reason, report)
        return self._template.finish(reason, None) + self._template.usage(usage_of(self._generation), report)

    async def _write(self, data: bytes) -> None:
        self._is_writing = True
        await self._response.write(data)
        self._is_writing = False
        self._n_writes += 1
        self._state.metrics.add(STREAM_BYTES, len(data))

    def _tick(self) -> None:
        now = self._loop.time()
        config = self._state.config
        if self._n_writes != self._n_writes_seen:
            self._n_writes_seen = self._n_writes
            self._seen_at = now
        elif self._is_writing:
            if unread_s(self._request, now) >= config.slow_reader_timeout:
                self._drop()
                return
        elif now - self._seen_at >= config.keepalive_interval:
            self._seen_at = now
            self._generation.nudge()
        self._timer = self._loop.call_later(self._tick_s, self._tick)

    def _drop(self) -> None:
        self._generation.cancel(CancelReason.SLOW_READER)
        self._request[FACTS].error_code = CancelReason.SLOW_READER
        if self._request.transport is not None:
            self._request.transport.abort()
