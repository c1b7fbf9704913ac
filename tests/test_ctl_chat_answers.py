"""How llmctl chat shows reasoning and the progress of long prompts, and what stays of an answer that was cut."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fake_daemon import CHAT, REPORT, Exchange, FakeDaemon, asked, chunk, echo, llmctl
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


def thought(reasoning: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"reasoning_content": reasoning}, "finish_reason": None}]}


def thinking(*events: dict[str, Any], reason: str = "stop") -> Callable[[Exchange], None]:
    def answer(exchange: Exchange) -> None:
        exchange.begin_stream()
        for event in events:
            exchange.send(event)
        exchange.send({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        exchange.send(REPORT)
        exchange.end_stream()

    return answer


def test_reasoning_is_shown_beside_the_answer(daemon: FakeDaemon) -> None:
    daemon.route(CHAT, thinking(thought("Let me "), thought("see."), chunk("Four"), chunk(".")))
    done = llmctl(daemon, "chat", "--session", "a", lines="2+2\n")
    assert done.stdout == "Four.\n"
    assert done.stderr == "Let me see.\n[3 new tokens, 12 reused (exact_prefix), 2 generated]\n"
    llmctl(daemon, "chat", "--session", "a", lines="and 3+3\n")
    assert asked(daemon)[-1]["messages"][1] == {"role": "assistant", "content": "Four."}


def test_reasoning_can_be_hidden(daemon: FakeDaemon) -> None:
    daemon.route(CHAT, thinking(thought("Let me see."), chunk("Four.")))
    done = llmctl(daemon, "chat", "--session", "a", "--hide-thinking", lines="2+2\n")
    assert done.stdout == "Four.\n" and "Let me see" not in done.stderr


def test_a_question_whose_answer_was_cut_off_in_thought_is_kept(daemon: FakeDaemon) -> None:
    daemon.route(CHAT, thinking(thought("Let me see. Tw"), reason="length"))
    done = llmctl(daemon, "chat", "--session", "a", lines="2+2\n")
    note = "no answer: the length limit was reached during the reasoning. The question stays in the conversation"
    assert done.stdout == "" and note in done.stderr
    llmctl(daemon, "chat", "--session", "a", lines="well?\n")
    assert asked(daemon)[-1]["messages"] == [{"role": "user", "content": "2+2"}, {"role": "user", "content": "well?"}]


def test_a_question_whose_answer_never_began_is_kept(daemon: FakeDaemon) -> None:
    daemon.route(CHAT, thinking(reason="length"))
    done = llmctl(daemon, "chat", "--session", "a", lines="2+2\n")
    assert "no answer: the length limit was reached. The question stays in the conversation" in done.stderr
    llmctl(daemon, "chat", "--session", "a", lines="well?\n")
    assert len(asked(daemon)[-1]["messages"]) == 2


def test_a_question_whose_answer_the_model_ended_in_thought_is_kept(daemon: FakeDaemon) -> None:
    daemon.route(CHAT, thinking(thought("Let me see.")))
    done = llmctl(daemon, "chat", "--session", "a", lines="2+2\n")
    assert "no answer: the model ended the answer during the reasoning. The question stays" in done.stderr
    llmctl(daemon, "chat", "--session", "a", lines="well?\n")
    assert len(asked(daemon)[-1]["messages"]) == 2


def never_ending(*events: dict[str, Any]) -> Callable[[Exchange], None]:
    def answer(exchange: Exchange) -> None:
        exchange.begin_stream()
        for event in events:
            exchange.send(event)
        exchange.client_left()
        exchange.close_connection = True

    return answer


def test_ctrl_c_in_thought_keeps_the_question(daemon: FakeDaemon, person: Person) -> None:
    daemon.route(CHAT, never_ending(thought("Let me see.")))
    person.wait_for("> ")
    person.type("2+2\n")
    person.wait_for("Let me see.")
    person.type("\x03")
    person.wait_for("[cancelled during the reasoning. The question stays in the conversation")
    daemon.route(CHAT, echo)
    person.wait_for("> ")
    person.type("well?\n")
    person.wait_for("WELL?")
    assert [message["content"] for message in asked(daemon)[-1]["messages"]] == ["2+2", "well?"]


def test_ctrl_c_in_a_retry_keeps_the_earlier_answer(daemon: FakeDaemon, person: Person) -> None:
    person.wait_for("> ")
    person.type("one\n")
    person.wait_for("ONE")
    daemon.route(CHAT, never_ending(chunk("Tw")))
    person.wait_for("> ")
    person.type("/retry\n")
    person.wait_for("Tw")
    person.type("\x03")
    person.wait_for("the earlier answer stays in the conversation")
    daemon.route(CHAT, echo)
    person.wait_for("> ")
    person.type("two\n")
    person.wait_for("TWO")
    assert [message["content"] for message in asked(daemon)[-1]["messages"]] == ["one", "ONE", "two"]


def test_ctrl_c_before_the_answer_drops_the_question(daemon: FakeDaemon, person: Person) -> None:
    daemon.route(CHAT, never_ending(progress(512)))
    person.wait_for("> ")
    person.type("2+2\n")
    person.wait_for("512 of 4,010")
    person.type("\x03")
    person.wait_for("[cancelled before the answer began")
    daemon.route(CHAT, echo)
    person.wait_for("> ")
    person.type("well?\n")
    person.wait_for("WELL?")
    assert [message["content"] for message in asked(daemon)[-1]["messages"]] == ["well?"]


def test_no_color_dims_nothing(daemon: FakeDaemon, tmp_path: Path) -> None:
    daemon.route(CHAT, thinking(thought("Let me see."), chunk("Four.")))
    someone = Person(daemon, tmp_path / "state", "--session", "desk", no_color="1")
    someone.wait_for("> ")
    someone.type("2+2\n")
    assert "\x1b[2m" not in someone.wait_for("generated]")
    someone.end()


def test_json_has_the_reasoning(daemon: FakeDaemon) -> None:
    daemon.route(CHAT, thinking(thought("Let me see."), chunk("Four.")))
    [turn] = map(json.loads, llmctl(daemon, "chat", "--session", "a", "--json", lines="2+2\n").stdout.splitlines())
    assert (turn["reply"], turn["reasoning"]) == ("Four.", "Let me see.")


def progress(n_done: int) -> dict[str, Any]:
    return {"choices": [], "prompt_progress": {"total": 4010, "cache": 0, "processed": n_done, "time_ms": 1}}


def test_a_person_sees_how_far_a_long_prompt_is(daemon: FakeDaemon, person: Person) -> None:
    daemon.route(CHAT, thinking(progress(512), progress(3882), progress(4010), thought("Hm."), chunk("Yes.")))
    person.wait_for("> ")
    person.type("long\n")
    person.wait_for("\x1b[2m[512 of 4,010 prompt tokens processed]\x1b[0m")
    assert person.wait_for("\x1b[2m[3,882 of 4,010 prompt tokens processed]\x1b[0m") == "\r\x1b[K"
    assert person.wait_for("\x1b[2mHm.\x1b[0m") == "\r\x1b[K"
    assert person.wait_for("Yes.") == "\r\n"
    assert asked(daemon)[0]["return_progress"] is True
    person.wait_for("> ")
    person.type("\x04")
    assert person.leave() == 0


def loading(exchange: Exchange) -> None:
    exchange.begin_stream()
    exchange.send(": Loading the model: 43 %\n: keep-alive")
    exchange.send(chunk("Yes."))
    exchange.send({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    exchange.send(REPORT)
    exchange.end_stream()


def test_a_person_sees_how_much_of_the_model_is_loaded(daemon: FakeDaemon, person: Person) -> None:
    daemon.route(CHAT, loading)
    person.wait_for("> ")
    person.type("hello\n")
    person.wait_for("\x1b[2m[Loading the model: 43 %]\x1b[0m")
    assert person.wait_for("Yes.") == "\r\x1b[K"
    person.wait_for("> ")
    person.type("\x04")
    assert person.leave() == 0


def test_a_chat_waits_until_its_session_can_be_seen(daemon: FakeDaemon) -> None:
    answers = iter([True, True, False])

    def session(exchange: Exchange) -> None:
        if next(answers):
            exchange.refuse(503, "model_loading", "The model is still loading.")
        else:
            exchange.refuse(404, "session_not_found", "This session does not exist.")

    daemon.route("GET /v1/sessions/a", session)
    done = llmctl(daemon, "chat", "--session", "a", lines="x\n")
    assert (done.returncode, done.stdout) == (0, "X\n")
    assert done.stderr.splitlines()[0] == "[llmd still loads its model; the chat goes on when it is loaded]"
    assert [one.method for one in daemon.asked] == ["GET", "GET", "GET", "POST"]


def test_a_pipe_gets_no_progress(daemon: FakeDaemon) -> None:
    daemon.route(CHAT, thinking(progress(512), chunk("Yes.")))
    done = llmctl(daemon, "chat", "--session", "a", lines="long\n")
    assert done.stdout == "Yes.\n" and "prompt tokens processed" not in done.stderr
