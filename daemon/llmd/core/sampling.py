"""What may be asked of the sampler, the answer's length and its stops: ranges, and what a model recommends. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from . import limits
from .asked import SamplingAsked
from .errors import ApiError, shown
from .room import utf8_bytes

SEED_BITS = 64


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
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
    "top_k": (-1, 1 << 30),
    "penalty_last_n": (-1, 1 << 24),
    "seed": (-(1 << 63), (1 << SEED_BITS) - 1),
}
"""By the names of SamplingAsked."""
LOGIT_BIAS_RANGE = (-100.0, 100.0)


def sampling_asked(fields: Iterable[tuple[str, str, float | None]]) -> SamplingAsked:
    """`fields`: what the client calls it, what we do, and the value; of several for one thing the first that has one.

    Raises ApiError naming the client's field, its value and its range.
    """
    found: dict[str, Any] = {}
    for param, name, value in fields:
        if value is None:
            continue
        low, high = RANGES[name]
        if not low <= value <= high:
            raise _out_of_range(param, value, low, high)
        found.setdefault(name, value)
    return SamplingAsked(**found)


def _out_of_range(name: str, value: float, low: float, high: float) -> ApiError:
    return ApiError("invalid_value", f"{name}: {shown(value)} is not between {low:g} and {high:g}.", name)


def max_tokens_of(name: str, value: int) -> int:
    """Longest answer; 0 means as long as the context allows."""
    if value == -1:
        return 0
    if value < 1:
        raise ApiError("invalid_value", f"{name}: {shown(value)} is less than 1; -1 means no limit.", name)
    return value


def stops_of(stop: str | list[str] | None, param: str = "stop") -> list[str]:
    stops = [stop] if isinstance(stop, str) else list(stop or ())
    if len(stops) > limits.STOP_STRINGS_MAX:
        most = limits.STOP_STRINGS_MAX
        raise ApiError("invalid_value", f"{param}: {len(stops)} texts; at most {most} are taken.", param)
    for text in stops:
        n_bytes = utf8_bytes(text)
        if n_bytes > limits.STOP_STRING_BYTES_MAX:
            most = limits.STOP_STRING_BYTES_MAX
            raise ApiError("invalid_value", f"{param}: a text of {n_bytes} bytes; at most {most} are taken.", param)
    return [text for text in stops if text]


def check_logit_bias(biases: Mapping[int, float], n_vocab: int) -> None:
    """Every dialect that has it calls it so."""
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
