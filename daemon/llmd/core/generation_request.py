"""A request independent of its API: a dialect's reader makes it, and the pipeline answers it.

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
    """JSON in a text, as it was written."""
    id: str | None = None


class PlainMessage(msgspec.Struct, frozen=True):
    """One message of a conversation, of the past or just generated."""

    role: Role
    content: str = ""
    tool_calls: tuple[PlainToolCall, ...] = ()
    name: str | None = None
    tool_call_id: str | None = None
    """The call that a tool's result answers."""
    reasoning: str | None = None
    marks: tuple[int, ...] = ()
    """Numbers of characters of the content after which the client expects other prompts to differ; the content's length
    means the end of the message."""


class ArgumentForm(msgspec.Struct, frozen=True):
    """The form of a tool's one argument, a text. It is enforced if the model writes arguments as JSON."""

    argument: str
    kind: Literal["lark_string", "regex_string"]
    text: str


class Tool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function that the answer may call."""

    name: str
    description: str
    parameters: dict[str, Any]
    """A JSON schema."""
    form: ArgumentForm | None = None
    is_deferred: bool = False
    """Described in a message instead of in the template's list of tools."""


class ToolChoice(msgspec.Struct, frozen=True):
    """Whether the answer calls tools."""

    mode: Literal["auto", "none", "required"] = "auto"
    names: tuple[str, ...] = ()
    """Names of the tools that may be called; empty: all."""


class ChatPrompt(msgspec.Struct, frozen=True):
    """A prompt that the model's template makes."""

    messages: list[PlainMessage]
    variables: dict[str, Any] = {}
    """Variables of the template."""
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    has_parallel_calls: bool | None = None
    """Whether one answer may call several tools; None: the template decides."""
    is_reasoning_apart: bool = True
    """False: reasoning is a part of the text, as the model wrote it."""
    continues: bool = False
    """The answer continues the last message, which is the assistant's."""
    has_opening: bool | None = None
    """Whether the prompt ends with the beginning of an answer; None: as the template does by default, which is yes."""
    history: HistoryMode | None = None
    """None: the session's present mode."""
    may_truncate: bool = False
    """If the conversation does not fit the context, its first messages are left out (pipeline/truncation.py); False:
    that is an error."""
    param: str = "messages"


class NearbyText(msgspec.Struct, frozen=True):
    """A text that may help to fill in the middle of another one."""

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
    """The middle is filled in even if nothing comes after it."""
    nearby: tuple[NearbyText, ...] = ()
    """Texts before a prompt for filling in, the most important last."""
    begun: str = ""
    """Text that has been filled in already."""
    param: str = "prompt"
    suffix_param: str = "suffix"


class Constraint(msgspec.Struct, frozen=True):
    """A form that the answer must have."""

    kind: Literal["json", "json_schema", "grammar", "regex", "choice"]
    """json: any JSON object; choice: one of several texts."""
    text: str
    """The schema or the list of texts as JSON, the grammar in GBNF, or the expression."""
    param: str = "response_format"
    is_strict: bool = True
    """Refuse a schema that cannot be enforced completely; otherwise the parts that cannot be enforced are ignored."""


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True):
    prompt: ChatPrompt | RawPrompt
    key: SessionKey
    more_prompts: tuple[RawPrompt, ...] = ()
    """Further prompts. Each gets as many answers, which come after those to `prompt`."""
    parent: str = ""
    """The session from which this one is forked if it does not exist yet."""
    n_answers: int = 1
    """Answers to each prompt."""
    n_tried: int = 0
    """Answers generated for each prompt, of which the most likely ones are returned; 0: all are. Never in a stream."""
    is_stream: bool = False
    max_tokens: int = 0
    """Longest answer; 0: as many tokens as the context holds."""
    sampling: RequestedSampling = RequestedSampling()
    logit_bias: dict[int, float] = {}
    stop: list[str] = []
    stop_tokens: list[int] = []
    """Tokens that end the answer as the model's own end tokens do."""
    min_tokens: int = 0
    """The answer does not end by itself before this many tokens."""
    dry_sequence_breakers: list[str] | None = None
    """Texts that end a repetition for DRY; None: the default ones."""
    constraint: Constraint | None = None
    thinking_tokens_max: int | None = None
    """The model is made to end its reasoning after this many tokens."""
    includes_stop: bool = False
    """The stop string that ended the answer is a part of it."""
    ignore_end: bool = False
    """The answer ends only at its limit on length."""
    n_logprobs: int | None = None
    """Number of most likely tokens to report with each chosen one; None: no log probabilities."""
    returns_tokens: bool = False
    """Report the ids of the prompt's tokens, then those of each part."""
    returns_counts: bool = False
    """Report the tokens used after each part."""
    returns_progress: bool = False
    """Report the progress of the prefill."""
    echoes: bool = False
    """The answer begins with the prompt's text."""
    is_cold: bool = False
    """Reuse no resident tokens."""
    prefill_only: bool = False
    """Prefill the prompt for the next request, and generate no answer."""

    @property
    def has_answer_stops(self) -> bool:
        """Whether texts of `stop` end an answer whose reasoning is separate from it."""
        return bool(self.stop) and isinstance(self.prompt, ChatPrompt) and self.prompt.is_reasoning_apart
