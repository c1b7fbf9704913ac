"""Changes the messages of clients to the order that templates expect. All functions are pure.

`in_order` makes changes that suit every template. `plain` makes larger changes, and is used only if the template has
refused the messages. A template that accepts the unchanged messages makes a better prompt from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import msgspec

from ..core.generation_request import PlainMessage

_BETWEEN = "\n\n"


def in_order(messages: Sequence[PlainMessage]) -> list[PlainMessage]:
    """Drops empty assistant messages: clients send them after an aborted stream. Joins the system messages at the
    beginning. Sorts the results of an answer's tool calls in the order of the calls. Clients that run tools in parallel
    send the results in the order in which the tools finish.
    """
    kept = [message for message in messages if not _is_empty_answer(message)]
    n_front = n_of_system(kept)
    ordered = [_joined(kept[:n_front]), *kept[n_front:]] if n_front > 1 else kept
    first = 0
    while first < len(ordered):
        last = first
        while last < len(ordered) and ordered[last].role == "tool":
            last += 1
        if last - first > 1:
            ordered[first:last] = _as_called(ordered[first - 1] if first else None, ordered[first:last])
        first = last + 1
    return ordered


def n_of_system(messages: Sequence[PlainMessage]) -> int:
    """Returns the number of system messages at the beginning."""
    return next((index for index, message in enumerate(messages) if message.role != "system"), len(messages))


def _is_empty_answer(message: PlainMessage) -> bool:
    return message.role == "assistant" and not (message.content.strip() or message.tool_calls or message.reasoning)


def _as_called(answer: PlainMessage | None, results: list[PlainMessage]) -> list[PlainMessage]:
    """Returns the results in the order of their calls, or unchanged if a result does not name its call."""
    numbers = {call.id: number for number, call in enumerate(answer.tool_calls)} if answer is not None else {}
    if None in numbers or len(numbers) < len(results) or any(result.tool_call_id not in numbers for result in results):
        return results
    return sorted(results, key=lambda result: numbers[result.tool_call_id])


def plain(messages: Sequence[PlainMessage]) -> tuple[list[PlainMessage], list[int]]:
    """Returns the conversation in a form that strict templates accept, called plain turns. For each message, also
    returns the index of the plain turn that contains it. System messages after the first message, and tool results
    without calls, become user messages. Successive messages of the user are joined, and so are successive messages of
    the assistant.
    """
    runs: list[list[PlainMessage]] = []
    turn_indexes = []
    open_calls = 0
    for index, message in enumerate(messages):
        if message.role == "assistant":
            open_calls = len(message.tool_calls)
        elif message.role == "tool":
            open_calls -= 1
        is_lost = message.role == "tool" and open_calls < 0
        turned = message
        if is_lost or (message.role == "system" and index > 0):
            turned = PlainMessage("user", message.content, marks=message.marks)
        if runs and _are_one(runs[-1][-1], turned):
            runs[-1].append(turned)
        else:
            runs.append([turned])
        turn_indexes.append(len(runs) - 1)
    return [_joined(run) for run in runs], turn_indexes


def _are_one(before: PlainMessage, message: PlainMessage) -> bool:
    if before.role != message.role or before.name != message.name:
        return False
    return message.role == "user" or (message.role == "assistant" and not before.tool_calls)


def _joined(run: Sequence[PlainMessage]) -> PlainMessage:
    if len(run) == 1:
        return run[0]
    said = [message for message in run if message.content.strip()]
    starts = accumulate((len(message.content) + len(_BETWEEN) for message in said), initial=0)
    marks = tuple(start + mark for start, message in zip(starts, said, strict=False) for mark in message.marks)
    content = _BETWEEN.join(message.content for message in said)
    reasoning = _BETWEEN.join(message.reasoning for message in run if message.reasoning) or None
    calls = run[-1].tool_calls
    return msgspec.structs.replace(run[0], content=content, reasoning=reasoning, tool_calls=calls, marks=marks)
