"""Four nodes behind HAProxy with docs/haproxy.cfg: each turn is warm, and a leaving node moves only its sessions."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.serving import environment_without_options

ROOT = Path(__file__).parents[2]
N_NODES, N_SESSIONS, AT_ONCE = 4, 200, 16
KEYS = "bob-key-of-sixteen-characters bob\n"


@dataclass
class Node:
    popen: subprocess.Popen[bytes]
    socket: Path
    port: int = 0

    def wait_until_ready(self, log: Path) -> None:
        while not (found := re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text())):
            assert self.popen.poll() is None, log.read_text()
            time.sleep(0.05)
        self.port = int(found[1])

    async def drain(self) -> None:
        connector = aiohttp.UnixConnector(str(self.socket))
        async with aiohttp.ClientSession(connector=connector) as client, client.post("http://llmd/v1/drain") as answer:
            assert answer.status == 200


@dataclass
class Cluster:
    url: str
    nodes: list[Node]
    client: aiohttp.ClientSession
    histories: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    n_tokens: dict[str, int] = field(default_factory=dict)
    """Tokens of the prompt and of the answer of each session's last turn."""

    async def turn(self, session: str) -> bool:
        """Sends the session's next turn through HAProxy. Returns whether the node had the tokens of its last turn."""
        history = self.histories.setdefault(session, [])
        history.append({"role": "user", "content": f"{session} says {len(history)}"})
        body = {"messages": history, "max_tokens": 8, "ignore_eos": True}
        headers = {"X-Session-Id": session, "Authorization": f"Bearer {KEYS.split()[0]}"}
        async with self.client.post(f"{self.url}/v1/chat/completions", json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            found: dict[str, Any] = await answer.json()
        history.append({"role": "assistant", "content": found["choices"][0]["message"]["content"]})
        before, usage = self.n_tokens.get(session, 0), found["usage"]
        self.n_tokens[session] = usage["total_tokens"]
        # The last token of an answer is not in the session yet.
        return before > 0 and usage["prompt_tokens_details"]["cached_tokens"] >= before - 1

    async def turns(self) -> set[str]:
        """Sends a turn of every session, some at a time. Returns the sessions whose turn was not warm."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(session: str) -> bool:
            async with gate:
                return await self.turn(session)

        sessions = [f"session-{i}" for i in range(N_SESSIONS)]
        warm = await asyncio.gather(*map(one, sessions))
        return {session for session, is_warm in zip(sessions, warm, strict=True) if not is_warm}

    async def sessions_of(self, node: Node) -> set[str]:
        headers = {"Authorization": f"Bearer {KEYS.split()[0]}"}
        async with self.client.get(f"http://127.0.0.1:{node.port}/v1/sessions?limit=1000", headers=headers) as answer:
            return {session["id"] for session in (await answer.json())["data"]}


def start_node(directory: Path) -> Node:
    directory.mkdir()
    (directory / "keys").write_text(KEYS)
    (directory / "keys").chmod(0o600)
    options = {
        "--model": "sim:dense",
        "--port": "0",
        "--socket": str(directory / "socket"),
        "--state-dir": str(directory / "state"),
        "--api-key-file": str(directory / "keys"),
        "--max-parked": str(N_SESSIONS),  # the sessions of a node that leaves are added to those of the others
    }
    command = [sys.executable, "-m", "llmd", *(part for pair in options.items() for part in pair)]
    with (directory / "log").open("wb") as log:
        popen = subprocess.Popen(command, stderr=log, env=environment_without_options())
    return Node(popen, directory / "socket")


def configuration(nodes: list[Node], port: int) -> str:
    """Returns docs/haproxy.cfg with the addresses of this test."""
    text = (ROOT / "docs" / "haproxy.cfg").read_text()
    text, n = re.subn(r"bind 127\.0\.0\.1:8080", f"bind 127.0.0.1:{port}", text)
    assert n == 1
    for name, node in zip("abcd", nodes, strict=True):
        text, n = re.subn(rf"(server {name}) 127\.0\.0\.\d:15563", rf"\1 127.0.0.1:{node.port}", text)
        assert n == 1
    return text


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Node]]:
    nodes = [start_node(tmp_path / name) for name in "abcd"]
    for node in nodes:
        node.wait_until_ready(node.socket.parent / "log")
    yield nodes
    for node in nodes:
        node.popen.kill()
        node.popen.wait()


@pytest.fixture
def url(nodes: list[Node], tmp_path: Path, unused_tcp_port: int) -> Iterator[str]:
    (tmp_path / "haproxy.cfg").write_text(configuration(nodes, unused_tcp_port))
    haproxy = subprocess.Popen(["haproxy", "-db", "-f", str(tmp_path / "haproxy.cfg")])
    yield f"http://127.0.0.1:{unused_tcp_port}"
    haproxy.kill()
    haproxy.wait()


@pytest.fixture
async def cluster(nodes: list[Node], url: str) -> AsyncIterator[Cluster]:
    async with aiohttp.ClientSession() as client:
        cluster = Cluster(url, nodes, client)
        await all_up(cluster)
        yield cluster


async def all_up(cluster: Cluster) -> None:
    """Waits until HAProxy listens. It takes all nodes for healthy at its start."""
    async with asyncio.timeout(60):
        while True:
            try:
                async with cluster.client.get(f"{cluster.url}/ready") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)


async def test_every_turn_is_warm(cluster: Cluster) -> None:
    assert len(await cluster.turns()) == N_SESSIONS  # all are new
    assert await cluster.turns() == set()
    assert await cluster.turns() == set()
    shares = [len(await cluster.sessions_of(node)) for node in cluster.nodes]
    assert sum(shares) == N_SESSIONS and min(shares) > N_SESSIONS / N_NODES / 3


@pytest.mark.parametrize("how", ["drain", "kill"])
async def test_a_node_that_leaves_moves_only_its_share(cluster: Cluster, how: str) -> None:
    await cluster.turns()
    leaving = cluster.nodes[1]
    share = await cluster.sessions_of(leaving)
    assert share
    turns = asyncio.create_task(cluster.turns())
    await asyncio.sleep(0)  # its first requests are sent
    if how == "drain":
        await leaving.drain()
    else:
        leaving.popen.send_signal(signal.SIGKILL)
    cold = await turns  # no request fails
    assert cold <= share
    assert await cluster.turns() <= share
    assert await cluster.turns() == set()
    if how == "drain":
        assert await asyncio.to_thread(leaving.popen.wait, 60) == 0
