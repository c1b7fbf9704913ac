"""/v1/sessions/{id}/explain: shows how many tokens each of the last turns of a session reused, and why it could not
reuse more.
"""

from __future__ import annotations

from functools import partial

from aiohttp import web

from ...engine.engine import Engine
from ...engine.native import REASON_WORDS
from ...turns.divergence import TOKEN_BYTES, DivergedTokens, n_common
from ...turns.log import Turn, reason_text, reported_reason, scratch_id
from ..body import respond
from ..context import STATE
from .sessions import find_any
from .wire import Divergence, ExplainedBranch, ExplainedTurn, Explanation, Session


async def explain_session(request: web.Request) -> web.Response:
    """Reads the tokens of the branches in a text thread, because a branch can have hundreds of thousands of tokens."""
    state, found = request.app[STATE], find_any(request)
    turns = state.turns.story(found.owner, found.id)
    n_bytes = TOKEN_BYTES * sum(branch.tokens for branch in found.timelines)
    branches = await state.engine.in_thread(found.owner, n_bytes, partial(_branches, state.engine, found))
    return respond(Explanation(found.id, found.owner, [_turn(state.engine, turn) for turn in turns], branches))


def _branches(engine: Engine, session: Session) -> list[ExplainedBranch]:
    found: list[ExplainedBranch] = []
    tokens_by_slot: dict[int, bytes] = {}
    for branch in sorted(session.timelines, key=lambda one: (one.opened_ms, one.slot)):
        tokens = _tokens(engine, branch.slot, session)
        if tokens is None:
            continue
        common = [(n, slot) for slot, other in tokens_by_slot.items() if (n := n_common(other, tokens)) > 0]
        shared, parent = max(common, key=lambda one: one[0], default=(0, None))
        checkpoints = engine.checkpoints(session.owner, tokens)
        found.append(ExplainedBranch(branch.slot, len(tokens) // TOKEN_BYTES, parent, shared, checkpoints))
        tokens_by_slot[branch.slot] = tokens
    return found


def _tokens(engine: Engine, entry: int, session: Session) -> bytes | None:
    """Returns the tokens of a branch, or None if the entry no longer holds a branch of the session."""
    tokens, view = engine.session_table.tokens(entry), engine.session_table.session(entry)
    if tokens is None or view is None or (view.owner, view.name or scratch_id(entry)) != (session.owner, session.id):
        return None
    return tokens.tobytes()


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
        drafted_tokens=turn.n_drafted,
        accepted_tokens=turn.n_accepted,
        grammar_drafted_tokens=turn.n_grammar_drafted,
        grammar_accepted_tokens=turn.n_grammar_accepted,
        model_drafted_tokens=turn.n_model_drafted,
        model_accepted_tokens=turn.n_model_accepted,
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
