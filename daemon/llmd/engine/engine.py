"""The event loop's interface to libllm: sends commands, receives events, and runs slow calls in threads.

One thread opens, starts, stops and closes the engine, and does nothing else. These calls block, and libllm requires the
same thread for all of them. Only the event loop pushes commands and drains events. Text is rendered and tokenized in
the text threads. cffi releases the interpreter lock during every call of libllm.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import msgspec

from ..core import limits
from ..core.context_limits import ContextLimits
from ..core.errors import ApiError, code_of_status
from ..core.generation_request import Constraint
from ..process.logs import fields
from . import wire
from .answer_parser import AnswerParser
from .embedding import Embedder
from .json_scan import body_scan
from .loader import EngineLoader
from .native import STATUS_WORDS, SessionTable, Status, ffi, lib, text_of
from .opening import EngineOptions, SavedSession, fim_of, info_of, saved_of, start_engine
from .text import Pieces, Prompt, detokenize, make_constraint, render_chat, spell, tokenize
from .text_threads import TextThreads
from .wire import Admitted, Command, Consumed, Event, Finished, Generate, Question, Reply, Started, Text

log = logging.getLogger("llmd.engine")
T = TypeVar("T")
P = ParamSpec("P")
_COMPLAINT_BYTES = 1024
_CHECKPOINTS_MAX = 1024
"""Maximum number of checkpoints that are reported for one branch."""


class Listener(Protocol):
    """Receives the events of one generation, on the event loop. `on_finished` is called exactly once, after all other
    events.
    """

    def on_admitted(self, event: Admitted) -> None: ...
    def on_started(self, event: Started) -> None: ...
    def on_consumed(self, event: Consumed) -> None: ...
    def on_text(self, event: Text) -> None: ...
    def on_finished(self, event: Finished) -> None: ...


class Watcher(Protocol):
    """Receives each change of a session, in the order of the changes. This includes changes for which the client no
    longer waits.
    """

    def on_done(self, command: Question) -> None: ...
    def on_forgotten(self, owner: int, session: str) -> None: ...


class Engine:
    def __init__(self, pointer: Any, owner_thread: ThreadPoolExecutor) -> None:
        self._engine = pointer
        self._owner_thread = owner_thread
        self.loop = asyncio.get_running_loop()
        self._text_threads = TextThreads(self.loop)
        self._buffer = bytearray(lib.LLM_DRAIN_BYTES_MIN)
        self._out = ffi.from_buffer(self._buffer)
        self._view = memoryview(self._buffer)
        self._decode_events = msgspec.msgpack.Decoder(list[Event]).decode
        self._encode = msgspec.msgpack.Encoder().encode
        self._listeners: dict[int, Listener] = {}
        self._awaiting_reply: dict[int, tuple[Question, asyncio.Future[Reply]]] = {}
        self.watcher: Watcher | None = None
        self._unsent: deque[Command] = deque()
        self._last_request = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.session_table = SessionTable.of_engine(pointer)
        self.info = info_of(pointer)
        self.embedder = Embedder(pointer, self.loop, self.info.n_embedding)
        self.fim = fim_of(pointer)
        self.chat_template = text_of(lib.llm_chat_template(pointer))
        """The source of the chat template (Jinja), or "" if the model has no template."""
        self.context_limits = ContextLimits(
            self.info.n_ctx, self.info.token_bytes_max, self.info.n_ctx_train, self.info.kv_bytes_short
        )
        self.pieces = Pieces(pointer)
        self.json = body_scan(self.info.n_ctx)
        self.events_drained = 0
        self.loop.add_reader(lib.llm_events_fd(pointer), self._drain)
        self._complaints = self.loop.call_soon(self._poll_complaints)

    # --- life --------------------------------------------------------------------------------------------------------

    @classmethod
    async def open(cls, source: EngineOptions | EngineLoader) -> Engine:
        """Loads the model and starts the decode thread. Raises EngineError, whose message is for the user."""
        loader = source if isinstance(source, EngineLoader) else EngineLoader(source)
        try:
            pointer = await loader.pointer()
            engine = cls(pointer, loader.thread)
            await engine.loop.run_in_executor(loader.thread, start_engine, pointer)
        except BaseException:
            loader.thread.shutdown(wait=False)
            raise
        return engine

    async def stop(self) -> None:
        """Stops the decode thread. Every live generation gets its last event, and sessions are written to the state
        directory.
        """
        await self.loop.run_in_executor(self._owner_thread, lib.llm_engine_stop, self._engine)
        while self._drain():
            pass

    async def close(self) -> None:
        """Stops the engine and frees all its memory."""
        await self.stop()
        self._complaints.cancel()
        self._unsent.clear()  # the timer that sends these commands may fire after the engine is freed
        self._log_complaints()
        self.loop.remove_reader(lib.llm_events_fd(self._engine))
        for _, future in self._awaiting_reply.values():
            if not future.done():
                future.set_exception(ApiError("shutting_down"))
        await self._text_threads.close()
        await self.embedder.close()
        await self.loop.run_in_executor(self._owner_thread, lib.llm_engine_close, self._engine)
        self._owner_thread.shutdown(wait=True)

    def set_owners(self, n_owners: int) -> None:
        """Sets the number of owners that share the engine."""
        lib.llm_engine_set_owners(self._engine, n_owners)

    def heartbeat(self) -> tuple[int, bool]:
        """Returns how many rounds of its loop the decode thread has completed, and whether it is inside a step of the
        model.
        """
        busy = ffi.new("uint32_t *")
        count = lib.llm_engine_heartbeat(self._engine, busy)
        return int(count), bool(busy[0])

    def _poll_complaints(self) -> None:
        self._log_complaints()
        self._complaints = self.loop.call_later(limits.COMPLAINT_POLL_S, self._poll_complaints)

    def _log_complaints(self) -> None:
        """Logs the errors of libllm in reading or writing files of sessions."""
        text = ffi.new("char[]", _COMPLAINT_BYTES)
        while lib.llm_engine_complaint(self._engine, text, _COMPLAINT_BYTES) == Status.OK:
            log.warning("%s", text_of(text))

    # --- commands ----------------------------------------------------------------------------------------------------

    @property
    def n_live(self) -> int:
        return len(self._listeners)

    async def idle(self) -> None:
        """Waits until no generation is live."""
        await self._idle.wait()

    def live(self) -> list[Listener]:
        return list(self._listeners.values())

    def generate(self, listener: Listener, command: Generate, after: int = 0) -> int:
        """Starts a generation and returns its request number. If `after` is not 0, it is the number of a live request
        with the same prompt. The new generation then waits until that request has prefilled the prompt. Raises ApiError
        if the command cannot be queued.
        """
        if len(self._listeners) >= limits.LIVE_REQUESTS_MAX:
            raise ApiError(
                "overloaded",
                f"The server has reached its limit of {limits.LIVE_REQUESTS_MAX} live requests. Try again later.",
            )
        request = self._next_request()
        self._push_or_refuse(msgspec.structs.replace(command, request=request, after=after))
        self._listeners[request] = listener
        self._idle.clear()
        return request

    def cancel(self, request: int) -> None:
        """Asks the engine to end the generation. The listener's `on_finished` reports the end. If the command ring is
        full, the command is sent later.
        """
        self._push_surely(wire.Cancel(request))

    def pause(self, request: int, paused: bool) -> None:
        self._push_surely(wire.Pause(request, paused))

    async def ask(self, make: Callable[Concatenate[int, P], Question], *fields: P.args, **named: P.kwargs) -> Reply:
        """Sends a command, and returns the reply. `make`, the type of the command, is called with the next request
        number and `fields`.
        """
        command = make(self._next_request(), *fields, **named)
        future: asyncio.Future[Reply] = self.loop.create_future()
        self._push_or_refuse(command)
        self._awaiting_reply[command.request] = command, future
        return await future

    def saved(self) -> list[SavedSession]:
        return saved_of(self._engine)

    def _next_request(self) -> int:
        self._last_request += 1
        return self._last_request

    def _push(self, command: Command) -> int:
        message = self._encode(command)
        return int(lib.llm_command_push(self._engine, message, len(message)))

    def _push_or_refuse(self, command: Command) -> None:
        status = self._push(command)
        if status == Status.INVALID:
            refused = text_of(lib.llm_command_refused(self._engine))
            log.error(
                "the engine refused a command as malformed", extra=fields(op=type(command).__name__, field=refused)
            )
            raise ApiError("internal_error")
        if status != Status.OK:
            raise ApiError(code_of_status(STATUS_WORDS[status]))

    def _push_surely(self, command: Command) -> None:
        if not self._unsent and self._push(command) != Status.FULL:
            return
        if not self._unsent:
            self.loop.call_later(limits.COMMAND_RETRY_S, self._push_unsent)
        self._unsent.append(command)

    def _push_unsent(self) -> None:
        while self._unsent:
            if self._push(self._unsent[0]) == Status.FULL:
                self.loop.call_later(limits.COMMAND_RETRY_S, self._push_unsent)
                return
            self._unsent.popleft()

    # --- events ------------------------------------------------------------------------------------------------------

    def _drain(self) -> bool:
        """Receives one batch of events. Returns False if no event waited. If further events wait, the descriptor of the
        events stays readable. The event loop then calls this method again.
        """
        n = lib.llm_events_drain(self._engine, self._out, len(self._buffer))
        if n <= 0:
            return False
        events = self._decode_events(self._view[:n])
        self.events_drained += len(events)
        listeners = self._listeners
        for event in events:
            try:
                if type(event) is Text:
                    listeners[event.request].on_text(event)
                else:
                    self._dispatch(event)
            except Exception:  # other listeners must still get their events
                log.exception("an event could not be handled", extra=fields(event=type(event).__name__))
        return True

    def _dispatch(self, event: Event) -> None:
        if isinstance(event, Reply):
            self._answer(event)
        elif isinstance(event, wire.Forgotten):
            if self.watcher is not None:
                self.watcher.on_forgotten(event.owner, event.session)
        elif isinstance(event, Finished):
            listener = self._listeners.pop(event.request)
            if not self._listeners:
                self._idle.set()
            listener.on_finished(event)
        elif isinstance(event, Admitted):
            self._listeners[event.request].on_admitted(event)
        elif isinstance(event, Started):
            self._listeners[event.request].on_started(event)
        elif isinstance(event, Consumed):
            self._listeners[event.request].on_consumed(event)

    def _answer(self, reply: Reply) -> None:
        """Delivers the reply to a command. If the client has disconnected, the reply is dropped. Even then, the watcher
        learns of a successful command.
        """
        command, future = self._awaiting_reply.pop(reply.request)
        if not future.done():
            future.set_result(reply)
        if reply.status == Status.OK and self.watcher is not None:
            self.watcher.on_done(command)

    # --- text --------------------------------------------------------------------------------------------------------

    async def render_chat(self, owner: int, n_bytes: int, request: Callable[[], bytes]) -> Prompt:
        """Renders a conversation. `request` returns the JSON for llm_chat_render, and is called in a text thread.
        Raises ApiError if the template refuses the conversation.
        """
        return await self.in_thread(owner, n_bytes, lambda: render_chat(self._engine, request()))

    async def tokenize(self, owner: int, text: str, *, add_special: bool, parse_special: bool = False) -> bytes:
        return await self.in_thread(
            owner, len(text), lambda: tokenize(self._engine, text.encode(), add_special, parse_special)
        )

    async def make_constraint(self, owner: int, constraint: Constraint) -> bytes:
        return await self.in_thread(owner, len(constraint.text), lambda: make_constraint(self._engine, constraint))

    def tokens(self, text: str, *, around: bool = False) -> bytes:
        """Tokenizes a text. The names of control tokens in the text are treated as plain text. If `around` is true,
        adds the tokens that the model expects at the beginning and end of a text. Called in a text thread.
        """
        return tokenize(self._engine, text.encode(), around, False)

    async def detokenize(self, owner: int, tokens: bytes) -> str:
        return await self.in_thread(owner, len(tokens), lambda: self.piece(tokens))

    def piece(self, tokens: bytes) -> str:
        """Returns the text of a few tokens, including control tokens. For many tokens, use `detokenize`."""
        return detokenize(self._engine, tokens)

    def spell(self, tokens: bytes, *, special: bool = False) -> bytes:
        """Returns the bytes of these tokens. Control tokens have no bytes unless `special` is true."""
        return spell(self._engine, tokens, special=special)

    def checkpoints(self, owner: int, tokens: bytes) -> list[int]:
        """Returns after how many of these tokens the engine has checkpoints of this owner, ascending. Can be called in
        any thread.
        """
        found = ffi.new("uint32_t[]", _CHECKPOINTS_MAX)
        n_tokens = len(tokens) // ffi.sizeof("int32_t")
        n = lib.llm_engine_checkpoints(
            self._engine, owner, ffi.from_buffer("int32_t[]", tokens), n_tokens, found, _CHECKPOINTS_MAX
        )
        return list(found[0:n])

    async def in_thread(self, owner: int, n_bytes: int, call: Callable[[], T]) -> T:
        """Runs a call in a text thread, because it would block the event loop. `n_bytes` is the number of bytes that
        the call processes. Raises ApiError if too many jobs wait. The call can use the methods `piece` and `spell`.
        """
        return await self._text_threads.run(owner, n_bytes, call)

    async def parsers(self, owner: int, syntax: bytes, n: int) -> list[AnswerParser]:
        """Returns `n` parsers, for the answers to one prompt. Raises ApiError."""
        return await self.in_thread(owner, len(syntax), lambda: [AnswerParser(self._engine, syntax) for _ in range(n)])

    async def parsed(self, owner: int, n_chars: int, call: Callable[[], T]) -> T:
        """Runs a call of an answer's parser in a text thread, like `in_thread`, but never refuses it. Each answer has
        only one such call at a time, and the number of answers is limited.
        """
        return await self._text_threads.run(owner, n_chars, call, is_bounded=True)
