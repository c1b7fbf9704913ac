"""Splits an answer into text, reasoning and tool calls while the answer is generated. Each answer has its own parser.
Any thread can use a parser, but only one thread at a time. Parsing a short piece of text takes a millisecond at most.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..core.errors import ApiError, code_of_status
from .native import STATUS_WORDS, Status, ffi, lib, text_of

_ERROR_BYTES = 1024


class Diff(msgspec.Struct, frozen=True, gc=False):
    """An addition to a parsed answer, made by a new piece of text."""

    kind: Literal["text", "reasoning", "call"]
    text: str
    """New text. For a tool call, new text of the call's arguments."""
    call: int = 0
    """The index of the tool call in the answer, from 0."""
    name: str = ""
    """The function's name. Set only in the first Diff of a tool call."""
    id: str = ""
    """The id of the tool call. Set only in the first Diff of the tool call."""


_diffs = msgspec.json.Decoder(list[Diff])


class AnswerParser:
    def __init__(self, engine: Any, syntax: bytes) -> None:
        """`engine` is the pointer from llm_engine_open. `syntax` is the `syntax` of the prompt (text.Prompt)."""
        out = ffi.new("llm_answer_parser **")
        error = ffi.new("char[]", _ERROR_BYTES)
        status = lib.llm_answer_parser_open(engine, syntax, len(syntax), out, error, _ERROR_BYTES)
        if status != Status.OK:
            raise ApiError(code_of_status(STATUS_WORDS[status]), text_of(error))
        self._parser = ffi.gc(out[0], lib.llm_answer_parser_close)
        self._out = ffi.new("const char **")
        self._n_out = ffi.new("size_t *")

    @property
    def n_reread(self) -> int:
        """Number of bytes of the answer that `feed` has already parsed, and may parse again in its next call."""
        return int(lib.llm_answer_parser_rescan_bytes(self._parser))

    def feed(self, text: str, is_final: bool, is_cut: bool = False) -> list[Diff]:
        """Parses more text. `is_final` says that no more text follows. `is_cut` says that the answer was cut off after
        this text, for example at its maximum length.
        """
        data = text.encode("utf-8", "replace")
        status = lib.llm_answer_parser_feed(self._parser, data, len(data), is_final, is_cut, self._out, self._n_out)
        if status != Status.OK:
            raise ApiError(code_of_status(STATUS_WORDS[status]))
        return _diffs.decode(ffi.buffer(self._out[0], self._n_out[0]))
