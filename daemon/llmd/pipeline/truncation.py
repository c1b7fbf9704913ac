"""Truncates conversations that do not fit the context, if the request allows it.

Truncation chooses a message of the user and removes all messages before this message, except system messages. A
truncated conversation can begin only at some user messages, the truncation points. The text between two of these points
is about a quarter of the context. New messages at the end do not move these points. So in each further request, the
truncated conversation begins at the same message as long as it fits. The tokens in the model's memory can then be
reused.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..core.context_limits import utf8_bytes
from ..core.errors import ApiError
from ..core.generation_request import ChatPrompt, GenerationRequest, PlainMessage
from .prompt import Prepared, prepared
from .services import Sender, Services

_BYTES_PER_TOKEN = 4
_STEPS = 4
"""Number of truncation points in a text that is as long as the context."""


def truncation_points(messages: Sequence[PlainMessage], n_ctx: int) -> list[int]:
    """Returns the indexes of the messages at which a truncated conversation can begin, in order. A pure function."""
    step = max(n_ctx * _BYTES_PER_TOKEN // _STEPS, 1)
    found, n_bytes, n_steps = [0], 0, 0
    for index, message in enumerate(messages):
        if message.role == "user" and n_bytes // step > n_steps:
            found.append(index)
            n_steps = n_bytes // step
        if message.role != "system":
            n_bytes += utf8_bytes(message.content) + sum(utf8_bytes(call.arguments) for call in message.tool_calls)
    return found


def truncated(messages: Sequence[PlainMessage], index: int) -> list[PlainMessage]:
    return [message for n, message in enumerate(messages) if n >= index or message.role == "system"]


async def prepared_truncated(services: Services, request: GenerationRequest, sender: Sender) -> Prepared:
    """Returns the prompt of the conversation. If the whole conversation does not fit the context, truncates it first
    (`fitting`). A conversation that fits is rendered only once.
    """
    try:
        found = await prepared(services, request, sender)
        if found.prompt.n_tokens < services.engine.info.n_ctx:
            return found
    except ApiError as error:
        if error.code != "context_length_exceeded":
            raise
    return await prepared(services, await fitting(services, request, sender), sender)


async def fitting(services: Services, request: GenerationRequest, sender: Sender) -> GenerationRequest:
    """Returns the request with the longest truncated conversation that leaves room for the answer. If no truncation
    point leaves enough room, truncates at the last point.
    """
    prompt = request.prompt
    assert isinstance(prompt, ChatPrompt)
    points = truncation_points(prompt.messages, services.engine.info.n_ctx)
    low, high = 0, len(points) - 1
    while low < high:  # bisects to find the first point that fits
        middle = (low + high) // 2
        if await _fits(services, _with(request, prompt, points[middle]), sender):
            high = middle
        else:
            low = middle + 1
    return _with(request, prompt, points[low])


def _with(request: GenerationRequest, prompt: ChatPrompt, index: int) -> GenerationRequest:
    shorter = msgspec.structs.replace(prompt, messages=truncated(prompt.messages, index))
    return msgspec.structs.replace(request, prompt=shorter)


async def _fits(services: Services, request: GenerationRequest, sender: Sender) -> bool:
    n_ctx = services.engine.info.n_ctx
    n_answer_tokens = n_ctx // _STEPS
    try:
        found = await prepared(services, request, sender, is_dry_run=True)
    except ApiError as error:
        if error.code != "context_length_exceeded":
            raise
        return False
    return found.prompt.n_tokens + min(request.max_tokens or n_answer_tokens, n_answer_tokens) <= n_ctx
