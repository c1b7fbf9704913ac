"""The daemon as a process with each generated model: clients, isolation, cancel, crash, restart, few slots.

Texts are compared if the same kernels run on the same batches. Otherwise, the tokens that each session has consumed are
compared. They are read from the shared segment.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import openai
import pytest

from tests.live.daemon import Daemons, Process
from tests.serving import Json

N_ANSWER = 12
SYSTEM = {"role": "system", "content": "Be brief. " * 12}


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def resident(process: Process, name: str) -> list[int]:
    """Returns the tokens of a session's longest timeline, from the shared segment."""
    table = process.session_table()
    found = [table.tokens(entry) for entry in table.entries_of(owner_of(process, name), name)]
    return max((list(tokens) for tokens in found if tokens is not None), key=len)


def owner_of(process: Process, name: str) -> int:
    return next(view.owner for view in process.session_table().sessions() if view.name == name)


def text_of(process: Process, name: str) -> str:
    shown = process.do("POST", "/detokenize", {"tokens": resident(process, name)})["content"]
    assert isinstance(shown, str)
    return shown


class Talk:
    """A conversation with its own canary, a text that no other session may contain."""

    def __init__(self, process: Process, name: str) -> None:
        self.process, self.name = process, name
        self.canary = f"canary-{name}"
        self.messages: list[Json] = [SYSTEM]

    def say(self, text: str, **fields: object) -> Json:
        self.messages.append(user(f"{self.canary} {text}"))
        answer = self.process.chat(self.messages, session_id=self.name, **fields)
        self.messages.append(answer["choices"][0]["message"])
        session: Json = answer["session"]
        return session

    def check(self, others: list[Talk]) -> None:
        held = text_of(self.process, self.name)
        assert self.canary in held
        assert not [other.name for other in others if other is not self and other.canary in held]


def test_streams_and_plain_answers(daemons: Daemons, tiny: str) -> None:
    process = daemons.start(tiny)
    messages = [SYSTEM, user("hello")]
    body: Json = {"messages": messages, "max_tokens": 12, "temperature": 0, "ignore_eos": True}
    plain = process.chat(messages, session_id="plain")
    events = process.events({**body, "session_id": "streamed", "cache_prompt": False})
    again = process.chat(messages, session_id="again", cache_prompt=False)
    assert events.done and events.finish_reasons == ["length"]
    assert events.text == again["choices"][0]["message"]["content"] and plain["usage"]["completion_tokens"] == 12
    with openai.OpenAI(base_url=process.url + "/v1", api_key="none", max_retries=0) as client:
        chunks = client.chat.completions.create(
            model="any",
            messages=[{"role": "user", "content": "hello"}],
            max_tokens=12,
            temperature=0,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert reasons[-1] == "length" and set(reasons[:-1]) == {None}


def test_interleaved_sessions_stay_apart_and_warm(daemons: Daemons, tiny: str) -> None:
    """There are more sessions than slots, so that each turn restores a parked session."""
    process = daemons.start(tiny, "--max-sessions", "2", "--session-timelines", "1", "--park-memory", "64K")
    talks = [Talk(process, f"talk-{number}") for number in range(4)]
    for turn in range(3):
        for talk in talks:
            session = talk.say(f"turn {turn}")
            assert turn == 0 or session["session_reset_reason"] == "restored", session
            assert turn == 0 or session["prefilled_prompt_tokens"] < 60, session
    for talk in talks:
        talk.check(talks)
    process.stop()


def test_cancel_in_mid_answer_then_go_on(daemons: Daemons, tiny: str) -> None:
    process = daemons.start(tiny)
    messages = [SYSTEM, user("tell me all")]
    body = {"messages": messages, "max_tokens": 1500, "temperature": 0, "ignore_eos": True, "session_id": "a"}
    with closing(process.stream(body)) as lines:
        seen = sum(b'"content":' in next(lines) for _ in range(12))
    assert seen > 0
    answer = process.chat([*messages, {"role": "assistant", "content": "that"}, user("stop")], session_id="a")
    assert answer["session"]["session_reset_reason"] in {"rewind", "checkpoint", "exact_prefix"}
    assert answer["session"]["reused_prompt_tokens"] > 20


@contextmanager
def killed_while_answering(process: Process) -> Iterator[None]:
    body = {"messages": [SYSTEM, user("more")], "max_tokens": 1500, "ignore_eos": True, "session_id": "busy"}
    with closing(process.stream(body)) as lines:
        for _ in range(6):
            next(lines)
        process.kill()
        yield


def test_killed_then_started_again(daemons: Daemons, hybrid: str) -> None:
    """The new daemon reads the tokens of the sessions from the dead daemon's segment. The next request prefills
    them.
    """
    process = daemons.start(hybrid)
    talk = Talk(process, "a")
    talk.say("first")
    held = resident(process, "a")
    with killed_while_answering(process):
        assert process.socket.exists() and process.segment.exists()
    talk.process = process = daemons.start(hybrid)
    assert {view.name for view in process.session_table().sessions()} >= {"a", "busy"}
    assert resident(process, "a") == held
    assert process.do("GET", "/v1/sessions/a")["id"] == "a"
    talk.say("second")
    talk.check([])
    assert resident(process, "a")[: len(held)] == held
    process.stop()
    assert not process.socket.exists() and not process.segment.exists()


def test_stopped_then_started_again(daemons: Daemons, tiny: str) -> None:
    process = daemons.start(tiny)
    talk = Talk(process, "a")
    talk.say("first")
    held = resident(process, "a")
    process.stop()
    talk.process = daemons.start(tiny)
    session = talk.say("second")
    assert session["session_reset_reason"] in {"restored", "checkpoint"}, session
    assert session["reused_prompt_tokens"] >= len(held) - N_ANSWER, "but for the answer, which is tokenized again"


def test_fork_knows_what_its_parent_knew(daemons: Daemons, tiny: str) -> None:
    process = daemons.start(tiny)
    parent = Talk(process, "a")
    parent.say("first")
    process.do("POST", "/v1/sessions/a/fork", {"session_id": "b"})
    held = resident(process, "a")
    assert resident(process, "b") == held
    child = Talk(process, "b")
    child.messages = [*parent.messages]
    session = child.say("second")
    assert session["reused_prompt_tokens"] == len(held)
    assert resident(process, "a") == held, "the parent does not notice"


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(256)):
            pass


def test_a_full_disk_costs_warmth_and_nothing_else(daemons: Daemons, hybrid: str, tmp_path: Path) -> None:
    state = tmp_path / "small"
    state.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(state)]
    if os.geteuid() != 0 or subprocess.run(mounting, capture_output=True).returncode != 0:
        pytest.skip("a small file system needs the right to mount one")
    try:
        process = daemons.start(
            hybrid, "--state-dir", str(state), "--max-sessions", "1", "--session-timelines", "1", "--park-memory", "1K"
        )
        talks = [Talk(process, f"talk-{number}") for number in range(3)]
        for turn in range(3):
            for talk in talks:
                talk.say(f"turn {turn}")
        for talk in talks:
            talk.check(talks)
        fill(state / "something else")
        for verb, body in (("save", {"name": "kept"}), ("pin", {"pinned": True}), ("rename", {"session_id": "other"})):
            status, answer = process.ask("POST", f"/v1/sessions/talk-0/{verb}", body)
            assert (status, answer["error"]["code"]) == (500, "io_error"), verb
        assert not process.do("GET", "/v1/sessions/talk-0")["pinned"], "what failed has changed nothing"
        process.stop()
    finally:
        daemons.close()
        subprocess.run(["umount", str(state)], check=True)
