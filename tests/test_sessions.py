"""/v1/sessions, capacity, the queue of a busy session, and the effect of reset and close on a running request."""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from urllib.parse import quote

import pytest

from llmd.core import limits
from llmd.engine import native
from tests.conftest import Serve
from tests.serving import SETTLE_S, Answer, Daemon, Json, chat, parse_events

CHAT = "/v1/chat/completions"
ENDLESS: Json = {"ignore_eos": True, "max_tokens": 100_000}
"""Parameters of a request that does not end by itself. The model SLOW takes a millisecond for each token."""
SLOW = "sim:dense,ctx=1000000,step_us=1000,length=0"


async def listed(daemon: Daemon, **kwargs: Any) -> list[str]:
    return [session["id"] for session in (await daemon.ask("GET", "/v1/sessions", **kwargs)).json["data"]]


async def running(daemon: Daemon, name: str) -> asyncio.Task[Answer]:
    """Starts a request that never ends by itself, and waits until it decodes."""
    asked = asyncio.create_task(daemon.ask("POST", "/v1/chat/completions", chat(session_id=name, **ENDLESS)))
    async with asyncio.timeout(SETTLE_S):
        while (await daemon.ask("GET", f"/v1/sessions/{name}")).json.get("state") != "decode":
            pass
    return asked


async def test_list_and_show(daemon: Daemon) -> None:
    await daemon.chat(session_id="first")
    await daemon.chat("to be shown", session_id="second")
    await daemon.chat("without a session")
    answer = (await daemon.ask("GET", "/v1/sessions")).json
    assert {session["id"] for session in answer["data"]} == {"first", "second"}
    assert answer["places"] == {
        "named": 8, "named_used": 2, "scratch": 4, "parked": 0, "parked_max": 64, "dormant": 0,
        "policy": "park",
    }  # fmt: skip
    shown = (await daemon.ask("GET", "/v1/sessions/second")).json
    assert shown["state"] == "idle" and shown["requests"] == 1 and shown["generated_tokens_total"] == 8
    assert shown["last"]["reason"] in ("new", "shared") and shown["last"]["prompt_tokens"] > 0
    assert shown["tokens"] in (shown["last"]["prompt_tokens"] + 7, shown["last"]["prompt_tokens"] + 8)


async def test_a_divergent_request_leaves_one_session(daemon: Daemon) -> None:
    """A request for a title with the id of a conversation can open another branch, but there is still one session."""
    await daemon.chat("a long question about something that matters", session_id="a")
    await daemon.chat("title?", session_id="a")
    assert await listed(daemon) == ["a"]
    assert (await daemon.ask("GET", "/v1/sessions/a")).status == 200
    assert (await daemon.ask("DELETE", "/v1/sessions/a")).status == 200
    assert list(daemon.state.engine.session_table.sessions()) == []


async def test_ids_with_odd_characters(daemon: Daemon) -> None:
    await daemon.chat(session_id="a/b?c#d%e")
    assert (await daemon.ask("GET", "/v1/sessions/a%2Fb%3Fc%23d%25e")).json["id"] == "a/b?c#d%e"


async def test_every_character_of_an_id_can_stand_in_a_path(daemon: Daemon) -> None:
    everything = "".join(map(chr, range(0x21, 0x7F)))
    for name in ("{x}", "{", "}", everything):
        await daemon.chat(session_id=name)
        path = f"/v1/sessions/{quote(name, safe='')}"
        assert (await daemon.ask("GET", path)).json["id"] == name
        assert (await daemon.ask("GET", f"{path}/explain")).json["id"] == name
        assert (await daemon.ask("POST", f"{path}/reset")).json["existed"] is True
        assert (await daemon.ask("DELETE", path)).json["deleted"] is True


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Records each copy of a session's record, which takes about 10 us, with the thread and the session."""
    found: list[tuple[str, str]] = []

    def watched(raw: Any, kind: Any, **otherwise: Any) -> Any:
        copy = copied(raw, kind, **otherwise)
        if kind is native.SessionView:
            found.append((threading.current_thread().name, copy.name))
        return copy

    copied = native.copied
    monkeypatch.setattr(native, "copied", watched)
    return found


