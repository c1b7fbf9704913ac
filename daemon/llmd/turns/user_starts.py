"""Finds the tokens at which the user's messages begin in a prompt, for turn:N of `fork`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..core import limits


@dataclass(frozen=True, slots=True)
class UserMessages:
    n: int = 0
    starts: Mapping[int, int] = field(default_factory=dict)
    """Maps the number of a user's message, from 1, to the number of tokens before it. Messages without a known
    beginning are left out.
    """


def user_starts(roles: Sequence[str], boundaries: bytes, after: int = -1) -> dict[int, int]:
    """Maps user messages to the boundaries of a rendered prompt (llm_chat_render: the latest few, then the end).

    If the template does not allow some boundaries, the prompt leaves them out without saying which, and the result is
    empty. There is one exception: if the message right after `after`, where the prompt begins, is the user's, it begins
    there.
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
