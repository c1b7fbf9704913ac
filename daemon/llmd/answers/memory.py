"""Past answers with their tokens. When a client sends an answer back as part of a conversation, llmd finds the answer
here by its content.

The text of an answer often tokenizes differently from the tokens that the model generated. Templates also write a past
answer differently from a new answer. They leave out old reasoning, write tool calls in their own format, and move the
list of tools. So each finished answer is kept with its tokens and with the tokens of the messages before it. The key is
a digest of the conversation up to and including the answer. A later request may contain messages with the same digest.
Its prompt then continues the kept tokens, and the template renders only the messages after the answer
(llm_chat_render). If the client has edited a message, the digest of the conversation up to this message changes, and so
do all later digests. So the answers after the edit are not found. If the prompt of a new answer continued an earlier
answer, only the tokens after the earlier answer are stored with the new answer. The tokens of all answers of such a
chain, joined, are the tokens of the whole conversation.

The event loop owns all objects of this module.
"""

from __future__ import annotations

import codecs
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from ..core import limits
from ..core.generation_request import HistoryMode
from ..core.shares import pick_eviction_victim
from .digest import DIGEST_BYTES

TOKEN_BYTES = 4
_LAST_TOKENS = 32
"""Number of an answer's last tokens that are passed to llm_chat_render, so that libllm can see how the answer ended. No
template or model ends a message with more tokens than this.
"""


