"""The SQLite database that keeps past answers with their tokens, and stored responses. The database file is in the
directory with the sessions of the same model.

The daemon writes rows while it serves requests, not only when it stops. So after a crash, too, the next daemon finds
the rows. The event loop only marks rows as changed, and never waits. A thread encodes and writes all rows that changed
since the last write. Deleted rows are overwritten on disk. If rows cannot be written, requests do not fail, and llmd
tries again later. Rows that still cannot be written when the daemon stops are lost. The log says when writing fails.
While the database is open, libllm holds a lock on the directory, so no other daemon opens the file.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import sqlite3
import stat
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import msgspec

from ..core import limits
from ..process.logs import fields

log = logging.getLogger("llmd.history")

FILE_NAME = "answers.sqlite3"
ANSWER, SAVED, RESPONSE = "answer", "saved", "response"
"""Kinds of rows: an answer of a session, all answers of a saved session, a stored response."""
_APPLICATION_ID = 0x6C6C6D64
_VERSION = 1
_CHECKSUM_BYTES = 16
_MODE = 0o600
_DIRECTORY_CHARS = 16
"""Number of characters in the name of the directory with a model's sessions. The name is the beginning of the model's
fingerprint (engine.c).
"""
# Without locking_mode=EXCLUSIVE, SQLite would need memory shared with other processes for its write-ahead log (WAL).
# With synchronous=NORMAL, a killed process loses no row, and a power failure loses only the last rows.
_SETTINGS = ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=NORMAL", "secure_delete=ON")
_TABLE = (
    "CREATE TABLE row (kind TEXT, owner INTEGER, name TEXT, part BLOB, body BLOB, UNIQUE (kind, owner, name, part))"
)
_PUT = "INSERT OR REPLACE INTO row VALUES (?, ?, ?, ?, ?)"
_DELETE = "DELETE FROM row WHERE kind = ? AND owner = ? AND name = ? AND part = ?"
_SELECT = "SELECT kind, owner, name, part, body FROM row WHERE kind = ? ORDER BY rowid"
_SELECT_KEYS = "SELECT kind, owner, name, part FROM row WHERE kind = ?"
_SELECT_ONE = "SELECT body FROM row WHERE kind = ? AND owner = ? AND name = ? AND part = ?"

_encode = msgspec.msgpack.encode

Key = tuple[str, int, str, bytes]
"""Key of a row: kind, owner, name (of a session, a saved session or a response) and part. A session has one row for
each of its answers; the part is the answer's digest. In rows of other kinds, the part is empty.
"""
Body = Callable[[], object | None]
"""Function that returns the current value of a row, or None if the row must be deleted. The returned object must not
change afterwards, because a thread encodes it later.
"""


class RefusedError(Exception):
    """The file is not a database that this llmd can use. It is another kind of file, is damaged, or has another
    version.
    """


def path_of(state_dir: Path, fingerprint: str) -> Path:
    return state_dir / fingerprint[:_DIRECTORY_CHARS] / FILE_NAME


class Database:
    """The database of one model. `changed`, `flushed` and `finish` are called on the event loop. All other methods
    block.
    """

    def __init__(self, path: Path, fingerprint: str) -> None:
        """Opens the database, and creates the file if the file does not exist."""
        self._path = path
        self._fingerprint = fingerprint.encode()
        self._waiting: dict[Key, Body] = {}
        self._writing: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        """Set after a failed write. Changed rows then wait for this timer. Otherwise each further change would try to
        write all waiting rows again.
        """
        self._is_refused = False
        """True if the last write failed. The failure is already in the log."""
        try:
            self._connection = _open_database(path)
        except (OSError, sqlite3.Error) as error:
            log.warning(
                "cannot open the database: answers are lost when llmd stops", extra=fields(path=path, reason=str(error))
            )
            self._connection = _connect(":memory:")

    # --- the event loop ----------------------------------------------------------------------------------------------

    def changed(self, key: Key, body: Body) -> None:
        """Marks a row as changed. A thread soon writes the value that `body` returns."""
        self._waiting[key] = body
        if self._retry is None:
            self._begin()

    async def flushed(self) -> None:
        """Tries at once to write all changed rows, even after a failed write. Waits until they are written, or until
        writing has failed.
        """
        self._begin()
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def finish(self) -> None:
        """Writes all changed rows and closes the database."""
        await self.flushed()
        if self._retry is not None:
            self._retry.cancel()
        await asyncio.to_thread(self.close)

    def _begin(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._waiting and (self._writing is None or self._writing.done()):
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, {}
            rows = [(key, body()) for key, body in waiting.items()]
            try:
                await asyncio.to_thread(self.write, rows)
            except sqlite3.Error as error:
                if not self._is_refused:
                    log.warning(
                        "cannot write answers to the database", extra=fields(path=self._path, reason=str(error))
                    )
                self._is_refused = True
                self._waiting = waiting | self._waiting
                self._retry = asyncio.get_running_loop().call_later(limits.DATABASE_RETRY_S, self._begin)
                return
            if self._is_refused:
                log.info("llmd can write answers to the database again", extra=fields(path=self._path))
            self._is_refused = False

    # --- threads -----------------------------------------------------------------------------------------------------

    def write(self, rows: Collection[tuple[Key, object | None]]) -> None:
        """Writes all rows or none. Raises sqlite3.Error."""
        with self._connection:
            self._connection.execute("BEGIN")
            self._connection.executemany(_DELETE, (key for key, body in rows if body is None))
            puts = ((*key, self._sealed(key, _encode(body))) for key, body in rows if body is not None)
            self._connection.executemany(_PUT, puts)
        if any(body is None or key[0] == SAVED for key, body in rows):
            # This checkpoint empties SQLite's write-ahead log. Without the checkpoint, the log would still contain the
            # deleted rows, and a power failure could lose the new rows of saved sessions.
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def rows(self, kind: str) -> Iterator[tuple[Key, bytes]]:
        """Yields the rows of this kind in the order in which the rows were written. Raises sqlite3.Error."""
        for *key, sealed in self._connection.execute(_SELECT, (kind,)):
            found: Key = (key[0], key[1], key[2], key[3])
            if (body := self._unsealed(found, sealed)) is not None:
                yield found, body

    def row(self, key: Key) -> bytes | None:
        """Returns the value of a row, or None if the row does not exist or is damaged. Raises sqlite3.Error."""
        found = self._connection.execute(_SELECT_ONE, key).fetchone()
        return self._unsealed(key, found[0]) if found is not None else None

    def keep_only(self, kind: str, keys: Collection[Key]) -> None:
        """Deletes all rows of this kind except those with these keys. Raises sqlite3.Error."""
        found: set[Key] = set(self._connection.execute(_SELECT_KEYS, (kind,)))
        self.write([(key, None) for key in found - set(keys)])

    def close(self) -> None:
        self._connection.close()

    def _sealed(self, key: Key, body: bytes) -> bytes:
        """Returns a checksum followed by the body. The checksum also covers the model's fingerprint and the key. So a
        body that was stored for one model and key is not accepted for another model or key.
        """
        sealed = repr((self._fingerprint, key)).encode() + body
        return hashlib.blake2b(sealed, digest_size=_CHECKSUM_BYTES).digest() + body

    def _unsealed(self, key: Key, sealed: bytes) -> bytes | None:
        body = sealed[_CHECKSUM_BYTES:] if isinstance(sealed, bytes) else b""
        if self._sealed(key, body) == sealed:
            return body
        log.warning("ignored a row of the database: its checksum is wrong", extra=fields(path=self._path, name=key[2]))
        return None


def _open_database(path: Path) -> sqlite3.Connection:
    """Opens the database. An unusable file is renamed, and a new file is created. Raises sqlite3.Error, OSError."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW, _MODE)
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        os.close(descriptor)
        if not is_file:
            raise RefusedError("it is not a regular file")
        return _connect(path)
    except (
        RefusedError,
        sqlite3.DatabaseError,
        UnicodeError,
    ) as error:  # sqlite3 raises UnicodeError if an error message quotes a damaged name
        if isinstance(error, sqlite3.OperationalError):
            raise
        log.warning("renamed the database of answers and began a new one", extra=fields(path=path, reason=str(error)))
    _set_aside(path)
    return _open_database(path)


def _connect(path: Path | str) -> sqlite3.Connection:
    """Opens and checks the file of a database. Raises RefusedError, sqlite3.Error."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.text_factory = lambda text: text.decode("utf-8", "replace")  # the checksum detects damaged text
    try:
        for setting in _SETTINGS:
            connection.execute(f"PRAGMA {setting}").fetchall()
        _check(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection) -> None:
    [(application,)], [(version,)], [(n_tables,)] = (
        connection.execute(question).fetchall()
        for question in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    )
    if n_tables == 0:
        with connection:
            connection.execute("BEGIN")
            connection.execute(_TABLE)
            connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={_VERSION}")
    elif application != _APPLICATION_ID:
        raise RefusedError("it is not a database of llmd")
    elif version != _VERSION:
        raise RefusedError(f"its version is {version}, and this llmd needs {_VERSION}")
    elif (wrong := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
        raise RefusedError(wrong)


def _set_aside(path: Path) -> None:
    path.replace(path.with_suffix(".refused"))
    for suffix in ("-wal", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
