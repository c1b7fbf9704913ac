"""Answers as rows of the database: those of named sessions from one daemon to the next, those of a saved session while
it is saved. A session whose rows are lost works: its answers are tokenized again, as the template has them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial

import msgspec

from ..core.asked import HistoryMode
from ..process.logs import fields
from .database import ANSWER, SAVED, Database
from .memory import DIGEST_BYTES, TOKEN_BYTES, Answer, AnswerMemory, StoredSession

log = logging.getLogger("llmd.history")

_encode = msgspec.msgpack.encode
_answer = msgspec.msgpack.Decoder(Answer)
_mode = msgspec.msgpack.Decoder(HistoryMode)
_saved = msgspec.msgpack.Decoder(StoredSession)


def follow(memory: AnswerMemory, database: Database) -> None:
    """From here on the database has what the memory has."""

    def on_change(owner: int, session: str, digest: bytes) -> None:
        database.changed((ANSWER, owner, session, digest), partial(_body, memory, owner, session, digest))

    memory.on_change = on_change


def _body(memory: AnswerMemory, owner: int, session: str, digest: bytes) -> bytes | None:
    """Where there is no digest, the mode."""
    found = memory.find(owner, session, digest) if digest else memory.mode(owner, session)
    return _encode(found) if found is not None else None


def restore(memory: AnswerMemory, database: Database, n_vocab: int) -> None:
    """What the daemon before this one had. Blocks."""
    refused: list[str] = []
    for (_, owner, name, digest), body in list(database.rows(ANSWER)):
        try:
            if digest:
                memory.keep(owner, name, digest, _checked(digest, _answer.decode(body), n_vocab))
            else:
                memory.choose(owner, name, _mode.decode(body))
        except (msgspec.MsgspecError, ValueError) as error:
            refused.append(str(error))
    if refused:
        log.warning("answers of sessions were refused", extra=fields(n=len(refused), reason=refused[0]))
    database.keep_only(ANSWER, [(ANSWER, *key) for key in memory.keys()])


def _checked(digest: bytes, answer: Answer, n_vocab: int) -> Answer:
    """Raises ValueError: no daemon of this model wrote it."""
    if len(digest) != DIGEST_BYTES:
        raise ValueError("a digest is not one")
    if len(answer.tokens) % TOKEN_BYTES:
        raise ValueError("an answer ends inside a token")
    tokens = memoryview(answer.tokens).cast("i")
    if tokens and not 0 <= min(tokens) <= max(tokens) < n_vocab:
        raise ValueError("an answer has a token that the model does not have")
    return answer


class SavedAnswers:
    """Those of saved sessions, by owner and label."""

    def __init__(self, database: Database, n_vocab: int) -> None:
        self._database = database
        self._n_vocab = n_vocab

    async def write(self, owner: int, label: str, saved: StoredSession | None) -> None:
        """What this label had is replaced, by nothing where the session has none."""
        body = _encode(saved) if saved is not None else None
        self._database.changed((SAVED, owner, label, b""), lambda: body)
        await self._database.flushed()

    def read(self, owner: int, label: str) -> StoredSession | None:
        """Blocks."""
        body = self._database.row((SAVED, owner, label, b""))
        if body is None:
            return None
        try:
            saved = _saved.decode(body)
            for digest, answer in saved.answers.items():
                _checked(digest, answer, self._n_vocab)
        except (msgspec.MsgspecError, ValueError) as error:
            log.warning("answers of a saved session were refused", extra=fields(label=label, reason=str(error)))
            return None
        return saved

    def sweep(self, labels: Iterable[tuple[int, str]]) -> None:
        """Removes what belongs to no label: a crash may come between the two. Blocks."""
        self._database.keep_only(SAVED, [(SAVED, owner, label, b"") for owner, label in labels])
