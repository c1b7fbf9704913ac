"""Writes the answers of named sessions to the database, and reads them again when llmd starts. If a client saves a
session under a label, the session's answers are saved, too. These answers are in a row of their own, which stays until
the saved session is removed.

If the rows of a session are lost, the session still works: its past answers are rendered and tokenized again.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable
from functools import partial

import msgspec

from ..core.generation_request import HistoryMode
from ..process.logs import fields
from .database import ANSWER, SAVED, Database
from .digest import DIGEST_BYTES
from .memory import TOKEN_BYTES, Answer, AnswerMemory, StoredSession

log = logging.getLogger("llmd.history")

_answer = msgspec.msgpack.Decoder(Answer)
_mode = msgspec.msgpack.Decoder(HistoryMode)
_saved = msgspec.msgpack.Decoder(StoredSession)


def follow(memory: AnswerMemory, database: Database) -> None:
    """Writes every later change of the memory to the database."""

    def on_change(owner: int, session: str, digest: bytes) -> None:
        find = partial(memory.find, owner, session, digest) if digest else partial(memory.mode, owner, session)
        database.changed((ANSWER, owner, session, digest), find)

    memory.on_change = on_change


def restore(memory: AnswerMemory, database: Database, n_vocab: int) -> None:
    """Reads the answers that the previous daemon wrote, and adds them to `memory`. Blocks the calling thread. Raises
    sqlite3.Error.
    """
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
        log.warning("ignored stored answers of sessions", extra=fields(n=len(refused), reason=refused[0]))
    database.keep_only(ANSWER, [(ANSWER, *key) for key in memory.keys()])


def _checked(digest: bytes, answer: Answer, n_vocab: int) -> Answer:
    """Returns the answer. Raises ValueError if this model cannot have generated the answer."""
    if len(digest) != DIGEST_BYTES:
        raise ValueError(f"a digest has {len(digest)} bytes, not {DIGEST_BYTES}")
    if len(answer.tokens) % TOKEN_BYTES:
        raise ValueError("an answer ends inside a token")
    tokens = memoryview(answer.tokens).cast("i")
    if tokens and not 0 <= min(tokens) <= max(tokens) < n_vocab:
        raise ValueError("an answer has a token that the model does not have")
    return answer


class SavedAnswers:
    """The answers of saved sessions, by owner and label."""

    def __init__(self, database: Database, n_vocab: int) -> None:
        self._database = database
        self._n_vocab = n_vocab

    async def write(self, owner: int, label: str, saved: StoredSession | None) -> None:
        """Replaces the answers saved under a label. If `saved` is None, removes them."""
        self._database.changed((SAVED, owner, label, b""), lambda: saved)
        await self._database.flushed()

    def read(self, owner: int, label: str) -> StoredSession | None:
        """Returns the answers saved under a label. Returns None if nothing is saved under the label, or if the row
        cannot be read. The session is then loaded without answers. Blocks the calling thread.
        """
        try:
            body = self._database.row((SAVED, owner, label, b""))
            if body is None:
                return None
            saved = _saved.decode(body)
            for digest, answer in saved.answers.items():
                _checked(digest, answer, self._n_vocab)
        except (sqlite3.Error, msgspec.MsgspecError, ValueError) as error:
            log.warning("ignored the stored answers of a saved session", extra=fields(label=label, reason=str(error)))
            return None
        return saved

    def sweep(self, labels: Iterable[tuple[int, str]]) -> None:
        """Removes the answers saved under labels that no saved session has. A crash leaves such answers if it happens
        between the removal of a saved session and the removal of its answers. `labels` are the owners and labels of all
        saved sessions. Blocks the calling thread. Raises sqlite3.Error.
        """
        self._database.keep_only(SAVED, [(SAVED, owner, label, b"") for owner, label in labels])
