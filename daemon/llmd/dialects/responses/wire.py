"""Types of the JSON bodies of the Responses API. The items and tools of a request are raw JSON in ResponseRequest. The
readers decode each of them to the type for its kind, and ignore unknown kinds.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from ...core import limits
from ...core.parts import SessionReport
from ...http.parameters import UNBOUNDED, accepts, note, refuses
from .. import members
from ..custom_tools import AnyText, Grammar
from ..members import NOT_SHOWN, InputContent
from ..probabilities import ChosenToken
from ..sampling import OF_RESPONSES, samples

# --- items -----------------------------------------------------------------------------------------------------------


class InputKind(msgspec.Struct, frozen=True):
    """The members that determine the kind of an item. An item without a type is a message, or a reference to another
    item.
    """

    type: str | None = None
    role: str | None = None
    id: str | None = None


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
    """The output of a tool of any kind."""

    output: str | list[InputContent] | dict[str, Any] | None = None
    call_id: str | None = None
    id: str | None = None


class InputOtherCall(msgspec.Struct, frozen=True):
    """A call of another tool that the client runs, for example a shell. This tool is neither a function nor a custom
    tool.
    """

    call_id: str | None = None
    arguments: Any = None
    action: Any = None
    operation: Any = None


class InputTools(msgspec.Struct, frozen=True):
    tools: list[msgspec.Raw]


# --- tools -----------------------------------------------------------------------------------------------------------


class ToolKind(msgspec.Struct, frozen=True):
    type: str


class CustomGrammar(Grammar, frozen=True, tag="grammar"):
    """The grammar of a custom tool."""


class CustomTool(msgspec.Struct, frozen=True):
    """A custom tool, whose input is free text."""

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
    """The older name of `summary`."""


@accepts(
    "user", "service_tier", "safety_identifier", "prompt_cache_retention", "prompt_cache_options", "client_metadata",
    "access_programs", "image", "request_id", "priority", "ttl", "keep_alive",
    stream_options="every response has usage",
    personality="only /responses/input_tokens has this parameter",
    background_options="it matters only for background responses",
    max_tool_calls="it matters only for tools that the provider runs",
)  # fmt: skip
@refuses(
    background=("responses that run in the background", False),
    conversation=("conversations that the server stores; use previous_response_id or session_id",),
    prompt=("prompts that the server stores",),
    context_management=("compaction of the conversation by the server", []),
    moderation=("moderation",),
)
@samples(OF_RESPONSES)
class ResponseRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    input: Annotated[str | list[msgspec.Raw] | None, note(
        "A text, or a list of items. Items are messages, tool calls and their outputs, reasoning, and references to "
        "items of stored responses. "
        f"Parts other than text in a tool's output, or in a user message before the newest one, are replaced by "
        f"{NOT_SHOWN}. Items of other types are ignored.", UNBOUNDED)] = None  # fmt: skip
    instructions: Annotated[
        str | None, note("System message before all other messages.", limits.JSON_TEXT_BYTES_MAX)
    ] = None
    model: members.Model = None
    stream: members.Stream = None
    return_progress: members.ReturnProgress = None
    speculate: members.Speculate = None
    store: Annotated[bool | None, note("false: do not store the response. Default: true.")] = None
    previous_response_id: Annotated[str | None, note(
        "Id of a stored response. The conversation up to and including the stored response precedes the input. The "
        "request continues the session of the stored response, unless the request names another "
        "session.")] = None  # fmt: skip
    tools: Annotated[list[msgspec.Raw] | None, note(
        "Functions and custom tools. A custom tool takes a text as its input. In the prompt, a tool of a namespace has "
        "the name NAMESPACE__NAME. Tools that the provider would run (web_search, ...) are ignored if the request has "
        "other tools. Otherwise they are refused. Clients run the tools local_shell, shell, apply_patch and computer. "
        "llmd refuses these tools.", limits.TOOLS_BYTES_MAX, maxItems=limits.TOOLS_MAX)] = None  # fmt: skip
    tool_choice: Annotated[Literal["auto", "none", "required"] | ChosenTool | None, note(
        "Which tools the answer calls: `auto`, `none`, `required`, one tool, or `allowed_tools`.")] = None  # fmt: skip
    parallel_tool_calls: members.ParallelToolCalls = None
    text: Annotated[TextAsked | None, note(
        "`format`: output format, json_object or json_schema. `verbosity` is ignored.", limits.TOOLS_BYTES_MAX)
    ] = None  # fmt: skip
    reasoning: Annotated[ReasoningAsked | None, note(
        "`effort` sets the template variable reasoning_effort. The effort `none` also sets enable_thinking to false. "
        "With `summary`, llmd returns the complete reasoning as a summary instead of as "
        "reasoning_text.")] = None  # fmt: skip
    include: Annotated[list[str] | None, note(
        "reasoning.encrypted_content: also return the reasoning as encrypted_content. You can send encrypted_content "
        "back. message.output_text.logprobs: also return log probabilities. Other values are "
        "ignored.")] = None  # fmt: skip
    truncation: Annotated[Literal["auto", "disabled"] | None, note(
        "auto: leave out the first messages of a conversation that does not fit the context. System messages stay. "
        "Default: disabled.")] = None  # fmt: skip
    metadata: Annotated[dict[str, Any] | None, note(
        "metadata.session_id names the session if no other field or header does. The response has the same "
        "metadata.")] = None  # fmt: skip
    session_id: members.SessionId = None
    prompt_cache_key: members.PromptCacheKey = None
    max_output_tokens: Annotated[int | None, note(
        "Maximum tokens of the answer. The context limits the answer in any case.")] = None  # fmt: skip
    top_logprobs: members.TopLogprobs = None
    stop: members.Stop = None
    ignore_eos: members.IgnoreEos = None
    cache_prompt: members.CachePrompt = None
    enable_thinking: members.EnableThinking = None
    chat_template_kwargs: members.TemplateVariables = None
    history: members.History = None


REQUESTS = {"responses": ResponseRequest}
"""Request types by their names in docs/http.md."""


# --- answers: a response, its items, and lists of them ---------------------------------------------------------------

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
    """Always 0. Some providers charge for the tokens that a request adds to the cache; llmd does not."""


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
    """How the session was reused. This member is present when the answer has ended."""


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
