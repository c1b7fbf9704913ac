"""From llama.cpp's requests to what is asked. Pure."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import msgspec

from ...core.asked import Asked, Constraint, NearbyText, RawPrompt
from ...core.errors import ApiError
from ...core.sampling import breakers_of, sampler_order, sampling_asked, stops_of
from ...core.session_key import parent_of, resolve
from .wire import InfillRequest, NativeCompletionRequest, NativeGeneration

Headers = Collection[tuple[str, str]]

# What llama.cpp calls it, and what we do.
SAMPLING = (
    ("temperature", "temperature"),
    ("top_p", "top_p"),
    ("min_p", "min_p"),
    ("top_k", "top_k"),
    ("repeat_penalty", "repeat_penalty"),
    ("repeat_last_n", "penalty_last_n"),
    ("presence_penalty", "presence_penalty"),
    ("frequency_penalty", "frequency_penalty"),
    ("seed", "seed"),
    ("typical_p", "typical_p"),
    ("top_n_sigma", "top_n_sigma"),
    ("dynatemp_range", "dynatemp_range"),
    ("dynatemp_exponent", "dynatemp_exponent"),
    ("xtc_probability", "xtc_probability"),
    ("xtc_threshold", "xtc_threshold"),
    ("dry_multiplier", "dry_multiplier"),
    ("dry_base", "dry_base"),
    ("dry_allowed_length", "dry_allowed_length"),
    ("dry_penalty_last_n", "dry_penalty_last_n"),
    ("mirostat", "mirostat"),
    ("mirostat_tau", "mirostat_tau"),
    ("mirostat_eta", "mirostat_eta"),
    ("min_keep", "min_keep"),
)
_LEFT_OUT = "infill"
"""Of the samplers: it joins candidates that begin alike, which is not there."""


def completion_of(wanted: NativeCompletionRequest, headers: Headers) -> Asked:
    """Raises ApiError naming the field."""
    return _asked(wanted, headers)(prompt=RawPrompt(wanted.prompt))


def infill_of(wanted: InfillRequest, headers: Headers) -> Asked:
    """Raises ApiError naming the field."""
    prompt = RawPrompt(
        wanted.input_prefix,
        suffix=wanted.input_suffix,
        is_infill=True,
        nearby=tuple(NearbyText(one.filename or "", one.text) for one in wanted.input_extra or ()),
        begun=wanted.prompt,
        param="input_prefix",
        suffix_param="input_suffix",
    )
    return _asked(wanted, headers)(prompt=prompt)


def is_mute(wanted: NativeGeneration) -> bool:
    """The prompt is to be read, for the sake of the next one; nothing is to be said."""
    return wanted.n_predict == 0


def _asked(wanted: NativeGeneration, headers: Headers) -> partial[Asked]:
    """All but the prompt."""
    key = resolve(headers, wanted.session_id)
    biases = wanted.logit_bias or {}
    numbers = [(param, name, getattr(wanted, param)) for param, name in SAMPLING]
    return partial(
        Asked,
        key=key,
        parent=parent_of(headers, key),
        is_stream=bool(wanted.stream),
        max_tokens=1 if is_mute(wanted) else max(wanted.n_predict or 0, 0),
        sampling=sampling_asked([*numbers, ("samplers", "samplers", _order(wanted.samplers))]),
        dry_sequence_breakers=breakers_of("dry_sequence_breakers", wanted.dry_sequence_breakers),
        logit_bias=biases if isinstance(biases, dict) else dict(biases),
        stop=stops_of(wanted.stop),
        constraint=_constraint(wanted),
        ignore_end=bool(wanted.ignore_eos),
        is_cold=wanted.cache_prompt is False,
    )


def _constraint(wanted: NativeGeneration) -> Constraint | None:
    if wanted.grammar and wanted.json_schema:
        raise ApiError("invalid_value", "grammar: json_schema is there, too; an answer has one form.", "grammar")
    if wanted.grammar:
        return Constraint("grammar", wanted.grammar, "grammar")
    if wanted.json_schema:
        return Constraint("json_schema", msgspec.json.encode(wanted.json_schema).decode(), "json_schema")
    return None


def _order(samplers: list[str] | str | None) -> int | None:
    if isinstance(samplers, list):
        samplers = [name for name in samplers if name != _LEFT_OUT]
    return sampler_order("samplers", samplers)
