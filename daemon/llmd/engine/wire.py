"""Messages between the event loop and the decode thread: MessagePack arrays, specified in include/llm.h ("serving").

Types only, no I/O. Field order is the wire format.
"""

from __future__ import annotations

import msgspec

ALL_TOKENS = 0xFFFFFFFF


class Sampling(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """How to pick tokens; the neutral value of each field switches its stage off."""

    temperature: float
    top_p: float = 1.0
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    top_k: int = 0
    penalty_last_n: int = 64
    seed: int | None = None


class Generate(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """Prefill ``prompt`` into ``session`` (reusing what can be proven) and decode until one of the ends."""

    request: int
    owner: int
    session: str
    prompt: bytes | memoryview
    """int32 little-endian token ids."""
    max_tokens: int
    """0: as many as the context holds."""
    sampling: Sampling
    logit_bias: bytes
    """Pairs of (int32 token, float32 bias), little-endian."""
    stop: list[str]
    flags: int
    boundaries: bytes | memoryview = b""
    """int32 little-endian token counts at which histories are likely to diverge, ascending."""
    parent: str = ""
    """If the session does not exist yet, it begins as a fork of this one."""
    n_head: int = 0
    """Tokens at its beginning that belong to no conversation in particular."""


class Cancel(msgspec.Struct, array_like=True, frozen=True, tag=2, gc=False):
    request: int


class Reset(msgspec.Struct, array_like=True, frozen=True, tag=3, gc=False):
    request: int
    owner: int
    session: str


class Close(msgspec.Struct, array_like=True, frozen=True, tag=4, gc=False):
    request: int
    owner: int
    session: str


class Pause(msgspec.Struct, array_like=True, frozen=True, tag=5, gc=False):
    request: int
    paused: bool


class Fork(msgspec.Struct, array_like=True, frozen=True, tag=6, gc=False):
    request: int
    owner: int
    session: str
    new_session: str
    at: int
    """Tokens of the session that the fork begins with, or ALL_TOKENS."""
    replace: bool
    """A session that has the new name already is closed for it."""


class Park(msgspec.Struct, array_like=True, frozen=True, tag=7, gc=False):
    request: int
    owner: int
    session: str


class Pin(msgspec.Struct, array_like=True, frozen=True, tag=8, gc=False):
    request: int
    owner: int
    session: str
    pinned: bool


class Rename(msgspec.Struct, array_like=True, frozen=True, tag=9, gc=False):
    request: int
    owner: int
    session: str
    new_session: str


class Save(msgspec.Struct, array_like=True, frozen=True, tag=10, gc=False):
    request: int
    owner: int
    session: str
    label: str


class Load(msgspec.Struct, array_like=True, frozen=True, tag=11, gc=False):
    request: int
    owner: int
    session: str
    label: str


class Unsave(msgspec.Struct, array_like=True, frozen=True, tag=12, gc=False):
    request: int
    owner: int
    label: str


Question = Reset | Close | Fork | Park | Pin | Rename | Save | Load | Unsave
"""Commands that get one reply."""

Command = Generate | Cancel | Pause | Question


class Admitted(msgspec.Struct, array_like=True, frozen=True, tag=1, gc=False):
    request: int
    place: int


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


class Reply(msgspec.Struct, array_like=True, frozen=True, tag=5, gc=False):
    request: int
    status: int
    place: int
    n_tokens: int


class Forgotten(msgspec.Struct, array_like=True, frozen=True, tag=6, gc=False):
    """A session was given up without anybody having asked for it."""

    owner: int
    session: str


Event = Admitted | Started | Text | Finished | Reply | Forgotten
