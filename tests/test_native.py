"""The interface to libllm: words, the session table, and names of shared memory."""

from __future__ import annotations

import asyncio
import os

import pytest

from llmd.engine import native, segment
from llmd.engine.native import SegmentError, SessionTable
from tests.serving import Daemon, chat


def test_words_are_words() -> None:
    tables = {
        "status": (native.STATUS_WORDS, native.STATUS_TEXTS),
        "reason": (native.REASON_WORDS, native.REASON_TEXTS),
        "outcome": native.vocabulary(native.lib.LLM_OUTCOMES, native.lib.LLM_OUTCOME_N),
        "state": native.vocabulary(native.lib.LLM_STATES, native.lib.LLM_STATE_N),
    }
    for words, texts in tables.values():
        assert len(set(words)) == len(words) == len(texts)
        assert all(word.isidentifier() for word in words) and all(text.endswith(".") for text in texts)


@pytest.mark.parametrize("enum", [native.Status, native.Outcome])
def test_numbers_and_words_agree(enum: type[native.Status] | type[native.Outcome]) -> None:
    words = native.STATUS_WORDS if enum is native.Status else native.OUTCOME_WORDS
    assert words[enum(0)] in ("ok", "end")
    for member in enum:
        assert member.name.split("_")[0].lower() in words[member] or member in (native.Status.SHUTDOWN,)


async def test_the_page_is_readable_by_name(daemon: Daemon) -> None:
    await daemon.chat("what it consumed", session_id="a")
    name = segment.name_in_use(daemon.config.socket)
    assert name is not None
    table = SessionTable.open(name)
    view = table.read()
    assert (
        view.pid == os.getpid()
        and view.n_entries == daemon.state.engine.info.n_entries
        and view.n_ctx == daemon.state.engine.info.n_ctx
    )
    [session] = table.sessions()
    assert (session.name, session.owner, session.n_requests) == ("a", 0, 1)
    tokens = table.tokens(session.entry)
    assert tokens is not None and len(tokens) == session.n_tokens
    prompt = (await daemon.ask("POST", "/apply-template", chat("what it consumed"))).json["prompt"]
    assert (await daemon.state.engine.detokenize(0, tokens.tobytes())).startswith(prompt)
    free = next(place for place in range(view.n_entries) if place != session.entry)
    assert table.session(free) is None and table.tokens(free) is None
    assert table.counters() == daemon.state.engine.session_table.counters() | {
        name: value for name, value in table.counters().items() if name == "heartbeat_total"
    }


async def test_many_tokens_are_read_whole(daemon: Daemon) -> None:
    await daemon.ask("POST", "/v1/completions", {"prompt": "x" * 4090, "session_id": "a", "max_tokens": 1})
    [session] = daemon.state.engine.session_table.sessions()
    tokens = daemon.state.engine.session_table.tokens(session.entry)
    assert tokens is not None and len(tokens) == session.n_tokens


def test_no_segment() -> None:
    with pytest.raises(SegmentError) as caught:
        SessionTable.open("/llmd-0000000000000000")
    assert caught.value.word == "not_found"


async def test_text_calls_run_beside_the_loop(daemon: Daemon) -> None:
    """A long call runs in a thread, so that the event loop can answer other requests."""
    long = asyncio.create_task(daemon.ask("POST", "/tokenize", {"content": "word " * 200_000}))
    assert (await daemon.ask("GET", "/health")).status == 200
    assert (await long).json["count"] >= 200_000
