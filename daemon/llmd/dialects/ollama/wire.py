"""Types of the JSON bodies of Ollama's requests and answers. Does no I/O. All durations are in nanoseconds."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec

from ...core import limits
from ...http.parameters import UNBOUNDED, accepts, note, refuses
from ..custom_tools import OfferedFunction
from ..members import NOT_SHOWN, Dimensions, Model, ReturnProgress, Speculate, Stop, TopLogprobs
from ..probabilities import ChosenToken
from ..sampling import OF_OLLAMA, samples
from ..timings import PromptProgress

# --- requests --------------------------------------------------------------------------------------------------------


class OllamaFunctionCall(msgspec.Struct, frozen=True):
    name: str
    arguments: dict[str, Any] | None = None


class OllamaCall(msgspec.Struct, frozen=True):
    function: OllamaFunctionCall
    id: str | None = None


class OllamaMessage(msgspec.Struct, frozen=True):
    """A message of the conversation. Members that are not listed here do not reach the model."""

    role: str
    content: str | None = None
    thinking: str | None = None
    images: list[Any] | None = None
    tool_calls: list[OllamaCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class OfferedTool(msgspec.Struct, frozen=True):
    function: OfferedFunction
    type: str | None = None


_AT_THE_START = (
    "num_batch", "num_gpu", "main_gpu", "num_thread", "use_mmap", "use_mlock", "numa", "low_vram", "f16_kv",
    "vocab_only", "logits_all", "embedding_only",
)  # fmt: skip


@accepts(
    num_ctx="--ctx-size sets the context",
    num_keep="llmd never drops tokens of a full context to make room for more (context shift)",
    penalize_newline="llama.cpp has no such sampler any more",
    tfs_z="llama.cpp has no such sampler any more",
    **dict.fromkeys(_AT_THE_START, "options of llmd set this when llmd starts"),
)
@samples(OF_OLLAMA)
class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    IGNORES_UNKNOWN: ClassVar = True
    num_predict: Annotated[int | None, note("Maximum tokens of the answer; 0 or negative: no limit.")] = None
    stop: Stop = None


@accepts(shift="llmd never drops tokens of a full context to make room for more (context shift)")
@refuses(_debug_render_only=("the rendered prompt instead of an answer; use /apply-template", False))
class _Generation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The members that /api/chat and /api/generate share."""

    IGNORES_UNKNOWN: ClassVar = True
    """Unknown members are ignored, as in Ollama, because clients send options of all versions of Ollama."""
    model: Model = None
    stream: Annotated[
        bool | None, note("false: return one answer. Default: stream a line of JSON for each piece of the answer.")
    ] = None
    format: Annotated[Literal["", "json"] | dict[str, Any] | None, note(
        "Output format of the answer: json, or a JSON schema.")] = None  # fmt: skip
    options: Annotated[Options | None, note("The sampling parameters, num_predict and stop.")] = None
    think: Annotated[bool | Literal["low", "medium", "high", "max"] | None, note(
        "Sets the template variables enable_thinking and reasoning_effort: true, false, low, medium, high or max. "
        "max is the same as high.")
    ] = None  # fmt: skip
    keep_alive: Annotated[str | float | None, note(
        "Ignored: the model stays loaded. A request with 0 and without a prompt is answered as if the model had "
        "been unloaded.")] = None  # fmt: skip
    logprobs: Annotated[bool | None, note("true: return the log probability of each token.")] = None
    top_logprobs: TopLogprobs = None
    return_progress: ReturnProgress = None
    speculate: Speculate = None


class OllamaChatRequest(_Generation, frozen=True, kw_only=True):
    messages: Annotated[list[OllamaMessage] | None, note(
        "The conversation, in the roles system, user, assistant and tool. Without messages, llmd generates nothing. "
        "The template reads these members of a message: role, content, thinking, tool_calls, tool_name, tool_call_id. "
        f"An image in a tool's result, or in a user message before the newest one, is replaced by {NOT_SHOWN}. If the "
        "last message is the assistant's, the answer continues it.",
        UNBOUNDED, maxItems=limits.MESSAGES_MAX)] = None  # fmt: skip
    tools: Annotated[list[OfferedTool] | None, note(
        "Functions that the answer can call. The arguments of a call are a JSON object.", limits.TOOLS_BYTES_MAX)
    ] = None  # fmt: skip
    truncate: Annotated[bool | None, note(
        "false: refuse a conversation that does not fit the context. Default: leave out its first messages. System "
        "messages stay.")] = None  # fmt: skip


