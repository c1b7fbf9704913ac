"""Conversations that llmctl keeps. They are the user's own text, which must not be lost with a cache, by a second chat,
or on a full disk.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmd.ctl import conversation_files
from tests.fake_daemon import CHAT, FakeDaemon, asked, echo, home, llmctl

SOCKET = "/run/llmd.sock"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    fake = FakeDaemon(tmp_path / "llmd.sock")
    fake.route(CHAT, echo)
    yield fake
    fake.stop()


def last_contents(daemon: FakeDaemon) -> list[str]:
    return [message["content"] for message in asked(daemon)[-1]["messages"]]


def files(folder: Path) -> list[str]:
    """Returns the messages of each kept file as one text, such as "one ONE two TWO"."""
    found = [json.loads(path.read_bytes())["messages"] for path in (folder / "llmd" / "chats").iterdir()]
    return sorted(" ".join(message["content"] for message in messages) for messages in found)


# --- a chat and its session ------------------------------------------------------------------------------------------


def test_a_named_conversation_goes_on(daemon: FakeDaemon) -> None:
    daemon.route("GET /v1/sessions/desk", {"id": "desk", "tokens": 20})
    llmctl(daemon, "chat", "--session", "desk", "--system", "S", lines="one\n")
    llmctl(daemon, "chat", "--session", "desk", lines="two\n")
    assert [message["content"] for message in asked(daemon)[-1]["messages"]] == ["S", "one", "ONE", "two"]
    llmctl(daemon, "chat", "--session", "desk", "--system", "T", lines="three\n")
    assert [message["content"] for message in asked(daemon)[-1]["messages"]][:2] == ["T", "one"]
    llmctl(daemon, "chat", "--session", "other", lines="two\n")
    assert len(asked(daemon)[-1]["messages"]) == 1


@pytest.mark.parametrize("verb", ["reset", "close"])
def test_a_verb_that_forgets_a_session_forgets_its_conversation(daemon: FakeDaemon, verb: str) -> None:
    daemon.route("POST /v1/sessions/desk/reset", {"id": "desk"})
    daemon.route("DELETE /v1/sessions/desk", {"id": "desk"})
    daemon.route("GET /v1/sessions/desk", {"id": "desk", "tokens": 20})
    llmctl(daemon, "chat", "--session", "desk", lines="one\n")
    assert llmctl(daemon, "sessions", verb, "desk").returncode == 0
    llmctl(daemon, "chat", "--session", "desk", lines="two\n")
    assert len(asked(daemon)[-1]["messages"]) == 1


def test_a_fork_and_a_renamed_session_take_their_conversation_along(daemon: FakeDaemon) -> None:
    for name in ("try", "new"):
        daemon.route(f"GET /v1/sessions/{name}", {"id": name, "tokens": 20})
    daemon.route("POST /v1/sessions/desk/fork", {"id": "try", "tokens": 20})
    daemon.route("POST /v1/sessions/desk/rename", {"id": "new"})
    llmctl(daemon, "chat", "--session", "desk", lines="one\n")
    llmctl(daemon, "sessions", "fork", "desk", "try")
    llmctl(daemon, "sessions", "rename", "desk", "new")
    for name in ("try", "new"):
        llmctl(daemon, "chat", "--session", name, lines="two\n")
        assert [message["content"] for message in asked(daemon)[-1]["messages"]] == ["one", "ONE", "two"]


def test_kept_conversations_are_readable_by_their_user_only(daemon: FakeDaemon) -> None:
    llmctl(daemon, "chat", "--session", "desk", lines="one\n")
    llmctl(daemon, "chat", lines="in a session without a name\n")
    (file,) = (Path(daemon.path).parent / "state" / "llmd" / "chats").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("state", ["unknown", "torn"])
def test_what_the_daemon_has_lost_is_told_again(daemon: FakeDaemon, state: str) -> None:
    """The daemon can lose a session by a restart with other options, an eviction or another model. The user's text must
    stay.
    """
    llmctl(daemon, "chat", "--session", "desk", lines="one\n")
    if state == "torn":
        daemon.route("GET /v1/sessions/desk", {"id": "desk", "state": state, "tokens": 0, "requests": 1})
    done = llmctl(daemon, "chat", "--session", "desk", lines="two\nthree\n")
    assert last_contents(daemon) == ["one", "ONE", "two", "TWO", "three"]
    said = "[llmd no longer holds session desk and prefills 1 turn again]"
    assert done.stderr.splitlines()[0] == said and done.stderr.count(said) == 1
    assert files(home(daemon)) == ["one ONE two TWO three THREE"]


def test_a_reset_from_elsewhere_sets_the_conversation_aside(daemon: FakeDaemon) -> None:
    llmctl(daemon, "chat", "--session", "desk", lines="one\n")
    daemon.route("GET /v1/sessions/desk", {"id": "desk", "state": "empty", "tokens": 0, "requests": 1})
    done = llmctl(daemon, "chat", "--session", "desk", lines="two\n")
    assert last_contents(daemon) == ["two"]
    assert files(home(daemon)) == ["one ONE", "two TWO"]
    assert "session desk was reset; its earlier conversation was moved to " in done.stderr
    aside = Path(done.stderr.splitlines()[0].rpartition(" ")[2].removesuffix("]"))
    assert json.loads(aside.read_bytes())["session"] == "desk"


@pytest.mark.parametrize("other", [{"owner": 7}, {"requests": 0}])
def test_an_empty_session_need_not_be_one_that_was_reset(daemon: FakeDaemon, other: dict[str, Any]) -> None:
    """The empty session is another user's, or its first request never started."""
    llmctl(daemon, "chat", "--session", "desk", lines="one\n")
    session = {"id": "desk", "owner": 0, "state": "empty", "tokens": 0, "requests": 1}
    daemon.route("GET /v1/sessions/desk", session | other)
    llmctl(daemon, "chat", "--session", "desk", lines="two\n")
    assert last_contents(daemon) == ["one", "ONE", "two"]


