"""/v1/models: shows the model that llmd serves, and lists the other models on this machine."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any

import msgspec
from aiohttp import web

from ...core.sampling import sampler_names
from ...core.sampling_table import SamplingDefaults
from ..body import respond
from ..context import ANTHROPIC_VERSION, STATE, State
from ..other_models import other_models
from .wire import AnthropicModel, AnthropicModelList, Model, ModelList, ModelMeta

_FACTS = {"size": "model_bytes", "architecture": "arch"}
"""The fields of ModelMeta that have another name in EngineInfo, each with its name in EngineInfo."""


def model_of(state: State) -> Model:
    info = state.engine.info
    facts = {name: getattr(info, _FACTS.get(name, name)) for name in ModelMeta.__struct_fields__}
    meta = ModelMeta(**{**facts, "sampling": recommended(info.sampling)})
    return Model(id=state.model_id, created=state.created, max_model_len=info.n_ctx, meta=meta, size=info.model_bytes)


def recommended(sampling: SamplingDefaults) -> dict[str, Any]:
    return dataclasses.asdict(sampling) | {"samplers": sampler_names(sampling.samplers)}


async def list_models(request: web.Request) -> web.Response:
    model = _model_for(request)
    if isinstance(model, AnthropicModel):
        return respond(AnthropicModelList([model], first_id=model.id, last_id=model.id))
    others = [
        Model(
            id=one.local.name,
            created=int(one.local.modified_s),
            max_model_len=one.header.n_ctx_train,
            meta=None,
            size=one.local.candidate.n_bytes,
            loaded=False,
        )
        for one in await other_models(request)
    ]
    return respond(ModelList([model, *others]))


async def show_model(request: web.Request) -> web.Response:
    """Returns the served model, whatever id the path has. A request that generates can name any model, too, and gets
    the served one.
    """
    return respond(_model_for(request))


def _model_for(request: web.Request) -> Model:
    """Returns the model in the form of OpenAI's API. A client of Anthropic's API, recognized by the Anthropic-Version
    header, gets additional members.
    """
    model = model_of(request.app[STATE])
    if ANTHROPIC_VERSION not in request.headers:
        return model
    created_at = datetime.fromtimestamp(model.created, UTC).isoformat().replace("+00:00", "Z")
    return AnthropicModel(
        **msgspec.structs.asdict(model),
        display_name=model.id,
        created_at=created_at,
        max_input_tokens=model.max_model_len,
        max_tokens=model.max_model_len,
    )
