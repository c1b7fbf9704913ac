"""Turns requests of llama.cpp's API into generation requests. All functions are pure, and raise an ApiError that names
the invalid field.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...core.generation_request import Constraint, GenerationRequest, NearbyText, RawPrompt
from ..probabilities import likely_of
from ..reading import Headers, generation, one_constraint, schema_constraint, session_of
from .wire import InfillRequest, NativeCompletionRequest, NativeGeneration


def completion_of(body: NativeCompletionRequest, headers: Headers) -> GenerationRequest:
    return _generation_request(body, headers, RawPrompt(body.prompt))


def infill_of(body: InfillRequest, headers: Headers) -> GenerationRequest:
    prompt = RawPrompt(
        body.input_prefix,
        suffix=body.input_suffix,
        is_infill=True,
        nearby=tuple(NearbyText(one.filename or "", one.text) for one in body.input_extra or ()),
        begun=body.prompt,
        param="input_prefix",
        suffix_param="input_suffix",
    )
    return _generation_request(body, headers, prompt)


def _generation_request(body: NativeGeneration, headers: Headers, prompt: RawPrompt) -> GenerationRequest:
    return generation(
        body,
        session_of(headers, body.session_id),
        prompt,
        max_tokens=max(body.n_predict or 0, 0),
        constraint=one_constraint(_constraints(body)),
        prefill_only=body.n_predict == 0,
        n_logprobs=likely_of("n_probs", body.n_probs) or None,
        returns_tokens=bool(body.return_tokens),
    )


def _constraints(body: NativeGeneration) -> Iterator[Constraint]:
    if body.json_schema:
        yield schema_constraint("json_schema", body.json_schema)
    if body.grammar:
        yield Constraint("grammar", body.grammar, "grammar")
