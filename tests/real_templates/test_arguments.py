"""Arguments that a template writes between their own delimiters must match the schema.

This includes strings, arguments in any order, and arguments under any name that the schema allows."""

from __future__ import annotations

import json
from itertools import permutations

import pytest

from tests.real_templates.conftest import Open
from tests.real_templates.driver import Json, Model
from tests.real_templates.templates import BY_NAME, TEMPLATES, Template
from tests.real_templates.test_masks import names
from tests.real_templates.test_round_trip import NO_ROUND_TRIP, arguments_of_only_call, past_answer

# Families whose parser has a node for each argument.
SEPARATE = (
    *("deepseek-v3.2", "glm", "hunyuan", "k2-horizon", "kimi-k3", "laguna", "lfm2", "ling3", "minicpm5", "minimax-m2"),
    *("minimax-m3", "muse", "qwen3-coder", "seed-oss", "spark"),
)
CALLED = [one for one in TEMPLATES if one.family in SEPARATE and one.name not in NO_ROUND_TRIP]
# Families without a delimiter between a name and its value.
ONLY_DECLARED = {"lfm2": "Python's names are the declared ones"}

NOTE: Json = {"type": "function", "function": {"name": "note", "description": "Notes."}}
USER: Json = {"role": "user", "content": "Hello"}
INTEGER: Json = {"type": "integer"}
TEXTS: dict[str, tuple[Json, list[str], list[str]]] = {  # schema, valid texts, others
    "enum": ({"type": "string", "enum": ["C", "F", "a b"]}, ["C", "F", "a b"], ["", "X", "Cx", "a"]),
    "enum without type": ({"enum": ["C", "F"]}, ["C", "F"], ["X"]),
    "const": ({"const": "on"}, ["on"], ["off"]),
    "pattern": ({"type": "string", "pattern": "^[a-z]{3}$"}, ["abc"], ["ab", "abcd", "ABC"]),
    "lengths": ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "abc", "é🙂"], ["a", "abcd"]),
    "format": ({"type": "string", "format": "date"}, ["2026-01-31"], ["31.1.2026"]),
    "excluded": ({"type": "string", "not": {"enum": ["no"]}}, ["yes", "non", "n"], ["no"]),
    "text or integer": ({"type": ["string", "integer"]}, ["a b", "12x", ""], []),
    "alternatives": (
        {"anyOf": [{"const": "auto"}, {"pattern": "^#[0-9]+$", "type": "string"}]},
        ["auto", "#12"],
        ["12"],
    ),
}


def tool(parameters: Json) -> Json:
    return {**NOTE, "function": {**NOTE["function"], "parameters": parameters}}


def is_allowed(model: Model, template: Template, parameters: Json, arguments: Json) -> bool:
    """Returns whether the mask allows the call. If so, the parser must also read it."""
    syntax, answer = past_answer(model, template, arguments, tool=tool(parameters))
    said = model.walk(model.render({"messages": [USER], "tools": [tool(parameters)]}).constraint, text=answer)
    if said.refused_at is not None:
        return False
    assert said.is_complete and said.holds, said.text
    assert arguments_of_only_call(model.parse(syntax, answer, pieces=[2])) == arguments, answer
    return True


@pytest.mark.parametrize("template", TEMPLATES, ids=names)
def test_the_table_has_all_families_with_separate_arguments(template: Template, opened: Open) -> None:
    prompt = opened(template).render(
        {"messages": [USER], "tools": [tool({"properties": {"n": INTEGER}, "required": ["n"]})]}
    )
    tags = {node.get("tag") for node in json.loads(json.loads(prompt.syntax)["parser"])["parsers"]}
    assert ("tool-arg" in tags) == (template.family in SEPARATE)


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("template", CALLED, ids=names)
def test_texts_are_kept_to_their_schema(template: Template, kind: str, opened: Open) -> None:
    schema, valid, others = TEXTS[kind]
    parameters = {"type": "object", "properties": {"unit": schema}, "required": ["unit"]}
    allowed = [text for text in valid + others if is_allowed(opened(template), template, parameters, {"unit": text})]
    assert allowed == valid


