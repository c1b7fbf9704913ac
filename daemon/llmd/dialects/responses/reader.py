"""Turns the body of a request of the Responses API into a generation request. All functions are pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ...core.errors import ApiError, quoted, required
from ...core.generation_request import ChatPrompt, Constraint, GenerationRequest, PlainMessage
from ...core.sampling import max_tokens_of
from ...core.session_key import PREVIOUS_RESPONSE, SessionKey, parent_of
from ..conversation import answerable
from ..probabilities import likely_of
from ..reading import Headers, generation, schema_constraint, session_of, thinking_variables
from .item_writers import new_id
from .items import InputItem, items_of, messages_of, tools_among
from .store import ResponseStore, StoredResponse
from .tools import Offered, choice_of, offered
from .wire import ReasoningAsked, Response, ResponseRequest, TextAsked, TextFormat

_ENCLOSED_REASONING = "reasoning.encrypted_content"
_LOGPROBS = "message.output_text.logprobs"
_ID_KINDS = {
    "message": "msg", "reasoning": "rs", "function_call": "fc", "function_call_output": "fco",
    "custom_tool_call": "ctc", "custom_tool_call_output": "ctco",
}  # fmt: skip
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    generation_request: GenerationRequest
    response: Response
    """The response to be written, so far with only those members that repeat the request."""
    offered: Offered
    is_summary: bool
    """Whether the reasoning is returned as a summary instead of as reasoning_text."""
    is_enclosed: bool
    """Whether the reasoning is also returned as encrypted_content, which clients send back."""
    before: list[PlainMessage]
    """All messages before the answer, except the instructions."""
    input: list[bytes]
    """The input items of this request. Empty if the response will not be stored."""
    n_stored_bytes: int
    """Number of bytes of the stored items and of the previous response to which the request refers."""


def response_of(body: ResponseRequest, headers: Headers, store: ResponseStore, owner: int) -> ParsedRequest:
    """Returns the parsed request. Raises an ApiError that names the invalid field. Can be called in any thread."""
    previous = _previous(body.previous_response_id, store, owner)
    items = items_of(body.input, lambda id: store.find_item(owner, id))
    offered_tools = offered([("tools", body.tools or []), *tools_among(items)])
    before = [*(previous.conversation() if previous is not None else []), *messages_of(items)]
    reasoning, include = body.reasoning or ReasoningAsked(), body.include or []
    generation_request = _generation_request(body, headers, previous, _prompt(body, offered_tools, before))
    return ParsedRequest(
        generation_request=generation_request,
        response=_response_members(body, generation_request),
        offered=offered_tools,
        is_summary=(reasoning.summary or reasoning.generate_summary) is not None,
        is_enclosed=_ENCLOSED_REASONING in include,
        before=before,
        input=_stored(items) if body.store is not False else [],
        n_stored_bytes=sum(len(item.raw) for item in items if item.is_stored) + (previous.n_bytes if previous else 0),
    )


def _previous(id: str | None, store: ResponseStore, owner: int) -> StoredResponse | None:
    if id is None:
        return None
    found = store.find(owner, id)
    if found is None:
        message = f"Previous response with id {quoted(id)} not found."
        raise ApiError("previous_response_not_found", message, "previous_response_id")
    return found


def _prompt(body: ResponseRequest, offered_tools: Offered, before: Sequence[PlainMessage]) -> ChatPrompt:
    messages = [*([PlainMessage("system", body.instructions)] if body.instructions else []), *before]
    return ChatPrompt(
        messages=answerable("input", messages),
        variables=_variables(body),
        tools=offered_tools.tools,
        tool_choice=choice_of(body.tool_choice, offered_tools),
        has_parallel_calls=body.parallel_tool_calls,
        history=body.history,
        param="input",
    )


def _variables(body: ResponseRequest) -> dict[str, Any]:
    effort = body.reasoning.effort if body.reasoning is not None else None
    return {**thinking_variables(effort, body.enable_thinking), **(body.chat_template_kwargs or {})}


def _generation_request(
    body: ResponseRequest, headers: Headers, previous: StoredResponse | None, prompt: ChatPrompt
) -> GenerationRequest:
    session = session_of(headers, body.session_id, body.prompt_cache_key, body.metadata)
    if session[0].is_scratch and previous is not None and previous.session:
        key = SessionKey(previous.session, PREVIOUS_RESPONSE)
        session = key, parent_of(headers, key)
    length = body.max_output_tokens
    return generation(
        body,
        session,
        prompt,
        max_tokens=0 if length is None else max_tokens_of("max_output_tokens", length),
        constraint=_constraint(body.text),
        n_logprobs=_n_logprobs(body),
    )


def _constraint(text: TextAsked | None) -> Constraint | None:
    form = text.format if text is not None else None
    if form is None or form.type == "text":
        return None
    if form.type == "json_object":
        return Constraint("json", "", "text.format")
    param = "text.format.schema"
    return schema_constraint(param, required(param, form.schema), is_strict=bool(form.strict))


def _n_logprobs(body: ResponseRequest) -> int | None:
    n = likely_of("top_logprobs", body.top_logprobs)
    return n if n or _LOGPROBS in (body.include or []) else None


# --- members of the response that repeat the request -----------------------------------------------------------------


def _response_members(body: ResponseRequest, generation_request: GenerationRequest) -> Response:
    reasoning = body.reasoning or ReasoningAsked()
    text = body.text or TextAsked()
    summary = reasoning.summary or reasoning.generate_summary
    return Response(
        id="",
        created_at=0,
        status="in_progress",
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        metadata=body.metadata or {},
        model="",
        output=[],
        parallel_tool_calls=body.parallel_tool_calls is not False,
        previous_response_id=body.previous_response_id,
        prompt_cache_key=body.prompt_cache_key,
        reasoning=_raw({"effort": reasoning.effort, "summary": summary}),
        store=body.store is not False,
        temperature=generation_request.sampling.temperature,
        text=_raw({"format": text.format or TextFormat("text"), "verbosity": text.verbosity or "medium"}),
        tool_choice=_raw(body.tool_choice or "auto"),
        tools=_raw(body.tools or []),
        top_logprobs=body.top_logprobs or 0,
        top_p=generation_request.sampling.top_p,
        truncation=body.truncation or "disabled",
    )


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(_encode(value))


def _stored(items: Sequence[InputItem]) -> list[bytes]:
    """Returns the items in the form in which they are stored. Each item has an id of its own, because clients page
    through the items by id. The text of a message becomes a list of parts. Other members are stored unchanged, without
    decoding.
    """
    ids: set[str] = set()
    found: list[bytes] = []
    for item in items:
        id = item.id
        if not id or id in ids:
            id = new_id(_ID_KINDS.get(item.kind, "item"))
        ids.add(id)
        found.append(_with_id(item, id))
    return found


def _with_id(item: InputItem, id: str) -> bytes:
    members: dict[str, Any] = msgspec.json.decode(item.raw, type=dict[str, msgspec.Raw])
    members |= {"type": item.kind, "id": id}
    content = members.get("content")
    if item.kind == "message" and content is not None and bytes(memoryview(content)[:1]) == b'"':
        kind = "output_text" if item.role == "assistant" else "input_text"
        members["content"] = [{"type": kind, "text": content}]
    return _encode(members)
