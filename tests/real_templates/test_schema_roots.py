"""A tool can be called with its arguments whatever keywords stand at the root of its schema."""

from __future__ import annotations

from typing import Any

import pytest

from tests.real_templates.conftest import Open
from tests.real_templates.driver import DriverError, Json
from tests.real_templates.templates import TEMPLATES, Template
from tests.real_templates.test_masks import names
from tests.real_templates.test_round_trip import NO_ROUND_TRIP, arguments_of_only_call, past_answer

TEXT: Json = {"type": "string"}
PATH: Json = {"path": TEXT, "n": {"type": "integer"}}
# Members come in the order of the schema.
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
}


# Templates that write calls of the past otherwise than they ask a model to call.
NOT_AS_ASKED = {"apriel": "it writes an id behind the arguments"}
# Templates that fail on such a schema, which they show to the model by themselves; requests with it are refused.
REFUSES = {
    "seed-oss": {"properties beside $ref": "it looks for `required` beside `properties`"},
    "gigachat": {"type list": "it looks for a list of types in a list of types"},
}
CALLED = [one for one in TEMPLATES if one.name not in NO_ROUND_TRIP and one.family not in NOT_AS_ASKED]


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("template", CALLED, ids=names)
def test_valid_arguments_are_allowed_and_read(template: Template, root: str, opened: Open) -> None:
    model = opened(template)
    tool = {"type": "function", "function": {"name": "note", "description": "Notes.", "parameters": ROOTS[root]}}
    if root in REFUSES.get(template.family, {}):
        with pytest.raises(DriverError):
            past_answer(model, template, VALUES, tool=tool)
        return
    syntax, answer = past_answer(model, template, VALUES, tool=tool)
    said = model.walk(
        model.render({"messages": [{"role": "user", "content": "Hello"}], "tools": [tool]}).constraint, text=answer
    )
    assert said.refused_at is None, said.text
    assert arguments_of_only_call(model.parse(syntax, answer, pieces=[2])) == VALUES, answer
