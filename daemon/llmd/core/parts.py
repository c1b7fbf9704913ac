"""The parts of answers, in a form that is the same for all APIs. The pipeline makes the parts, and the writer of an API
turns them into bytes.

`index` is the number of the answer to which a part belongs, from 0. Each answer ends with exactly one End. Exception:
if an answer fails, the first Failed ends all answers of the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from .errors import ApiError

EndReason = Literal["end", "stop", "length"]
"""Words of llm_outcome. `end`: the model ended the answer. `stop`: a stop string or stop token ended the answer.
`length`: the answer reached its limit on tokens.
"""


class TokenProbability(msgspec.Struct, frozen=True, gc=False):
    token: int
    text: bytes
    log_probability: float


class GeneratedToken(TokenProbability, frozen=True, gc=False):
    likely: list[TokenProbability]
    """The most likely tokens at this token's position."""
    offset: int = 0
    """The position in characters at which the token's text begins in the answer's unparsed text."""


class UsedTokens(msgspec.Struct, frozen=True, gc=False):
    n_prompt: int
    n_cached: int
    """Prompt tokens whose state was reused."""
    n_generated: int
    n_reasoning: int = 0
    """Generated tokens that are reasoning."""
    n_discarded: int = 0
    """Generated tokens of answers that are not returned (best_of)."""


class RunningUsage(msgspec.Struct, frozen=True, gc=False):
    """The numbers of tokens that the request has used so far, and the times that it has taken so far."""

    usage: UsedTokens
    n_prefilled: int
    prefill_ms: float
    decode_ms: float


class Details(msgspec.Struct, frozen=True, gc=False):
    """Details of the tokens that were generated since the answer's previous Details. Only the requested members are
    set.
    """

    log_probabilities: list[GeneratedToken] = []
    tokens: list[int] = []
    usage: RunningUsage | None = None


class TextPart(msgspec.Struct, frozen=True, gc=False):
    index: int
    text: str
    """The text of the tokens in `details`. It is empty if this text is sent later, or is not part of the answer."""
    details: Details | None = None


class ReasoningPart(msgspec.Struct, frozen=True, gc=False):
    """Reasoning of the model before its answer."""

    index: int
    text: str
    details: Details | None = None


class ToolCallPiece(msgspec.Struct, frozen=True, gc=False):
    """A piece of a tool call. Only the first piece of a call has the id and the name."""

    index: int
    call: int
    """The number of the call in the answer, from 0."""
    arguments: str
    id: str | None = None
    name: str | None = None
    details: Details | None = None


class PromptTokens(msgspec.Struct, frozen=True, gc=False):
    """The token ids of the prompt. This part comes before all other parts."""

    index: int
    tokens: list[int]


class Progress(msgspec.Struct, frozen=True, gc=False):
    """A part of an answer's stream: the progress of prefill, in tokens. It comes before the first text."""

    index: int
    n_prompt: int
    n_cached: int
    n_processed: int
    """Processed tokens, including cached tokens."""
    elapsed_ms: float


class SessionReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The session of the request, and how its state was reused. `id` is null for a request without a session."""

    id: str | None
    reused_prompt_tokens: int
    prefilled_prompt_tokens: int
    session_reset_reason: str | None
    """Reason word of the resume decision. null if the request ended before that decision."""
    queue_ms: float
    prefill_ms: float
    decode_ms: float
    diverged_at: int | None = None
    """Index of the first prompt token that differs from the session's tokens."""
    diverged_before: str | None = None
    """Text of the prompt before this token."""
    diverged_after: str | None = None
    """Text of the prompt from this token on."""
    history: Literal["resident"] | None = None
    """`resident` if past answers in the prompt have their generated tokens, whatever the template would render.
    Otherwise null.
    """
    drafted_tokens: int = 0
    """Draft tokens that the model has verified."""
    accepted_tokens: int = 0
    """Draft tokens that became part of the answer."""
    grammar_drafted_tokens: int = 0
    """Verified draft tokens that came from the grammar of the answer."""
    grammar_accepted_tokens: int = 0
    """Accepted draft tokens that came from the grammar."""
    model_drafted_tokens: int = 0
    """Verified draft tokens that came from the draft model (--draft-model). The tokens of neither source came from the
    text of the session.
    """
    model_accepted_tokens: int = 0
    """Accepted draft tokens that came from the draft model."""
    session_left_reason: Literal["queue_full"] | None = None
    """Why the request was answered without the session that prompt_cache_key or a similar member named. null if the
    request was answered in its session.
    """


class End(msgspec.Struct, frozen=True):
    index: int
    reason: EndReason
    usage: UsedTokens
    session: SessionReport
    stop: str | None = None
    """The stop string that ended the answer."""
    has_broken_call: bool = False
    """Whether a tool call of the answer is incomplete or malformed. Clients must not run such a call."""

    @property
    def is_cut(self) -> bool:
        """Whether the answer can contain an incomplete tool call."""
        return self.reason == "length" or self.has_broken_call


class Failed(msgspec.Struct, frozen=True):
    index: int
    error: ApiError


ContentPart = TextPart | ReasoningPart | ToolCallPiece
Part = ContentPart | PromptTokens | Progress | End | Failed


def details_of(parts: Sequence[Part]) -> Details:
    """Joins the details of these parts, which belong to one answer."""
    found = [part.details for part in parts if isinstance(part, ContentPart) and part.details is not None]
    log_probabilities = [token for details in found for token in details.log_probabilities]
    tokens = [token for details in found for token in details.tokens]
    return Details(log_probabilities, tokens, found[-1].usage if found else None)
