"""Answers with the tokens that they were made of, found again by content when a client sends them back.

Text that a model wrote often tokenizes otherwise than it was written, and templates write past answers otherwise than
new ones; they leave out old reasoning, write calls anew, and move the tools. So each finished answer of a session is
kept with its tokens and those of the messages before it, under a digest of the whole conversation up to and including
the answer. A later request whose messages have the same digest up to there goes on after these tokens: the template
makes only what follows (llm_chat_render). A message that was edited, and all after it, have other digests and never
match. An answer has the tokens since the answer that its own prompt went on after: together they are the past.

The digest forgives what clients change without meaning anything by it: null, "" and blank are one; arguments of tool
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
"""Last tokens of an answer that the renderer gets: more than any end mark that both templates and models write."""
_THINK, _THOUGHT = "<think>", "</think>"
_encode = msgspec.json.Encoder(order="deterministic").encode


# --- digests ---------------------------------------------------------------------------------------------------------


def digest_of(previous: bytes, message: PlainMessage) -> bytes:
    """Returns the digest of a conversation that continues with this message. `previous`: that of the messages before;
    b"" for none."""
    return hashlib.blake2b(previous + _encode(_meaning(message)), digest_size=DIGEST_BYTES).digest()


def digests_of(messages: Sequence[PlainMessage], tools: Sequence[Tool] = ()) -> list[bytes]:
    """Returns the digest of the conversation up to and including each message. Deferred tools are named in messages."""
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
    """Returns arguments for comparison. Text that is not JSON, or larger than any tool's arguments, is compared as
    text."""
    arguments = call.arguments
    try:
        return _plain(decoder_of(Any).decode(ARGUMENTS.clean(arguments.encode())) if arguments.strip() else {})
    except (ApiError, msgspec.DecodeError, RecursionError):
        return arguments


def _plain(value: Any, levels: int = limits.ARGUMENTS_DEPTH_MAX) -> Any:
    """Turns 1.0 into 1, as JavaScript writes it. Raises RecursionError below that many levels, however deep the
    stack."""
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
    """Facts of a prompt for the prompts that continue it."""

    variables: bytes = b""
    """Digest of the template's variables."""
    n_head: int = 0
    """The same as Prompt.n_head."""
    user_starts: dict[int, int] = {}
    """Number of a user's message, from 1, to the tokens before it; the latest few."""


class Answer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The tokens of one assistant message and of the messages before it. Also a row of the database."""

    tokens: bytes
    """int32 little-endian: the prompt after the tokens of `since`, then the generated tokens that are resident."""
    rest: str
    """Text of the answer that `tokens` does not cover: the last token is not resident if a limit ended the answer."""
    since: Annotated[bytes, msgspec.Meta(max_length=DIGEST_BYTES)] = b""
    """Digest of the answer that the prompt continued; b"": none, so that `tokens` has everything before the answer."""
    facts: PromptFacts = PromptFacts()


def answer_of(prompt: bytes, generated: bytes, text: str, spell: Callable[[bytes], bytes]) -> Answer | None:
    """Returns the answer of `text` with the generated tokens that spell a beginning of it; None if none can be shown
    to. Tokens beyond the text, cut off by a stop string or within a character, are left out."""
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
    """The part of a request that is taken from an earlier answer: all up to and including one of its messages."""

    message: int
    digest: bytes
    """Digest of the conversation up to that message."""
    tokens: bytes
    rest: str
    """The same as Answer.rest."""
    facts: PromptFacts

    def rendered(self) -> dict[str, Any]:
        """The member `after` of a request to llm_chat_render."""
        last = memoryview(self.tokens).cast("i")[-_LAST_TOKENS:].tolist()
        return {"message": self.message, "rest": self.rest, "last": last}


class StoredSession(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The answers of one session, saved under a label."""

    mode: HistoryMode | None
    answers: dict[bytes, Answer]


@dataclass(slots=True)
class SessionAnswers:
    """The record of one session. Answers are in order of use."""

    owner: int
    name: str
    answers: OrderedDict[bytes, Answer] = field(default_factory=OrderedDict)
    n_bytes: int = 0
    mode: HistoryMode | None = None
    """The history mode that the client chose last."""


class AnswerMemory:
    """The answers of all sessions, with a limit in bytes. Beyond it, the owner with the most bytes loses the least
    recently used answers. The name "" stands for all requests of an owner without a session; they may use half of the
    owner's bytes."""

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
        """Sets the mode until the client chooses another one; None changes nothing."""
        if session and mode is not None and self.mode(owner, session) != mode:
            self.record(owner, session).mode = mode
            self._report(owner, session, b"")

    def mode(self, owner: int, session: str) -> HistoryMode | None:
        """Returns the mode that the client chose last."""
        return self._known(owner, session).mode

    def past(self, owner: int, session: str, digests: Sequence[bytes], *, is_used: bool = True) -> Past | None:
        """Returns the longest known past of a conversation with these digests (digests_of). `is_used`: False leaves the
        order of use unchanged."""
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
        """Keeps the answer under the present name of the session, or drops it if the session was forgotten. `past`: the
        tokens that its prompt continued. If other tokens, or none, are stored for them now, the answer gets them
        itself."""
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
            self._retire(record, digest)  # what went on after it did so after other tokens
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
        """A session that is used for the first time begins as a fork of its parent, if it names one."""
        if self.source(owner, parent, session) != session:
            self.copy(owner, parent, session)

    def source(self, owner: int, parent: str, session: str) -> str:
        """Returns the session whose answers this one has, or will have when it is first used."""
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
        """Returns owner, session and digest of everything that named sessions hold, as `on_change` gets them."""
        return [
            (owner, name, digest)
            for (owner, name), record in self._sessions.items()
            if name
            for digest in (*record.answers, *([b""] if record.mode is not None else []))
        ]

    def find(self, owner: int, session: str, digest: bytes) -> Answer | None:
        return self._known(owner, session).answers.get(digest)

    def saved(self, owner: int, session: str) -> StoredSession | None:
        """Returns all that the session holds; None if it holds nothing."""
        record = self._known(owner, session)
        return StoredSession(record.mode, dict(record.answers)) if record.answers or record.mode is not None else None

    def restore(self, owner: int, name: str, saved: StoredSession) -> None:
        """Adds the answers as if they had been used just now; the bounds hold."""
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
        """Adds to the counts of bytes; `n_bytes` may be negative."""
        record.n_bytes += n_bytes
        self.n_bytes += n_bytes
        self._owner_bytes[record.owner] += n_bytes
        if not self._owner_bytes[record.owner]:
            del self._owner_bytes[record.owner]


def _chain(record: SessionAnswers, digest: bytes) -> list[bytes]:
    """Returns the answers that make up the past with this digest, in their order; empty: one of them is missing."""
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
