"""What a client asks for, in no dialect's words: a dialect's reader makes it, the pipeline answers it.

Types only. Names are ours; where the client has to be told about one of its fields, `param` is what it called it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from .sampling_table import SamplingAsked
from .session_key import SessionKey

Role = Literal["system", "user", "assistant", "tool"]
HistoryMode = Literal["resident", "template"]
"""resident: answers keep the tokens they were generated with; template: all is tokenized as the template has it."""


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
    """Of a tool's result: the call that it answers."""
    reasoning: str | None = None
    marks: tuple[int, ...] = ()
    """Behind so many characters of its content the client expects other prompts to go on differently; its length:
    behind all of the message."""


class ArgumentForm(msgspec.Struct, frozen=True):
    """Of the text that one argument of a tool is. Where a model writes arguments as JSON, calls keep to it."""

    argument: str
    kind: Literal["lark_string", "regex_string"]
    text: str


class Tool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function that the answer may call."""

    name: str
    description: str
    parameters: dict[str, Any]
    """As JSON schema."""
    form: ArgumentForm | None = None
    is_deferred: bool = False
    """The template is not told of it: a message is."""


class ToolChoice(msgspec.Struct, frozen=True):
    """Whether the answer calls tools."""

    mode: Literal["auto", "none", "required"] = "auto"
    names: tuple[str, ...] = ()
    """Only these may be called; none named: any."""


class ChatPrompt(msgspec.Struct, frozen=True):
    """A prompt that the model's template makes."""

    messages: list[PlainMessage]
    variables: dict[str, Any] = {}
    """Of the template."""
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    has_parallel_calls: bool | None = None
    """Whether one answer may call several tools; None: as the template has it."""
    is_reasoning_apart: bool = True
    """False: what the model thinks is a part of the text, as it wrote it."""
    continues: bool = False
    """The last message is the assistant's, and the answer goes on with it."""
    has_opening: bool | None = None
    """Whether the prompt ends with the beginning of an answer; None: as the template has it, which is yes."""
    history: HistoryMode | None = None
    """None: as the session had it."""
    may_be_cut: bool = False
    """Where it does not fit the context, its beginning is left out (pipeline/truncation.py); else that is an error."""
    param: str = "messages"


class NearbyText(msgspec.Struct, frozen=True):
    """What may help to fill in the middle of another text."""

    name: str
    text: str


class RawPrompt(msgspec.Struct, frozen=True):
    """A prompt without a template."""

    given: str | list[int]
    """Text, or token ids."""
    parse_special: bool = True
    """Whether control words in a text become control tokens."""
    add_special: bool = True
    """Whether a text is given the tokens that the model wants around one."""
    suffix: str = ""
    """What comes after the answer: the model fills in the middle."""
    is_infill: bool = False
    """The middle is filled in even if nothing comes after it."""
    nearby: tuple[NearbyText, ...] = ()
    """In front of a prompt for filling in, the most important last."""
    begun: str = ""
    """What has been filled in already."""
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
    """What of a schema cannot be kept to is refused; else the answer may be more than it allows."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One request."""

    prompt: ChatPrompt | RawPrompt
    key: SessionKey
    more_prompts: tuple[RawPrompt, ...] = ()
    """Answered as well, each by as many answers, which come after those to `prompt`."""
    parent: str = ""
    """If the session does not exist yet, it begins as a fork of this one."""
    n_answers: int = 1
    """To each prompt."""
    n_tried: int = 0
    """So many are generated for each prompt, and the likeliest ones told; 0: all are. Not of a stream."""
    is_stream: bool = False
    max_tokens: int = 0
    """Of each answer; 0: as many as the context holds."""
    sampling: SamplingAsked = SamplingAsked()
    logit_bias: dict[int, float] = {}
    stop: list[str] = []
    stop_tokens: list[int] = []
    """Tokens that end the answer as the model's own end does."""
    min_tokens: int = 0
    """The answer does not end by itself before."""
    dry_sequence_breakers: list[str] | None = None
    """Texts that end a repetition for DRY; None: as usual."""
    constraint: Constraint | None = None
    thinking_tokens_max: int | None = None
    """After so many the model is made to end its thinking."""
    includes_stop: bool = False
    """The stop string that ended the answer is a part of it."""
    ignore_end: bool = False
    """The answer goes on until its length."""
    n_logprobs: int | None = None
    """How many of the likeliest tokens are told beside each chosen one; None: no log probabilities."""
    returns_tokens: bool = False
    """Parts come with the ids of their tokens, behind those of the prompt."""
    returns_counts: bool = False
    """Parts come with what was used by then."""
    returns_progress: bool = False
    """While the prompt is consumed, parts tell how far."""
    echoes: bool = False
    """The answer begins with the prompt's text."""
    is_cold: bool = False
    """Nothing that is resident is reused."""
    is_mute: bool = False
    """The prompt is read, for the sake of the next one, and nothing is answered."""

    @property
    def has_answer_stops(self) -> bool:
        """Texts of `stop` end the answer, and what is thought before it is told apart from it."""
        return bool(self.stop) and isinstance(self.prompt, ChatPrompt) and self.prompt.is_reasoning_apart
