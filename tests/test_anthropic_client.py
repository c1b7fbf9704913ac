"""Anthropic's own client, unmodified: answers, streams, counting of tokens, and its error classes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import anthropic
import pytest
from anthropic.types import MessageParam

from tests.conftest import Serve
from tests.serving import Daemon
from tests.test_access import ANN, key_file

MESSAGES: list[MessageParam] = [{"role": "user", "content": "hello"}]


def client_of(daemon: Daemon, key: str = "none") -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=daemon.url, api_key=key, max_retries=0)


@pytest.fixture
async def client(daemon: Daemon) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with client_of(daemon) as client:
        yield client


async def test_answer(client: anthropic.AsyncAnthropic) -> None:
    answer = await client.messages.create(
        model="any", max_tokens=5, messages=MESSAGES, system="be brief", extra_body={"temperature": 0}
    )
    assert isinstance(answer.content[0], anthropic.types.TextBlock) and answer.content[0].text
    assert answer.stop_reason == "max_tokens" and answer.usage.output_tokens == 5
    assert answer.usage.input_tokens > 0 and answer.usage.cache_read_input_tokens == 0


async def test_stream(client: anthropic.AsyncAnthropic) -> None:
    async with client.messages.stream(
        model="any",
        max_tokens=5,
        messages=MESSAGES,
        extra_body={"session_id": "from-the-client", "temperature": 0},
    ) as stream:
        pieces = [piece async for piece in stream.text_stream]
        answer = await stream.get_final_message()
    assert isinstance(answer.content[0], anthropic.types.TextBlock)
    assert answer.content[0].text == "".join(pieces) and answer.stop_reason == "max_tokens"
    assert answer.usage.output_tokens == 5 and answer.usage.input_tokens > 0


async def test_raw_events_and_beta(client: anthropic.AsyncAnthropic) -> None:
    events = await client.beta.messages.create(
        model="any", max_tokens=5, messages=[{"role": "user", "content": "hello"}], stream=True, betas=["x-2026-01-01"]
    )
    kinds = [event.type async for event in events]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"]


async def test_count(client: anthropic.AsyncAnthropic) -> None:
    counted = await client.messages.count_tokens(model="any", messages=MESSAGES, system="be brief")
    answer = await client.messages.create(model="any", max_tokens=1, messages=MESSAGES, system="be brief")
    assert counted.input_tokens == answer.usage.input_tokens


async def test_models(client: anthropic.AsyncAnthropic, daemon: Daemon) -> None:
    page = await client.models.list()
    assert (page.has_more, page.first_id, page.last_id) == (False, daemon.state.model_id, daemon.state.model_id)
    [listed] = [model async for model in client.models.list()]
    retrieved = await client.models.retrieve("another")  # the model is found under any name
    for model in (listed, retrieved):
        assert model.id == model.display_name == daemon.state.model_id
        assert (model.type, model.lifecycle) == ("model", "active")
        assert model.max_input_tokens == model.max_tokens == daemon.state.engine.info.n_ctx
        assert model.created_at == datetime.fromtimestamp(daemon.state.created, UTC)


async def test_models_are_told_as_ever_to_others(daemon: Daemon) -> None:
    listed = (await daemon.ask("GET", "/v1/models")).json
    assert set(listed) == {"data", "object"} and not {"created_at", "max_input_tokens"} & set(listed["data"][0])


async def test_a_conversation_stays_warm(client: anthropic.AsyncAnthropic) -> None:
    messages = list(MESSAGES)
    headers = {"X-Claude-Code-Session-Id": "warm"}
    for turn in range(3):
        answer = await client.messages.create(
            model="any", max_tokens=20, messages=messages, system="be brief, " * 20, extra_headers=headers
        )
        if turn:
            assert answer.usage.input_tokens < 20 < 40 < (answer.usage.cache_read_input_tokens or 0)
        messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": "and then?"}]


async def test_error_classes(client: anthropic.AsyncAnthropic, daemon: Daemon) -> None:
    with pytest.raises(anthropic.BadRequestError, match="max_tokens") as caught:
        await client.messages.create(model="any", max_tokens=-1, messages=MESSAGES)
    assert caught.value.type == "invalid_request_error"
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > \d+ maximum"):
        await client.messages.create(model="any", max_tokens=5, messages=[{"role": "user", "content": "x " * 9000}])
    with pytest.raises(anthropic.NotFoundError):
        await client.messages.batches.list()
    daemon.state.admission.limit = 0
    with pytest.raises(anthropic.InternalServerError) as busy:
        await client.messages.create(model="any", max_tokens=5, messages=MESSAGES)
    assert busy.value.status_code == 529 and busy.value.type == "overloaded_error"


async def test_keys(serve: Serve, tmp_path: Path) -> None:
    daemon = await serve(api_key_file=key_file(tmp_path))
    async with client_of(daemon, "wrong") as client:
        with pytest.raises(anthropic.AuthenticationError):
            await client.messages.create(model="any", max_tokens=5, messages=MESSAGES)
    async with client_of(daemon, ANN) as client:
        assert (await client.messages.create(model="any", max_tokens=5, messages=MESSAGES)).usage.output_tokens == 5
    async with anthropic.AsyncAnthropic(base_url=daemon.url, auth_token=ANN, max_retries=0) as client:
        assert (await client.messages.create(model="any", max_tokens=5, messages=MESSAGES)).usage.output_tokens == 5


async def test_rate_limit_and_size(serve: Serve) -> None:
    daemon = await serve(max_sessions=1, capacity_policy="refuse", body_limit=4096)
    await daemon.chat(session_id="holder")
    async with client_of(daemon) as client:
        with pytest.raises(anthropic.RateLimitError):
            await client.messages.create(
                model="any", max_tokens=5, messages=MESSAGES, extra_headers={"X-LLM-Session-Id": "x"}
            )
        with pytest.raises(anthropic.APIStatusError) as caught:
            await client.messages.create(model="any", max_tokens=5, messages=[{"role": "user", "content": "x" * 5000}])
    assert caught.value.status_code == 413 and str(caught.value.type) == "request_too_large"


async def test_server_error_and_stream_error(serve: Serve) -> None:
    daemon = await serve(model="sim:dense,fail_every=3")
    async with client_of(daemon) as client:
        with pytest.raises(anthropic.InternalServerError):
            await client.messages.create(model="any", max_tokens=50, messages=MESSAGES)
        stream = await client.messages.create(model="any", max_tokens=50, messages=MESSAGES, stream=True)
        with pytest.raises(anthropic.APIStatusError) as caught:
            async for _ in stream:
                pass
    assert caught.value.type == "api_error"
