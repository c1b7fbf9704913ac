"""Describes this machine, and the load that other processes caused while a measurement ran."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_FEATURES = os.environ.get("LLMD_CPU_FEATURES", "")
PROGRAMS = Path(__file__).parents[1] / "build" / (f"native-{_FEATURES}" if _FEATURES else "native") / "bench"
"""The folder of the measuring programs in C."""

# Instruction sets that decide which compute kernels llama.cpp uses, the fastest first. `processor` shows only the first
# that the processor has.
_INSTRUCTIONS = (("amx_int8", "AMX"), ("avx512_vnni", "AVX-512 VNNI"), ("avx512f", "AVX-512"), ("avx2", "AVX2"))


def describe() -> str:
    """Returns a text such as "AMD EPYC (family 25, model 17; AVX-512 VNNI), 2 processors". The name of the processor is
    not enough, because different models can have the same name. If both servers were built for fewer instructions than
    the processor has, adds "built for avx2".
    """
    built = f", built for {_FEATURES}" if _FEATURES else ""
    return f"{processor(Path('/proc/cpuinfo').read_text())}, {len(os.sched_getaffinity(0))} processors{built}"


def processor(cpuinfo: str) -> str:
    first = cpuinfo.strip().split("\n\n")[0]
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())}
    make = [f"family {facts['cpu family']}, model {facts['model']}"] if "cpu family" in facts else []
    flags = facts.get("flags", "").split()
    best = [name for flag, name in _INSTRUCTIONS if flag in flags][:1]
    told = "; ".join(make + best)
    return facts.get("model name", "unknown processor") + (f" ({told})" if told else "")


def thread_cpu_s(pid: int, tid: int) -> float:
    """Returns the processor time in seconds that a thread has used so far. It is exact to a nanosecond if the kernel
    has `schedstat`, otherwise to a clock tick.
    """
    try:
        return int(Path(f"/proc/{pid}/task/{tid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, IndexError):
        return _stat_cpu_s(Path(f"/proc/{pid}/task/{tid}/stat").read_text())


def _stat_cpu_s(stat: str) -> float:
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _processes() -> dict[int, tuple[str, float, int]]:
    """Returns the name, the processor time in seconds and the parent's pid of every process, by pid."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue  # the process has ended meanwhile
        name = stat[stat.index("(") + 1 : stat.rindex(")")]
        found[int(entry.name)] = (name, _stat_cpu_s(stat), int(stat.rpartition(")")[2].split()[1]))
    return found


class Neighbours:
    """Measures how much processor time other processes use. Processes that this process has started are left out."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()
        self._before = _processes()

    def report(self) -> str:
        """Returns a text about the time since this object was made. Example: "others took 1.30 of 2 processors (python3
        0.90, cc1plus 0.40), load average 2.1".
        """
        elapsed_s = time.monotonic() - self._started_s
        by_name: dict[str, float] = {}
        total = 0.0
        after = _processes()
        for pid, (name, cpu_s, _) in after.items():
            share = (cpu_s - self._before.get(pid, ("", 0.0, 0))[1]) / elapsed_s
            if share >= 0.01 and not _is_ours(pid, after):
                by_name[name] = by_name.get(name, 0.0) + share
                total += share
        largest = sorted(by_name.items(), key=lambda item: -item[1])[:3]
        names = ", ".join(f"{name} {share:.2f}" for name, share in largest)
        return (
            f"others took {total:.2f} of {os.cpu_count()} processors{f' ({names})' if names else ''}, "
            f"load average {os.getloadavg()[0]:.1f}"
        )


def _is_ours(pid: int, processes: dict[int, tuple[str, float, int]]) -> bool:
    while pid in processes:
        if pid == os.getpid():
            return True
        pid = processes[pid][2]
    return False


def today() -> str:
    """Returns today's date and the commit of the repository, such as "2026-01-31, commit 0123abc". Adds "and changes"
    if the sources differ from this commit.
    """
    commit = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--", ":/", *(f":!/{path}" for path in _NO_SOURCES))
    of_commit = f", commit {commit}{' and changes' if changed else ''}" if commit else ""
    return time.strftime("%Y-%m-%d", time.gmtime()) + of_commit


_NO_SOURCES = ("docs", "bench/results", "README.md", "CHANGELOG.md", "ARCHITECTURE.md")


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def process_cpu_s(pid: int) -> float:
    """Returns the processor time in seconds that all threads of a process have used so far."""
    return sum(thread_cpu_s(pid, int(task.name)) for task in Path(f"/proc/{pid}/task").iterdir())


def resident_mb(pid: int) -> float:
    """Returns the resident memory of a process in megabytes. Memory that is shared, or mapped from files, counts,
    too.
    """
    rows = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return int(rows["VmRSS"].split()[0]) / 1000 * 1.024
