"""One life of a daemon, with a disk that may fail."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp

from llmd.engine.native import SessionTable
from tests.serving import environment_without_options

Json = dict[str, Any]
Left = tuple[str, bool] | None
"""Name and pin of a timeline, if its segment has them."""

ANSWER_S_MAX = 600.0
START_S_MAX = 600.0
"""The limit is long because a storm may run with the lowest priority next to other work."""


@dataclass(frozen=True, kw_only=True)
class Disk:
    """The settings of disk.c."""

    seed: int = 0
    fails_of_10000: int = 0
    crash_at: int = 0
    loses_power: bool = False
    has_bad_clock: bool = False

    def environment(self, directory: Path) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(shim()),
            "CRASH_DIR": str(directory),
            "CRASH_SEED": str(self.seed),
            "CRASH_FAIL": str(self.fails_of_10000),
            "CRASH_AT": str(self.crash_at),
            "CRASH_POWER": str(int(self.loses_power)),
            "CRASH_CLOCK": str(int(self.has_bad_clock)),
        }


@cache
def shim() -> Path:
    """Returns the path of the compiled disk.c."""
    source, made = Path(__file__).with_name("disk.c"), Path(__file__).parents[2] / "build" / "crash" / "disk.so"
    if not made.exists() or made.stat().st_mtime < source.stat().st_mtime:
        made.parent.mkdir(parents=True, exist_ok=True)
        compiler = os.environ.get("CC", "gcc")
        flags = ["-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"]
        partial = made.with_suffix(f".{os.getpid()}")
        subprocess.run([compiler, *flags, "-o", partial, source, "-ldl"], check=True)
        partial.rename(made)
    return made


class DaemonEnded(Exception):
    """The daemon has ended. Further requests go to its next life."""


@dataclass
class Daemon:
    """A running daemon."""

    process: subprocess.Popen[bytes]
    http: aiohttp.ClientSession
    log: Path
    state: Path
    segments: set[Path] = field(default_factory=set)
    born_s: float = field(default_factory=time.time)

    async def ask(self, method: str, path: str, body: Json | None = None) -> tuple[int, Json]:
        """Sends a request and returns its status and body. Raises DaemonEnded if no complete answer arrives."""
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                async with self.http.request(method, "http://llmd" + path, json=body) as response:
                    data = await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise DaemonEnded(str(error)) from error
        return response.status, json.loads(data)

    async def kill(self) -> None:
        self.process.kill()
        await self.end()

    async def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        await self.end()

    async def end(self) -> None:
        await asyncio.to_thread(self.process.wait, START_S_MAX)
        await self.http.close()

    def contents(self, session: str) -> frozenset[bytes]:
        """Returns the tokens of the session's timelines. A timeline that is evicted in the meantime is left out,
        because its entry may already have another session's tokens.
        """
        found = set()
        for table in [SessionTable.open(f"/{segment.name}") for segment in self.segments]:
            for view in [view for view in table.sessions() if view.name == session]:
                tokens, after = table.tokens(view.entry), table.session(view.entry)
                if after is not None and (after.name, after.opened_ms) == (session, view.opened_ms):
                    found.add(bytes(tokens or b""))
        return frozenset(found)

    def left(self) -> dict[int, Left]:
        """Returns the timelines of named sessions, by id, which a start must find after this daemon was killed."""
        found = {int(file.name.partition(".")[0], 16): None for file in self.state.glob("*/*.llmd-session")}
        left: dict[int, Left] = dict.fromkeys(found)
        for segment in filter(Path.exists, self.segments):
            views = [view for view in SessionTable.open(f"/{segment.name}").sessions() if view.name]
            left |= {view.id: (view.name, view.is_pinned == 1) for view in views if view.n_tokens or view.id in found}
        return left

    def ids(self) -> list[int]:
        """Returns the ids of named branches that have an entry."""
        return [
            view.id
            for segment in self.segments
            for view in SessionTable.open(f"/{segment.name}").sessions()
            if view.name
        ]

    def strays(self) -> list[str]:
        """Returns files that belong to no session after the daemon has started. After many crashes, such files would
        fill the disk.
        """
        return strays_in(self.state, self.born_s)

    def lose_memory(self) -> None:
        """Deletes what a machine loses in a power cut."""
        for segment in self.segments:
            segment.unlink(missing_ok=True)


def strays_in(state: Path, since_s: float) -> list[str]:
    """Returns states without a session, refused files, and unfinished files that were last written before that time."""
    files = [file for file in state.rglob("*") if file.is_file()]
    sessions = {file.with_suffix("") for file in files if file.suffix == ".llmd-session"}
    found = []
    for file in files:
        if file.suffix == ".llmd-state" and file.with_suffix("") not in sessions:
            found.append(f"{file} has no session")
        elif file.suffix in (".refused", ".refused-state"):
            found.append(f"{file}: a crash has damaged a file")
        elif file.suffix in (".writing", ".writing-state"):
            with contextlib.suppress(FileNotFoundError):
                if file.stat().st_mtime < since_s:
                    found.append(f"{file} was left by an earlier life")
    return found


def _segments_of(pid: int) -> set[Path]:
    mapped = Path(f"/proc/{pid}/maps").read_text()
    return {Path(line.split()[-1]) for line in mapped.splitlines() if "/dev/shm/llmd-" in line}


async def start(directory: Path, disk: Disk | None, model: str, *options: str) -> Daemon | None:
    """Starts a daemon. Returns None if it ended before it was ready. The log then has its exit status and the
    reason.
    """
    socket, log, state = directory / "llmd.sock", directory / "log", directory / "state"
    environment = environment_without_options()
    program = "llmd"
    if not model.startswith("sim:"):
        program, environment["LLMD_LIBLLM_VARIANT"] = "tests.crash.exactly", "exact"
    where = ["--port", "0", "--socket", str(socket), "--state-dir", str(state)]
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: ASYNC220 -- it is killed and waited for, whatever the loop does
            [sys.executable, "-m", program, *where, "--model", model, *options],
            stdout=output,
            stderr=output,
            env=environment | (disk.environment(state) if disk is not None else {}),
        )
    http = aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket), limit=0))
    daemon = Daemon(process, http, log, state)
    async with asyncio.timeout(START_S_MAX):
        while process.poll() is None:
            with contextlib.suppress(DaemonEnded, json.JSONDecodeError):
                status, _ = await daemon.ask("GET", "/ready")
                if status == 200:
                    daemon.segments = _segments_of(process.pid)
                    return daemon
            await asyncio.sleep(0.05)
    await http.close()
    return None
