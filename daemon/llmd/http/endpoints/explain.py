"""/v1/sessions/{id}/explain: shows how many tokens each of the last turns of a session reused, and why not more."""

from __future__ import annotations

from aiohttp import web

from ...engine.engine import Engine
from ...engine.native import REASON_WORDS
from ...turns.divergence import DivergedTokens
from ...turns.log import Turn, reason_text, reported_reason
from ..body import respond
from ..context import STATE
from .sessions import find_any
from .wire import Divergence, ExplainedTurn, Explanation


async def explain_session(request: web.Request) -> web.Response:
    state, found = request.app[STATE], find_any(request)
    turns = state.turns.story(found.owner, found.id)
    return respond(Explanation(found.id, found.owner, [_turn(state.engine, turn) for turn in turns]))


def _turn(engine: Engine, turn: Turn) -> ExplainedTurn:
    reason, sentence = None, None
    if turn.reason is not None:
        reason = reported_reason(turn.reason, turn.n_prompt, turn.n_reused)
        sentence = reason_text(reason, turn.n_reused, is_from_own=turn.is_from_own)
    return ExplainedTurn(
        at_ms=turn.at_ms,
        slot=turn.entry,
        reason=REASON_WORDS[reason] if reason is not None else None,
        reason_text=sentence,
        outcome=turn.outcome,
        prompt_tokens=turn.n_prompt,
        reused_tokens=turn.n_reused,
        prefilled_tokens=turn.n_prefilled,
        generated_tokens=turn.n_generated,
        divergence=_divergence(engine, turn.divergence) if turn.divergence is not None else None,
    )


def _divergence(engine: Engine, diverged: DivergedTokens) -> Divergence:
    return Divergence(
        at=diverged.at,
        before=engine.piece(diverged.before),
        resident=engine.piece(diverged.resident) if diverged.resident is not None else None,
        prompt=engine.piece(diverged.prompt),
        resident_tokens=_ids(diverged.resident) if diverged.resident is not None else None,
        prompt_tokens=_ids(diverged.prompt),
    )


def _ids(tokens: bytes) -> list[int]:
    return memoryview(tokens).cast("i").tolist()