def test_a_conversation_travels_with_its_label(daemon: FakeDaemon) -> None:
    daemon.route("POST /v1/sessions/desk/save", {"id": "desk", "name": "L", "tokens": 20})
    daemon.route("POST /v1/sessions/d/load", {"id": "d", "tokens": 20})
    daemon.route("GET /v1/sessions/d", {"id": "d", "state": "idle", "tokens": 20})
    llmctl(daemon, "chat", "--session", "desk", lines="one\n")
    assert llmctl(daemon, "sessions", "save", "desk", "L").returncode == 0
    llmctl(daemon, "chat", "--session", "desk", lines="never saved\n")
    llmctl(daemon, "chat", "--session", "d", lines="replaced\n")
    done = llmctl(daemon, "sessions", "load", "L", "--as", "d")
    assert done.returncode == 0 and "llmctl: the earlier conversation was moved to " in done.stderr
    assert Path(done.stderr.split()[-1]).exists()
    llmctl(daemon, "chat", "--session", "d", lines="two\n")
    assert last_contents(daemon) == ["one", "ONE", "two"]
    assert "replaced REPLACED" in files(home(daemon))


def test_a_label_without_a_conversation(daemon: FakeDaemon) -> None:
    """The conversation from before the load does not belong to the loaded session."""
    daemon.route("POST /v1/sessions/d/load", {"id": "d", "tokens": 20})
    daemon.route("GET /v1/sessions/d", {"id": "d", "state": "idle", "tokens": 20})
    llmctl(daemon, "chat", "--session", "d", lines="one\n")
    llmctl(daemon, "sessions", "load", "L", "--as", "d")
    llmctl(daemon, "chat", "--session", "d", lines="two\n")
    assert last_contents(daemon) == ["two"]
    assert files(home(daemon)) == ["one ONE", "two TWO"]


@pytest.mark.parametrize(
    ("at", "begins"),
    [("turn:2", ["one", "ONE"]), ("last_user", ["one", "ONE", "two", "TWO"]), ("turn:1", []), ("9", [])],
)
def test_a_fork_takes_along_what_it_begins_with(daemon: FakeDaemon, at: str, begins: list[str]) -> None:
    daemon.route("POST /v1/sessions/desk/fork", {"id": "try", "tokens": 20})
    daemon.route("GET /v1/sessions/try", {"id": "try", "state": "idle", "tokens": 20})
    llmctl(daemon, "chat", "--session", "desk", lines="one\ntwo\nthree\n")
    assert llmctl(daemon, "sessions", "fork", "desk", "try", "--at", at).returncode == 0
    llmctl(daemon, "chat", "--session", "try", lines="new\n")
    assert last_contents(daemon) == [*begins, "new"]


