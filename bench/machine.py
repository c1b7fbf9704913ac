"""What the machine is, and what else it did while something was measured."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def describe() -> str:
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        "unknown processor",
    )
    return f"{model}, {len(os.sched_getaffinity(0))} processors"


def thread_cpu_s(pid: int, tid: int) -> float:
    """Processor time of one thread so far, to the nanosecond where the kernel keeps it."""
    try:
        return int(Path(f"/proc/{pid}/task/{tid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, IndexError):
        return _stat_cpu_s(Path(f"/proc/{pid}/task/{tid}/stat").read_text())


def _stat_cpu_s(stat: str) -> float:
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _processes() -> dict[int, tuple[str, float, int]]:
    """Name, processor time and parent of every process."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue  # it has just ended
        name = stat[stat.index("(") + 1 : stat.rindex(")")]
        found[int(entry.name)] = (name, _stat_cpu_s(stat), int(stat.rpartition(")")[2].split()[1]))
    return found


class Neighbours:
    """Processor time that processes other than this one and its children took since the start."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()
        self._before = _processes()

    def report(self) -> str:
        """ "1.3 of 2 processors (python3 0.9, cc1plus 0.4), load average 2.1"."""
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
    """The day and what was measured: "2026-01-31, commit 0123abc"."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return time.strftime("%Y-%m-%d", time.gmtime()) + (f", commit {commit}" if commit else "")


def process_cpu_s(pid: int) -> float:
    """Processor time of a process so far, of all its threads."""
    return sum(thread_cpu_s(pid, int(task.name)) for task in Path(f"/proc/{pid}/task").iterdir())


def resident_mb(pid: int) -> float:
    """Anonymous, shared and of files."""
    rows = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return int(rows["VmRSS"].split()[0]) / 1000 * 1.024
