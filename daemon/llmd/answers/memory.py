"""Answers with the tokens that they were made of, found again by content when a client sends them back.

Text that a model wrote often tokenizes otherwise than it was written, and templates write past answers otherwise than
new ones. So each finished answer of a session is kept with its tokens, under a digest of the whole conversation up to
and including the answer. A later request whose messages have the same digest up to there gets these tokens spliced into
its prompt (llm_chat_render). A message that was edited, and all after it, have other digests and never match.

The digest forgives what clients change without meaning anything by it: null, "" and blank are one; arguments of tool
calls are compared as values; ids of calls and reasoning are left out. Owned by the event loop.
"""

from __future__ import annotations

import codecs
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Annotated, Any

import msgspec

from ..core import limits
from ..core.asked import HistoryMode, PlainMessage, PlainToolCall
from ..core.errors import ApiError
from ..core.shares import who_must_go
from ..engine.json_scan import ARGUMENTS

_TOKEN_BYTES = 4
_DIGEST_BYTES = 16
_THINK, _THOUGHT = "<think>", "</think>"
_encode = msgspec.json.Encoder(order="deterministic").encode


# --- digests ---------------------------------------------------------------------------------------------------------


def digest_of(previous: bytes, message: PlainMessage) -> bytes:
    """Of a conversation that goes on with this message; b"" before the first."""
    return hashlib.blake2b(previous + _encode(_meaning(message)), digest_size=_DIGEST_BYTES).digest()


def digests_of(messages: Sequence[PlainMessage]) -> list[bytes]:
    """Of the conversation up to and including each message."""
    return list(accumulate(messages, digest_of, initial=b""))[1:]


def _meaning(message: PlainMessage) -> list[Any]:
    text = _without_reasoning(message.content) if message.role == "assistant" else message.content
    calls = [[call.name, _arguments(call)] for call in message.tool_calls]
    return [message.role, message.name, text if text.strip() else "", calls]


def _without_reasoning(text: str) -> str:
    if text.lstrip().startswith(_THINK):
        _, ended, answer = text.partition(_THOUGHT)
        return answer.lstrip() if ended else text
    return text


def _arguments(call: PlainToolCall) -> Any:
    """What is no JSON, or more of it than any tool's arguments have, is compared as text."""
    arguments = call.arguments
    try:
        return _plain(msgspec.json.decode(ARGUMENTS.clean(arguments.encode())) if arguments.strip() else {})
    except (ApiError, msgspec.DecodeError, RecursionError):
        return arguments


def _plain(value: Any, levels: int = limits.ARGUMENTS_DEPTH_MAX) -> Any:
    """JavaScript writes 1.0 as 1. Raises RecursionError below that many levels, wherever the stack is."""
    if levels < 0:
        raise RecursionError
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _plain(item, levels - 1) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, levels - 1) for item in value]
    return value


# --- answers ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """What took the place of one assistant message."""

    tokens: bytes
    """int32 little-endian: the generation prompt, then what was generated and is resident."""
    rest: str
    """Text of the answer that they do not cover: the last token is not resident when a limit ended it."""


def answer_of(opening: bytes, generated: bytes, text: str, spell: Callable[[bytes], bytes]) -> Answer | None:
    """The answer of `text`, if the generated tokens can be shown to be its own: as many as spell a beginning of it.

    What was cut off by a stop string, or in the middle of a character, is spelled out beyond the text and left out.
    """
    n_left_out_max = limits.ANSWER_TOKENS_LEFT_OUT_MAX
    sure, end = generated[: -_TOKEN_BYTES * n_left_out_max], generated[-_TOKEN_BYTES * n_left_out_max :]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    head = decoder.decode(spell(sure))
    if not text.startswith(head):
        return None
    tail, spelled = text[len(head) :], decoder.getstate()[0] + spell(end)
    for _ in range(n_left_out_max + 1):
        said = spelled.decode("utf-8", "replace")
        if tail.startswith(said):
            return Answer(opening + sure + end, tail[len(said) :])
        last = spell(end[-_TOKEN_BYTES:])
        spelled = spelled[: len(spelled) - len(last)]
        end = end[:-_TOKEN_BYTES]
    return None


@dataclass(frozen=True, slots=True)
class Splice:
    """Tokens for one message of a request."""

    message: int
    tokens: bytes
    """As Answer has them."""
    rest: str

    def rendered(self) -> dict[str, Any]:
        """As llm_chat_render takes it."""
        return {"message": self.message, "tokens": memoryview(self.tokens).cast("i").tolist(), "rest": self.rest}


class StoredAnswer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """As answers/file.py writes it; see Answer."""

    digest: Annotated[bytes, msgspec.Meta(min_length=_DIGEST_BYTES, max_length=_DIGEST_BYTES)]
    tokens: bytes
    rest: str


