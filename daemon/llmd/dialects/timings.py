"""Makes the members `timings` and `prompt_progress` of llama.cpp's API: numbers of tokens, and times in milliseconds.
Other APIs have them, too.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType, structs

from ..core.parts import End, Progress, RunningUsage


class Timings(msgspec.Struct, frozen=True):
    """Timings in llama.cpp's form. If a request has several answers, the timings are those of the first answer."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float
    draft_n: int | UnsetType = UNSET
    """Draft tokens that the model has verified. This member is present if there were any."""
    draft_n_accepted: int | UnsetType = UNSET
    """Draft tokens that became part of the answer. This member is present if draft_n is present."""


class PromptProgress(msgspec.Struct, frozen=True):
    """The progress of prefill, in numbers of tokens, with llama.cpp's names."""

    total: int
    cache: int
    processed: int
    """Tokens processed so far, including cached tokens."""
    time_ms: float


def progress_at(now: Progress) -> PromptProgress:
    return PromptProgress(now.n_prompt, now.n_cached, now.n_processed, now.elapsed_ms)


def timings_of(end: End) -> Timings:
    report, usage = end.session, end.usage
    timings = _timings(
        usage.n_cached, report.prefilled_prompt_tokens, report.prefill_ms, usage.n_generated, report.decode_ms
    )
    if report.drafted_tokens == 0:
        return timings
    return structs.replace(timings, draft_n=report.drafted_tokens, draft_n_accepted=report.accepted_tokens)


def timings_at(now: RunningUsage) -> Timings:
    return _timings(now.usage.n_cached, now.n_prefilled, now.prefill_ms, now.usage.n_generated, now.decode_ms)


def _timings(n_cached: int, n_prompt: int, prompt_ms: float, n_predicted: int, predicted_ms: float) -> Timings:
    return Timings(
        cache_n=n_cached,
        prompt_n=n_prompt,
        prompt_ms=prompt_ms,
        prompt_per_token_ms=prompt_ms / n_prompt if n_prompt else 0.0,
        prompt_per_second=1000 * n_prompt / prompt_ms if prompt_ms else 0.0,
        predicted_n=n_predicted,
        predicted_ms=predicted_ms,
        predicted_per_token_ms=predicted_ms / n_predicted if n_predicted else 0.0,
        predicted_per_second=1000 * n_predicted / predicted_ms if predicted_ms else 0.0,
    )
