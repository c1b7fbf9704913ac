"""The slash commands of llmctl chat."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmd.ctl.chat_commands import COMMANDS, HELP
from tests.fake_daemon import CHAT, FakeDaemon, asked, echo, llmctl
from tests.person import Person


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    fake = FakeDaemon(tmp_path / "llmd.sock")
    fake.route(CHAT, echo)
    yield fake
    fake.stop()


@pytest.fixture
def person(daemon: FakeDaemon, tmp_path: Path) -> Iterator[Person]:
    someone = Person(daemon, tmp_path / "state", "--session", "desk")
    yield someone
    someone.end()


def chat(daemon: FakeDaemon, *lines: str, session: str = "a") -> str:
    """Returns what llmctl chat writes to standard error for these lines of input."""
    done = llmctl(daemon, "chat", "--session", session, lines="".join(f"{line}\n" for line in lines))
    assert done.returncode == 0, done.stderr
    return done.stderr


def contents(request: dict[str, Any]) -> list[str]:
    return [message["content"] for message in request["messages"]]


# --- lines that begin with a slash -----------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["/nonsense", "/", "/etc/passwd is what?", "/Help"])
def test_an_unknown_command_is_no_message(daemon: FakeDaemon, line: str) -> None:
    said = chat(daemon, line)
    assert said.startswith(f"llmctl: {line.split()[0]} is not a command")
    assert "/help lists all commands" in said and "type two slashes" in said
    assert asked(daemon) == []


def test_a_similar_command_is_suggested(daemon: FakeDaemon) -> None:
    assert "/expalin is not a command (did you mean /explain?)" in chat(daemon, "/expalin")


def test_two_slashes_send_one(daemon: FakeDaemon) -> None:
    chat(daemon, "//help me", "///", "//")
    assert [contents(request)[-1] for request in asked(daemon)] == ["/help me", "//", "/"]


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if not command.argument])
def test_an_argument_that_a_command_does_not_have(daemon: FakeDaemon, name: str) -> None:
    assert chat(daemon, f"{name} now") == f"llmctl: usage: {name}\n"
    assert daemon.asked == []


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if not command.takes("")])
def test_an_argument_that_is_missing(daemon: FakeDaemon, name: str) -> None:
    assert chat(daemon, name) == f"llmctl: usage: {name} {COMMANDS[name].argument}\n"
    assert daemon.asked == []


def test_the_help_lists_every_command(daemon: FakeDaemon) -> None:
    done = llmctl(daemon, "chat", lines="/help\n")
    assert done.stdout == f"{HELP}\n" and HELP in llmctl(daemon, "chat", "--help").stdout
    assert all(f"\n{name}" in f"\n{HELP}" for name in COMMANDS)
    assert max(map(len, HELP.splitlines())) <= 80


# --- /explain --------------------------------------------------------------------------------------------------------


TURN = {
    "at_ms": 1, "slot": 0, "reason": "exact_prefix", "reason_text": "The prompt extends the session.",
    "outcome": "end", "prompt_tokens": 15, "reused_tokens": 12, "prefilled_tokens": 3, "generated_tokens": 2,
}  # fmt: skip
COLD = TURN | {"reason": "new", "reason_text": "The session had no tokens.", "reused_tokens": 0}


def test_explain_says_why_the_last_answer_was_warm(daemon: FakeDaemon) -> None:
    daemon.route("GET /v1/sessions/a/explain", {"id": "a", "turns": [COLD, TURN]})
    said = llmctl(daemon, "chat", "--session", "a", lines="/explain\n").stdout.splitlines()
    assert said[0].startswith("turn 2, ") and said[0].endswith(": exact_prefix")
    assert said[1].strip() == "The prompt extends the session."
    assert said[2].strip() == "12 of 15 prompt tokens reused, 3 prefilled, 2 generated; end"
    assert len(said) == 3
    whole = llmctl(daemon, "sessions", "explain", "a").stdout
    assert "\n".join(said[1:]) in whole, "both have the same words"


def test_explain_without_a_turn(daemon: FakeDaemon) -> None:
    daemon.route("GET /v1/sessions/a/explain", {"id": "a", "turns": []})
    assert llmctl(daemon, "chat", "--session", "a", lines="/explain\n").stdout == "a: no turn since llmd started\n"


def test_explain_as_json(daemon: FakeDaemon) -> None:
    daemon.route("GET /v1/sessions/a/explain", {"id": "a", "turns": [COLD, TURN]})
    done = llmctl(daemon, "chat", "--session", "a", "--json", lines="/explain\n")
    assert json.loads(done.stdout)["turns"][-1] == TURN
