"""Passes the JSON of clients to libllm before Python decodes it. libllm checks the JSON, and makes a copy that is cheap
to decode.

msgspec holds the interpreter lock while it decodes a document. Even in another thread, a body with many values would
thus block the event loop. libllm scans the body without that lock. It refuses a body that would take long to decode.
All functions are pure, and can be called in any thread.
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
"""Names of limits on the whole body. A body that exceeds one of these gets the error request_too_large; a body that
exceeds another limit gets invalid_json.
"""


class JsonScan:
    """Checks JSON against limits. `allowed` maps the names of limits (native.JSON_WORDS) to their values."""

    def __init__(self, allowed: Mapping[str, int]) -> None:
        self.allowed = allowed
        fields = {word if word == "depth" else f"n_{word}": value for word, value in allowed.items()}
        self._limits = ffi.new("llm_json_limits *", fields)

    def clean(self, data: bytes | bytearray) -> bytes:
        """Returns a copy of the document that is cheap to decode. Raises an ApiError that names the error in the
        document and its position.
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
    """Returns a decoder to this type, for JSON that JsonScan.clean has returned."""
    return msgspec.json.Decoder(kind, float_hook=_float)


def _float(text: str) -> float:
    """Decodes a float. Python takes about 0.2 us for any float. msgspec would take up to 12 us for a float with many
    digits or a large exponent.
    """
    value = float(text)
    if math.isinf(value):
        raise ValueError("Number out of range")
    return value


def body_scan(n_ctx: int) -> JsonScan:
    """Returns the JsonScan for request bodies. `n_ctx` is the number of tokens of the model's context."""
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
"""Checks the arguments of a tool call. The arguments are a string that contains JSON."""
