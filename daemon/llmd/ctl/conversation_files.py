"""Reads and writes the files in which llmctl keeps the conversations of named sessions between its runs.

Each session has a file. Each saved session has a file, too, which is found by the label of the saved session. Only the
user can read the files. A conversation is the user's own text and must not be lost. In contrast, the daemon's state is
a cache and may be lost. So only reset and close delete a conversation. Before a file is overwritten with another
conversation, the old file is renamed. Its new name ends in .previous-N.json. A file is overwritten with another
conversation if another llmctl uses the same session. The same happens after a load, a fork or a reset by another
client. A new file is written under a temporary name, synced, and then renamed to its final name. If writing fails, the
old file stays, and DiskFailed is raised.
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
"""Maximum number of renamed files (.previous-N.json) of one session. If there are more, the oldest are deleted."""


class DiskFailed(Exception):
    """Raised if a file could not be read or written. The message is a sentence for the user."""


def directory() -> Path:
    """Returns the directory in which llmctl keeps conversations and typed lines."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(base) / "llmd"


# --- a session's conversation ----------------------------------------------------------------------------------------


def load(socket_path: str, session: str) -> list[Json]:
    """Returns the messages of a session, the oldest first, or an empty list if the session has no file. If the file is
    damaged, renames it and raises DiskFailed.
    """
    path = _path(socket_path, session)
    with _reporting("read"):
        try:
            return _read(path)
        except ValueError:
            with _locked():
                aside = _set_aside(path)
    raise DiskFailed(f"the stored conversation of session {session} is damaged and was moved to {aside}")


def save(socket_path: str, session: str, messages: list[Json], replaced: list[Json] | None = None) -> Path | None:
    """Writes all messages of the session's conversation to its file. `replaced` is the conversation that the user has
    replaced with these messages. The replaced conversation can be longer than `messages`, for example after /undo. If
    the file has a conversation that neither `replaced` nor `messages` continues, first renames the old file, and
    returns its new name.
    """
    with _reporting("store"), _locked():
        return _write(_path(socket_path, session), session, socket_path, messages, replaced)


def set_aside(socket_path: str, session: str) -> Path | None:
    with _reporting("move"), _locked():
        return _set_aside(_path(socket_path, session))


def forget(socket_path: str, session: str) -> None:
    path = _path(socket_path, session)
    with _reporting("remove"):
        if path.exists():  # _locked creates the directory, which fails if the home directory is read-only
            with _locked():
                path.unlink(missing_ok=True)


def rename(socket_path: str, session: str, new: str) -> Path | None:
    aside = copy(socket_path, session, new)
    forget(socket_path, session)
    return aside


def copy(socket_path: str, session: str, new: str, n_turns: int | None = None) -> Path | None:
    """Copies the first `n_turns` turns of a conversation, or all turns, to the session `new`. If `new` has another
    conversation, first renames the file of that conversation, and returns its new name.
    """
    return _copy(_path(socket_path, session), _path(socket_path, new), new, socket_path, n_turns)


def n_turns(messages: list[Json]) -> int:
    return sum(message["role"] == "user" for message in messages)


# --- conversations of saved sessions ---------------------------------------------------------------------------------


def save_as(socket_path: str, session: str, label: str) -> Path | None:
    return _copy(_path(socket_path, session), _path(socket_path, label, "label"), session, socket_path)


def load_as(socket_path: str, label: str, session: str) -> Path | None:
    """Copies the conversation of the saved session `label` to `session`. If the saved session has no conversation, only
    renames the file of `session`, because the conversation in that file does not belong to the loaded state. Returns
    the new name of a renamed file.
    """
    return _copy(_path(socket_path, label, "label"), _path(socket_path, session), session, socket_path)


# --- reading and writing files ---------------------------------------------------------------------------------------


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
    """Holds a lock during the `with` block. So only one llmctl at a time changes files. A change takes milliseconds.
    Reading needs no lock, because a new file is complete before it gets its final name.
    """
    folder = directory()
    (folder / "chats").mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(os.open(folder / "chats.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read(path: Path) -> list[Json]:
    """Returns the messages in a file, or an empty list if the file does not exist. Raises ValueError if the file does
    not have the form that llmctl writes.
    """
    try:
        found = json.loads(path.read_bytes())
        return [{"role": str(one["role"]), "content": str(one["content"])} for one in found["messages"]]
    except FileNotFoundError:
        return []
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _write(
    path: Path, session: str, socket_path: str, messages: list[Json], replaced: list[Json] | None = None
) -> Path | None:
    partial = path.with_name(f"{path.stem}.partial")  # only the holder of the lock writes this file
    content = json.dumps({"session": session, "socket": socket_path, "messages": messages})
    try:
        partial.unlink(missing_ok=True)
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        is_known = _begins(path, messages) or (replaced is not None and _begins(path, replaced))
        aside = None if is_known else _set_aside(path)
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
        except ValueError:  # treated as empty; `load` reports that the file is damaged
            messages = []
        messages = messages[: _end_of(messages, n_turns)]
        if not messages and not target.exists():
            return None
        with _locked():
            return _write(target, session, socket_path, messages) if messages else _set_aside(target)


def _end_of(messages: list[Json], n_turns: int | None) -> int:
    """Returns how many messages the first `n_turns` turns have. If `n_turns` is None, returns the number of all
    messages.
    """
    users = [index for index, message in enumerate(messages) if message["role"] == "user"]
    return len(messages) if n_turns is None or n_turns >= len(users) else users[n_turns] if n_turns else 0


def _begins(path: Path, messages: list[Json]) -> bool:
    """Returns whether `messages` begins with all messages in the file at `path`. System messages are not compared,
    because each chat can set another system message.
    """
    try:
        old, new = _without_system(_read(path)), _without_system(messages)
    except ValueError:
        return False
    return new[: len(old)] == old


def _without_system(messages: list[Json]) -> list[Json]:
    return [message for message in messages if message["role"] != "system"]


def _set_aside(path: Path) -> Path | None:
    """Renames the file to .previous-N.json with the next free N, and returns its new name. Then deletes each earlier
    .previous file whose messages are the beginning of this file's conversation. Also deletes the oldest .previous files
    until at most PREVIOUS_MAX are left.
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