@pytest.mark.parametrize("template", CALLED, ids=names)
def test_arguments_come_in_any_order(template: Template, opened: Open) -> None:
    properties = {"a": INTEGER, "b": {"type": "string"}, "c": {"type": "string", "enum": ["x", "y"]}}
    parameters = {"type": "object", "properties": properties, "required": ["a", "b"], "additionalProperties": False}
    values: Json = {"a": 1, "b": "text", "c": "y"}
    for order in (*permutations("abc"), ("a", "b"), ("b", "a")):
        assert is_allowed(opened(template), template, parameters, {name: values[name] for name in order}), order
    for order in (("a",), ("b", "c"), ("c",)):
        assert not is_allowed(opened(template), template, parameters, {name: values[name] for name in order}), order


@pytest.mark.parametrize("template", CALLED, ids=names)
def test_many_arguments_come_with_the_required_ones_in_order(template: Template, opened: Open) -> None:
    required = [f"r{n}" for n in range(9)]
    properties = dict.fromkeys([*required, "o", "p"], INTEGER)
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    for order in (required, ["o", *required, "p"], [*required[:4], "p", "o", *required[4:]]):
        assert is_allowed(opened(template), template, parameters, {name: 1 for name in order}), order
    assert not is_allowed(opened(template), template, parameters, {name: 1 for name in required[1:]})


@pytest.mark.parametrize("template", CALLED, ids=names)
def test_each_of_many_arguments_is_read_once(template: Template, opened: Open) -> None:
    """The parser shortens a long call while it reads it. In each run, another argument is at the place that it may
    leave out.
    """
    for n in range(1, 24):
        arguments = {"x" * n: 1, **{f"k{i:02}": 1 for i in range(12)}}
        syntax, answer = past_answer(
            opened(template), template, arguments, tool=tool({"properties": dict.fromkeys(arguments, INTEGER)})
        )
        read = opened(template).parse(syntax, answer, pieces=[3])
        assert arguments_of_only_call(read) == arguments, read.calls[0].arguments


ORDER = [f"n{i}" for i in range(20_000)]


@pytest.mark.parametrize("name", ["LFM2.5-8B-A1B", "Qwen3-Coder"])
def test_a_tool_with_very_many_arguments_takes_any(name: str, opened: Open) -> None:
    """If the order of arguments were enforced, the rule of each argument would contain the rule of the next."""
    template = BY_NAME[name]
    arguments = {"n1": 1, "z": "text"}
    is_any = is_allowed(opened(template), template, {"required": ORDER}, arguments)
    assert is_any == (template.family not in ONLY_DECLARED)


@pytest.mark.parametrize("name", ["GLM-4.6", "LFM2.5-8B-A1B", "Qwen3-Coder"])
def test_many_arguments_are_required_up_to_a_limit(name: str, opened: Open) -> None:
    template, many = BY_NAME[name], ORDER[:256]
    schema = {"properties": dict.fromkeys(many, INTEGER), "additionalProperties": False, "required": many}
    assert is_allowed(opened(template), template, schema, dict.fromkeys(many, 1))
    assert not is_allowed(opened(template), template, schema, {"n0": 1})


def tools_with(n_tools: int, n: int) -> list[Json]:
    """Returns tools with n required and n optional arguments, all integers."""
    schema = {"properties": dict.fromkeys(ORDER[: 2 * n], INTEGER), "required": ORDER[:n]}
    function = {"description": "Notes.", "parameters": {"type": "object", "additionalProperties": False, **schema}}
    return [{"type": "function", "function": {"name": f"note{i}", **function}} for i in range(n_tools)]


