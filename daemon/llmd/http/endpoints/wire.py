"""The types of the requests and answers of llmd's own endpoints."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class LastStart(msgspec.Struct, frozen=True):
    """How the last request of a session started: how many prompt tokens were reused, and why no more were reused."""

    reason: str
    reason_text: str
    prompt_tokens: int
    reused_tokens: int
    diverged_at: int | None


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """A branch of a session. The values are read from the session table."""

    slot: int
    """Number of the branch's entry in the session table."""
    state: str
    kept_in: str
    """Where the branch's state is: `slot`, `memory`, `disk`, or `none` if the next request prefills the tokens."""
    tokens: int
    """Number of tokens that the branch holds."""
    visible_tokens: int
    waiting: int
    """Number of requests that wait until the running request of this branch ends."""
    requests: int
    prefilled_tokens_total: int
    reused_tokens_total: int
    generated_tokens_total: int
    memory_bytes: int
    """Bytes of memory that the state takes: in the model's memory, or in host memory if it is parked there. 0 if the
    state is only on disk. Memory that several branches share is counted once.
    """
    checkpoint_bytes: int
    """Bytes of checkpoints in host memory. A checkpoint counts for the last branch that saved or restored it."""
    disk_bytes: int
    """Size of the branch's state on disk. While the branch is in use, this is an older state."""
    opened_ms: int
    used_ms: int
    last: LastStart | None


class Session(Timeline, frozen=True, kw_only=True):
    """A session. Its counts, such as `tokens` and `requests`, are sums over its branches. `slot`, `kept_in` and `last`
    belong to the most recently used branch. `state` is the state of a running branch. If no branch runs, it is the
    state of the most recently used branch.
    """

    id: str
    owner: int
    owner_name: str | None
    """The owner's name. null if the owner's key was removed from the key file."""
    client: str | None
    """The name of the client program, from the User-Agent header of the last request. null if there was no request
    since the daemon started.
    """
    last_words: str | None
    """The beginning of the last user message. null if there was no chat request since the daemon started."""
    pinned: bool
    context_tokens: int
    """Maximum number of tokens of one branch."""
    timelines: list[Timeline]
    """The branches of the session, the most recently used first."""
    object: Literal["session"] = "session"


class Places(msgspec.Struct, frozen=True):
    named: int
    named_used: int
    """Number of slots that branches of named sessions occupy, including those of other owners."""
    scratch: int
    parked: int
    parked_max: int
    dormant: int
    """Number of sessions on disk that have no entry in the session table. A later start of llmd can load them."""
    policy: str


class Storage(msgspec.Struct, frozen=True):
    """How much host memory and disk the states of sessions use, except those in the model's memory."""

    parked_bytes: int
    """Bytes of parked states, in host memory and on disk."""
    parked_bytes_max: int
    """Limit on the bytes of parked states in host memory. States that exceed it are moved to disk."""
    disk_bytes: int
    """Bytes of states on disk. They include older states of sessions that are now in use."""
    disk_bytes_max: int
    """Limit on the bytes of states on disk. 0 if llmd has no state directory."""
    disk_refuses: bool
    """True if llmd recently failed to write a state to disk. llmd then writes no states for a while. Meanwhile it drops
    states that do not fit into host memory.
    """
    checkpoints: int
    checkpoint_bytes: int
    checkpoint_bytes_max: int
    state_dir: str | None
    """The state directory. null for callers that are no administrators, and if sessions are kept in memory only."""


class SessionList(msgspec.Struct, frozen=True):
    data: list[Session]
    places: Places
    storage: Storage
    scratch: list[Session]
    """Branches of requests that name no session, the most recently used first. Their ids can be used in GET
    /v1/sessions/ID and GET /v1/sessions/ID/explain.
    """
    object: Literal["list"] = "list"


class ForkRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    session_id: str
    """Id of the new session."""
    at: int | str | None = None
    """Where to fork. By default, the new session gets all tokens. Values:
    - a number: after this number of tokens,
    - `last_user`: before the user's last message,
    - `turn:N`: before the user's N-th message.
    """
    replace: bool = False
    """What happens if a session with this id exists. If true, that session is closed. If false, the request fails with
    the error session_exists.
    """


class PinRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pinned: bool


class RenameRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    session_id: str


class SessionDeleted(msgspec.Struct, frozen=True):
    id: str
    session_id: str
    deleted: bool
    """True if the session existed."""
    closed: bool = True
    """Always true. A session that did not exist counts as closed, too."""
    object: Literal["session.deleted"] = "session.deleted"


class SessionReset(Session, frozen=True, kw_only=True):
    """The session after the reset. If the session did not exist, its state is "empty" and its slot -1."""

    session_id: str
    existed: bool
    reset: bool = True
    """Always true. A session that did not exist counts as reset, too."""


# --- saved sessions ---------------------------------------------------------------------------------------------------


class SaveRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Saves a session under `name`."""

    name: str


class LoadRequest(SaveRequest, frozen=True, forbid_unknown_fields=True):
    replace: bool = False
    """What happens if a session with this id exists. If true, it is replaced. If false, the request fails with the
    error session_exists.
    """


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
    """Bytes of the saved state. 0 if only the tokens are saved. The tokens are then prefilled again after the session
    is loaded.
    """
    saved_ms: int
    object: Literal["saved_session"] = "saved_session"


class SavedList(msgspec.Struct, frozen=True):
    """Saved sessions, the newest first."""

    data: list[Saved]
    own_max: int
    """Maximum number of saved sessions of one owner."""
    all_max: int
    """Maximum number of saved sessions of all owners together."""
    object: Literal["list"] = "list"


class SavedDeleted(msgspec.Struct, frozen=True):
    name: str
    deleted: bool = True
    object: Literal["saved_session.deleted"] = "saved_session.deleted"


# --- past turns -------------------------------------------------------------------------------------------------------


class Divergence(msgspec.Struct, frozen=True):
    """The point at which a prompt differs from the session that it continued, after `at` equal tokens. `resident` and
    `prompt` are the texts after this point. The tokens can differ although these texts are equal."""

    at: int
    before: str
    """The text just before this point."""
    resident: str | None
    """null if llmd does not know for certain which tokens the session had."""
    prompt: str
    resident_tokens: list[int] | None
    prompt_tokens: list[int]


class ExplainedTurn(msgspec.Struct, frozen=True):
    at_ms: int
    slot: int | None
    """The number of the branch's entry in the session table. null if the request was refused."""
    reason: str | None
    """Why tokens were reused or not. null if the request ended before it started."""
    reason_text: str | None
    outcome: str
    prompt_tokens: int
    reused_tokens: int
    prefilled_tokens: int
    generated_tokens: int
    drafted_tokens: int
    """Draft tokens that the model has verified. `accepted_tokens` of them became part of the answer."""
    accepted_tokens: int
    grammar_drafted_tokens: int
    grammar_accepted_tokens: int
    model_drafted_tokens: int
    model_accepted_tokens: int
    divergence: Divergence | None


class ExplainedBranch(msgspec.Struct, frozen=True):
    """The tokens of a branch: where the branch diverges from another branch, and where its checkpoints are."""

    slot: int
    tokens: int
    parent: int | None
    """`slot` of the older branch that has the longest common prefix with this branch. If several older branches have
    it, the oldest one counts. null if no older branch begins with the same token.
    """
    shared_tokens: int
    """Number of tokens that the branch has in common with its parent."""
    checkpoints: list[int]
    """For each checkpoint in host memory, the number of tokens of the branch before it, ascending. A prompt that
    differs from the branch can resume from such a checkpoint. Checkpoints that are only in files are missing.
    """


class Explanation(msgspec.Struct, frozen=True):
    """The last turns of a session, the oldest first. Turns before the start of the daemon are not known."""

    id: str
    owner: int
    turns: list[ExplainedTurn]
    branches: list[ExplainedBranch]
    """The branches of the session, the oldest first."""
    object: Literal["session.explanation"] = "session.explanation"


# --- the model --------------------------------------------------------------------------------------------------------


class ModelMeta(msgspec.Struct, frozen=True):
    """Facts about the model. The members have the names that llama.cpp uses, because tools of llama.cpp read them."""

    n_ctx: int
    n_ctx_train: int
    n_vocab: int
    n_params: int
    size: int
    host_bytes: int
    """With a GPU, the bytes of the weights (`size`) that stay in host memory."""
    memory: str
    kv_type: str
    """Type of the keys and values in the KV cache (--kv-type)."""
    kv_token_bytes: int
    """Bytes of KV cache that a token takes, except in layers with a sliding window. 0 if the model has no KV cache."""
    architecture: str
    description: str
    backend: str
    n_threads: int
    """Number of threads that compute a step. This is the value of --threads. If --threads is 0, this is the number that
    was fastest when the model was opened.
    """
    fingerprint: str
    sampling: dict[str, Any]
    """Values of sampling parameters that a request does not set. They are the recommendations of the model's file.
    llmd's defaults replace missing recommendations.
    """
    n_embedding: int
    """Number of dimensions of an embedding. 0 if the model does not support embeddings."""
    n_embedding_tokens: int
    """Maximum number of tokens of a text to embed."""


class Model(msgspec.Struct, frozen=True):
    """The served model, or another model on this machine. Only administrators see the other models."""

    id: str
    created: int
    max_model_len: int
    """Maximum tokens of a branch. If the model is not loaded, this is the size of the context that the model was
    trained for.
    """
    meta: ModelMeta | None
    """null if the model is not loaded."""
    size: int
    """Size in bytes."""
    loaded: bool = True
    """Whether llmd serves the model. Only one model is loaded, and it answers every request."""
    owned_by: str = "llmd"
    object: Literal["model"] = "model"


class ModelList(msgspec.Struct, frozen=True):
    data: list[Model]
    object: Literal["list"] = "list"


class AnthropicModel(Model, frozen=True, kw_only=True):
    """A model for clients of Anthropic's API, which read additional members."""

    type: Literal["model"] = "model"
    display_name: str
    created_at: str
    """The time at which llmd started, in the format of RFC 3339."""
    max_input_tokens: int
    max_tokens: int
    """Maximum number of tokens of an answer. The prompt and the answer together must fit into the context."""
    lifecycle: Literal["active"] = "active"


class AnthropicModelList(ModelList, frozen=True, kw_only=True):
    """A list of models for clients of Anthropic's API, which read additional members. All models are on one page."""

    first_id: str
    last_id: str
    has_more: bool = False


# --- text and tokens --------------------------------------------------------------------------------------------------


class TokenizeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Asks for the tokens of a text, which is in `content` or in `prompt`."""

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
    """The text of the tokens. Clients of llama.cpp read it as `content`, and clients of vLLM as `prompt`."""

    content: str
    prompt: str


class RenderedTemplate(msgspec.Struct, frozen=True):
    prompt: str
