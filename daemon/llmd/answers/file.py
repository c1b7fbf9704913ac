"""The answers of named sessions on disk, from an orderly stop to the next start; and those of a saved session, as long
as it is saved (saved.py).

    magic     8 bytes
    version   u32, little-endian
    checksum  32 bytes, BLAKE2b of the body
    body      MessagePack: [fingerprint, [[owner, session, mode, [[digest, tokens, rest, since, facts], ...]], ...]]

The file lies beside the sessions of the same model, in the directory that libllm holds locked from the engine's opening
to its closing: only then is it touched. Nothing of the body is believed before its checksum is right, and what is not
wholly as it should be is set aside. What was read is removed: from then on the daemon alone knows the answers, and a
session that is closed leaves none of them on the disk. The calls block.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import stat
import struct
from pathlib import Path
from typing import Annotated

import msgspec

from ..core import limits, session_key
from ..process.logs import fields
from .memory import AnswerMemory, StoredSession

log = logging.getLogger("llmd.history")

FILE_NAME = "answers.msgpack"
_MAGIC = b"llmd-ans"
_VERSION = 2
_CHECKSUM_BYTES = 32
_HEAD = struct.Struct(f"<{len(_MAGIC)}sI{_CHECKSUM_BYTES}s")
_MODE = 0o600
_DIRECTORY_CHARS = 16
"""Of the fingerprint, as libllm names the directory of a model's sessions (engine.c)."""
_TOKEN_BYTES = 4


class _Body(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    fingerprint: str
    sessions: Annotated[list[StoredSession], msgspec.Meta(max_length=limits.ANSWER_SESSIONS_MAX)]


class RefusedError(Exception):
    """The file is not what this daemon wrote for this model; the message says why."""


def directory_of(state_dir: Path, fingerprint: str) -> Path:
    return state_dir / fingerprint[:_DIRECTORY_CHARS]


def path_of(state_dir: Path, fingerprint: str) -> Path:
    return directory_of(state_dir, fingerprint) / FILE_NAME


# --- bytes -----------------------------------------------------------------------------------------------------------


def encode(sessions: list[StoredSession], fingerprint: str) -> bytes:
    return sealed(_MAGIC, _VERSION, msgspec.msgpack.encode(_Body(fingerprint, sessions)))


def sealed(magic: bytes, version: int, body: bytes) -> bytes:
    """A file of this form. `magic`: 8 bytes."""
    return _HEAD.pack(magic, version, _checksum(body)) + body


def decode(data: bytes, fingerprint: str, n_vocab: int) -> list[StoredSession]:
    """Raises RefusedError."""
    try:
        found = msgspec.msgpack.decode(unsealed(data, _MAGIC, _VERSION), type=_Body)
    except msgspec.MsgspecError as error:
        raise RefusedError(str(error)) from None
    if found.fingerprint != fingerprint:
        raise RefusedError("it is of another model")
    for session in found.sessions:
        _check(session, n_vocab)
    return found.sessions


def unsealed(data: bytes, magic: bytes, version: int) -> memoryview:
    """The body. Raises RefusedError."""
    if len(data) < _HEAD.size:
        raise RefusedError("it is too short")
    found_magic, found_version, checksum = _HEAD.unpack_from(data)
    if found_magic != magic:
        raise RefusedError("it holds something else")
    if found_version != version:
        raise RefusedError(f"it is of version {found_version}, not {version}")
    body = memoryview(data)[_HEAD.size :]
    if _checksum(body) != checksum:
        raise RefusedError("its checksum is wrong")
    return body


def _checksum(body: bytes | memoryview) -> bytes:
    return hashlib.blake2b(body, digest_size=_CHECKSUM_BYTES).digest()


def _check(session: StoredSession, n_vocab: int) -> None:
    if not session_key.is_valid(session.name):
        raise RefusedError("a session's name is not one")
    for answer in session.answers:
        if len(answer.tokens) % _TOKEN_BYTES:
            raise RefusedError("an answer ends inside a token")
        tokens = memoryview(answer.tokens).cast("i")
        if tokens and not 0 <= min(tokens) <= max(tokens) < n_vocab:
            raise RefusedError("an answer has a token that the model does not have")


# --- files -----------------------------------------------------------------------------------------------------------


def write(path: Path, memory: AnswerMemory, fingerprint: str) -> None:
    """A disk that takes nothing costs the answers, with a line in the log, and nothing else."""
    sessions = memory.stored()
    try:
        if sessions:
            replace(path, encode(sessions, fingerprint))
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("the answers of sessions cannot be written", extra=_about(path, error.strerror))


def take(path: Path, memory: AnswerMemory, fingerprint: str, n_vocab: int) -> None:
    """Reads what the daemon before this one wrote, if there is any, and removes it."""
    try:
        data = read(path)
        for session in decode(data, fingerprint, n_vocab):
            memory.restore(session)
        path.unlink()
    except FileNotFoundError:
        pass
    except RefusedError as error:
        log.warning("the file of answers was refused and set aside", extra=_about(path, str(error)))
        set_aside(path)
    except OSError as error:
        log.warning("the answers of sessions cannot be read", extra=_about(path, error.strerror))


def read(path: Path, bytes_max: int = limits.ANSWER_FILE_BYTES_MAX) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise RefusedError("it is no regular file")
        if found.st_size > bytes_max:
            raise RefusedError(f"it has {found.st_size} bytes, the limit is {bytes_max}")
        return file.read(found.st_size)


def replace(path: Path, data: bytes) -> None:
    """Whole or not at all, whenever the machine stops."""
    partial = path.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def set_aside(path: Path) -> None:
    try:
        path.replace(path.with_suffix(".refused"))
    except OSError as error:
        log.warning("a refused file cannot be set aside", extra=_about(path, error.strerror))


def _about(path: Path, why: str | None) -> dict[str, dict[str, object]]:
    return fields(path=path, reason=why)
