"""OpenAI's own client, unmodified: responses, streams, stored responses, and the client's helpers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai.types.responses import Response, ResponseOutputMessage

from tests.serving import Daemon

SHORT: dict[str, Any] = {"max_output_tokens": 8, "temperature": 0, "extra_body": {"ignore_eos": True}}


@pytest.fixture
async def client(daemon: Daemon) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{daemon.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def strictly(response: Response) -> Response:
    """Validates a response strictly against the client's own types, because the client itself accepts any value."""
    return Response.model_validate(response.model_dump(), strict=True)


async def test_create(client: openai.AsyncOpenAI) -> None:
    response = await client.responses.create(model="any", input="hello", instructions="be brief", **SHORT)
    strictly(response)
    assert response.output_text and response.status == "incomplete" and response.instructions == "be brief"
    assert response.incomplete_details is not None and response.incomplete_details.reason == "max_output_tokens"
    assert response.usage is not None and response.usage.output_tokens == 8
    assert response.usage.input_tokens_details.cached_tokens == 0
    assert response.usage.output_tokens_details.reasoning_tokens == 0
    assert response.model_extra is not None and response.model_extra["session"]["session_reset_reason"] == "new"


async def test_events(client: openai.AsyncOpenAI) -> None:
    events = [event async for event in await client.responses.create(model="any", input="x", stream=True, **SHORT)]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created" and events[-1].type == "response.incomplete"
    said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert said == events[-1].response.output_text != ""


async def test_the_streams_helper(client: openai.AsyncOpenAI, daemon: Daemon) -> None:
    """The helper accumulates the events, and checks their order and ids."""
    async with client.responses.stream(model="any", input="hello", extra_body={"seed": 1}) as stream:
        texts = [event.snapshot async for event in stream if event.type == "response.output_text.delta"]
        response = await stream.get_final_response()
    assert response.status == "completed" and texts[-1] == response.output_text
    assert strictly(await client.responses.retrieve(response.id)).output_text == response.output_text


async def test_parse(client: openai.AsyncOpenAI) -> None:
    response = await client.responses.parse(model="any", input="hello", **SHORT)
    assert response.output_parsed is None and response.output_text


async def test_a_stored_conversation(client: openai.AsyncOpenAI) -> None:
    first = await client.responses.create(model="any", input="hello", **SHORT)
    second = await client.responses.create(model="any", input="more", previous_response_id=first.id, **SHORT)
    assert second.previous_response_id == first.id
    assert second.usage is not None and first.usage is not None
    assert second.usage.input_tokens_details.cached_tokens >= first.usage.total_tokens - 1
    items = [item async for item in client.responses.input_items.list(first.id)]
    assert [item.type for item in items] == ["message"]
    again = await client.responses.retrieve(first.id)
    assert again == first
    await client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError) as caught:
        await client.responses.retrieve(first.id)
    assert (caught.value.code, caught.value.param) == ("response_not_found", "id")
    with pytest.raises(openai.BadRequestError) as refused:
        await client.responses.create(model="any", input="more", previous_response_id=first.id)
    assert refused.value.code == "previous_response_not_found"


async def test_tokens_are_counted_as_they_will_be(client: openai.AsyncOpenAI) -> None:
    counted = await client.responses.input_tokens.count(model="any", input="hello", instructions="be brief")
    response = await client.responses.create(model="any", input="hello", instructions="be brief", **SHORT)
    assert response.usage is not None and counted.input_tokens == response.usage.input_tokens
    more = await client.responses.input_tokens.count(model="any", input="x", previous_response_id=response.id)
    assert more.input_tokens > counted.input_tokens


async def test_what_was_answered_is_sent_back(client: openai.AsyncOpenAI) -> None:
    history: list[Any] = [{"role": "user", "content": "hello"}]
    for turn in range(3):
        fields: dict[str, Any] = {**SHORT, "store": False, "prompt_cache_key": "k"}
        response = await client.responses.create(model="any", input=history, **fields)
        assert isinstance(response.output[0], ResponseOutputMessage)
        assert response.model_extra is not None
        assert response.model_extra["session"]["session_reset_reason"] == ("exact_prefix" if turn else "new")
        history += [*response.output, {"role": "user", "content": "more"}]


async def test_error_classes(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.responses.create(model="any", input="x", background=True)
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "background")
    with pytest.raises(openai.BadRequestError) as overflow:
        await client.responses.create(model="any", input="x " * 5000)
    assert (overflow.value.code, overflow.value.param) == ("context_length_exceeded", "input")
