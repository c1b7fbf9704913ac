"""Compares libllm's JSON scan with Python's parser, on generated documents and on mutations of them."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmd.core import limits
from llmd.core.errors import ApiError
from llmd.engine.json_scan import body_scan

SCAN = body_scan(512)
FRAGMENTS = (
    b"\\ud83d", b"\\ude00", b"\\u0041", b"\\u0022", b"\\u005c", b"\\u0000", b"\\n", b"\\", b'"', b"{", b"}", b"[", b"]",
    b",", b":", b"1", b"-", b".", b"e", b"0", b"null", b"NaN", b"tru", b" ", b"\n", b"\xc3", b"\xbc", b"\xed\xa0\x80",
    b"\xf0\x9f\x98\x80", b"\x00", b"\x7f", b"\xff", b"/*", b"'", b"\xef\xbb\xbf",
)  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS.filter(lambda value: value not in (float("inf"), float("-inf"))),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


def python_reads(data: bytes) -> Any:
    """Parses JSON with Python. Half of a surrogate pair becomes U+FFFD, as in libllm. Raises ValueError."""

    def refuse(word: str) -> None:
        raise ValueError(word)

    return whole(json.loads(data.decode("utf-8"), parse_constant=refuse))


def whole(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [whole(item) for item in value]
    if isinstance(value, dict):
        return {whole(name): whole(item) for name, item in value.items()}
    return value


def same_verdict(data: bytes) -> bool:
    """Checks that libllm and Python agree, and returns whether both accepted the document. If so, msgspec must decode
    libllm's output to the same value.
    """
    try:
        wanted = python_reads(data)
    except (ValueError, RecursionError):
        with pytest.raises(ApiError) as refused:
            SCAN.clean(data)
        assert refused.value.code in ("invalid_json", "request_too_large")
        return False
    cleaned = SCAN.clean(data)
    assert whole(json.loads(cleaned)) == wanted
    assert len(cleaned) <= len(data) and SCAN.clean(cleaned) == cleaned
    try:
        assert msgspec.json.decode(cleaned) == wanted
    except msgspec.ValidationError as error:
        assert "out of range" in str(error)  # valid syntax, such as 1e999
    return True


def mutated(data: bytes, chance: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(out) + 1)
        out[at : at + chance.choice((0, 0, 1, 3))] = chance.choice(FRAGMENTS)
    return bytes(out)


@given(VALUES, st.booleans())
@settings(max_examples=300, deadline=None)
def test_it_reads_what_python_writes(value: Any, ascii_only: bool) -> None:
    written = json.dumps(value, ensure_ascii=ascii_only, indent=1 if ascii_only else None)
    assert same_verdict(written.encode("utf-8", "surrogatepass"))


@given(VALUES, st.booleans(), st.randoms(use_true_random=False))
@settings(max_examples=600, deadline=None)
def test_it_refuses_what_python_refuses(value: Any, ascii_only: bool, chance: random.Random) -> None:
    data = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    for _ in range(5):
        same_verdict(mutated(data, chance))


@pytest.mark.parametrize("fragment", FRAGMENTS)
def test_fragments_alone_and_in_a_text(fragment: bytes) -> None:
    same_verdict(fragment)
    same_verdict(b'["a' + fragment + b'b", 1]')
    same_verdict(b"[1 " + fragment + b" 2]")


def test_no_context_allows_more_than_is_decoded_in_time() -> None:
    """Without a limit for all contexts, a context of a million tokens would allow 2,162,588 integers, which hold the
    interpreter lock for 0.15 s.
    """
    assert SCAN.allowed["values"] < limits.JSON_VALUES_IN_ALL_MAX
    for n_ctx in (131_072, 1 << 20, 1 << 24):
        assert body_scan(n_ctx).allowed["values"] == limits.JSON_VALUES_IN_ALL_MAX
    assert limits.LOGIT_BIASES_MAX < limits.JSON_FLOATS_MAX


def test_a_clean_document_has_no_unicode_escapes() -> None:
    """Without escapes, msgspec can copy texts instead of decoding them character by character."""
    texts = {"a\u00e4\u20ac\U0001f600": ["\ud83d", "\u2028"]}
    assert SCAN.clean(json.dumps(texts).encode()) == '{"aä€😀":["\ufffd","\u2028"]}'.encode()


@pytest.mark.parametrize(
    ("word", "body"),
    [
        ("values", b"[" + b"1," * (SCAN.allowed["values"] - 1) + b"1]"),
        ("objects and lists", b"[" + b"[]," * (limits.JSON_CONTAINERS_MAX - 1) + b"[]]"),
        ("names in objects", b"{" + b'"":1,' * limits.JSON_KEYS_MAX + b'"":1}'),
        ("levels of objects and lists", b"[" * (limits.JSON_DEPTH_MAX + 1) + b"]" * (limits.JSON_DEPTH_MAX + 1)),
        ("bytes in a name", b'{"' + b"x" * (limits.JSON_KEY_BYTES_MAX + 1) + b'":1}'),
        ("bytes in a number", b"1" * (limits.JSON_NUMBER_BYTES_MAX + 1)),
        ("numbers other than integers", b"[" + b"0.5," * limits.JSON_FLOATS_MAX + b"0.5]"),
        ("bytes in all texts", b'"' + b"x" * (limits.JSON_TEXT_BYTES_MAX + 1) + b'"'),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_limit_is_named(word: str, body: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        body_scan(1 << 20 if word.startswith(("objects", "names")) else 512).clean(body)
    is_size = word.startswith(("values", "objects", "names", "numbers", "bytes in all"))
    assert refused.value.code == ("request_too_large" if is_size else "invalid_json")
    assert f" {word}" in refused.value.message
    assert "(at byte " in refused.value.message


def test_a_fault_is_named_with_its_place() -> None:
    with pytest.raises(ApiError) as refused:
        SCAN.clean(b'{"a": 1,}')
    assert refused.value.code == "invalid_json"
    assert refused.value.message == "The body is not valid JSON: a name in quotes is expected (at byte 8)."
