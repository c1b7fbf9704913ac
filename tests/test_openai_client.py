"""OpenAI's own client, unmodified: answers, streams, and its error classes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pydantic
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.calling import calling
from tests.conftest import Serve
from tests.serving import Daemon
from tests.test_access import key_file

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]


@pytest.fixture
async def client(daemon: Daemon) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{daemon.url}/v1", api_key="none", max_retries=0) as client:
        yield client


async def test_answer(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model="any",
        messages=MESSAGES,
        max_tokens=5,
        extra_body={"ignore_eos": True},
    )
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None and answer.usage.completion_tokens == 5
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


async def test_stream(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="any",
        messages=MESSAGES,
        max_tokens=5,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"session_id": "from-the-client", "ignore_eos": True},
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 5
    assert chunks[-1].model_extra is not None
    assert chunks[-1].model_extra["session"]["id"] == "from-the-client"


async def test_completion(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(model="any", prompt="once", max_tokens=3, seed=1)
    assert answer.choices[0].text and answer.usage is not None and answer.usage.completion_tokens == 3


async def test_log_probabilities(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model="any", messages=MESSAGES, max_tokens=5, temperature=0, logprobs=True, top_logprobs=2, n=2,
        extra_body={"ignore_eos": True},
    )  # fmt: skip
    assert [choice.index for choice in answer.choices] == [0, 1]
    for choice in answer.choices:
        assert choice.logprobs is not None and choice.logprobs.content is not None
        assert "".join(one.token for one in choice.logprobs.content) == choice.message.content
        assert all(one.top_logprobs[0].logprob == one.logprob <= 0 for one in choice.logprobs.content)
        assert [len(one.top_logprobs) for one in choice.logprobs.content] == [2] * 5
        assert all(bytes(one.bytes or []).decode() == one.token for one in choice.logprobs.content)
    raw = await client.completions.create(model="any", prompt="once", max_tokens=5, logprobs=2, best_of=3, seed=1)
    (only,) = raw.choices
    assert only.logprobs is not None and only.logprobs.tokens is not None and only.logprobs.text_offset is not None
    assert "".join(only.logprobs.tokens) == only.text and raw.usage is not None and raw.usage.completion_tokens == 15
    for begin, token in zip(only.logprobs.text_offset, only.logprobs.tokens, strict=True):
        assert only.text[begin:].startswith(token)


async def test_log_probabilities_in_a_stream(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="any", messages=MESSAGES, max_tokens=5, logprobs=True, top_logprobs=1, n=2, stream=True, seed=1,
        stream_options={"include_usage": True}, extra_body={"ignore_eos": True},
    )  # fmt: skip
    texts, tokens = ["", ""], ["", ""]
    async for chunk in stream:
        for choice in chunk.choices:
            told = choice.logprobs.content if choice.logprobs is not None else None
            texts[choice.index] += choice.delta.content or ""
            tokens[choice.index] += "".join(one.token for one in told or [])
    assert tokens == texts and all(texts) and texts[0] != texts[1]
    assert chunk.usage is not None and chunk.usage.completion_tokens == 10


async def test_models(client: openai.AsyncOpenAI, daemon: Daemon) -> None:
    models = await client.models.list()
    assert [model.id for model in models.data] == [daemon.state.model_id]
    assert (await client.models.retrieve(daemon.state.model_id)).owned_by == "llmd"
    assert (await client.models.retrieve("Another/one")).id == daemon.state.model_id


async def test_error_classes(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model="any", messages=MESSAGES, modalities=["text", "audio"])
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "modalities")
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model="any", messages=[{"role": "user", "content": "x " * 5000}])
    assert caught.value.code == "context_length_exceeded"


async def test_authentication_error(serve: Serve, tmp_path: Path) -> None:
    daemon = await serve(api_key_file=key_file(tmp_path))
    async with openai.AsyncOpenAI(base_url=f"{daemon.url}/v1", api_key="wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError):
            await client.models.list()


async def test_rate_limit_error(serve: Serve) -> None:
    daemon = await serve(max_sessions=1, capacity_policy="refuse")
    await daemon.chat(session_id="holder")
    async with openai.AsyncOpenAI(base_url=daemon.url, api_key="none", max_retries=0) as client:
        with pytest.raises(openai.RateLimitError) as caught:
            await client.chat.completions.create(
                model="any",
                messages=MESSAGES,
                stream=True,
                extra_headers={"X-LLM-Session-Id": "x"},
            )
    assert caught.value.code == "capacity_exhausted"


async def test_server_error_and_stream_error(serve: Serve) -> None:
    daemon = await serve(model="sim:dense,fail_every=3")
    async with openai.AsyncOpenAI(base_url=daemon.url, api_key="none", max_retries=0) as client:
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(model="any", messages=MESSAGES)
        stream = await client.chat.completions.create(model="any", messages=MESSAGES, stream=True)
        with pytest.raises(openai.APIError) as caught:
            async for _ in stream:
                pass
    assert caught.value.code == "step_failed"


# --- tools, thoughts and forms: the model says what its script tells it ----------------------------------------------

REPLIES = {
    "How is it": "<think>\na city\n</think>\n\n"
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>',
    "seven": '{"number": 7}',
}


class Weather(pydantic.BaseModel):
    """Tells the weather of a city."""

    city: str


class Found(pydantic.BaseModel):
    number: int


WEATHER = openai.pydantic_function_tool(Weather, name="weather")
ABOUT_PARIS: list[ChatCompletionMessageParam] = [{"role": "user", "content": "How is it in Paris?"}]


@pytest.fixture
async def scripted(serve: Serve, tmp_path: Path) -> AsyncIterator[openai.AsyncOpenAI]:
    daemon = await serve(**calling(tmp_path, REPLIES))
    async with openai.AsyncOpenAI(base_url=f"{daemon.url}/v1", api_key="none", max_retries=0) as client:
        yield client


async def test_a_tool_call(scripted: openai.AsyncOpenAI) -> None:
    answer = await scripted.chat.completions.create(model="any", messages=ABOUT_PARIS, tools=[WEATHER], temperature=0)
    [choice] = answer.choices
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    assert choice.message.tool_calls is not None
    [call] = choice.message.tool_calls
    assert call.type == "function" and call.function.name == "weather"
    assert call.function.arguments == '{"city": "Paris"}'
    assert choice.message.model_extra is not None
    assert choice.message.model_extra["reasoning_content"] == "a city"
    assert answer.usage is not None and answer.usage.completion_tokens_details is not None
    assert answer.usage.completion_tokens_details.reasoning_tokens
    result: ChatCompletionMessageParam = {"role": "tool", "tool_call_id": call.id, "content": "seven"}
    said = choice.message.to_dict()
    messages: list[Any] = [*ABOUT_PARIS, said, result]
    following = await scripted.chat.completions.create(model="any", messages=messages, tools=[WEATHER], temperature=0)
    assert following.choices[0].message.content == '{"number": 7}'


async def test_a_streamed_tool_call(scripted: openai.AsyncOpenAI) -> None:
    """The client assembles the call from the stream."""
    async with scripted.chat.completions.stream(
        model="any", messages=ABOUT_PARIS, tools=[WEATHER], temperature=0
    ) as stream:
        events = [event async for event in stream]
        answer = await stream.get_final_completion()
    done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert [(event.name, event.arguments) for event in done] == [("weather", '{"city": "Paris"}')]
    [choice] = answer.choices
    assert choice.finish_reason == "tool_calls" and choice.message.tool_calls
    assert choice.message.tool_calls[0].function.parsed_arguments == Weather(city="Paris")


async def test_a_parsed_answer(scripted: openai.AsyncOpenAI) -> None:
    answer = await scripted.chat.completions.parse(
        model="any", messages=[{"role": "user", "content": "seven"}], response_format=Found, temperature=0
    )
    assert answer.choices[0].message.parsed == Found(number=7)


async def test_functions(scripted: openai.AsyncOpenAI) -> None:
    function: Any = WEATHER["function"]
    answer = await scripted.chat.completions.create(
        model="any", messages=ABOUT_PARIS, functions=[function], function_call="auto", temperature=0
    )
    [choice] = answer.choices
    assert choice.finish_reason == "function_call" and choice.message.function_call is not None
    assert choice.message.function_call.arguments == '{"city": "Paris"}'
