"""From a validated request to the work for the engine."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial

from aiohttp import web

from ..core.sampling import logit_bias_of, sampling_of, stops_of
from ..core.session_key import SessionKey, parent_of, resolve
from ..dialects.openai.wire import GenerationRequest
from ..engine.generation import Work
from ..engine.native import GenerateFlag
from .answer import Delivery, Kind
from .context import FACTS, STATE


def admitted(request: web.Request) -> AbstractContextManager[None]:
    """Around a whole generation request: without room its body is not even read."""
    return request.app[STATE].admission.entered(request[FACTS].caller.owner)


def key_of(request: web.Request, wanted: GenerationRequest) -> SessionKey:
    metadata = wanted.metadata if isinstance(wanted.metadata, dict) else None
    return resolve(request.headers.items(), wanted.session_id, wanted.prompt_cache_key, metadata)


def work_of(
    request: web.Request,
    wanted: GenerationRequest,
    key: SessionKey,
    max_tokens: int,
    prompt_param: str,
) -> partial[Work]:
    """All but the prompt, which is dear: what is wrong with the rest is said before it is made."""
    state = request.app[STATE]
    info = state.engine.info
    flags = GenerateFlag(0)
    if wanted.ignore_eos:
        flags |= GenerateFlag.IGNORE_END
    if wanted.cache_prompt is False or (key.is_scratch and not state.config.scratch_reuse):
        flags |= GenerateFlag.COLD
    return partial(
        Work,
        owner=request[FACTS].caller.owner,
        key=key,
        prompt_param=prompt_param,
        max_tokens=max_tokens,
        sampling=sampling_of(wanted, info.sampling, info.n_ctx),
        logit_bias=logit_bias_of(wanted.logit_bias, info.n_vocab),
        stop=stops_of(wanted.stop),
        flags=flags,
        parent=parent_of(request.headers.items(), key),
    )


def delivery_of(kind: Kind, wanted: GenerationRequest) -> Delivery:
    options = wanted.stream_options
    include_usage = options is not None and bool(options.include_usage or options.continuous_usage_stats)
    return Delivery(kind=kind, is_stream=bool(wanted.stream), include_usage=include_usage)
