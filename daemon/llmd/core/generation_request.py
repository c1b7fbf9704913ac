"""The types of a request for an answer. They are the same for all APIs: a dialect's reader converts the body of its API
to a GenerationRequest, and the pipeline answers the GenerationRequest.

Error messages need the client's names of fields. So each member called `param` has the name that the client's API gives
to a field.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from .sampling_table import RequestedSampling
from .session_key import SessionKey

Role = Literal["system", "user", "assistant", "tool"]
HistoryMode = Literal["resident", "template"]
"""How a prompt contains past answers. With `resident`, past answers keep their generated tokens. With `template`, the
template renders past answers like all other messages, and the rendered text is tokenized.
"""


class PlainToolCall(msgspec.Struct, frozen=True):
    name: str
    arguments: str
    """The arguments as JSON, as the model wrote them."""
    id: str | None = None


class PlainMessage(msgspec.Struct, frozen=True):
    """A message of a conversation: a message of the request, or a generated answer."""

    role: Role
    content: str = ""
    tool_calls: tuple[PlainToolCall, ...] = ()
    name: str | None = None
    tool_call_id: str | None = None
    """The id of the call that a tool's result answers."""
    reasoning: str | None = None
    marks: tuple[int, ...] = ()
    """Positions in the content, in characters, that the client marked with cache_control. The client expects other
    prompts to be equal up to these positions. A position equal to the content's length means the end of the message,
    after its tool calls.
    """


class ArgumentForm(msgspec.Struct, frozen=True):
    """A grammar or regular expression for the argument of a tool that has one argument, a text. It is enforced only if
    the model writes the arguments of calls as JSON.
    """

    argument: str
    """Name of the argument."""
    kind: Literal["lark_string", "regex_string"]
    text: str
    """The Lark grammar or the regular expression."""


class Tool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function that the answer can call."""

    name: str
    description: str
    parameters: dict[str, Any]
    """A JSON schema."""
    form: ArgumentForm | None = None
    is_deferred: bool = False
    """Whether the tool's definition is in a message of the conversation. If false, it is in the list of tools at the
    beginning of the prompt.
    """


class ToolChoice(msgspec.Struct, frozen=True):
    """Whether the answer can or must call tools."""

    mode: Literal["auto", "none", "required"] = "auto"
    names: tuple[str, ...] = ()
    """Names of the tools that can be called. Empty if all tools can be called."""


class ChatPrompt(msgspec.Struct, frozen=True):
    """A conversation, which the model's template turns into a prompt."""

    messages: list[PlainMessage]
    variables: dict[str, Any] = {}
    """Variables of the template."""
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    has_parallel_calls: bool | None = None
    """Whether one answer can have several tool calls. None if the template decides."""
    is_reasoning_apart: bool = True
    """Whether reasoning is separate from the text of an answer. If false, reasoning is part of the text, as the model
    wrote it.
    """
    continues: bool = False
    """Whether the answer continues the last message, which is then the assistant's."""
    has_opening: bool | None = None
    """Whether the prompt ends with the tokens that begin an assistant message (the generation prompt). None means the
    template's default, which is yes.
    """
    history: HistoryMode | None = None
    """The history mode of the session from this request on. None if the session keeps its current mode."""
    may_truncate: bool = False
    """Whether llmd can leave out the first messages of a conversation that does not fit the context
    (pipeline/truncation.py). If false, a conversation that does not fit is an error.
    """
    param: str = "messages"


class NearbyText(msgspec.Struct, frozen=True):
    """A text from another file, which helps the model to fill in the middle of a text."""

    name: str
    text: str


