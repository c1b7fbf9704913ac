"""Checks the options whose valid values depend on other options, or on this machine."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path, PurePosixPath

from .config_table import SLOTS_MAX, Config


class ConfigError(Exception):
    """Raised for an invalid value of an option, or an unreadable file of --config. The message names the option or the
    file.
    """


def check(config: Config) -> None:
    """Raises ConfigError if options are not valid together, although the value of each is valid."""
    if config.max_sessions + config.scratch_sessions > SLOTS_MAX:
        raise ConfigError(
            f"--max-sessions {config.max_sessions} and --scratch-sessions {config.scratch_sessions} "
            f"add up to more than the limit, {SLOTS_MAX}; choose smaller numbers"
        )


def remarks(config: Config) -> list[str]:
    """Returns warnings about options whose values are valid, but are probably a mistake."""
    n = n_processors()
    if config.threads <= n:
        return []
    processors = f"{n} processor{'s' if n > 1 else ''}"
    return [
        f"--threads {config.threads}: this process may use only {processors}; with more threads than processors, "
        "each token takes many times as long"
    ]


CGROUP_MOUNT = Path("/sys/fs/cgroup")
CGROUP_SELF = Path("/proc/self/cgroup")


def n_processors(mount: Path = CGROUP_MOUNT, own: Path = CGROUP_SELF) -> int:
    """Returns the number of processors that this process can use. This is the smallest of these limits:
    - the number of processors in the affinity mask,
    - the CPU quotas of the control groups (version 2).

    libllm computes the same number in machine/cgroup.h.
    """
    return min([len(os.sched_getaffinity(0)), *_quotas(mount, own)])


def _groups(mount: Path = CGROUP_MOUNT, own: Path = CGROUP_SELF) -> list[Path]:
    """Returns the folders of this process's control group and of all groups above. Only groups of version 2 count."""
    group = PurePosixPath("/")
    with suppress(OSError):
        named = [line.removeprefix("0::") for line in own.read_text().splitlines() if line.startswith("0::/")]
        group = PurePosixPath(named[0]) if named and "/.." not in named[0] else group
    return [mount / level.relative_to("/") for level in (group, *group.parents)]


def _quotas(mount: Path, own: Path) -> list[int]:
    """Returns the CPU quotas of this process's control group and of all groups above that group. A quota is a number of
    processors, rounded up. Groups without a readable quota are left out.
    """
    found = []
    for group in _groups(mount, own):
        with suppress(OSError, ValueError):  # ValueError: the file says "max", which means no quota
            quota, period = map(int, (group / "cpu.max").read_text().split())
            found.append(math.ceil(quota / period))
    return found
