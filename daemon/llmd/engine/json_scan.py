"""Checks and cleans JSON of clients in libllm before Python decodes it.

msgspec holds the interpreter lock during a whole decode, so a body with many values would block the event loop even if
a thread decoded it. libllm reads the body without that lock, and refuses bodies that would take long to decode. Pure;
any thread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from ..core import limits
from ..core.errors import ApiError
from .native import JSON_TEXTS, JSON_WORDS, Status, ffi, lib

_TOO_MUCH = ("values", "containers", "keys", "floats", "text_bytes")
"""Limits of the whole body. Exceeding another limit counts as invalid JSON."""


class JsonScan:
    """Checks JSON against limits, which are given by their words."""

    def __init__(self, allowed: Mapping[str, int]) -> None:
        self.allowed = allowed
        fields = {word if word == "depth" else f"n_{word}": value for word, value in allowed.items()}
        self._limits = ffi.new("llm_json_limits *", fields)

    def clean(self, data: bytes | bytearray) -> bytes:
        """Returns the same JSON in a form that is cheap to decode. Raises an ApiError that says what is wrong, and
        where.
        """
        document = ffi.new("llm_json *")
        status = lib.llm_json_scan(ffi.from_buffer(data), len(data), self._limits, document)
        if status == Status.OK:
            try:
                return bytes(ffi.buffer(document.text, document.n_bytes))
            finally:
                lib.llm_json_free(document)
        if status != Status.INVALID:
            raise ApiError("no_memory")
        raise self._refusal(document.verdict, document.offset)

    def _refusal(self, verdict: int, offset: int) -> ApiError:
        word, text = JSON_WORDS[verdict], JSON_TEXTS[verdict]
        if word not in self.allowed:
            return ApiError("invalid_json", f"The body is not valid JSON: {text} (at byte {offset}).")
        code = "request_too_large" if word in _TOO_MUCH else "invalid_json"
        return ApiError(code, f"The body has more than {self.allowed[word]} {text} (at byte {offset}).")


@cache
def decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    """Returns a decoder of clean JSON as this type."""
    return msgspec.json.Decoder(kind, float_hook=_float)


def _float(text: str) -> float:
    """Decodes a float. Python takes about 0.2 us for any of them, msgspec up to 12 us for one of many digits or a large
    exponent."""
    value = float(text)
    if math.isinf(value):
        raise ValueError("Number out of range")
    return value


def body_scan(n_ctx: int) -> JsonScan:
    """Returns the limits for request bodies of a model with this context."""
    n_values = limits.JSON_VALUES_MAX + limits.JSON_VALUES_PER_TOKEN * n_ctx
    return JsonScan(
        {
            "values": min(n_values, limits.JSON_VALUES_IN_ALL_MAX),
            "containers": limits.JSON_CONTAINERS_MAX,
            "keys": limits.JSON_KEYS_MAX,
            "depth": limits.JSON_DEPTH_MAX,
            "key_bytes": limits.JSON_KEY_BYTES_MAX,
            "number_bytes": limits.JSON_NUMBER_BYTES_MAX,
            "floats": limits.JSON_FLOATS_MAX,
            "text_bytes": limits.JSON_TEXT_BYTES_MAX,
        }
    )


ARGUMENTS = JsonScan(
    {
        "values": limits.ARGUMENTS_VALUES_MAX,
        "containers": limits.ARGUMENTS_VALUES_MAX,
        "keys": limits.ARGUMENTS_VALUES_MAX,
        "depth": limits.ARGUMENTS_DEPTH_MAX,
        "key_bytes": limits.JSON_KEY_BYTES_MAX,
        "number_bytes": limits.JSON_NUMBER_BYTES_MAX,
        "floats": limits.ARGUMENTS_FLOATS_MAX,
        "text_bytes": limits.JSON_TEXT_BYTES_MAX,
    }
)
"""Limits for the arguments of one tool call, which are JSON in a text."""
