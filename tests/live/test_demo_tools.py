"""The embedded model with the official client: it calls the tool that is offered, uses the tool's result, and follows a
schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

import openai
import pydantic
import pytest
from openai.types.chat import ChatCompletionMessageParam

from llmd.process.config_table import DEMO_MODEL
from tests.live.daemon import Daemons


class Weather(pydantic.BaseModel):
    """The weather of a city"""

    city: str


class Picked(pydantic.BaseModel):
    city: Literal["Paris", "London"]


WEATHER = openai.pydantic_function_tool(Weather, name="get_weather")
ASKED: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is the weather in Paris?"}]


@pytest.fixture
def client(daemons: Daemons) -> Iterator[openai.OpenAI]:
    process = daemons.start(str(DEMO_MODEL))
    with openai.OpenAI(base_url=f"{process.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_a_loop(client: openai.OpenAI) -> None:
    """The model calls a tool, gets its result and answers. The second request prefills only what is new."""
    session: Any = {"session_id": "loop"}
    first = client.chat.completions.create(
        model="any", messages=ASKED, tools=[WEATHER], temperature=0, extra_body=session
    )
    [choice] = first.choices
    assert choice.finish_reason == "tool_calls" and choice.message.tool_calls
    [call] = choice.message.tool_calls
    assert call.type == "function" and call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    result: Any = {"role": "tool", "tool_call_id": call.id, "content": '{"weather": "sunny"}'}
    messages: list[Any] = [*ASKED, choice.message.to_dict(), result]
    second = client.chat.completions.create(
        model="any", messages=messages, tools=[WEATHER], temperature=0, max_tokens=60, extra_body=session
    )
    assert second.choices[0].message.content
    assert first.usage is not None and second.usage is not None and second.usage.prompt_tokens_details is not None
    assert (second.usage.prompt_tokens_details.cached_tokens or 0) >= first.usage.total_tokens - 1


def test_a_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="any", messages=ASKED, tools=[WEATHER], temperature=0) as stream:
        kinds = [event.type for event in stream]
        answer = stream.get_final_completion()
    assert kinds.count("tool_calls.function.arguments.done") == 1
    assert kinds.count("tool_calls.function.arguments.delta") >= 1  # drafts can bring all arguments in one step
    [choice] = answer.choices
    assert choice.finish_reason == "tool_calls" and choice.message.tool_calls
    assert choice.message.tool_calls[0].function.parsed_arguments == Weather(city="Paris")


def test_a_call_that_is_required(client: openai.OpenAI) -> None:
    """The model calls a tool, whatever the user wrote."""
    answer = client.chat.completions.create(
        model="any", messages=[{"role": "user", "content": "Hello!"}], tools=[WEATHER], tool_choice="required",
        temperature=0, max_tokens=200,
    )  # fmt: skip
    assert answer.choices[0].message.tool_calls


def test_a_form(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(
        model="any", messages=ASKED, response_format=Picked, temperature=0, max_tokens=200
    )
    assert isinstance(answer.choices[0].message.parsed, Picked)