class PromptFacts(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Facts about the prompt of an answer. A later prompt that continues the answer needs them again."""

    variables: bytes = b""
    """Digest of the template's variables."""
    n_head: int = 0
    """Many conversations share the first `n_head` tokens of the prompt (Prompt.n_head)."""
    user_starts: dict[int, int] = {}
    """Maps the number of each of the last few user messages, counted from 1, to the number of tokens before it."""


class Answer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The tokens of an assistant message and of the messages before it. Rows of the database store this type."""

    tokens: bytes
    """Token ids as int32 (little-endian): the tokens of the prompt, then the generated tokens that were in the model's
    memory. Prompt tokens that are already stored with the earlier answer `since` are left out.
    """
    rest: str
    """Text at the end of the answer, for which `tokens` has no tokens. Usually this is the text of the last generated
    token, which was never fed to the model.
    """
    since: Annotated[bytes, msgspec.Meta(max_length=DIGEST_BYTES)] = b""
    """Digest of the earlier answer that the prompt continued. b"" if the prompt continued no answer. `tokens` are then
    all tokens of the conversation.
    """
    facts: PromptFacts = PromptFacts()


def answer_of(prompt: bytes, generated: bytes, text: str, spell: Callable[[bytes], bytes]) -> Answer | None:
    """Returns an answer with the prompt tokens and the generated tokens that make up `text`, the answer that the client
    got. `spell` returns the text of tokens. Returns None if the generated tokens have another text.

    The last tokens are left out if their text goes beyond the end of `text`. The client's text can end earlier than the
    generated tokens, because llmd leaves out a stop string or an incomplete character.
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
    """The first messages of a request, up to and including an earlier answer. The tokens of these messages are known,
    because the tokens were kept with the answer.
    """

    message: int
    """Index of the answer among the messages of the request."""
    digest: bytes
    """Digest of the conversation up to and including the answer."""
    tokens: bytes
    rest: str
    """Text at the end of the answer, for which `tokens` has no tokens (Answer.rest)."""
    facts: PromptFacts

    def rendered(self) -> dict[str, Any]:
        """Returns the member `after` of the JSON for llm_chat_render, which then renders only the messages after the
        answer.
        """
        last = memoryview(self.tokens).cast("i")[-_LAST_TOKENS:].tolist()
        return {"message": self.message, "rest": self.rest, "last": last}


class StoredSession(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The history mode and all answers of a saved session. The client names a saved session by a label."""

    mode: HistoryMode | None
    answers: dict[bytes, Answer]


@dataclass(slots=True)
class SessionAnswers:
    """The answers of a session, the least recently used first."""

    owner: int
    name: str
    answers: OrderedDict[bytes, Answer] = field(default_factory=OrderedDict)
    n_bytes: int = 0
    mode: HistoryMode | None = None
    """The history mode that the client has chosen most recently."""


class AnswerMemory:
    """The answers of all sessions, with a limit on their total bytes. Beyond the limit, the owner with the most bytes
    loses its least recently used answers. The answers of an owner's requests without a session are kept under the
    session name "". If these answers have more than half of the owner's bytes, they are dropped first.
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
        """Number of answers dropped because all answers together exceeded bytes_max."""
        self.on_change: Callable[[int, str, bytes], None] = lambda owner, session, digest: None
        """Called with owner, session and digest when an answer of a named session is added, changed or removed. Also
        called with the digest b"" when the history mode of the session changes.
        """

    def choose(self, owner: int, session: str, mode: HistoryMode | None) -> None:
        """Sets the history mode that the client has chosen for the session. If `mode` is None, nothing changes."""
        if session and mode is not None and self.mode(owner, session) != mode:
            self.record(owner, session).mode = mode
            self._report(owner, session, b"")

    def mode(self, owner: int, session: str) -> HistoryMode | None:
        """Returns the history mode that the client has chosen most recently, or None."""
        return self._known(owner, session).mode

    def past(self, owner: int, session: str, digests: Sequence[bytes], *, is_used: bool = True) -> Past | None:
        """Returns the longest beginning of a conversation whose tokens are known, or None. `digests` has, for each
        message, the digest of the conversation up to this message (digests_of). If `is_used` is False, the answers that
        are found do not count as used.
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
        """Keeps the answer in the session of `record`. This session may have been renamed since the request arrived. If
        the session was forgotten in the meantime, the answer is dropped. If the prompt continued an earlier answer,
        `answer.since` is the digest of that answer. `past` are then the tokens of the conversation up to and including
        that answer. If that answer was dropped or replaced in the meantime, `past` is stored with the new answer.
        """
        if self._sessions.get((record.owner, record.name)) is not record:
            return
        if answer.since and _tokens_of(record, _chain(record, answer.since)) != past:
            answer = msgspec.structs.replace(answer, tokens=past + answer.tokens, since=b"")
        self.keep(record.owner, record.name, digest, answer)

    def keep(self, owner: int, session: str, digest: bytes, answer: Answer) -> None:
        """Keeps the answer. `digest` is the digest of the conversation whose last message is the answer."""
        record = self.record(owner, session)
        before = record.answers.get(digest)
        if before is not None and before != answer:
            self._retire(record, digest)  # answers that continue `before` get a copy of its tokens
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
        """Copies the answers of a parent to its fork."""
        record = self.saved(owner, session)
        self.forget(owner, new_session)
        if record is not None:
            self.restore(owner, new_session, record)

    def inherit(self, owner: int, parent: str, session: str) -> None:
        """If `parent` is not "", and the session is used for the first time, copies the parent's answers to the
        session.
        """
        if self.source(owner, parent, session) != session:
            self.copy(owner, parent, session)

    def source(self, owner: int, parent: str, session: str) -> str:
        """Returns the session whose answers a request uses. This is the parent if the request has a parent and the
        session is not known yet. Otherwise it is the session itself.
        """
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
        """Returns a tuple (owner, session, digest) for each answer of each named session. Also returns a tuple with the
        digest b"" for each named session with a history mode. When one of these tuples is added or removed,
        `on_change` is called with it.
        """
        return [
            (owner, name, digest)
            for (owner, name), record in self._sessions.items()
            if name
            for digest in (*record.answers, *([b""] if record.mode is not None else []))
        ]

    def find(self, owner: int, session: str, digest: bytes) -> Answer | None:
        return self._known(owner, session).answers.get(digest)

    def saved(self, owner: int, session: str) -> StoredSession | None:
        """Returns the session's mode and answers, or None if the session has neither."""
        record = self._known(owner, session)
        return StoredSession(record.mode, dict(record.answers)) if record.answers or record.mode is not None else None

    def restore(self, owner: int, name: str, saved: StoredSession) -> None:
        """Adds saved answers to a session. The answers count as just used, and the limits apply to them."""
        self.choose(owner, name, saved.mode)
        for digest, answer in saved.answers.items():
            self.keep(owner, name, digest, answer)

    def _report(self, owner: int, session: str, *digests: bytes) -> None:
        for digest in digests if session else ():
            self.on_change(owner, session, digest)

    def _known(self, owner: int, session: str) -> SessionAnswers:
        return self._sessions.get((owner, session)) or SessionAnswers(owner, session)

    def record(self, owner: int, session: str) -> SessionAnswers:
        """Returns the record of the session. Creates the record if the session has none."""
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
        """Removes an answer. The answers that continue the removed answer get a copy of its tokens."""
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
        """Drops the least recently used answer of the owner with the most bytes, and all answers that continue this
        answer.
        """
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
        """Adds `n_bytes`, which can be negative, to the counts of bytes."""
        record.n_bytes += n_bytes
        self.n_bytes += n_bytes
        self._owner_bytes[record.owner] += n_bytes
        if not self._owner_bytes[record.owner]:
            del self._owner_bytes[record.owner]


def _chain(record: SessionAnswers, digest: bytes) -> list[bytes]:
    """Returns the digests of the answers whose tokens, joined, are the tokens of the conversation up to `digest`. The
    oldest answer comes first. Returns [] if one of these answers is missing.
    """
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
