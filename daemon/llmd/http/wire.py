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


class Timeline(msgspec.Struct, frozen=True):
    """One of the histories that a session holds side by side, as the shared page shows it."""

    slot: int
    state: str
    tokens: int
    """Resident tokens."""
    visible_tokens: int
    waiting: int
    """Requests queued behind the running one."""
    requests: int
    prefilled_tokens_total: int
    reused_tokens_total: int
    generated_tokens_total: int
    opened_ms: int
    used_ms: int
    last: LastStart | None


class Session(msgspec.Struct, frozen=True):
    """A session: what its timelines have in common, their totals, and each of them."""

    id: str
    owner: int
    owner_name: str | None
    """From the key file; null: no key has this owner any more."""
    slot: int
    """Of the timeline used last."""
    state: str
    """Of a timeline that is running, else of the one used last."""
    pinned: bool
    tokens: int
    visible_tokens: int
    context_tokens: int
    """What one timeline may hold."""
    waiting: int
    requests: int
    prefilled_tokens_total: int
    reused_tokens_total: int
    generated_tokens_total: int
    opened_ms: int
    used_ms: int
    last: LastStart | None
    """Of the timeline used last."""
    timelines: list[Timeline]
    """The one used last first."""
    object: Literal["session"] = "session"


class Places(msgspec.Struct, frozen=True):
    named: int
    named_used: int
    """Timelines of named sessions in the model's memory, those of others included."""
    scratch: int
    parked: int
    parked_max: int
    dormant: int
    """Sessions on disk that found no place at the start; a request that names one takes it in."""
    policy: str


class Storage(msgspec.Struct, frozen=True):
    """What sessions take outside the model's memory."""

    parked_bytes: int
    """In memory and on disk."""
    parked_bytes_max: int
    """In memory; the rest goes to disk."""
    checkpoints: int
    checkpoint_bytes: int
    checkpoint_bytes_max: int
    state_dir: str | None
    """Told to those who may administer; null: memory only."""


class SessionList(msgspec.Struct, frozen=True):
    data: list[Session]
    places: Places
    storage: Storage
    object: Literal["list"] = "list"


class ForkRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    session_id: str
    """The new session."""
    at: int | str | None = None
    """A count of tokens, `last_user`, or `turn:N`: before the last message of the user, or the N-th. Default: all."""
    replace: bool = False
    """A session that has the id already is closed for the fork; otherwise it is session_exists."""


class PinRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pinned: bool


class RenameRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    session_id: str


class SaveRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name under which the session is saved, or was."""

    name: str


class SessionSaved(msgspec.Struct, frozen=True):
    id: str
    name: str
    tokens: int
    object: Literal["session.saved"] = "session.saved"


class Saved(msgspec.Struct, frozen=True):
    name: str
    owner: int
    owner_name: str | None
    tokens: int
    state_bytes: int
    """0: its tokens are read again when it is loaded."""
    saved_ms: int
    object: Literal["saved_session"] = "saved_session"


class SavedList(msgspec.Struct, frozen=True):
    """Saved sessions, the newest first."""

    data: list[Saved]
    own_max: int
    """As many may one owner save,"""
    all_max: int
    """and all together."""
    object: Literal["list"] = "list"


class SavedDeleted(msgspec.Struct, frozen=True):
    name: str
    deleted: bool = True
    object: Literal["saved_session.deleted"] = "saved_session.deleted"


class Divergence(msgspec.Struct, frozen=True):
    """Where the prompt left what the session held: as text, and as the tokens of each side, which may differ where the
    text does not."""

    at: int
    before: str
    """What both have."""
    resident: str | None
    """What the session held from there; null: not known for certain."""
    prompt: str
    resident_tokens: list[int] | None
    prompt_tokens: list[int]


class ExplainedTurn(msgspec.Struct, frozen=True):
    at_ms: int
    slot: int | None
    """The timeline it went to; null: it was refused."""
    reason: str | None
    """null: it ended before it began."""
    reason_text: str | None
    outcome: str
    prompt_tokens: int
    reused_tokens: int
    prefilled_tokens: int
    generated_tokens: int
    divergence: Divergence | None


class Explanation(msgspec.Struct, frozen=True):
    """The last turns of a session since the daemon started, the oldest first."""

    id: str
    owner: int
    turns: list[ExplainedTurn]
    object: Literal["session.explanation"] = "session.explanation"


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
    """`loading`: the model is being read; `stalled`: the decode thread has been in one step for
    `seconds_without_progress`."""

    status: Literal["loading", "ready", "stalled", "stopping"]
    model: str
    requests: int
    seconds_without_progress: float
    loaded_per_mille: int = 1000
    """Of the model."""
    seconds_loading: float | None = None
    """Since when it has been loading; null: it is there."""


class Props(msgspec.Struct, frozen=True):
    """What llama.cpp-aware tools ask for."""

    default_generation_settings: dict[str, Any]
    total_slots: int
    model_alias: str
    build_info: str
