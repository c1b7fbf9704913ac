"""Facts about the model in Ollama's form: GET /, /api/version, /api/tags and /api/ps, and POST /api/show. Requests that
would change the set of models are refused.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from aiohttp import web

from ...core.errors import ApiError
from ...http import body
from ...http.body import in_time, respond
from ...http.context import STATE, State
from ...http.other_models import OtherModel, other_models
from ..sampling import spoken_in
from . import wire
from .writer import stamp

_SPOKEN = "0.13.0"
"""The version of Ollama that llmd reports. Some clients refuse a server with an older version."""
_NEVER = "9999-12-31T23:59:59Z"
_SIZE = re.compile(r"[\d.]+[KMBT]")
CHANGES = (
    ("POST", "/api/push"),
    ("POST", "/api/create"),
    ("POST", "/api/copy"),
    ("DELETE", "/api/delete"),
)
"""Ollama's endpoints that change its store of models."""


async def version(_: web.Request) -> web.Response:
    return respond(wire.OllamaVersion(_SPOKEN))


async def tags(request: web.Request) -> web.Response:
    state = request.app[STATE]
    n_bytes = state.engine.info.model_bytes
    served = wire.ListedModel(**_known(state, n_bytes), modified_at=stamp(state.created))
    return respond(wire.ListedModels([served, *(_listed(one) for one in await other_models(request))]))


async def running(request: web.Request) -> web.Response:
    state = request.app[STATE]
    info = state.engine.info
    n_bytes = info.model_bytes + state.engine.session_table.counters()["state_used_bytes"]
    found = wire.RunningModel(
        **_known(state, n_bytes),
        expires_at=_NEVER,
        size_vram=0 if info.backend in ("CPU", "sim") else n_bytes - info.host_bytes,
        context_length=info.n_ctx,
    )
    return respond(wire.RunningModels([found]))


async def show(request: web.Request) -> web.Response:
    async with in_time(request):
        asked = await body.read(request, wire.ShowRequest)
    state = request.app[STATE]
    name = asked.model or asked.name
    if name != state.model_id:
        for one in await other_models(request):
            if one.local.name == name:
                return respond(_shown(one))
    shown = wire.ShownModel(
        parameters=_parameters(state),
        template=state.engine.chat_template,
        details=_details(state),
        model_info=_facts(state),
        capabilities=_capabilities(state),
        modified_at=stamp(state.created),
    )
    return respond(shown)


async def refuse_change(request: web.Request) -> web.Response:
    name = request.app[STATE].model_id
    message = (
        f"llmd serves one model, {name}, and cannot push, create, copy or delete models; start it with another --model."
    )
    raise ApiError("not_found", message)


def _listed(one: OtherModel) -> wire.ListedModel:
    local = one.local
    return wire.ListedModel(
        name=local.name,
        model=local.name,
        size=local.candidate.n_bytes,
        digest=local.path.resolve().name.removeprefix("sha256-"),  # in a cache, a file's name is its hash
        details=_other_details(one),
        modified_at=stamp(local.modified_s),
    )


def _other_details(one: OtherModel) -> wire.ModelDetails:
    return wire.ModelDetails(
        family=one.header.architecture,
        families=[one.header.architecture],
        parameter_size=str(one.header.facts.get("general.size_label", "unknown")),
        quantization_level=one.local.candidate.quantization or "unknown",
    )


def _shown(one: OtherModel) -> wire.ShownModel:
    """Returns the facts in the header of the model's file. The template and the capabilities are known only after the
    model is loaded.
    """
    return wire.ShownModel(
        parameters="",
        template="",
        details=_other_details(one),
        model_info=dict(one.header.facts),
        capabilities=["embedding" if "bert" in one.header.architecture else "completion"],
        modified_at=stamp(one.local.modified_s),
    )


def _known(state: State, n_bytes: int) -> dict[str, Any]:
    """Returns the members that describe the model in every list of models. `n_bytes` is the model's reported size."""
    name, digest = state.model_id, state.engine.info.fingerprint
    return {"name": name, "model": name, "size": n_bytes, "digest": digest, "details": _details(state)}


def _details(state: State) -> wire.ModelDetails:
    info = state.engine.info
    words = info.description.split(maxsplit=2)
    is_known = len(words) == 3 and _SIZE.fullmatch(words[1]) is not None
    return wire.ModelDetails(
        family=info.arch,
        families=[info.arch],
        parameter_size=words[1] if is_known else str(info.n_params),
        quantization_level=_quantization(words[2]) if is_known else "unknown",
    )


def _quantization(text: str) -> str:
    """Converts llama.cpp's name of a quantization to Ollama's: "Q4_K - Medium" to Q4_K_M, "all F32" to F32."""
    name, _, grade = text.removeprefix("all ").partition(" - ")
    return f"{name}_{grade[0]}" if grade else name


def _parameters(state: State) -> str:
    defaults = dataclasses.asdict(state.engine.info.sampling)
    return "\n".join(f"{param:<30} {defaults[name]:g}" for param, name in spoken_in(wire.Options) if name in defaults)


def _facts(state: State) -> dict[str, Any]:
    """Returns facts about the model. context_length is the size of the context that llmd serves. The context that the
    model was trained for may be larger, but clients send as many tokens as context_length allows.
    """
    info = state.engine.info
    return {
        "general.architecture": info.arch,
        "general.basename": info.name,
        "general.parameter_count": info.n_params,
        f"{info.arch}.context_length": info.n_ctx,
        f"{info.arch}.vocab_size": info.n_vocab,
        **({f"{info.arch}.embedding_length": info.n_embedding} if info.n_embedding else {}),
    }


def _capabilities(state: State) -> list[str]:
    engine = state.engine
    if engine.info.only_embeds:
        return ["embedding"]
    found = ["completion"]
    if engine.info.n_embedding:
        found.append("embedding")
    if engine.fim is not None:
        found.append("insert")
    if engine.info.has_chat_template:
        found.append("tools")
    if "enable_thinking" in engine.chat_template or "reasoning_content" in engine.chat_template:
        found.append("thinking")
    return found
