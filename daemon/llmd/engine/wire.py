"""Messages between the event loop and the decode thread: MessagePack, specified in include/llm_wire.h.

This module has only types, and does no I/O. A command is a map, and an event is an array. llm_wire.h has tables with
the names of all members. The type Sampling is made from such a table (LLM_SAMPLING_TABLE). The other types here are
written by hand, and compared with the tables before an engine is opened (`differences`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import msgspec

from .native import COMMANDS, EVENTS, SAMPLING_FIELDS, Field

ALL_TOKENS = 0xFFFFFFFF


if TYPE_CHECKING:

    class Sampling(msgspec.Struct, frozen=True):
        """The parameters of LLM_SAMPLING_TABLE. A parameter that is not set has its default, and the default turns off
        the parameter's sampler. If `seed` is None, the engine chooses a random seed.
        """

        def __init__(self, **parameters: float | None) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

else:
    _PYTHON_TYPES = {"FLOAT": float, "INT": int, "UINT": int | None}
    Sampling = msgspec.defstruct(
        "Sampling",
        [
            (field.name, _PYTHON_TYPES[field.type], None if field.type == "UINT" else field.default)
            for field in SAMPLING_FIELDS
        ],
        module=__name__,
        frozen=True,
        gc=False,
        omit_defaults=True,
    )


class Generate(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, tag=1, tag_field="op"):
    """Prefills `prompt` in `session` and decodes until the answer ends. Reuses a state of this owner as far as the
    state's tokens equal the first tokens of the prompt.
    """

    request: int
    """The request number, which Engine.generate assigns."""
    owner: int
    prompt: bytes | memoryview
    """int32 little-endian token ids."""
    session: str = ""
    max_tokens: int = 0
    """Maximum tokens of the answer. 0 if only the context limits the answer."""
    sampling: Sampling = Sampling()
    logit_bias: bytes = b""
    """Pairs of (int32 token, float32 bias), little-endian."""
    stop: list[str] = []
    flags: int = 0
    boundaries: bytes | memoryview = b""
    """Positions after which other prompts are likely to differ, each as the number of tokens before it: int32,
    little-endian, ascending.
    """
    parent: str = ""
    """The parent session. If `session` does not exist yet, it begins as a fork of the parent."""
    n_head: int = 0
    """Many conversations share the first `n_head` tokens of the prompt."""
    n_logprobs: int = -1
    """Number of most likely tokens to report with each generated token and its log probability. -1 if no log
    probabilities are reported.
    """
    after: int = 0
    """The number of a live request with the same prompt, or 0. This request waits until that request has prefilled the
    prompt.
    """
    stop_tokens: bytes = b""
    """int32 little-endian ids of tokens that end the answer like the model's own end tokens."""
    min_tokens: int = 0
    """Minimum tokens of the answer. Before this number, neither the model's end tokens nor a stop string can end the
    answer.
    """
    n_answer_stops: int = 0
    """The first `n_answer_stops` strings of `stop` are searched for only after the reasoning."""
    constraint: bytes = b""
    """The compiled constraint."""
    dry_sequence_breakers: list[str] | None = None
    """Texts across which the DRY sampler does not look for repetitions. None means the default texts."""


class _Command(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="op", gc=False):
    request: int


class _OfSession(_Command, frozen=True, omit_defaults=True, tag_field="op", gc=False):
    owner: int
    session: str


class Cancel(_Command, frozen=True, tag=2, gc=False): ...


class Reset(_OfSession, frozen=True, tag=3, gc=False): ...


class Close(_OfSession, frozen=True, tag=4, gc=False): ...


class Pause(_Command, frozen=True, tag=5, gc=False):
    paused: bool


class Fork(_OfSession, frozen=True, tag=6, gc=False):
    new_session: str
    at: int = ALL_TOKENS
    """Number of the session's first tokens that the fork copies. ALL_TOKENS stands for all tokens."""
    replace: bool = False
    """Whether to close an existing session with the new name."""


class Park(_OfSession, frozen=True, tag=7, gc=False): ...


class Pin(_OfSession, frozen=True, tag=8, gc=False):
    pinned: bool


class Rename(_OfSession, frozen=True, tag=9, gc=False):
    new_session: str


class Save(_OfSession, frozen=True, tag=10, gc=False):
    label: str


