"""GET /v1/feed: what its events contain, who sees which sessions, slow clients, limits and the stop of the daemon."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from llmd.app import reload_keys, stop_serving
from llmd.core import limits
from llmd.core.errors import ApiError
from llmd.engine.engine import Engine
from llmd.http.endpoints.feed import FEED
from llmd.http.endpoints.feed_wire import FeedEvent
from tests.conftest import Serve
from tests.serving import SETTLE_S, Daemon, Json, chat

KEYS = "key-of-ada ada\nkey-of-linus linus\nkey-of-ops ops admin\n"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FEED_INTERVAL_S", 0.01)


@asynccontextmanager
async def feed(daemon: Daemon, key: str | None = None) -> AsyncIterator[AsyncIterator[Json]]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with aiohttp.ClientSession() as client, client.get(daemon.url + "/v1/feed", headers=headers) as response:
        assert response.status == 200 and response.content_type == "text/event-stream"

        async def events() -> AsyncIterator[Json]:
            async for line in response.content:
                if line.startswith(b"data: "):
                    data = line.removeprefix(b"data: ")
                    msgspec.json.decode(data, type=FeedEvent)  # raises an error if the event is not as described
                    yield json.loads(data)

        yield events()


async def until(events: AsyncIterator[Json], is_met: Any) -> Json:
    async with asyncio.timeout(SETTLE_S):
        async for event in events:
            if is_met(event):
                return event
    raise AssertionError("the feed has ended")


def ids(event: Json) -> set[str]:
    return {session["id"] for session in event["sessions"]}


async def test_the_first_event_has_all_sessions_and_later_events_the_changes(daemon: Daemon) -> None:
    await daemon.chat(session_id="a")
    await daemon.chat(session_id="b")
    async with feed(daemon) as events:
        first = await anext(events)
        assert first["full"] and ids(first) == {"a", "b"} and first["forgotten"] == []
        assert (first["places"]["named_used"], first["places"]["named"]) == (2, 8)
        memory, info = first["memory"], daemon.state.engine.info
        assert (memory["state_bytes_max"], memory["kv_tokens_max"]) == (info.state_bytes, info.n_cells)
        assert 0 < memory["state_bytes"] <= memory["state_bytes_max"]
        assert memory["kv_tokens"] == sum(session["tokens"] for session in first["sessions"])
        assert first["sessions"] == sorted(
            (await daemon.ask("GET", "/v1/sessions")).json["data"],
            key=lambda session: [one["id"] for one in first["sessions"]].index(session["id"]),
        )
        quiet = await anext(events)
        assert not quiet["full"] and quiet["sessions"] == []
        await daemon.chat(session_id="b")
        changed = await until(events, lambda event: event["sessions"] and event["sessions"][0]["state"] == "idle")
        assert ids(changed) == {"b"} and changed["sessions"][0]["requests"] == 2
        await until(events, lambda event: event["counters"]["requests_running"] == 0)
        await daemon.ask("DELETE", "/v1/sessions/a")
        gone = await until(events, lambda event: event["forgotten"])
        assert gone["forgotten"] == [{"owner": first["sessions"][0]["owner"], "id": "a"}]
        assert (await anext(events))["forgotten"] == []


async def test_requests_without_a_session_are_shown(daemon: Daemon) -> None:
    await daemon.chat()
    async with feed(daemon) as events:
        (id,) = ids(await anext(events))
        assert id.startswith("(scratch ")


async def test_a_prefill_shows_its_progress(serve: Serve) -> None:
    daemon = await serve(model="sim:dense,step_us=20000,batch=64")
    asked = asyncio.create_task(daemon.chat("word " * 400, session_id="long"))
    async with feed(daemon) as events:
        event = await until(events, lambda event: any(one["state"] == "prefill" for one in event["sessions"]))
        (session,) = event["sessions"]
        assert 0 <= session["tokens"] < session["last"]["prompt_tokens"]
    await asked


async def test_a_session_changes_with_what_is_recorded_after_its_turn(daemon: Daemon) -> None:
    """The session table no longer changes then."""
    for name in ("a", "b"):
        await daemon.chat("alpha " * 300, session_id=name)
    log = daemon.state.turns
    async with feed(daemon) as events:
        (before,) = (one for one in (await anext(events))["sessions"] if one["id"] == "b")
        assert before["last"]["reason_text"].startswith("Another session")
        assert (await anext(events))["sessions"] == []
        turns = log._of(before["owner"], "b").turns
        turns.append(dataclasses.replace(turns[-1], is_from_own=True))
        (changed,) = (await until(events, lambda event: event["sessions"]))["sessions"]
        assert changed["last"]["reason_text"].startswith("Another branch of this session")
        log.came_from(before["owner"], "b", 0, "other-client/1", "other words")
        (changed,) = (await until(events, lambda event: event["sessions"]))["sessions"]
        assert (changed["client"], changed["last_words"]) == ("other-client/1", "other words")


async def test_a_client_sees_only_its_own_sessions(serve: Serve, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(KEYS)
    keys.chmod(0o600)
    daemon = await serve(api_key_file=keys)
    for name in ("ada", "linus"):
        await daemon.ask(
            "POST", "/v1/chat/completions", chat(session_id=name), headers={"Authorization": f"Bearer key-of-{name}"}
        )
    async with feed(daemon, "key-of-ada") as ada, feed(daemon, "key-of-ops") as ops:
        assert ids(await anext(ada)) == {"ada"}
        first = await anext(ops)
        assert ids(first) == {"ada", "linus"}
        await daemon.ask("DELETE", "/v1/sessions/linus", headers={"Authorization": "Bearer key-of-linus"})
        gone = await until(ops, lambda event: event["forgotten"])
        assert [one["id"] for one in gone["forgotten"]] == ["linus"]
        version = daemon.app[FEED].version
        while daemon.app[FEED].version < version + 3:
            assert (await anext(ada))["forgotten"] == []
    assert (await daemon.ask("GET", "/v1/feed")).status == 401


async def test_a_removed_key_ends_its_feed_and_a_changed_one_narrows_it(serve: Serve, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(KEYS)
    keys.chmod(0o600)
    daemon = await serve(api_key_file=keys)
    ask = chat(session_id="ada")
    await daemon.ask("POST", "/v1/chat/completions", ask, headers={"Authorization": "Bearer key-of-ada"})
    async with feed(daemon, "key-of-linus") as linus, feed(daemon, "key-of-ops") as ops:
        assert ids(await anext(linus)) == set() and ids(await anext(ops)) == {"ada"}
        keys.write_text("key-of-ada ada\nkey-of-ops ops\n")
        reload_keys(daemon.state)
        assert ids(await until(ops, lambda event: event["full"])) == set()
        async with asyncio.timeout(SETTLE_S):
            assert [event["full"] async for event in linus if event["full"]] == []


async def test_a_feed_that_missed_too_much_gets_all_sessions(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FEED_FORGOTTEN_MAX", 1)
    daemon = await serve()
    for name in ("a", "b", "c"):
        await daemon.chat(session_id=name)
    async with feed(daemon) as events:
        assert ids(await anext(events)) == {"a", "b", "c"}
        for name in ("a", "b"):
            await daemon.ask("DELETE", f"/v1/sessions/{name}")
        known = {"a", "b", "c"}
        async with asyncio.timeout(SETTLE_S):
            while known != {"c"}:
                event = await anext(events)
                known = (set() if event["full"] else known) | ids(event)
                known -= {one["id"] for one in event["forgotten"]}


async def test_feeds_have_a_limit(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FEEDS_MAX", 1)
    daemon = await serve()
    async with feed(daemon) as events:
        await anext(events)
        answer = await daemon.ask("GET", "/v1/feed")
        assert answer.status == 503 and answer.error["code"] == "overloaded"
    async with asyncio.timeout(SETTLE_S):
        while daemon.app[FEED].admission.n_live:
            await daemon.chat()
    async with feed(daemon) as events:
        await anext(events)


async def test_a_client_that_does_not_read_is_dropped(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FEED_INTERVAL_S", 0.0)
    daemon = await serve(slow_reader_timeout=0.2)
    await daemon.chat(session_id="a")
    reader, writer = await asyncio.open_unix_connection(str(daemon.config.socket), limit=1024)
    writer.write(b"GET /v1/feed HTTP/1.1\r\nHost: x\r\n\r\n")
    assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    async with asyncio.timeout(SETTLE_S):
        while daemon.app[FEED].admission.n_live:
            await daemon.chat(session_id="a")
    writer.transport.abort()


async def test_a_stop_ends_the_feed(serve: Serve) -> None:
    daemon = await serve()
    async with feed(daemon) as events:
        await anext(events)
        await stop_serving(daemon.state)
        async with asyncio.timeout(SETTLE_S):
            assert [event["full"] async for event in events if event["full"]] == []


async def test_head_has_no_body(daemon: Daemon) -> None:
    answer = await daemon.ask("HEAD", "/v1/feed")
    assert answer.status == 200 and answer.body == b""


async def test_the_unix_socket_has_feeds_of_its_own(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FEEDS_MAX", 1)
    daemon = await serve()
    async with feed(daemon) as events:
        await anext(events)
        async with daemon.local.get("http://llmd/v1/feed") as response:
            assert response.status == 200 and await response.content.readline()


async def test_the_first_event_waits_until_the_sessions_are_read(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text threads refuse work two times because they are busy. An event without sessions would say that there are
    no sessions.
    """
    await daemon.chat(session_id="a")
    refusals, in_thread = [ApiError("overloaded"), ApiError("overloaded")], Engine.in_thread

    async def refusing(self: Engine, *arguments: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return await in_thread(self, *arguments)

    monkeypatch.setattr(Engine, "in_thread", refusing)
    async with feed(daemon) as events:
        first = await anext(events)
        assert first["full"] and ids(first) == {"a"} and refusals == []
