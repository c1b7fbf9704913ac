"""Answers with their tokens, found again by content when a client sends them back.

The text of an answer often tokenizes differently than the model generated it. Templates write past answers differently
from new ones: they leave out old reasoning, write calls anew, and move the tools. So each finished answer of a session
is kept with its tokens and those of the messages before it, under a digest of the whole conversation up to and
including the answer. A later request whose messages have the same digest up to there continues these tokens, and the
template renders only the rest (llm_chat_render). If a message was edited, it and all later messages have other digests
and never match. An answer stores only the tokens since the answer that its own prompt continued; the chain of answers
has the whole past.

The digest ignores differences that clients introduce without intention: null, "" and blank are equal; arguments of tool
calls are compared as values; ids of calls and reasoning are left out. Owned by the event loop.
"""

from __future__ import annotations

import codecs
import hashlib
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Annotated, Any

import msgspec

from ..core import limits
from ..core.errors import ApiError
from ..core.generation_request import HistoryMode, PlainMessage, PlainToolCall, Tool
from ..core.shares import pick_eviction_victim
from ..engine.json_scan import ARGUMENTS, decoder_of

TOKEN_BYTES = 4
DIGEST_BYTES = 16
_LAST_TOKENS = 32
"""Number of an answer's last tokens that the renderer gets: more than any end mark that templates and models write has.
"""
_THINK, _THOUGHT = "<think>", "</think>"
_encode = msgspec.json.Encoder(order="deterministic").encode


# --- digests ---------------------------------------------------------------------------------------------------------


def digest_of(previous: bytes, message: PlainMessage) -> bytes:
    """Returns the digest of a conversation that continues with this message. `previous` is b"" before the first
    message.
    """
    return hashlib.blake2b(previous + _encode(_meaning(message)), digest_size=DIGEST_BYTES).digest()


def digests_of(messages: Sequence[PlainMessage], tools: Sequence[Tool] = ()) -> list[bytes]:
    """Returns the digest of the conversation up to each message. Deferred tools are left out, because messages name
    them.
    """
    listed = [tool for tool in tools if not tool.is_deferred]
    return list(accumulate(messages, digest_of, initial=_digest(listed) if listed else b""))[1:]


def variables_digest(variables: Mapping[str, Any]) -> bytes:
    return _digest(variables) if variables else b""


def _digest(value: Any) -> bytes:
    return hashlib.blake2b(_encode(value), digest_size=DIGEST_BYTES).digest()


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
    """Returns the arguments as a value. Text that is not JSON, or larger than any tool's arguments, is compared as
    text.
    """
    arguments = call.arguments
    try:
        return _plain(decoder_of(Any).decode(ARGUMENTS.clean(arguments.encode())) if arguments.strip() else {})
    except (ApiError, msgspec.DecodeError, RecursionError):
        return arguments


def _plain(value: Any, levels: int = limits.ARGUMENTS_DEPTH_MAX) -> Any:
    """Turns 1.0 into 1, which JavaScript writes for it. Raises RecursionError below that many levels, whatever the
    depth of the stack is.
    """
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


