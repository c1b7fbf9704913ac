"""Answers: a response, its items, and lists of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from ....core.parts import SessionReport
from ...probabilities import ChosenToken

ItemStatus = Literal["in_progress", "completed", "incomplete"]
ResponseStatus = Literal["in_progress", "completed", "incomplete", "failed"]


class OutputText(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[Any] = []
    logprobs: list[ChosenToken] = []


class OutputMessage(msgspec.Struct, frozen=True, kw_only=True, tag="message"):
    id: str
    status: ItemStatus
    role: Literal["assistant"] = "assistant"
    content: list[OutputText]


class SummaryText(msgspec.Struct, frozen=True, tag="summary_text"):
    text: str


class ReasoningText(msgspec.Struct, frozen=True, tag="reasoning_text"):
    text: str


class OutputReasoning(msgspec.Struct, frozen=True, kw_only=True, tag="reasoning"):
    id: str
    status: ItemStatus
    summary: list[SummaryText]
    content: list[ReasoningText] | UnsetType = UNSET
    encrypted_content: str | UnsetType = UNSET


class _OutputCall(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    status: ItemStatus
    call_id: str
    name: str
    namespace: str | UnsetType = UNSET


class OutputFunctionCall(_OutputCall, frozen=True, kw_only=True, tag="function_call"):
    arguments: str


class OutputCustomCall(_OutputCall, frozen=True, kw_only=True, tag="custom_tool_call"):
    input: str


OutputItem = OutputMessage | OutputReasoning | OutputFunctionCall | OutputCustomCall


class CachedInput(msgspec.Struct, frozen=True):
    cached_tokens: int
    cache_write_tokens: int = 0
    """Providers charge for these."""


class ReasonedOutput(msgspec.Struct, frozen=True):
    reasoning_tokens: int


class ResponseUsage(msgspec.Struct, frozen=True):
    input_tokens: int
    input_tokens_details: CachedInput
    output_tokens: int
    output_tokens_details: ReasonedOutput
    total_tokens: int


class ResponseFailure(msgspec.Struct, frozen=True):
    code: str
    message: str


class Incompleteness(msgspec.Struct, frozen=True):
    reason: Literal["max_output_tokens"]


AsGiven = Annotated[msgspec.Raw, msgspec.Meta(description="The value of the request.")]


class Response(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: ResponseStatus
    background: bool = False
    error: ResponseFailure | None = None
    incomplete_details: Incompleteness | None = None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, Any]
    model: str
    output: list[OutputItem]
    parallel_tool_calls: bool
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: AsGiven
    service_tier: Literal["default"] = "default"
    store: bool
    temperature: float | None
    text: AsGiven
    tool_choice: AsGiven
    tools: AsGiven
    top_logprobs: int
    top_p: float | None
    truncation: Literal["auto", "disabled"]
    usage: ResponseUsage | None = None
    session: SessionReport | UnsetType = UNSET
    """The session and how it was reused; at the end."""


class ResponseDeleted(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["response"] = "response"
    deleted: bool = True


class InputItemList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[msgspec.Raw]
    first_id: str | None
    last_id: str | None
    has_more: bool


class InputTokens(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["response.input_tokens"] = "response.input_tokens"
    input_tokens: int
