"""/v1/models: the one model there is."""

from __future__ import annotations

import dataclasses
from typing import Any

from aiohttp import web

from ...core.sampling import SamplingDefaults, sampler_names
from ..context import STATE, State
from ..respond import respond
from .wire.models import Model, ModelList, ModelMeta

_FACTS = {"size": "model_bytes", "architecture": "arch"}
"""Of EngineInfo, where a field of ModelMeta is called otherwise."""


def model_of(state: State) -> Model:
    info = state.engine.info
    facts = {name: getattr(info, _FACTS.get(name, name)) for name in ModelMeta.__struct_fields__}
    meta = ModelMeta(**{**facts, "sampling": recommended(info.sampling)})
    return Model(id=state.model_id, created=state.created, max_model_len=info.n_ctx, meta=meta)


def recommended(sampling: SamplingDefaults) -> dict[str, Any]:
    return dataclasses.asdict(sampling) | {"samplers": sampler_names(sampling.samplers)}


async def list_models(request: web.Request) -> web.Response:
    return respond(ModelList([model_of(request.app[STATE])]))


async def show_model(request: web.Request) -> web.Response:
    """Under any name, as requests may call it."""
    return respond(model_of(request.app[STATE]))
