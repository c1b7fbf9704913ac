"""The models on this machine that llmd could serve after a restart. Lists of models show them to administrators only,
because their names tell what is on the machine.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from ..models import catalog
from ..models.catalog import LocalModel
from ..models.errors import ModelError
from ..models.gguf_header import Header, read_header
from ..process.logs import fields
from .context import FACTS, STATE

log = logging.getLogger("llmd.http")


@dataclass(frozen=True, slots=True)
class OtherModel:
    local: LocalModel
    header: Header


async def other_models(request: web.Request) -> list[OtherModel]:
    """Returns the models on this machine except the served one. Returns an empty list if the caller is no
    administrator.
    """
    state = request.app[STATE]
    if not request[FACTS].caller.is_admin:
        return []
    return await asyncio.to_thread(_found, state.config.models_dir, state.loaded.path)


def _found(models_dir: Path | None, served: str) -> list[OtherModel]:
    try:
        models = catalog.local_models(models_dir)
    except ModelError as error:
        log.warning("the models on this machine are not listed", extra=fields(reason=str(error)))
        return []
    own = Path(served).resolve()
    found = []
    for one in models:
        try:
            header = read_header(one.path)
        except ModelError:
            continue
        if header.is_model and one.path.resolve() != own:
            found.append(OtherModel(one, header))
    return found
