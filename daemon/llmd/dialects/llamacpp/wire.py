"""Types of the JSON bodies of llama.cpp's requests and answers. This module does no I/O."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from ...core import limits
from ...http.parameters import UNBOUNDED, accepts, note, refuses
from .. import members
from ..sampling import EverySampling
from ..timings import Timings

# --- requests --------------------------------------------------------------------------------------------------------


@accepts(
    "n_cache_reuse", "n_keep", "n_discard", "penalize_nl",
    id_slot="a request cannot choose a slot; name a session with session_id or a header instead",
    t_max_prompt_ms="llmd has no limit on the time of a prompt",
    t_max_predict_ms="only --request-timeout limits the time of a request",
    timings_per_token="the last chunk of a stream has the timings",
    backend_sampling="it only chooses the device that samples tokens",
)  # fmt: skip
@refuses(
    post_sampling_probs=("probabilities after the samplers; llmd reports the model's own probabilities", False),
    n_cmpl=("several answers", 1),
    image_data=("images", []),
    lora=("LoRA adapters", []),
)
class NativeGeneration(EverySampling, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The members that /completion and /infill have in common."""

    model: members.Model = None
    stream: members.Stream = None
    session_id: members.SessionId = None
    n_predict: Annotated[int | None, note(
        "Maximum tokens of the answer. 0: process the prompt only. Negative: no limit.")] = None  # fmt: skip
    stop: members.Stop = None
    logit_bias: Annotated[dict[int, float] | list[tuple[int, float]] | None, note(
        "Biases of tokens, from -100 to 100: an object from token id to bias, or a list of pairs.")] = None  # fmt: skip
    ignore_eos: members.IgnoreEos = None
    cache_prompt: members.CachePrompt = None
    grammar: members.Grammar = None
    json_schema: members.JsonSchema = None
    n_probs: members.NProbs = None
    return_progress: members.ReturnProgress = None
    speculate: members.Speculate = None
    return_tokens: Annotated[bool | None, note("true: return the token ids of the answer.")] = None
    response_fields: Annotated[list[str] | None, note(
        "Paths of the members to return, such as timings/prompt_n. Default: all members.")] = None  # fmt: skip


class NativeCompletionRequest(NativeGeneration, frozen=True, kw_only=True):
    prompt: Annotated[str | list[int], note(
        "The prompt: a text, or token ids. Text that spells a control token of the model becomes that token.",
        UNBOUNDED)]  # fmt: skip


class ExtraContext(msgspec.Struct, frozen=True):
    text: str
    filename: str | None = None


@accepts(n_indent="llmd does not end an answer at a line that is indented less")
class InfillRequest(NativeGeneration, frozen=True, kw_only=True):
    input_prefix: Annotated[str, note("Text before the answer.", limits.JSON_TEXT_BYTES_MAX)] = ""
    input_suffix: Annotated[str, note("Text after the answer.", limits.JSON_TEXT_BYTES_MAX)] = ""
    input_extra: Annotated[list[ExtraContext] | None, note(
        "Texts from other files, the most important text last. If not all of them fit, llmd leaves out the first ones.",
        limits.JSON_TEXT_BYTES_MAX)] = None  # fmt: skip
    prompt: Annotated[
        str,
        note(
            "The beginning of the text between input_prefix and input_suffix. The answer continues it.",
            limits.JSON_TEXT_BYTES_MAX,
        ),
    ] = ""


_Texts = str | list[int | str | list[int]] | None


@refuses(embd_normalize=("a norm other than the Euclidean norm", 2))
class EmbeddingRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    content: Annotated[_Texts, note("A text, token ids, or a list of either.", limits.JSON_TEXT_BYTES_MAX)] = None
    input: Annotated[_Texts, note("Other name of content.", limits.JSON_TEXT_BYTES_MAX)] = None


REQUESTS = {"completion": NativeCompletionRequest, "infill": InfillRequest, "embedding": EmbeddingRequest}
"""Request types by their names in docs/http.md."""

# --- answers ---------------------------------------------------------------------------------------------------------


StopType = Literal["eos", "word", "limit"]


class NativeProbable(msgspec.Struct, frozen=True, gc=False):
    id: int
    token: str
    bytes: list[int]
    """The bytes of the token. Clients need the bytes if the token is only a part of a character, because `token` is
    then a replacement character.
    """
    logprob: float


class NativeChosen(NativeProbable, frozen=True, gc=False):
    top_logprobs: list[NativeProbable]


class NativeCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """A completion. If the request has `response_fields`, only the members at these paths are returned."""

    index: int = 0
    content: str = ""
    tokens: list[int] = []
    """This member is present if the request has `return_tokens`."""
    completion_probabilities: list[NativeChosen] | msgspec.UnsetType = msgspec.UNSET
    """This member is present if the request has `n_probs`."""
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
    """A vector, as the only element of a list."""

    index: int
    embedding: list[list[float]]


class NextToken(msgspec.Struct, frozen=True):
    has_next_token: bool
    n_decoded: int


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """A slot in the model's memory. Activity of other owners is hidden."""

    id: int
    n_ctx: int
    is_processing: bool
    speculative: bool = False
    session: str | None = None
    """null if the slot has no session, or a session of another owner."""
    tokens: int = 0
    next_token: list[NextToken] = []


class Modalities(msgspec.Struct, frozen=True):
    vision: bool = False
    audio: bool = False


class Props(msgspec.Struct, frozen=True, kw_only=True):
    """Facts for tools that know llama.cpp's server."""

    default_generation_settings: dict[str, Any]
    total_slots: int
    model_alias: str
    model_path: str
    """The name of the model's file, without its folder."""
    modalities: Modalities
    endpoint_slots: bool = True
    endpoint_props: bool = False
    endpoint_metrics: bool = True
    chat_template: str
    chat_template_caps: dict[str, bool]
    bos_token: str
    build_info: str
    kv_type: str
    """Type of the keys and values in the KV cache (--kv-type). llama.cpp's server does not report it."""
    is_sleeping: bool = False
