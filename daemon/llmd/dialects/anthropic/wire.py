"""Types of the JSON bodies of Anthropic's messages API: requests, answers, errors. This module does no I/O."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from ...core import limits
from ...core.parts import SessionReport
from ...http.parameters import UNBOUNDED, accepts, note, refuses
from ..members import NOT_SHOWN, Model, ReturnProgress, SessionId, Speculate, Stream
from ..sampling import OF_ANTHROPIC, samples

# --- requests --------------------------------------------------------------------------------------------------------


class InnerPart(msgspec.Struct, frozen=True):
    """A part of a document or a search result."""

    type: str = ""
    text: str | None = None


class Source(msgspec.Struct, frozen=True):
    """The source of a document. llmd supports only the types text and content."""

    type: str = ""
    data: str | None = None
    content: str | list[InnerPart] | dict[str, Any] | None = None


class ResultPart(msgspec.Struct, frozen=True):
    """A part of a tool's result. Only text reaches the model."""

    type: str
    text: str | None = None
    title: str | None = None
    context: str | None = None
    source: str | Source | None = None
    content: str | list[InnerPart] | dict[str, Any] | None = None
    tool_name: str | None = None
    cache_control: Any = None


class ChangedTool(msgspec.Struct, frozen=True):
    """The tool that a block adds or removes. The only supported type is tool_reference."""

    type: str = ""
    name: str | None = None


class InputBlock(msgspec.Struct, frozen=True):
    """A block of a turn. The block's type determines which members are set."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: str | list[ResultPart] | dict[str, Any] | None = None
    """A text, or parts. llmd ignores a value that is an object, because only results of tools that ran on Anthropic's
    servers are objects.
    """
    title: str | None = None
    context: str | None = None
    source: str | Source | None = None
    is_error: bool | None = None
    tool: ChangedTool | None = None
    """The tool that this block adds or removes."""
    cache_control: Any = None
    """If this member is not null, the client expects that other prompts are equal up to the end of this block."""


class InputTurn(msgspec.Struct, frozen=True):
    """A message of the conversation. Members that are not listed here do not reach the model."""

    role: str
    content: str | list[InputBlock] | None = None
    """None is allowed for a system message, which then has no text for the model."""
    clear_at: Literal["next_user_message", "never"] | None = None
    """With `next_user_message`, the text of this system message is left out as soon as a later message of the user
    follows.
    """


class ClientTool(msgspec.Struct, frozen=True):
    """A tool. A tool whose type is not custom has no schema. Either the provider runs such a tool, or the provider's
    model knows its input.
    """

    name: str = ""
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    type: str | None = None
    defer_loading: bool | None = None
    """If true, the prompt shows the tool's definition only where a message names the tool."""


class ClientToolChoice(msgspec.Struct, frozen=True):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class ThinkingWish(msgspec.Struct, frozen=True):
    """Whether the model should reason. With the types `adaptive` and `between_tools`, the template decides."""

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: int | None = None


class OutputFormat(msgspec.Struct, frozen=True, rename={"form": "schema"}):
    type: Literal["json_schema"]
    form: dict[str, Any]


class OutputConfig(msgspec.Struct, frozen=True):
    effort: str | None = None
    format: OutputFormat | None = None


