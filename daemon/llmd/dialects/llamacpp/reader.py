"""From llama.cpp's requests to what is asked. Pure."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import msgspec

from ...core.asked import Asked, Constraint, NearbyText, RawPrompt
from ...core.errors import ApiError
from ...core.sampling import breakers_of, stops_of
from ...core.session_key import parent_of, resolve
from ..probabilities import likely_of
from ..sampling import sampling_of
from .wire import InfillRequest, NativeCompletionRequest, NativeGeneration

Headers = Collection[tuple[str, str]]


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


def _asked(wanted: NativeGeneration, headers: Headers) -> partial[Asked]:
    """All but the prompt."""
    key = resolve(headers, wanted.session_id)
    biases = wanted.logit_bias or {}
    return partial(
        Asked,
        key=key,
        parent=parent_of(headers, key),
        is_stream=bool(wanted.stream),
        max_tokens=max(wanted.n_predict or 0, 0),
        sampling=sampling_of(wanted),
        dry_sequence_breakers=breakers_of("dry_sequence_breakers", wanted.dry_sequence_breakers),
        logit_bias=biases if isinstance(biases, dict) else dict(biases),
        stop=stops_of(wanted.stop),
        constraint=_constraint(wanted),
        ignore_end=bool(wanted.ignore_eos),
        is_cold=wanted.cache_prompt is False,
        is_mute=wanted.n_predict == 0,
        n_logprobs=likely_of("n_probs", wanted.n_probs) or None,
        returns_tokens=bool(wanted.return_tokens),
    )


def _constraint(wanted: NativeGeneration) -> Constraint | None:
    if wanted.grammar and wanted.json_schema:
        raise ApiError("invalid_value", "grammar: json_schema is there, too; an answer has one form.", "grammar")
    if wanted.grammar:
        return Constraint("grammar", wanted.grammar, "grammar")
    if wanted.json_schema:
        return Constraint("json_schema", msgspec.json.encode(wanted.json_schema).decode(), "json_schema")
    return None
