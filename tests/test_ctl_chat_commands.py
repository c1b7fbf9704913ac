"""The slash commands of llmctl chat."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmd.core.sampling_table import SAMPLING
from llmd.ctl.chat_commands import COMMANDS, HELP
from llmd.ctl.chat_settings import PARAMETERS
from llmd.dialects.openai.wire.request import ChatCompletionRequest
from tests.fake_daemon import CHAT, LAST, REPORT, Exchange, FakeDaemon, Route, asked, chunk, echo, home, llmctl
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


# --- /retry and /undo ------------------------------------------------------------------------------------------------


def answers(*texts: str) -> Route:
    """Answers each request with the next text."""
    left = list(texts)

    def answer(exchange: Exchange) -> None:
        exchange.begin_stream()
        exchange.send(chunk(left.pop(0)))
        exchange.send(LAST)
        exchange.send(REPORT)
        exchange.end_stream()

    return answer


def refuse(exchange: Exchange) -> None:
    exchange.refuse(429, "queue_full", "Too many.")


def previous(daemon: FakeDaemon) -> list[Path]:
    return list(home(daemon).rglob("*.previous-*.json"))


def test_retry_replaces_the_last_answer(daemon: FakeDaemon) -> None:
    daemon.route(CHAT, answers("A", "B", "C", "D", "E"))
    chat(daemon, "one", "two", "/retry", "three")
    assert [contents(request) for request in asked(daemon)[1:]] == [
        ["one", "A", "two"], ["one", "A", "two"], ["one", "A", "two", "C", "three"],
    ]  # fmt: skip
    chat(daemon, "four")
    assert contents(asked(daemon)[-1]) == ["one", "A", "two", "C", "three", "D", "four"]
    assert previous(daemon) == [], "the file has no conversation of another chat"


def test_retry_of_an_earlier_run(daemon: FakeDaemon) -> None:
    daemon.route(CHAT, answers("A", "B", "C"))
    chat(daemon, "one")
    chat(daemon, "/retry")
    chat(daemon, "two")
    assert contents(asked(daemon)[1]) == ["one"] and contents(asked(daemon)[2]) == ["one", "B", "two"]


def test_retry_asks_the_question_that_was_refused(daemon: FakeDaemon, person: Person) -> None:
    person.wait_for("> ")
    person.type("one\n")
    person.wait_for("ONE")
    daemon.route(CHAT, refuse)
    person.wait_for("> ")
    person.type("two\n")
    person.wait_for("Too many.")
    daemon.route(CHAT, echo)
    person.wait_for("> ")
    person.type("/retry\n")
    person.wait_for("TWO")
    person.wait_for("> ")
    person.type("/retry\n")
    person.wait_for("TWO")
    assert [contents(request) for request in asked(daemon)[1:]] == 3 * [["one", "ONE", "two"]]


def test_a_retry_without_text_keeps_the_earlier_answer(daemon: FakeDaemon) -> None:
    daemon.route(CHAT, answers("A", "", "C"))
    said = chat(daemon, "one", "/retry", "two")
    assert "[the earlier answer stays in the conversation]" in said
    assert contents(asked(daemon)[-1]) == ["one", "A", "two"]


def test_retry_of_a_question_without_an_answer(daemon: FakeDaemon) -> None:
    daemon.route(CHAT, answers("", "", "B", "C"))
    said = chat(daemon, "one", "/retry", "/retry", "two")
    assert "/retry asks it again, /undo removes it" in said and "earlier answer" not in said
    assert [contents(request) for request in asked(daemon)] == [["one"], ["one"], ["one"], ["one", "B", "two"]]


def test_undo_removes_the_last_question_and_its_answer(daemon: FakeDaemon) -> None:
    said = chat(daemon, "one", "two\\", "more", "/undo", "three")
    assert "[removed: two more]" in said
    assert contents(asked(daemon)[-1]) == ["one", "ONE", "three"]
    chat(daemon, "/undo", "/undo")
    chat(daemon, "four")
    assert contents(asked(daemon)[-1]) == ["four"]
    assert previous(daemon) == []


def test_undo_keeps_the_system_message(daemon: FakeDaemon) -> None:
    lines = "one\n/undo\ntwo\n"
    llmctl(daemon, "chat", "--session", "a", "--system", "S", lines=lines)
    assert contents(asked(daemon)[-1]) == ["S", "two"]


def test_undo_removes_a_question_that_was_refused(daemon: FakeDaemon, person: Person) -> None:
    person.wait_for("> ")
    person.type("one\n")
    person.wait_for("ONE")
    daemon.route(CHAT, refuse)
    person.wait_for("> ")
    person.type("two\n")
    person.wait_for("Too many.")
    person.wait_for("> ")
    person.type("/undo\n")
    person.wait_for("[removed: two]")
    daemon.route(CHAT, echo)
    person.wait_for("> ")
    person.type("/retry\n")
    person.wait_for("ONE")
    assert contents(asked(daemon)[-1]) == ["one"]


def test_a_refused_question_belongs_to_its_session(daemon: FakeDaemon, person: Person) -> None:
    daemon.route(CHAT, refuse)
    person.wait_for("> ")
    person.type("one\n")
    person.wait_for("Too many.")
    person.wait_for("> ")
    person.type("/session b\n")
    person.wait_for("[session b]")
    person.wait_for("> ")
    person.type("/retry\n")
    person.wait_for("there is no question to answer again")
    assert len(asked(daemon)) == 1


def test_an_empty_conversation_has_nothing_to_retry_or_undo(daemon: FakeDaemon) -> None:
    assert chat(daemon, "/retry", "/undo").splitlines() == [
        "llmctl: there is no question to answer again",
        "llmctl: there is no question to remove",
    ]
    assert asked(daemon) == []


def test_undo_keeps_the_conversation_of_another_chat(daemon: FakeDaemon, person: Person) -> None:
    person.wait_for("> ")
    person.type("one\n")
    person.wait_for("generated]")
    chat(daemon, "two", session="desk")
    person.type("/undo\n")
    person.wait_for("[another chat uses session desk")
    person.wait_for("[removed: one]")
    assert "TWO" in previous(daemon)[0].read_text()


# --- /system and /set ------------------------------------------------------------------------------------------------


def test_system_sets_the_system_prompt_of_the_conversation(daemon: FakeDaemon) -> None:
    said = chat(daemon, "/system", "/system Be loud.", "one", "/system Be\\", "quiet.", "two", '/system ""', "three")
    assert [contents(request)[:2] for request in asked(daemon)] == [
        ["Be loud.", "one"], ["Be\nquiet.", "one"], ["one", "ONE"],
    ]  # fmt: skip
    notes = [line for line in said.splitlines() if "system prompt" in line]
    again = "; the next answer prefills the conversation again]"
    assert notes == [
        "[this conversation has no system prompt]",
        "[system prompt set]",
        f"[system prompt set{again}",
        f"[system prompt removed{again}",
    ]
    assert previous(daemon) == []


def test_system_shows_the_system_prompt(daemon: FakeDaemon) -> None:
    chat(daemon, "/system Be loud.", "one")
    assert llmctl(daemon, "chat", "--session", "a", lines="/system\n").stdout == "Be loud.\n"


def test_a_reset_keeps_the_system_prompt(daemon: FakeDaemon) -> None:
    daemon.route("POST /v1/sessions/a/reset", {"id": "a"})
    chat(daemon, "/system Be loud.", "one", "/reset", "two")
    assert contents(asked(daemon)[-1]) == ["Be loud.", "two"]


def test_set_sets_parameters_for_the_rest_of_the_chat(daemon: FakeDaemon) -> None:
    said = chat(
        daemon, "/set temperature 0.5", "/set seed 7", "one", "/session b", "/set seed default", "/set top_p 1", "two"
    )
    first, second = asked(daemon)
    assert (first["temperature"], first["seed"]) == (0.5, 7)
    assert second["temperature"] == 0.5 and "seed" not in second
    for note in ("[temperature is 0.5]", "[top_p is 1]", "[seed is 7]", "[seed is not set, so its default applies]"):
        assert note in said


def test_set_changes_the_options_of_the_command_line(daemon: FakeDaemon) -> None:
    lines = "/set\n/set max_tokens 9\none\n"
    done = llmctl(daemon, "chat", "--session", "a", "--max-tokens", "5", lines=lines)
    assert done.stdout.startswith("max_tokens 5\nnot set: temperature, top_p, ")
    assert asked(daemon)[0]["max_tokens"] == 9


@pytest.mark.parametrize(
    ("setting", "error"),
    [
        ("temprature 1", "there is no parameter temprature (did you mean temperature?); /set lists all parameters"),
        ("session_id b", "there is no parameter session_id; /set lists all parameters"),
        ("samplers", "there is no parameter samplers; /set lists all parameters"),
        ("temperature hot", "temperature cannot be hot: it must be a number from 0 to 100, or default"),
        ("temperature nan", "temperature cannot be nan: it must be a number from 0 to 100, or default"),
        ("temperature -1", "temperature cannot be -1: it must be a number from 0 to 100, or default"),
        ("top_p 1.5", "top_p cannot be 1.5: it must be a number from 0 to 1, or default"),
        ("top_p 0.5 0.6", "top_p cannot be 0.5 0.6: it must be a number from 0 to 1, or default"),
        ("top_k 2.5", "top_k cannot be 2.5: it must be a whole number from -1 to 1,073,741,824, or default"),
        ("max_tokens 0", "max_tokens cannot be 0: it must be a whole number from 1 to 2,147,483,647, or default"),
    ],
)
def test_a_wrong_setting_changes_nothing(daemon: FakeDaemon, setting: str, error: str) -> None:
    name = setting.split()[0]
    before = {name: 1} if name in PARAMETERS else {}
    said = chat(daemon, *(f"/set {name} 1" for name in before), f"/set {setting}", "one")
    assert f"llmctl: {error}\n" in said
    assert {name: value for name, value in asked(daemon)[0].items() if name in (*PARAMETERS, "samplers")} == before


def test_set_describes_a_parameter(daemon: FakeDaemon) -> None:
    said = llmctl(daemon, "chat", "--session", "a", lines="/set top_p 0.5\n/set top_p\n/set top_k\n").stdout
    assert said.splitlines()[:2] == [
        "top_p is 0.5; possible: a number from 0 to 1",
        "Keep the most likely tokens that together reach this probability. 1: off.",
    ]
    assert "top_k is not set, so its default applies; possible: a whole number from -1 to" in said


def test_set_knows_the_parameters_of_the_api() -> None:
    assert set(PARAMETERS) <= set(ChatCompletionRequest.__struct_fields__)
    assert len(PARAMETERS) == len([row for row in SAMPLING if row.note]) + 1


# --- /fork -----------------------------------------------------------------------------------------------------------


def test_fork_continues_in_a_copy(daemon: FakeDaemon) -> None:
    daemon.route("POST /v1/sessions/a/fork", {"id": "b", "tokens": 14})
    assert "[session b, after 1 turn]" in chat(daemon, "one", "/fork b", "two", "/session a", "three")
    assert [one.body for one in daemon.asked if one.path.endswith("/fork")] == [{"session_id": "b"}]
    turns = [(request["session_id"], contents(request)) for request in asked(daemon) if "messages" in request]
    assert turns == [("a", ["one"]), ("b", ["one", "ONE", "two"]), ("a", ["one", "ONE", "three"])]
    chat(daemon, "four", session="b")
    assert contents(asked(daemon)[-1]) == ["one", "ONE", "two", "TWO", "four"]


def test_a_fork_without_messages_has_no_conversation_of_an_earlier_session(daemon: FakeDaemon) -> None:
    daemon.route("POST /v1/sessions/a/fork", {"id": "b", "tokens": 14})
    chat(daemon, "old", session="b")
    assert "[the earlier conversation of session b was moved to " in chat(daemon, "/fork b")
    chat(daemon, "new", session="b")
    assert contents(asked(daemon)[-1]) == ["new"]


def test_a_fork_of_a_chat_without_a_name_is_kept(daemon: FakeDaemon, tmp_path: Path) -> None:
    someone = Person(daemon, tmp_path / "state")
    name = someone.wait_for("; /help").rpartition("session ")[2]
    daemon.route(f"POST /v1/sessions/{name}/fork", {"id": "b", "tokens": 14})
    someone.wait_for("> ")
    someone.type("one\n")
    someone.wait_for("generated]")
    someone.wait_for("> ")
    someone.type("/fork b\n")
    someone.wait_for("[session b, after 1 turn]")
    someone.wait_for("> ")
    someone.type("\x04")
    assert someone.leave() == 0
    closed = [one.path for one in daemon.asked if one.method == "DELETE"]
    assert closed == [f"/v1/sessions/{name}"], "only the session without a name is closed"
    chat(daemon, "two", session="b")
    assert contents(asked(daemon)[-1]) == ["one", "ONE", "two"]


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (409, "session_exists", "a session b exists already: choose another name, or continue it with /session b"),
        (404, "session_not_found", "llmd does not hold the session a; send a message first"),
    ],
)
def test_a_refused_fork_changes_nothing(daemon: FakeDaemon, status: int, code: str, said: str) -> None:
    daemon.route("POST /v1/sessions/a/fork", lambda exchange: exchange.refuse(status, code, "No."))
    assert said in chat(daemon, "/fork b", "one")
    assert asked(daemon)[-1]["session_id"] == "a"


def test_a_fork_with_an_invalid_name(daemon: FakeDaemon) -> None:
    assert "'b c' is not a valid session id" in chat(daemon, "/fork b c")
    assert daemon.asked == []


def test_a_fork_keeps_the_stored_conversation_of_a_forgotten_session(daemon: FakeDaemon) -> None:
    daemon.route("POST /v1/sessions/a/fork", {"id": "b", "tokens": 14})
    chat(daemon, "old", session="b")
    assert "[the earlier conversation of session b was moved to " in chat(daemon, "one", "/fork b")
    assert "OLD" in previous(daemon)[0].read_text()
