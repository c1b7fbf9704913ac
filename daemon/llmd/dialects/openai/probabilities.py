"""Log probabilities as OpenAI's chat and text completions have them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...core.parts import LogProbabilities, TokenProbability
from ..probabilities import ChosenToken, chosen_tokens, text_of


class ChatLogprobs(msgspec.Struct, frozen=True):
    content: list[ChosenToken]
    refusal: None = None


class CompletionLogprobs(msgspec.Struct, frozen=True):
    """Lists with one member for each token."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
    """Includes the chosen token, which need not be one of the most likely; null: not requested."""
    text_offset: list[int]


def chat_logprobs(parts: Sequence[LogProbabilities]) -> ChatLogprobs:
    return ChatLogprobs(chosen_tokens(parts))


def completion_logprobs(parts: Sequence[LogProbabilities]) -> CompletionLogprobs:
    chosen = [one for part in parts for one in part.chosen]
    likely = [others for part in parts for others in part.likely]
    return CompletionLogprobs(
        tokens=[text_of(one) for one in chosen],
        token_logprobs=[one.log_probability for one in chosen],
        top_logprobs=[_by_text(*pair) for pair in zip(likely, chosen, strict=True)] if any(likely) else None,
        text_offset=[offset for part in parts for offset in part.offsets],
    )


def _by_text(likely: list[TokenProbability], chosen: TokenProbability) -> dict[str, float]:
    """Keeps the most likely of several tokens with one text."""
    found: dict[str, float] = {}
    for one in (*likely, chosen):
        found.setdefault(text_of(one), one.log_probability)
    return found
