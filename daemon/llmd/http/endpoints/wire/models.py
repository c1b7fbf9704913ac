"""The model as it travels. Types only, no I/O."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class ModelMeta(msgspec.Struct, frozen=True):
    """Facts of EngineInfo, for tools that read them in llama.cpp's names."""

    n_ctx: int
    n_ctx_train: int
    n_vocab: int
    n_params: int
    size: int
    host_bytes: int
    """Bytes of `size` that the CPU computes with although there is a GPU."""
    memory: str
    architecture: str
    description: str
    backend: str
    n_threads: int
    """Threads of a step: as configured, or as measured when the model was opened."""
    fingerprint: str
    sampling: dict[str, Any]
    """Defaults of a request: the model's own recommendations, else llmd's."""
    n_embedding: int
    """Numbers of an embedding; 0: the model makes none."""
    n_embedding_tokens: int
    """The most tokens of a text to embed."""


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
    """The longest answer; prompt and answer together have no more tokens than the context."""
    lifecycle: Literal["active"] = "active"


class AnthropicModelList(ModelList, frozen=True, kw_only=True):
    """A page with what Anthropic's clients read, and the only one."""

    first_id: str
    last_id: str
    has_more: bool = False
