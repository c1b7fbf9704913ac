"""Clients, and the ends that daemons come to."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.daemon import Daemon, DaemonEnded, Disk, Json, start
from tests.crash.promises import Promises

N_CLIENTS = 5
N_LABELS = 4
MESSAGES_MAX = 8
LIFE_S_MAX = 2.0
OPERATIONS_MAX = 400
"""A life whose disk decides its end ends within so many operations, if it makes as many."""
WORDS = "red green blue iron tin gold river lake hill road stone tree bird fish horse seven nine cold warm".split()
OPTIONS = (
    "--max-sessions", "3", "--scratch-sessions", "1", "--ctx-size", "1024", "--park-memory", "64K",
    "--checkpoint-memory", "1M", "--checkpoint-every", "16", "--session-timelines", "2", "--history", "template",
    "--shutdown-timeout", "1", "--log-format", "json",
)  # fmt: skip
CALM = {"capacity_exhausted", "queue_full", "overloaded", "session_busy", "session_exists", "session_not_found",
        "snapshot_not_found", "nothing_to_save", "io_error", "cancelled", "shutting_down", "no_memory",
        "pins_exhausted", "saved_exhausted", "ambiguous_session"}  # fmt: skip
"""What a daemon that is busy, short of something, or on a failing disk may say."""


@dataclass
class Asked:
    body: Json
    text: str
    reason: str


@dataclass
class Client:
    """One conversation under one session name."""

    storm: Storm
    name: str
    random: random.Random
    messages: list[Json] = field(default_factory=list)

    def _words(self) -> str:
        return " ".join(self.random.choice(WORDS) for _ in range(self.random.randrange(3, 25)))

    def _go_on(self) -> None:
        if not self.messages or len(self.messages) >= MESSAGES_MAX:
            self.messages = [{"role": "system", "content": f"You are {self.name}. Be brief."}]
        if self.messages[-1]["role"] == "user" and self.random.random() < 0.5:
            self.messages = self.messages[:-1]
        if self.messages[-1]["role"] != "user":
            self.messages = [*self.messages, {"role": "user", "content": self._words()}]

    async def step(self, daemon: Daemon) -> None:
        if self.messages and self.random.random() < 0.4:
            await self._verb(daemon)
        else:
            await self._ask(daemon)

    async def _ask(self, daemon: Daemon) -> None:
        self._go_on()
        body = {"messages": self.messages, "max_tokens": self.random.randrange(1, 30), "temperature": 0}
        promise = self.storm.promises.of(self.name)
        if not promise.is_open:
            promise.unknown()
        status, answer = await daemon.ask("POST", "/v1/chat/completions", {**body, "session_id": self.name})
        if status != 200:
            self.storm.refused(answer["error"])
            return
        if promise.is_open is None:
            promise.is_open, promise.is_pinned = True, promise.is_pinned
        choice, session = answer["choices"][0]["message"], answer["session"]
        self.storm.asked.append(Asked(body, choice["content"], session["session_reset_reason"] or "none"))
        if self.random.random() < 0.8:
            self.messages = [*self.messages, {"role": "assistant", "content": choice["content"]}]

    async def _verb(self, daemon: Daemon) -> None:
        verb = self.random.choice(("pin", "pin", "unpin", "close", "reset", "park", "save", "load"))
        self.storm.did[verb] += 1
        await getattr(self, f"_{verb}")(daemon)

    async def _command(self, daemon: Daemon, method: str, path: str, body: Json | None = None) -> bool:
        """False: it was refused, and then nothing has changed."""
        status, answer = await daemon.ask(method, f"/v1/sessions/{self.name}{path}", body)
        if status != 200:
            self.storm.refused(answer["error"])
        return status == 200

    async def _set_pinned(self, daemon: Daemon, pinned: bool) -> None:
        promise = self.storm.promises.of(self.name)
        before, promise.is_pinned = promise.is_pinned, None
        done = await self._command(daemon, "POST", "/pin", {"pinned": pinned})
        promise.is_pinned = pinned if done else before

    async def _pin(self, daemon: Daemon) -> None:
        await self._set_pinned(daemon, True)

    async def _unpin(self, daemon: Daemon) -> None:
        await self._set_pinned(daemon, False)

    async def _close(self, daemon: Daemon) -> None:
        promise = self.storm.promises.of(self.name)
        promise.unknown()
        if await self._command(daemon, "DELETE", ""):
            promise.is_open = promise.is_pinned = False

    async def _reset(self, daemon: Daemon) -> None:
        await self._command(daemon, "POST", "/reset")

    async def _park(self, daemon: Daemon) -> None:
        await self._command(daemon, "POST", "/park")

    async def _save(self, daemon: Daemon) -> None:
        label = f"label-{self.random.randrange(N_LABELS)}"
        saved = self.storm.promises.saved
        before, saved[label] = saved.get(label), None
        if await self._command(daemon, "POST", "/save", {"name": label}):
            saved[label] = self.messages
        elif before is not None:
            saved[label] = before

    async def _load(self, daemon: Daemon) -> None:
        label = self.random.choice([*self.storm.promises.saved, "label-0"])
        saved, promise = self.storm.promises.saved.get(label), self.storm.promises.of(self.name)
        promise.unknown()
        if await self._command(daemon, "POST", "/load", {"name": label}):
            promise.is_open, promise.is_pinned = True, None
            self.messages = saved or self.messages


class Storm:
    """Lives of one daemon after the other, on one state directory."""

    def __init__(self, model: str, directory: Path, chance: random.Random) -> None:
        self.model, self.directory, self.random = model, directory, chance
        self.promises = Promises()
        self.asked: list[Asked] = []
        self.wrong: list[str] = []
        self.did: Counter[str] = Counter()
        self.n_compared = 0
        self.clients = [Client(self, f"desk-{n}", random.Random(chance.random())) for n in range(N_CLIENTS)]

    def refused(self, error: Json) -> None:
        self.did[error["code"]] += 1
        if error["code"] not in CALM:
            self.wrong.append(f"an error that nothing explains: {error}")

    async def run(self, n_kills: int) -> None:
        reference = await start(self._made("reference"), None, "--model", self.model, *OPTIONS)
        assert reference is not None, (self.directory / "reference" / "log").read_text()
        try:
            for _ in range(n_kills):
                await self._life()
                await self._compare(reference)
                if self.wrong:
                    return
        finally:
            await reference.stop()

    def _made(self, name: str) -> Path:
        path = self.directory / name
        path.mkdir(exist_ok=True)
        return path

    # --- one life ----------------------------------------------------------------------------------------------------

    def _disk(self, end: str) -> Disk:
        is_bad = self.random.random() < 0.5
        return Disk(
            seed=self.random.randrange(1 << 30),
            fails_of_10000=self.random.choice((20, 200, 1000)) if is_bad else 0,
            crash_at=self.random.randrange(1, OPERATIONS_MAX) if end in ("operation", "power") else 0,
            loses_power=end == "power",
            has_bad_clock=self.random.random() < 0.3,
        )

    async def _born(self, disk: Disk) -> Daemon | None:
        """None: it died or its disk failed before it served."""
        return await start(self._made("daemon"), disk, "--model", self.model, *OPTIONS)

    async def _life(self) -> None:
        end = self.random.choice(("kill", "operation", "power", "stop", "kill in stop"))
        disk = self._disk(end)
        self.did[end] += 1
        daemon = await self._born(disk)
        if daemon is None:
            self.did["ended at start"] += 1
            if disk.fails_of_10000 == 0 and disk.crash_at == 0:
                self.wrong.append(f"a start failed on a good disk: {self._log()}")
            return
        try:
            if disk.fails_of_10000 == 0:
                await self._check_promises(daemon)
            await self._serve(daemon)
            await self._end(daemon, end)
        except DaemonEnded:
            await daemon.end()
        if daemon.process.returncode not in (0, -9):
            self.wrong.append(f"it ended with status {daemon.process.returncode}: {self._log()}")
        if disk.loses_power and daemon.process.returncode != 0:
            daemon.lose_memory()
            self.promises.forget_unpinned()

    def _log(self) -> str:
        return (self.directory / "daemon" / "log").read_text()[-2000:]

    async def _check_promises(self, daemon: Daemon) -> None:
        _, listed = await daemon.ask("GET", "/v1/sessions")
        for broken in self.promises.broken_by(listed["data"]):
            self.wrong.append(f"a promise: {broken}")
        self.did["promises checked"] += 1

    async def _serve(self, daemon: Daemon) -> None:
        until = asyncio.get_running_loop().time() + LIFE_S_MAX * self.random.random()

        async def live(client: Client) -> None:
            while asyncio.get_running_loop().time() < until:
                await client.step(daemon)

        results = await asyncio.gather(*(live(client) for client in self.clients), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _end(self, daemon: Daemon, end: str) -> None:
        if end == "stop":
            await daemon.stop()
        elif end == "kill in stop":
            daemon.process.terminate()
            await asyncio.sleep(0.5 * self.random.random())
            await daemon.kill()
        else:
            await daemon.kill()

    # --- what was said -----------------------------------------------------------------------------------------------

    async def _compare(self, reference: Daemon) -> None:
        asked, self.asked = self.asked, []
        for one in asked:
            self.did[one.reason] += 1
            _, answer = await reference.ask("POST", "/v1/chat/completions", {**one.body, "cache_prompt": False})
            expected = answer["choices"][0]["message"]["content"]
            self.n_compared += 1
            if expected != one.text:
                self.wrong.append(f"{one.reason}: {one.text!r} instead of {expected!r}")

    def verdict(self) -> str:
        lines = [f"crash: {told}" for told in self.wrong[:10]]
        lines.append(f"crash: did {dict(self.did)}")
        word = "FAILED" if self.wrong else "passed"
        return "\n".join([*lines, f"crash: {word}: {self.model}, {self.n_compared} answers compared"])
