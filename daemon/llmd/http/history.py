"""The answers of chat requests: kept when they are finished, and put into the prompts of the requests that follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from aiohttp import web

from ..answers.memory import Mode, Splice, answer_of, digest_of, digests_of
from ..answers.memory import SessionAnswers as Kept
from ..core.errors import ApiError
from ..core.session_key import SessionKey, parent_of
from ..dialects.openai.wire import ChatCompletionRequest
from ..engine.generation import Generation
from ..engine.native import Page
from ..engine.text import Prompt
from ..history.transcript import joined_users, render_request, template_messages, text_bytes_of
from .context import FACTS, STATE, State


@dataclass(frozen=True, slots=True)
class Rendered:
    prompt: Prompt
    digest: bytes
    """Of the conversation, as Work has it."""
    roles: list[str]
    """Of the messages in the prompt."""


async def rendered(request: web.Request, wanted: ChatCompletionRequest, key: SessionKey) -> Rendered:
    """The conversation as a prompt, with the session's own answers as they were generated."""
    state, facts = request.app[STATE], request[FACTS]
    owner, n_bytes = facts.caller.owner, facts.n_body_bytes
    if facts.is_large:
        messages, digests = await state.engine.in_thread(owner, n_bytes, lambda: _conversation(state, wanted, n_bytes))
    else:
        messages, digests = _conversation(state, wanted, n_bytes)
    state.histories.inherit(owner, parent_of(request.headers.items(), key), key.id)
    splices = _splices(state, wanted, owner, key, digests)

    async def render(messages: list[dict[str, Any]], splices: list[Splice]) -> Prompt:
        return await state.engine.render_chat(owner, n_bytes, lambda: render_request(wanted, messages, splices))

    try:
        prompt = await render(messages, splices)
    except ApiError as error:
        n_messages = len(messages)
        messages, splices = joined_users(messages, splices)
        if error.code != "template_failed" or len(messages) == n_messages:
            raise
        # Many templates refuse what clients send after an aborted answer, and would for as long as the history lasts.
        prompt = await render(messages, splices)
    can_be_kept = prompt.n_history > 0 and wanted.add_generation_prompt is not False
    return Rendered(prompt, digests[-1] if can_be_kept else b"", [message["role"] for message in messages])


def _conversation(
    state: State, wanted: ChatCompletionRequest, n_body_bytes: int
) -> tuple[list[dict[str, Any]], list[bytes]]:
    """The messages in the template's form, and their digests."""
    messages = template_messages(wanted.messages)
    if n_body_bytes > state.engine.room.n_bytes:  # or they cannot be too long
        state.engine.room.check_bytes(text_bytes_of(messages), "messages")
    return messages, digests_of(messages)


def _splices(
    state: State, wanted: ChatCompletionRequest, owner: int, key: SessionKey, digests: list[bytes]
) -> list[Splice]:
    if state.histories.mode(owner, key.id, wanted.history, cast(Mode, state.config.history)) == "template":
        return []
    splices = state.histories.splices(owner, key.id, digests)
    n_tokens = sum(len(splice.tokens) for splice in splices) // 4
    return splices if n_tokens <= state.engine.info.n_ctx else []  # then it fits as the template has it, or not at all


def keep_answer(state: State, kept: Kept, generation: Generation) -> None:
    """Called when the generation ends, before its session can be used again by whoever got the answer.

    `kept`: the session as it was when the request came.
    """
    text, work = generation.said(), generation.work
    if text is None or not text.strip():
        return
    generated = _generated(state.engine.page, generation)
    answer = None if generated is None else answer_of(work.prompt.opening, generated, text, state.engine.spell)
    if answer is not None:
        digest = digest_of(work.history, {"role": "assistant", "content": text})
        state.histories.keep_for(kept, digest, answer)


def _generated(page: Page, generation: Generation) -> bytes | None:
    """The resident tokens after the prompt that the client can have seen; None when others have replaced them."""
    finished, prompt = generation.finished, generation.work.prompt.tokens
    assert finished is not None
    for place in _places(page, generation):
        tokens = page.tokens(place)
        resident = b"" if tokens is None else tokens.tobytes()
        if len(resident) >= 4 * finished.n_visible and resident.startswith(prompt):
            return resident[len(prompt) : 4 * finished.n_visible]
    return None


def _places(page: Page, generation: Generation) -> list[int]:
    """Where its session may be; of a request without one, only the owner is known."""
    admitted, work = generation.admitted, generation.work
    if admitted is not None and not work.key.is_scratch:
        return [admitted.place]
    found = [view for view in page.sessions() if not view.name and view.owner == work.owner]
    return [view.place for view in sorted(found, key=lambda view: view.used_ms, reverse=True)]
