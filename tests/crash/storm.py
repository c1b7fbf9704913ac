"""Clients, and the ways in which their daemon ends."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.crash.daemon import Daemon, DaemonEnded, Disk, Json, Left, start
from tests.crash.promises import NOT_THERE, Label, Promises, broken_by_loaded

N_CLIENTS = 5
N_LABELS = 2
WITNESS = "witness"
"""The storm's own session, into which it loads saved sessions to check them."""
RENAMED = "-renamed"
MESSAGES_MAX = 8
LIFE_S_MAX = 2.0
EDITS = 0.25
"""The share of turns in which a client returns to an earlier message, or requests the last answer again."""
OPERATIONS_MAX = 400
"""A life that ends at a disk operation ends within so many operations, if there are as many."""
VERBS = ("pin", "pin", "unpin", "close", "reset", "park", "save", "save", "load", "unsave", "rename", "fork")
WORDS = "red green blue iron tin gold river lake hill road stone tree bird fish horse seven nine cold warm".split()
RESTORED = frozenset({"restored", "checkpoint", "shared", "rewind", "exact_prefix", "equal"})
"""llama.cpp puts the cells of a window that was saved into another order when it is loaded: the same sums, rounded
differently, also for what goes on from there."""
OPTIONS = (
    "--max-sessions", "3", "--scratch-sessions", "1", "--ctx-size", "1024", "--park-memory", "64K",
    "--checkpoint-memory", "1M", "--checkpoint-every", "16", "--session-timelines", "2", "--history", "template",
    "--shutdown-timeout", "1", "--log-format", "json",
)  # fmt: skip
PARKED_MAX = {"wide": "64", "narrow": "2"}
"""A narrow life has more sessions than this limit. A new session then evicts one that is not pinned."""
COMPLAINTS = ("cannot be removed", "cannot be read", "cannot be listed", "of such messages")
CALM = {"capacity_exhausted", "queue_full", "overloaded", "session_busy", "session_exists", "session_not_found",
        "snapshot_not_found", "nothing_to_save", "io_error", "cancelled", "shutting_down", "no_memory",
        "pins_exhausted", "saved_full", "not_found"}  # fmt: skip
"""Errors that a daemon may return if it is busy, lacks a resource or has a failing disk."""


@dataclass
class Asked:
    body: Json
    text: str
    reason: str


