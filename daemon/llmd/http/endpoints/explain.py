"""/v1/sessions/{id}/explain: the last turns of a session."""

from __future__ import annotations

from aiohttp import web

from ...engine.engine import Engine
from ...engine.native import REASON_TEXTS, REASON_WORDS
from ...turns.divergence import DivergedTokens
from ...turns.log import Turn
from ..context import STATE
from ..respond import respond
from .sessions import find
from .wire.explain import Divergence, ExplainedTurn, Explanation


async def explain_session(request: web.Request) -> web.Response:
    state, found = request.app[STATE], find(request)
    turns = state.turns.story(found.owner, found.id)
    return respond(Explanation(found.id, found.owner, [_turn(state.engine, turn) for turn in turns]))


def _turn(engine: Engine, turn: Turn) -> ExplainedTurn:
    return ExplainedTurn(
        at_ms=turn.at_ms,
        slot=turn.place,
        reason=REASON_WORDS[turn.reason] if turn.reason is not None else None,
        reason_text=REASON_TEXTS[turn.reason] if turn.reason is not None else None,
        outcome=turn.outcome,
        prompt_tokens=turn.n_prompt,
        reused_tokens=turn.n_reused,
        prefilled_tokens=turn.n_prefilled,
        generated_tokens=turn.n_generated,
        divergence=_divergence(engine, turn.divergence) if turn.divergence is not None else None,
    )


def _divergence(engine: Engine, found: DivergedTokens) -> Divergence:
    return Divergence(
        at=found.at,
        before=engine.piece(found.before),
        resident=engine.piece(found.resident) if found.resident is not None else None,
        prompt=engine.piece(found.prompt),
        resident_tokens=_ids(found.resident) if found.resident is not None else None,
        prompt_tokens=_ids(found.prompt),
    )


def _ids(tokens: bytes) -> list[int]:
    return memoryview(tokens).cast("i").tolist()
