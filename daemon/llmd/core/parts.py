"""What answers are made of, in no dialect's words: the pipeline makes parts, a dialect's writer turns them
into bytes. Types only.

Each part is of one answer of the request: `index`, from 0. Each answer ends with exactly one End, or all
of them with the first Failed.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from .errors import ApiError

EndReason = Literal["end", "stop", "length"]
"""Words of llm_outcome: the model ended it, a stop string did, or there was no more room."""


class TextPart(msgspec.Struct, frozen=True, gc=False):
    index: int
    text: str


class ReasoningPart(msgspec.Struct, frozen=True, gc=False):
    """What the model thought before it answered."""

    index: int
    text: str


class ToolCallPiece(msgspec.Struct, frozen=True, gc=False):
    """More of a call; its first piece has its name."""

    index: int
    call: int
    """Which call of the answer, from 0."""
    arguments: str
    id: str | None = None
    name: str | None = None


class TokenProbability(msgspec.Struct, frozen=True, gc=False):
    token: int
    text: bytes
    log_probability: float


class LogProbabilities(msgspec.Struct, frozen=True, gc=False):
    """Of the tokens of the part before it."""

    index: int
    chosen: list[TokenProbability]
    likely: list[list[TokenProbability]]
    """For each of them those that were likeliest in its place."""
    offsets: list[int] = []
    """Of each, in characters of the answer's text, as it was before anything was parsed."""


class TokenIds(msgspec.Struct, frozen=True, gc=False):
    """Of the part before it, or of several parts together."""

    index: int
    tokens: list[int]


class PromptTokens(msgspec.Struct, frozen=True, gc=False):
    """Its ids, before everything else."""

    index: int
    tokens: list[int]


class Progress(msgspec.Struct, frozen=True, gc=False):
    """Of the prompt, in tokens; before the first text."""

    index: int
    n_prompt: int
    n_cached: int
    n_processed: int
    """The cached ones included."""
    elapsed_ms: float


class UsedTokens(msgspec.Struct, frozen=True, gc=False):
    """In tokens."""

    n_prompt: int
    n_cached: int
    """Of the prompt, those that were resident."""
    n_generated: int
    n_reasoning: int = 0
    """Of the generated ones, those that were thought."""
    n_discarded: int = 0
    """Generated for answers that are not told, beside them."""


class SoFar(msgspec.Struct, frozen=True, gc=False):
    """What was used up to the end of the part before it."""

    index: int
    usage: UsedTokens
    n_prefilled: int
    prefill_ms: float
    decode_ms: float


class SessionReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happened to the session of this request. `id` is null for a request without one."""

    id: str | None
    reused_prompt_tokens: int
    prefilled_prompt_tokens: int
    session_reset_reason: str | None
    """Word of the resume decision; null when the request ended before it was taken."""
    queue_ms: float
    prefill_ms: float
    decode_ms: float
    diverged_at: int | None = None
    """Index of the first prompt token that differs from what was resident."""
    diverged_before: str | None = None
    diverged_after: str | None = None
    history: Literal["resident"] | None = None
    """resident: the past is the tokens that it was made of, however the template would write it now."""
    session_left_reason: Literal["queue_full"] | None = None
    """Why the request was answered without the session that prompt_cache_key or the like named."""


class End(msgspec.Struct, frozen=True):
    index: int
    reason: EndReason
    usage: UsedTokens
    session: SessionReport
    stop: str | None = None
    """The stop string that ended it."""
    cuts_call: bool = False
    """A call of it is not whole: it was cut, or the model broke its form. Nobody is to run it."""

    @property
    def is_cut(self) -> bool:
        """A call of it may not be whole."""
        return self.reason == "length" or self.cuts_call


class Failed(msgspec.Struct, frozen=True):
    index: int
    error: ApiError


Part = (
    TextPart
    | ReasoningPart
    | ToolCallPiece
    | LogProbabilities
    | TokenIds
    | PromptTokens
    | Progress
    | SoFar
    | End
    | Failed
)