@dataclass
class Client:
    """A client with one conversation under one session name."""

    storm: Storm
    name: str
    random: random.Random
    messages: list[Json] = field(default_factory=list)
    refusal: str = ""
    """The error code of the last command, or "" if it was executed."""

    def _words(self) -> str:
        return " ".join(self.random.choice(WORDS) for _ in range(self.random.randrange(3, 25)))

    def _go_on(self) -> None:
        if not self.messages or len(self.messages) >= MESSAGES_MAX:
            self.messages = [{"role": "system", "content": f"You are {self.name}. Be brief."}]
        if len(self.messages) > 2 and self.random.random() < EDITS:
            self.storm.did["edited"] += 1
            self.messages = self.messages[: self.random.randrange(1, len(self.messages))]
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
        promise.is_open = True
        choice, session = answer["choices"][0]["message"], answer["session"]
        promise.trail.append(f"answer: {session['session_reset_reason']}")
        said = {"role": "assistant", "content": choice["content"]}
        self.storm.asked.append(Asked(body, choice["content"], session["session_reset_reason"] or "none"))
        if self.random.random() < 0.8:
            self.messages = [*self.messages, said]

    async def _verb(self, daemon: Daemon) -> None:
        verb = self.random.choice(VERBS)
        self.storm.did[verb] += 1
        await getattr(self, f"_{verb}")(daemon)

    async def _command(self, daemon: Daemon, method: str, path: str, body: Json | None = None) -> Json:
        """The answer; nothing: it was refused, and then nothing has changed, but for `refusal`s that may come after."""
        trail = self.storm.promises.of(self.name).trail
        trail.append(f"{method} {path} {body or ''}")
        status, answer = await daemon.ask(method, f"/v1/sessions/{self.name}{path}", body)
        trail.append(str(status) if status == 200 else answer["error"]["code"])
        self.refusal = answer["error"]["code"] if status != 200 else ""
        if status != 200:
            self.storm.refused(answer["error"])
        if status == 500:
            self.storm.promises.of(self.name).haunted()
        return answer if status == 200 else {}

    async def _set_pinned(self, daemon: Daemon, pinned: bool) -> None:
        promise = self.storm.promises.of(self.name)
        before, promise.is_pinned = promise.is_pinned, None
        done = await self._command(daemon, "POST", "/pin", {"pinned": pinned})
        promise.is_pinned = pinned if done else before
        if self.refusal == NOT_THERE:
            promise.unknown()

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
        promise = self.storm.promises.of(self.name)
        if not promise.is_pinned:
            promise.is_open = None  # an empty session that is not pinned is not kept
        await self._command(daemon, "POST", "/reset")

    async def _park(self, daemon: Daemon) -> None:
        await self._command(daemon, "POST", "/park")

    def _label(self) -> str:
        """Returns a label that only this client uses. If two clients used one label, which of them saved last would be
        unknown.
        """
        return f"{self.name.removesuffix(RENAMED)}-{self.random.randrange(N_LABELS)}"

    async def _save(self, daemon: Daemon) -> None:
        label, saved = self._label(), self.storm.promises.saved
        before, saved[label] = saved.get(label), None
        held = daemon.contents(self.name)
        status, answer = await daemon.ask("POST", f"/v1/sessions/{self.name}/save", {"name": label})
        held |= daemon.contents(self.name)
        after = Label(True, self.messages, answer["tokens"], held) if status == 200 else None
        self._saved(label, status, answer, before, after)

    async def _unsave(self, daemon: Daemon) -> None:
        label, saved = self._label(), self.storm.promises.saved
        before, saved[label] = saved.get(label), None
        status, answer = await daemon.ask("DELETE", f"/v1/saved/{label}")
        self._saved(label, status, answer, before, Label(False))

    def _saved(self, label: str, status: int, answer: Json, before: Label | None, after: Label | None) -> None:
        if status == 200:
            self.storm.promises.saved[label] = after
            return
        self.storm.refused(answer["error"])
        if status != 500:
            self.storm.promises.saved[label] = before

    async def _rename(self, daemon: Daemon) -> None:
        """Renames a session to its other name and back."""
        old, promises = self.name, self.storm.promises
        new = old.removesuffix(RENAMED) if old.endswith(RENAMED) else old + RENAMED
        was = replace(promises.of(old))
        promises.of(old).unknown()
        promises.of(new).unknown()
        if await self._command(daemon, "POST", "/rename", {"session_id": new}):
            promises.of(new).is_open, promises.of(new).is_pinned = was.is_open, was.is_pinned
            promises.of(new).trail.append(f"renamed from {old}, pinned: {was.is_pinned}")
            promises.of(old).is_open = promises.of(old).is_pinned = False
            self.name = new

    async def _fork(self, daemon: Daemon) -> None:
        fork = self.storm.promises.of(f"{self.name}-fork")
        was = replace(fork)
        fork.unknown()
        made = await self._command(daemon, "POST", "/fork", {"session_id": f"{self.name}-fork", "replace": True})
        if made:
            fork.is_open, fork.is_pinned = made["tokens"] > 0 or None, False
            fork.trail.append(f"forked from {self.name}, {made['tokens']} tokens")
        else:
            fork.taken_back(was, self.refusal)

    async def _load(self, daemon: Daemon) -> None:
        label = self.random.choice([*self.storm.promises.saved, "none"])
        saved, promise = self.storm.promises.saved.get(label), self.storm.promises.of(self.name)
        was = replace(promise)
        promise.unknown()
        if not await self._command(daemon, "POST", "/load", {"name": label, "replace": True}):
            promise.taken_back(was, self.refusal)
        else:
            promise.is_open, promise.is_pinned = True, was.is_pinned if was.is_open is not None else None
            if saved is not None and saved.messages:
                self.messages = saved.messages


