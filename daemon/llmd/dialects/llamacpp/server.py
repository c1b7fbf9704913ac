"""GET /props and /slots: facts for tools that know llama.cpp's server."""

from __future__ import annotations

import os
from array import array

from aiohttp import web

from ... import __version__
from ...engine.native import STATE_WORDS, SessionView, backend_version
from ...http.access import Caller
from ...http.body import respond
from ...http.context import FACTS, STATE, State
from ...http.endpoints.models import recommended
from ...http.endpoints.sessions import may_see
from .wire import Modalities, NextToken, Props, Slot

_RUNNING = ("decode", "prefill")
_ELSEWHERE = ("parked",)


async def props(request: web.Request) -> web.Response:
    state = request.app[STATE]
    engine, info = state.engine, state.engine.info
    defaults = recommended(info.sampling) | {"n_predict": -1, "stream": False}
    front = array("i", engine.tokens("", around=True))
    found = Props(
        default_generation_settings={
            "id": 0, "n_ctx": info.n_ctx, "speculative": False, "is_processing": False, "params": defaults,
        },
        total_slots=n_slots(state),
        model_alias=state.model_id,
        model_path=os.path.basename(state.config.model),
        modalities=Modalities(),
        chat_template=engine.chat_template,
        chat_template_caps={},
        bos_token=engine.piece(front[:1].tobytes()) if front else "",
        build_info=f"llmd {__version__} (llama.cpp {backend_version()})",
        kv_type=info.kv_type,
    )  # fmt: skip
    return respond(found)


async def slots(request: web.Request) -> web.Response:
    """Lists the slots of the model's memory and the sessions in them. A parked session has no slot. The list is made in
    a text thread, because it needs the records of all sessions.
    """
    state, caller = request.app[STATE], request[FACTS].caller

    def listed() -> web.Response:
        views = [view for view in state.engine.session_table.sessions() if STATE_WORDS[view.state] not in _ELSEWHERE]
        occupied = [_slot(state, caller, number, view) for number, view in enumerate(views)]
        n_ctx = state.engine.info.n_ctx
        free = [Slot(id=number, n_ctx=n_ctx, is_processing=False) for number in range(len(occupied), n_slots(state))]
        return respond([*occupied, *free])

    return await state.engine.in_thread(caller.owner, 0, listed)


def n_slots(state: State) -> int:
    info = state.engine.info
    return info.n_sessions + info.n_scratch


def _slot(state: State, caller: Caller, number: int, view: SessionView) -> Slot:
    is_running = STATE_WORDS[view.state] in _RUNNING
    is_own = may_see(caller, view.owner)
    return Slot(
        id=number,
        n_ctx=state.engine.info.n_ctx,
        is_processing=is_running,
        session=(view.name or None) if is_own else None,
        tokens=view.n_tokens if is_own else 0,
        next_token=[NextToken(is_running, max(view.n_tokens - view.n_last_prompt, 0))] if is_own else [],
    )
