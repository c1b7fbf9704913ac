"""Members of OpenAI's completions in addition to the text: log probabilities, token ids, usage so far, progress of
prefill, and timings. For streams and complete answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from ...core.parts import End, LogProbabilities, Part, Progress, PromptTokens, RunningUsage, TokenIds, TokenProbability
from ...http import framing
from ..probabilities import chosen_tokens, text_of
from ..timings import timings_at, timings_of
from .wire.answer import (
    ChatLogprobs,
    CompletionLogprobs,
    CompletionTokensDetails,
    PromptProgress,
    PromptTokensDetails,
    Usage,
)

DetailPart = LogProbabilities | TokenIds | PromptTokens | Progress | RunningUsage
DETAIL_PARTS = (LogProbabilities, TokenIds, PromptTokens, Progress, RunningUsage)
OPEN = b',"finish_reason":null}]}' + framing.CLOSES
"""The end of every event of an answer, except the answer's last event."""
_encode = msgspec.json.encode


def usage_of(ends: Sequence[End], n_each: int) -> Usage:
    """Returns the usage of all answers. Each prompt has `n_each` answers."""
    prompts = {end.index // n_each: end.usage for end in reversed(ends)}.values()
    n_prompt = sum(used.n_prompt for used in prompts)
    n_generated = sum(end.usage.n_generated + end.usage.n_discarded for end in ends)
    n_reasoning = sum(end.usage.n_reasoning for end in ends)
    return _usage(n_prompt, sum(used.n_cached for used in prompts), n_generated, n_reasoning)


def _usage(n_prompt: int, n_cached: int, n_generated: int, n_reasoning: int = 0) -> Usage:
    return Usage(
        prompt_tokens=n_prompt,
        completion_tokens=n_generated,
        total_tokens=n_prompt + n_generated,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=n_cached),
        completion_tokens_details=CompletionTokensDetails(n_reasoning) if n_reasoning else UNSET,
    )


class DetailsWriter:
    def __init__(self, *, is_chat: bool, has_timings: bool, has_running_usage: bool) -> None:
        self._is_chat = is_chat
        self._has_timings = has_timings
        self._has_running_usage = has_running_usage
        self._logprobs: Callable[[Sequence[LogProbabilities]], Any] = chat_logprobs if is_chat else completion_logprobs

    # --- complete answers --------------------------------------------------------------------------------------------

    def choice(self, parts: Sequence[Part]) -> dict[str, Any]:
        """Returns the additional members of one answer. `parts` are the parts of that answer."""
        details = [part for part in parts if isinstance(part, DETAIL_PARTS)]
        if not details:
            return {}
        found: dict[str, Any] = {}
        logprobs = [part for part in details if isinstance(part, LogProbabilities)]
        if logprobs:
            found["logprobs"] = self._logprobs(logprobs)
        prompt = next((part.tokens for part in details if isinstance(part, PromptTokens)), None)
        if prompt is not None:
            found["token_ids"] = [one for part in details if isinstance(part, TokenIds) for one in part.tokens]
            if not self._is_chat:
                found["prompt_token_ids"] = prompt
        return found

    def members(self, parts: Sequence[Part], ends: Sequence[End]) -> dict[str, Any]:
        found: dict[str, Any] = {"timings": timings_of(ends[0])} if self._has_timings else {}
        if self._is_chat:
            prompt = next((part.tokens for part in parts if isinstance(part, PromptTokens)), None)
            found |= {} if prompt is None else {"prompt_token_ids": prompt}
        return found

    # --- events ------------------------------------------------------------------------------------------------------

    def events(self, parts: Sequence[Part], write: Callable[[Part], bytes], no_text: Callable[[int], bytes]) -> bytes:
        """Returns the events of these parts. Details are reported in the event of the part before them. `write` makes
        the event of a part that is not a detail, and `no_text` makes an event without text for details that follow no
        such part.
        """
        found: list[bytes] = []
        chunk: _Chunk | None = None
        for part in parts:
            if isinstance(part, DETAIL_PARTS):
                if chunk is None or not chunk.is_of(part):
                    found += [chunk.event()] if chunk is not None else []
                    chunk = _Chunk(part.index, no_text(part.index))
                self._add(chunk, part)
            else:
                found += [chunk.event()] if chunk is not None else []
                chunk = _Chunk(part.index, write(part))
        return b"".join(found) + (chunk.event() if chunk is not None else b"")

    def _add(self, chunk: _Chunk, part: DetailPart) -> None:
        if isinstance(part, LogProbabilities):
            chunk.add_to_choice("logprobs", self._logprobs([part]))
        elif isinstance(part, TokenIds):
            chunk.add_to_choice("token_ids", part.tokens)
        elif isinstance(part, Progress):
            details = PromptProgress(part.n_prompt, part.n_cached, part.n_processed, part.elapsed_ms)
            chunk.add("prompt_progress", details)
        elif isinstance(part, RunningUsage):
            if self._has_running_usage:
                chunk.add("usage", _usage(part.usage.n_prompt, part.usage.n_cached, part.usage.n_generated))
            if self._has_timings:
                chunk.add("timings", timings_at(part))
        elif not self._is_chat:
            chunk.add_to_choice("prompt_token_ids", part.tokens)
        elif part.index == 0:
            chunk.add("prompt_token_ids", part.tokens)

    def finish(self, end: End) -> bytes:
        used = end.usage
        usage = _usage(used.n_prompt, used.n_cached, used.n_generated, used.n_reasoning)
        return b',"usage":' + _encode(usage) if self._has_running_usage else b""

    def ending(self, end: End) -> bytes:
        """Returns the members about the whole request, for the last event."""
        return b',"timings":' + _encode(timings_of(end)) if self._has_timings else b""


class _Chunk:
    """An event, with the members to add to the event's choice and to the event itself."""

    def __init__(self, index: int, event: bytes) -> None:
        self._index = index
        self._event = event
        self._choice = self._members = b""

    def is_of(self, part: DetailPart) -> bool:
        """Returns whether this event can report the part."""
        return (
            part.index == self._index and self._event.endswith(OPEN) and not isinstance(part, PromptTokens | Progress)
        )

    def add_to_choice(self, name: str, value: Any) -> None:
        self._choice += b',"%b":%b' % (name.encode(), _encode(value))

    def add(self, name: str, value: Any) -> None:
        self._members += b',"%b":%b' % (name.encode(), _encode(value))

    def event(self) -> bytes:
        if not self._choice and not self._members:
            return self._event
        details = self._event.removesuffix(OPEN), self._choice, self._members
        return b'%b%b,"finish_reason":null}]%b}' % details + framing.CLOSES


# --- log probabilities ------------------------------------------------------------------------------------------------


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
    """Maps texts of tokens to log probabilities. If several tokens have the same text, the most likely token counts."""
    found: dict[str, float] = {}
    for one in (*likely, chosen):
        found.setdefault(text_of(one), one.log_probability)
    return found
