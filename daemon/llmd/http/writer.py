"""What the transport asks of a dialect: to turn the parts of answers into bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ..core.parts import Part
from .context import State
from .framing import Framing


class Writer(Protocol):
    """Of one request. `whole`, or `opening`, then `events` as parts come, then `ending`."""

    framing: Framing
    """Of the stream: what `events` are in."""

    def whole(self, parts: Sequence[Part]) -> bytes:
        """The JSON of all answers; none of the parts has failed."""

    def opening(self) -> bytes:
        """Sent before there are any parts; b"" for nothing."""

    def events(self, parts: Sequence[Part]) -> bytes:
        """As many as the parts need. Of no parts, what shows that the answer is being worked on; b"": the framing's."""

    def ending(self) -> bytes:
        """Behind all parts."""


Writing = Callable[[State], Writer]
"""Makes a writer when the first byte is due."""
