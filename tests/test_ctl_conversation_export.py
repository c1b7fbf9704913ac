"""/save and /load in llmctl chat: files that llmd's page for browsers can import and export."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import llmd
from llmd.ctl import conversation_export
from tests.fake_daemon import CHAT, FakeDaemon, asked, echo
from tests.test_ctl_chat_commands import answers, chat, contents

PAGE = Path(llmd.__file__).parent / "page" / "conversations.js"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    fake = FakeDaemon(tmp_path / "llmd.sock")
    fake.route(CHAT, echo)
    yield fake
    fake.stop()


def test_save_writes_the_form_of_the_page(daemon: FakeDaemon, tmp_path: Path) -> None:
    file = tmp_path / "a conversation.json"
    begin_ms = int(1000 * time.time())
    said = chat(daemon, "/system Be loud.", "/set top_p 0.5", "one\\", "more", "two", f"/save {file}")
    assert said.splitlines()[-1] == f"[2 turns saved to {file}]"
    saved = json.loads(file.read_text())
    [conversation] = saved.pop("conversations")
    assert saved == {"format": "llmd-conversations", "version": 1}
    assert begin_ms <= conversation.pop("used_ms") <= 1000 * time.time()
    assert conversation == {
        "id": "a",
        "title": "one more",
        "settings": {"system": "Be loud.", "top_p": 0.5},
        "messages": [
            {"role": "user", "text": "one\nmore"},
            {"role": "assistant", "text": "ONE\nMORE", "state": "done"},
            {"role": "user", "text": "two"},
            {"role": "assistant", "text": "TWO", "state": "done"},
        ],
    }
    assert file.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []


def test_the_page_knows_the_form() -> None:
    """tests/page imports such a file in a browser."""
    source = PAGE.read_text()
    assert re.findall(r'FORMAT = "(.*)"', source) == [conversation_export.FORMAT]
    assert re.findall(r"TITLE_MAX = (\d+)", source) == [str(conversation_export.TITLE_CHARS_MAX)]
    assert f"version: {conversation_export.VERSION}" in source


def test_save_replaces_only_the_same_conversation(daemon: FakeDaemon, tmp_path: Path) -> None:
    file = tmp_path / "saved.json"
    chat(daemon, "one", f"/save {file}", "two", f"/save {file}")
    assert len(json.loads(file.read_text())["conversations"][0]["messages"]) == 4
    before = file.read_bytes()
    assert "exists and is not an earlier copy" in chat(daemon, "one", f"/save {file}", session="b")
    assert file.read_bytes() == before


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": "llmd-conversations", "conversations": [5]}'])
def test_save_replaces_no_other_file(daemon: FakeDaemon, tmp_path: Path, content: str) -> None:
    file = tmp_path / "notes.txt"
    file.write_text(content)
    assert "exists and is not an earlier copy" in chat(daemon, "one", f"/save {file}")
    assert file.read_text() == content


def test_save_opens_nothing_that_is_no_file(daemon: FakeDaemon, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "dangling"):
        assert "exists and is not an earlier copy" in chat(daemon, "one", f"/save {path}")


def test_a_file_that_cannot_be_written(daemon: FakeDaemon, tmp_path: Path) -> None:
    said = chat(daemon, "one", f"/save {tmp_path}/none/file", "two")
    assert f"llmctl: could not write {tmp_path}/none/file: No such file or directory\n" in said


def test_an_empty_conversation_is_not_saved(daemon: FakeDaemon, tmp_path: Path) -> None:
    assert "the conversation is empty" in chat(daemon, "/system S", f"/save {tmp_path}/file")
    assert not (tmp_path / "file").exists()


def test_any_text_can_be_saved(daemon: FakeDaemon, tmp_path: Path) -> None:
    daemon.route(CHAT, answers("\u732b \ud800 \x1b", ""))
    chat(daemon, "x" * 100, f"/save {tmp_path}/file")
    text = (tmp_path / "file").read_text()
    [conversation] = json.loads(text)["conversations"]
    assert conversation["messages"][1]["text"] == "\u732b \ud800 \x1b" and "\u732b" in text
    assert conversation["title"] == 59 * "x" + "…"


def test_the_home_directory_can_be_shortened(
    daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    chat(daemon, "one", "/save ~/file")
    assert (tmp_path / "file").exists()


# --- /load -----------------------------------------------------------------------------------------------------------


def exported(*messages: Any, **settings: Any) -> str:
    conversation = {"id": "x", "title": "", "settings": settings, "messages": messages}
    return json.dumps({"format": "llmd-conversations", "version": 1, "conversations": [conversation]})


def test_load_continues_what_save_has_written(daemon: FakeDaemon, tmp_path: Path) -> None:
    chat(daemon, "/system Be loud.", "/set top_p 0.5", "/set seed 7", "one", f"/save {tmp_path}/file")
    said = chat(daemon, "/set top_k 5", f"/load {tmp_path}/file", "two", session="b")
    assert f"[1 turn loaded from {tmp_path}/file]" in said
    request = asked(daemon)[-1]
    assert (request["session_id"], contents(request)) == ("b", ["Be loud.", "one", "ONE", "two"])
    assert (request["top_p"], request["seed"], request["top_k"]) == (0.5, 7, 5)
    chat(daemon, "three", session="b")
    assert contents(asked(daemon)[-1]) == ["Be loud.", "one", "ONE", "two", "TWO", "three"]


def test_load_continues_what_the_page_has_exported(daemon: FakeDaemon, tmp_path: Path) -> None:
    answer = {"role": "assistant", "text": "A", "reasoning": "Hm.", "state": "done", "calls": [], "facts": {}}
    call = {"role": "assistant", "text": "", "calls": [{"id": "c", "name": "f", "arguments": "{}"}], "state": "done"}
    settings = {"system": "", "temperature": 0, "top_p": 7, "max_tokens": None, "hides_reasoning": True}
    (tmp_path / "file").write_text(exported({"role": "user", "text": "one"}, answer, call, **settings))
    chat(daemon, f"/load {tmp_path}/file", "two")
    request = asked(daemon)[-1]
    assert contents(request) == ["one", "A", "two"]
    assert request["temperature"] == 0 and not {"top_p", "max_tokens", "hides_reasoning"} & request.keys()


def test_load_replaces_no_conversation(daemon: FakeDaemon, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(exported({"role": "user", "text": "other"}))
    assert "this conversation has 1 turn; begin another one with" in chat(
        daemon, "one", f"/load {tmp_path}/file", "two"
    )
    assert contents(asked(daemon)[-1]) == ["one", "ONE", "two"]


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("{", "is damaged and cannot be loaded"),
        ("[]", "has no conversation"),
        ('{"messages": []}', "has no conversation"),
        ('{"format": "llmd-conversations", "conversations": []}', "is damaged"),
        ('{"format": "llmd-conversations", "conversations": [5, 6]}', "has 2 conversations, but only one"),
        ('{"format": "llmd-conversations", "conversations": [5]}', "is damaged"),
        (exported({"role": "robot", "text": "x"}), "is damaged"),
        (exported({"role": "user", "text": 5}), "is damaged"),
        (exported(5), "is damaged"),
        ("[" * 100_000, "is damaged"),
    ],
)
def test_a_file_that_cannot_be_loaded(daemon: FakeDaemon, tmp_path: Path, content: str, error: str) -> None:
    (tmp_path / "file").write_text(content)
    said = chat(daemon, f"/load {tmp_path}/file", "one")
    assert said.startswith(f"llmctl: {tmp_path}/file {error}")
    assert contents(asked(daemon)[-1]) == ["one"]


def test_load_waits_for_no_pipe(daemon: FakeDaemon, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "is not a file, or is larger than 64 MiB" in chat(daemon, f"/load {tmp_path}/pipe")
    assert "could not read" in chat(daemon, f"/load {tmp_path}/none")
