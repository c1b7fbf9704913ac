"""OpenAI's chat and text completions as they travel: requests and responses. Types only, no I/O."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from ...core import limits
from ...core.parts import SessionReport
from ..custom_tools import AnyText, Grammar
from ..probabilities import Likeliest
from ..timings import Timings
from .probabilities import ChatLogprobs, CompletionLogprobs
from .telling import TellingRequest

# --- requests --------------------------------------------------------------------------------------------------------


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class ContentPart(msgspec.Struct, frozen=True):
    """One part of a message's content: text, under one of its names, or what the assistant thought."""

    type: str
    text: str | None = None
    thinking: str | None = None
    refusal: str | None = None
    cache_control: Any = None
    """Not null: other prompts will go on differently behind it."""


class FunctionCall(msgspec.Struct, frozen=True):
    name: str
    arguments: str | dict[str, Any] | None = None


class CustomCall(msgspec.Struct, frozen=True):
    name: str
    input: str


class ToolCall(msgspec.Struct, frozen=True):
    """Of a function, or of a custom tool."""

    function: FunctionCall | None = None
    custom: CustomCall | None = None
    id: str | None = None
    type: str | None = None


class Message(msgspec.Struct, frozen=True):
    """One message of the history. Fields beyond these do not reach the model."""

    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    function_call: FunctionCall | None = None
    audio: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_text: Any = None
    thinking: Any = None
    """What was thought, under the names that servers give it; what is no text is not read."""
    cache_control: Any = None
    """As in a part."""


class ChatFunction(msgspec.Struct, frozen=True):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ChatGrammar(msgspec.Struct, frozen=True, tag="grammar"):
    grammar: Grammar


class ChatCustomTool(msgspec.Struct, frozen=True):
    """It takes free text."""

    name: str
    description: str | None = None
    format: AnyText | ChatGrammar | None = None


class ChatTool(msgspec.Struct, frozen=True):
    """Of type function or custom, or nothing that the model could call."""

    type: str | None = None
    function: ChatFunction | None = None
    custom: ChatCustomTool | None = None

    @property
    def kind(self) -> str:
        return self.type or "function"


class NamedFunction(msgspec.Struct, frozen=True):
    name: str


class NamedTool(msgspec.Struct, frozen=True):
    type: str | None = None
    function: NamedFunction | None = None
    custom: NamedFunction | None = None

    @property
    def kind(self) -> str:
        return self.type or "function"


class AllowedTools(msgspec.Struct, frozen=True):
    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedTool], msgspec.Meta(min_length=1)]


class ChatToolChoice(msgspec.Struct, frozen=True):
    type: Literal["function", "custom", "allowed_tools"]
    function: NamedFunction | None = None
    custom: NamedFunction | None = None
    allowed_tools: AllowedTools | None = None


class NamedSchema(msgspec.Struct, frozen=True):
    schema: dict[str, Any] | None = None
    name: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, frozen=True):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None
    schema: dict[str, Any] | None = None
    """As llama-server has it: beside either type, and kept to as if strict."""


class StructuredOutputs(msgspec.Struct, frozen=True):
    """As vLLM has them. One of them."""

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None


class Thinking(msgspec.Struct, frozen=True):
    """`adaptive` and `auto` leave it to the model."""

    type: Literal["enabled", "disabled", "adaptive", "auto"] | None = None
    budget_tokens: int | None = None


class Reasoning(msgspec.Struct, frozen=True):
    enabled: bool | None = None
    effort: str | None = None
    max_tokens: int | None = None


def _bounds(**words: int) -> msgspec.Meta:
    """Told in /openapi.json; checked where the refusal can say more than that it is too much."""
    return msgspec.Meta(extra_json_schema=words)


