"""Random tools and arguments that are valid for them. The same seed gives the same ones.

Numbers keep their spelling (`Spelled`), and `text_of` writes JSON with one of several kinds of whitespace."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.real_templates.driver import Json


@dataclass(frozen=True)
class Spelled:
    """A number as JSON writes it. Python would change how it is written."""

    text: str


TEXTS = (
    *(
        "",
        "Rome",
        "a b",
        " x ",
        "two\nlines\n",
        "\ttab\r\n",
        'say "hi"',
        "it's",
        "back\\slash \\n \\u00e9 \\",
        "é中文🙂",
    ),
    *("\u2028\u2029\ufeff", "\x01\x1f\x7f", "null", "True", "1e5", "-0", '{"a": [1, "x"]}', "[]", "a </think> b"),
    *("</", "<", "<tool_call>", "{{ x }} {% y %}", "%s $x ${y} `z`", "a, b: c; d = e", "// # --", "]]>", "&amp;"),
)
INTEGERS = ("0", "7", "-12", "9007199254740993", "12345678901234567890", "-123456789012345678901234567890")
NUMBERS = (*INTEGERS, "-0", "0.5", "-2.50", "3.141592653589793", "1e5", "1E+2", "-2.5e-7", "6.02e23", "1e-300", "1e300")
NAMES = ("city", "b_c", "d-e", "n2", "Zip", "list", "x", "arg_key", "type", "name", "if")
OTHER_NAMES = ("extra", "z-9", "ü", "y_2")
BARE_NAMES = ("a b", "x-1", "\\", "é")
QUOTED_NAMES = ("", 'q"r', "a b", "x:y", "\\", "é\n", "</x>")
PATTERNS = {
    "^[a-z]{2,4}-[0-9]+$": ("ab-1", "wxyz-007"),
    "^#(?:[0-9a-f]{3}){1,2}$": ("#0af", "#00aaff"),
    "x": ("x", "axb"),
}
FORMATS = {
    "date": ("2024-02-29",),
    "date-time": ("2024-02-29T23:59:59.5+01:00", "2024-02-29T00:00:00Z"),
    "email": ("a.b+c@example.com",),
    "uuid": ("123e4567-e89b-12d3-a456-426614174000",),
    "ipv4": ("127.0.0.1",),
}


def plain(value: Any) -> Any:
    """Returns the value as Python's json module reads it."""
    return json.loads(text_of(value))


