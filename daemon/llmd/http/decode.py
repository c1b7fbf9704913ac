"""Decodes JSON as a declared type. An error names the member whose type is wrong. This module has no state, and its
functions can be called in any thread.

The library msgspec decodes a document in one call. msgspec's errors do not quote the wrong value, so llmd makes its own
errors. If msgspec refuses the document, llmd decodes each of its members alone. A refused member is examined in the
same way. The examination ends at the depth of the declared type. This limits the cost for any document.

An integer can be written as a float, such as `4.0`. Some languages of clients do not distinguish integers from floats,
such as JavaScript, Lua and PHP. msgspec alone would refuse a float in place of an integer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from ..core import limits
from ..core.errors import ApiError, invalid_value, missing, quoted
from ..engine.json_scan import decoder_of
from .parameters import check_unknown

T = TypeVar("T")

_EXACT_BELOW = 1 << 53
"""Every integer below this number is exact as a float."""
_TYPES = {b"{": "object", b"[": "array", b'"': "str", b"n": "null", b"t": "bool", b"f": "bool"}
"""The type of a JSON value, by the first byte of the value. Any other first byte begins a number."""
_NAMES = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    dict: "object",
    list: "array",
    tuple: "array",
    NoneType: "null",
}
"""The name of each type in errors. An error that lists several types has them in this order."""


def decoded(document: bytes, kind: type[T], path: str = "") -> T:
    """Returns the decoded document. If the document is a part of a request's body, errors name this part by `path`,
    such as `messages[2]`. Raises an ApiError that names the invalid member.
    """
    try:
        return _value(document, kind, path)[0]  # type: ignore[no-any-return]
    except (msgspec.DecodeError, RecursionError) as error:
        raise ApiError("invalid_json", f"The body is not valid JSON: {error}.") from None


def _value(text: bytes, kind: Any, path: str) -> tuple[Any, bool]:
    """Returns the decoded value, and whether msgspec accepted the text as it is."""
    try:
        return decoder_of(kind).decode(text), True
    except msgspec.ValidationError:
        return _explored(text, kind, path), False


def _explored(text: bytes, kind: Any, path: str) -> Any:
    """Decodes a JSON text that msgspec has refused. Raises an ApiError that names what is wrong. Returns the value if
    the text has no faults except integers written as floats and unknown members without effect.
    """
    text, alternatives = text.strip(), list(flat(kind))
    found = _TYPES.get(text[:1], "number")
    structs = [one for one in alternatives if is_struct(one)]
    inner = next((get_args(one) for one in alternatives if _name(one) == found), ())
    if Any in alternatives:
        raise _out_of_range(path)
    if found == "object" and structs:
        return _object(text, structs, path)
    if found == "object" and inner:
        return _mapping(text, inner[0], inner[1], path)
    if found == "array" and inner:
        return _array(text, kind, inner, path)
    if found == "number":
        return _number(text, alternatives, path)
    words = [word for one in alternatives if get_origin(one) is Literal for word in get_args(one) if word != ""]
    if found == "str" and words:
        raise invalid_value(path, f"{quoted(msgspec.json.decode(text))} is not {_listed(words, alternatives)}")
    raise _wrong_type(text, alternatives, path)


def _object(text: bytes, structs: list[type[msgspec.Struct]], path: str) -> Any:
    members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    struct = _tagged(structs, members, path)
    fields = _fields_of(struct)
    values: dict[str, Any] = {}
    is_explained = False
    for name, raw in members.items():
        if name in fields:
            value, is_exact = _value(bytes(raw), fields[name].type, _joined(path, name))
            values[fields[name].name] = value
            is_explained |= not is_exact
        elif struct.__struct_config__.forbid_unknown_fields and name != struct.__struct_config__.tag_field:
            check_unknown(struct, _joined(path, name), raw)
            is_explained = True
    for name, field in fields.items():
        if field.required and name not in members:
            raise missing(_joined(path, name))
    if not is_explained:
        raise _twice(path)
    return struct(**values)


def _tagged(structs: list[type[msgspec.Struct]], members: dict[str, msgspec.Raw], path: str) -> type[msgspec.Struct]:
    """Returns the struct as which the object must be decoded. If there are several `structs`, a member such as `type`
    (the tag) says which one.
    """
    name = structs[0].__struct_config__.tag_field
    if name is None:
        return structs[0]
    if name not in members:
        raise missing(_joined(path, name))
    by_tag = {one.__struct_config__.tag: one for one in structs}
    tag, _ = _value(bytes(members[name]), Literal[tuple(by_tag)], _joined(path, name))
    return by_tag[tag]


def _mapping(text: bytes, key: Any, kind: Any, path: str) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    is_explained = False
    for name, raw in msgspec.json.decode(text, type=dict[str, msgspec.Raw]).items():
        try:
            [known] = decoder_of(dict[key, None]).decode(msgspec.json.encode({name: None}))
        except msgspec.ValidationError:
            raise _error(path, f"the name {quoted(name)} is not of the type `{_NAMES[key]}`") from None
        found[known], is_exact = _value(bytes(raw), kind, _joined(path, name[: limits.USER_FIELD_SHOWN_CHARS_MAX]))
        is_explained |= not is_exact
    if not is_explained:
        raise _twice(path)
    return found


def _array(text: bytes, kind: Any, inner: tuple[Any, ...], path: str) -> Any:
    """Decodes a JSON array as a list or a tuple. `inner` has the type of the list's items, or the type of each item of
    the tuple. In a list of texts and numbers, all floats without a fraction are converted to integers in one pass,
    because a body can have thousands of token ids.
    """
    if all(map(_is_plain, inner)):
        try:
            text = msgspec.json.encode(_with_integers(decoder_of(Any).decode(text)))
        except msgspec.ValidationError:
            raise _out_of_range(path) from None
        try:
            return decoder_of(kind).decode(text)
        except msgspec.ValidationError:
            pass
    items = msgspec.json.decode(text, type=list[msgspec.Raw])
    if not items:
        raise _error(path, "it must not be empty")
    if any(get_origin(one) is tuple for one in flat(kind)):
        if len(items) != len(inner):
            raise _error(path, f"expected {len(inner)} items, got {len(items)}")
        pairs = enumerate(zip(items, inner, strict=True))
        return tuple(_value(bytes(raw), one, f"{path}[{n}]")[0] for n, (raw, one) in pairs)
    return _items(items, inner[0], path, 0)


def _is_plain(kind: Any) -> bool:
    """Returns whether all values of the type are numbers, texts, booleans, or lists of these."""
    return all(
        all(map(_is_plain, get_args(one))) if get_origin(one) in (list, tuple) else one in (int, float, str, bool)
        for one in flat(kind)
    )


def _with_integers(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_integers(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT_BELOW else value


def _items(items: list[msgspec.Raw], kind: Any, path: str, first: int) -> list[Any]:
    """Decodes the items of a list, and returns them. `first` is the index of the first item, for errors. A body can
    have thousands of items. So the list is halved repeatedly until msgspec accepts a half, instead of decoding the
    items one by one.
    """
    if len(items) == 1:
        return [_value(bytes(items[0]), kind, f"{path}[{first}]")[0]]
    try:
        found: list[Any] = decoder_of(list[kind]).decode(b"[%b]" % b",".join(items))
        return found
    except msgspec.ValidationError:
        half = len(items) // 2
        return [*_items(items[:half], kind, path, first), *_items(items[half:], kind, path, first + half)]


def _number(text: bytes, alternatives: list[Any], path: str) -> Any:
    value = float(text)
    if int in alternatives and value.is_integer() and abs(value) < _EXACT_BELOW:
        return int(value)
    raise _out_of_range(path) if math.isinf(value) and float in alternatives else _wrong_type(text, alternatives, path)


# --- errors ----------------------------------------------------------------------------------------------------------


def _wrong_type(text: bytes, alternatives: list[Any], path: str) -> ApiError:
    names = set(map(_name, alternatives))
    if _TYPES.get(text[:1]) in names:  # the type is right, so msgspec can have refused only an empty value
        return _error(path, "it must not be empty")
    expected = " | ".join(name for name in dict.fromkeys(_NAMES.values()) if name in names)
    return _error(path, f"expected `{expected}`, got {quoted(msgspec.Raw(text))}")


def _out_of_range(path: str) -> ApiError:
    return _error(path, "number out of range")


def _twice(path: str) -> ApiError:
    return _error(path, "the object has two members of the same name")


def _error(path: str, message: str) -> ApiError:
    code = "invalid_session_id" if path == "session_id" else "invalid_type"
    return ApiError(code, f"{path or 'The body'}: {message}.", path or None)


def _listed(words: list[Any], alternatives: list[Any]) -> str:
    """Returns a text for errors that lists the allowed words and the other allowed types."""
    allowed = [str(word) for word in dict.fromkeys(words)] + (["true", "false"] if bool in alternatives else [])
    words_text = f"one of {', '.join(allowed)}" if len(allowed) > 1 else allowed[0]
    return f"{words_text}, or an object" if "object" in map(_name, alternatives) else words_text


# --- declared types --------------------------------------------------------------------------------------------------


def flat(kind: Any) -> Iterator[Any]:
    """Yields the types of a union, without annotations. Yields the type itself if it is no union."""
    if get_origin(kind) is Annotated:
        yield from flat(get_args(kind)[0])
    elif get_origin(kind) in (Union, UnionType):
        for one in get_args(kind):
            yield from flat(one)
    else:
        yield kind


@cache
def _fields_of(struct: Any) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.encode_name: field for field in msgspec.structs.fields(struct)}


def is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def ignoring(kind: Any) -> Iterator[str]:
    """Yields the names of the structs that ignore unknown members, among `kind` and the structs inside it."""
    if getattr(kind, "IGNORES_UNKNOWN", False):
        yield kind.__name__
        for field in msgspec.structs.fields(kind):
            yield from (name for one in flat(field.type) if is_struct(one) for name in ignoring(one))


def _name(kind: Any) -> str:
    if is_struct(kind):
        return "object"
    if get_origin(kind) is Literal:
        return "str"
    return _NAMES.get(get_origin(kind) or kind, "")


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