async def test_one_session_is_shown_without_a_copy_of_the_others(serve: Serve, copies: list[tuple[str, str]]) -> None:
    daemon = await serve(max_sessions=2, max_parked=20)
    names = [f"s{number}" for number in range(12)]
    for name in names:
        await daemon.chat(session_id=name)
    copies.clear()
    await daemon.ask("GET", "/v1/sessions/s3")
    await daemon.ask("POST", "/v1/sessions/s3/park")
    assert {name for _, name in copies} == {"s3"}
    copies.clear()
    await daemon.chat()
    assert {name for _, name in copies} <= {""}
    copies.clear()
    assert sorted(await listed(daemon)) == sorted(names)
    assert (await daemon.ask("GET", "/slots")).status == 200
    assert copies and all(thread.startswith("llmd-text") for thread, _ in copies)


async def test_a_list_does_not_wait_behind_long_work(daemon: Daemon) -> None:
    may_end, engine = threading.Event(), daemon.state.engine
    long = limits.TEXT_SHORT_BYTES + 1
    busy = [asyncio.ensure_future(engine.in_thread(0, long, may_end.wait)) for _ in range(limits.TEXT_THREADS)]
    try:
        for path in ("/v1/sessions", "/slots"):
            assert (await daemon.ask("GET", path)).status == 200
    finally:
        may_end.set()
        await asyncio.gather(*busy)


async def test_a_refusal_for_want_of_entries_copies_no_session(serve: Serve, copies: list[tuple[str, str]]) -> None:
    daemon = await serve(max_sessions=3, capacity_policy="refuse")
    for number in range(3):
        await daemon.chat(session_id=f"s{number}")
    copies.clear()
    assert (await daemon.refused(chat(session_id="more"))).error["code"] == "capacity_exhausted"
    assert copies == []


async def test_unknown_sessions(daemon: Daemon) -> None:
    answer = await daemon.ask("GET", "/v1/sessions/nobody")
    assert answer.status == 404 and answer.error["code"] == "session_not_found"


async def test_what_is_not_there_is_closed_and_empty(daemon: Daemon) -> None:
    """ExecuTorch's clients expect this, because they close sessions that they may never have used."""
    closed = await daemon.ask("DELETE", "/v1/sessions/nobody")
    assert (closed.status, closed.json["session_id"], closed.json["closed"]) == (200, "nobody", True)
    assert closed.json["deleted"] is False
    reset = await daemon.ask("POST", "/v1/sessions/nobody/reset")
    assert (reset.status, reset.json["session_id"], reset.json["reset"]) == (200, "nobody", True)
    assert (reset.json["existed"], reset.json["slot"], reset.json["tokens"]) == (False, -1, 0)
    assert await listed(daemon) == []


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("DELETE", ""), ("POST", "/reset"), ("POST", "/park")])
@pytest.mark.parametrize("name", ["has%20space", "x" * 129, "%C3%BC"])
async def test_malformed_ids(daemon: Daemon, method: str, path: str, name: str) -> None:
    answer = await daemon.ask(method, f"/v1/sessions/{name}{path}")
    assert (answer.status, answer.error["code"], answer.error["param"]) == (400, "invalid_session_id", "id")


async def test_reset_keeps_the_slot(daemon: Daemon) -> None:
    await daemon.chat(session_id="a")
    for _ in range(2):
        answer = await daemon.ask("POST", "/v1/sessions/a/reset")
        assert answer.status == 200 and answer.json["state"] == "empty" and answer.json["tokens"] == 0
        assert answer.json["session_id"] == "a" and answer.json["reset"] and answer.json["existed"]
    assert (await daemon.chat(session_id="a"))["session"]["session_reset_reason"] == "new"


async def test_close_frees_the_slot(daemon: Daemon) -> None:
    await daemon.chat(session_id="a")
    assert (await daemon.ask("DELETE", "/v1/sessions/a")).json == {
        "id": "a", "session_id": "a", "deleted": True, "closed": True, "object": "session.deleted",
    }  # fmt: skip
    assert await listed(daemon) == []
    assert (await daemon.ask("DELETE", "/v1/sessions/a")).json["deleted"] is False


@pytest.mark.parametrize(("method", "path"), [("DELETE", "/v1/sessions/a"), ("POST", "/v1/sessions/a/reset")])
async def test_reset_and_close_cancel_what_runs(serve: Serve, method: str, path: str) -> None:
    daemon = await serve(model=SLOW, ctx_size=200_000)
    asked = await running(daemon, "a")
    assert (await daemon.ask(method, path)).status == 200
    answer = await asked
    assert answer.status == 499 and answer.error["code"] == "cancelled"
    await daemon.chat(session_id="a")


