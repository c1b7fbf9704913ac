"""Turns requests of llama.cpp's API into generation requests. Pure. All raise ApiError naming the field."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.generation_request import Constraint, GenerationRequest, NearbyText, RawPrompt
from ..probabilities import likely_of
from ..reading import Headers, generation, one_constraint, schema_constraint, session_of
from .wire import InfillRequest, NativeCompletionRequest, NativeGeneration


def completion_of(wanted: NativeCompletionRequest, headers: Headers) -> GenerationRequest:
    return _generation_request(wanted, headers, RawPrompt(wanted.prompt))


def infill_of(wanted: InfillRequest, headers: Headers) -> GenerationRequest:
    prompt = RawPrompt(
        wanted.input_prefix,
        suffix=wanted.input_suffix,
        is_infill=True,
        nearby=tuple(NearbyText(one.filename or "", one.text) for one in wanted.input_extra or ()),
        begun=wanted.prompt,
        param="input_prefix",
        suffix_param="input_suffix",
    )
    return _generation_request(wanted, headers, prompt)


def _generation_request(wanted: NativeGeneration, headers: Headers, prompt: RawPrompt) -> GenerationRequest:
    return generation(
        wanted,
        session_of(headers, wanted.session_id),
        prompt,
        max_tokens=max(wanted.n_predict or 0, 0),
        constraint=one_constraint(_constraints(wanted)),
        is_mute=wanted.n_predict == 0,
        n_logprobs=likely_of("n_probs", wanted.n_probs) or None,
        returns_tokens=bool(wanted.return_tokens),
    )


def _constraints(wanted: NativeGeneration) -> Iterator[Constraint]:
    if wanted.json_schema:
        yield schema_constraint("json_schema", wanted.json_schema)
    if wanted.grammar:
        yield Constraint("grammar", wanted.grammar, "grammar")
