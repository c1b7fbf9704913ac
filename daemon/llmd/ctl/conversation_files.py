"""Conversations of named sessions, kept from one run of llmctl to the next.

There is one file per session, and one per label of a saved session, readable by their user only. The conversations are
the user's own text, while the daemon's state is a cache that may be lost. Only reset and close delete a conversation.
Any other operation that would replace it by a different one (another llmctl in the same session, a load, a fork, a
reset from elsewhere) first renames its file to a name that ends in .previous-N.json. A new file is written next to the
old one, synced and renamed. A failure leaves the old file, and raises DiskFailed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from llmd.ctl.client import Json

PREVIOUS_MAX = 16
"""Most renamed conversations of one session; the oldest are deleted."""


class DiskFailed(Exception):
    """A file could not be read or written; the message is a sentence."""


def directory() -> Path:
    """Returns the directory of conversations and typed lines."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(base) / "llmd"


# --- a session's conversation ----------------------------------------------------------------------------------------


def load(socket_path: str, session: str) -> list[Json]:
    """Returns the messages of a session, the oldest first; an empty list if no file exists."""
    path = _path(socket_path, session)
    with _reporting("read"):
        try:
            return _read(path)
        except ValueError:
            with _locked():
                aside = _set_aside(path)
    raise DiskFailed(f"the stored conversation of session {session} is damaged and was moved to {aside}")


def save(socket_path: str, session: str, messages: list[Json]) -> Path | None:
    """Writes the messages. If the stored messages are another program's, which these do not continue, they are renamed,
    and their new name is returned.
    """
    with _reporting("store"), _locked():
        return _write(_path(socket_path, session), session, socket_path, messages)


def set_aside(socket_path: str, session: str) -> Path | None:
    with _reporting("move"), _locked():
        return _set_aside(_path(socket_path, session))


def forget(socket_path: str, session: str) -> None:
    path = _path(socket_path, session)
    with _reporting("remove"):
        if path.exists():  # otherwise no directory is made, since the home can be read-only
            with _locked():
                path.unlink(missing_ok=True)


def rename(socket_path: str, session: str, new: str) -> Path | None:
    aside = copy(socket_path, session, new)
    forget(socket_path, session)
    return aside


def copy(socket_path: str, session: str, new: str, n_turns: int | None = None) -> Path | None:
    """Copies the first turns, or all. Returns the new name of the earlier messages of `new`, if they were renamed."""
    return _copy(_path(socket_path, session), _path(socket_path, new), new, socket_path, n_turns)


def n_turns(messages: list[Json]) -> int:
    return sum(message["role"] == "user" for message in messages)


# --- conversations of saved sessions ---------------------------------------------------------------------------------


def save_as(socket_path: str, session: str, label: str) -> Path | None:
    return _copy(_path(socket_path, session), _path(socket_path, label, "label"), session, socket_path)


def load_as(socket_path: str, label: str, session: str) -> Path | None:
    """Copies the conversation of a label to a session. Without one, the session's own is removed: it belongs to another
    state.
    """
    return _copy(_path(socket_path, label, "label"), _path(socket_path, session), session, socket_path)


# --- files -----------------------------------------------------------------------------------------------------------


def _path(socket_path: str, name: str, kind: str = "") -> Path:
    words = "\0".join([os.path.abspath(socket_path), name, *([kind] if kind else [])])
    mark = hashlib.sha256(words.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return directory() / "chats" / f"{mark}.json"


@contextlib.contextmanager
def _reporting(action: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = error.filename or directory()
        raise DiskFailed(f"could not {action} the conversation: {error.strerror or error} ({where})") from error


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Holds the lock that lets one llmctl at a time change files, for milliseconds. Reading needs no lock, because
    files are renamed.
    """
    folder = directory()
    (folder / "chats").mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(os.open(folder / "chats.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read(path: Path) -> list[Json]:
    """Returns the messages of a file, or none if it does not exist. Raises ValueError if the file is not one of
    llmctl's.
    """
    try:
        found = json.loads(path.read_bytes())
        return [{"role": str(one["role"]), "content": str(one["content"])} for one in found["messages"]]
    except FileNotFoundError:
        return []
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _write(path: Path, session: str, socket_path: str, messages: list[Json]) -> Path | None:
    partial = path.with_name(f"{path.stem}.partial")  # no other llmctl uses the name: the lock is held
    content = json.dumps({"session": session, "socket": socket_path, "messages": messages})
    try:
        partial.unlink(missing_ok=True)
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside = None if _begins(path, messages) else _set_aside(path)
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    _sync(path.parent)
    return aside


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _copy(source: Path, target: Path, session: str, socket_path: str, n_turns: int | None = None) -> Path | None:
    with _reporting("copy"):
        try:
            messages = _read(source)
        except ValueError:  # `load` reports it
            messages = []
        messages = messages[: _end_of(messages, n_turns)]
        if not messages and not target.exists():
            return None
        with _locked():
            return _write(target, session, socket_path, messages) if messages else _set_aside(target)


def _end_of(messages: list[Json], n_turns: int | None) -> int:
    """Returns the index at which the turn after the first `n_turns` begins."""
    users = [index for index, message in enumerate(messages) if message["role"] == "user"]
    return len(messages) if n_turns is None or n_turns >= len(users) else users[n_turns] if n_turns else 0


def _begins(path: Path, messages: list[Json]) -> bool:
    """Returns whether these messages contain everything in the file. System messages are ignored, because each run of
    chat can bring its own.
    """
    try:
        old, new = _without_system(_read(path)), _without_system(messages)
    except ValueError:
        return False
    return new[: len(old)] == old


def _without_system(messages: list[Json]) -> list[Json]:
    return [message for message in messages if message["role"] != "system"]


def _set_aside(path: Path) -> Path | None:
    """Renames the file to the next number. Deletes earlier files that this one continues, and the oldest beyond the
    limit.
    """
    pattern = f"{path.stem}.previous-[0-9]*.json"
    numbered = {int(one.name.split("-")[-1].removesuffix(".json")): one for one in path.parent.glob(pattern)}
    aside = path.with_name(f"{path.stem}.previous-{max(numbered, default=0) + 1}.json")
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return None
    with contextlib.suppress(OSError, ValueError):
        messages = _read(aside)
        for one in numbered.values():
            if _begins(one, messages):
                one.unlink(missing_ok=True)
    for number in sorted(numbered)[: max(0, len(numbered) + 1 - PREVIOUS_MAX)]:
        numbered[number].unlink(missing_ok=True)
    return aside