async def test_a_stream_that_is_cancelled_says_so(serve: Serve) -> None:
    daemon = await serve(model=SLOW, ctx_size=200_000)
    async with daemon.streaming(chat(session_id="a", **ENDLESS)) as response:
        await daemon.ask("POST", "/v1/sessions/a/reset")
        events = parse_events(await response.read())
    assert events.error is not None and events.error["code"] == "cancelled"
    assert events.done and events.finish_reasons == []


async def test_waiting_requests_are_cancelled_too(serve: Serve) -> None:
    daemon = await serve(model=SLOW, ctx_size=200_000)
    first = await running(daemon, "a")
    second = asyncio.create_task(daemon.ask("POST", "/v1/chat/completions", chat(session_id="a")))
    async with asyncio.timeout(SETTLE_S):
        while (await daemon.ask("GET", "/v1/sessions/a")).json["waiting"] != 1:
            pass
    await daemon.ask("DELETE", "/v1/sessions/a")
    assert [(await task).error["code"] for task in (first, second)] == ["cancelled", "cancelled"]


async def test_sessions_that_wait_for_a_slot_occupy_none(serve: Serve) -> None:
    daemon = await serve(model=SLOW, ctx_size=200_000, max_sessions=1, scratch_sessions=1)
    first = await running(daemon, "a")
    waiting = [asyncio.create_task(daemon.ask("POST", CHAT, chat(session_id=id))) for id in ("b", "c", "d")]
    async with asyncio.timeout(SETTLE_S):
        while daemon.counter("requests_waiting") != len(waiting):
            await daemon.ask("GET", "/health")
    places = (await daemon.ask("GET", "/v1/sessions")).json["places"]
    assert (places["named_used"], places["named"]) == (1, 1)
    assert (await daemon.metrics())["llmd_slots_free"] >= 0
    await daemon.ask("POST", "/v1/sessions/a/reset")
    await asyncio.gather(first, *waiting)


async def test_a_busy_session_queues_and_the_queue_is_bounded(serve: Serve) -> None:
    daemon = await serve(model=SLOW, ctx_size=200_000)
    first = await running(daemon, "a")
    waiting = [asyncio.create_task(daemon.ask("POST", "/v1/chat/completions", chat(session_id="a"))) for _ in range(12)]
    refused = []
    for task in asyncio.as_completed(waiting):
        refused.append(await task)
        if len(refused) == 4:
            break
    assert all(answer.status == 429 and answer.error["code"] == "queue_full" for answer in refused)
    assert all(int(answer.headers["Retry-After"]) >= 1 for answer in refused)
    await daemon.ask("POST", "/v1/sessions/a/reset")
    await first
    codes = sorted(answer.status for answer in await asyncio.gather(*waiting))
    assert codes == [429] * 4 + [499] * 8


