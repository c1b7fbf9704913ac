"""From a request's sampling fields to what the engine takes: ranges, aliases, defaults. Pure."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TypeVar

from ..dialects.openai.wire import GenerationRequest
from ..engine.wire import Sampling
from . import limits
from .errors import ApiError, shown
from .room import utf8_bytes

SEED_BITS = 64
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """What a request gets that asks for nothing: the model's own recommendation where it has one."""

    temperature: float = 0.8
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    top_k: int = 40
    penalty_last_n: int = 64


RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "repeat_penalty": (0.01, 2),
    "repetition_penalty": (0.01, 2),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
    "top_k": (-1, 1 << 30),
    "repeat_last_n": (-1, 1 << 24),
    "seed": (-(1 << 63), (1 << SEED_BITS) - 1),
}
LOGIT_BIAS_RANGE = (-100.0, 100.0)


def sampling_of(request: GenerationRequest, defaults: SamplingDefaults, n_ctx: int) -> Sampling:
    """Raises ApiError naming the field, its value and its range."""
    for name, (low, high) in RANGES.items():
        value = getattr(request, name)
        if value is not None and not low <= value <= high:
            raise _out_of_range(name, value, low, high)
    repeat = request.repeat_penalty if request.repeat_penalty is not None else request.repetition_penalty
    top_k = _either(request.top_k, defaults.top_k)
    last_n = _either(request.repeat_last_n, defaults.penalty_last_n)
    return Sampling(
        temperature=_either(request.temperature, defaults.temperature),
        top_p=_either(request.top_p, defaults.top_p),
        min_p=_either(request.min_p, defaults.min_p),
        repeat_penalty=_either(repeat, defaults.repeat_penalty),
        presence_penalty=_either(request.presence_penalty, defaults.presence_penalty),
        frequency_penalty=_either(request.frequency_penalty, defaults.frequency_penalty),
        top_k=max(top_k, 0),
        penalty_last_n=n_ctx if last_n < 0 else min(last_n, n_ctx),
        seed=_seed(request.seed),
    )


def _either(value: T | None, default: T) -> T:
    return default if value is None else value


def _out_of_range(name: str, value: float, low: float, high: float) -> ApiError:
    return ApiError("invalid_value", f"{name}: {shown(value)} is not between {low:g} and {high:g}.", name)


def _seed(seed: int | None) -> int | None:
    """All ones asks the engine for a random seed; -1 is that value, as elsewhere."""
    if seed is None:
        return None
    folded = seed & ((1 << SEED_BITS) - 1)
    return None if folded == (1 << SEED_BITS) - 1 else folded


def max_tokens_of(name: str, value: int | None, n_ctx: int) -> int:
    """Longest answer; 0 means as long as the context allows."""
    if value is None or value == -1:
        return 0
    if value < 1:
        raise ApiError("invalid_value", f"{name}: {shown(value)} is less than 1; -1 means no limit.", name)
    return min(value, n_ctx)


def stops_of(stop: str | list[str] | None) -> list[str]:
    stops = [stop] if isinstance(stop, str) else list(stop or ())
    if len(stops) > limits.STOP_STRINGS_MAX:
        raise ApiError(
            "invalid_value", f"stop: {len(stops)} texts; at most {limits.STOP_STRINGS_MAX} are taken.", "stop"
        )
    for text in stops:
        n_bytes = utf8_bytes(text)
        if n_bytes > limits.STOP_STRING_BYTES_MAX:
            maximum = limits.STOP_STRING_BYTES_MAX
            raise ApiError("invalid_value", f"stop: a text of {n_bytes} bytes; at most {maximum} are taken.", "stop")
    return [text for text in stops if text]


def logit_bias_of(biases: dict[int, float] | None, n_vocab: int) -> bytes:
    """Pairs of int32 token and float32 bias."""
    if not biases:
        return b""
    if len(biases) > limits.LOGIT_BIASES_MAX:
        maximum = limits.LOGIT_BIASES_MAX
        raise ApiError("invalid_value", f"logit_bias: {len(biases)} tokens; at most {maximum} are taken.", "logit_bias")
    low, high = LOGIT_BIAS_RANGE
    for token, bias in biases.items():
        param = f"logit_bias.{token}"
        if not 0 <= token < n_vocab:
            raise ApiError("invalid_value", f"{param}: the vocabulary has tokens 0 to {n_vocab - 1}.", param)
        if math.isnan(bias) or not low <= bias <= high:
            raise _out_of_range(param, bias, low, high)
    return b"".join(struct.pack("<if", token, bias) for token, bias in biases.items())
