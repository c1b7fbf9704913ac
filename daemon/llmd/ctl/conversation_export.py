"""Writes a conversation to a file, and reads it again. The file has the form that llmd's page exports and imports."""

from __future__ import annotations

import json
import os
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from llmd.ctl import text
from llmd.ctl.client import Json
from llmd.ctl.conversation_files import DiskFailed

FORMAT, VERSION = "llmd-conversations", 1
TITLE_CHARS_MAX = 60
FILE_BYTES_MAX = 64 << 20


def write(path: Path, session: str, messages: list[Json], settings: Json) -> None:
    """Writes the conversation of a session. Raises DiskFailed if this fails, or if the file exists and is not an
    earlier export of this session.
    """
    if os.path.lexists(path) and not _is_export(path, session):
        raise DiskFailed(f"{path} exists and is not an earlier copy of this conversation; choose another name")
    content = json.dumps(_exported(session, messages, settings), ensure_ascii=False, indent=1)
    try:
        _replace(path, content.encode("utf-8", "backslashreplace"))  # an escape of JSON, for half a surrogate pair
    except OSError as error:
        raise DiskFailed(f"could not write {path}: {error.strerror or error}") from error


def _replace(path: Path, content: bytes) -> None:
    descriptor, partial = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # only the user can read it
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(partial)
        raise


def read(path: Path) -> tuple[list[Json], Json]:
    """Returns the messages and the settings of the conversation in a file. Raises DiskFailed if the file has not
    exactly one conversation.
    """
    try:
        found = _content(path)
        if found.get("format") != FORMAT:
            raise DiskFailed(f"{path} has no conversation: /save and the export of llmd's page write such files")
        [conversation, *others] = found["conversations"]
        if others:
            raise DiskFailed(f"{path} has {len(others) + 1} conversations, but only one can be loaded")
        settings = dict(conversation.get("settings") or {})
        system = settings.pop("system", "")
        messages = [{"role": "system", "content": str(system)}] if system else []
        texts = [one for one in conversation["messages"] if (one.get("text") or "").strip()]
        return messages + [_imported(one) for one in texts], settings
    except OSError as error:
        raise DiskFailed(f"could not read {path}: {error.strerror or error}") from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise DiskFailed(f"{path} is damaged and cannot be loaded") from error


def _content(path: Path) -> Json:
    found = path.stat()
    if not stat.S_ISREG(found.st_mode) or found.st_size > FILE_BYTES_MAX:  # opening a pipe would wait for its writer
        raise DiskFailed(f"{path} is not a file, or is larger than {text.size(FILE_BYTES_MAX)}")
    return dict(json.loads(path.read_bytes()))


def _imported(message: Json) -> Json:
    if message["role"] not in ("user", "assistant"):
        raise ValueError
    return {"role": message["role"], "content": message["text"]}


def _is_export(path: Path, session: str) -> bool:
    try:
        found: Json = json.loads(path.read_bytes()) if path.is_file() else {}
        return found["format"] == FORMAT and [one["id"] for one in found["conversations"]] == [session]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return False


def _exported(session: str, messages: list[Json], settings: Json) -> Json:
    system = "\n".join(one["content"] for one in messages if one["role"] == "system")
    conversation = {
        "id": session,
        "title": _title(messages),
        "used_ms": int(1000 * time.time()),
        "settings": {"system": system, **settings},
        "messages": [_message(one) for one in messages if one["role"] != "system"],
    }
    return {"format": FORMAT, "version": VERSION, "conversations": [conversation]}


def _title(messages: list[Json]) -> str:
    question = next(str(one["content"]) for one in messages if one["role"] == "user")
    words = " ".join(question.split())
    return words if len(words) <= TITLE_CHARS_MAX else f"{words[: TITLE_CHARS_MAX - 1]}…"


def _message(message: Json) -> Json:
    is_answer = message["role"] == "assistant"
    return {"role": message["role"], "text": message["content"], **({"state": "done"} if is_answer else {})}
