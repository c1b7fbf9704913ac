"""Text and tokens as they travel. Types only, no I/O."""

from __future__ import annotations

import msgspec


class TokenizeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`content` (or `prompt`) is the text."""

    content: str | None = None
    prompt: str | None = None
    model: str | None = None
    add_special: bool | None = None
    parse_special: bool | None = None
    with_pieces: bool | None = None


class TokenPiece(msgspec.Struct, frozen=True):
    id: int
    piece: str


class Tokens(msgspec.Struct, frozen=True):
    tokens: list[int | TokenPiece]
    count: int
    max_model_len: int


class DetokenizeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tokens: list[int]
    model: str | None = None


class DetokenizedText(msgspec.Struct, frozen=True):
    """The same text under the names of llama.cpp and of vLLM."""

    content: str
    prompt: str


class RenderedTemplate(msgspec.Struct, frozen=True):
    prompt: str