@accepts(truncate="llmd refuses a prompt that does not fit the context")
@refuses(
    template=("another chat template; start llmd with --chat-template-file", ""),
    context=("an answer that continues these tokens; name a session, or use /api/chat", []),
    images=("images", []),
)
class OllamaGenerateRequest(_Generation, frozen=True, kw_only=True):
    prompt: Annotated[str | None, note("The user's text. Without a prompt, llmd generates nothing.", UNBOUNDED)] = None
    system: Annotated[str | None, note("System message before the prompt.", limits.JSON_TEXT_BYTES_MAX)] = None
    suffix: Annotated[str | None, note(
        "Text after the answer. The model fills in the text between prompt and suffix.",
        limits.JSON_TEXT_BYTES_MAX)] = None  # fmt: skip
    raw: Annotated[bool | None, note(
        "true: continue the prompt without the model's chat template.")] = None  # fmt: skip


@accepts("options", "keep_alive")
class _Embedding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    IGNORES_UNKNOWN: ClassVar = True
    model: Model = None


class EmbedRequest(_Embedding, frozen=True, kw_only=True):
    input: Annotated[str | list[str], note(
        "A text, or a list of texts.", UNBOUNDED, maxItems=limits.EMBEDDING_TEXTS_MAX)]  # fmt: skip
    truncate: Annotated[bool | None, note("false: refuse a text that is too long. Default: truncate the text.")] = None
    dimensions: Dimensions = None


class EmbedPromptRequest(_Embedding, frozen=True, kw_only=True):
    """The embedding request of older clients."""

    prompt: Annotated[str, note("A text. llmd truncates a text that is too long.", UNBOUNDED)]


REQUESTS = {
    "chat": OllamaChatRequest,
    "generate": OllamaGenerateRequest,
    "options": Options,
    "embed": EmbedRequest,
    "embeddings": EmbedPromptRequest,
}
"""Request types by their names in docs/http.md."""


class ShowRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request for facts about the model. Older clients send `name` instead of `model`. No member changes the answer,
    because llmd serves one model.
    """

    model: str | None = None
    name: str | None = None
    verbose: bool | None = None
    system: str | None = None
    template: str | None = None
    options: Any = None


class PullRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request to download a model. Older clients send `name` instead of `model`."""

    IGNORES_UNKNOWN: ClassVar = True
    model: str | None = None
    name: str | None = None
    stream: bool | None = None


# --- answers ---------------------------------------------------------------------------------------------------------

LoadReason = Literal["load", "unload"]


class ToolCallFunction(msgspec.Struct, frozen=True):
    index: int
    name: str
    arguments: msgspec.Raw
    """A JSON object, as the model wrote it."""


class ToolCallMade(msgspec.Struct, frozen=True):
    function: ToolCallFunction
    id: str


class OllamaAnswerMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    role: Literal["assistant"]
    content: str
    thinking: str = ""
    tool_calls: list[ToolCallMade] = []


class _Measured(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    model: str
    created_at: str
    done: bool
    done_reason: Literal["stop", "length"] | LoadReason | Literal[""] = ""
    total_duration: int = 0
    load_duration: int = 0
    """Time in the queue of the session."""
    prompt_eval_count: int = 0
    prompt_eval_duration: int = 0
    eval_count: int = 0
    eval_duration: int = 0
    logprobs: list[ChosenToken] = []
    """Log probabilities of the tokens in this line. If the answer is not streamed, those of all its tokens."""
    prompt_progress: PromptProgress | None = None
    """If the request has `return_progress`, this member is present in lines without text."""


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
    """A date that is never reached, because the model stays loaded."""
    size_vram: int
    context_length: int


class RunningModels(msgspec.Struct, frozen=True):
    models: list[RunningModel]


class PullProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line about a download. The last line has the status `success`."""

    status: str
    digest: str | None = None
    total: int = 0
    completed: int = 0


class ShownModel(msgspec.Struct, frozen=True, kw_only=True):
    modelfile: str = ""
    parameters: str
    template: str
    details: ModelDetails
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str


class OllamaError(msgspec.Struct, frozen=True):
    """An error. `code` and `param` are llmd's own members."""

    error: str
    code: str
    param: str | None
