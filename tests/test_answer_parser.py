"""The parser of answers, with the template of the embedded model, fed piece by piece."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmd.core.errors import ApiError
from llmd.engine.answer_parser import Diff
from tests.conftest import Serve
from tests.serving import Daemon

TEMPLATE = Path(__file__).parents[1] / "tools" / "demo_model" / "template.jinja"
TOOL = {"type": "function", "function": {"name": "look", "description": "", "parameters": {"type": "object"}}}
CALL = '<tool_call>\n{"name": "look", "arguments": {"at": "é"}}\n</tool_call>'


async def told(daemon: Daemon, pieces: list[str], **more: object) -> list[Diff]:
    request = json.dumps({"messages": [{"role": "user", "content": "x"}], "tools": [TOOL], **more}).encode()
    engine = daemon.state.engine
    prompt = await engine.render_chat(0, len(request), lambda: request)
    [parser] = await engine.parsers(0, prompt.syntax, 1)
    diffs = [diff for piece in pieces for diff in parser.feed(piece, False)]
    diffs += parser.feed("", True)
    with pytest.raises(ApiError):
        parser.feed("more", False)
    return diffs


@pytest.mark.parametrize("size", [1, 3, 1000])
async def test_text_and_a_call(serve: Serve, size: int) -> None:
    daemon = await serve(chat_template_file=TEMPLATE)
    answer = "So: <b>\n" + CALL
    diffs = await told(daemon, [answer[at : at + size] for at in range(0, len(answer), size)])
    assert "".join(diff.text for diff in diffs if diff.kind == "text") == "So: <b>"
    calls = [diff for diff in diffs if diff.kind == "call"]
    assert json.loads("".join(diff.text for diff in calls)) == {"at": "é"}
    assert (calls[0].name, calls[0].call) == ("look", 0) and len(calls[0].id) == 9 and calls[0].id.isalnum()
    assert not any(diff.name or diff.id for diff in calls[1:])


@pytest.mark.parametrize(("is_cut", "text"), [(True, ""), (False, CALL[:24])])
async def test_a_call_without_its_whole_name(serve: Serve, is_cut: bool, text: str) -> None:
    daemon = await serve(chat_template_file=TEMPLATE)
    request = json.dumps({"messages": [{"role": "user", "content": "x"}], "tools": [TOOL]}).encode()
    prompt = await daemon.state.engine.render_chat(0, len(request), lambda: request)
    [parser] = await daemon.state.engine.parsers(0, prompt.syntax, 1)
    assert "".join(diff.text for diff in parser.feed(CALL[:24], True, is_cut)) == text


async def test_without_tools_all_is_text(serve: Serve) -> None:
    daemon = await serve(chat_template_file=TEMPLATE)
    assert await told(daemon, [CALL], tool_choice={"mode": "none"}) == [Diff("text", CALL)]


async def test_what_is_looked_at_again_stays_little(serve: Serve) -> None:
    daemon = await serve(chat_template_file=TEMPLATE)
    request = json.dumps({"messages": [{"role": "user", "content": "x"}], "tools": [TOOL]}).encode()
    prompt = await daemon.state.engine.render_chat(0, len(request), lambda: request)
    [parser] = await daemon.state.engine.parsers(0, prompt.syntax, 1)
    numbers = json.dumps([[n, {"n": str(n)}] for n in range(2000)])
    call = '<tool_call>\n{"name": "look", "arguments": {"at": ' + numbers + "}}\n</tool_call>"
    diffs, again = [], []
    for at in range(0, len(call), 5):
        diffs += parser.feed(call[at : at + 5], False)
        again.append(parser.n_reread)
    diffs += parser.feed("", True)
    assert json.loads("".join(diff.text for diff in diffs)) == {"at": json.loads(numbers)}
    assert max(again[: len(again) // 8]) == max(again) <= 2048 < len(call)
