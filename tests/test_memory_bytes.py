"""The bytes of memory that GET /v1/sessions reports for each session add up to what the engine reports for all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.conftest import Serve
from tests.serving import SETTLE_S, Daemon

CLASSES = ("dense", "window", "recurrent", "hybrid")
TOKEN_BYTES = 64
"""Bytes of state for each token of the simulated model."""
HEAD = "The same long beginning of all conversations. " * 20


async def branches(daemon: Daemon) -> list[dict[str, Any]]:
    listed = (await daemon.ask("GET", "/v1/sessions")).json
    sessions = [*listed["data"], *listed["scratch"]]
    for session in sessions:
        for name in ("memory_bytes", "checkpoint_bytes", "disk_bytes"):
            assert session[name] == sum(branch[name] for branch in session["timelines"])
    return [branch for session in sessions for branch in session["timelines"]]


def in_slots(daemon: Daemon, found: list[dict[str, Any]]) -> tuple[int, int]:
    """Returns the bytes of the branches in slots, and the bytes that the engine reports for the slots in use."""
    held = [branch for branch in found if branch["kept_in"] == "slot"]
    info = daemon.state.engine.info
    # a recurrent state takes memory in empty slots, too
    n_empty = info.n_sessions + info.n_scratch - len(held) if info.memory == "recurrent" else 0
    return sum(one["memory_bytes"] for one in held), daemon.counter("state_used_bytes") - n_empty * TOKEN_BYTES


async def adds_up(daemon: Daemon) -> list[dict[str, Any]]:
    """Waits until the bytes of all branches add up. The decode thread updates its counters after an answer."""
    sums: dict[str, tuple[int, int]] = {}
    try:
        async with asyncio.timeout(SETTLE_S):
            while True:
                found = await branches(daemon)
                in_memory = sum(one["memory_bytes"] for one in found if one["kept_in"] != "slot")
                parked = daemon.counter("parked_memory_bytes") + daemon.counter("in_flight_bytes")
                n_checkpoints, n_disk = (sum(one[f"{name}_bytes"] for one in found) for name in ("checkpoint", "disk"))
                sums = {
                    "slots": in_slots(daemon, found),
                    "host memory": (in_memory, parked),
                    "checkpoints": (n_checkpoints, daemon.counter("checkpoint_bytes")),
                    "disk": (n_disk, daemon.counter("parked_disk_bytes")),
                }
                if all(mine == engines for mine, engines in sums.values()):
                    return found
    except TimeoutError:
        pytest.fail(f"the bytes of the branches and those of the engine differ: {sums}")


async def post(daemon: Daemon, id: str, verb: str, body: dict[str, Any]) -> None:
    answer = await daemon.ask("POST", f"/v1/sessions/{id}/{verb}", body)
    assert answer.status == 200, answer.body


@pytest.mark.parametrize("memory", CLASSES)
async def test_the_bytes_of_all_sessions_add_up(serve: Serve, memory: str) -> None:
    daemon = await serve(model=f"sim:{memory}", max_sessions=3, scratch_sessions=1)
    for turn in range(2):
        for number in range(6):  # twice as many as slots
            await daemon.chat(f"{HEAD} {number} {turn}", session_id=f"s{number}")
    await daemon.chat(HEAD)
    found = await adds_up(daemon)
    assert {"slot", "memory"} <= {one["kept_in"] for one in found}
    assert all(one["memory_bytes"] > 0 for one in found if one["kept_in"] in ("slot", "memory"))
    if memory == "hybrid":
        assert any(one["checkpoint_bytes"] for one in found)
    await post(daemon, "s0", "fork", {"session_id": "fork"})
    await post(daemon, "fork", "park", {})
    await adds_up(daemon)
    for number in range(6):
        await daemon.ask("POST", f"/v1/sessions/s{number}/reset")
    await adds_up(daemon)


@pytest.mark.parametrize("memory", CLASSES)
async def test_a_state_on_disk_takes_no_memory(serve: Serve, memory: str) -> None:
    daemon = await serve(model=f"sim:{memory}", max_sessions=2, park_memory=1)
    for number in range(6):
        await daemon.chat(f"{HEAD} {number}", session_id=f"s{number}")
    async with asyncio.timeout(SETTLE_S):  # the store thread writes later
        while not any(one["kept_in"] == "disk" for one in await branches(daemon)):
            await daemon.ask("GET", "/health")
    found = await adds_up(daemon)
    on_disk = [one for one in found if one["kept_in"] == "disk"]
    assert all(one["memory_bytes"] == 0 < one["disk_bytes"] for one in on_disk)


async def test_shared_memory_is_counted_once(serve: Serve) -> None:
    """The copy of a session takes only the memory of the tokens that it does not share, until the source is gone."""
    daemon = await serve(model="sim:dense")
    await daemon.chat(HEAD, session_id="source")
    await post(daemon, "source", "fork", {"session_id": "copy"})
    await daemon.chat("And now?", session_id="copy", messages=[{"role": "user", "content": HEAD + "!"}])
    source, copy = sorted(await adds_up(daemon), key=lambda one: -int(one["memory_bytes"]))
    assert source["memory_bytes"] == source["tokens"] * TOKEN_BYTES
    assert copy["memory_bytes"] < source["memory_bytes"] / 10 and copy["tokens"] > source["tokens"] / 2
    for id in ("source", "copy"):
        await daemon.ask("DELETE", f"/v1/sessions/{id}")
        left = await adds_up(daemon)
        assert [one["memory_bytes"] for one in left] == [one["tokens"] * TOKEN_BYTES for one in left]
