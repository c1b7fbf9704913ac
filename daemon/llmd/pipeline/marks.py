"""Marks: positions in a prompt that the client has marked with cache_control. The client expects other prompts to
differ after them. llmd takes checkpoints at marks if the model's memory cannot be truncated at every token. All
functions are pure.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ..core import limits
from ..core.generation_request import PlainMessage
from .history import n_of_system


def marked_heads(messages: Sequence[PlainMessage], after: int = -1) -> list[list[PlainMessage]]:
    """For each of the conversation's last marks, in order, returns the messages up to the mark. Only marks in messages
    after the message with index `after` count. Marks at the end of the system messages or of the conversation are left
    out. Checkpoints are taken at these positions anyway.
    """
    kept = {n_of_system(messages) - 1, len(messages) - 1}
    positions = [
        (index, mark)
        for index, message in enumerate(messages)
        for mark in dict.fromkeys(message.marks)
        if index > after and not (mark == len(message.content) and index in kept)
    ]
    return [_head(messages, *position) for position in positions[-limits.MARKS_MAX :]]


def _head(messages: Sequence[PlainMessage], index: int, mark: int) -> list[PlainMessage]:
    last = messages[index]
    if mark < len(last.content):
        last = msgspec.structs.replace(last, content=last.content[:mark], tool_calls=())
    return [*messages[:index], last]


def with_marks(boundaries: bytes, marks: Iterable[int]) -> bytes:
    """Returns boundaries and marks together, in ascending order. Both are positions in the prompt, as numbers of
    tokens. A mark that is close to a boundary or to another mark is left out.
    """
    found = memoryview(boundaries).cast("i").tolist()
    for mark in _apart(marks, [0, *found]):
        found.append(mark)
    return array("i", sorted(found)).tobytes()


def _apart(marks: Iterable[int], known: list[int]) -> Iterator[int]:
    for mark in marks:
        if all(abs(mark - other) > limits.MARK_NEAR_TOKENS for other in known):
            known.append(mark)
            yield mark
