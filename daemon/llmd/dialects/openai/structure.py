"""Reads the constraint of the answer from the members that may set one. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ...core.asked import Constraint
from ...core.errors import ApiError, shown
from ..reading import one_constraint, schema_constraint
from .wire import request as wire


def constraint_of(wanted: wire.GenerationRequest) -> Constraint | None:
    return one_constraint(_constraints(wanted))


def _constraints(wanted: wire.GenerationRequest) -> Iterator[Constraint]:
    yield from _response_format(wanted.response_format)
    if wanted.json_schema:  # {} was said to ask for nothing
        yield _schema("json_schema", wanted.json_schema)
    if wanted.grammar:
        yield Constraint("grammar", wanted.grammar, "grammar")
    outputs = wanted.structured_outputs or wire.StructuredOutputs()
    if outputs.json_object:
        yield Constraint("json", "", "structured_outputs.json_object")
    if outputs.json is not None:
        yield _schema("structured_outputs.json", outputs.json)
    yield from _texts("structured_outputs.", outputs.grammar, outputs.regex, outputs.choice)
    if wanted.guided_json is not None:
        yield _schema("guided_json", wanted.guided_json)
    yield from _texts("guided_", wanted.guided_grammar, wanted.guided_regex, wanted.guided_choice)


def _texts(prefix: str, grammar: str | None, regex: str | None, choice: list[str] | None) -> Iterator[Constraint]:
    """Empty ones ask for nothing."""
    if grammar:
        yield Constraint("grammar", grammar, f"{prefix}grammar")
    if regex:
        yield Constraint("regex", regex, f"{prefix}regex")
    if choice:
        yield Constraint("choice", msgspec.json.encode(choice).decode(), f"{prefix}choice")


def _response_format(wanted: wire.ResponseFormat | None) -> Iterator[Constraint]:
    if wanted is None or wanted.type == "text":
        return
    if wanted.schema is not None and (wanted.type == "json_object" or wanted.json_schema is None):
        yield _schema("response_format.schema", wanted.schema)
    elif wanted.type == "json_schema":
        param = "response_format.json_schema"
        if wanted.json_schema is None:
            raise ApiError("missing_parameter", f"{param} is missing.", param)
        if wanted.json_schema.schema is None:
            raise ApiError("missing_parameter", f"{param}.schema is missing.", f"{param}.schema")
        yield _schema(f"{param}.schema", wanted.json_schema.schema, is_strict=bool(wanted.json_schema.strict))
    else:
        yield Constraint("json", "", "response_format")


def _schema(param: str, schema: str | dict[str, Any], is_strict: bool = True) -> Constraint:
    """vLLM takes a schema as JSON in a text, too."""
    if not isinstance(schema, str):
        return schema_constraint(param, schema, is_strict)
    try:
        msgspec.json.decode(schema)
    except (msgspec.DecodeError, RecursionError):
        raise ApiError("invalid_value", f"{param}: {shown(schema)} is not valid JSON.", param) from None
    return Constraint("json_schema", schema, param)
