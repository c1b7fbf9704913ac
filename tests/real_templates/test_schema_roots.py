"""A tool can be called with its arguments, whatever keywords are at the root of its schema."""

from __future__ import annotations

from typing import Any

import pytest

from tests.real_templates.conftest import Open
from tests.real_templates.driver import Json
from tests.real_templates.templates import TEMPLATES, Template
from tests.real_templates.test_masks import names
from tests.real_templates.test_round_trip import NO_ROUND_TRIP, arguments_of_only_call, past_answer

TEXT: Json = {"type": "string"}
PATH: Json = {"path": TEXT, "n": {"type": "integer"}}
# The members are in the order of the schema.
VALUES: Json = {"path": "a/b c.txt", "n": 12}
OBJECT: Json = {"type": "object", "properties": PATH, "required": ["path"]}
ROOTS: dict[str, Any] = {
    "plain": OBJECT,
    "properties beside anyOf": OBJECT | {"anyOf": [{"required": ["path"]}, {"required": ["n"]}]},
    "properties beside oneOf": OBJECT | {"oneOf": [{"required": ["n"]}, {"not": {"required": ["n"]}}]},
    "properties beside allOf": OBJECT | {"allOf": [{"required": ["n"]}]},
    "properties beside $ref": {"$defs": {"o": OBJECT}, "$ref": "#/$defs/o", "properties": {"path": {"minLength": 1}}},
    "$ref": {"$defs": {"o": OBJECT}, "$ref": "#/$defs/o"},
    "recursive $ref": {
        "$defs": {"o": OBJECT | {"properties": PATH | {"child": {"$ref": "#/$defs/o"}}}},
        "$ref": "#/$defs/o",
    },
    "oneOf of objects": {
        "oneOf": [
            OBJECT | {"required": ["path", "n"]},
            {"type": "object", "properties": {"id": TEXT}, "required": ["id"]},
        ]
    },
    "type list": OBJECT | {"type": ["object", "null"]},
    "no type": {"properties": PATH, "required": ["path"]},
    "additionalProperties only": {"type": "object", "additionalProperties": {"type": ["string", "integer"]}},
    "no properties": {"type": "object"},
}
# Roots that declare no parameter, so that no value is wrong.
DECLARES_NOTHING = {"additionalProperties only", "no properties"}
# `n` has the wrong type, which every other root forbids.
WRONG: Json = {"path": "a/b c.txt", "n": "x"}


# The text that a template writes between its last call and the end of the answer, after the end of the grammar for
# calls.
AFTER_CALLS = {"apriel": "\n"}
# Templates whose calls can have only names that the tool declares.
DECLARED_NAMES_ONLY = {"LFM2.5-8B-A1B": "arguments are those of a Python function"}
CALLED = [one for one in TEMPLATES if one.name not in NO_ROUND_TRIP]


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("template", CALLED, ids=names)
def test_valid_arguments_are_allowed_and_read(template: Template, root: str, opened: Open) -> None:
    model = opened(template)
    tool = {"type": "function", "function": {"name": "note", "description": "Notes.", "parameters": ROOTS[root]}}
    syntax, answer = past_answer(model, template, VALUES, tool=tool)
    prompt = model.render({"messages": [{"role": "user", "content": "Hello"}], "tools": [tool]})
    said = model.walk(prompt.constraint, text=answer.removesuffix(AFTER_CALLS.get(template.family, "")))
    if root in DECLARES_NOTHING and template.name in DECLARED_NAMES_ONLY:
        assert said.refused_at is not None
        return
    assert said.refused_at is None, said.text
    assert arguments_of_only_call(model.parse(syntax, answer, pieces=[2])) == VALUES, answer


@pytest.mark.parametrize("root", [root for root in ROOTS if root not in DECLARES_NOTHING])
@pytest.mark.parametrize("template", CALLED, ids=names)
def test_a_value_of_the_wrong_type_is_not_allowed(template: Template, root: str, opened: Open) -> None:
    model = opened(template)
    tool = {"type": "function", "function": {"name": "note", "description": "Notes.", "parameters": ROOTS[root]}}
    _, answer = past_answer(model, template, WRONG, tool=tool)
    messages = [{"role": "user", "content": "Hello"}]
    prompt = model.render({"messages": messages, "tools": [tool], "tool_choice": {"mode": "required"}})
    if prompt.thinking.get("is_open") and prompt.thinking["ends"][0] not in answer:
        answer = prompt.thinking["ends"][0] + answer
    refused_at = model.walk(prompt.constraint, text=answer).refused_at
    name = b"{n:" if template.family == "gemma4" else b"path"  # Gemma 4's names are sorted
    assert refused_at is not None and refused_at > answer.encode().index(name), answer
