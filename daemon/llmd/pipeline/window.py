"""Leaves out most of the messages that a template need not render again.

A prompt that continues a past answer needs only the text after this answer. The template would render the whole
conversation to produce this text: 20 ms and more for 400 messages, several times for each prompt. So the template gets
a window: the last user message before the answer, the answer, and the messages after it.

A template can write the text after the answer differently if earlier messages are left out. For example, Kimi K2's
template numbers all calls of the conversation. So the first prompt of a shape is rendered twice, with the window and
with the whole conversation. The shape of a prompt is what templates distinguish: roles, empty texts, tool calls,
variables, and roughly the number of messages. If the two prompts are equal, later prompts of this shape are rendered
with the window alone. The comparison is repeated for the 9th, 65th, 513th ... prompt. If the prompts ever differ,
the shape gets no window again. This is evidence and no proof: a template could look for a word in an old message. None
of the templates of tests/real_templates does.

Owned by the event loop.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from ..answers.digest import variables_digest
from ..answers.memory import Past
from ..core import limits
from ..core.generation_request import ChatPrompt, PlainMessage
from ..engine.text import Prompt

Shape = tuple[object, ...]
Use = Literal["window", "compare", "whole"]

_AGAIN = 8
"""A prompt is compared if the number of earlier prompts of its shape is 0 or a power of this, except 1."""
_RUN_MAX = 3
"""A longer run of equal messages, such as tool results, has the same shape as a run of this length."""
_REFUSED = -1


@dataclass(frozen=True, slots=True)
class Window:
    messages: list[PlainMessage]
    past: Past
    """The past, with the index of its answer among `messages`."""
    shape: Shape


def window_of(chat: ChatPrompt, messages: Sequence[PlainMessage], past: Past) -> Window | None:
    """Returns the window of a prompt that continues the past. Returns None if no user message precedes the answer, or
    if the window would leave out few messages.
    """
    end = past.message
    first = next((index for index in range(end - 1, -1, -1) if messages[index].role == "user"), None)
    if first is None or end - 1 < limits.WINDOW_LEAVES_OUT_MIN:
        return None
    kept = [messages[first], *messages[end:]]
    left_out = frozenset(map(_kind, [*messages[:first], *messages[first + 1 : end]])), end.bit_length()
    runs = tuple((kind, min(sum(1 for _ in run), _RUN_MAX)) for kind, run in groupby(map(_kind, kept)))
    shape = (runs, left_out, chat.has_opening, chat.continues, bool(chat.tools), variables_digest(chat.variables))
    return Window(kept, dataclasses.replace(past, message=1), shape)


def _kind(message: PlainMessage) -> Shape:
    """Returns what templates distinguish about a message, except its texts."""
    calls = min(len(message.tool_calls), 2)
    return message.role, calls, not message.content.strip(), not message.reasoning, message.name is None


def equals(prompt: Prompt, whole: Prompt) -> bool:
    """Returns whether a window and the whole conversation gave the same prompt. Their boundaries can differ: they only
    say where a checkpoint would be useful.
    """
    return dataclasses.replace(prompt, boundaries=whole.boundaries) == whole


class Windows:
    """The shapes for which a window is known to give the same prompt as the whole conversation, or a different one."""

    def __init__(self, shapes_max: int = limits.WINDOW_SHAPES_MAX) -> None:
        self._n_uses: OrderedDict[Shape, int] = OrderedDict()
        """For each shape, how often a window gave the right prompt, or _REFUSED."""
        self._shapes_max = shapes_max

    def use(self, shape: Shape) -> Use:
        """Returns how to render the next prompt of this shape."""
        n_uses = self._n_uses.get(shape, 0)
        if n_uses == _REFUSED:
            return "whole"
        if n_uses == 1:
            return "window"
        while n_uses and n_uses % _AGAIN == 0:
            n_uses //= _AGAIN
        return "compare" if n_uses in (0, 1) else "window"

    def used(self, shape: Shape, is_right: bool) -> None:
        """Called when a window gave a prompt. `is_right` is False if the prompt differs from that of the whole
        conversation.
        """
        n_before = self._n_uses.pop(shape, 0)
        self._n_uses[shape] = n_before + 1 if is_right and n_before != _REFUSED else _REFUSED
        while len(self._n_uses) > self._shapes_max:
            self._n_uses.popitem(last=False)