class PromptFacts(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Facts about a prompt that the prompts that continue it need."""

    variables: bytes = b""
    """Digest of the template's variables."""
    n_head: int = 0
    """The value of Prompt.n_head."""
    user_starts: dict[int, int] = {}
    """Maps the number of a user's message, from 1, to the number of tokens before it, for the latest few."""


class Answer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The tokens of one assistant message and of the messages before it. Also a row of the database."""

    tokens: bytes
    """int32 little-endian: the prompt after the tokens of `since`, then the generated tokens that are resident."""
    rest: str
    """The part of the answer's text that the tokens do not cover: after a limit, the last token is not resident."""
    since: Annotated[bytes, msgspec.Meta(max_length=DIGEST_BYTES)] = b""
    """Digest of the answer that the prompt continued. b"": the prompt continued none, and `tokens` are complete."""
    facts: PromptFacts = PromptFacts()


def answer_of(prompt: bytes, generated: bytes, text: str, spell: Callable[[bytes], bytes]) -> Answer | None:
    """Returns the answer of `text` with those of its tokens that spell a beginning of the text, or None if there are
    none.

    Tokens that were cut off by a stop string or in the middle of a character spell more than the text and are left out.
    """
    n_left_out_max = limits.ANSWER_TOKENS_LEFT_OUT_MAX
    sure, end = generated[: -TOKEN_BYTES * n_left_out_max], generated[-TOKEN_BYTES * n_left_out_max :]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    head = decoder.decode(spell(sure))
    if not text.startswith(head):
        return None
    tail, spelled = text[len(head) :], decoder.getstate()[0] + spell(end)
    for _ in range(n_left_out_max + 1):
        written = spelled.decode("utf-8", "replace")
        if tail.startswith(written):
            return Answer(prompt + sure + end, tail[len(written) :])
        last = spell(end[-TOKEN_BYTES:])
        spelled = spelled[: len(spelled) - len(last)]
        end = end[:-TOKEN_BYTES]
    return None


@dataclass(frozen=True, slots=True)
class Past:
    """The part of a request that an earlier answer provides: everything up to and including one of its messages."""

    message: int
    digest: bytes
    """Digest of the conversation up to that message."""
    tokens: bytes
    rest: str
    """The value of Answer.rest."""
    facts: PromptFacts

    def rendered(self) -> dict[str, Any]:
        """Returns the member `after` of a request to llm_chat_render."""
        last = memoryview(self.tokens).cast("i")[-_LAST_TOKENS:].tolist()
        return {"message": self.message, "rest": self.rest, "last": last}


class StoredSession(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The answers of one session that were saved under a label."""

    mode: HistoryMode | None
    answers: dict[bytes, Answer]


@dataclass(slots=True)
class SessionAnswers:
    """The answers of one session, in order of use."""

    owner: int
    name: str
    answers: OrderedDict[bytes, Answer] = field(default_factory=OrderedDict)
    n_bytes: int = 0
    mode: HistoryMode | None = None
    """The history mode that the client chose last."""


class AnswerMemory:
    """The answers of all sessions, with a limit in bytes. Beyond the limit, the owner with the most bytes loses the
    least recently used answers. The name "" stands for all requests of an owner without a session, which can use half
    of the owner's bytes.
    """

    def __init__(
        self, bytes_max: int = limits.ANSWER_BYTES_MAX, answers_max: int = limits.ANSWERS_PER_SESSION_MAX
    ) -> None:
        self._sessions: OrderedDict[tuple[int, str], SessionAnswers] = OrderedDict()
        self._bytes_max = bytes_max
        self._answers_max = answers_max
        self._owner_bytes: Counter[int] = Counter()
        self.n_bytes = 0
        self.n_dropped = 0
        """Answers dropped because of bytes_max."""
        self.on_change: Callable[[int, str, bytes], None] = lambda owner, session, digest: None
        """Called for each answer of a named session that is added, changed or removed; b"" stands for the mode."""

    def choose(self, owner: int, session: str, mode: HistoryMode | None) -> None:
        """Sets the mode until the client chooses another one. None changes nothing."""
        if session and mode is not None and self.mode(owner, session) != mode:
            self.record(owner, session).mode = mode
            self._report(owner, session, b"")

    def mode(self, owner: int, session: str) -> HistoryMode | None:
        """Returns the mode that the client chose last."""
        return self._known(owner, session).mode

    def past(self, owner: int, session: str, digests: Sequence[bytes], *, is_used: bool = True) -> Past | None:
        """Returns the longest known past of a conversation with these digests (digests_of). If `is_used` is False, the
        order of use does not change.
        """
        record = self._known(owner, session)
        for index in range(len(digests) - 1, -1, -1):
            chain = _chain(record, digests[index])
            if chain:
                if is_used:
                    for digest in chain:
                        record.answers.move_to_end(digest)
                    self._sessions.move_to_end((owner, session))
                last = record.answers[digests[index]]
                return Past(index, digests[index], _tokens_of(record, chain), last.rest, last.facts)
        return None

    def keep_for(self, record: SessionAnswers, digest: bytes, answer: Answer, past: bytes = b"") -> None:
        """Keeps the answer under the session's current name, or drops it if the session was forgotten. `past` are the
        tokens that its prompt continued. If other tokens are stored for them now, or none, the answer stores them
        itself.
        """
        if self._sessions.get((record.owner, record.name)) is not record:
            return
        if answer.since and _tokens_of(record, _chain(record, answer.since)) != past:
            answer = msgspec.structs.replace(answer, tokens=past + answer.tokens, since=b"")
        self.keep(record.owner, record.name, digest, answer)

    def keep(self, owner: int, session: str, digest: bytes, answer: Answer) -> None:
        """`digest`: of the conversation with the answer as its last message."""
        record = self.record(owner, session)
        before = record.answers.get(digest)
        if before is not None and before != answer:
            self._retire(record, digest)  # the answers after it continued other tokens
        else:
            self._drop(record, digest)
        record.answers[digest] = answer
        self._count(record, _bytes_of(answer))
        self._report(owner, session, digest)
        while len(record.answers) > self._answers_max:
            self._retire(record, next(iter(record.answers)))
        while self.n_bytes > self._bytes_max:
            self._drop_oldest()

    def forget(self, owner: int, session: str) -> None:
        record = self._sessions.pop((owner, session), None)
        if record is not None:
            self._count(record, -record.n_bytes)
            self._report(owner, session, b"", *record.answers)

    def copy(self, owner: int, session: str, new_session: str) -> None:
        """Gives a fork the answers of its parent."""
        record = self.saved(owner, session)
        self.forget(owner, new_session)
        if record is not None:
            self.restore(owner, new_session, record)

    def inherit(self, owner: int, parent: str, session: str) -> None:
        """Makes a session that is used for the first time a fork of its parent, if it names one."""
        if self.source(owner, parent, session) != session:
            self.copy(owner, parent, session)

    def source(self, owner: int, parent: str, session: str) -> str:
        """Returns the session whose answers this session has, or would have when it is used."""
        return parent if parent and session and (owner, session) not in self._sessions else session

    def rename(self, owner: int, session: str, new_session: str) -> None:
        self.forget(owner, new_session)
        record = self._sessions.pop((owner, session), None)
        if record is not None:
            record.name = new_session
            self._sessions[owner, new_session] = record
            for name in (session, new_session):
                self._report(owner, name, b"", *record.answers)

    def keys(self) -> list[tuple[int, str, bytes]]:
        """Returns owner, session and digest of everything that named sessions hold, in the form of `on_change`."""
        return [
            (owner, name, digest)
            for (owner, name), record in self._sessions.items()
            if name
            for digest in (*record.answers, *([b""] if record.mode is not None else []))
        ]

    def find(self, owner: int, session: str, digest: bytes) -> Answer | None:
        return self._known(owner, session).answers.get(digest)

    def saved(self, owner: int, session: str) -> StoredSession | None:
        """Returns everything that the session holds, or None if it holds nothing."""
        record = self._known(owner, session)
        return StoredSession(record.mode, dict(record.answers)) if record.answers or record.mode is not None else None

    def restore(self, owner: int, name: str, saved: StoredSession) -> None:
        """Adds the answers as if they had just been used. The limits apply."""
        self.choose(owner, name, saved.mode)
        for digest, answer in saved.answers.items():
            self.keep(owner, name, digest, answer)

    def _report(self, owner: int, session: str, *digests: bytes) -> None:
        for digest in digests if session else ():
            self.on_change(owner, session, digest)

    def _known(self, owner: int, session: str) -> SessionAnswers:
        return self._sessions.get((owner, session)) or SessionAnswers(owner, session)

    def record(self, owner: int, session: str) -> SessionAnswers:
        """Returns the record of the session, also for an answer that is not complete yet."""
        record = self._sessions.setdefault((owner, session), SessionAnswers(owner, session))
        self._sessions.move_to_end((owner, session))
        while len(self._sessions) > limits.ANSWER_SESSIONS_MAX:
            self.forget(*pick_eviction_victim(self._sessions))
        return record

    def _drop(self, record: SessionAnswers, digest: bytes) -> None:
        answer = record.answers.pop(digest, None)
        if answer is not None:
            self._count(record, -_bytes_of(answer))
            self._report(record.owner, record.name, digest)

    def _retire(self, record: SessionAnswers, digest: bytes) -> None:
        """Removes an answer; the answers that continue it take over its tokens."""
        removed = record.answers[digest]
        self._drop(record, digest)
        for later, answer in record.answers.items():
            if answer.since == digest:
                record.answers[later] = msgspec.structs.replace(
                    answer, tokens=removed.tokens + answer.tokens, since=removed.since
                )
                self._count(record, len(removed.tokens))
                self._report(record.owner, record.name, later)

    def _drop_oldest(self) -> None:
        """Drops an answer and all answers that continue it."""
        [(owner, n_bytes)] = self._owner_bytes.most_common(1)
        record = self._sessions.get((owner, ""))
        if record is None or record.n_bytes <= n_bytes // 2:
            record = next(record for record in self._sessions.values() if record.owner == owner and record.answers)
        later: defaultdict[bytes, list[bytes]] = defaultdict(list)
        for digest, answer in record.answers.items():
            later[answer.since].append(digest)
        removed = [next(iter(record.answers))]
        for digest in removed:
            self._drop(record, digest)
            removed += later[digest]
        self.n_dropped += len(removed)
        if not record.answers and record.mode is None:
            del self._sessions[record.owner, record.name]

    def _count(self, record: SessionAnswers, n_bytes: int) -> None:
        """Adds to the counts of bytes. `n_bytes` can be negative."""
        record.n_bytes += n_bytes
        self.n_bytes += n_bytes
        self._owner_bytes[record.owner] += n_bytes
        if not self._owner_bytes[record.owner]:
            del self._owner_bytes[record.owner]


def _chain(record: SessionAnswers, digest: bytes) -> list[bytes]:
    """Returns the answers that make up the past with this digest, in order, or an empty list if one of them is
    missing."""
    chain: list[bytes] = []
    while digest:
        answer = record.answers.get(digest)
        if answer is None or len(chain) > len(record.answers):
            return []
        chain.append(digest)
        digest = answer.since
    return chain[::-1]


def _tokens_of(record: SessionAnswers, chain: Sequence[bytes]) -> bytes:
    return b"".join(record.answers[digest].tokens for digest in chain)


def _bytes_of(answer: Answer) -> int:
    return len(answer.tokens) + len(answer.rest.encode()) + limits.ANSWER_BYTES_OVERHEAD