class Storm:
    """Several lives of a daemon, one after the other, with one state directory."""

    def __init__(self, model: str, directory: Path, chance: random.Random) -> None:
        self.model, self.directory, self.random = model, directory, chance
        self.promises = Promises()
        self.asked: list[Asked] = []
        self.wrong: list[str] = []
        self.did: Counter[str] = Counter()
        self.n_compared = 0
        self.width = "wide"
        self.left: dict[int, Left] | None = None
        """What the last life left for the next one to find, if it was killed."""
        self.rounded: frozenset[str] = frozenset()
        self.clients = [Client(self, f"desk-{n}", random.Random(chance.random())) for n in range(N_CLIENTS)]

    def refused(self, error: Json) -> None:
        self.did[error["code"]] += 1
        if error["code"] not in CALM:
            self.wrong.append(f"an error that nothing explains: {error}")

    async def run(self, n_kills: int) -> None:
        reference = await start(self._made("reference"), None, self.model, *OPTIONS)
        assert reference is not None, (self.directory / "reference" / "log").read_text()
        try:
            _, models = await reference.ask("GET", "/v1/models")
            if models["data"][0]["meta"]["memory"] == "window" and not self.model.startswith("sim:"):
                self.rounded = RESTORED
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
        """Starts a daemon. Returns None if it ended or its disk failed before it was ready."""
        return await start(self._made("daemon"), disk, self.model, *OPTIONS, "--max-parked", PARKED_MAX[self.width])

    async def _life(self) -> None:
        end = self.random.choice(("kill", "operation", "power", "stop", "kill in stop"))
        self.width = "narrow" if self.random.random() < 0.3 else "wide"
        disk = self._disk(end)
        self.did.update((end, self.width))
        for promise in self.promises.sessions.values():
            promise.trail.append(f"[{self.width} life {self.did.total()} {end} fails {disk.fails_of_10000}]")
        log = self.directory / "daemon" / "log"
        since = len(log.read_text()) if log.exists() else 0
        daemon = await self._born(disk)
        if daemon is None or disk.fails_of_10000 > 0:
            self.left = None
        if daemon is None:
            self.did["ended at start"] += 1
            if disk.fails_of_10000 == 0 and disk.crash_at == 0:
                self.wrong.append(f"a start failed on a good disk: {self._log()}")
            self._complaints(since)
            if self.width == "narrow":
                self.promises.forget_unpinned()
            return
        try:
            if disk.fails_of_10000 == 0:
                await self._check_promises(daemon)
            await self._serve(daemon)
            await self._end(daemon, end)
        except DaemonEnded:
            await daemon.end()
        finally:
            daemon.process.kill()  # has no effect on a process that has ended
        if disk.fails_of_10000 > 0:
            self._complaints(since)
        if daemon.process.returncode not in (0, -9):
            self.wrong.append(f"it ended with status {daemon.process.returncode}: {self._log()}")
        is_powerless = disk.loses_power and daemon.process.returncode != 0
        if is_powerless:
            daemon.lose_memory()
        is_killed = daemon.process.returncode == -9
        self.left = daemon.left() if is_killed and disk.fails_of_10000 == 0 and not is_powerless else None
        if is_powerless or self.width == "narrow":
            self.promises.forget_unpinned()

    def _log(self) -> str:
        return (self.directory / "daemon" / "log").read_text()[-2000:]

    def _complaints(self, since: int) -> None:
        """Finds messages in the daemon's log that excuse differences: a disk operation failed to read or remove a
        session.
        """
        log = (self.directory / "daemon" / "log").read_text()[since:].splitlines()
        complaints = [line for line in log if any(told in line for told in COMPLAINTS)]
        if complaints:
            self.did["lives with complaints"] += 1
            for promise in self.promises.sessions.values():
                promise.haunted()
        if any("saved" in line or "of such messages" in line for line in complaints):
            self.promises.saved.clear()

    async def _check_promises(self, daemon: Daemon) -> None:
        _, listed = await daemon.ask("GET", "/v1/sessions")
        _, saved = await daemon.ask("GET", "/v1/saved")
        self._check_left(daemon)
        self._check_files(daemon, len(saved["data"]))
        assert listed["places"]["dormant"] == 0, listed["places"]
        broken = self.promises.broken_by(listed["data"])
        broken += self.promises.broken_by_saved({one["name"]: one["tokens"] for one in saved["data"]})
        self.wrong += [f"a promise: {told}" for told in broken]
        self.did["promises checked"] += 1
        for label, kept in self.promises.saved.items():
            if kept is not None and kept.is_there:
                await self._look_at(daemon, label, kept)

    def _check_left(self, daemon: Daemon) -> None:
        """Checks that each timeline exists once, with its name and its pin, and that there are no others."""
        left, self.left = self.left, None
        if left is None:
            return
        found = daemon.left()
        self.wrong += [f"{left[one] or one} is gone" for one in left.keys() - found.keys()]
        self.wrong += [f"{found[one]} has come from nowhere" for one in found.keys() - left.keys()]
        for one in left.keys() & found.keys():
            if left[one] not in (None, found[one]):
                self.wrong.append(f"{left[one]} has become {found[one]}")
        self.did["timelines found again"] += len(found)

    def _check_files(self, daemon: Daemon, n_saved: int) -> None:
        """Checks that the number of files and entries does not grow from life to life."""
        self.wrong += daemon.strays()
        n_files = sum(1 for _ in daemon.state.glob("*/saved/*.llmd-session"))
        if n_files != n_saved:
            self.wrong.append(f"{n_files} files of saved sessions instead of {n_saved}")
        twice = [one for one, n in Counter(daemon.ids()).items() if n > 1]
        self.wrong += [f"the branch {one:016x} has several entries" for one in twice]
        self.did["files checked"] += 1

    async def _look_at(self, daemon: Daemon, label: str, saved: Label) -> None:
        """Checks that the contents on disk are those that were saved, and that an answer that continues them equals the
        answer of a new session.
        """
        status, loaded = await daemon.ask("POST", f"/v1/sessions/{WITNESS}/load", {"name": label})
        if status != 200:
            self.refused(loaded["error"])
            self.wrong += [f"{label} cannot be loaded: {loaded}"] * (loaded["error"]["code"] == "snapshot_not_found")
            return
        self.wrong += broken_by_loaded(label, saved, daemon.contents(WITNESS))
        self.did["saved ones looked at"] += bool(saved.contents)
        body = {"messages": [*saved.messages, {"role": "user", "content": "Go on."}], "max_tokens": 8, "temperature": 0}
        status, answer = await daemon.ask("POST", "/v1/chat/completions", {**body, "session_id": WITNESS})
        if status != 200:
            self.refused(answer["error"])
            return
        said, report = answer["choices"][0]["message"]["content"], answer["session"]
        self.asked.append(Asked(body, said, report["session_reset_reason"]))

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
            if one.reason in self.rounded:
                continue
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
