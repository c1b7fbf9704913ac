"""The embedded model in the daemon: a session remembers its own messages and none of other sessions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from llmd.process.config_table import DEMO_MODEL
from tests.live.daemon import Daemons, Process
from tests.serving import Json

NAMES = ("Anna", "Peter", "Maria", "Tom")


@pytest.fixture
def demo(daemons: Daemons) -> Process:
    return daemons.start(str(DEMO_MODEL))


class Talk:
    def __init__(self, process: Process, name: str) -> None:
        self.process, self.name = process, name
        self.messages: list[Json] = []

    def say(self, text: str, **fields: object) -> str:
        self.messages.append({"role": "user", "content": text})
        answer = self.process.chat(
            self.messages, session_id=self.name, max_tokens=48, **{"ignore_eos": False, **fields}
        )
        message: Json = answer["choices"][0]["message"]
        self.messages.append(message)
        content = message["content"]
        assert isinstance(content, str)
        return content


def test_three_turns_recall_the_name(demo: Process) -> None:
    talk = Talk(demo, "a")
    talk.say("My name is Anna.")
    talk.say("Hello!")
    assert "Anna" in talk.say("What is my name?")


def test_interleaved_sessions_each_recall_their_own(demo: Process) -> None:
    talks = {name: Talk(demo, f"of-{name}") for name in NAMES}
    for name, talk in talks.items():
        talk.say(f"My name is {name}.")
    answers = {name: talk.say("What is my name?") for name, talk in talks.items()}
    for name, answer in answers.items():
        assert name in answer and not [other for other in NAMES if other != name and other in answer], answers


def test_after_a_reset_the_name_is_gone(demo: Process) -> None:
    talk = Talk(demo, "a")
    talk.say("My name is Anna.")
    demo.do("POST", "/v1/sessions/a/reset")
    assert demo.do("GET", "/v1/sessions/a")["tokens"] == 0
    talk.messages = []
    assert "Anna" not in talk.say("What is my name?")


def test_a_conversation_in_the_terminal_lasts_until_its_session_is_reset(demo: Process, tmp_path: Path) -> None:
    def llmctl(*arguments: str, lines: str = "") -> str:
        command = [sys.executable, "-m", "llmd.ctl", "--socket", str(demo.socket), *arguments]
        environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")}
        return subprocess.run(command, input=lines, env=environment, capture_output=True, text=True, check=True).stdout

    def chat(*lines: str) -> str:
        return llmctl("chat", "--session", "a", "--temperature", "0", lines="".join(f"{line}\n" for line in lines))

    chat("My name is Anna.")
    assert "Anna" in chat("What is my name?"), "another llmctl goes on where the first one stopped"
    llmctl("sessions", "reset", "a")
    assert "haven't told me" in chat("What is my name?")


def test_a_fork_knows_what_its_parent_knew(demo: Process) -> None:
    parent = Talk(demo, "a")
    parent.say("My name is Anna.")
    demo.do("POST", "/v1/sessions/a/fork", {"session_id": "b"})
    child = Talk(demo, "b")
    child.messages = [*parent.messages]
    assert "Anna" in child.say("What is my name?")


def test_warm_and_cold_say_the_same(demo: Process) -> None:
    warm, cold = Talk(demo, "warm"), Talk(demo, "cold")
    for text in ("My name is Peter.", "Hello!", "What is my name?"):
        assert warm.say(text) == cold.say(text, cache_prompt=False)
