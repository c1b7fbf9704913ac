"""Converts text to tokens and tokens to text, and renders conversations. The functions can run in any thread, and can
take long.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from msgspec import json

from ..core.errors import ApiError, code_of_status
from ..core.generation_request import Constraint
from .native import STATUS_TEXTS, STATUS_WORDS, Status, ffi, lib, text_of

log = logging.getLogger("llmd.engine")

_ERROR_BYTES = 1024
_INT64_MIN = -(1 << 63)
_RENDERED = ("messages", "chat_template_kwargs", "tools", "tool_choice", "constraint")
"""Names of fields with which an error message of llm_chat_render can begin."""


@dataclass(frozen=True, slots=True)
class Prompt:
    tokens: bytes
    """Token ids: int32, little-endian."""
    text: bytes = b""
    """The text that the template rendered. It is only shown to people."""
    boundaries: bytes = b""
    """Positions after which other prompts are likely to differ, each as the number of tokens before it: int32,
    little-endian, ascending.
    """
    n_history: int = 0
    """Number of tokens before the generation prompt (the beginning of the answer). 0 if it is not known."""
    n_head: int = 0
    """Number of tokens of the system messages at the beginning, which many conversations share. 0 if there are no
    system messages, or if the number is not known.
    """
    syntax: bytes = b""
    """Describes to AnswerParser how the model writes reasoning and tool calls. b"" if the answer is plain text."""
    constraint: bytes = b""
    """The compiled constraint for the GENERATE command. b"" if there is no constraint."""
    preserved: bytes = b""
    """Control tokens whose text is a part of the answer's text: int32, little-endian."""
    stops: tuple[str, ...] = ()
    """Stop strings that the template requires. They end answers in addition to the model's end tokens."""
    is_after: bool = False
    """Whether the prompt continues kept tokens of a past answer (answers/memory.py)."""

    @property
    def n_tokens(self) -> int:
        return len(self.tokens) // 4


class Pieces(dict[int, bytes]):
    """A cache of the texts of tokens, including control tokens. The cache can grow to the size of the vocabulary."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __missing__(self, token: int) -> bytes:
        piece = self[token] = spell(self._engine, token.to_bytes(4, "little"), special=True)
        return piece


def render_chat(engine: Any, request: bytes) -> Prompt:
    """Calls llm_chat_render. The returned prompt usually has the whole conversation. If the prompt continues the kept
    tokens of a past answer, it has only the messages after that answer.
    """
    prompt = ffi.new("llm_prompt *")
    error = ffi.new("char[]", _ERROR_BYTES)
    status = lib.llm_chat_render(engine, request, len(request), prompt, error, _ERROR_BYTES)
    if status != Status.OK:
        log.debug("render: %s", text_of(error))
        raise _render_error(status, text_of(error))
    try:
        return _prompt_of(prompt)
    finally:
        lib.llm_prompt_free(prompt)


def _prompt_of(prompt: Any) -> Prompt:
    def copied(pointer: Any, n_bytes: int) -> bytes:
        return bytes(ffi.buffer(pointer, n_bytes)) if n_bytes else b""

    return Prompt(
        tokens=copied(prompt.tokens, 4 * prompt.n_tokens),
        text=copied(prompt.text, prompt.n_text_bytes),
        boundaries=copied(prompt.boundaries, 4 * prompt.n_boundaries),
        n_history=int(prompt.n_history),
        n_head=int(prompt.n_head),
        is_after=bool(prompt.is_after),
        syntax=copied(prompt.syntax, prompt.n_syntax_bytes),
        constraint=copied(prompt.constraint, prompt.n_constraint_bytes),
        preserved=copied(prompt.preserved, 4 * prompt.n_preserved),
        stops=tuple(json.decode(copied(prompt.stops, prompt.n_stops_bytes) or b"[]", type=list[str])),
    )


def _render_error(status: int, reason: str) -> ApiError:
    """Returns the error of a failed rendering. Messages and variables are passed on to libllm unchanged. So if libllm
    finds its input invalid, the error says that the client's request is wrong.
    """
    param = next((name for name in _RENDERED if reason.startswith(name)), "messages")
    if status != Status.INVALID:
        return ApiError(code_of_status(STATUS_WORDS[status]), f"{STATUS_TEXTS[status]} {reason}".strip(), param)
    return ApiError("invalid_value", reason if reason.startswith(param) else f"{param}: {reason}", param)


def tokenize(engine: Any, data: bytes, add_special: bool, parse_special: bool) -> bytes:
    capacity = len(data) // 2 + 16
    while True:
        out = ffi.new("int32_t[]", capacity)
        n = lib.llm_tokenize(engine, data, len(data), add_special, parse_special, out, capacity)
        if n >= 0:
            return bytes(ffi.buffer(out, 4 * n))
        if n == _INT64_MIN:
            raise ApiError("no_memory")
        capacity = -n


def detokenize(engine: Any, tokens: bytes) -> str:
    """Returns the text of tokens, including control tokens."""
    return spell(engine, tokens, special=True).decode("utf-8", "replace")


def spell(engine: Any, tokens: bytes, *, special: bool) -> bytes:
    n_tokens = len(tokens) // 4
    raw = ffi.from_buffer("int32_t[]", tokens)
    capacity = 8 * n_tokens + 64
    while True:
        out = ffi.new("char[]", capacity)
        n = lib.llm_detokenize(engine, raw, n_tokens, special, out, capacity)
        if n >= 0:
            return bytes(ffi.buffer(out, n))
        if n == _INT64_MIN:
            raise ApiError("invalid_token", None, "tokens")
        capacity = -n


def make_constraint(engine: Any, constraint: Constraint) -> bytes:
    """Compiles a constraint for the GENERATE command. If a part of the constraint cannot be enforced, raises an
    ApiError that names this part and the client's field.
    """
    request = json.encode({"kind": constraint.kind, "text": constraint.text, "strict": constraint.is_strict})
    document = ffi.new("llm_document *")
    error = ffi.new("char[]", _ERROR_BYTES)
    status = lib.llm_constraint_make(engine, request, len(request), document, error, _ERROR_BYTES)
    if status == Status.INVALID:
        raise ApiError("invalid_value", f"{constraint.param}: {text_of(error)}", constraint.param)
    if status != Status.OK:
        raise ApiError(code_of_status(STATUS_WORDS[status]))
    try:
        return bytes(ffi.buffer(document.text, document.n_bytes))
    finally:
        lib.llm_document_free(document)
