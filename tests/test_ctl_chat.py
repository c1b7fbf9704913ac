"""llmctl chat on pipes and on a real terminal: turns, cancellation, and slash commands."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmd.ctl.context import EXIT_USAGE
from tests.fake_daemon import CHAT, SESSION, USAGE, Exchange, FakeDaemon, asked, chunk, echo, llmctl
from tests.person import READ_DEADLINE_S, Person


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    fake = FakeDaemon(tmp_path / "llmd.sock")
    fake.route(CHAT, echo)
    yield fake
    fake.stop()


def test_each_line_is_a_turn_and_the_history_is_sent_whole(daemon: FakeDaemon) -> None:
    done = llmctl(daemon, "chat", "--session", "desk", "--system", "Be loud.", lines="one\ntwo\n")
    report = "[3 new tokens, 12 reused (exact_prefix), 2 generated]"
    assert (done.returncode, done.stdout, done.stderr) == (0, "ONE\nTWO\n", f"{report}\n{report}\n")
    first, second = asked(daemon)
    system = {"role": "system", "content": "Be loud."}
    one = {"role": "user", "content": "one"}
    assert first["messages"] == [system, one]
    assert second["messages"] == [
        system,
        one,
        {"role": "assistant", "content": "ONE"},
        {"role": "user", "content": "two"},
    ]
    assert {request["session_id"] for request in asked(daemon)} == {"desk"}


def test_parameters_are_sent_only_when_given(daemon: FakeDaemon) -> None:
    llmctl(daemon, "chat", "--session", "a", lines="x\n")
    llmctl(daemon, "chat", "--session", "a", "--max-tokens", "7", "--temperature", "0", lines="x\n")
    plain, limited = asked(daemon)
    assert "max_tokens" not in plain and "temperature" not in plain
    assert (limited["max_tokens"], limited["temperature"]) == (7, 0.0)


def test_a_chat_without_a_name_closes_its_session(daemon: FakeDaemon) -> None:
    llmctl(daemon, "chat", lines="x\n")
    name = asked(daemon)[0]["session_id"]
    assert re.fullmatch(r"chat-[0-9a-f]{8}", name)
    assert (daemon.asked[-1].method, daemon.asked[-1].path) == ("DELETE", f"/v1/sessions/{name}")


def test_a_named_session_is_left_warm(daemon: FakeDaemon) -> None:
    llmctl(daemon, "chat", "--session", "desk", lines="x\n")
    assert [request.method for request in daemon.asked] == ["GET", "POST"]


def test_json_is_one_object_per_turn(daemon: FakeDaemon) -> None:
    done = llmctl(daemon, "chat", "--session", "a", "--json", lines="one\ntwo\n")
    turns = [json.loads(line) for line in done.stdout.splitlines()]
    assert [turn["reply"] for turn in turns] == ["ONE", "TWO"]
    assert turns[0]["usage"] == USAGE and turns[0]["session"] == SESSION


def test_continued_lines_are_one_turn(daemon: FakeDaemon) -> None:
    llmctl(daemon, "chat", "--session", "a", lines="one\\\ntwo\n")
    assert asked(daemon)[0]["messages"][-1]["content"] == "one\ntwo"


def test_reset_forgets_on_both_sides(daemon: FakeDaemon) -> None:
    daemon.route("POST /v1/sessions/a/reset", {"id": "a"})
    done = llmctl(daemon, "chat", "--session", "a", "--system", "S", lines="one\n/reset\ntwo\n")
    assert "[session a reset]" in done.stderr
    assert [message["content"] for message in asked(daemon)[-1]["messages"]] == ["S", "two"]
    assert "/v1/sessions/a/reset" in [request.path for request in daemon.asked]


def test_a_reset_that_is_refused_forgets_nothing(daemon: FakeDaemon) -> None:
    daemon.route("POST /v1/sessions/a/reset", lambda exchange: exchange.refuse(503, "overloaded", "Too much."))
    done = llmctl(daemon, "chat", "--session", "a", lines="one\n/reset\n")
    assert done.returncode == 1 and "session a reset" not in done.stderr
    assert done.stderr.splitlines()[-1] == "llmctl: Too much. (overloaded)"
    llmctl(daemon, "chat", "--session", "a", lines="two\n")
    assert len(asked(daemon)[-1]["messages"]) == 3


def test_what_is_no_session_id_is_refused_at_once(daemon: FakeDaemon) -> None:
    done = llmctl(daemon, "chat", "--session", "a", lines="/session b c\none\n")
    assert "'b c' is not a valid session id" in done.stderr and "[session b c]" not in done.stderr
    assert [request["session_id"] for request in asked(daemon)] == ["a"]
    for name in ("b c", "", "é"):
        done = llmctl(daemon, "chat", "--session", name, lines="one\n")
        assert (done.returncode, done.stdout) == (EXIT_USAGE, "")
        assert "is not a valid session id" in done.stderr
    assert len(asked(daemon)) == 1


def test_each_session_keeps_its_own_history(daemon: FakeDaemon) -> None:
    llmctl(daemon, "chat", "--session", "a", lines="one\n/session b\ntwo\n/session a\nthree\n")
    assert [(request["session_id"], len(request["messages"])) for request in asked(daemon)] == [
        ("a", 1),
        ("b", 1),
        ("a", 3),
    ]


def test_quit_leaves_at_once(daemon: FakeDaemon) -> None:
    llmctl(daemon, "chat", "--session", "a", lines="/quit\none\n")
    assert daemon.asked == []


def test_control_characters_never_reach_the_terminal(daemon: FakeDaemon) -> None:
    done = llmctl(daemon, "chat", "--session", "a", lines="red \x1b[31m\x07 text\n")
    assert "\x1b" not in done.stdout and "\x07" not in done.stdout
    assert "RED \u241b[31M\u2407 TEXT" in done.stdout


def test_a_refusal_ends_a_piped_chat(daemon: FakeDaemon) -> None:
    daemon.route(CHAT, lambda exchange: exchange.refuse(429, "queue_full", "Too many.", {"retry-after": "2"}))
    done = llmctl(daemon, "chat", "--session", "a", lines="one\ntwo\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "llmctl: Too many. (queue_full); try again in 2 s\n"
    assert len(asked(daemon)) == 1


def test_an_error_inside_the_stream_is_a_refusal(daemon: FakeDaemon) -> None:
    def fail(exchange: Exchange) -> None:
        exchange.begin_stream()
        exchange.send(chunk("par"))
        exchange.send({"error": {"code": "step_failed", "message": "The model failed a step."}})
        exchange.end_stream()

    daemon.route(CHAT, fail)
    done = llmctl(daemon, "chat", "--session", "a", lines="one\n")
    assert (done.returncode, done.stdout) == (1, "par\n")
    assert "The model failed a step. (step_failed)" in done.stderr


def test_a_stream_without_its_end_is_a_broken_daemon(daemon: FakeDaemon) -> None:
    def stop(exchange: Exchange) -> None:
        exchange.begin_stream()
        exchange.send(chunk("par"))
        exchange.close_connection = True

    daemon.route(CHAT, stop)
    done = llmctl(daemon, "chat", "--session", "a", lines="one\n")
    assert done.returncode == 3
    assert "in the middle of an answer" in done.stderr and "llmctl logs" in done.stderr


def test_an_interrupt_stops_a_script_and_not_only_its_question(daemon: FakeDaemon, tmp_path: Path) -> None:
    def never_end(exchange: Exchange) -> None:
        exchange.begin_stream()
        exchange.send(chunk("partial"))
        exchange.client_left()
        exchange.close_connection = True

    daemon.route(CHAT, never_end)
    command = [sys.executable, "-m", "llmd.ctl", "--socket", daemon.path, "chat", "--session", "a"]
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdin and process.stdout
        process.stdin.write(b"one\ntwo\n")
        process.stdin.close()
        assert process.stdout.read(7) == b"partial"
        process.send_signal(signal.SIGINT)
        assert process.wait(READ_DEADLINE_S) == 130
    assert len(asked(daemon)) == 1


# --- on a terminal ---------------------------------------------------------------------------------------------------


@pytest.fixture
def person(daemon: FakeDaemon, tmp_path: Path) -> Iterator[Person]:
    someone = Person(daemon, tmp_path / "state", "--session", "desk")
    yield someone
    someone.end()


def test_a_person_talks_and_leaves(person: Person, tmp_path: Path) -> None:
    person.wait_for("> ")
    person.type("hello\n")
    person.wait_for("HELLO")
    person.wait_for("\x1b[2m[3 new tokens, 12 reused (exact_prefix), 2 generated]\x1b[0m")
    person.wait_for("> ")
    person.type("\x04")
    assert person.leave() == 0
    remembered = tmp_path / "state" / "llmd" / "chat_history"
    assert "hello" in remembered.read_text()
    assert remembered.stat().st_mode & 0o777 == 0o600


def test_what_is_typed_in_a_chat_without_a_name_is_not_kept(daemon: FakeDaemon, tmp_path: Path) -> None:
    remembered = tmp_path / "state" / "llmd" / "chat_history"
    remembered.parent.mkdir(parents=True)
    remembered.write_text("from an earlier chat\n")
    someone = Person(daemon, tmp_path / "state")
    someone.wait_for("> ")
    someone.type("hello\n")
    someone.wait_for("generated]")
    someone.wait_for("> ")
    someone.type("\x1b[A\x1b[A\n")  # two lines up
    someone.wait_for("FROM AN EARLIER CHAT")
    someone.wait_for("> ")
    someone.type("\x04")
    assert someone.leave() == 0
    assert remembered.read_text() == "from an earlier chat\n"


def test_whatever_is_typed_is_a_turn(daemon: FakeDaemon, person: Person) -> None:
    for typed in (b"bad \xff\xfe bytes", b"x" * 400):
        person.wait_for("> ")
        person.type_bytes(typed + b"\n")
        person.wait_for("generated]")
    person.wait_for("> ")
    bad, long = (request["messages"][-1]["content"] for request in asked(daemon))
    assert bad.startswith("bad ") and bad.endswith(" bytes") and bad.isprintable()
    assert long == "x" * 400


def test_ctrl_c_stops_the_answer_and_not_the_program(daemon: FakeDaemon, person: Person) -> None:
    left = threading.Event()

    def never_end(exchange: Exchange) -> None:
        exchange.begin_stream()
        exchange.send(chunk("partial"))
        if exchange.client_left():
            left.set()
        exchange.close_connection = True

    daemon.route(CHAT, never_end)
    person.wait_for("> ")
    person.type("hello\n")
    person.wait_for("partial")
    person.type("\x03")
    person.wait_for("[cancelled]")
    assert left.wait(READ_DEADLINE_S), "the connection must close, so that the daemon stops generating"
    daemon.route(CHAT, echo)
    person.wait_for("> ")
    person.type("again\n")
    person.wait_for("AGAIN")
    contents = [message["content"] for message in asked(daemon)[-1]["messages"]]
    assert contents == ["hello", "partial", "again"]


def test_ctrl_c_at_the_prompt_drops_the_line(daemon: FakeDaemon, person: Person) -> None:
    person.wait_for("> ")
    person.type("never sent")
    person.wait_for("never sent")
    person.wait_until_it_reads()
    person.type("\x03")
    person.wait_for("> ")
    person.type("sent\n")
    person.wait_for("SENT")
    assert [request["messages"][-1]["content"] for request in asked(daemon)] == ["sent"]


def test_errors_leave_a_person_in_the_chat(daemon: FakeDaemon, person: Person) -> None:
    daemon.route(CHAT, lambda exchange: exchange.refuse(429, "queue_full", "Too many."))
    person.wait_for("> ")
    person.type("one\n")
    person.wait_for("Too many.")
    daemon.route(CHAT, echo)
    person.wait_for("> ")
    person.type("/nonsense\n")
    person.wait_for("/nonsense is not a command")
    person.type("/help\n")
    person.wait_for("Ctrl-C stops an answer")
    person.type("two\n")
    person.wait_for("TWO")
    assert [len(request["messages"]) for request in asked(daemon)] == [1, 1], "a refused turn is not history"


def test_a_full_context_has_advice(daemon: FakeDaemon, person: Person) -> None:
    daemon.route(CHAT, lambda exchange: exchange.refuse(400, "context_length_exceeded", "Please shorten the prompt."))
    person.wait_for("> ")
    person.type("one\n")
    person.wait_for("Please shorten the prompt. /reset starts a new conversation.")


def test_a_closed_window_closes_its_session(daemon: FakeDaemon, tmp_path: Path) -> None:
    someone = Person(daemon, tmp_path / "state")
    someone.wait_for("> ")
    someone.type("hello\n")
    someone.wait_for("generated]")
    someone.wait_for("> ")
    someone.wait_until_it_reads()
    someone.process.send_signal(signal.SIGHUP)
    assert someone.leave() == 128 + signal.SIGHUP
    assert (daemon.asked[-1].method, daemon.asked[-1].path) == (
        "DELETE",
        f"/v1/sessions/{asked(daemon)[0]['session_id']}",
    )


# --- whose session it is ---------------------------------------------------------------------------------------------


def test_the_session_of_another_client_is_told(daemon: FakeDaemon) -> None:
    daemon.route("GET /v1/sessions/ses_1", {"id": "ses_1", "tokens": 7856, "owner": 0, "state": "idle", "requests": 3})
    done = llmctl(daemon, "chat", "--session", "ses_1", lines="what did we do?\n")
    said = done.stderr.splitlines()[0]
    assert said.startswith("[session ses_1 has 7,856 tokens from another client.")
    assert "llmctl sessions fork ses_1 NEW" in said
    again = llmctl(daemon, "chat", "--session", "ses_1", lines="and now?\n")
    assert "another client" not in again.stderr, "from here on it has a conversation of its own"


def test_the_session_of_an_earlier_chat_is_none_of_another_client(daemon: FakeDaemon) -> None:
    session = {"id": "a", "tokens": 9, "owner": 0, "state": "idle", "requests": 1}
    daemon.route("GET /v1/sessions/a", session | {"client": "llmctl"})
    assert "holds 9 tokens" not in llmctl(daemon, "chat", "--session", "a", lines="x\n").stderr
    daemon.route("GET /v1/sessions/b", session | {"client": "opencode"})
    assert "session b has 9 tokens from opencode." in llmctl(daemon, "chat", "--session", "b", lines="x\n").stderr


@pytest.mark.parametrize("session", [{"tokens": "x"}, {"tokens": [7]}, {"tokens": 7, "client": 5}])
def test_a_session_of_another_form_stops_no_chat(daemon: FakeDaemon, session: dict[str, Any]) -> None:
    daemon.route("GET /v1/sessions/a", session)
    assert llmctl(daemon, "chat", "--session", "a", lines="x\n").stdout == "X\n"


def test_what_is_noted_of_an_answer_begins_on_a_line_of_its_own(daemon: FakeDaemon, person: Person) -> None:
    person.wait_for("> ")
    person.type("one\n")
    person.wait_for("generated]")
    llmctl(daemon, "chat", "--session", "desk", lines="other\n")  # another chat in the same session
    person.type("two\n")
    assert person.wait_for("[another chat uses session desk").endswith("TWO\r\n\x1b[2m")
    person.wait_for("> ")
    person.type("\x04")
    assert person.leave() == 0
