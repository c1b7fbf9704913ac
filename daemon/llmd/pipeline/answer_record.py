"""Keeps a finished answer with its tokens. The next prompt of the conversation can then continue these tokens. Also
makes the record of the turn.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import groupby

import msgspec

from ..answers.digest import digest_of
from ..answers.memory import Answer, SessionAnswers, answer_of
from ..core import limits
from ..core.generation_request import PlainMessage
from ..engine.engine import Engine
from ..engine.generation import Generation
from ..engine.native import SessionTable
from ..turns.divergence import BranchMatch, best_match, divergence_of
from ..turns.log import Turn
from .prompt import Prepared
from .services import Services


def message_of(text: str) -> PlainMessage:
    """Returns the message of an answer that needs no parsing. The client will send the message back in this form."""
    return PlainMessage("assistant", text)


def resident_answer(services: Services, prepared: Prepared, generation: Generation) -> Answer | None:
    """Returns the answer to keep. Its tokens are the tokens of the prompt and the generated tokens. Tokens that are
    already stored with an earlier answer are left out. Returns None if the generated tokens are not known. Called when
    the generation's last event arrives.
    """
    text = generation.answer_text()
    if not text:
        return None
    prompt = generation.work.prompt
    spell = partial(spelled, services.engine, frozenset(memoryview(prompt.preserved).cast("i")))
    new = prompt.tokens[prepared.n_past_bytes :]
    found = (answer_of(new, tokens, text, spell) for tokens in _generated(services.engine.session_table, generation))
    answer = min(filter(None, found), key=lambda answer: len(answer.rest), default=None)
    return None if answer is None else msgspec.structs.replace(answer, since=prepared.since, facts=prepared.facts)


def keep_answer(
    services: Services, record: SessionAnswers, prepared: Prepared, message: PlainMessage, answer: Answer
) -> None:
    """Keeps the answer. Called before the client gets the end of the answer. So the client's next request finds the
    answer. `record` is the session's record from the time when the request arrived.
    """
    if message.content.strip() or message.tool_calls or message.reasoning:
        past = prepared.prompt.tokens[: prepared.n_past_bytes]
        services.answers.keep_for(record, digest_of(prepared.digest, message), answer, past)


def spelled(engine: Engine, preserved: frozenset[int], tokens: bytes) -> bytes:
    """Returns the bytes that these tokens add to the text of an answer. Control tokens add nothing, except those in
    `preserved`.
    """
    if not preserved or preserved.isdisjoint(memoryview(tokens).cast("i")):
        return engine.spell(tokens)
    pieces = (
        engine.spell(array("i", run).tobytes(), special=is_preserved)
        for is_preserved, run in groupby(memoryview(tokens).cast("i"), preserved.__contains__)
    )
    return b"".join(pieces)


def _generated(table: SessionTable, generation: Generation) -> Iterator[bytes]:
    """Yields the generated tokens, which follow the prompt in the session table. The last of them is the last token
    whose text the client can have received. Yields nothing if other tokens have replaced the generated tokens.

    For a request without a session, this function also yields the generated tokens of other requests with the same
    prompt. `answer_of` rejects tokens whose text is not this answer.

    The decode thread may already run the next request in this session. This is safe. `SessionTable.tokens` returns a
    consistent copy, and `answer_of` keeps only tokens whose text was delivered. The tokens in TEXT events could not be
    used instead. Tokens of a stop string are missing there, even if the answer includes the stop string.
    """
    finished, prompt = generation.finished, generation.work.prompt.tokens
    assert finished is not None
    for entry in _entries(table, generation):
        tokens = table.tokens(entry)
        resident = b"" if tokens is None else tokens.tobytes()
        if len(resident) >= 4 * finished.n_visible and resident.startswith(prompt):
            yield resident[len(prompt) : 4 * finished.n_visible]


def _entries(table: SessionTable, generation: Generation) -> list[int]:
    """Returns the entries of the session table that can hold the generation's branch. For a request without a session,
    these are all entries with scratch branches of the owner, the most recently used first.
    """
    admitted, work = generation.admitted, generation.work
    if admitted is not None and not work.key.is_scratch:
        return [admitted.entry]
    found = table.sessions_named("", work.owner)
    return [view.entry for view in sorted(found, key=lambda view: view.used_ms, reverse=True)]


def turn_of(generation: Generation, came_ms: int, matches: Mapping[int, BranchMatch]) -> Turn:
    finished, started = generation.finished, generation.started
    entry = generation.admitted.entry if generation.admitted else None
    prompt, divergence = generation.work.prompt, None
    n_reused = finished.n_reused if finished is not None else 0
    n_prefilled = finished.n_prefilled if finished is not None else 0
    nearest = best_match(matches.values())
    if started is not None and entry is not None:
        divergence = divergence_of(prompt.tokens, started.diverged_at, matches.get(entry))
        if divergence is None and n_prefilled >= limits.DIVERGENCE_PREFILLED_MIN and nearest and nearest.resident:
            divergence = divergence_of(prompt.tokens, nearest.at, nearest)
    return Turn(
        at_ms=came_ms,
        entry=entry,
        reason=started.reason if started is not None else None,
        outcome=generation.outcome_word,
        n_prompt=prompt.n_tokens,
        n_reused=n_reused,
        n_prefilled=n_prefilled,
        n_generated=finished.n_generated if finished is not None else 0,
        divergence=divergence,
        n_drafted=finished.n_drafted if finished is not None else 0,
        n_accepted=finished.n_accepted if finished is not None else 0,
        n_grammar_drafted=finished.n_grammar_drafted if finished is not None else 0,
        n_grammar_accepted=finished.n_grammar_accepted if finished is not None else 0,
        n_model_drafted=finished.n_model_drafted if finished is not None else 0,
        n_model_accepted=finished.n_model_accepted if finished is not None else 0,
        is_from_own=nearest is not None and nearest.at >= n_reused,
    )
