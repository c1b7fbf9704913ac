"""Finds the token at which each message of the user begins in a prompt, for turn:N of `fork`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..core import limits


@dataclass(frozen=True, slots=True)
class UserMessages:
    n: int = 0
    starts: Mapping[int, int] = field(default_factory=dict)
    """For each user message whose beginning is known: the message's number, from 1, and the number of tokens before the
    message.
    """


def user_starts(roles: Sequence[str], boundaries: bytes, after: int = -1) -> dict[int, int]:
    """Maps the numbers of user messages to the numbers of tokens before them. `boundaries` are those of
    llm_chat_render: the beginnings of the last few user messages, then the end of the prompt.

    libllm leaves out boundaries that the template does not allow, and does not report which. If boundaries are missing,
    the result is empty, with one exception: `after` is the index of the message after which the prompt begins, so if
    the next message is the user's, its beginning is 0.
    """
    counts = memoryview(boundaries).cast("i").tolist()
    users = [index for index, role in enumerate(roles) if role == "user"]
    latest = [index for index in users if index > 0][-limits.USER_BOUNDARIES_MAX :]
    latest = [index for index in latest if index > after]
    head = next((index for index, role in enumerate(roles) if role != "system"), 0)
    has_head = after < 0 < head < len(roles) and (not latest or head < latest[0])
    if len(counts) != len(latest) + has_head + 1:
        return {users.index(after + 1) + 1: 0} if after >= 0 and after + 1 in users else {}
    starts = dict(zip(latest, counts[has_head : len(counts) - 1], strict=True))
    if after < 0 and users and users[0] == 0:
        starts[0] = 0
    return {number: starts[index] for number, index in enumerate(users, 1) if index in starts}