def test_what_cannot_be_kept_is_said_once_and_ends_nothing(daemon: FakeDaemon) -> None:
    home(daemon).mkdir()
    (home(daemon) / "llmd").write_text("a file where a folder should be")
    done = llmctl(daemon, "chat", "--session", "desk", lines="one\ntwo\n")
    assert (done.returncode, done.stdout) == (0, "ONE\nTWO\n")
    assert done.stderr.count("[could not store the conversation: ") == 1
    daemon.route("POST /v1/sessions/desk/rename", {"id": "new"})
    done = llmctl(daemon, "sessions", "rename", "desk", "new")
    assert (done.returncode, done.stdout) == (0, "Session desk renamed to new.\n")


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def said(*words: str) -> list[dict[str, str]]:
    return [
        message
        for word in words
        for message in ({"role": "user", "content": word}, {"role": "assistant", "content": word.upper()})
    ]


def test_two_chats_in_one_session_destroy_nothing(folder: Path) -> None:
    a, b = [said("a1"), said("a1", "a2"), said("a1", "a2", "a3")], [said("b1"), said("b1", "b2")]
    assert conversation_files.save(SOCKET, "desk", a[0]) is None
    assert conversation_files.save(SOCKET, "desk", b[0]) is not None
    for messages in (a[1], b[1], a[2]):
        assert conversation_files.save(SOCKET, "desk", messages) is not None
    assert conversation_files.load(SOCKET, "desk") == a[2]
    assert "b1 B1 b2 B2" in files(folder)
    assert len(files(folder)) <= 3, "what has become a beginning of something else is not kept twice"


def test_a_conversation_that_goes_on_sets_nothing_aside(folder: Path) -> None:
    system = [{"role": "system", "content": "S"}]
    assert conversation_files.save(SOCKET, "desk", said("a1")) is None
    assert conversation_files.save(SOCKET, "desk", system + said("a1", "a2")) is None
    assert files(folder) == ["S a1 A1 a2 A2"]


def test_conversations_set_aside_are_bounded(folder: Path) -> None:
    for number in range(conversation_files.PREVIOUS_MAX + 5):
        conversation_files.save(SOCKET, "desk", said(f"n{number:02}"))
    assert len(files(folder)) == conversation_files.PREVIOUS_MAX + 1
    assert "n04 N04" in files(folder) and "n03 N03" not in files(folder)


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_full_disk_leaves_what_was_there(folder: Path, failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    conversation_files.save(SOCKET, "desk", said("a1"))
    with monkeypatch.context() as patched:
        patched.setattr(os, failing, full)
        with pytest.raises(conversation_files.DiskFailed, match="No space left on device"):
            conversation_files.save(SOCKET, "desk", said("a1", "a2"))
    assert conversation_files.load(SOCKET, "desk") == said("a1")
    assert files(folder) == ["a1 A1"]


def test_a_file_is_on_the_disk_before_it_has_its_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    sync, replace = os.fsync, os.replace

    def noted_sync(file: int) -> None:
        order.append("sync")
        sync(file)

    def noted_replace(source: Path, target: Path) -> None:
        order.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted_replace)
    conversation_files.save(SOCKET, "desk", said("a1"))
    assert order == ["sync", "rename", "sync"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"messages": [1]}', b"\xff", pytest.param(b"[" * 100_000, id="deep")]
)
def test_a_damaged_file_is_set_aside_and_said(folder: Path, content: bytes) -> None:
    conversation_files.save(SOCKET, "desk", said("a1"))
    (path,) = (folder / "llmd" / "chats").iterdir()
    path.write_bytes(content)
    with pytest.raises(conversation_files.DiskFailed, match="is damaged and was moved to"):
        conversation_files.load(SOCKET, "desk")
    (aside,) = (folder / "llmd" / "chats").iterdir()
    assert aside != path and aside.read_bytes() == content
    assert conversation_files.load(SOCKET, "desk") == []


def test_a_damaged_file_is_not_overwritten(folder: Path) -> None:
    conversation_files.save(SOCKET, "desk", said("a1"))
    (path,) = (folder / "llmd" / "chats").iterdir()
    path.write_bytes(b"half a fi")
    aside = conversation_files.save(SOCKET, "desk", said("b1"))
    assert aside is not None and aside.read_bytes() == b"half a fi"


def test_nothing_is_made_where_nothing_is_kept(folder: Path) -> None:
    conversation_files.forget(SOCKET, "desk")
    conversation_files.rename(SOCKET, "desk", "new")
    conversation_files.save_as(SOCKET, "desk", "L")
    conversation_files.load_as(SOCKET, "L", "desk")
    assert list(folder.iterdir()) == []
