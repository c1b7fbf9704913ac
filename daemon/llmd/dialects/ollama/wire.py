"""Ollama's requests and answers as they travel. Types only, no I/O. Durations are nanoseconds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from ...core import limits
from ..probabilities import ChosenToken, Likeliest
from ..sampling import UsualSamplers

# --- requests --------------------------------------------------------------------------------------------------------


class OllamaFunctionCall(msgspec.Struct, frozen=True):
    name: str
    arguments: dict[str, Any] | None = None


class OllamaCall(msgspec.Struct, frozen=True):
    function: OllamaFunctionCall
    id: str | None = None


class OllamaMessage(msgspec.Struct, frozen=True):
    """One message of the history. Fields beyond these do not reach the model."""

    role: str
    content: str | None = None
    thinking: str | None = None
    images: list[Any] | None = None
    tool_calls: list[OllamaCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class OfferedFunction(msgspec.Struct, frozen=True):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class OfferedTool(msgspec.Struct, frozen=True):
    function: OfferedFunction
    type: str | None = None


class Options(UsualSamplers, frozen=True, kw_only=True):
    """Those that are honoured."""

    num_predict: int | None = None
    stop: Annotated[str | list[str] | None, msgspec.Meta(extra_json_schema={"maxItems": limits.STOP_STRINGS_MAX})] = (
        None
    )


class _Generation(msgspec.Struct, frozen=True, kw_only=True):
    """What chat and generate share."""

    model: str | None = None
    stream: bool | None = None
    format: Literal["", "json"] | dict[str, Any] | None = None
    options: Options | None = None
    think: bool | Literal["low", "medium", "high"] | None = None
    keep_alive: str | float | None = None
    logprobs: bool | None = None
    top_logprobs: Likeliest = None


class OllamaChatRequest(_Generation, frozen=True, kw_only=True):
    messages: Annotated[
        list[OllamaMessage] | None, msgspec.Meta(extra_json_schema={"maxItems": limits.MESSAGES_MAX})
    ] = None
    tools: list[OfferedTool] | None = None
    truncate: bool | None = None


class OllamaGenerateRequest(_Generation, frozen=True, kw_only=True):
    prompt: str | None = None
    system: str | None = None
    suffix: str | None = None
    raw: bool | None = None


class EmbedRequest(msgspec.Struct, frozen=True, kw_only=True):
    model: str | None = None
    input: Annotated[str | list[str], msgspec.Meta(extra_json_schema={"maxItems": limits.EMBEDDING_TEXTS_MAX})]
    truncate: bool | None = None
    dimensions: int | None = None


class EmbedPromptRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What older clients send."""

    model: str | None = None
    prompt: str


class ShowRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`name` is what older clients call `model`. There is one, and nothing of this changes what is told of it."""

    model: str | None = None
    name: str | None = None
    verbose: bool | None = None
    system: str | None = None
    template: str | None = None
    options: Any = None


# --- answers ---------------------------------------------------------------------------------------------------------

LoadReason = Literal["load", "unload"]


class ToolCallFunction(msgspec.Struct, frozen=True):
    index: int
    name: str
    arguments: msgspec.Raw
    """An object, as it was written."""


class ToolCallMade(msgspec.Struct, frozen=True):
    function: ToolCallFunction
    id: str


class OllamaAnswerMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    role: Literal["assistant"]
    content: str
    thinking: str = ""
    tool_calls: list[ToolCallMade] = []


class _Measured(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of an answer that was generated."""

    model: str
    created_at: str
    done: bool
    done_reason: Literal["stop", "length"] | LoadReason | Literal[""] = ""
    total_duration: int = 0
    load_duration: int = 0
    """Waiting for the model."""
    prompt_eval_count: int = 0
    prompt_eval_duration: int = 0
    eval_count: int = 0
    eval_duration: int = 0
    logprobs: list[ChosenToken] = []
    """Of the tokens of this line, or of all."""


class OllamaChat(_Measured, frozen=True, kw_only=True, omit_defaults=True):
    message: OllamaAnswerMessage


class OllamaGenerated(_Measured, frozen=True, kw_only=True, omit_defaults=True):
    response: str
    thinking: str = ""


class OllamaEmbeddings(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    embeddings: list[list[float]]
    total_duration: int
    load_duration: int = 0
    prompt_eval_count: int


class OllamaEmbedding(msgspec.Struct, frozen=True):
    embedding: list[float]


class OllamaVersion(msgspec.Struct, frozen=True):
    version: str


class ModelDetails(msgspec.Struct, frozen=True, kw_only=True):
    parent_model: str = ""
    format: Literal["gguf"] = "gguf"
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


class ListedModel(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: ModelDetails


class ListedModels(msgspec.Struct, frozen=True):
    models: list[ListedModel]


class RunningModel(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    model: str
    size: int
    digest: str
    details: ModelDetails
    expires_at: str
    """Never: the model stays as long as the server."""
    size_vram: int
    context_length: int


class RunningModels(msgspec.Struct, frozen=True):
    models: list[RunningModel]


class ShownModel(msgspec.Struct, frozen=True, kw_only=True):
    modelfile: str = ""
    parameters: str
    template: str
    details: ModelDetails
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str


class OllamaError(msgspec.Struct, frozen=True):
    """`code` and `param` are ours."""

    error: str
    code: str
    param: str | None
