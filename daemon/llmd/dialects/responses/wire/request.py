"""What is asked. Items and tools are kept as they came: each kind is read by itself, unknown ones not at all."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from ....core import limits
from ...custom_tools import AnyText, Grammar


def _bounds(**words: int) -> msgspec.Meta:
    """Told in /openapi.json; checked where the refusal can say more than that it is too much."""
    return msgspec.Meta(extra_json_schema=words)


# --- items -----------------------------------------------------------------------------------------------------------


class InputKind(msgspec.Struct, frozen=True):
    """What is looked at first. Without a type it is a message, or a reference to an item."""

    type: str | None = None
    role: str | None = None
    id: str | None = None


class InputContent(msgspec.Struct, frozen=True):
    """One part of a message's content, or of a tool's output; only text reaches the model."""

    type: str
    text: str | None = None
    refusal: str | None = None


class InputMessage(msgspec.Struct, frozen=True):
    role: str
    content: str | list[InputContent] | None = None


class InputThought(msgspec.Struct, frozen=True):
    text: str = ""


class InputReasoning(msgspec.Struct, frozen=True):
    summary: list[InputThought] | None = None
    content: list[InputThought] | None = None
    encrypted_content: str | None = None


class InputFunctionCall(msgspec.Struct, frozen=True):
    name: str
    arguments: str | dict[str, Any] | None = None
    call_id: str | None = None
    namespace: str | None = None


class InputCustomCall(msgspec.Struct, frozen=True):
    name: str
    input: str
    call_id: str | None = None
    namespace: str | None = None


class InputCallOutput(msgspec.Struct, frozen=True):
    """Of a tool, whatever its kind."""

    output: str | list[InputContent] | dict[str, Any] | None = None
    call_id: str | None = None
    id: str | None = None


class InputOtherCall(msgspec.Struct, frozen=True):
    """Of a tool that the client runs and that is no function of its own: a shell, a patch."""

    call_id: str | None = None
    arguments: Any = None
    action: Any = None
    operation: Any = None


class InputTools(msgspec.Struct, frozen=True):
    tools: list[msgspec.Raw]


# --- tools -----------------------------------------------------------------------------------------------------------


class ToolKind(msgspec.Struct, frozen=True):
    type: str


class FunctionTool(msgspec.Struct, frozen=True):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class CustomGrammar(Grammar, frozen=True, tag="grammar"):
    """Of a custom tool."""


class CustomTool(msgspec.Struct, frozen=True):
    """It takes free text."""

    name: str
    description: str | None = None
    format: AnyText | CustomGrammar | None = None


class NamespaceTool(msgspec.Struct, frozen=True):
    name: str
    tools: list[msgspec.Raw] = []


class ChosenTool(msgspec.Struct, frozen=True):
    type: str
    name: str | None = None
    namespace: str | None = None
    mode: Literal["auto", "required"] = "auto"
    tools: list[ChosenTool] = []


# --- the request -----------------------------------------------------------------------------------------------------


class TextFormat(msgspec.Struct, frozen=True, omit_defaults=True):
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None


class TextAsked(msgspec.Struct, frozen=True):
    format: TextFormat | None = None
    verbosity: str | None = None


class ReasoningAsked(msgspec.Struct, frozen=True):
    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None
    """An older name of summary."""


class ResponseRequest(msgspec.Struct, frozen=True, kw_only=True):
    input: str | list[msgspec.Raw] | None = None
    instructions: str | None = None
    model: str | None = None
    stream: bool | None = None
    store: bool | None = None
    previous_response_id: str | None = None
    tools: Annotated[list[msgspec.Raw] | None, _bounds(maxItems=limits.TOOLS_MAX)] = None
    tool_choice: Literal["auto", "none", "required"] | ChosenTool | None = None
    parallel_tool_calls: bool | None = None
    text: TextAsked | None = None
    reasoning: ReasoningAsked | None = None
    include: list[str] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    metadata: dict[str, Any] | None = None
    session_id: Annotated[str | None, _bounds(minLength=1, maxLength=limits.SESSION_ID_CHARS_MAX)] = None
    prompt_cache_key: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: Annotated[int | None, _bounds(minimum=0, maximum=limits.LIKELIEST_MAX)] = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: Annotated[str | list[str] | None, _bounds(maxItems=limits.STOP_STRINGS_MAX)] = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repeat_penalty: float | None = None
    ignore_eos: bool | None = None
    cache_prompt: bool | None = None
    enable_thinking: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    history: Literal["resident", "template"] | None = None
