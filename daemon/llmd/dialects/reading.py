"""Reads the members that requests of several dialects share. Pure. All functions raise an ApiError that names the
member.
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
"""Whether the types of `thinking` turn reasoning on. With any other type the template decides."""


def session_of(
    headers: Headers, session_id: str | None = None, prompt_cache_key: str | None = None, metadata: object = None
) -> Session:
    key = resolve(headers, session_id, prompt_cache_key, metadata if isinstance(metadata, dict) else None)
    return key, parent_of(headers, key)


def generation(
    request: msgspec.Struct, session: Session, prompt: ChatPrompt | RawPrompt, **own: Any
) -> GenerationRequest:
    """Reads the members whose names most dialects share. A member that the request's type does not have counts as not
    set. `own` are the fields of GenerationRequest that the dialect reads itself.
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
    }
    return GenerationRequest(prompt=prompt, key=key, parent=parent, **{**shared, **own})


def thinking_variables(effort: str | None, *wishes: bool | None) -> dict[str, Any]:
    """Returns template variables. `wishes` say whether the model should reason, in order of precedence; the first one
    that is set counts. An effort of "none" counts only if no wish is set.
    """
    every = (*wishes, False if effort == "none" else None)
    wish = next((one for one in every if one is not None), None)
    variables: dict[str, Any] = {} if effort is None else {"reasoning_effort": effort}
    return variables if wish is None else {**variables, "enable_thinking": wish}


def schema_constraint(param: str, schema: object, is_strict: bool = True) -> Constraint:
    return Constraint("json_schema", msgspec.json.encode(schema).decode(), param, is_strict)


def one_constraint(constraints: Iterable[Constraint]) -> Constraint | None:
    """Returns the constraint, or None. Raises ApiError if there are several."""
    forms = list(constraints)
    if len(forms) > 1:
        first, second = forms[0].param, forms[1].param
        raise invalid_value(second, f"the request has {first}, too; an answer can have only one output format")
    return forms[0] if forms else None


def choice_by_word(word: str | None) -> ToolChoice:
    return ToolChoice({"none": "none", "required": "required"}.get(word or "", "auto"))  # type: ignore[arg-type]


def choice_among(param: str, mode: Literal["auto", "required"], names: Iterable[str]) -> ToolChoice:
    """Returns the choice among the tools that the list in `param` names and that the model can call."""
    distinct = tuple(dict.fromkeys(names))
    if not distinct:
        raise invalid_value(param, "the list has no function and no custom tool")
    return ToolChoice(mode, distinct)
