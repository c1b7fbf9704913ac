"""The number of answers, and what is reported beside their text: reads the members that ask for it, for the pipeline
and for the writer."""

from __future__ import annotations

from typing import Any

from ...core import limits
from ...core.asked import Asked
from ...core.errors import ApiError, check_range
from ..probabilities import likely_of, logprobs_of
from .wire.request import GenerationRequest


def told_of(wanted: GenerationRequest, n_prompts: int, *, is_stream: bool) -> dict[str, Any]:
    """Fields of Asked, but for log probabilities. Raises ApiError naming the client's."""
    n_answers, n_tried = _several(wanted, n_prompts, is_stream)
    return {
        "n_answers": n_answers,
        "n_tried": n_tried,
        "returns_tokens": bool(wanted.return_tokens or wanted.return_token_ids),
        "returns_progress": is_stream and bool(wanted.return_progress),
        "returns_counts": is_stream and bool(wanted.timings_per_token),
        "includes_stop": bool(wanted.include_stop_str_in_output),
    }


def writing_of(wanted: GenerationRequest, asked: Asked, *, has_usage: bool, has_running_usage: bool) -> dict[str, Any]:
    """Fields of the writers."""
    n_prompts = 1 + len(asked.more_prompts)
    return {
        "n_answers": asked.n_answers * n_prompts,
        "n_prompts": n_prompts,
        "include_usage": has_usage,
        "has_running_usage": has_running_usage,
        "has_timings": bool(wanted.timings_per_token),
    }


# --- several answers -------------------------------------------------------------------------------------------------


def _several(wanted: GenerationRequest, n_prompts: int, is_stream: bool) -> tuple[int, int]:
    """Returns how many answers are returned to each prompt, and how many are generated for that; 0: no more."""
    n_answers = 1 if wanted.n is None else check_range("n", wanted.n, 1, limits.ANSWERS_MAX)
    n_tried = n_answers if wanted.best_of is None else check_range("best_of", wanted.best_of, 1, limits.ANSWERS_MAX)
    if n_tried < n_answers:
        raise ApiError("invalid_value", f"best_of: {n_tried} is less than n, which is {n_answers}.", "best_of")
    if n_tried > n_answers and is_stream:
        message = f"best_of: {n_tried} with n {n_answers} cannot be streamed: the best are known only at the end."
        raise ApiError("invalid_value", message, "best_of")
    if n_prompts * n_tried > limits.ANSWERS_MAX:
        param = "prompt" if n_tried == 1 else "best_of" if n_tried > n_answers else "n"
        message = f"{param}: {n_prompts} prompts with {n_tried} answers each; at most {limits.ANSWERS_MAX} are given."
        raise ApiError("invalid_value", message, param)
    return n_answers, n_tried if n_tried > n_answers else 0


# --- log probabilities -----------------------------------------------------------------------------------------------


def logprobs_of_chat(logprobs: bool | None, top_logprobs: int | None, n_probs: int | None) -> int | None:
    """Returns how many of the most likely tokens are reported with each token; None: no log probabilities."""
    return _either(logprobs_of(logprobs, top_logprobs), n_probs)


def logprobs_of_completion(logprobs: int | None, n_probs: int | None, *, echoes: bool) -> int | None:
    if logprobs is True:
        raise ApiError("invalid_type", "logprobs: expected a number of most likely tokens, got true.", "logprobs")
    asks = logprobs is not None and logprobs is not False
    found = _either(likely_of("logprobs", logprobs) if asks else None, n_probs)
    if found is not None and echoes:
        message = "echo with log probabilities: those of the prompt's tokens are not supported."
        raise ApiError("unsupported_parameter", message, "echo")
    return found


def _either(found: int | None, n_probs: int | None) -> int | None:
    """`n_probs` is llama.cpp's name."""
    likely = likely_of("n_probs", n_probs)
    return max(found or 0, likely) if likely else found
