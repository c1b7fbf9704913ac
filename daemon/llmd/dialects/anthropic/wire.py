"""Anthropic's messages as they travel: requests, answers, errors. Types only, no I/O."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from ...core import limits
from ...core.parts import SessionReport

# --- requests --------------------------------------------------------------------------------------------------------


class InnerPart(msgspec.Struct, frozen=True):
    """Of a document, or of a search result."""

    type: str = ""
    text: str | None = None


class Source(msgspec.Struct, frozen=True):
    """Of a document; only that of the types text and content is read."""

    type: str = ""
    data: str | None = None
    content: str | list[InnerPart] | dict[str, Any] | None = None


class ResultPart(msgspec.Struct, frozen=True):
    """Of a tool's result; only text reaches the model."""

    type: str
    text: str | None = None
    title: str | None = None
    context: str | None = None
    source: str | Source | None = None
    content: str | list[InnerPart] | dict[str, Any] | None = None
    tool_name: str | None = None
    cache_control: Any = None


class ChangedTool(msgspec.Struct, frozen=True):
    """Only that of the type tool_reference is read."""

    type: str = ""
    name: str | None = None


class InputBlock(msgspec.Struct, frozen=True):
    """One block of a turn; which members it has depends on its type."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: str | list[ResultPart] | dict[str, Any] | None = None
    """An object: of what a tool of Anthropic's servers found, which is not read."""
    title: str | None = None
    context: str | None = None
    source: str | Source | None = None
    is_error: bool | None = None
    tool: ChangedTool | None = None
    """That comes or goes here."""
    cache_control: Any = None
    """Not null: other prompts will go on differently behind it."""


class InputTurn(msgspec.Struct, frozen=True):
    """One message of the history. Fields beyond these do not reach the model."""

    role: str
    content: str | list[InputBlock] | None = None
    """None: of the system, which then says how to go on, and nothing to the model."""
    clear_at: Literal["next_user_message", "never"] | None = None
    """Of the system's: where there is a later message of the user, its text is no longer shown."""


class ClientTool(msgspec.Struct, frozen=True):
    """Tools of a type of their own have no schema: who serves the request would run them, or know what they take."""

    name: str = ""
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    type: str | None = None
    defer_loading: bool | None = None
    """The model is told of it where the history names it."""


class ClientToolChoice(msgspec.Struct, frozen=True):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class ThinkingWish(msgspec.Struct, frozen=True):
    """`adaptive` and `between_tools` leave it to the model."""

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: int | None = None


class OutputFormat(msgspec.Struct, frozen=True, rename={"form": "schema"}):
    type: Literal["json_schema"]
    form: dict[str, Any]


class OutputConfig(msgspec.Struct, frozen=True):
    effort: str | None = None
    format: OutputFormat | None = None


class CountTokensRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the prompt is made of."""

    model: str | None = None
    messages: Annotated[list[InputTurn], msgspec.Meta(extra_json_schema={"maxItems": limits.MESSAGES_MAX})]
    system: str | list[InputBlock] | None = None
    tools: Annotated[list[ClientTool] | None, msgspec.Meta(extra_json_schema={"maxItems": limits.TOOLS_MAX})] = None
    tool_choice: ClientToolChoice | None = None
    thinking: ThinkingWish | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    metadata: Any = None
    session_id: Annotated[
        str | None, msgspec.Meta(extra_json_schema={"minLength": 1, "maxLength": limits.SESSION_ID_CHARS_MAX})
    ] = None


class MessagesRequest(CountTokensRequest, frozen=True, kw_only=True):
    max_tokens: int
    stream: bool | None = None
    stop_sequences: Annotated[
        list[str] | None, msgspec.Meta(extra_json_schema={"maxItems": limits.STOP_STRINGS_MAX})
    ] = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None


# --- answers ---------------------------------------------------------------------------------------------------------

StopReason = Literal["end_turn", "max_tokens", "model_context_window_exceeded", "stop_sequence", "tool_use"]


class TextBlock(msgspec.Struct, frozen=True, tag="text"):
    text: str
    citations: None = None


class ThinkingBlock(msgspec.Struct, frozen=True, tag="thinking"):
    thinking: str
    signature: str


class ToolUseBlock(msgspec.Struct, frozen=True, tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]


AnswerBlock = TextBlock | ThinkingBlock | ToolUseBlock


class OutputDetails(msgspec.Struct, frozen=True):
    thinking_tokens: int


class MessageUsage(msgspec.Struct, frozen=True):
    """The three of the input add up to the prompt."""

    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0
    output_tokens_details: OutputDetails | msgspec.UnsetType = msgspec.UNSET
    """Where there was a thought."""


class MessageAnswer(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[AnswerBlock] = []
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    usage: MessageUsage = MessageUsage()
    session: SessionReport | msgspec.UnsetType = msgspec.UNSET


class TokenCount(msgspec.Struct, frozen=True):
    input_tokens: int


# --- errors ----------------------------------------------------------------------------------------------------------


class MessageErrorBody(msgspec.Struct, frozen=True):
    """`code` and `param` are ours: the word that logs and metrics have for it, and the field."""

    type: str
    message: str
    code: str
    param: str | None


class MessageError(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["error"] = "error"
    error: MessageErrorBody
    request_id: None = None
    """It is in the head of the answer alone."""
