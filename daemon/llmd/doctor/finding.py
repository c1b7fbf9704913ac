"""One result of `llmd doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "slow", "wrong"]
"""`slow` means that llmd works, but does not use all that the machine offers. `wrong` means that llmd does not start,
or does not do what it is configured to do.
"""


@dataclass(frozen=True, slots=True)
class Finding:
    subject: str
    verdict: Verdict
    fact: str
    advice: str = ""
    """What to do. "" if the verdict is ok."""


def size(n_bytes: int) -> str:
    """Returns a text such as "1.5 GiB"."""
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 2**30 else f"{n_bytes / 2**20:.0f} MiB"
