"""What every conversation must be, whatever its dialect calls it. Pure. All raise ApiError naming the field."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import TypeVar

from ..core import limits
from ..core.asked import Role
from ..core.errors import ApiError, shown

T = TypeVar("T", bound=Sized)


def check_length(param: str, given: Sized, what: str = "messages") -> None:
    if len(given) > limits.MESSAGES_MAX:
        message = f"{param}: {len(given)} {what}; at most {limits.MESSAGES_MAX} are taken."
        raise ApiError("invalid_value", message, param)


def answerable(param: str, found: T) -> T:
    """The messages, of which there must be any."""
    if not found:
        raise ApiError("invalid_value", f"{param}: there is no message to answer.", param)
    return found


def not_shown(kind: str) -> str:
    """What the model is told of a part of a tool's result that is no text, by the dialect's word for its kind. Whoever
    sends the request did not choose it, and it stays in the history: refused, it would end the conversation."""
    name = kind.removeprefix("input_").removesuffix("_url")[: limits.USER_FIELD_SHOWN_CHARS_MAX]
    return f"[{name}: not shown, this model reads text only]"


def role_of(path: str, role: str, roles: Mapping[str, Role]) -> Role:
    """`path`: of its message; `roles`: those of the dialect, and what they are."""
    found = roles.get(role)
    if found is None:
        message = f"{path}.role: {shown(role)} is not one of {', '.join(roles)}."
        raise ApiError("invalid_value", message, f"{path}.role")
    return found
