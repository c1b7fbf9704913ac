"""Gemma 4 writes arguments in its own syntax, {city:<|"|>Rome<|"|>,days:2}. The grammar enforces the tool's schema."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from tests.real_templates.conftest import Open
from tests.real_templates.driver import Json
from tests.real_templates.templates import BY_NAME
from tests.real_templates.test_arguments import USER, tool
from tests.real_templates.test_round_trip import arguments_of_only_call
from tests.real_templates.valid_arguments import gemma_of

TEMPLATES = ("google-gemma-4-31B-it", "google-gemma-4-31B-it-interleaved")
CLOSED: Json = {"type": "object", "additionalProperties": False}
INTEGER: Json = {"type": "integer"}
PLACE = CLOSED | {"properties": {"x": INTEGER, "name": {"enum": ["Rome", "a<b"]}}, "required": ["x"]}
TRIP = CLOSED | {
    "properties": {"place": PLACE, "days": INTEGER, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["place"],
}
MANY = CLOSED | {"properties": dict.fromkeys("gfedcba", INTEGER), "required": ["g", "a"]}
ROWS: dict[str, tuple[Json, list[Json], list[str]]] = {  # schema, arguments that are allowed, texts that are not
    "types": (
        TRIP,
        [{"place": {"x": 1}}, {"place": {"x": -1, "name": "a<b"}, "days": 2, "tags": ["a", '<|"<']}],
        ["{place:{x:1.5}}", "{days:1}", "{place:{}}", '{place:{x:1,name:<|"|>Oslo<|"|>}}', "{place:{x:1},tags:[1]}"],
    ),
    "JSON": (TRIP, [], ['{"place":{"x":1}}', '{<|"|>place<|"|>:{x:1}}', "{place: {x:1}}"]),
    "closed": (TRIP, [], ["{place:{x:1},other:2}", "{place:{x:1,y:1}}", "{place:{x:1},place:{x:1}}"]),
    "open": (
        {"type": "object", "properties": {"a": INTEGER}, "required": ["a"]},
        [{"a": 1, "b c": {"d": [None, True, "x"]}}, {"A": "before", "a": 1}],
        ['{a:1,"b":1}', '{a:<|"|>1<|"|>}', "{b:1}", "{a:1,[b]:1}"],
    ),
    "lengths": (
        CLOSED | {"properties": {"a": {"type": "string", "minLength": 2, "maxLength": 3}}},
        [{"a": "<|"}, {"a": '<|"'}, {"a": "\n\\n"}, {}],
        ['{a:<|"|>a<|"|>}', '{a:<|"|>abcd<|"|>}'],
    ),
    "a pattern": (
        CLOSED | {"properties": {"a": {"type": "string", "pattern": "^[a-z]+$"}}},
        [{"a": "abc"}],
        ['{a:<|"|>A<|"|>}', '{a:<|"|><|"|>}'],
    ),
    "names that cannot be written": (
        CLOSED | {"properties": {"x:y": INTEGER, "b}": INTEGER, "": INTEGER, "a": INTEGER}, "required": ["x:y", "a"]},
        [{"a": 1}],
        ["{x:y:1,a:1}", "{}"],
    ),
    "many": (MANY, [dict.fromkeys("abcdefg", 1), dict.fromkeys("ag", 1)], ["{g:1,a:1}", "{a:1}", "{a:1,b:1,a:1,g:1}"]),
}


def is_allowed(opened: Open, name: str, parameters: Json, arguments: str) -> Any:
    """Returns the parsed arguments if the mask allows the text, else None."""
    model = opened(BY_NAME[name])
    prompt = model.render({"messages": [USER], "tools": [tool(parameters)]})
    text = f"<|tool_call>call:note{arguments}<tool_call|>"
    said = model.walk(prompt.constraint, text=text)
    if said.refused_at is not None:
        return None
    assert said.is_complete and said.holds, text
    return arguments_of_only_call(model.parse(prompt.syntax, text, pieces=[2]))


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_arguments_meet_the_schema(name: str, kind: str, opened: Open) -> None:
    schema, valid, others = ROWS[kind]
    for arguments in valid:
        assert is_allowed(opened, name, schema, gemma_of(arguments)) == arguments
    for text in others:
        assert is_allowed(opened, name, schema, text) is None, text


def test_up_to_five_members_come_in_any_order(opened: Open) -> None:
    parameters = CLOSED | {"properties": dict.fromkeys("abcde", INTEGER), "required": ["a", "c"]}
    for names in permutations("abcde", 3):
        text = "{" + ",".join(f"{name}:1" for name in names) + "}"
        expected = dict.fromkeys(names, 1) if {"a", "c"} <= set(names) else None
        assert is_allowed(opened, TEMPLATES[0], parameters, text) == expected
