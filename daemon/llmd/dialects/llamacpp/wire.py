"""llama.cpp's requests and answers as they travel. Types only, no I/O."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from ...core import limits
from ..probabilities import Likeliest
from ..sampling import EverySampler
from ..timings import Timings

# --- requests --------------------------------------------------------------------------------------------------------


class NativeGeneration(EverySampler, frozen=True, kw_only=True):
    """What completions and infill share."""

    model: str | None = None
    stream: bool | None = None
    session_id: Annotated[
        str | None, msgspec.Meta(extra_json_schema={"minLength": 1, "maxLength": limits.SESSION_ID_CHARS_MAX})
    ] = None
    n_predict: int | None = None
    stop: Annotated[str | list[str] | None, msgspec.Meta(extra_json_schema={"maxItems": limits.STOP_STRINGS_MAX})] = (
        None
    )
    logit_bias: dict[int, float] | list[tuple[int, float]] | None = None
    ignore_eos: bool | None = None
    cache_prompt: bool | None = None
    grammar: str | None = None
    json_schema: dict[str, Any] | None = None
    n_probs: Likeliest = None
    return_tokens: bool | None = None
    response_fields: list[str] | None = None


class NativeCompletionRequest(NativeGeneration, frozen=True, kw_only=True):
    prompt: str | list[int]


class ExtraContext(msgspec.Struct, frozen=True):
    text: str
    filename: str | None = None


class InfillRequest(NativeGeneration, frozen=True, kw_only=True):
    input_prefix: str = ""
    input_suffix: str = ""
    input_extra: list[ExtraContext] | None = None
    prompt: str = ""


class EmbeddingRequest(msgspec.Struct, frozen=True, kw_only=True):
    content: str | list[int | str | list[int]] | None = None
    input: str | list[int | str | list[int]] | None = None


# --- answers ---------------------------------------------------------------------------------------------------------


StopType = Literal["eos", "word", "limit"]


class NativeProbable(msgspec.Struct, frozen=True, gc=False):
    id: int
    token: str
    bytes: list[int]
    """Of which `token` may be no more than a replacement character."""
    logprob: float


class NativeChosen(msgspec.Struct, frozen=True, gc=False):
    id: int
    token: str
    bytes: list[int]
    logprob: float
    top_logprobs: list[NativeProbable]


class NativeCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, unless `response_fields` choose some, by their paths."""

    index: int = 0
    content: str = ""
    tokens: list[int] = []
    """Where `return_tokens` asks for them."""
    completion_probabilities: list[NativeChosen] | msgspec.UnsetType = msgspec.UNSET
    """Where `n_probs` asks for them."""
    id_slot: int = -1
    stop: bool = True
    model: str = ""
    tokens_predicted: int = 0
    tokens_evaluated: int = 0
    tokens_cached: int = 0
    generation_settings: dict[str, Any] = {}
    prompt: str = ""
    has_new_line: bool = False
    truncated: bool = False
    stop_type: StopType = "eos"
    stopping_word: str = ""
    timings: Timings | None = None


class PlainEmbedding(msgspec.Struct, frozen=True):
    """One vector in a list of its own."""

    index: int
    embedding: list[list[float]]


class NextToken(msgspec.Struct, frozen=True):
    has_next_token: bool
    n_decoded: int


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """A seat in the model's memory. What other owners do there is not told."""

    id: int
    n_ctx: int
    is_processing: bool
    speculative: bool = False
    session: str | None = None
    """null: none, or another owner's."""
    tokens: int = 0
    next_token: list[NextToken] = []


class Modalities(msgspec.Struct, frozen=True):
    vision: bool = False
    audio: bool = False


class Props(msgspec.Struct, frozen=True, kw_only=True):
    """What llama.cpp-aware tools ask for."""

    default_generation_settings: dict[str, Any]
    total_slots: int
    model_alias: str
    model_path: str
    """Without its folder."""
    modalities: Modalities
    endpoint_slots: bool = True
    endpoint_props: bool = False
    endpoint_metrics: bool = True
    chat_template: str
    chat_template_caps: dict[str, bool]
    bos_token: str
    build_info: str
    is_sleeping: bool = False
