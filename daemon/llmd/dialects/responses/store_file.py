"""The stored responses on disk, from an orderly stop to the next start: a file like that of the answers
(answers/file.py), and touched only while that one may be. The calls block.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from ...answers import file
from ...core import limits
from ...process.logs import fields
from .store import ResponseStore, StoredResponse

log = logging.getLogger("llmd.history")

_NAME = "responses.msgpack"
_MAGIC = b"llmd-rsp"
_VERSION = 1


def path_of(state_dir: Path, fingerprint: str) -> Path:
    return file.directory_of(state_dir, fingerprint) / _NAME


def write(path: Path, store: ResponseStore) -> None:
    """A disk that takes nothing costs the responses, with a line in the log, and nothing else."""
    rows = store.all()
    try:
        if rows:
            file.replace(path, file.sealed(_MAGIC, _VERSION, msgspec.msgpack.encode(rows)))
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("the stored responses cannot be written", extra=_about(path, error.strerror))


def take(path: Path, store: ResponseStore, n_owners: int) -> None:
    """Reads what the daemon before this one wrote, if there is any, and removes it."""
    try:
        for response in _decoded(file.read(path, limits.RESPONSE_FILE_BYTES_MAX)):
            store.keep(response, n_owners)
        path.unlink()
    except FileNotFoundError:
        pass
    except file.RefusedError as error:
        log.warning("the file of responses was refused and set aside", extra=_about(path, str(error)))
        file.set_aside(path)
    except OSError as error:
        log.warning("the stored responses cannot be read", extra=_about(path, error.strerror))


def _decoded(data: bytes) -> list[StoredResponse]:
    """Raises RefusedError."""
    try:
        found = msgspec.msgpack.decode(file.unsealed(data, _MAGIC, _VERSION), type=list[StoredResponse])
        for response in found:
            response.check()
    except msgspec.MsgspecError as error:
        raise file.RefusedError(str(error)) from None
    return found


def _about(path: Path, why: str | None) -> dict[str, dict[str, object]]:
    return fields(path=path, reason=why)
