"""Shows the progress of a download: a bar in a terminal, otherwise a few lines."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable

from ..process.progress import Download
from .choice import gib

_BAR_S = 0.2
"""Shortest time between two drawings of the bar."""
_STEP_PERCENT = 10
_BAR_CHARS = 24


class DownloadDisplay:
    """Shows how much of a download is done. Called after each change of a download, in the thread that downloads."""

    def __init__(self, say: Callable[[str], None], has_bar: bool | None = None) -> None:
        """`say` prints a line. If `has_bar` is None, a bar is drawn on a terminal only."""
        self._say = say
        self._has_bar = _is_terminal() if has_bar is None else has_bar
        self._percent_said = -1
        self._drawn_s = 0.0
        self._began: tuple[float, int] | None = None

    def __call__(self, download: Download) -> None:
        if self._began is None:
            self._began = (time.monotonic(), download.n_bytes)
        if self._has_bar:
            self._draw(download)
        else:
            self._say_sometimes(download)
        if not download.is_running:
            self._began, self._percent_said = None, -1

    def _draw(self, download: Download) -> None:
        now = time.monotonic()
        if download.is_running and now - self._drawn_s < _BAR_S:
            return
        self._drawn_s = now
        line = bar(download, self._seconds_left(download, now))[: shutil.get_terminal_size().columns - 1]
        end = "\r" if download.is_running else "\n"  # after \r, the next log line overwrites the bar
        try:
            sys.stderr.write(f"\033[K{line}{end}")
            sys.stderr.flush()
        except OSError:
            self._has_bar = False

    def _say_sometimes(self, download: Download) -> None:
        percent = download.percent() // _STEP_PERCENT * _STEP_PERCENT
        if percent > self._percent_said:
            self._percent_said = percent
            self._say(f"downloading {download.name}: {percent} % of {gib(download.n_bytes_total)}")

    def _seconds_left(self, download: Download, now: float) -> float | None:
        assert self._began is not None
        began_s, n_before = self._began
        n_new = download.n_bytes - n_before
        left = download.n_bytes_total - download.n_bytes
        return left * (now - began_s) / n_new if n_new > 0 and left > 0 else None


def bar(download: Download, seconds_left: float | None) -> str:
    """Returns one line, such as "Qwen/Qwen3-8B  43 % [##########              ] 2.1 GiB of 4.9 GiB, 3 min left"."""
    n = _BAR_CHARS * download.percent() // 100
    left = ""
    if download.is_checking:
        left = ", checking"
    elif seconds_left is not None:
        left = f", {seconds_left / 60:.0f} min left" if seconds_left >= 90 else f", {seconds_left:.0f} s left"
    return (
        f"{download.name} {download.percent():3d} % [{'#' * n}{' ' * (_BAR_CHARS - n)}] "
        f"{gib(download.n_bytes)} of {gib(download.n_bytes_total)}{left}"
    )


def _is_terminal() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
