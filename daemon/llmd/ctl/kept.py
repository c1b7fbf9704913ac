"""The messages of named chats, kept between runs of llmctl: one file per session, readable by its user only.

They last as long as the session they were said in: chat asks the daemon before it goes on with them. What cannot be
read or written is as if it were not kept.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

from llmd.ctl.client import Json


def directory() -> Path:
    """Where llmctl keeps what it knows from earlier runs."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(base) / "llmd"


def load(socket_path: str, session: str) -> list[Json]:
    """The messages of a session, oldest first; none when there are none."""
    try:
        found = json.loads(_path(socket_path, session).read_bytes())
        return [{"role": str(one["role"]), "content": str(one["content"])} for one in found["messages"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def save(socket_path: str, session: str, messages: list[Json]) -> None:
    path = _path(socket_path, session)
    partial = path.with_suffix(".partial")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial.unlink(missing_ok=True)
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump({"session": session, "socket": socket_path, "messages": messages}, file, ensure_ascii=False)
        os.replace(partial, path)


def forget(socket_path: str, session: str) -> None:
    with suppress(OSError):
        _path(socket_path, session).unlink()


def rename(socket_path: str, session: str, new: str) -> None:
    with suppress(OSError):
        os.replace(_path(socket_path, session), _path(socket_path, new))


def copy(socket_path: str, session: str, new: str) -> None:
    if messages := load(socket_path, session):
        save(socket_path, new, messages)


def _path(socket_path: str, session: str) -> Path:
    mark = hashlib.sha256(f"{os.path.abspath(socket_path)}\0{session}".encode()).hexdigest()[:32]
    return directory() / "chats" / f"{mark}.json"