@pytest.mark.parametrize("name", ["GLM-4.6", "LFM2.5-8B-A1B", "MiniMax-M2", "Qwen3-Coder"])
def test_many_optional_arguments_stand_between_many_required_ones(name: str, opened: Open) -> None:
    model, template, schema = opened(BY_NAME[name]), BY_NAME[name], tools_with(1, 100)[0]["function"]["parameters"]
    required, optional = ORDER[:100], ORDER[100:200]
    mixed = [*optional[:50], *required[:99], *optional[50:], required[99]]
    for order in (mixed, mixed[50:], required):
        assert is_allowed(model, template, schema, dict.fromkeys(order, 1)), order
    for order in (mixed[:-1], ORDER[1:200]):
        assert not is_allowed(model, template, schema, dict.fromkeys(order, 1)), order
    assert not is_allowed(model, template, schema, {optional[0]: "text"} | dict.fromkeys(required, 1))


@pytest.mark.parametrize("name", ["GLM-4.6", "LFM2.5-8B-A1B", "MiniMax-M2", "Qwen3-Coder"])
def test_the_grammar_grows_with_the_number_of_arguments(name: str, opened: Open) -> None:
    def size_of(n_tools: int, n: int) -> int:
        request = {"messages": [USER], "tools": tools_with(n_tools, n), "tool_choice": {"mode": "required"}}
        return len(opened(BY_NAME[name]).render(request).grammar)

    assert size_of(1, 64) < 8 * size_of(1, 8)
    assert size_of(6, 48) < 36 * size_of(1, 8)


FREE: dict[str, tuple[Json, Json, Json | None]] = {  # schema, valid arguments, others
    "no schema": ({}, {"s": "a b", "n": 3}, None),
    "no properties": ({"type": "object", "properties": {}}, {"s": "a b", "part": 2.5}, None),
    "only additionalProperties": ({"type": "object", "additionalProperties": INTEGER}, {"x-1": 3, "z": 4}, {"x": "a"}),
    "texts": ({"additionalProperties": {"enum": ["on", "off"]}}, {"x": "on", "y": "off"}, {"x": "o"}),
    "texts that look like others": (
        {"additionalProperties": {"type": "string"}},
        {"x": "1", "y": "true", "z": "[]"},
        None,
    ),
    "open": ({"properties": {"a": INTEGER}, "required": ["a"]}, {"z": "text", "a": 1, "y": 2}, {"a": "text"}),
    "closed": ({"properties": {"a": INTEGER}, "additionalProperties": False}, {"a": 1}, {"a": 1, "z": 2}),
    "patterns": (
        {"patternProperties": {"^n": INTEGER}, "additionalProperties": {"enum": ["on"]}},
        {"n1": 1, "x": "on"},
        {"n1": "on"},
    ),
    "names": ({"propertyNames": {"pattern": "^[a-z]+$"}, "additionalProperties": INTEGER}, {"abc": 1}, {"A": 1}),
    "an empty name": ({"properties": {"": INTEGER, "a": INTEGER}}, {"a": 1, "z": "text"}, {"a": "text"}),
    "an empty name, required": ({"properties": {"": INTEGER}, "required": [""]}, {"z": 2}, None),
}


@pytest.mark.parametrize("kind", FREE)
@pytest.mark.parametrize("template", CALLED, ids=names)
def test_arguments_that_are_not_declared(template: Template, kind: str, opened: Open) -> None:
    schema, valid, other = FREE[kind]
    is_valid = template.family not in ONLY_DECLARED or kind == "closed"
    assert is_allowed(opened(template), template, schema, valid) == is_valid
    assert other is None or not is_allowed(opened(template), template, schema, other)


@pytest.mark.parametrize("name", ["GLM-4.6", "LFM2.5-8B-A1B", "Qwen3-Coder"])
def test_an_empty_name_is_required_in_vain(name: str, opened: Open) -> None:
    """No template can write an empty name, so a call without it is allowed."""
    schema = {"properties": {"a": INTEGER}, "required": ["", "a"]}
    assert is_allowed(opened(BY_NAME[name]), BY_NAME[name], schema, {"a": 1})
    assert not is_allowed(opened(BY_NAME[name]), BY_NAME[name], schema, {"a": "text"})
