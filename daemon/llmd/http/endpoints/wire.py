"""Requests and answers of llmd's own endpoints. Types only, no I/O."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class LastStart(msgspec.Struct, frozen=True):
    """Facts about the start of a session's last request."""

    reason: str
    reason_text: str
    prompt_tokens: int
    reused_tokens: int
    diverged_at: int | None


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """A branch of a session, as the session table shows it."""

    slot: int
    """Number of the branch's entry in the session table."""
    state: str
    tokens: int
    """Resident tokens."""
    visible_tokens: int
    waiting: int
    """Requests that wait until the running request ends."""
    requests: int
    prefilled_tokens_total: int
    reused_tokens_total: int
    generated_tokens_total: int
    opened_ms: int
    used_ms: int
    last: LastStart | None


class Session(Timeline, frozen=True, kw_only=True):
    """A session: the totals of its branches, and each branch. `slot` and `last` are those of the most recently used
    branch. `state` is the state of a running branch or, if no branch runs, of the most recently used branch.
    """

    id: str
    owner: int
    owner_name: str | None
    """The owner's name in the key file, or null if no key belongs to this owner any more."""
    client: str | None
    """The program that sent the last request, by its User-Agent. null if the session has had no request since the
    daemon started.
    """
    last_words: str | None
    """The beginning of the last user message of a chat since the daemon started."""
    pinned: bool
    context_tokens: int
    """Maximum tokens of one branch."""
    timelines: list[Timeline]
    """The branches, most recently used first."""
    object: Literal["session"] = "session"


class Places(msgspec.Struct, frozen=True):
    named: int
    named_used: int
    """Branches of named sessions in the model's memory, including those of other owners."""
    scratch: int
    parked: int
    parked_max: int
    dormant: int
    """Sessions on disk without an entry. A later start of llmd can load them."""
    policy: str


class Storage(msgspec.Struct, frozen=True):
    """Memory and disk of sessions outside the model's memory."""

    parked_bytes: int
    """Bytes of parked states, in memory and on disk."""
    parked_bytes_max: int
    """Limit on parked states in memory. Further states are moved to disk."""
    disk_bytes: int
    """Bytes of states on disk, including older states of sessions in use."""
    disk_bytes_max: int
    """Limit on states on disk. 0 if llmd has no state directory."""
    disk_refuses: bool
    """True if the disk has recently refused a state. llmd then writes no states, and drops those that do not fit into
    memory.
    """
    checkpoints: int
    checkpoint_bytes: int
    checkpoint_bytes_max: int
    state_dir: str | None
    """The state directory, shown to administrators only. null if sessions are kept in memory only."""


class SessionList(msgspec.Struct, frozen=True):
    data: list[Session]
    places: Places
    storage: Storage
    scratch: list[Session]
    """Branches of requests without a session, the last used first. Each id can be shown and explained."""
    object: Literal["list"] = "list"


class ForkRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    session_id: str
    """The new session."""
    at: int | str | None = None
    """Where to fork: a number of tokens, `last_user` (before the user's last message) or `turn:N` (before the user's
    N-th message). The default is the whole session.
    """
    replace: bool = False
    """If true, an existing session with this id is closed. If false, an existing session is the error session_exists.
    """


class PinRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pinned: bool


class RenameRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    session_id: str


class SessionDeleted(msgspec.Struct, frozen=True):
    id: str
    session_id: str
    deleted: bool
    """Whether the session existed."""
    closed: bool = True
    """Always true: the session is closed now, whether it existed or not."""
    object: Literal["session.deleted"] = "session.deleted"


class SessionReset(Session, frozen=True, kw_only=True):
    """The session after the reset. If the session did not exist, an empty session with slot -1."""

    session_id: str
    existed: bool
    reset: bool = True
    """Always true: the session is empty now, whether it existed or not."""


# --- saved sessions ---------------------------------------------------------------------------------------------------


class SaveRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name under which the session is saved."""

    name: str


class LoadRequest(SaveRequest, frozen=True, forbid_unknown_fields=True):
    replace: bool = False
    """If true, an existing session with this id is replaced."""


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
    """Bytes of the saved state. 0 if only the tokens are saved; these tokens are prefilled again after loading."""
    saved_ms: int
    object: Literal["saved_session"] = "saved_session"


class SavedList(msgspec.Struct, frozen=True):
    """Saved sessions, the newest first."""

    data: list[Saved]
    own_max: int
    """Maximum number of sessions that one owner may save."""
    all_max: int
    """Maximum number of sessions that all owners together may save."""
    object: Literal["list"] = "list"


class SavedDeleted(msgspec.Struct, frozen=True):
    name: str
    deleted: bool = True
    object: Literal["saved_session.deleted"] = "saved_session.deleted"


# --- past turns -------------------------------------------------------------------------------------------------------


class Divergence(msgspec.Struct, frozen=True):
    """The point at which the prompt differs from the session, with the text and the tokens of both after that point.
    The tokens can differ although the texts are equal.
    """

    at: int
    before: str
    """Text before that point."""
    resident: str | None
    """Text of the session after that point. null if the text is not certain."""
    prompt: str
    resident_tokens: list[int] | None
    prompt_tokens: list[int]


class ExplainedTurn(msgspec.Struct, frozen=True):
    at_ms: int
    slot: int | None
    """Number of the branch's entry in the session table. null if the request was refused."""
    reason: str | None
    """null if the request ended before it started."""
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


# --- the model --------------------------------------------------------------------------------------------------------


class ModelMeta(msgspec.Struct, frozen=True):
    """Facts about the model. The names are llama.cpp's, for tools that know these names."""

    n_ctx: int
    n_ctx_train: int
    n_vocab: int
    n_params: int
    size: int
    host_bytes: int
    """Bytes of `size` that stay with the CPU although there is a GPU."""
    memory: str
    architecture: str
    description: str
    backend: str
    n_threads: int
    """Number of threads that compute a step: the configured number, or the number that was fastest when the model was
    opened.
    """
    fingerprint: str
    sampling: dict[str, Any]
    """Defaults of a request: the model's own recommendations, otherwise llmd's."""
    n_embedding: int
    """Dimensions of an embedding. 0 if the model does not support embeddings."""
    n_embedding_tokens: int
    """Maximum tokens of a text to embed."""


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


class AnthropicModel(Model, frozen=True, kw_only=True):
    """A model with the members that Anthropic's clients read."""

    type: Literal["model"] = "model"
    display_name: str
    created_at: str
    """RFC 3339."""
    max_input_tokens: int
    max_tokens: int
    """Maximum tokens of an answer. The context limits the prompt and the answer together."""
    lifecycle: Literal["active"] = "active"


class AnthropicModelList(ModelList, frozen=True, kw_only=True):
    """The list of models with the members that Anthropic's clients read, in one page."""

    first_id: str
    last_id: str
    has_more: bool = False


# --- text and tokens --------------------------------------------------------------------------------------------------


class TokenizeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text to tokenize, in `content` or `prompt`."""

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
    """The text, under llama.cpp's name (`content`) and under vLLM's name (`prompt`)."""

    content: str
    prompt: str


class RenderedTemplate(msgspec.Struct, frozen=True):
    prompt: str


# --- health -----------------------------------------------------------------------------------------------------------


class Health(msgspec.Struct, frozen=True):
    status: Literal["ok"]
    version: str
    pid: int


class Readiness(msgspec.Struct, frozen=True):
    """Readiness of the daemon. Status `loading` means that the model is being read. Status `stalled` means that the
    decode thread has been in the same step for `seconds_without_progress`.
    """

    status: Literal["loading", "ready", "stalled", "stopping"]
    model: str
    requests: int
    seconds_without_progress: float
    loaded_per_mille: int = 1000
    """Part of the model that has been read, in thousandths."""
    seconds_loading: float | None = None
    """Seconds since loading began. null if the model is loaded."""
