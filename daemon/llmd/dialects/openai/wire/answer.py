"""Types of the JSON bodies of answers: chat completions, text completions and embeddings."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from ....core.parts import SessionReport
from ...probabilities import ChosenToken
from ...timings import Timings


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
    """This member is present if the answer has reasoning."""


FinishReason = Literal["stop", "length"]
ChatFinishReason = Literal["stop", "length", "tool_calls", "function_call"]


class CalledFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class CalledCustom(msgspec.Struct, frozen=True):
    name: str
    input: str


class CalledTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call. Only the member whose name is the call's type is present."""

    id: str
    type: Literal["function", "custom"] = "function"
    function: CalledFunction | UnsetType = UNSET
    custom: CalledCustom | UnsetType = UNSET


class AssistantMessage(msgspec.Struct, frozen=True, kw_only=True):
    role: Literal["assistant"] = "assistant"
    content: str | None
    """null if the answer has only tool calls."""
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[CalledTool] | UnsetType = UNSET
    function_call: CalledFunction | UnsetType = UNSET


class ChatLogprobs(msgspec.Struct, frozen=True):
    content: list[ChosenToken]
    refusal: None = None


class CompletionLogprobs(msgspec.Struct, frozen=True):
    """Lists with one element for each token."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
    """For each token, the most likely tokens and also the chosen one. null if no most likely tokens were requested."""
    text_offset: list[int]


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
