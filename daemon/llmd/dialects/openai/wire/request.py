"""Types of the JSON bodies of requests for chat and text completions and embeddings. This module does no I/O."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from ....core import limits
from ....http.parameters import UNBOUNDED, accepts, note, refuses
from ... import members
from ...custom_tools import AnyText, OfferedFunction
from ...custom_tools import Grammar as ToolGrammar
from ...members import NOT_SHOWN
from ...sampling import EverySampling


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class ContentPart(members.InputContent, frozen=True):
    """A part of a message's content: a text or, in a message of the assistant, reasoning."""

    thinking: str | None = None
    cache_control: Any = None
    """If this member is not null, the client expects that other prompts are equal up to the end of this part."""


class FunctionCall(msgspec.Struct, frozen=True):
    name: str
    arguments: str | dict[str, Any] | None = None


class CustomCall(msgspec.Struct, frozen=True):
    name: str
    input: str


class ToolCall(msgspec.Struct, frozen=True):
    """A call of a function or of a custom tool."""

    function: FunctionCall | None = None
    custom: CustomCall | None = None
    id: str | None = None
    type: str | None = None


class Message(msgspec.Struct, frozen=True):
    """A message of the conversation. Members that are not listed here do not reach the model."""

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
    """The reasoning. Different servers call this member `reasoning_content`, `reasoning`, `reasoning_text` or
    `thinking`. A value that is not a text is ignored.
    """
    cache_control: Any = None
    """If this member is not null, the client expects that other prompts are equal up to the end of this message."""


class ChatGrammar(msgspec.Struct, frozen=True, tag="grammar"):
    grammar: ToolGrammar


class ChatCustomTool(msgspec.Struct, frozen=True):
    """A custom tool, whose input is free text."""

    name: str
    description: str | None = None
    format: AnyText | ChatGrammar | None = None


class _Typed(msgspec.Struct, frozen=True):
    type: str | None = None

    @property
    def kind(self) -> str:
        return self.type or "function"


class ChatTool(_Typed, frozen=True):
    """A tool. The model can call only tools of type function and custom."""

    function: OfferedFunction | None = None
    custom: ChatCustomTool | None = None


class NamedFunction(msgspec.Struct, frozen=True):
    name: str


class NamedTool(_Typed, frozen=True):
    function: NamedFunction | None = None
    custom: NamedFunction | None = None


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
    """The schema, at the place where llama-server expects a schema. This member is allowed with the types json_object
    and json_schema. The schema is enforced as if `strict` were true.
    """


class StructuredOutputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Structured output in vLLM's form. Exactly one member is set."""

    json: Annotated[str | dict[str, Any] | None, note("A JSON schema for the answer.")] = None
    json_object: Annotated[bool | None, note("true: the answer must be a JSON object.")] = None
    regex: Annotated[str | None, note("A regular expression that the whole answer must match.")] = None
    choice: Annotated[list[str] | None, note("Texts from which the model chooses its answer.")] = None
    grammar: members.Grammar = None


class Thinking(msgspec.Struct, frozen=True):
    """Whether the model should reason. With the types `adaptive` and `auto`, the template decides."""

    type: Literal["enabled", "disabled", "adaptive", "auto"] | None = None
    budget_tokens: int | None = None


class Reasoning(msgspec.Struct, frozen=True):
    enabled: bool | None = None
    effort: str | None = None
    max_tokens: int | None = None


# --- members of both kinds of completion -----------------------------------------------------------------------------

_SCHEMA = str | dict[str, Any] | None


