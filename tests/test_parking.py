"""Many more sessions than slots: each session's tokens are reused, sessions are not mixed up, and no request waits for
ever.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.conftest import Serve
from tests.conversation import Conversation
from tests.serving import SETTLE_S, Daemon, chat

CLASSES = ("dense", "window", "recurrent", "hybrid")
N_SESSIONS = 10
N_SLOTS = 2
N_TURNS = 4
_TOKEN_BYTES = 64
"""Bytes of state for each token of the simulated model."""


def conversations(daemon: Daemon) -> list[Conversation]:
    return [Conversation(daemon, f"s{n}", system=f"system prompt number {n} " * 6) for n in range(N_SESSIONS)]


@pytest.mark.parametrize("memory", CLASSES)
async def test_sessions_beyond_slots_stay_warm(serve: Serve, memory: str) -> None:
    daemon = await serve(model=f"sim:{memory}", max_sessions=N_SLOTS)
    talks = conversations(daemon)
    for turn in range(N_TURNS):
        for one in talks:
            await one.ask(f"question number {turn}")
            if turn > 0:
                assert one.report["session_reset_reason"] == "restored"
                assert one.n_prefilled <= 40 < one.n_prompt
    places = (await daemon.ask("GET", "/v1/sessions")).json["places"]
    assert places["named_used"] <= N_SLOTS and places["parked"] >= N_SESSIONS - N_SLOTS
    assert daemon.counter("parked_dropped_total") == 0 and daemon.counter("sessions_evicted_total") == 0


@pytest.mark.parametrize("memory", CLASSES)
async def test_through_the_disk(serve: Serve, memory: str) -> None:
    """With almost no memory for parked states, the states are moved to the state directory and loaded again."""
    daemon = await serve(model=f"sim:{memory}", max_sessions=N_SLOTS, park_memory=1)
    talks = conversations(daemon)
    for turn in range(N_TURNS):
        for one in talks:
            await one.ask(f"question number {turn}")
            assert turn == 0 or one.n_prefilled < one.n_prompt / 2, one.report
    assert daemon.counter("parked_dropped_total") == 0
    assert daemon.config.state_dir is not None
    async with asyncio.timeout(SETTLE_S):  # the store thread writes later
        while not list(daemon.config.state_dir.rglob("*.llmd-session")):
            await daemon.ask("GET", "/health")


@pytest.mark.parametrize("memory", CLASSES)
async def test_all_at_once(serve: Serve, memory: str) -> None:
    """The conversations run at the same time, in a random order. No request is refused, and none waits for ever."""
    daemon = await serve(model=f"sim:{memory}", max_sessions=N_SLOTS)

    async def run(one: Conversation, chance: random.Random) -> None:
        for turn in range(N_TURNS):
            if chance.random() < 0.3:
                await daemon.ask("POST", f"/v1/sessions/{one.session}/park")
            one.messages.append({"role": "user", "content": f"question {turn}"})
            body = chat(messages=one.messages, session_id=one.session, temperature=0)
            answer = await daemon.ask("POST", "/v1/chat/completions", body)
            assert answer.status == 200, answer.body
            one.messages.append(answer.json["choices"][0]["message"])

    talks = conversations(daemon)
    async with asyncio.timeout(SETTLE_S):
        await asyncio.gather(*(run(one, random.Random(n)) for n, one in enumerate(talks)))
    for one in talks:
        await one.ask("what did I say?")


async def test_without_a_disk_the_least_recent_is_forgotten(serve: Serve) -> None:
    daemon = await serve(model="sim:hybrid", max_sessions=1, park_memory=1, state_dir=None)
    talks = conversations(daemon)[:3]
    for one in talks:
        await one.ask("first")
    assert daemon.counter("parked_dropped_total") > 0
    await talks[0].ask("second")
    assert talks[0].report["session_reset_reason"] in ("torn", "checkpoint", "mismatch", "new", "shared")


async def test_the_number_of_parked_sessions_is_bounded(serve: Serve) -> None:
    daemon = await serve(max_sessions=1, max_parked=2)
    for n in range(6):
        await daemon.chat(f"I am {n}", session_id=f"s{n}")
    names = [session["id"] for session in (await daemon.ask("GET", "/v1/sessions")).json["data"]]
    assert sorted(names) == ["s3", "s4", "s5"]


async def test_idle_sessions_expire_and_pinned_ones_stay(serve: Serve) -> None:
    daemon = await serve(session_idle_time=1)
    for name in ("kept", "lost"):
        await daemon.chat(session_id=name)
    await daemon.ask("POST", "/v1/sessions/kept/pin", {"pinned": True})
    async with asyncio.timeout(SETTLE_S):
        while (await daemon.ask("GET", "/v1/sessions/lost")).status != 404:
            pass
    assert (await daemon.ask("GET", "/v1/sessions/kept")).status == 200
    assert daemon.counter("sessions_expired_total") == 1


async def test_memory_follows_use(serve: Serve) -> None:
    """The KV memory is too small for a long prompt and all small chats together. Idle sessions are moved out of the
    model's memory.
    """
    budget_tokens = 4000
    daemon = await serve(model="sim:dense,ctx=3000", max_sessions=12, kv_memory=budget_tokens * _TOKEN_BYTES)
    assert daemon.state.engine.info.n_ctx == 3000
    small = [Conversation(daemon, f"small{n}", system=f"you are number {n}. " * 20) for n in range(10)]
    for one in small:
        await one.ask("hello")
    long = Conversation(daemon, "long", system="word " * 490)
    await long.ask("go on")
    assert long.n_prompt > 2400
    used = daemon.counter("state_used_bytes")
    assert 2400 * _TOKEN_BYTES < used <= budget_tokens * _TOKEN_BYTES
    assert daemon.counter("parks_total") > 0
    for one in small:
        await one.ask("and now?")
        assert one.n_prefilled <= 40 < one.n_prompt
    assert daemon.counter("state_used_bytes") <= budget_tokens * _TOKEN_BYTES


async def test_one_session_alone_exceeds_the_budget(serve: Serve) -> None:
    """The session is refused by its length, and the refusal names the option to enlarge."""
    daemon = await serve(model="sim:dense,ctx=3000", kv_memory=1000 * _TOKEN_BYTES)
    assert (await daemon.ask("GET", "/v1/models")).json["data"][0]["meta"]["n_ctx"] == 1000
    answer = await daemon.refused(chat("word " * 500))
    assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")
    assert "--kv-memory" in answer.error["message"] and "trained for 3000" in answer.error["message"]