def text_of(value: Any, *, item: str = ", ", colon: str = ": ") -> str:
    if isinstance(value, Spelled):
        return value.text
    if isinstance(value, dict):
        members = (json.dumps(name) + colon + text_of(one, item=item, colon=colon) for name, one in value.items())
        return "{" + item.join(members) + "}"
    if isinstance(value, list):
        return "[" + item.join(text_of(one, item=item, colon=colon) for one in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def gemma_of(value: Any) -> str:
    """Returns a value as Gemma 4's template writes it: sorted names without quotes, no spaces, strings between special
    tokens.
    """
    if isinstance(value, str):
        return f'<|"|>{value}<|"|>'
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}:{gemma_of(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(gemma_of, value)) + "]"
    return text_of(value)


class Source:
    """A source of random tools and arguments. No text contains one of `avoid`. `writes` writes values if they are not
    JSON, and names without quotes. `accepts` returns whether a parameter may have a schema.
    """

    def __init__(
        self,
        seed: str,
        avoid: Sequence[str],
        accepts: Callable[[Json], bool],
        writes: Callable[[Any], str] | None = None,
    ) -> None:
        self._random, self._accepts, self._writes = random.Random(seed), accepts, writes
        self._inner_names = QUOTED_NAMES if writes is None else BARE_NAMES
        self._texts = [text for text in TEXTS if not any(one in text for one in avoid)]

    def spelled(self, value: Any) -> str:
        if self._writes is not None:
            return self._writes(value)
        item, colon = self._random.choice(((", ", ": "), (",", ":"), (",\n  ", ": ")))
        return text_of(value, item=item, colon=colon)

    def is_chosen(self, part: float) -> bool:
        return self._random.random() < part

    # --- schemas ---

    def parameters(self, n_most: int = 9) -> Json:
        """Returns the schema of a tool's arguments."""
        return self._object(self._random.randint(0, n_most), depth=0)

    def _parameter(self) -> Json:
        schema = self._schema(1)
        return schema if self._accepts(schema) else self._parameter()

    def _object(self, n: int, depth: int) -> Json:
        names = self._random.sample(NAMES, n)
        properties = {name: self._parameter() if depth == 0 else self._schema(depth + 1) for name in names}
        schema: Json = {"type": "object", "properties": properties}
        if required := [name for name in names if self.is_chosen(0.4)]:
            schema["required"] = required
        others = self._random.choice(
            [None, False, False, True, {"type": "integer"}, {"type": "string"}, {"type": "boolean"}]
        )
        if others is not None:
            schema["additionalProperties"] = others
        return schema

    def _schema(self, depth: int) -> Json:
        kinds = [self._text, self._text, self._choice, self._number, self._simple]
        if depth < 4:
            kinds += [self._list, self._nested, self._either]
        return self._random.choice(kinds)(depth)

    def _text(self, depth: int) -> Json:
        least = self._random.randint(0, 3)
        return self._random.choice(
            [
                {"type": "string"},
                {"type": "string", "minLength": least, "maxLength": least + self._random.randint(0, 9)},
                {"type": "string", "pattern": self._random.choice(list(PATTERNS))},
                {"type": "string", "format": self._random.choice(list(FORMATS))},
            ]
        )

    def _choice(self, depth: int) -> Json:
        texts = self._random.sample(self._texts, self._random.randint(1, 4))
        return self._random.choice(
            [
                {"type": "string", "enum": texts},
                {"type": ["string", "null"], "enum": [*texts, None]},
                {"type": "string", "const": texts[0]},
                {"type": "integer", "enum": [3, -1, 12]},
            ]
        )

    def _number(self, depth: int) -> Json:
        return self._random.choice(
            [
                {"type": "integer"},
                {"type": "integer", "minimum": -5, "maximum": 120},
                {"type": "number"},
                {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
                {"type": "integer", "multipleOf": 5},
            ]
        )

    def _simple(self, depth: int) -> Json:
        return {"type": self._random.choice(["boolean", "null", ["boolean", "null"], ["integer", "string"]])}

    def _list(self, depth: int) -> Json:
        schema: Json = {"type": "array", "items": self._schema(depth + 1)}
        if self.is_chosen(0.3):
            schema |= {"minItems": 1, "maxItems": 3}
        return schema

    def _nested(self, depth: int) -> Json:
        return self._object(self._random.randint(0, 3), depth)

    def _either(self, depth: int) -> Json:
        return {"anyOf": [self._schema(depth + 1), self._schema(depth + 1)]}

    # --- values ---

    def arguments(self, schema: Json, *, is_ordered: bool, n_unordered: int = 6, has_others: bool = True) -> Json:
        """Returns random arguments. With `is_ordered`, the declared ones come first, in the order of the schema.
        Otherwise they come in any order, but if there are more than n_unordered, the required ones keep their order.
        """
        values = self._members(schema, OTHER_NAMES if has_others else ())
        if is_ordered:
            return values
        names = list(values)
        self._random.shuffle(names)
        if len(schema["properties"]) > n_unordered:
            required = [name for name in values if name in schema.get("required", ())]
            ordered = iter(required)
            names = [next(ordered) if name in required else name for name in names]
        return {name: values[name] for name in names}

    def _members(self, schema: Json, other_names: Sequence[str]) -> Json:
        required = schema.get("required", ())
        chosen = [name for name in schema["properties"] if name in required or self.is_chosen(0.5)]
        values = {name: self.value(schema["properties"][name]) for name in chosen}
        others = schema.get("additionalProperties", True)
        if others is not False and other_names and self.is_chosen(0.5):
            for name in self._random.sample(other_names, self._random.randint(1, 2)):
                values[name] = self.value({} if others is True else others)
        return values

    def value(self, schema: Json) -> Any:
        if "anyOf" in schema:
            return self.value(self._random.choice(schema["anyOf"]))
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._random.choice(schema["enum"])
        kind = schema.get("type", ["string", "integer", "number", "boolean", "null"])
        kind = kind if isinstance(kind, str) else self._random.choice(kind)
        if kind == "object":
            return self._members(schema, self._inner_names) if "properties" in schema else {}
        if kind == "array":
            n = self._random.randint(schema.get("minItems", 0), schema.get("maxItems", 4))
            return [self.value(schema["items"]) for _ in range(n)]
        if kind == "string":
            return self._string(schema)
        if kind in ("integer", "number"):
            return self._spelled_number(kind, schema)
        return self._random.choice([True, False]) if kind == "boolean" else None

    def _string(self, schema: Json) -> str:
        if "pattern" in schema:
            return self._random.choice(PATTERNS[schema["pattern"]])
        if "format" in schema:
            return self._random.choice(FORMATS[schema["format"]])
        if "maxLength" not in schema:
            return self._random.choice(self._texts)
        n = self._random.randint(schema["minLength"], schema["maxLength"])
        return "".join(self._random.choice("aZ 9é中🙂.-_\"'") for _ in range(n))

    def _spelled_number(self, kind: str, schema: Json) -> Spelled:
        if "exclusiveMinimum" in schema:
            return Spelled(self._random.choice(["1", "0.5", "0.001", "1.0"]))
        if "maximum" in schema:
            return Spelled(str(self._random.randint(schema["minimum"], schema["maximum"])))
        if "multipleOf" in schema:
            return Spelled(str(schema["multipleOf"] * self._random.randint(-3, 1000)))
        return Spelled(self._random.choice(INTEGERS if kind == "integer" else NUMBERS))
