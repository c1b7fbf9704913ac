"""The words that a field takes, as its type has them: for the refusal of another one. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

_STEP = re.compile(r"[^.\[\]]+|\[[^\]]*\]")


def taken(kind: Any, path: str) -> str:
    """The words (one of a, b), and what else may stand there; "": no words do. `path`: as msgspec has it (a.b[0].c)."""
    kinds = [kind]
    for step in _STEP.findall(path):
        kinds = [found for one in kinds for found in _within(one, step)]
    plain = [found for one in kinds for found in _flat(one)]
    words = [str(word) for one in plain if get_origin(one) is Literal for word in get_args(one) if word != ""]
    if not words:
        return ""
    words += ["true", "false"] if bool in plain else []
    told = f"one of {', '.join(dict.fromkeys(words))}" if len(words) > 1 else words[0]
    has_object = any(get_origin(one) is dict or _is_struct(one) for one in plain)
    return f"{told}, or an object" if has_object else told


def _within(kind: Any, step: str) -> Iterator[Any]:
    """What stands at that member, or in that list or object."""
    for one in _flat(kind):
        if step.startswith("["):
            yield from get_args(one)[-1:]
        elif _is_struct(one):
            yield from (field.type for field in msgspec.structs.fields(one) if field.encode_name == step)
            if one.__struct_config__.tag_field == step:
                yield Literal[one.__struct_config__.tag]


def _flat(kind: Any) -> Iterator[Any]:
    """Each of several that it may be."""
    if get_origin(kind) is Annotated:
        yield from _flat(get_args(kind)[0])
    elif get_origin(kind) in (Union, UnionType):
        for one in get_args(kind):
            yield from _flat(one)
    else:
        yield kind


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
