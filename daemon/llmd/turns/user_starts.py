"""Finds the token at which each user message begins in a prompt. A fork with `turn:N` ends before the N-th user
message. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..core import limits


@dataclass(frozen=True, slots=True)
class UserMessages:
    n: int = 0
    """Number of user messages in the prompt."""
    starts: Mapping[int, int] = field(default_factory=dict)
    """For each user message whose beginning is known, the number of tokens before it. The keys count user messages
    from 1.
    """


def user_starts(roles: Sequence[str], boundaries: bytes, after: int = -1) -> dict[int, int]:
    """Returns a map from the number of a user message, counted from 1, to the number of tokens before it. `roles` are
    the roles of all messages. `boundaries` are numbers of tokens from llm_chat_render, as int32. They say where the
    system messages end, where each of the last few user messages begins, and where the prompt ends.

    If `after` is not -1, the prompt has only the messages after the message with this index. libllm leaves out a
    boundary if the conversation up to there, rendered alone, is not the beginning of the whole prompt. libllm does not
    report which boundaries it has left out. So if a boundary is missing, the result is usually empty. Exception:
    `after` is not -1, and the first message after it is the user's. The result then has only this message, which begins
    at token 0.
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
