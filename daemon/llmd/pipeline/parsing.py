"""Turns the text of one answer into parts: text, reasoning, tool calls.

An answer whose prompt has no syntax (Prompt.syntax) is plain text, and needs no parsing. Other answers are parsed as
they arrive: small pieces on the event loop, larger pieces in a text thread. The size of a piece includes earlier
characters that the parser has to parse again. Each answer has at most one piece in a thread at a time. This keeps the
parts in order. The text that waits for the parser counts as undelivered text, which is limited. If the parser fails,
the rest of the answer is returned as text. The event loop owns all objects of this module.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..core import limits
from ..core.errors import ApiError
from ..core.generation_request import PlainMessage, PlainToolCall
from ..core.parts import ContentPart, ReasoningPart, TextPart, ToolCallPiece
from ..core.tools import is_object
from ..engine.answer_parser import Diff
from ..engine.generation import TokenEnds

log = logging.getLogger("llmd.pipeline")


class Parser(Protocol):
    """The interface of AnswerParser. Every thread can call it, but only one at a time."""

    @property
    def n_reread(self) -> int: ...

    def feed(self, text: str, is_final: bool, is_cut: bool) -> list[Diff]: ...


InThread = Callable[[int, Callable[[], list[Diff]]], Awaitable[list[Diff]]]
"""Function that runs a call in a text thread. Its first argument is the number of characters that the call parses."""


class Parsing:
    def __init__(self, index: int, parser: Parser | None, in_thread: InThread) -> None:
        """`parser` is None if the answer is plain text."""
        self._index = index
        self._parser = parser
        self._in_thread = in_thread
        self._withheld: list[str] = []
        """Text that the parser has received since it last returned a Diff. If the parser fails, the client gets this
        text unparsed.
        """
        self._calls: dict[int, _Call] = {}
        self._texts: list[str] = []
        self.ends = TokenEnds()
        """The position in the answer's text at which each token ends. The generation adds these positions."""
        self._read: list[str] = []
        """The text of the answer so far, before parsing. It is needed to count the reasoning tokens."""
        self._thoughts: list[list[str]] = []
        """Passages of reasoning, each as a list of pieces. Text or a tool call between two pieces begins a new
        passage.
        """
        self._thinks = False
        self._blanks: list[str] = []
        """Blanks at the end of the reasoning so far. They are reported only if more reasoning follows."""

    async def fed(self, text: str, is_final: bool, is_cut: bool = False) -> list[ContentPart]:
        """Parses text, and returns the parts that can be reported now. `is_final` says that this is the last text of
        the answer. `is_cut` says that the answer was cut off after this text. Each call must be awaited before the next
        call.
        """
        if not (text or is_final):
            return []
        self._read.append(text)
        return [part for diff in await self._diffs(text, is_final, is_cut) for part in self._parts(diff)]

    def message(self) -> PlainMessage:
        """Returns the message so far, in the form in which the client will send it back."""
        calls = tuple(PlainToolCall(call.name, "".join(call.arguments), call.id) for call in self._calls.values())
        return PlainMessage("assistant", "".join(self._texts), calls, reasoning=self.reasoning or None)

    def has_unfinished_call(self) -> bool:
        """Returns whether a tool call of the answer is incomplete or malformed."""
        return not all(is_object("".join(call.arguments)) for call in self._calls.values())

    @property
    def reasoning(self) -> str:
        return "".join(map("".join, self._thoughts))

    @property
    def n_reasoning(self) -> int:
        return count_thoughts("".join(self._read), self._thoughts, self.ends) if self._thoughts else 0

    # --- the parser --------------------------------------------------------------------------------------------------

    async def _diffs(self, text: str, is_final: bool, is_cut: bool) -> list[Diff]:
        if (parser := self._parser) is None:
            return [Diff("text", text)]
        n_read = len(text) + parser.n_reread
        try:
            if n_read <= limits.PARSED_ON_LOOP_CHARS_MAX:
                diffs = parser.feed(text, is_final, is_cut)
            else:
                diffs = await self._in_thread(n_read, lambda: parser.feed(text, is_final, is_cut))
        except Exception as error:
            return self._fall_back_to_text(error, text)
        if diffs:
            self._withheld.clear()
        else:
            self._withheld.append(text)
        return diffs

    def _fall_back_to_text(self, error: Exception, text: str) -> list[Diff]:
        """Stops parsing. Text that the parser has not returned yet, and the rest of the answer, are returned as plain
        text.
        """
        if not isinstance(error, ApiError):  # an ApiError means that the server is stopping
            log.error("cannot parse an answer; its rest is returned as text", exc_info=error)
        self._parser, unreturned = None, "".join([*self._withheld, text])
        return [Diff("text", unreturned)] if unreturned else []

    # --- parts of the answer -----------------------------------------------------------------------------------------

    def _parts(self, diff: Diff) -> Sequence[ContentPart]:
        if diff.kind == "call":
            return self._pieces(diff)
        if not diff.text:
            return ()
        if diff.kind == "reasoning":
            return self._thought(diff.text)
        self._end_thought()
        self._texts.append(diff.text)
        return (TextPart(self._index, diff.text),)

    def _thought(self, text: str) -> Sequence[ContentPart]:
        """Returns the reasoning without the blanks at its end. The client sends the reasoning back, and templates write
        the blanks after it themselves.
        """
        stripped = text.rstrip()
        if not stripped:
            self._blanks.append(text)
            return ()
        reasoning = "".join([*self._blanks, stripped])
        self._blanks = [text[len(stripped) :]]
        if not self._thinks:
            self._thinks = True
            self._thoughts.append([])
        self._thoughts[-1].append(reasoning)
        return (ReasoningPart(self._index, reasoning),)

    def _end_thought(self) -> None:
        self._blanks.clear()
        self._thinks = False

    def _pieces(self, diff: Diff) -> Sequence[ContentPart]:
        self._end_thought()
        call = self._calls.get(diff.call)
        if call is None:
            id = diff.id or "call_" + secrets.token_hex(12)
            call = self._calls[diff.call] = _Call(diff.name, id, [diff.text])
            return (ToolCallPiece(self._index, diff.call, diff.text, call.id, call.name),)
        if not diff.text:
            return ()
        call.arguments.append(diff.text)
        return (ToolCallPiece(self._index, diff.call, diff.text),)


@dataclass(frozen=True, slots=True)
class _Call:
    name: str
    id: str
    arguments: list[str]


def count_thoughts(answer: str, thoughts: Sequence[Sequence[str]], ends: TokenEnds) -> int:
    """Returns the number of reasoning tokens. Finds the reasoning in the answer's text before parsing, and counts the
    tokens there. `thoughts` are the passages of reasoning, each as a list of the pieces in which the passage arrived.
    """
    n_tokens = at = 0
    for pieces in thoughts:
        whole = "".join(pieces)
        # the whole passage is not found if the parser has left out characters between its pieces
        for text in [whole] if answer.find(whole, at) >= 0 else pieces:
            begin = answer.find(text, at)
            if begin >= 0:
                at = begin + len(text)
                n_tokens += ends.count(begin, at)
    return n_tokens
