"""Converts members that requests of several APIs have in common. All functions are pure, and raise an ApiError that
names the invalid member.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Literal

import msgspec

from ..core.errors import invalid_value
from ..core.generation_request import ChatPrompt, Constraint, GenerationRequest, RawPrompt, ToolChoice
from ..core.sampling import breakers_of, stops_of
from ..core.session_key import Session, parent_of, resolve
from .sampling import sampling_of

Headers = Collection[tuple[str, str]]
SWITCHES = {"enabled": True, "disabled": False}
"""The types of `thinking` that turn reasoning on or off. With any other type, the template decides."""


def session_of(
    headers: Headers, session_id: str | None = None, prompt_cache_key: str | None = None, metadata: object = None
) -> Session:
    key = resolve(headers, session_id, prompt_cache_key, metadata if isinstance(metadata, dict) else None)
    return key, parent_of(headers, key)


def generation(
    request: msgspec.Struct, session: Session, prompt: ChatPrompt | RawPrompt, **own: Any
) -> GenerationRequest:
    """Returns the generation request. Converts the members that have the same name in most APIs. A member that the type
    of the request does not have counts as not set. `own` has the fields of GenerationRequest that the reader of the API
    has made. The fields in `own` replace the fields made here.
    """

    def member(name: str) -> Any:
        return getattr(request, name, None)

    key, parent = session
    shared = {
        "is_stream": bool(member("stream")),
        "sampling": sampling_of(request),
        "dry_sequence_breakers": breakers_of("dry_sequence_breakers", member("dry_sequence_breakers")),
        "logit_bias": dict(member("logit_bias") or {}),
        "stop": stops_of(member("stop")),
        "ignore_end": bool(member("ignore_eos")),
        "is_cold": member("cache_prompt") is False,
        "returns_progress": bool(member("stream") and member("return_progress")),
        "has_drafts": member("speculate") != "off",
    }
    return GenerationRequest(prompt=prompt, key=key, parent=parent, **{**shared, **own})


def thinking_variables(effort: str | None, *wishes: bool | None) -> dict[str, Any]:
    """Returns the template's variables for reasoning. `wishes` are the values of the members of a request that turn
    reasoning on or off. The first of them that is not None counts. If all are None, the effort "none" turns reasoning
    off.
    """
    every = (*wishes, False if effort == "none" else None)
    wish = next((one for one in every if one is not None), None)
    variables: dict[str, Any] = {} if effort is None else {"reasoning_effort": effort}
    return variables if wish is None else {**variables, "enable_thinking": wish}


def schema_constraint(param: str, schema: object, is_strict: bool = True) -> Constraint:
    return Constraint("json_schema", msgspec.json.encode(schema).decode(), param, is_strict)


def one_constraint(constraints: Iterable[Constraint]) -> Constraint | None:
    """Returns the constraint, or None if there is none. Raises ApiError if there is more than one constraint."""
    forms = list(constraints)
    if len(forms) > 1:
        first, second = forms[0].param, forms[1].param
        raise invalid_value(second, f"the request has {first}, too; an answer can have only one output format")
    return forms[0] if forms else None


def choice_by_word(word: str | None) -> ToolChoice:
    return ToolChoice({"none": "none", "required": "required"}.get(word or "", "auto"))  # type: ignore[arg-type]


def choice_among(param: str, mode: Literal["auto", "required"], names: Iterable[str]) -> ToolChoice:
    """Returns the tool choice that allows only the tools with these names. `param` is the client's name of the list of
    tools. Raises ApiError if there are no names.
    """
    distinct = tuple(dict.fromkeys(names))
    if not distinct:
        raise invalid_value(param, "the list has no function and no custom tool")
    return ToolChoice(mode, distinct)
