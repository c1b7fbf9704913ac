"""Makes the engine's command for a generation request and its prompt. All functions are pure."""

from __future__ import annotations

import struct
from dataclasses import fields, replace
from typing import Any, TypeVar

from msgspec import structs

from ..core import limits
from ..core.generation_request import GenerationRequest
from ..core.sampling import check_logit_bias, check_stop_tokens
from ..core.sampling_table import SEED_BITS, RequestedSampling, SamplingDefaults
from ..core.session_key import SCRATCH
from ..engine.generation import Work
from ..engine.native import GenerateFlag
from ..engine.text import Prompt
from ..engine.wire import Generate, Sampling
from .services import Services

_DEFAULTED = tuple(field.name for field in fields(SamplingDefaults))
_SEEDS = 1 << SEED_BITS
_RANDOM = _SEEDS - 1
"""The value of `seed` that stands for a random seed. In other servers, -1 means a random seed. In llmd, -1 means the
same, because -1 modulo _SEEDS is this number.
"""
T = TypeVar("T")


def check(services: Services, request: GenerationRequest) -> None:
    """Checks the parameters that contain token ids. Called before the prompt is rendered, because rendering is
    expensive. Raises ApiError.
    """
    check_logit_bias(request.logit_bias, services.engine.info.n_vocab)
    check_stop_tokens(request.stop_tokens, services.engine.info.n_vocab)


def work_of(services: Services, request: GenerationRequest, owner: int, prompt: Prompt) -> Work:
    info = services.engine.info
    command = Generate(
        request=0,
        owner=owner,
        session=request.key.id,
        prompt=prompt.tokens,
        max_tokens=_length(request, info.n_ctx),
        sampling=sampling_of(request.sampling, info.sampling, info.n_ctx),
        logit_bias=b"".join(struct.pack("<if", token, bias) for token, bias in request.logit_bias.items()),
        stop=[*request.stop, *prompt.stops],
        flags=_flags(services, request, prompt),
        boundaries=prompt.boundaries,
        parent=request.parent,
        n_head=prompt.n_head,
        stop_tokens=struct.pack(f"<{len(request.stop_tokens)}i", *request.stop_tokens),
        min_tokens=min(request.min_tokens, info.n_ctx),
        n_answer_stops=len(request.stop) if request.has_answer_stops else 0,
        constraint=prompt.constraint,
        dry_sequence_breakers=request.dry_sequence_breakers,
        n_logprobs=_n_logprobs(request),
    )
    n_stops_returned = len(request.stop) if request.includes_stop else 0
    param = request.prompt.param
    return Work(command=command, key=request.key, prompt=prompt, prompt_param=param, n_stops_returned=n_stops_returned)


def in_scratch(work: Work, **changes: Any) -> Work:
    """Returns the work for the same request, but without its session. `changes` are new values of further fields of the
    command.
    """
    return replace(work, key=SCRATCH, command=structs.replace(work.command, session="", parent="", **changes))


def without_session(services: Services, work: Work) -> Work:
    flags = work.command.flags
    return in_scratch(work, flags=flags if services.scratch_reuse else flags | GenerateFlag.COLD)


def answers_each(request: GenerationRequest) -> int:
    """Returns the number of answers to generate for each prompt, including those that best_of drops."""
    return max(request.n_answers, request.n_tried)


def _length(request: GenerationRequest, n_ctx: int) -> int:
    """Returns the maximum tokens of the answer, or 0 if only the context limits the answer. For an answer with log
    probabilities that is not streamed, LOG_PROBABILITIES_MAX also limits the length. All its log probabilities are held
    in memory until the end.
    """
    if request.prefill_only:
        return 1
    if request.n_logprobs is None or request.is_stream:
        return min(request.max_tokens, n_ctx)
    n_each = (request.n_logprobs + 1) * answers_each(request) * (1 + len(request.more_prompts))
    most = min(limits.LOG_PROBABILITIES_MAX // n_each, n_ctx)
    return min(request.max_tokens or most, most)


def _n_logprobs(request: GenerationRequest) -> int:
    if request.n_logprobs is not None:
        return request.n_logprobs
    return 0 if request.n_tried else -1


def sampling_of(parameters: RequestedSampling, defaults: SamplingDefaults, n_ctx: int) -> Sampling:
    values = {name: _either(getattr(parameters, name), getattr(defaults, name)) for name in _DEFAULTED}
    for name in ("penalty_last_n", "dry_penalty_last_n"):
        values[name] = n_ctx if values[name] < 0 else min(values[name], n_ctx)
    values["top_k"] = max(values["top_k"], 0)  # a negative number means 0 (off), as in other servers
    return Sampling(**values, seed=seed_of(parameters.seed, 0))


def seed_of(seed: int | None, index: int) -> int | None:
    """Returns the seed of the answer with this index, or None for a random seed. Each answer gets a different seed,
    because answers with the same seed would be equal.
    """
    if seed is None or seed % _SEEDS == _RANDOM:
        return None
    return (seed + index) % _RANDOM if index else seed % _SEEDS


def _either(value: T | None, default: T) -> T:
    return default if value is None else value


def _flags(services: Services, request: GenerationRequest, prompt: Prompt) -> GenerateFlag:
    flags = GenerateFlag(0)
    if request.ignore_end:
        flags |= GenerateFlag.IGNORE_END
    if request.is_cold or (request.key.is_scratch and not services.scratch_reuse):
        flags |= GenerateFlag.COLD
    if request.returns_tokens or prompt.syntax:  # a syntax can have reasoning, whose tokens are counted
        flags |= GenerateFlag.RETURN_TOKENS
    if request.returns_progress:
        flags |= GenerateFlag.RETURN_CONSUMED
    if not request.has_drafts:
        flags |= GenerateFlag.NO_DRAFTS
    return flags
