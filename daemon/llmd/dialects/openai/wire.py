"""OpenAI's chat and text completions as they travel: requests and responses. Types only, no I/O."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from ...core import limits
from ...core.parts import SessionReport

# --- requests --------------------------------------------------------------------------------------------------------


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class ContentPart(msgspec.Struct, frozen=True):
    """One part of a message's content; only text is supported."""

    type: str
    text: str | None = None


class FunctionCall(msgspec.Struct, frozen=True):
    name: str
    arguments: str | dict[str, Any] = "{}"


class ToolCall(msgspec.Struct, frozen=True):
    function: FunctionCall
    id: str | None = None
    type: str | None = None


class Message(msgspec.Struct, frozen=True):
    """One message of the history. Fields beyond these do not reach the model."""

    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    function_call: Any = None
    audio: Any = None


class Thinking(msgspec.Struct, frozen=True):
    """`adaptive` and `auto` leave it to the model."""

    type: Literal["enabled", "disabled", "adaptive", "auto"] | None = None


class Reasoning(msgspec.Struct, frozen=True):
    enabled: bool | None = None
    effort: str | None = None


def _bounds(**words: int) -> msgspec.Meta:
    """Told in /openapi.json; checked where the refusal can say more than that it is too much."""
    return msgspec.Meta(extra_json_schema=words)


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What both kinds of completion share."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    session_id: Annotated[str | None, _bounds(minLength=1, maxLength=limits.SESSION_ID_CHARS_MAX)] = None
    prompt_cache_key: str | None = None
    metadata: Any = None
    max_tokens: int | None = None
    n_predict: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: Annotated[str | list[str] | None, _bounds(maxItems=limits.STOP_STRINGS_MAX)] = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repeat_penalty: float | None = None
    repetition_penalty: float | None = None
    repeat_last_n: int | None = None
    typical_p: float | None = None
    typ_p: float | None = None
    top_n_sigma: float | None = None
    dynatemp_range: float | None = None
    dynatemp_exponent: float | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: Annotated[list[str] | None, _bounds(maxItems=limits.DRY_BREAKERS_MAX)] = None
    mirostat: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    min_keep: int | None = None
    samplers: list[str] | str | None = None
    logit_bias: Annotated[dict[int, float] | None, _bounds(maxProperties=limits.LOGIT_BIASES_MAX)] = None
    ignore_eos: bool | None = None
    cache_prompt: bool | None = None


class ChatCompletionRequest(GenerationRequest, frozen=True, kw_only=True):
    messages: Annotated[list[Message], _bounds(minItems=1, maxItems=limits.MESSAGES_MAX)]
    max_completion_tokens: int | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    enable_thinking: bool | None = None
    reasoning_effort: str | None = None
    thinking: Thinking | None = None
    reasoning: Reasoning | None = None
    add_generation_prompt: bool | None = None
    history: Literal["resident", "template"] | None = None


class CompletionRequest(GenerationRequest, frozen=True, kw_only=True):
    prompt: str | list[int | str | list[int]]
    parse_special: bool | None = None


# --- responses -------------------------------------------------------------------------------------------------------


class PromptTokensDetails(msgspec.Struct, frozen=True):
    cached_tokens: int


class Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


FinishReason = Literal["stop", "length"]


class AssistantMessage(msgspec.Struct, frozen=True, kw_only=True):
    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class ChatChoice(msgspec.Struct, frozen=True, kw_only=True):
    index: int = 0
    message: AssistantMessage
    finish_reason: FinishReason
    logprobs: None = None


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: Usage
    session: SessionReport


class CompletionChoice(msgspec.Struct, frozen=True, kw_only=True):
    index: int = 0
    text: str
    finish_reason: FinishReason
    logprobs: None = None


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: Usage
    session: SessionReport