@accepts(
    "user", "store", "service_tier", "safety_identifier", "prompt_cache_retention", "prompt_cache_options",
    "client_metadata", "include", "request_id", "priority", "cache_salt", "stream_interval", "ttl", "keep_alive",
    id_slot="a request cannot choose a slot; name a session with session_id or a header instead",
    t_max_prompt_ms="llmd has no limit on the time of a prompt",
    t_max_predict_ms="only --request-timeout limits the time of a request",
    response_fields="only /completion has this parameter",
    sse_ping_interval="--keepalive-interval sets the interval for all streams",
    usage="every answer has usage; streams have it with stream_options",
    backend_sampling="it only chooses the device that samples tokens",
)  # fmt: skip
@refuses(
    use_beam_search=("beam search", False),
    length_penalty=("beam search", 1),
    early_stopping=("beam search", False),
    grammar_lazy=("a grammar that applies only after a trigger text", False),
    post_sampling_probs=("probabilities after the samplers; llmd reports the model's own probabilities", False),
    tfs_z=("tail-free sampling", 1),
    top_a=("top-a sampling", 0),
    prompt_logprobs=("log probabilities of the prompt", 0),
    allowed_token_ids=("a set of allowed tokens; use logit_bias", []),
    bad_words=("forbidden words", []),
    skip_special_tokens=("control tokens in the text of answers", True),
    truncate_prompt_tokens=("truncation of the prompt", -1),
    n_keep=("an answer that goes on when the context is full (context shift)", 0, -1),
    n_discard=("an answer that goes on when the context is full (context shift)", 0),
    lora=("LoRA adapters", []),
    speculative=("speculative decoding", {}),
    mm_processor_kwargs=("input or output other than text", {}),
)
class CompletionBase(EverySampling, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: members.Model = None
    stream: members.Stream = None
    stream_options: Annotated[StreamOptions | None, note(
        "include_usage: the last chunk has `usage` and `session`. With include_usage and continuous_usage_stats, each "
        "chunk from the first text on has the usage so far.")] = None  # fmt: skip
    n: Annotated[int | None, note(
        f"Number of answers, 1 to {limits.ANSWERS_MAX}. The first answer continues the session, but you can send back "
        "any of the answers.",
        minimum=0, maximum=limits.ANSWERS_MAX)] = None  # fmt: skip
    best_of: Annotated[int | None, note(
        f"Number of answers to generate, 1 to {limits.ANSWERS_MAX}. llmd returns the n answers with the highest mean "
        "log probability. A stream cannot have best_of.", minimum=0, maximum=limits.ANSWERS_MAX)] = None  # fmt: skip
    n_probs: members.NProbs = None
    return_token_ids: Annotated[bool | None, note("true: return prompt_token_ids, and token_ids in each choice.")] = (
        None
    )
    return_tokens: Annotated[bool | None, note("Other name of return_token_ids.")] = None
    return_progress: members.ReturnProgress = None
    speculate: members.Speculate = None
    timings_per_token: Annotated[bool | None, note(
        "true: return llama.cpp's timings. In a stream, each chunk from the first text on has them.")
    ] = None  # fmt: skip
    include_stop_str_in_output: Annotated[bool | None, note(
        "true: the answer includes the stop text that ended it.")] = None  # fmt: skip
    session_id: members.SessionId = None
    prompt_cache_key: members.PromptCacheKey = None
    metadata: members.Metadata = None
    max_tokens: Annotated[int | None, note(
        "Maximum tokens of the answer. -1: no limit. The context limits the answer in any case.")] = None  # fmt: skip
    n_predict: Annotated[int | None, note(
        "Other name of max_tokens. 0: process the prompt only.")] = None  # fmt: skip
    stop: members.Stop = None
    stop_token_ids: Annotated[list[int] | None, note(
        f"Up to {limits.STOP_TOKENS_MAX} token ids. Each of these tokens ends the answer, as the model's "
        "end token does.",
        maxItems=limits.STOP_TOKENS_MAX)] = None  # fmt: skip
    min_tokens: Annotated[int | None, note(
        "Minimum tokens of the answer, at most max_tokens. Before this number, neither the model nor a stop text ends "
        "the answer.")
    ] = None  # fmt: skip
    repetition_penalty: Annotated[float | None, note("Other name of repeat_penalty.")] = None
    typ_p: Annotated[float | None, note("Other name of typical_p.")] = None
    logit_bias: Annotated[dict[int, float] | None, note(
        "Biases of tokens, from -100 to 100, by token id.", maxProperties=limits.LOGIT_BIASES_MAX)] = None  # fmt: skip
    ignore_eos: members.IgnoreEos = None
    cache_prompt: members.CachePrompt = None
    response_format: Annotated[ResponseFormat | None, note(
        "Output format of the answer. With `{type: json_object}`, the answer is a JSON object. With `{type: "
        "json_schema, json_schema: {schema, strict}}`, the answer is JSON that matches the schema. If `strict` is "
        "true, llmd refuses a schema that it cannot enforce completely. Otherwise llmd ignores keywords that it cannot "
        "enforce. `{type, schema}`, with either type, has the same effect as a json_schema with `strict`. A request "
        "can have only one of response_format, json_schema, grammar, structured_outputs and guided_*.")
    ] = None  # fmt: skip
    json_schema: members.JsonSchema = None
    grammar: members.Grammar = None
    structured_outputs: Annotated[StructuredOutputs | None, note(
        "Output format of the answer. Set one of `json`, `json_object`, `regex`, `choice` and `grammar`. `json` is a "
        "schema. `choice` is a list of texts.")] = None  # fmt: skip
    guided_json: Annotated[_SCHEMA, note("Other name of structured_outputs.json.")] = None
    guided_regex: Annotated[str | None, note("Other name of structured_outputs.regex.")] = None
    guided_choice: Annotated[list[str] | None, note("Other name of structured_outputs.choice.")] = None
    guided_grammar: Annotated[str | None, note("Other name of structured_outputs.grammar.")] = None


# --- the requests ----------------------------------------------------------------------------------------------------


@accepts(
    "verbosity", "parallel_tool_call",
    parse_tool_calls="tool calls are always separate from the text", prediction="it is only a hint for speed",
)  # fmt: skip
@refuses(
    modalities=("input or output other than text", ["text"]),
    audio=("audio",),
    web_search_options=("web search",),
    moderation=("moderation",),
    chat_template=("another chat template; start llmd with --chat-template-file",),
    documents=("documents that the template adds to the prompt", []),
    echo=("the prompt repeated in the answer", False),
    add_special_tokens=("other special tokens in the prompt than the template's", True),
    include_reasoning=("answers without the model's reasoning; use enable_thinking to turn reasoning off", True),
)
class ChatCompletionRequest(CompletionBase, frozen=True, kw_only=True):
    messages: Annotated[list[Message], note(
        "The conversation, in the roles system, developer, user, assistant, tool and function. Only text reaches the "
        "model. Parts other than text in a tool's result, or in a user message before the newest one, are replaced by "
        f"{NOT_SHOWN}. The template reads these members of a message: role, content, name, tool_calls, function_call, "
        "tool_call_id and the reasoning. The reasoning is the first text among reasoning_content, reasoning, "
        "reasoning_text and thinking. If the template refuses several user messages in a row, llmd joins them.",
        UNBOUNDED, minItems=1, maxItems=limits.MESSAGES_MAX)]  # fmt: skip
    max_completion_tokens: Annotated[int | None, note("New name of max_tokens. Overrides max_tokens.")] = None
    tools: Annotated[list[ChatTool] | None, note(
        "Functions that the answer can call: name, description, parameters as a JSON schema. A custom tool takes a "
        "text as its input. The members of a custom tool are `name`, `description` and `format`. The format is `text` "
        "or `grammar`. A grammar has a definition, and the syntax `lark` or `regex`. llmd ignores tools of other "
        "types.",
        limits.TOOLS_BYTES_MAX, maxItems=limits.TOOLS_MAX)] = None  # fmt: skip
    tool_choice: Annotated[Literal["auto", "none", "required"] | ChatToolChoice | None, note(
        "Which tools the answer calls. `auto`: the model decides. `none`: the answer calls no tool. `required`: it "
        "calls at least one tool. `{type: function, function: {name}}` or `{type: custom, custom: {name}}`: it calls "
        "the named tool. `{type: allowed_tools, allowed_tools: {mode, tools}}`: it calls only the listed tools, and "
        "the mode is `auto` or `required`.")] = None  # fmt: skip
    parallel_tool_calls: members.ParallelToolCalls = None
    functions: Annotated[list[OfferedFunction] | None, note(
        "Old form of tools: the answer has at most one call, as function_call.",
        limits.TOOLS_BYTES_MAX, maxItems=limits.TOOLS_MAX)] = None  # fmt: skip
    function_call: Annotated[Literal["auto", "none"] | NamedFunction | None, note(
        "Old form of tool_choice, for functions: `auto`, `none`, or `{name}` of the function to "
        "call.")] = None  # fmt: skip
    logprobs: Annotated[bool | None, note(
        "true: return the log probability of each token of the answer, from the model's distribution before the "
        "samplers.")
    ] = None  # fmt: skip
    top_logprobs: members.TopLogprobs = None
    chat_template_kwargs: members.TemplateVariables = None
    enable_thinking: members.EnableThinking = None
    reasoning_effort: Annotated[str | None, note(
        "Sets the template variable reasoning_effort. The effort `none` also sets enable_thinking to false.")
    ] = None  # fmt: skip
    thinking: Annotated[Thinking | None, note(
        "The type `enabled` or `disabled` sets the template variable enable_thinking. `budget_tokens` sets "
        "thinking_budget_tokens. Other members are ignored.")] = None  # fmt: skip
    reasoning: Annotated[Reasoning | None, note(
        "`enabled` sets the template variable enable_thinking. `effort` sets reasoning_effort. `max_tokens` sets "
        "thinking_budget_tokens. Other members are ignored.")] = None  # fmt: skip
    reasoning_format: Annotated[Literal["none", "auto", "deepseek"] | None, note(
        "Where the answer has its reasoning. `auto` or `deepseek` (default): the reasoning is in reasoning_content. "
        "`none`: the reasoning is in the text, as the model wrote it.")] = None  # fmt: skip
    thinking_budget_tokens: Annotated[int | None, note(
        "Maximum tokens of the reasoning. After this number, llmd makes the model end the reasoning. -1: no limit.")
    ] = None  # fmt: skip
    thinking_budget: Annotated[int | None, note(
        "Other name of thinking_budget_tokens. If both are set, thinking_budget_tokens applies.")] = None  # fmt: skip
    add_generation_prompt: Annotated[
        bool | None, note("false: the prompt ends with the last message, without the beginning of an answer.")
    ] = None
    continue_final_message: Annotated[bool | None, note(
        "true: the answer continues the last message, and has only the new text. The last message must be the "
        "assistant's. Default: a last message of the assistant is a finished turn.")] = None  # fmt: skip
    history: members.History = None


class CompletionRequest(CompletionBase, frozen=True, kw_only=True):
    prompt: Annotated[str | list[int | str | list[int]], note(
        f"A prompt, or a list of up to {limits.ANSWERS_MAX} prompts. A prompt is a text or token ids. Each prompt gets "
        "n answers. The answers are in the order of the prompts.", UNBOUNDED)]  # fmt: skip
    suffix: Annotated[str | None, note(
        "Text after the answer. The model fills in the text between prompt and suffix. With a suffix, text that spells "
        "a control token does not become that token.",
        limits.JSON_TEXT_BYTES_MAX)] = None  # fmt: skip
    parse_special: Annotated[bool | None, note(
        "false: text that spells a control token of the model is plain text. Default: it becomes that token.")
    ] = None  # fmt: skip
    add_special_tokens: Annotated[bool | None, note(
        "false: do not add the model's tokens for the beginning and end of a text.")] = None  # fmt: skip
    logprobs: Annotated[int | bool | None, note(
        "For each token of the answer, report its log probability, and this number of most likely tokens, 0 to "
        f"{limits.LIKELIEST_MAX}. false: no log probabilities.",
        minimum=0, maximum=limits.LIKELIEST_MAX)] = None  # fmt: skip
    echo: Annotated[bool | None, note(
        "true: the answer begins with the prompt's text. Cannot be combined with log probabilities.")
    ] = None  # fmt: skip


@accepts("user", "service_tier", "metadata", "ttl", "keep_alive")
@refuses(
    truncate_prompt_tokens=("truncation of the text", -1),
    task=("embeddings made for one kind of task",),
    input_type=("embeddings made for one kind of task",),
)
class EmbeddingsRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    input: Annotated[str | list[int | str | list[int]], note(
        "A text, token ids, or a list of either.", UNBOUNDED, maxItems=limits.EMBEDDING_TEXTS_MAX)]  # fmt: skip
    model: members.Model = None
    encoding_format: Annotated[Literal["float", "base64"] | None, note(
        "float, or base64 of float32 in little-endian order.")] = None  # fmt: skip
    dimensions: members.Dimensions = None


REQUESTS = {
    "chat": ChatCompletionRequest,
    "completions": CompletionRequest,
    "structured_outputs": StructuredOutputs,
    "embeddings": EmbeddingsRequest,
}
"""Request types, by their names in docs/http.md."""