@accepts(
    "service_tier", "container", "context_management", "compaction", "inference_geo", "speed", "diagnostics",
    "user_profile_id", "workspace_id", "billing_policy", "fallbacks", "fallback_credit_token", "thread", "betas",
    "anthropic_beta", "anthropic_version",
    cache_control="llmd caches every prompt; cache_control of a block in system or messages adds a checkpoint",
    **dict.fromkeys(("max_tokens", "stream", "stop_sequences", "temperature", "top_p", "top_k"),
                     "it does not change the number of prompt tokens"),
)  # fmt: skip
@refuses(mcp_servers=("MCP servers that llmd would have to call", []))
class CountTokensRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The members of a request that determine the prompt. Counting tokens needs only these members."""

    model: Model = None
    messages: Annotated[list[InputTurn], note(
        "The messages, with role `user`, `assistant` or `system`. The content of a message is a text, or a list of "
        "blocks of type `text`, `thinking`, `tool_use` or `tool_result`. The content of a `tool_result` is a text, or "
        f"a list of parts. A part that is not text is replaced by {NOT_SHOWN}. Some roles allow more blocks. User "
        "messages and tool results can have `search_result`, and `document` with a source of type `text` or "
        "`content`. System messages can have `tool_addition`, `tool_removal` and the member `clear_at`. "
        "Assistant messages can have `compaction`, whose text becomes a part of the message. llmd ignores "
        "`redacted_thinking`, `fallback`, `mcp_tool_listing`, `server_tool_use` and its results, and `output_config` "
        "in a system message. Images and other documents are refused in the newest user message. In earlier user "
        "messages, they are replaced by "
        f"{NOT_SHOWN}. If the last message is the assistant's, the answer continues it. llmd leaves out texts such as "
        "(no content), which some clients write instead of an empty answer.",
        UNBOUNDED, maxItems=limits.MESSAGES_MAX)]  # fmt: skip
    system: Annotated[str | list[InputBlock] | None, note(
        "A text, or blocks of text. llmd leaves out a first line x-anthropic-billing-header, because the line "
        "differs in each request.", limits.JSON_TEXT_BYTES_MAX)] = None  # fmt: skip
    tools: Annotated[list[ClientTool] | None, note(
        "Tools that the answer can call: name, description, input_schema. A tool with defer_loading is not in the "
        "prompt until a tool_reference in a tool's result names it. llmd then adds the definition at this point, and "
        "the answer can call the tool. Tools that the provider would run (web_search, code_execution, ...) are "
        "ignored if the request has other tools. Otherwise they are refused. Clients run the tools bash, text_editor, "
        "memory, computer and browser. llmd refuses these tools if they have no schema.",
        limits.TOOLS_BYTES_MAX, maxItems=limits.TOOLS_MAX)] = None  # fmt: skip
    tool_choice: Annotated[ClientToolChoice | None, note(
        "Which tools the answer calls: `auto`, `any`, `tool` with a name, or `none`. `disable_parallel_tool_use`: at "
        "most one call.")] = None  # fmt: skip
    thinking: Annotated[ThinkingWish | None, note(
        "The type `enabled` or `disabled` sets the template variable enable_thinking. With any other type, the "
        "template decides whether the model reasons. `budget_tokens` is the maximum number of tokens of the reasoning. "
        "`display` is ignored.")] = None  # fmt: skip
    output_config: Annotated[OutputConfig | None, note(
        "`effort` sets the template variable reasoning_effort; `xhigh` and `max` set it to `high`. "
        "`format` has a JSON schema for the answer.")
    ] = None  # fmt: skip
    output_format: Annotated[OutputFormat | None, note("Old name of output_config.format.")] = None
    metadata: Annotated[Any, note(
        "user_id names the session if no other field or header does. user_id is JSON with a session_id, or a text "
        "that ends with _session_ and an id.")] = None  # fmt: skip
    session_id: SessionId = None


@samples(OF_ANTHROPIC)
class MessagesRequest(CountTokensRequest, frozen=True, kw_only=True):
    max_tokens: Annotated[int, note(
        "Maximum tokens of the answer. If the context ends the answer earlier, stop_reason is "
        "model_context_window_exceeded. With 0, llmd only processes the prompt.")]  # fmt: skip
    stream: Stream = None
    return_progress: ReturnProgress = None
    speculate: Speculate = None
    stop_sequences: Annotated[list[str] | None, note(
        f"Up to {limits.STOP_STRINGS_MAX} texts. The answer ends before the first of these texts that the "
        "model generates. stop_sequence in the answer is that text.",
        maxItems=limits.STOP_STRINGS_MAX)] = None  # fmt: skip


REQUESTS = {"messages": MessagesRequest, "count_tokens": CountTokensRequest}
"""Request types by their names in docs/http.md."""

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
    """Token counts. The sum of the three input counts is the number of prompt tokens."""

    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0
    output_tokens_details: OutputDetails | msgspec.UnsetType = msgspec.UNSET
    """This member is present if the answer has reasoning."""


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
    """An error. `code` and `param` are llmd's own members. `code` also appears in logs and metrics. `param` is the
    client's name of the invalid field.
    """

    type: str
    message: str
    code: str
    param: str | None


class MessageError(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["error"] = "error"
    error: MessageErrorBody
    request_id: None = None
    """Always null: the request id is in the HTTP headers of the answer."""
