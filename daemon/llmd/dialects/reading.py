"""Reads the members that requests of several dialects share. Pure. All raise ApiError naming the member."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Literal

import msgspec

from ..core.errors import ApiError
from ..core.generation_request import ChatPrompt, Constraint, GenerationRequest, RawPrompt, ToolChoice
from ..core.sampling import breakers_of, stops_of
from ..core.session_key import Session, parent_of, resolve
from .sampling import sampling_of

Headers = Collection[tuple[str, str]]
SWITCHES = {"enabled": True, "disabled": False}
"""Types of thinking; any other one leaves it to the template."""


def session_of(
    headers: Headers, session_id: str | None = None, prompt_cache_key: str | None = None, metadata: object = None
) -> Session:
    key = resolve(headers, session_id, prompt_cache_key, metadata if isinstance(metadata, dict) else None)
    return key, parent_of(headers, key)


def generation(
    request: msgspec.Struct, session: Session, prompt: ChatPrompt | RawPrompt, **own: Any
) -> GenerationRequest:
    """Reads the members whose names most dialects share; one that the request's type does not have asks for nothing.
    `own`: fields of GenerationRequest that the dialect reads itself."""

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
    """Returns template variables. `wishes`: whether to think, the plainest first; the first that is set counts, and an
    effort of none comes last."""
    every = (*wishes, False if effort == "none" else None)
    wish = next((one for one in every if one is not None), None)
    variables: dict[str, Any] = {} if effort is None else {"reasoning_effort": effort}
    return variables if wish is None else {**variables, "enable_thinking": wish}


def schema_constraint(param: str, schema: object, is_strict: bool = True) -> Constraint:
    return Constraint("json_schema", msgspec.json.encode(schema).decode(), param, is_strict)


def one_constraint(constraints: Iterable[Constraint]) -> Constraint | None:
    """Returns the only constraint. Raises ApiError for a second one."""
    forms = list(constraints)
    if len(forms) > 1:
        first, second = forms[0].param, forms[1].param
        raise ApiError(
            "invalid_value",
            f"{second}: the request has {first}, too; an answer can have only one output format.",
            second,
        )
    return forms[0] if forms else None


def choice_by_word(word: str | None) -> ToolChoice:
    return ToolChoice({"none": "none", "required": "required"}.get(word or "", "auto"))  # type: ignore[arg-type]


def choice_among(param: str, mode: Literal["auto", "required"], names: Iterable[str]) -> ToolChoice:
    """Returns the choice among the tools that a list `param` names and that the model can call."""
    distinct = tuple(dict.fromkeys(names))
    if not distinct:
        raise ApiError("invalid_value", f"{param}: the list has no function and no custom tool.", param)
    return ToolChoice(mode, distinct)
