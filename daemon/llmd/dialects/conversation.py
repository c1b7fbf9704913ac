"""Checks conversations, for all APIs. A failed check raises an ApiError that names the invalid field. All functions are
pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import TypeVar

from ..core import limits
from ..core.errors import ApiError, invalid_value, quoted, required, unsupported
from ..core.generation_request import Role
from .members import InputContent

T = TypeVar("T", bound=Sized)

_ATTACHED = ("image", "document", "file", "audio", "video", "container_upload")
"""Types of parts that are attachments, without the prefix input_ and the suffix _url."""


def answerable(param: str, messages: T) -> T:
    """Returns the messages. Raises ApiError if the list is empty."""
    if not messages:
        raise invalid_value(param, "the list has no message to answer")
    return messages


def placeholder(kind: str) -> str:
    """Returns the text that replaces, for example, an image in a tool's result or in an earlier question. `kind` is the
    type of the replaced part. Such a part is not refused. Clients send it again with every later request, so a refusal
    would end the conversation.
    """
    return f"[{_name(kind)[: limits.USER_FIELD_SHOWN_CHARS_MAX]}: not shown, this model reads text only]"


def only_server_tools(param: str, kind: str) -> ApiError:
    """Returns the error for a request whose tools all run on a provider's servers. If a request also has other tools,
    llmd ignores the tools that it cannot run. If llmd ignored all tools, the client would believe that the answer was
    made with the tools.
    """
    return unsupported(
        param, f"{quoted(kind)} runs on a provider's servers and not in llmd, and the request offers no other tool"
    )


def is_attachment(kind: str) -> bool:
    return _name(kind) in _ATTACHED


def _name(kind: str) -> str:
    return kind.removeprefix("input_").removesuffix("_url")


def newest_question(roles: Sequence[str]) -> int | None:
    """Returns the index of the message whose attachments are refused. This is the user's last message, if it has not
    been answered. Returns None if there is no such message. Also returns None if tool results (role `tool`) follow the
    last answer. Attachments next to tool results come from a tool, not from the user. Assistant messages at the end of
    the conversation do not count as answers, because the new answer continues them.
    """
    end = len(roles)
    while end and roles[end - 1] == "assistant":
        end -= 1
    begin = end
    while begin and roles[begin - 1] != "assistant":
        begin -= 1
    turn = roles[begin:end]
    if "user" not in turn or "tool" in turn:
        return None
    return end - 1 - turn[::-1].index("user")


def role_of(path: str, role: str, roles: Mapping[str, Role]) -> Role:
    """Returns the role of a message. `path` is the client's name of the message. `roles` maps the roles of the API to
    llmd's.
    """
    found = roles.get(role)
    if found is None:
        raise invalid_value(f"{path}.role", f"{quoted(role)} is not one of {', '.join(roles)}")
    return found


TEXTS = ("text", "input_text", "output_text")
"""Types of parts that are text."""


def part_text(path: str, part: InputContent, *, is_result: bool = False, is_past: bool = False) -> str:
    """Returns the text of a part of a message. A part that is not text gets a placeholder if it is in a tool's result
    (`is_result`). An attachment in an earlier question (`is_past`) also gets a placeholder. Any other part raises
    ApiError.
    """
    if part.type == "refusal" and part.refusal is not None:
        return part.refusal
    if part.type in TEXTS:
        return required(f"{path}.text", part.text)
    if is_result or (is_past and is_attachment(part.type)):
        return placeholder(part.type)
    raise unsupported(path, f"parts of type {quoted(part.type)} are not supported; the model reads text only")


# --- marks -----------------------------------------------------------------------------------------------------------


Piece = tuple[str, bool]
"""A text, and whether the client marked it with cache_control. The client expects that other prompts are equal up to
the end of a marked text, and may differ after it.
"""


def joined(pieces: Iterable[Piece], between: str) -> tuple[str, tuple[int, ...]]:
    """Joins the texts. Also returns the positions in the joined text at which marked texts end."""
    texts: list[str] = []
    marks: list[int] = []
    n_chars = 0
    for text, is_marked in pieces:
        n_chars += len(text) + (len(between) if texts else 0)
        texts.append(text)
        if is_marked:
            marks.append(n_chars)
    return between.join(texts), tuple(marks)
