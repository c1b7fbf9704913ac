"""Many clients at once, some of which disconnect: no client sees text of another client, and every request ends exactly
once.

The simulated model's state is a hash of exactly the tokens it consumed, so a greedy answer that equals the cold one
proves that the session held what its prompt says and nothing else.
"""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from tests.conftest import Serve
from tests.serving import Daemon, Json, chat

N_CLIENTS = 12
N_TURNS = 6
N_SESSIONS = 9


async def cold(daemon: Daemon, messages: list[Json]) -> str:
    answer = await daemon.chat(messages=messages, temperature=0, max_tokens=12, cache_prompt=False)
    return str(answer["choices"][0]["message"]["content"])


async def leave_early(daemon: Daemon, body: Json, after_bytes: int) -> None:
    """Opens a stream, and disconnects in the middle of it."""
    data = json.dumps({**body, "stream": True, "max_tokens": 400})
    async with daemon.http.post(daemon.url + "/v1/chat/completions", data=data) as response:
        if response.status == 200:
            await response.content.read(after_bytes)
        response.close()


class Client:
    """A client with a conversation in a session that other clients may use, too. Sometimes the client disconnects, or
    resets or closes the session.
    """

    def __init__(self, daemon: Daemon, number: int) -> None:
        self.daemon = daemon
        self.chance = random.Random(number)
        self.number = number
        self.heard: list[tuple[list[Json], str]] = []

    async def run(self) -> None:
        messages: list[Json] = []
        for turn in range(N_TURNS):
            messages = [*messages, {"role": "user", "content": f"client {self.number} says {turn}"}]
            name = f"s{self.chance.randrange(N_SESSIONS)}"
            body: dict[str, Any] = chat(messages=messages, session_id=name, temperature=0, max_tokens=12)
            await self.disturb(name, body)
            answer = await self.daemon.ask("POST", "/v1/chat/completions", body)
            if answer.status == 200:
                said = answer.json["choices"][0]["message"]["content"]
                self.heard.append((messages, said))
                messages = [*messages, {"role": "assistant", "content": said}]
            else:
                assert answer.error["code"] in ("cancelled", "capacity_exhausted", "queue_full"), answer.body

    async def disturb(self, name: str, body: Json) -> None:
        what = self.chance.randrange(6)
        if what == 0:
            await leave_early(self.daemon, body, self.chance.randrange(1, 3000))
        elif what == 1:
            await self.daemon.ask("POST", f"/v1/sessions/{name}/reset")
        elif what == 2:
            await self.daemon.ask("DELETE", f"/v1/sessions/{name}")


@pytest.mark.parametrize("memory", ["dense", "window", "recurrent", "hybrid"])
async def test_a_crowd(serve: Serve, memory: str) -> None:
    """In the history mode `template`, the prompt depends only on the messages, whichever client used the session
    before.
    """
    daemon = await serve(model=f"sim:{memory}", max_sessions=6, history="template")
    clients = [Client(daemon, number) for number in range(N_CLIENTS)]
    await asyncio.gather(*(client.run() for client in clients))
    heard = [pair for client in clients for pair in client.heard]
    assert len(heard) > N_CLIENTS * N_TURNS / 2
    for messages, said in heard:
        assert said == await cold(daemon, messages)
        assert "WRONG-STATE" not in said


async def test_the_comparison_is_sensitive(daemon: Daemon) -> None:
    """A single different word early in the history must change the answer."""
    ask = [{"role": "user", "content": f"{word} things and then the same long rest"} for word in ("two", "three")]
    assert await cold(daemon, ask[:1]) != await cold(daemon, ask[1:])
