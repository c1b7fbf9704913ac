"""Histories as clients send them: changes that are always made, and plain turns for templates that need them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from llmd.core.generation_request import PlainMessage, PlainToolCall
from llmd.pipeline import history
from llmd.pipeline.history import in_order, plain
from tests.conftest import Serve
from tests.serving import Daemon, Json


def system(text: str) -> PlainMessage:
    return PlainMessage("system", text)


def user(text: str, name: str | None = None) -> PlainMessage:
    return PlainMessage("user", text, name=name)


def answer(text: str, *ids: str | None, reasoning: str | None = None) -> PlainMessage:
    return PlainMessage("assistant", text, tuple(PlainToolCall("f", "{}", id) for id in ids), reasoning=reasoning)


def result(text: str, id: str | None) -> PlainMessage:
    return PlainMessage("tool", text, tool_call_id=id)


ORDERED = {
    "nothing to do": ([system("s"), user("a"), answer("b")], None),
    "empty answers": (
        [user("a"), answer(""), answer(" \n"), user("b"), answer("", "x"), answer("", reasoning="hm")],
        [user("a"), user("b"), answer("", "x"), answer("", reasoning="hm")],
    ),
    "several systems in front": ([system("s"), system("t"), user("a")], [system("s\n\nt"), user("a")]),
    "a system in the middle": ([system("s"), user("a"), system("t"), user("b")], None),
    "results in another order": (
        [answer("", "x", "y", "z"), result("3", "z"), result("1", "x"), result("2", "y"), user("a")],
        [answer("", "x", "y", "z"), result("1", "x"), result("2", "y"), result("3", "z"), user("a")],
    ),
    "some of the results": (
        [answer("", "x", "y", "z"), result("3", "z"), result("1", "x")],
        [answer("", "x", "y", "z"), result("1", "x"), result("3", "z")],
    ),
    "results that tell no call": ([answer("", "x", "y"), result("2", None), result("1", "x")], None),
    "calls without ids": ([answer("", None, None), result("2", "y"), result("1", "x")], None),
    "calls of one id": ([answer("", "x", "x"), result("2", "x"), result("1", "x")], None),
    "results without an answer": ([result("2", "y"), result("1", "x"), user("a")], None),
}


@pytest.mark.parametrize(("messages", "expected"), ORDERED.values(), ids=ORDERED)
def test_in_order(messages: list[PlainMessage], expected: list[PlainMessage] | None) -> None:
    found = in_order(messages)
    assert found == (messages if expected is None else expected)
    assert in_order(found) == found


def test_a_long_front_is_joined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """If messages were joined one by one, thousands of messages would be copied thousands of times."""
    joined: list[int] = []
    join = history._joined

    def counted(run: Sequence[PlainMessage]) -> PlainMessage:
        joined.append(len(run))
        return join(run)

    monkeypatch.setattr(history, "_joined", counted)
    found = in_order([*(system(str(n)) for n in range(1000)), user("a"), system("b")])
    assert joined == [1000]
    assert found == [system("\n\n".join(map(str, range(1000)))), user("a"), system("b")]


PLAIN = {
    "nothing to do": ([system("s"), user("a"), answer("b"), user("c")], None),
    "two of the user": ([user("a"), user("b"), answer("c")], [user("a\n\nb"), answer("c")]),
    "two users": ([user("a", "ann"), user("b", "bob")], None),
    "two answers": ([user("a"), answer("b"), answer("c", "x")], [user("a"), answer("b\n\nc", "x")]),
    "an answer behind calls": ([answer("", "x"), answer("b")], None),
    "a system in the middle": ([system("s"), user("a"), system("t"), user("b")], [system("s"), user("a\n\nt\n\nb")]),
    "a system behind an answer": (
        [user("a"), answer("b"), system("t"), user("c")],
        [user("a"), answer("b"), user("t\n\nc")],
    ),
    "a system at the end": ([user("a"), answer("b"), system("t")], [user("a"), answer("b"), user("t")]),
    "a result without a call": ([user("a"), result("1", "x")], [user("a\n\n1")]),
    "a result too many": (
        [answer("", "x"), result("1", "x"), result("2", "y"), user("a")],
        [answer("", "x"), result("1", "x"), user("2\n\na")],
    ),
}


@pytest.mark.parametrize(("messages", "expected"), PLAIN.values(), ids=PLAIN)
def test_plain_turns(messages: list[PlainMessage], expected: list[PlainMessage] | None) -> None:
    found, places = plain(messages)
    assert found == (messages if expected is None else expected)
    assert plain(found) == (found, list(range(len(found))))
    assert all(message.content in found[place].content for message, place in zip(messages, places, strict=True))


# --- templates that refuse --

TEMPLATES = Path(__file__).parent / "templates"
# No two histories make the same prompt, because a session could otherwise begin with a copy of another session.
ODD: dict[str, list[Json]] = {
    "two of the user": [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}],
    "an answer that was cut off": [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "Go on, two."},
    ],
    "a system in the middle": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "done"},
        {"role": "system", "content": "It is late now."},
        {"role": "user", "content": "two"},
    ],
    "several systems": [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": "one"},
    ],
    "a result without its call": [
        {"role": "user", "content": "one"},
        {"role": "tool", "tool_call_id": "gone", "content": "42 lines"},
        {"role": "user", "content": "two"},
    ],
    "parts and nulls": [
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "content": None},
        {"role": "user", "content": "three", "name": None, "tool_calls": None},
    ],
}
REFUSING = ["mistral_nemo", "qwen35", "gpt_oss", "hermes", "deepseek_v31"]


@pytest.mark.parametrize("family", REFUSING)
async def test_no_history_is_refused_for_good(serve: Serve, family: str) -> None:
    """Whatever histories the template refuses, every word reaches the model, and the next turn reuses the session's
    tokens.
    """
    daemon: Daemon = await serve(model="sim:hybrid", chat_template_file=TEMPLATES / f"{family}.jinja")
    for number, messages in enumerate(ODD.values()):
        body: Json = {
            "messages": messages,
            "session_id": f"s{number}",
            "max_tokens": 20,
            "ignore_eos": True,
            "enable_thinking": False,
        }
        shown = (await daemon.ask("POST", "/apply-template", body)).json["prompt"]
        texts = ["one", "two", "three", "late", "kind", "42 lines"]
        sent = str(messages)
        assert all(text in shown for text in texts if text in sent), shown
        said = await daemon.ask("POST", "/v1/chat/completions", body)
        assert said.status == 200, said.body
        echoed = {"role": "assistant", "content": said.json["choices"][0]["message"]["content"]}
        again = {**body, "messages": [*messages, echoed, {"role": "user", "content": "And then?"}]}
        report = (await daemon.ask("POST", "/v1/chat/completions", again)).json["session"]
        assert (report["history"], report["session_reset_reason"]) == ("resident", "exact_prefix")


async def test_a_system_text_that_a_template_moves_to_the_front_keeps_the_session_warm(serve: Serve) -> None:
    """Claude Code adds system messages in the middle of a conversation. If such a message moved to the front, it would
    change all tokens after it.
    """
    daemon: Daemon = await serve(model="sim:hybrid", chat_template_file=TEMPLATES / "deepseek_v31.jinja")
    messages: list[Json] = [{"role": "system", "content": "Be brief. " * 20}, {"role": "user", "content": "one"}]
    body: Json = {"session_id": "s", "max_tokens": 20, "ignore_eos": True, "enable_thinking": False}
    said = await daemon.chat(messages=messages, **body)
    messages.append({"role": "assistant", "content": said["choices"][0]["message"]["content"]})
    messages += [{"role": "system", "content": "It is late."}, {"role": "user", "content": "two"}]
    report = (await daemon.chat(messages=messages, **body))["session"]
    assert (report["history"], report["session_reset_reason"]) == ("resident", "exact_prefix")
    shown = (await daemon.ask("POST", "/apply-template", {"messages": messages, **body})).json["prompt"]
    assert "It is late.\n\ntwo" in shown
