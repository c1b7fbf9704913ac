"""Tool loops of Zed and Open WebUI. Tests cannot start these programs, so the requests are written by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.calling import READ, calling
from tests.conftest import Serve
from tests.serving import Daemon, Json, parse_events
from tests.test_chat_tools import gathered

SYSTEM = "You are a careful assistant. " * 60
BESIDE = 32
"""Number of tokens that a turn may prefill in addition to the tool's result: the template's text around the result."""
Message = Callable[[Json], Json]


def zed(messages: list[Json]) -> Json:
    return {
        "model": "llmd", "messages": messages, "stream": True, "stream_options": {"include_usage": True},
        "max_completion_tokens": 4096, "temperature": 1.0, "stop": [], "parallel_tool_calls": True,
        "prompt_cache_key": "0d1f4c7e-thread", "tools": [READ], "tool_choice": "auto",
    }  # fmt: skip


def zed_echo(said: Json) -> Json:
    """Returns an answer as Zed sends it back: without reasoning, and with texts as parts."""
    parts = [{"type": "text", "text": said["content"]}] if said["content"] else None
    return {"role": "assistant", "content": parts, "tool_calls": said["tool_calls"]}


def zed_result(call: Json, text: str) -> Json:
    return {"role": "tool", "content": [{"type": "text", "text": text}], "tool_call_id": call["id"]}


def open_webui(messages: list[Json]) -> Json:
    return {
        "stream": True,
        "model": "llmd",
        "messages": messages,
        "tools": [READ],
        "stream_options": {"include_usage": True},
    }


def open_webui_echo(said: Json) -> Json:
    calls = [{"index": n, **call} for n, call in enumerate(said["tool_calls"])]
    thoughts = f"<think>{said['reasoning_content']}</think>\n" if said.get("reasoning_content") else ""
    return {"role": "assistant", "content": thoughts + (said["content"] or ""), "tool_calls": calls}


def open_webui_result(call: Json, text: str) -> Json:
    return {"role": "tool", "tool_call_id": call["id"], "content": text}


async def told(daemon: Daemon, body: Json, headers: dict[str, str]) -> tuple[Json, Json, Json]:
    """Sends a request, and returns the message, its usage, and the session's report."""
    answer = await daemon.ask("POST", "/v1/chat/completions", body, headers=headers)
    assert answer.status == 200, answer.body
    events = parse_events(answer.body)
    [usage] = [chunk["usage"] for chunk in events.chunks if chunk.get("usage")]
    return gathered(events)[0], usage, events.session


@pytest.mark.parametrize(
    "asked, echoed, resulted, headers, session",
    [
        (zed, zed_echo, zed_result, {}, "0d1f4c7e-thread"),
        (open_webui, open_webui_echo, open_webui_result, {"X-Session-Id": "chat-1"}, "chat-1"),
        (open_webui, open_webui_echo, open_webui_result, {}, None),
    ],
    ids=["zed", "open webui", "open webui, no header"],
)
async def test_a_loop(
    serve: Serve,
    tmp_path: Path,
    asked: Any,
    echoed: Message,
    resulted: Any,
    headers: dict[str, str],
    session: str | None,
) -> None:
    daemon = await serve(**calling(tmp_path))
    messages: list[Json] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "one file"}]
    resident = 0
    for result in ("two files", "plain", None):
        said, usage, report = await told(daemon, asked(messages), headers)
        assert report["id"] == session
        if resident:
            assert report["session_reset_reason"] == "exact_prefix", report
            assert report["prefilled_prompt_tokens"] <= usage["prompt_tokens"] - resident + BESIDE
            assert usage["prompt_tokens_details"]["cached_tokens"] >= resident - 1
        resident = usage["total_tokens"]
        if result is None:
            assert said["content"] == "Just text."
            return
        calls = said["tool_calls"]
        texts = ["nothing"] * (len(calls) - 1) + [result]
        messages += [echoed(said), *(resulted(call, text) for call, text in zip(calls, texts, strict=True))]


async def test_what_open_webui_asks_beside_a_chat_takes_nothing_from_it(serve: Serve, tmp_path: Path) -> None:
    """Open WebUI asks for a title, tags and follow-up questions with the id of the chat."""
    daemon = await serve(**calling(tmp_path))
    headers = {"X-Session-Id": "chat-1"}
    messages: list[Json] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "plain"}]
    said, usage, _ = await told(daemon, open_webui(messages), headers)
    for task in ("a title", "tags", "three questions"):
        aside = [{"role": "user", "content": f"### Task:\nGenerate {task} for the chat.\n" + "guideline " * 40}]
        body: Json = {"model": "llmd", "messages": aside, "stream": False, "max_completion_tokens": 8}
        answer = await daemon.ask("POST", "/v1/chat/completions", body, headers=headers)
        assert answer.status == 200, answer.body
    messages += [{"role": "assistant", "content": said["content"]}, {"role": "user", "content": "ponder"}]
    _, then, report = await told(daemon, open_webui(messages), headers)
    assert report["session_reset_reason"] == "exact_prefix"
    assert report["reused_prompt_tokens"] >= usage["total_tokens"] - 1 and then["prompt_tokens"] > usage["total_tokens"]
