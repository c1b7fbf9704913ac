"""From what is asked to work for the engine: all but the prompt. Pure."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from msgspec import structs

from ..core import limits
from ..core.asked import Asked
from ..core.sampling import check_logit_bias, check_stop_tokens
from ..core.sampling_table import SEED_BITS, SamplingAsked, SamplingDefaults
from ..core.session_key import SCRATCH
from ..engine.generation import Work
from ..engine.native import GenerateFlag
from ..engine.text import Prompt
from ..engine.wire import Generate, Sampling
from .served import Served

_DEFAULTED = tuple(field.name for field in fields(SamplingDefaults))
_SEEDS = 1 << SEED_BITS
_RANDOM = _SEEDS - 1
"""All ones asks the engine for a random seed; -1 is that value, as elsewhere."""
T = TypeVar("T")


def command_of(served: Served, asked: Asked, owner: int) -> Generate:
    """Makes the command except its prompt. Rendering is expensive, so all other checks come first. Raises ApiError."""
    info = served.engine.info
    check_logit_bias(asked.logit_bias, info.n_vocab)
    check_stop_tokens(asked.stop_tokens, info.n_vocab)
    return Generate(
        request=0,
        owner=owner,
        session=asked.key.id,
        prompt=b"",
        max_tokens=_length(asked, info.n_ctx),
        sampling=sampling_of(asked.sampling, info.sampling, info.n_ctx),
        logit_bias=_biases(asked.logit_bias),
        flags=_flags(served, asked),
        parent=asked.parent,
        stop_tokens=struct.pack(f"<{len(asked.stop_tokens)}i", *asked.stop_tokens),
        min_tokens=min(asked.min_tokens, info.n_ctx),
        n_answer_stops=len(asked.stop) if asked.has_answer_stops else 0,
        dry_sequence_breakers=asked.dry_sequence_breakers,
        n_logprobs=_n_logprobs(asked),
    )


def work_of(command: Generate, asked: Asked, prompt: Prompt) -> Work:
    flags = command.flags | (
        GenerateFlag.RETURN_TOKENS if prompt.syntax else 0
    )  # the tokens of its reasoning are counted
    whole = structs.replace(
        command,
        prompt=prompt.tokens,
        boundaries=prompt.boundaries,
        n_head=prompt.n_head,
        constraint=prompt.constraint,
        stop=[*asked.stop, *prompt.stops],
        flags=flags,
    )
    n_stops_told = len(asked.stop) if asked.includes_stop else 0
    return Work(command=whole, key=asked.key, prompt=prompt, prompt_param=asked.prompt.param, n_stops_told=n_stops_told)


def in_scratch(work: Work, **changes: Any) -> Work:
    """Without a session. `changes`: of the command."""
    return replace(work, key=SCRATCH, command=structs.replace(work.command, session="", parent="", **changes))


def without_session(served: Served, work: Work) -> Work:
    flags = work.command.flags
    return in_scratch(work, flags=flags if served.scratch_reuse else flags | GenerateFlag.COLD)


def answers_each(asked: Asked) -> int:
    """How many are generated for each prompt."""
    return max(asked.n_answers, asked.n_tried)


def _length(asked: Asked, n_ctx: int) -> int:
    """Returns the longest answer. Log probabilities of answers that are not streamed are held until the end."""
    if asked.is_mute:
        return 1
    if asked.n_logprobs is None or asked.is_stream:
        return min(asked.max_tokens, n_ctx)
    n_each = (asked.n_logprobs + 1) * answers_each(asked) * (1 + len(asked.more_prompts))
    most = min(limits.LOG_PROBABILITIES_MAX // n_each, n_ctx)
    return min(asked.max_tokens or most, most)


def _n_logprobs(asked: Asked) -> int:
    if asked.n_logprobs is not None:
        return asked.n_logprobs
    return 0 if asked.n_tried else -1


def sampling_of(asked: SamplingAsked, defaults: SamplingDefaults, n_ctx: int) -> Sampling:
    wanted = {name: _either(getattr(asked, name), getattr(defaults, name)) for name in _DEFAULTED}
    for name in ("penalty_last_n", "dry_penalty_last_n"):
        wanted[name] = n_ctx if wanted[name] < 0 else min(wanted[name], n_ctx)
    wanted["top_k"] = max(wanted["top_k"], 0)  # as others count
    return Sampling(**wanted, seed=seed_of(asked.seed, 0))


def seed_of(seed: int | None, index: int) -> int | None:
    """Returns the seed of one of several answers: with one seed all would be the same."""
    if seed is None or seed % _SEEDS == _RANDOM:
        return None
    return (seed + index) % _RANDOM if index else seed % _SEEDS


def _either(value: T | None, default: T) -> T:
    return default if value is None else value


def _flags(served: Served, asked: Asked) -> GenerateFlag:
    flags = GenerateFlag(0)
    if asked.ignore_end:
        flags |= GenerateFlag.IGNORE_END
    if asked.is_cold or (asked.key.is_scratch and not served.scratch_reuse):
        flags |= GenerateFlag.COLD
    if asked.returns_tokens:
        flags |= GenerateFlag.RETURN_TOKENS
    if asked.returns_progress:
        flags |= GenerateFlag.RETURN_CONSUMED
    return flags


def _biases(biases: Mapping[int, float]) -> bytes:
    """Pairs of int32 token and float32 bias."""
    return b"".join(struct.pack("<if", token, bias) for token, bias in biases.items())