class StoredSession(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What outlives the daemon of one session."""

    owner: int
    name: str
    mode: HistoryMode | None
    answers: Annotated[list[StoredAnswer], msgspec.Meta(max_length=limits.ANSWERS_PER_SESSION_MAX)]


@dataclass(slots=True)
class SessionAnswers:
    """One session. Both are in order of use."""

    owner: int
    name: str
    answers: OrderedDict[bytes, Answer] = field(default_factory=OrderedDict)
    mode: HistoryMode | None = None
    """What the client last asked for."""


class AnswerMemory:
    """The answers of all sessions, bounded: the least recently used go first. "" names what has no session."""

    def __init__(
        self, bytes_max: int = limits.ANSWER_BYTES_MAX, answers_max: int = limits.ANSWERS_PER_SESSION_MAX
    ) -> None:
        self._sessions: OrderedDict[tuple[int, str], SessionAnswers] = OrderedDict()
        self._bytes_max = bytes_max
        self._answers_max = answers_max
        self.n_bytes = 0

    def mode(self, owner: int, session: str, asked: HistoryMode | None, default: HistoryMode) -> HistoryMode:
        """What holds for a session: what was asked for, now or before, else the default."""
        if not session:
            return asked or default
        if asked is not None:
            self._of(owner, session).mode = asked
        said = self._sessions.get((owner, session))
        return (said.mode if said is not None else None) or default

    def splices(self, owner: int, session: str, digests: Sequence[bytes]) -> list[Splice]:
        """The answers of this session in a conversation with these digests (digests_of)."""
        said = self._sessions.get((owner, session))
        if said is None:
            return []
        found = []
        for index, digest in enumerate(digests):
            answer = said.answers.get(digest)
            if answer is not None:
                said.answers.move_to_end(digest)
                found.append(Splice(index, answer.tokens, answer.rest))
        if found:
            self._sessions.move_to_end((owner, session))
        return found

    def visit(self, owner: int, session: str) -> SessionAnswers:
        """The session as it is now, for an answer that comes later."""
        return self._of(owner, session)

    def keep_for(self, visited: SessionAnswers, digest: bytes, answer: Answer) -> None:
        """As `keep`, under the name that the session has by now; nothing if it was forgotten since the visit."""
        if self._sessions.get((visited.owner, visited.name)) is visited:
            self.keep(visited.owner, visited.name, digest, answer)

    def keep(self, owner: int, session: str, digest: bytes, answer: Answer) -> None:
        """`digest`: of the conversation with the answer as its last message."""
        said = self._of(owner, session)
        self._drop(said, digest)
        said.answers[digest] = answer
        self.n_bytes += _bytes_of(answer)
        while len(said.answers) > self._answers_max:
            self._drop(said, next(iter(said.answers)))
        while self.n_bytes > self._bytes_max:
            self._drop_oldest()

    def forget(self, owner: int, session: str) -> None:
        said = self._sessions.pop((owner, session), None)
        if said is not None:
            self.n_bytes -= sum(map(_bytes_of, said.answers.values()))

    def copy(self, owner: int, session: str, new_session: str) -> None:
        """A fork knows what its parent said."""
        said = self._sessions.get((owner, session))
        self.forget(owner, new_session)
        if said is None:
            return
        self._of(owner, new_session).mode = said.mode
        for digest, answer in list(said.answers.items()):
            self.keep(owner, new_session, digest, answer)

    def inherit(self, owner: int, parent: str, session: str) -> None:
        """A session that is used for the first time begins as a fork of its parent, if it names one."""
        if parent and session and (owner, session) not in self._sessions:
            self.copy(owner, parent, session)

    def rename(self, owner: int, session: str, new_session: str) -> None:
        self.forget(owner, new_session)
        said = self._sessions.pop((owner, session), None)
        if said is not None:
            said.name = new_session
            self._sessions[owner, new_session] = said

    def stored(self) -> list[StoredSession]:
        """All that named sessions have, the least recently used first."""
        found = (self.stored_of(owner, name) for owner, name in self._sessions if name)
        return [session for session in found if session is not None]

    def stored_of(self, owner: int, session: str) -> StoredSession | None:
        """None: it has nothing."""
        said = self._sessions.get((owner, session))
        if said is None or not (said.answers or said.mode is not None):
            return None
        answers = [StoredAnswer(digest, answer.tokens, answer.rest) for digest, answer in said.answers.items()]
        return StoredSession(owner, session, said.mode, answers)

    def restore(self, session: StoredSession) -> None:
        """As if it had been used just now; the bounds hold."""
        if session.mode is not None:
            self._of(session.owner, session.name).mode = session.mode
        for answer in session.answers:
            self.keep(session.owner, session.name, answer.digest, Answer(answer.tokens, answer.rest))

    def restore_as(self, owner: int, name: str, session: StoredSession | None) -> None:
        """What was stored of one session, for another. None: nothing was."""
        if session is not None:
            self.restore(msgspec.structs.replace(session, owner=owner, name=name))

    def _of(self, owner: int, session: str) -> SessionAnswers:
        said = self._sessions.setdefault((owner, session), SessionAnswers(owner, session))
        self._sessions.move_to_end((owner, session))
        while len(self._sessions) > limits.ANSWER_SESSIONS_MAX:
            self.forget(*who_must_go(self._sessions))
        return said

    def _drop(self, said: SessionAnswers, digest: bytes) -> None:
        answer = said.answers.pop(digest, None)
        if answer is not None:
            self.n_bytes -= _bytes_of(answer)

    def _drop_oldest(self) -> None:
        key, said = next((key, said) for key, said in self._sessions.items() if said.answers)
        self._drop(said, next(iter(said.answers)))
        if not said.answers and said.mode is None:
            del self._sessions[key]


def _bytes_of(answer: Answer) -> int:
    return len(answer.tokens) + len(answer.rest.encode()) + limits.ANSWER_BYTES_OVERHEAD
