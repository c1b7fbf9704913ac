"""Where in a prompt the user's messages begin: what `fork` takes as turn:N. Pure."""

from __future__ import annotations

from ..core import limits


def user_starts(roles: list[str], boundaries: bytes, after: int = -1) -> dict[int, int]:
    """Which boundary of a rendered prompt begins which user's message (llm_chat_render: the latest few, then the end).

    Boundaries that the template does not allow are left out of the prompt's; then it is not known which ones are there,
    and the answer is empty. `after`: the message behind which the prompt begins.
    """
    counts = memoryview(boundaries).cast("i").tolist()
    users = [index for index, role in enumerate(roles) if role == "user"]
    latest = [index for index in users if index > 0][-limits.USER_BOUNDARIES_MAX :]
    latest = [index for index in latest if index > after]
    head = next((index for index, role in enumerate(roles) if role != "system"), 0)
    has_head = after < 0 < head < len(roles) and (not latest or head < latest[0])
    if len(counts) != len(latest) + has_head + 1:
        return {}
    starts = dict(zip(latest, counts[has_head : len(counts) - 1], strict=True))
    if after < 0 and users and users[0] == 0:
        starts[0] = 0
    return {number: starts[index] for number, index in enumerate(users, 1) if index in starts}
