"""The form of an answer, as the engine takes it: GENERATE's `constraint`. Text threads; may take long."""

from __future__ import annotations

from typing import Any

import msgspec

from ..core.asked import Constraint
from ..core.errors import ApiError, code_of_status
from .native import STATUS_WORDS, Status, ffi, lib, text_of

_ERROR_BYTES = 1024


def make_constraint(engine: Any, asked: Constraint) -> bytes:
    """Raises ApiError naming the client's field, and what of it cannot be kept to."""
    request = msgspec.json.encode({"kind": asked.kind, "text": asked.text, "strict": asked.is_strict})
    document = ffi.new("llm_document *")
    error = ffi.new("char[]", _ERROR_BYTES)
    status = lib.llm_constraint_make(engine, request, len(request), document, error, _ERROR_BYTES)
    if status == Status.INVALID:
        raise ApiError("invalid_value", f"{asked.param}: {text_of(error)}", asked.param)
    if status != Status.OK:
        raise ApiError(code_of_status(STATUS_WORDS[status]))
    try:
        return bytes(ffi.buffer(document.text, document.n_bytes))
    finally:
        lib.llm_document_free(document)