class RawPrompt(msgspec.Struct, frozen=True):
    """A prompt without a template."""

    content: str | list[int]
    """A text, or token ids."""
    parse_special: bool = True
    """Whether the text of a control token (such as <|im_end|>) in `content` becomes that token. If false, it is
    tokenized like any other text.
    """
    add_special: bool = True
    """Whether to add the tokens that the model expects at the beginning and end of a text (BOS, EOS)."""
    suffix: str = ""
    """Text after the answer. If this is not empty, the model fills in the middle between `content` and this text."""
    is_infill: bool = False
    """Whether to fill in the middle even if `suffix` is empty."""
    nearby: tuple[NearbyText, ...] = ()
    """Texts from other files, for the beginning of a fill-in-the-middle prompt. The most important text comes last."""
    begun: str = ""
    """Text with which the middle begins. The answer continues this text."""
    param: str = "prompt"
    suffix_param: str = "suffix"


class Constraint(msgspec.Struct, frozen=True):
    """A constraint on the text of the answer."""

    kind: Literal["json", "json_schema", "grammar", "regex", "choice"]
    """`json` allows any JSON object, and `choice` one of several texts."""
    text: str
    """The JSON schema, the grammar (GBNF), the regular expression or, for `choice`, a JSON list of texts."""
    param: str = "response_format"
    is_strict: bool = True
    """Whether to refuse a schema that cannot be enforced completely. If false, keywords that cannot be enforced are
    ignored.
    """


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    prompt: ChatPrompt | RawPrompt
    key: SessionKey
    more_prompts: tuple[RawPrompt, ...] = ()
    """Further prompts after `prompt`. Each prompt gets `n_answers` answers, and the answers are numbered in the order
    of the prompts.
    """
    parent: str = ""
    """The parent session. If the session of this request does not exist yet, the session begins as a fork of the
    parent.
    """
    n_answers: int = 1
    """Number of answers to each prompt."""
    n_tried: int = 0
    """Number of answers to generate for each prompt (best_of). Only the `n_answers` most likely ones are returned. 0 if
    all generated answers are returned. A stream always returns all answers.
    """
    is_stream: bool = False
    max_tokens: int = 0
    """Maximum tokens of the answer. 0 if only the context limits the answer."""
    sampling: RequestedSampling = RequestedSampling()
    logit_bias: dict[int, float] = {}
    stop: list[str] = []
    stop_tokens: list[int] = []
    """Tokens that end the answer like the model's own end tokens."""
    min_tokens: int = 0
    """Minimum tokens of the answer. Until the answer has this number of tokens, neither the model nor a stop string can
    end it.
    """
    dry_sequence_breakers: list[str] | None = None
    """Texts across which the DRY sampler does not look for repetitions. None means the default texts."""
    constraint: Constraint | None = None
    thinking_tokens_max: int | None = None
    """Number of reasoning tokens after which llmd makes the model end its reasoning. None means no limit."""
    includes_stop: bool = False
    """Whether the answer includes the stop string that ended the answer."""
    ignore_end: bool = False
    """Whether the model cannot choose its end tokens. The answer then ends at its maximum length, or at a stop string
    or stop token of the request.
    """
    n_logprobs: int | None = None
    """Number of most likely tokens to report with each chosen token. None if no log probabilities are reported."""
    returns_tokens: bool = False
    """Whether to report the token ids of the prompt, and of each part of the answer."""
    returns_counts: bool = False
    """Whether to report, after each part of the answer, the number of tokens used so far."""
    returns_progress: bool = False
    """Whether to report the progress of prefill."""
    echoes: bool = False
    """Whether the answer begins with the prompt's text."""
    is_cold: bool = False
    """Whether to prefill the whole prompt, without reuse of any state."""
    has_drafts: bool = True
    """Whether the engine may verify drafts of the answer, if it has any."""
    prefill_only: bool = False
    """Whether to prefill the prompt for a later request, without an answer."""

    @property
    def has_answer_stops(self) -> bool:
        """Whether the request has stop strings, and reasoning is separate from the answer's text. Stop strings are then
        searched for only after the reasoning.
        """
        return bool(self.stop) and isinstance(self.prompt, ChatPrompt) and self.prompt.is_reasoning_apart
