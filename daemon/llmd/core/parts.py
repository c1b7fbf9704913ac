"""The parts of answers, independent of dialects: the pipeline makes them, and a dialect's writer turns them into bytes.
Types only.

Each part belongs to one answer of the request: `index`, from 0. Each answer ends with exactly one End, or all answers
end with the first Failed.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from .errors import ApiError

EndReason = Literal["end", "stop", "length"]
"""Words of llm_outcome: the model ended the answer, a stop string did, or the limit on tokens was reached."""


class TextPart(msgspec.Struct, frozen=True, gc=False):
    index: int
    text: str


class ReasoningPart(msgspec.Struct, frozen=True, gc=False):
    """Reasoning of the model before its answer."""

    index: int
    text: str


class ToolCallPiece(msgspec.Struct, frozen=True, gc=False):
    """A piece of a tool call. The first piece has the id and the name."""

    index: int
    call: int
    """The number of the call in the answer, from 0."""
    arguments: str
    id: str | None = None
    name: str | None = None


class TokenProbability(msgspec.Struct, frozen=True, gc=False):
    token: int
    text: bytes
    log_probability: float


class LogProbabilities(msgspec.Struct, frozen=True, gc=False):
    """Log probabilities of the tokens of the previous part."""

    index: int
    chosen: list[TokenProbability]
    likely: list[list[TokenProbability]]
    """The most likely tokens at the position of each chosen token."""
    offsets: list[int] = []
    """The beginning of each chosen token, in characters of the answer's text before parsing."""


class TokenIds(msgspec.Struct, frozen=True, gc=False):
    """The token ids of the previous part, or of several previous parts."""

    index: int
    tokens: list[int]


class PromptTokens(msgspec.Struct, frozen=True, gc=False):
    """The ids of the prompt's tokens, before all other parts."""

    index: int
    tokens: list[int]


class Progress(msgspec.Struct, frozen=True, gc=False):
    """Progress of prefill in tokens, before the first text."""

    index: int
    n_prompt: int
    n_cached: int
    n_processed: int
    """Processed tokens, including the cached ones."""
    elapsed_ms: float


class UsedTokens(msgspec.Struct, frozen=True, gc=False):
    n_prompt: int
    n_cached: int
    """Prompt tokens that were resident."""
    n_generated: int
    n_reasoning: int = 0
    """Generated tokens that are reasoning."""
    n_discarded: int = 0
    """Tokens of answers that are not returned (best_of)."""


class RunningUsage(msgspec.Struct, frozen=True, gc=False):
    """Tokens used up to the end of the previous part."""

    index: int
    usage: UsedTokens
    n_prefilled: int
    prefill_ms: float
    decode_ms: float


class SessionReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The session of this request and how it was reused. `id` is null for a request without a session."""

    id: str | None
    reused_prompt_tokens: int
    prefilled_prompt_tokens: int
    session_reset_reason: str | None
    """Reason word of the resume decision; null if the request ended before that."""
    queue_ms: float
    prefill_ms: float
    decode_ms: float
    diverged_at: int | None = None
    """Index of the first prompt token that differs from the resident tokens."""
    diverged_before: str | None = None
    diverged_after: str | None = None
    history: Literal["resident"] | None = None
    """resident: past answers keep the tokens with which they were generated, whatever the template would render."""
    session_left_reason: Literal["queue_full"] | None = None
    """Why the request was answered without the session that prompt_cache_key or a similar hint named."""


class End(msgspec.Struct, frozen=True):
    index: int
    reason: EndReason
    usage: UsedTokens
    session: SessionReport
    stop: str | None = None
    """The stop string that ended the answer."""
    has_broken_call: bool = False
    """A call is incomplete or malformed. Clients must not run it."""

    @property
    def is_cut(self) -> bool:
        """Whether a call can be incomplete."""
        return self.reason == "length" or self.has_broken_call


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
    | RunningUsage
    | End
    | Failed
)