@pytest.mark.parametrize("hint", [{"prompt_cache_key": "a"}, {"metadata": {"session_id": "a"}}])
async def test_what_only_hints_at_a_busy_session_is_answered_without_one(
    serve: Serve, hint: Json, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients use one key for many requests at the same time."""
    caplog.set_level("INFO", "llmd.http")
    daemon = await serve(model=SLOW, ctx_size=200_000)
    first = await running(daemon, "a")
    waiting = [asyncio.create_task(daemon.ask("POST", CHAT, chat(**hint))) for _ in range(8)]
    async with asyncio.timeout(SETTLE_S):
        while (await daemon.ask("GET", "/v1/sessions/a")).json["waiting"] != 8:
            pass
    whole = await daemon.ask("POST", CHAT, chat(**hint))
    assert whole.status == 200 and "X-LLM-Session-Id" not in whole.headers
    assert (whole.json["session"]["id"], whole.json["session"]["session_left_reason"]) == (None, "queue_full")
    line = [vars(record)["fields"] for record in caplog.records if record.getMessage() == "request"][-1]
    assert (line["session"], line["session_left_reason"]) == ("scratch", "queue_full")
    two = await daemon.ask("POST", CHAT, chat(n=2, **hint))
    assert len(two.json["choices"]) == 2
    streamed = await daemon.stream(chat(**hint))
    assert streamed.finish_reasons == ["length"]
    named = await daemon.refused(chat(session_id="a", **hint))
    assert named.status == 429 and named.error["code"] == "queue_full"
    await daemon.ask("POST", "/v1/sessions/a/reset")
    await asyncio.gather(first, *waiting)
    await daemon.idle()


async def test_refuse_names_the_holders(serve: Serve) -> None:
    daemon = await serve(max_sessions=2, capacity_policy="refuse")
    await daemon.chat(session_id="ann")
    await daemon.chat(session_id="bob")
    answer = await daemon.refused(chat(session_id="carl", stream=True))
    assert answer.status == 429 and answer.error["code"] == "capacity_exhausted"
    assert "ann, bob" in answer.error["message"] and "Retry-After" in answer.headers
    await daemon.chat()  # scratch branches have entries of their own
    await daemon.ask("DELETE", "/v1/sessions/ann")
    await daemon.chat(session_id="carl")


async def test_of_many_holders_some_are_named(serve: Serve) -> None:
    daemon = await serve(max_sessions=11, capacity_policy="refuse")
    for number in range(11):
        await daemon.chat(session_id=f"s{number:02}")
    message = (await daemon.refused(chat(session_id="more"))).error["message"]
    assert (
        "All 11 session entries are taken (by s00, s01, s02, s03, s04, s05, s06, s07 and 3 more of yours)." in message
    )
    assert message.endswith("or start llmd with a larger --max-sessions.")


async def test_entries_for_parked_sessions_are_counted(serve: Serve) -> None:
    daemon = await serve(model=SLOW, ctx_size=200_000, max_sessions=1, max_parked=1)
    asked = await running(daemon, "ann")
    waiting = asyncio.create_task(daemon.ask("POST", "/v1/chat/completions", chat(session_id="bob", **ENDLESS)))
    async with asyncio.timeout(SETTLE_S):
        while "bob" not in await listed(daemon):
            pass
    message = (await daemon.refused(chat(session_id="carl"))).error["message"]
    assert message.startswith("All 2 session entries are taken (by ann, bob).")
    assert message.endswith("or start llmd with a larger --max-sessions or --max-parked.")
    for name in ("ann", "bob"):
        await daemon.ask("DELETE", f"/v1/sessions/{name}")
    assert (await asked).status == (await waiting).status == 499


async def test_evict_forgets_the_least_recently_used(serve: Serve) -> None:
    daemon = await serve(max_sessions=2, capacity_policy="evict")
    for name in ("ann", "bob", "ann", "carl"):
        await daemon.chat(session_id=name)
    assert sorted(await listed(daemon)) == ["ann", "carl"]
    assert daemon.counter("sessions_evicted_total") == 1


async def test_evict_spares_the_busy(serve: Serve) -> None:
    daemon = await serve(model=SLOW, ctx_size=200_000, max_sessions=1, capacity_policy="evict")
    asked = await running(daemon, "busy")
    answer = await daemon.refused(chat(session_id="other"))
    assert answer.error["code"] == "capacity_exhausted" and "busy" in answer.error["message"]
    await daemon.ask("DELETE", "/v1/sessions/busy")
    assert (await asked).status == 499


async def test_sessions_run_side_by_side(daemon: Daemon) -> None:
    answers = await asyncio.gather(*(daemon.chat(f"I am {n}", session_id=f"s{n}", seed=n) for n in range(8)))
    again = [await daemon.chat(f"I am {n}", session_id=f"s{n}", seed=n, cache_prompt=False) for n in range(8)]
    assert [answer["choices"] for answer in answers] == [answer["choices"] for answer in again]


async def test_scratch_reuse_can_be_switched_off(serve: Serve) -> None:
    for reuse in (True, False):
        daemon = await serve(scratch_reuse=reuse)
        for _ in range(2):
            answer = await daemon.chat("the same long question")
        assert (answer["session"]["reused_prompt_tokens"] > 0) is reuse


async def test_a_failed_step_fails_one_request_and_the_session_recovers(serve: Serve) -> None:
    daemon = await serve(model="sim:dense,fail_at=3")
    answer = await daemon.refused(chat(session_id="a"))
    assert answer.status == 500 and answer.error["code"] == "step_failed"
    assert (await daemon.ask("GET", "/v1/sessions/a")).json["state"] == "torn"
    recovered = await daemon.chat(session_id="a")
    assert recovered["session"]["session_reset_reason"] == "torn"


async def test_a_failure_in_a_stream_is_an_event(serve: Serve) -> None:
    daemon = await serve(model="sim:dense,fail_at=3")
    events = await daemon.stream(chat())
    assert events.error is not None and events.error["code"] == "step_failed"
    assert events.done and events.finish_reasons == []
