"""Requests that only render a prompt change nothing: neither sessions nor their kept answers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.serving import Daemon, Json

OWNER = 0
PARENT = {"x-session-id": "child", "x-parent-session-id": "parent"}
SAID: list[Json] = [{"role": "user", "content": "hello"}]
LOOKS = {
    "/apply-template": lambda messages: {"messages": messages},
    "/v1/messages/count_tokens": lambda messages: {"model": "m", "messages": messages},
    "/v1/responses/input_tokens": lambda messages: {"model": "m", "input": messages},
}


def known(daemon: Daemon) -> list[Any]:
    """Returns the answers of all sessions, in order of use."""
    answers = daemon.state.answers
    return [(key, answers.find(*key)) for key in answers.keys()]


async def said(daemon: Daemon, session: str) -> list[Json]:
    """Returns the messages of a conversation in that session."""
    answer = await daemon.chat(messages=SAID, session_id=session)
    return [*SAID, {"role": "assistant", "content": answer["choices"][0]["message"]["content"]}]


@pytest.mark.parametrize("path", LOOKS)
async def test_a_look_makes_no_fork(daemon: Daemon, path: str) -> None:
    """Otherwise the fork would lack the answers that its parent gets before the fork is used."""
    messages = [*await said(daemon, "parent"), {"role": "user", "content": "go on"}]
    before = known(daemon)
    answer = await daemon.ask("POST", path, LOOKS[path](messages), headers=PARENT)
    assert answer.status == 200, answer.body
    assert known(daemon) == before
    more = await daemon.chat(messages=messages, session_id="parent")
    messages += [more["choices"][0]["message"], {"role": "user", "content": "and on"}]
    forked = await daemon.ask("POST", "/v1/chat/completions", {"messages": messages, "max_tokens": 8}, headers=PARENT)
    assert forked.json["session"]["history"] == "resident"


@pytest.mark.parametrize("path", LOOKS)
async def test_a_look_is_no_use_of_a_session(daemon: Daemon, path: str) -> None:
    messages = await said(daemon, "first")
    await said(daemon, "second")
    before = known(daemon)
    more = [*messages, {"role": "user", "content": "go on"}]
    answer = await daemon.ask("POST", path, LOOKS[path](more), headers={"x-session-id": "first"})
    assert answer.status == 200 and known(daemon) == before


@pytest.mark.parametrize("path", ["/apply-template", "/v1/responses/input_tokens"])
async def test_a_look_leaves_the_history_s_mode(daemon: Daemon, path: str) -> None:
    await said(daemon, "s")
    before = known(daemon)
    for session in ("s", "new"):
        body = {**LOOKS[path](SAID), "history": "template", "session_id": session}
        answer = await daemon.ask("POST", path, body)
        assert answer.status == 200, answer.body
    assert known(daemon) == before


async def test_a_fork_to_be_is_shown_with_what_its_parent_said(daemon: Daemon) -> None:
    """The session is shown with the prompt that a request would get."""
    answer = await daemon.ask("POST", "/v1/chat/completions", {"messages": SAID, "session_id": "parent"})
    said = answer.json["choices"][0]["message"]
    messages = [*SAID, said, {"role": "user", "content": "go on"}]
    shown = await daemon.ask("POST", "/v1/messages/count_tokens", {"messages": messages}, headers=PARENT)
    asked = {"messages": messages, "max_tokens": 8}
    forked = await daemon.ask("POST", "/v1/chat/completions", asked, headers=PARENT)
    assert forked.json["session"]["history"] == "resident"
    assert forked.json["usage"]["prompt_tokens"] == shown.json["input_tokens"]
