"""A request in a form that is independent of its API: a dialect's reader makes it, and the pipeline answers it.

Types only. `param` is the client's name of a field, for error messages.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from .sampling_table import RequestedSampling
from .session_key import SessionKey

Role = Literal["system", "user", "assistant", "tool"]
HistoryMode = Literal["resident", "template"]
"""resident: answers keep the tokens with which they were generated; template: everything is tokenized as the template
renders it."""


class PlainToolCall(msgspec.Struct, frozen=True):
    name: str
    arguments: str
    """JSON as a text, as the model wrote it."""
    id: str | None = None


class PlainMessage(msgspec.Struct, frozen=True):
    """One message of a conversation, of the past or just generated."""

    role: Role
    content: str = ""
    tool_calls: tuple[PlainToolCall, ...] = ()
    name: str | None = None
    tool_call_id: str | None = None
    """The id of the call that a tool's result answers."""
    reasoning: str | None = None
    marks: tuple[int, ...] = ()
    """Positions in the content, in characters, after which the client expects other prompts to differ. The content's
    length stands for the end of the message.
    """


class ArgumentForm(msgspec.Struct, frozen=True):
    """The form of a tool's only argument, which is a text. It is enforced if the model writes arguments as JSON."""

    argument: str
    kind: Literal["lark_string", "regex_string"]
    text: str


class Tool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function that the answer can call."""

    name: str
    description: str
    parameters: dict[str, Any]
    """A JSON schema."""
    form: ArgumentForm | None = None
    is_deferred: bool = False
    """Whether a message describes the tool instead of the template's list of tools."""


class ToolChoice(msgspec.Struct, frozen=True):
    """Whether the answer calls tools."""

    mode: Literal["auto", "none", "required"] = "auto"
    names: tuple[str, ...] = ()
    """Names of the tools that can be called; empty: all tools."""


class ChatPrompt(msgspec.Struct, frozen=True):
    """A prompt that the model's template makes."""

    messages: list[PlainMessage]
    variables: dict[str, Any] = {}
    """Variables of the template."""
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    has_parallel_calls: bool | None = None
    """Whether one answer can call several tools; None: the template decides."""
    is_reasoning_apart: bool = True
    """Whether reasoning is separate from the text. False: it is part of the text, as the model wrote it."""
    continues: bool = False
    """The answer continues the last message, which is the assistant's."""
    has_opening: bool | None = None
    """Whether the prompt ends with the beginning of an answer; None: as the template does by default, which is yes."""
    history: HistoryMode | None = None
    """None: the session's current mode."""
    may_truncate: bool = False
    """Whether the first messages are left out if the conversation does not fit the context (pipeline/truncation.py).
    Otherwise that is an error.
    """
    param: str = "messages"


class NearbyText(msgspec.Struct, frozen=True):
    """A text from another file, which can help to fill in the middle of a text."""

    name: str
    text: str


class RawPrompt(msgspec.Struct, frozen=True):
    """A prompt without a template."""

    content: str | list[int]
    """A text, or token ids."""
    parse_special: bool = True
    """Whether control words in a text become control tokens."""
    add_special: bool = True
    """Whether to add the tokens with which the model begins and ends a text."""
    suffix: str = ""
    """Text after the answer: the model fills in the middle."""
    is_infill: bool = False
    """Whether to fill in the middle even if no text comes after it."""
    nearby: tuple[NearbyText, ...] = ()
    """Texts that come before a prompt for filling in, the most important one last."""
    begun: str = ""
    """Text of the middle that is already filled in."""
    param: str = "prompt"
    suffix_param: str = "suffix"


class Constraint(msgspec.Struct, frozen=True):
    """A form that the answer must have."""

    kind: Literal["json", "json_schema", "grammar", "regex", "choice"]
    """json: any JSON object; choice: one of several texts."""
    text: str
    """The schema or the list of texts as JSON, the grammar in GBNF, or the regular expression."""
    param: str = "response_format"
    is_strict: bool = True
    """Whether to refuse a schema that cannot be enforced completely. Otherwise the parts that cannot be enforced are
    ignored.
    """


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    prompt: ChatPrompt | RawPrompt
    key: SessionKey
    more_prompts: tuple[RawPrompt, ...] = ()
    """Further prompts. Each gets the same number of answers, which are numbered after those to `prompt`."""
    parent: str = ""
    """The session from which this one is forked if it does not exist yet."""
    n_answers: int = 1
    """Number of answers to each prompt."""
    n_tried: int = 0
    """Number of answers to generate for each prompt, of which the most likely ones are returned. 0: all are returned.
    Not used in streams.
    """
    is_stream: bool = False
    max_tokens: int = 0
    """Longest answer; 0: as many tokens as the context holds."""
    sampling: RequestedSampling = RequestedSampling()
    logit_bias: dict[int, float] = {}
    stop: list[str] = []
    stop_tokens: list[int] = []
    """Tokens that end the answer like the model's own end tokens."""
    min_tokens: int = 0
    """Minimum tokens of the answer before the model or a stop string can end it."""
    dry_sequence_breakers: list[str] | None = None
    """Texts that end a repetition for DRY; None: the default ones."""
    constraint: Constraint | None = None
    thinking_tokens_max: int | None = None
    """Number of reasoning tokens after which the model is made to end its reasoning."""
    includes_stop: bool = False
    """Whether the stop string that ended the answer is part of it."""
    ignore_end: bool = False
    """Whether the answer ends only at its maximum length."""
    n_logprobs: int | None = None
    """Number of most likely tokens to report with each chosen one; None: no log probabilities."""
    returns_tokens: bool = False
    """Whether to report the ids of the prompt's tokens, then those of each part."""
    returns_counts: bool = False
    """Whether to report the tokens used after each part."""
    returns_progress: bool = False
    """Whether to report the progress of prefill."""
    echoes: bool = False
    """Whether the answer begins with the prompt's text."""
    is_cold: bool = False
    """Whether to reuse no resident tokens."""
    prefill_only: bool = False
    """Whether to prefill the prompt for the next request and generate no answer."""

    @property
    def has_answer_stops(self) -> bool:
        """Whether stop strings end an answer whose reasoning is separate."""
        return bool(self.stop) and isinstance(self.prompt, ChatPrompt) and self.prompt.is_reasoning_apart
