"""Makes the members of OpenAI's completions that a request can ask for in addition to the text. These are log
probabilities, token ids, usage so far, progress of prefill, and timings. The members are the same in events and in
complete answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET

from ...core.parts import End, GeneratedToken, Part, Progress, PromptTokens, TokenProbability, UsedTokens, details_of
from ..probabilities import chosen_tokens, text_of
from ..timings import progress_at, timings_at, timings_of
from .wire.answer import (
    ChatLogprobs,
    CompletionLogprobs,
    CompletionTokensDetails,
    PromptTokensDetails,
    Usage,
)


def usage_of(ends: Sequence[End], n_each: int) -> Usage:
    """Returns the usage of all answers. `n_each` is the number of answers to each prompt."""
    prompts = {end.index // n_each: end.usage for end in reversed(ends)}.values()
    n_prompt, n_cached = sum(used.n_prompt for used in prompts), sum(used.n_cached for used in prompts)
    n_generated = sum(end.usage.n_generated + end.usage.n_discarded for end in ends)
    return _usage(UsedTokens(n_prompt, n_cached, n_generated, sum(end.usage.n_reasoning for end in ends)))


def _usage(used: UsedTokens) -> Usage:
    return Usage(
        prompt_tokens=used.n_prompt,
        completion_tokens=used.n_generated,
        total_tokens=used.n_prompt + used.n_generated,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=used.n_cached),
        completion_tokens_details=CompletionTokensDetails(used.n_reasoning) if used.n_reasoning else UNSET,
    )


class DetailsWriter:
    def __init__(self, *, is_chat: bool, has_timings: bool, has_running_usage: bool) -> None:
        self._is_chat = is_chat
        self._has_timings = has_timings
        self._has_running_usage = has_running_usage
        self._logprobs: Callable[[Sequence[GeneratedToken]], Any] = chat_logprobs if is_chat else completion_logprobs

    def of_choice(self, parts: Sequence[Part]) -> dict[str, Any]:
        """Returns the additional members of a choice that is made from these parts of one answer."""
        details, found = details_of(parts), dict[str, Any]()
        if details.log_probabilities:
            found["logprobs"] = self._logprobs(details.log_probabilities)
        prompt = next((part.tokens for part in parts if isinstance(part, PromptTokens)), None)
        # If token ids are requested, an answer that is not streamed has the list of token ids even if the list is
        # empty.
        if details.tokens or (prompt is not None and isinstance(parts[-1], End)):
            found["token_ids"] = details.tokens
        if prompt is not None and not self._is_chat:
            found["prompt_token_ids"] = prompt
        return found

    def of_event(self, part: Part) -> dict[str, Any]:
        """Returns the additional members of the event for this part."""
        if isinstance(part, Progress):
            return {"prompt_progress": progress_at(part)}
        if isinstance(part, PromptTokens):
            return {"prompt_token_ids": part.tokens} if self._is_chat and part.index == 0 else {}
        now, found = details_of([part]).usage, dict[str, Any]()
        if now is not None and self._has_running_usage:
            found["usage"] = _usage(now.usage)
        if now is not None and self._has_timings:
            found["timings"] = timings_at(now)
        return found

    def of_end(self, end: End) -> dict[str, Any]:
        """Returns the additional members of the last event of an answer."""
        return {"usage": _usage(end.usage)} if self._has_running_usage else {}

    def of_request(self, end: End) -> dict[str, Any]:
        """Returns the additional members about the whole request. `end` is the end of the request's first answer."""
        return {"timings": timings_of(end)} if self._has_timings else {}


# --- log probabilities -----------------------------------------------------------------------------------------------


def chat_logprobs(tokens: Sequence[GeneratedToken]) -> ChatLogprobs:
    return ChatLogprobs(chosen_tokens(tokens))


def completion_logprobs(tokens: Sequence[GeneratedToken]) -> CompletionLogprobs:
    return CompletionLogprobs(
        tokens=[text_of(one) for one in tokens],
        token_logprobs=[one.log_probability for one in tokens],
        top_logprobs=[_by_text([*one.likely, one]) for one in tokens] if any(one.likely for one in tokens) else None,
        text_offset=[one.offset for one in tokens],
    )


def _by_text(tokens: Sequence[TokenProbability]) -> dict[str, float]:
    """Maps the texts of tokens to their log probabilities. If several tokens have the same text, the most likely one
    counts.
    """
    found: dict[str, float] = {}
    for one in tokens:
        found.setdefault(text_of(one), one.log_probability)
    return found
