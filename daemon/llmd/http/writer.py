"""The interface of a dialect's writer, which turns the parts of answers into bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ..core.parts import Part
from .context import State
from .framing import Framing


class Writer(Protocol):
    """Writes the answers to one request: `complete`, or `opening`, then `events` as parts come, then `ending`."""

    framing: Framing
    """Framing of the stream."""

    def complete(self, parts: Sequence[Part]) -> bytes:
        """Writes all answers as JSON; none of the parts is Failed."""

    def opening(self) -> bytes:
        """Written before there are any parts; b"" for nothing."""

    def events(self, parts: Sequence[Part]) -> bytes:
        """Writes the events of these parts. Without parts, an event that shows that work goes on; b"": use the
        framing's."""

    def ending(self) -> bytes:
        """Written after all parts."""


Writing = Callable[[State], Writer]
"""Returns the writer; called when the first byte is due."""
