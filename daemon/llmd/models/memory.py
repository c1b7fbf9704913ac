"""Measures how much memory this machine has for a model, before the model is downloaded. libllm checks the size again
when it opens the model.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..process.config_checks import CGROUP_MOUNT, CGROUP_SELF, cgroups

_MEMINFO = Path("/proc/meminfo")
_NVIDIA = Path("/proc/driver/nvidia/gpus")
_NVIDIA_QUERY = ("nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits")
_CARDS = Path("/sys/class/drm")
_QUERY_S = 20


def free_bytes(with_gpu: bool) -> int | None:
    """Returns the bytes of memory that are available for a model, or None if unknown. With `with_gpu`, this includes
    the memory of NVIDIA's and AMD's GPUs. This memory counts even if llmd is built for the CPU only. In that case,
    libllm refuses a model that is too large for host memory.
    """
    host = _host_bytes()
    return None if host is None else min([host, *_cgroup_bytes()]) + (_gpu_bytes() if with_gpu else 0)


def _host_bytes(meminfo: Path = _MEMINFO) -> int | None:
    with suppress(OSError):
        found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo.read_text(), re.MULTILINE)
        return int(found[1]) * 1024 if found else None
    return None


def _cgroup_bytes(mount: Path = CGROUP_MOUNT, own: Path = CGROUP_SELF) -> Iterator[int]:
    """Yields, for each control group with a memory limit, how many bytes are left until the limit. Cached pages of
    files count as free.
    """
    for group in cgroups(mount, own):
        with suppress(OSError, ValueError):  # ValueError: the file says "max", which means no limit
            limit = int((group / "memory.max").read_text())
            used = int((group / "memory.current").read_text())
            cached = re.findall(r"^(?:in)?active_file (\d+)", (group / "memory.stat").read_text(), re.MULTILINE)
            yield max(0, limit - used + sum(map(int, cached)))


def _gpu_bytes() -> int:
    n_bytes = 0
    if _NVIDIA.is_dir():
        with suppress(OSError, ValueError, subprocess.SubprocessError):
            answer = subprocess.run(_NVIDIA_QUERY, capture_output=True, text=True, check=True, timeout=_QUERY_S)
            n_bytes += sum(int(line) << 20 for line in answer.stdout.split())
    for card in _CARDS.glob("card*/device/mem_info_vram_total"):
        with suppress(OSError, ValueError):
            n_bytes += int(card.read_text()) - int(card.with_name("mem_info_vram_used").read_text())
    return n_bytes
