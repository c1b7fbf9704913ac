"""Opens an engine, and returns facts about it. The calls block, so they run in the thread that owns the engine."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, fields
from typing import Any

from ..core.sampling_table import SamplingDefaults
from .native import (
    KV_TYPE_WORDS,
    MEMORY_WORDS,
    POLICY_WORDS,
    SAVED_MAX,
    STATUS_TEXTS,
    Status,
    copied,
    ffi,
    gpu_trouble,
    lib,
    text_of,
)

log = logging.getLogger("llmd.engine")

_ERROR_BYTES = 1024
_TRIAL_CHAT = b'{"messages": [{"role": "user", "content": "hello"}]}'


class EngineError(Exception):
    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field
        """The field of EngineOptions whose value caused the error, or ""."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Options of an engine. The fields are those of llm_engine_options (llm.h)."""

    model: str
    table_name: str | None = None
    dead_table_names: str | None = None
    chat_template: str | None = None
    n_ctx: int = 0
    n_sessions: int = 8
    n_scratch: int = 2
    kv_bytes_max: int = 0
    kv_type: str = "f16"
    capacity_policy: str = "park"
    n_parked_max: int = 0
    branches_max: int = 0
    parked_bytes_max: int = 0
    parked_disk_bytes_max: int = 0
    checkpoint_bytes_max: int = 0
    checkpoint_every: int = 0
    idle_s_max: int = 0
    state_dir: str | None = None
    n_threads: int = 0
    n_gpu_layers: int = -1
    gap_ms_target: int = 0
    exact: bool = False
    no_drafts: bool = False
    draft_model: str | None = None
    allow_oversize: bool = False
    crash_notice: str | None = None


