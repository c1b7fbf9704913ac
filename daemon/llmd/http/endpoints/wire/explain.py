"""Past turns of a session as they travel. Types only, no I/O."""

from __future__ import annotations

from typing import Literal

import msgspec


class Divergence(msgspec.Struct, frozen=True):
    """Where the prompt differs from what the session held: texts, and the tokens of each side, which may differ
    although the texts are equal."""

    at: int
    before: str
    """Text before that point."""
    resident: str | None
    """Text that the session held from there; null: not known for certain."""
    prompt: str
    resident_tokens: list[int] | None
    prompt_tokens: list[int]


class ExplainedTurn(msgspec.Struct, frozen=True):
    at_ms: int
    slot: int | None
    """The slot of its branch; null: it was refused."""
    reason: str | None
    """null: it ended before it began."""
    reason_text: str | None
    outcome: str
    prompt_tokens: int
    reused_tokens: int
    prefilled_tokens: int
    generated_tokens: int
    divergence: Divergence | None


class Explanation(msgspec.Struct, frozen=True):
    """The last turns of a session since the daemon started, the oldest first."""

    id: str
    owner: int
    turns: list[ExplainedTurn]
    object: Literal["session.explanation"] = "session.explanation"