class GenerationRequest(TellingRequest, frozen=True, kw_only=True):
    """What both kinds of completion share."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    session_id: Annotated[str | None, _bounds(minLength=1, maxLength=limits.SESSION_ID_CHARS_MAX)] = None
    prompt_cache_key: str | None = None
    metadata: Any = None
    max_tokens: int | None = None
    n_predict: int | None = None
    stop: Annotated[str | list[str] | None, _bounds(maxItems=limits.STOP_STRINGS_MAX)] = None
    stop_token_ids: Annotated[list[int] | None, _bounds(maxItems=limits.STOP_TOKENS_MAX)] = None
    min_tokens: int | None = None
    repetition_penalty: float | None = None
    typ_p: float | None = None
    logit_bias: Annotated[dict[int, float] | None, _bounds(maxProperties=limits.LOGIT_BIASES_MAX)] = None
    ignore_eos: bool | None = None
    cache_prompt: bool | None = None
    response_format: ResponseFormat | None = None
    json_schema: dict[str, Any] | None = None
    grammar: str | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: str | dict[str, Any] | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None


class ChatCompletionRequest(GenerationRequest, frozen=True, kw_only=True):
    messages: Annotated[list[Message], _bounds(minItems=1, maxItems=limits.MESSAGES_MAX)]
    max_completion_tokens: int | None = None
    tools: Annotated[list[ChatTool] | None, _bounds(maxItems=limits.TOOLS_MAX)] = None
    tool_choice: Literal["auto", "none", "required"] | ChatToolChoice | None = None
    parallel_tool_calls: bool | None = None
    functions: Annotated[list[ChatFunction] | None, _bounds(maxItems=limits.TOOLS_MAX)] = None
    function_call: Literal["auto", "none"] | NamedFunction | None = None
    logprobs: bool | None = None
    top_logprobs: Likeliest = None
    chat_template_kwargs: dict[str, Any] | None = None
    enable_thinking: bool | None = None
    reasoning_effort: str | None = None
    thinking: Thinking | None = None
    reasoning: Reasoning | None = None
    reasoning_format: Literal["none", "auto", "deepseek"] | None = None
    thinking_budget: int | None = None
    thinking_budget_tokens: int | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    history: Literal["resident", "template"] | None = None


class CompletionRequest(GenerationRequest, frozen=True, kw_only=True):
    prompt: str | list[int | str | list[int]]
    suffix: str | None = None
    parse_special: bool | None = None
    add_special_tokens: bool | None = None
    logprobs: Likeliest | bool = None
    echo: bool | None = None


class EmbeddingsRequest(msgspec.Struct, frozen=True, kw_only=True):
    input: Annotated[str | list[int | str | list[int]], _bounds(maxItems=limits.EMBEDDING_TEXTS_MAX)]
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None


# --- responses -------------------------------------------------------------------------------------------------------


class PromptTokensDetails(msgspec.Struct, frozen=True):
    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct, frozen=True):
    reasoning_tokens: int


class Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails | UnsetType = UNSET
    """Where the model thought."""


class PromptProgress(msgspec.Struct, frozen=True):
    """As llama.cpp tells it, in tokens."""

    total: int
    cache: int
    processed: int
    """The cached ones included."""
    time_ms: float


FinishReason = Literal["stop", "length"]
ChatFinishReason = Literal["stop", "length", "tool_calls", "function_call"]


class CalledFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class CalledCustom(msgspec.Struct, frozen=True):
    name: str
    input: str


class CalledTool(msgspec.Struct, frozen=True, kw_only=True):
    """Of its type the one that is there."""

    id: str
    type: Literal["function", "custom"] = "function"
    function: CalledFunction | UnsetType = UNSET
    custom: CalledCustom | UnsetType = UNSET


class AssistantMessage(msgspec.Struct, frozen=True, kw_only=True):
    role: Literal["assistant"] = "assistant"
    content: str | None
    """Null: there is nothing but calls."""
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[CalledTool] | UnsetType = UNSET
    function_call: CalledFunction | UnsetType = UNSET


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    index: int = 0
    message: AssistantMessage
    finish_reason: ChatFinishReason
    logprobs: ChatLogprobs | None = None
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: Usage
    session: SessionReport
    prompt_token_ids: list[int] | UnsetType = UNSET
    timings: Timings | UnsetType = UNSET


class CompletionChoice(msgspec.Struct, frozen=True, kw_only=True):
    index: int = 0
    text: str
    finish_reason: FinishReason
    logprobs: CompletionLogprobs | None = None
    prompt_token_ids: list[int] | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: Usage
    session: SessionReport
    timings: Timings | UnsetType = UNSET


class EmbeddedText(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    embedding: list[float] | str
    object: Literal["embedding"] = "embedding"


class EmbeddingsUsage(msgspec.Struct, frozen=True):
    prompt_tokens: int
    total_tokens: int


class Embeddings(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[EmbeddedText]
    model: str
    usage: EmbeddingsUsage
