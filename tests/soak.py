"""Minutes of random clients against a real daemon: ``python -m tests.soak --minutes 5 --model sim:hybrid``.

Each client has a conversation with a unique word, its canary, and does what clients do: it continues, edits, repeats,
disconnects, forks, parks, resets and closes. Every complete answer is generated again without reuse, in the same
daemon: a different text means a wrong token. The tokens of all sessions are read from the shared memory: the canary of
another client means a leak between sessions. At the end nothing may run, and memory, descriptors, threads and shared
memory must be the same as before.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from llmd.engine import segment
from llmd.engine.native import SessionTable

Json = dict[str, Any]

N_CLIENTS = 6
REQUEST_S_MAX = 60.0
SETTLE_S = 30.0
MESSAGES_MAX = 14
FAULTS = ",fail_every=1009,fail_kind=half,step_us=200"
REFUSALS = {
    "capacity_exhausted",
    "queue_full",
    "overloaded",
    "session_busy",
    "session_exists",
    "pins_exhausted",
    "kv_cache_full",
    "not_found",
}
"""Error codes that a busy daemon may return."""
NEAR_TIES_SHARE = 0.05
"""Fraction of a real model's answers in the production build that may differ, because rounding depends on the batch,
and can change the choice between two tokens that are almost equally likely.
"""
GROWTH_MIB_MAX = 48
PARK_MIB, CHECKPOINT_MIB = 1, 8
IN_FLIGHT_MIB = 256
"""Limit on states that are being written to or read from disk. The limit is the size of parked memory, but at least
this number (IN_FLIGHT_BYTES_MIN).
"""
REST_MIB_MAX = 64
"""Limit on all other memory: requests, texts, kept answers, and memory that the allocator does not return."""
WORDS = "red green blue iron tin gold river lake hill road stone tree bird fish horse seven nine cold warm".split()


@dataclass
class Process:
    """The resources of the daemon's process."""

    rss_mib: float
    descriptors: int
    threads: int
    peak_mib: float
    """Largest resident memory since the daemon was ready."""

    @classmethod
    def of(cls, pid: int) -> Process:
        status = Path(f"/proc/{pid}/status").read_text()
        values = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        rss, peak = (int(values[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
        return cls(rss, len(os.listdir(f"/proc/{pid}/fd")), int(values["Threads"]), peak)

    @classmethod
    def ready(cls, pid: int) -> Process:
        """Resets the peak, and returns the resources. A model can be in memory twice while it loads, which must not
        count.
        """
        Path(f"/proc/{pid}/clear_refs").write_text("5")
        return cls.of(pid)


@dataclass
class Findings:
    wrong: list[str] = field(default_factory=list)
    near_ties: list[str] = field(default_factory=list)
    did: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    samples: list[Process] = field(default_factory=list)


class Client:
    """A client with one conversation."""

    def __init__(self, soak: Soak, number: int, seed: int) -> None:
        self.soak, self.number = soak, number
        self.random = random.Random(seed * 1000 + number)
        self.canary = f"canary{number}x{self.random.randrange(10**8):08d}"
        self.messages: list[Json] = []
        self.id = f"client-{number}"

    def _say(self, role: str, text: str) -> Json:
        return {"role": role, "content": text}

    def _words(self) -> str:
        return " ".join(self.random.choice(WORDS) for _ in range(self.random.randrange(3, 25)))

    def _start(self) -> None:
        self.messages = [self._say("system", f"You are {self.canary}. Be brief."), self._say("user", self._words())]

    def _change(self) -> str:
        """Changes the messages for the next prompt, and returns the kind of the change."""
        if len(self.messages) < 2 or len(self.messages) > MESSAGES_MAX:
            self._start()
            return "start"
        way = self.random.random()
        if self.messages[-1]["role"] == "assistant":
            self.messages.append(self._say("user", self._words()))
            return "append"
        if way < 0.5:
            return "again"
        if way < 0.8 or len(self.messages) < 5:
            self.messages[-1] = self._say("user", self._words())
            return "edit"
        self.messages = [*self.messages[:3], self._say("user", self._words())]
        return "branch"

    def _body(self) -> Json:
        return {
            "messages": self.messages,
            "max_tokens": self.random.randrange(1, 40),
            "temperature": 0,
            "logit_bias": {},
        }

    async def step(self) -> None:
        if self.messages and self.random.random() < 0.2:
            await self._verb()
            return
        kind = self._change()
        body = self._body()
        self.soak.found.did[kind] += 1
        if self.random.random() < 0.15:
            await self._leave(body)
        else:
            await self._ask(body)

    async def _ask(self, body: Json) -> None:
        session = {"session_id": self.id} if self.random.random() < 0.9 else {}
        answer = await self.soak.post("/v1/chat/completions", {**body, **session})
        if "error" in answer:
            self.soak.note_refusal(answer["error"])
            return
        text = answer["choices"][0]["message"]["content"] or ""
        self.soak.found.reasons[answer["session"]["session_reset_reason"] or "none"] += 1
        await self.soak.compare(body, text)
        self.soak.look_for_strangers(self.id, self.canary)
        if self.random.random() < 0.8:
            self.messages.append(self._say("assistant", text))

    async def _leave(self, body: Json) -> None:
        """Closes the connection in the middle of a stream."""
        self.soak.found.did["leave"] += 1
        request = {**body, "session_id": self.id, "stream": True, "max_tokens": 400, "ignore_eos": True}
        async with self.soak.http.post(self.soak.url + "/v1/chat/completions", json=request) as response:
            n_chunks = self.random.randrange(1, 6)
            async for _ in response.content:
                n_chunks -= 1
                if n_chunks <= 0:
                    break
            response.close()

    async def _verb(self) -> None:
        verb = self.random.choice(["park", "park", "fork", "reset", "close", "pin"])
        self.soak.found.did[verb] += 1
        if verb == "close":
            await self.soak.call("DELETE", f"/v1/sessions/{self.id}")
            return
        bodies: dict[str, Json] = {
            "fork": {"session_id": f"{self.id}-fork", "at": self.random.choice([None, 20]), "replace": True},
            "pin": {"pinned": self.random.random() < 0.3},
        }
        body = {name: value for name, value in bodies.get(verb, {}).items() if value is not None}
        await self.soak.call("POST", f"/v1/sessions/{self.id}/{verb}", body)
        if verb == "fork" and self.random.random() < 0.5:
            self.id = f"{self.id}-fork" if len(self.id) < 60 else f"client-{self.number}"


class Soak:
    def __init__(self, model: str, directory: Path, seed: int) -> None:
        self.is_simulated = model.startswith("sim:")
        self.model = model + FAULTS if self.is_simulated else model
        self.directory, self.seed = directory, seed
        self.socket = directory / "llmd.sock"
        self.found = Findings()
        self.url = "http://llmd"
        self.http: aiohttp.ClientSession
        self.session_table: SessionTable
        self.at_ready: Process
        self.in_flight_bytes_max = 0
        self.pending_looks: list[tuple[str, str, list[int]]] = []
        self.clients = [Client(self, number, seed) for number in range(N_CLIENTS)]

    # --- the daemon --------------------------------------------------------------------------------------------------

    def start(self) -> subprocess.Popen[bytes]:
        options = {
            "--model": self.model,
            "--port": "0",
            "--socket": str(self.socket),
            "--state-dir": str(self.directory / "state"),
            "--max-sessions": "3",
            "--capacity-policy": "park",
            "--ctx-size": "2048",
            "--park-memory": f"{PARK_MIB}M",
            "--checkpoint-memory": f"{CHECKPOINT_MIB}M",
            "--checkpoint-every": "16",
            "--session-timelines": "2",
            "--history": "template",  # a prompt without reuse has no generated tokens
            "--log-format": "json",
        }
        arguments = [part for pair in options.items() for part in pair]
        log = (self.directory / "log").open("wb")
        return subprocess.Popen([sys.executable, "-m", "llmd", *arguments], stderr=log, stdout=log)

    async def ready(self, daemon: subprocess.Popen[bytes]) -> None:
        async with asyncio.timeout(SETTLE_S):
            while daemon.poll() is None:
                with contextlib.suppress(aiohttp.ClientError, FileNotFoundError):
                    async with self.http.get(self.url + "/ready") as response:
                        if response.status == 200:
                            self.session_table = SessionTable.open(segment.name_in_use(self.socket) or "")
                            return
                await asyncio.sleep(0.1)
        raise SystemExit((self.directory / "log").read_text())

    async def settle(self) -> None:
        """Waits until no request runs or waits, which must be soon after the last client has disconnected."""
        async with asyncio.timeout(SETTLE_S):
            names = ("requests_running", "requests_waiting")
            # Counters of another process must be polled.
            while any(self.session_table.counters()[name] for name in names):  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    # --- requests ----------------------------------------------------------------------------------------------------

    async def call(self, method: str, path: str, body: Json | None = None) -> Json:
        async with asyncio.timeout(REQUEST_S_MAX):
            async with self.http.request(method, self.url + path, json=body) as response:
                answer: Json = json.loads(await response.read())
        if "error" in answer:
            self.note_refusal(answer["error"])
        return answer

    async def post(self, path: str, body: Json) -> Json:
        async with asyncio.timeout(REQUEST_S_MAX):
            async with self.http.post(self.url + path, json=body) as response:
                answer: Json = json.loads(await response.read())
        return answer

    def note_refusal(self, error: Json) -> None:
        code = error["code"]
        self.found.did[code] += 1
        is_fault = self.is_simulated and code == "step_failed"
        if code not in REFUSALS and not is_fault and not code.endswith("not_found"):
            self.found.wrong.append(f"an error that nothing explains: {error}")

    async def compare(self, body: Json, text: str) -> None:
        """Checks that the same request without reuse gets the same answer."""
        cold = await self.post("/v1/chat/completions", {**body, "cache_prompt": False})
        if "error" in cold:
            self.note_refusal(cold["error"])
            return
        self.found.did["compared"] += 1
        expected = cold["choices"][0]["message"]["content"] or ""
        if expected != text:
            told = f"{len(body['messages'])} messages: {text!r} instead of {expected!r}"
            (self.found.wrong if self.is_simulated else self.found.near_ties).append(told)

    def look_for_strangers(self, name: str, canary: str) -> None:
        """Checks that the tokens of a session, read from the shared memory, contain only the canary of its own
        client.
        """
        for view in self.session_table.sessions():
            if view.name == name:
                tokens = self.session_table.tokens(view.entry)
                self.found.did["looked"] += tokens is not None
                self.pending_looks.append((name, canary, list(tokens or ())))

    async def judge_looks(self) -> None:
        looks, self.pending_looks = self.pending_looks, []
        others = {client.canary for client in self.clients}
        for name, canary, tokens in looks:
            if tokens:
                text = (await self.post("/detokenize", {"tokens": tokens})).get("content", "")
                strangers = [other for other in others - {canary} if other in text]
                if strangers:
                    self.found.wrong.append(f"{name} holds {strangers}")

    # --- the run -----------------------------------------------------------------------------------------------------

    async def _client(self, client: Client, until: float) -> None:
        while time.monotonic() < until:
            await client.step()

    async def _watch(self, pid: int, until: float) -> None:
        while time.monotonic() < until:
            self.found.samples.append(Process.of(pid))
            await self.judge_looks()
            for _ in range(20):
                self.in_flight_bytes_max = max(
                    self.in_flight_bytes_max, self.session_table.counters()["in_flight_bytes"]
                )
                await asyncio.sleep(0.1)

    async def run(self, minutes: float) -> None:
        daemon = self.start()
        connector = aiohttp.UnixConnector(str(self.socket), limit=0)
        async with aiohttp.ClientSession(connector=connector) as self.http:
            try:
                await self.ready(daemon)
                self.at_ready = Process.ready(daemon.pid)
                until = time.monotonic() + 60 * minutes
                tasks = [self._client(client, until) for client in self.clients]
                await asyncio.gather(self._watch(daemon.pid, until), *tasks)
                await self.settle()
                await self.judge_looks()
                self._judge_growth(Process.of(daemon.pid))
            finally:
                daemon.terminate()
                if daemon.wait(SETTLE_S) != 0:
                    self.found.wrong.append(f"llmd ended with status {daemon.returncode}")
        if segment.name_in_use(self.socket) is not None:
            self.found.wrong.append("the shared segment is still there")

    def _judge_growth(self, last: Process) -> None:
        """Compares the resources with those after a third of the time, when all parts of the daemon had been used."""
        early = self.found.samples[len(self.found.samples) // 3]
        if last.threads > early.threads or last.descriptors > early.descriptors + N_CLIENTS:
            self.found.wrong.append(f"threads or descriptors grew: {early} to {last}")
        if last.rss_mib > early.rss_mib + GROWTH_MIB_MAX:
            self.found.wrong.append(f"memory grew: {early} to {last}")
        self.found.samples.append(last)
        self._judge_peak(last.peak_mib)

    def _judge_peak(self, peak_mib: float) -> None:
        """Compares the peak of the memory with the limits. Weights, KV cache and program are in memory when the daemon
        is ready; all memory that is added later has a limit.
        """
        in_flight_mib = max(PARK_MIB, IN_FLIGHT_MIB)
        seen_mib = self.in_flight_bytes_max / 2**20
        rest_mib = peak_mib - self.at_ready.rss_mib - PARK_MIB - CHECKPOINT_MIB - seen_mib
        print(
            f"soak: memory: peak {peak_mib:.0f} MiB, {self.at_ready.rss_mib:.0f} when ready; parked {PARK_MIB}, "
            f"checkpoints {CHECKPOINT_MIB}, in flight {in_flight_mib} (most seen {seen_mib:.1f}); "
            f"the rest {rest_mib:.0f} of {REST_MIB_MAX}"
        )
        if seen_mib > in_flight_mib or rest_mib > REST_MIB_MAX:
            self.found.wrong.append(f"memory beyond its budgets: the rest {rest_mib:.0f} MiB, in flight {seen_mib:.1f}")

    def verdict(self) -> bool:
        found, n_compared = self.found, self.found.did["compared"]
        if len(found.near_ties) > NEAR_TIES_SHARE * n_compared:
            found.wrong.append(f"{len(found.near_ties)} of {n_compared} answers differ, such as {found.near_ties[0]}")
        if n_compared == 0:
            found.wrong.append("nothing was compared")
        for told in found.wrong[:10]:
            print("soak:", told)
        rss = [round(sample.rss_mib) for sample in found.samples]
        print("soak: did", dict(found.did), "reasons", dict(found.reasons), "rss MiB", rss[:: max(1, len(rss) // 8)])
        word = "FAILED" if found.wrong else "passed"
        print(f"soak: {word}: {self.model}, {n_compared} answers compared, {len(found.near_ties)} near ties")
        return not found.wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--model", default="sim:hybrid", help="sim:CLASS (faults are added) or a GGUF file")
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        soak = Soak(wanted.model, Path(directory), wanted.seed)
        asyncio.run(soak.run(wanted.minutes))
        return 0 if soak.verdict() else 1


if __name__ == "__main__":
    sys.exit(main())
