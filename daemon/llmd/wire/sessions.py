"""Sessions, models, text and health as they travel. Types only, no I/O."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class LastStart(msgspec.Struct, frozen=True):
    """How the last request of a session began."""

    reason: str
    reason_text: str
    prompt_tokens: int
    reused_tokens: int
    diverged_at: int | None


class Session(msgspec.Struct, frozen=True):
    """One session as the shared page shows it."""

    id: str
    owner: int
    slot: int
    state: str
    tokens: int
    """Resident tokens."""
    visible_tokens: int
    context_tokens: int
    waiting: int
    """Requests queued behind the running one."""
    requests: int
    prefilled_tokens_total: int
    reused_tokens_total: int
    generated_tokens_total: int
    opened_ms: int
    used_ms: int
    last: LastStart | None
    object: Literal["session"] = "session"


class Places(msgspec.Struct, frozen=True):
    named: int
    named_used: int
    scratch: int
    policy: str


class SessionList(msgspec.Struct, frozen=True):
    data: list[Session]
    places: Places
    object: Literal["list"] = "list"


class SessionDeleted(msgspec.Struct, frozen=True):
    id: str
    deleted: bool = True
    object: Literal["session.deleted"] = "session.deleted"


class ModelMeta(msgspec.Struct, frozen=True):
    """Facts in llama.cpp's names, for tools that read them."""

    n_ctx: int
    n_ctx_train: int
    n_vocab: int
    n_params: int
    size: int
    memory: str
    architecture: str
    description: str
    backend: str
    fingerprint: str


class Model(msgspec.Struct, frozen=True):
    id: str
    created: int
    max_model_len: int
    meta: ModelMeta
    owned_by: str = "llmd"
    object: Literal["model"] = "model"


class ModelList(msgspec.Struct, frozen=True):
    data: list[Model]
    object: Literal["list"] = "list"


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
    """The same text under llama.cpp's name and vLLM's."""

    content: str
    prompt: str


class RenderedTemplate(msgspec.Struct, frozen=True):
    prompt: str


class Health(msgspec.Struct, frozen=True):
    status: Literal["ok"]
    version: str
    pid: int


class Readiness(msgspec.Struct, frozen=True):
    """`stalled`: the decode thread has been in one step for `seconds_without_progress`."""

    status: Literal["ready", "stalled", "stopping"]
    model: str
    requests: int
    seconds_without_progress: float


class Props(msgspec.Struct, frozen=True):
    """What llama.cpp-aware tools ask for."""

    default_generation_settings: dict[str, Any]
    total_slots: int
    model_alias: str
    build_info: str