class Load(_OfSession, frozen=True, tag=11, gc=False):
    """Loads the session that was saved as `label`. If the session `session` exists, the loaded session replaces it, but
    only after the files have been read.
    """

    label: str


class Unsave(_Command, frozen=True, tag=12, gc=False):
    owner: int
    label: str


Question = Reset | Close | Fork | Park | Pin | Rename | Save | Load | Unsave
"""Commands to which the engine sends one Reply."""

Command = Generate | Cancel | Pause | Question


class Admitted(msgspec.Struct, array_like=True, frozen=True, tag=1, gc=False):
    request: int
    entry: int


class Started(msgspec.Struct, array_like=True, frozen=True, tag=2, gc=False):
    request: int
    reason: int
    n_prompt: int
    n_reused: int
    diverged_at: int


class Text(msgspec.Struct, array_like=True, frozen=True, tag=3, gc=False):
    request: int
    text: str
    n_tokens: int
    tokens: bytes = b""
    """int32: the tokens whose text ends in this event. This member and the next three members are empty unless the
    request asked for them.
    """
    ends: bytes = b""
    """uint32: for each token, the number of characters of `text` up to the token's end."""
    logprobs: bytes = b""
    """float32: the log probability of each token."""
    likeliest: bytes = b""
    """For each token, n_logprobs pairs of an int32 token and a float32 log probability."""


class Finished(msgspec.Struct, array_like=True, frozen=True, tag=4, gc=False):
    request: int
    outcome: int
    status: int
    n_prompt: int
    n_reused: int
    n_prefilled: int
    n_generated: int
    n_resident: int
    n_visible: int
    stop_index: int
    queue_us: int
    prefill_us: int
    decode_us: int
    seed: int
    n_drafted: int = 0
    n_accepted: int = 0
    n_grammar_drafted: int = 0
    n_grammar_accepted: int = 0
    n_model_drafted: int = 0
    n_model_accepted: int = 0


class Reply(msgspec.Struct, array_like=True, frozen=True, tag=5, gc=False):
    request: int
    status: int
    entry: int
    n_tokens: int
    os_error: int


class Forgotten(msgspec.Struct, array_like=True, frozen=True, tag=6, gc=False):
    """Reports that the engine has forgotten a session although no command asked for it."""

    owner: int
    session: str


class Consumed(msgspec.Struct, array_like=True, frozen=True, tag=7, gc=False):
    """Reports the progress of the prefill, if requested."""

    request: int
    n_tokens: int
    prefill_us: int


Event = Admitted | Started | Text | Finished | Reply | Forgotten | Consumed


def differences() -> list[str]:
    """Returns the differences between these types and the tables of libllm. Any difference means that the daemon and
    libllm were built from different sources.
    """
    found = []
    commands = {one.__name__.upper(): one for one in get_args(Command)}
    events = {one.__name__.upper(): one for one in get_args(Event)}
    for name in sorted(COMMANDS.keys() ^ commands.keys()) + sorted(EVENTS.keys() ^ events.keys()):
        found.append(f"{name}: only the daemon or only libllm knows it")
    for name in sorted(COMMANDS.keys() & commands.keys()):
        number, fields = COMMANDS[name]
        found += _differences_of(commands[name], number, {field.name: field for field in fields})
    for name in sorted(EVENTS.keys() & events.keys()):
        number, members = EVENTS[name]
        config = events[name].__struct_config__
        if (config.tag, events[name].__struct_fields__) != (number, members):
            found.append(f"{name}: libllm has the number {number} and the members {members}")
    return found


def _differences_of(command: type[msgspec.Struct], number: int, fields: dict[str, Field]) -> list[str]:
    ours = {field.name: field for field in msgspec.structs.fields(command)}
    name = command.__name__
    found = [] if command.__struct_config__.tag == number else [f"{name}: libllm has the number {number}"]
    different = sorted(ours.keys() ^ fields.keys())
    found += [f"{name}.{field}: only the daemon or only libllm knows it" for field in different]
    for field in sorted(ours.keys() & fields.keys()):
        if ours[field].required != fields[field].is_needed:
            found.append(f"{name}.{field}: only the daemon or only libllm requires it")
        elif isinstance(ours[field].default, int) and ours[field].default != fields[field].default:
            found.append(f"{name}.{field}: libllm has the default {fields[field].default}")
    return found