_NUMBERS = tuple(field.name for field in fields(EngineOptions) if field.type in ("int", "bool"))
_WORDS = {"capacity_policy": POLICY_WORDS, "kv_type": KV_TYPE_WORDS}
_TEXTS = tuple(field.name for field in fields(EngineOptions) if field.name not in (*_NUMBERS, *_WORDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """Fixed facts about the open engine. The fields are those of llm_info (llm.h)."""

    n_ctx: int
    n_ctx_train: int
    n_vocab: int
    n_sessions: int
    n_scratch: int
    n_entries: int
    """Number of entries of the session table: enough for the branches in all slots and all parked branches."""
    n_pins_max: int
    """Maximum number of pinned branches."""
    n_cells: int
    n_threads: int
    n_params: int
    model_bytes: int
    host_bytes: int
    """Bytes of the weights with which the CPU computes although the engine uses a GPU. They stay in host memory."""
    state_bytes: int
    kv_type: str
    """Type of the keys and values in the KV cache."""
    kv_token_bytes: int
    """Bytes of KV cache that a token takes, except in layers with a sliding window. 0 if the model has no KV cache."""
    token_bytes_max: int
    """Size of the longest text that one token stands for."""
    n_embedding: int
    """Dimensions of an embedding. 0 if the model does not support embeddings."""
    n_embedding_tokens: int
    """Maximum tokens of a text to embed."""
    parked_bytes_max: int
    parked_disk_bytes_max: int
    checkpoint_bytes_max: int
    memory: str
    name: str
    arch: str
    description: str
    backend: str
    fingerprint: str
    has_chat_template: bool
    sampling: SamplingDefaults

    @property
    def has_checkpoints(self) -> bool:
        """Whether the model needs checkpoints, because its state cannot be truncated to every prefix."""
        return not self.only_embeds and bool(self.memory != MEMORY_WORDS[lib.LLM_MEMORY_DENSE])

    @property
    def only_embeds(self) -> bool:
        """Whether the model can only compute embeddings, and so has no sessions."""
        return bool(self.memory == MEMORY_WORDS[lib.LLM_MEMORY_NONE])

    @property
    def kv_bytes_short(self) -> int:
        """The size of the KV cache if this size makes the context shorter than the model's training context.
        Otherwise 0.
        """
        is_short = self.n_ctx < self.n_ctx_train and self.n_cells < self.n_ctx + _CELLS_STEP
        return self.state_bytes if is_short else 0


_DRAFT_MODEL = "draft model: "
"""With this text, libllm's errors about the draft model begin."""
_CELLS_STEP = 256
"""Number of tokens by which libllm shortens a context at a time, until its KV cache fits into memory."""


def open_engine(options: EngineOptions) -> Any:
    strings = {
        name: ffi.new("char[]", value.encode()) for name in _TEXTS if (value := getattr(options, name)) is not None
    }
    raw = ffi.new("llm_engine_options *", strings)
    for field in _NUMBERS:
        setattr(raw, field, getattr(options, field))
    for field, words in _WORDS.items():
        setattr(raw, field, words.index(getattr(options, field)))
    out = ffi.new("llm_engine **")
    error = ffi.new("char[]", _ERROR_BYTES)
    status = lib.llm_engine_open(raw, out, error, _ERROR_BYTES)
    if status != Status.OK:
        message = text_of(error) or STATUS_TEXTS[status]
        field = _field_of(message, status)
        raise EngineError(message.removeprefix(_DRAFT_MODEL) if field == "draft_model" else message, field)
    _check_template(out[0], options.chat_template)
    if remark := gpu_remark(options.n_gpu_layers, info_of(out[0]).backend, gpu_trouble()):
        log.warning(remark)
    return out[0]


def gpu_remark(n_layers: int, backend: str, trouble: str) -> str:
    """Returns a warning if the CPU computes layers that the operator wanted on a GPU. Otherwise returns ""."""
    if trouble and n_layers != 0:
        return f"the model runs on the CPU alone, as with --gpu-layers 0: {trouble}"
    if n_layers > 0 and backend == "CPU":
        return f"--gpu-layers {n_layers} has no effect: libllm was built for the CPU only"
    return ""


def _field_of(message: str, status: int) -> str:
    """Returns the field of EngineOptions whose value caused an error of libllm, or "". If the field is a
    number, a word or the state directory, libllm's message begins with the field's name or with "state directory".
    """
    if message.startswith(_DRAFT_MODEL):
        return "draft_model"
    first = message.split(maxsplit=1)[0].rstrip(":")
    if first in (*_NUMBERS, *_WORDS):
        return first
    if message.startswith("state directory "):
        return "state_dir"
    return "model" if status in (lib.LLM_MODEL_LOAD, lib.LLM_INVALID) else ""


def _check_template(pointer: Any, template: str | None) -> None:
    """Checks the chat template. If the operator set an invalid template, llmd does not start. If the model's own
    template is missing or invalid, llmd logs a warning and refuses chat requests.
    """
    if info_of(pointer).has_chat_template or (template is None and info_of(pointer).only_embeds):
        return
    if template is None:
        log.warning("chat requests will be refused: %s", _template_trouble(pointer))
        return
    trouble = _template_trouble(pointer) if template else "it is empty"
    lib.llm_engine_close(pointer)
    raise EngineError(trouble, "chat_template")


def _template_trouble(pointer: Any) -> str:
    """Returns the reason why the model has no usable chat template. To get the reason, tries to render a short
    conversation, and returns the error message of this attempt in one line.
    """
    prompt = ffi.new("llm_prompt *")
    error = ffi.new("char[]", _ERROR_BYTES)
    lib.llm_chat_render(pointer, _TRIAL_CHAT, len(_TRIAL_CHAT), prompt, error, _ERROR_BYTES)
    lib.llm_prompt_free(prompt)
    return " ".join(text_of(error).split())


def start_engine(pointer: Any) -> None:
    status = lib.llm_engine_start(pointer)
    if status != Status.OK:
        lib.llm_engine_close(pointer)
        raise EngineError(STATUS_TEXTS[status])


def info_of(pointer: Any) -> EngineInfo:
    raw = ffi.new("llm_info *")
    lib.llm_engine_info(pointer, raw)
    return copied(
        raw,
        EngineInfo,
        memory=MEMORY_WORDS[raw.memory],
        kv_type=KV_TYPE_WORDS[raw.kv_type],
        sampling=_sampling_defaults(raw.sampling_default),
    )


@dataclass(frozen=True, slots=True)
class FimTokens:
    """The control tokens of a fill-in-the-middle prompt, in the order of llm_fim (llm.h). A token is -1 if the model
    does not have it.
    """

    prefix: int
    suffix: int
    middle: int
    repository: int
    file: int


@dataclass(frozen=True, slots=True)
class SavedSession:
    """A session that was saved under a label. The fields are those of llm_saved (llm.h)."""

    owner: int
    label: str
    n_tokens: int
    n_bytes: int
    saved_ms: int


def fim_of(pointer: Any) -> FimTokens | None:
    """Returns the control tokens of fill-in-the-middle prompts, or None if the model lacks one of the three required
    tokens.
    """
    tokens = FimTokens(*(int(lib.llm_fim_token(pointer, mark)) for mark in range(lib.LLM_FIM_N)))
    return tokens if min(tokens.prefix, tokens.suffix, tokens.middle) >= 0 else None


def saved_of(pointer: Any) -> list[SavedSession]:
    """Returns the saved sessions. Can be called in any thread."""
    raw = ffi.new("llm_saved[]", SAVED_MAX)
    count = int(lib.llm_engine_saved(pointer, raw, SAVED_MAX))
    return [copied(raw[i], SavedSession) for i in range(count)]


def _sampling_defaults(raw: Any) -> SamplingDefaults:
    """Returns the default of each sampling parameter. It is the model's recommendation, or else the default in
    core/sampling_table.py.
    """
    stated: dict[str, Any] = {}
    for field in fields(SamplingDefaults):
        value = getattr(raw, field.name)
        if field.type is float and not math.isnan(value):
            stated[field.name] = round(float(value), 6)
        elif field.type is int and value >= 0:
            stated[field.name] = int(value)
    return SamplingDefaults(**stated)
