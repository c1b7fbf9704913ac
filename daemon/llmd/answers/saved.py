"""The answers of a saved session, beside its files: bytes as file.py's, one session a file, under a name made
of owner and label. A label without such a file works: its answers are then tokenized as the template has them.

The calls block; a disk that refuses costs the answers, with a line in the log, and nothing else.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ..process.logs import fields
from . import file as answers_file
from .memory import StoredSession

log = logging.getLogger("llmd.history")

_SUFFIX = ".answers"
_NAME_BYTES = 16


class SavedAnswers:
    """Those of one model's state directory."""

    def __init__(self, state_dir: Path, fingerprint: str, n_vocab: int) -> None:
        self._directory = answers_file.directory_of(state_dir, fingerprint) / "saved"
        self._fingerprint = fingerprint
        self._n_vocab = n_vocab

    def path_of(self, owner: int, label: str) -> Path:
        name = hashlib.blake2b(f"{owner} {label}".encode(), digest_size=_NAME_BYTES).hexdigest()
        return self._directory / f"{name}{_SUFFIX}"

    def write(self, owner: int, label: str, session: StoredSession | None) -> None:
        """What this label had is replaced, by nothing where the session has none."""
        path = self.path_of(owner, label)
        try:
            if session is None:
                path.unlink(missing_ok=True)
            else:
                stored = msgspec.structs.replace(session, owner=owner, name=label)
                answers_file.replace(path, answers_file.encode([stored], self._fingerprint))
        except OSError as error:
            log.warning("the answers of a saved session cannot be written", extra=_about(path, error.strerror))

    def read(self, owner: int, label: str) -> StoredSession | None:
        path = self.path_of(owner, label)
        try:
            found = answers_file.decode(answers_file.read(path), self._fingerprint, self._n_vocab)
            return next((one for one in found if (one.owner, one.name) == (owner, label)), None)
        except FileNotFoundError:
            return None
        except (OSError, answers_file.RefusedError) as error:
            log.warning("the answers of a saved session were refused", extra=_about(path, str(error)))
            return None

    def sweep(self, labels: Iterable[tuple[int, str]]) -> None:
        """Removes what belongs to no label: a crash may come between the two."""
        wanted = {self.path_of(owner, label) for owner, label in labels}
        for path in self._directory.glob(f"*{_SUFFIX}"):
            if path not in wanted:
                path.unlink(missing_ok=True)
        for path in self._directory.glob("*.partial"):
            path.unlink(missing_ok=True)


def _about(path: Path, why: str | None) -> dict[str, dict[str, object]]:
    return fields(path=path, reason=why)
