"""Tool loops with the official clients, unmodified: question, call, result, answer, streamed and not.

The chat templates are those of real models, which `./build.sh test` links at build/llama.cpp. The model is simulated,
and generates the text that the real model would generate. Arguments contain quotes and a line end, as source code does.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic
import ollama
import openai
import pytest

from tests.conftest import Serve
from tests.serving import Daemon, Json

TEMPLATES = Path(__file__).parents[1] / "build/llama.cpp/models/templates"
QUESTION, RESULT = "How is the weather there?", "It has 21 degrees."
CITY = 'Paris "Nord",\n  France'
ARGUMENTS: Json = {"city": CITY, "days": 3}
THOUGHT, REMARK, ANSWER = "I should ask.", "Let me look.", "Go out!"
PARAMETERS: Json = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
}
NAME, DESCRIPTION = "get_weather", "Tells the weather of a city"
FUNCTION: Json = {"name": NAME, "description": DESCRIPTION, "parameters": PARAMETERS}


@dataclass(frozen=True)
class Family:
    template: str
    call: str
    """Text that the model generates after the question, without the end of the turn."""
    answer: str
    """Text that the model generates after the tool's result."""
    thinks: bool = True


def tagged(before: str, parameter: str, after: str) -> str:
    return before + "".join(parameter.format(name=name, value=value) for name, value in ARGUMENTS.items()) + after


FAMILIES = {
    "Qwen3.5": Family(
        "Qwen3.5-4B",
        f"{THOUGHT}\n</think>\n\n{REMARK}\n\n"
        + tagged(
            f"<tool_call>\n<function={NAME}>\n",
            "<parameter={name}>\n{value}\n</parameter>\n",
            "</function>\n</tool_call>",
        ),
        f"{THOUGHT}\n</think>\n\n{ANSWER}",
    ),
    "Qwen3-Coder": Family(
        "Qwen3-Coder",
        f"{REMARK}\n\n"
        + tagged(
            f"<tool_call>\n<function={NAME}>\n",
            "<parameter={name}>\n{value}\n</parameter>\n",
            "</function>\n</tool_call>",
        ),
        ANSWER,
        thinks=False,
    ),
    "GLM 4.6": Family(
        "GLM-4.6",
        f"\n<think>{THOUGHT}</think>\n{REMARK}\n"
        + tagged(
            f"<tool_call>{NAME}\n",
            "<arg_key>{name}</arg_key>\n<arg_value>{value}</arg_value>\n",
            "</tool_call>",
        ),
        f"\n<think>{THOUGHT}</think>\n{ANSWER}",
    ),
    "gpt-oss": Family(
        "openai-gpt-oss-120b",
        f"<|channel|>analysis<|message|>{THOUGHT}<|end|>"
        f"<|start|>assistant<|channel|>commentary<|message|>{REMARK}<|end|>"
        f"<|start|>assistant<|channel|>commentary to=functions.{NAME} <|constrain|>json<|message|>"
        + json.dumps(ARGUMENTS),
        f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>final<|message|>{ANSWER}",
    ),
    "MiniMax M2": Family(
        "MiniMax-M2",
        f"{THOUGHT}\n</think>\n\n{REMARK}\n"
        + tagged(
            f'<minimax:tool_call>\n<invoke name="{NAME}">\n',
            '<parameter name="{name}">{value}</parameter>\n',
            "</invoke>\n</minimax:tool_call>",
        ),
        f"{THOUGHT}\n</think>\n\n{ANSWER}",
    ),
    "Gemma 4": Family(
        "google-gemma-4-31B-it",
        f'{REMARK}<|tool_call>call:{NAME}{{city:<|"|>{CITY}<|"|>,days:3}}<tool_call|>',
        ANSWER,
        thinks=False,
    ),
    "DeepSeek V3.2": Family(
        "deepseek-ai-DeepSeek-V3.2",
        f"{THOUGHT}</think>{REMARK}\n\n<｜DSML｜function_calls>\n"
        f'<｜DSML｜invoke name="{NAME}">\n'
        f'<｜DSML｜parameter name="city" string="true">{CITY}</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        f"{THOUGHT}</think>{ANSWER}",
    ),
}


@dataclass(frozen=True)
class Turn:
    """An answer as the client's library presents it."""

    text: str
    thought: str
    calls: list[tuple[str, Any]]
    """Names and arguments of the calls."""
    end: str
    """The reason for the end of the turn, in the dialect's word."""
    new: list[Any]
    """Messages that the client sends back: the answer, and the results."""


def content_of(turn: Turn) -> tuple[str, str, list[tuple[str, Any]]]:
    return turn.text.strip(), turn.thought.strip(), turn.calls


# --- clients ---------------------------------------------------------------------------------------------------------

Ask = Callable[[Daemon, list[Any], bool], Awaitable[Turn]]
USER: Json = {"role": "user", "content": QUESTION}


async def chat_completions(daemon: Daemon, messages: list[Any], is_stream: bool) -> Turn:
    asked: Json = {
        "model": "any", "messages": messages, "tools": [{"type": "function", "function": FUNCTION}], "temperature": 0,
    }  # fmt: skip
    async with openai.AsyncOpenAI(base_url=f"{daemon.url}/v1", api_key="none", max_retries=0) as client:
        if is_stream:
            async with client.chat.completions.stream(**asked) as stream:
                answer: Any = await stream.get_final_completion()
        else:
            answer = await client.chat.completions.create(**asked)
    [choice] = answer.choices
    calls = choice.message.tool_calls or []
    results = [{"role": "tool", "tool_call_id": call.id, "content": RESULT} for call in calls]
    return Turn(
        choice.message.content or "",
        (choice.message.model_extra or {}).get("reasoning_content") or "",
        [(call.function.name, json.loads(call.function.arguments)) for call in calls],
        choice.finish_reason,
        [choice.message.to_dict(), *results],
    )


async def responses(daemon: Daemon, messages: list[Any], is_stream: bool) -> Turn:
    asked: Json = {
        "model": "any", "input": messages, "tools": [{"type": "function", **FUNCTION, "strict": False}],
        "temperature": 0, "reasoning": {"effort": "medium"},
    }  # fmt: skip
    async with openai.AsyncOpenAI(base_url=f"{daemon.url}/v1", api_key="none", max_retries=0) as client:
        if is_stream:
            async with client.responses.stream(**asked) as stream:
                answer: Any = await stream.get_final_response()
        else:
            answer = await client.responses.create(**asked)
    calls = [item for item in answer.output if item.type == "function_call"]
    thoughts = [part.text for item in answer.output if item.type == "reasoning" for part in item.content or []]
    results = [{"type": "function_call_output", "call_id": call.call_id, "output": RESULT} for call in calls]
    return Turn(
        answer.output_text,
        "".join(thoughts),
        [(call.name, json.loads(call.arguments)) for call in calls],
        answer.status,
        [*(item.to_dict() for item in answer.output), *results],
    )


async def messages_of_anthropic(daemon: Daemon, messages: list[Any], is_stream: bool) -> Turn:
    asked: Json = {
        "model": "any", "max_tokens": 1000, "messages": messages,
        "tools": [{"name": NAME, "description": DESCRIPTION, "input_schema": PARAMETERS}],
        "extra_body": {"temperature": 0},
    }  # fmt: skip
    async with anthropic.AsyncAnthropic(base_url=daemon.url, api_key="none", max_retries=0) as client:
        if is_stream:
            async with client.messages.stream(**asked) as stream:
                answer: Any = await stream.get_final_message()
        else:
            answer = await client.messages.create(**asked)
    calls = [block for block in answer.content if block.type == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": RESULT} for call in calls]
    return Turn(
        "".join(block.text for block in answer.content if block.type == "text"),
        "".join(block.thinking for block in answer.content if block.type == "thinking"),
        [(call.name, call.input) for call in calls],
        str(answer.stop_reason),
        [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}],
    )


async def chat_of_ollama(daemon: Daemon, messages: list[Any], is_stream: bool) -> Turn:
    async with ollama.AsyncClient(host=daemon.url) as client:
        asked: Json = {
            "model": "any", "messages": messages, "tools": [{"type": "function", "function": FUNCTION}],
            "options": {"temperature": 0}, "think": True,
        }  # fmt: skip
        parts: list[Any] = [await client.chat(**asked)] if not is_stream else []
        if is_stream:
            parts = [part async for part in await client.chat(**asked, stream=True)]
    text = "".join(part.message.content or "" for part in parts)
    thought = "".join(part.message.thinking or "" for part in parts)
    calls = [call for part in parts for call in part.message.tool_calls or []]
    answer = {"role": "assistant", "content": text, "thinking": thought, "tool_calls": calls}
    results = [{"role": "tool", "tool_name": call.function.name, "content": RESULT} for call in calls]
    return Turn(
        text,
        thought,
        [(call.function.name, dict(call.function.arguments)) for call in calls],
        parts[-1].done_reason,
        [answer, *results],
    )


CLIENTS: dict[str, tuple[Ask, str, str]] = {
    "openai chat": (chat_completions, "tool_calls", "stop"),
    "openai responses": (responses, "completed", "completed"),
    "anthropic": (messages_of_anthropic, "tool_use", "end_turn"),
    "ollama": (chat_of_ollama, "stop", "stop"),
}
"""The clients. Each has the reason with which a turn with a call ends, and the reason with which a turn with an answer
ends.
"""


@pytest.fixture
async def served(serve: Serve, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[tuple[Daemon, Family]]:
    family = FAMILIES[request.param]
    script = tmp_path / "script"
    script.write_text(f"? {QUESTION}\n{family.call}\n? {RESULT}\n{family.answer}\n")
    template = TEMPLATES / f"{family.template}.jinja"
    yield await serve(model=f"sim:hybrid,script={script}", chat_template_file=template), family


@pytest.mark.parametrize("served", FAMILIES, indirect=True)
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_loop(served: tuple[Daemon, Family], client: str) -> None:
    daemon, family = served
    ask, called, answered = CLIENTS[client]
    thought = THOUGHT if family.thinks else ""
    for is_stream in (False, True):
        first = await ask(daemon, [USER], is_stream)
        assert content_of(first) == (REMARK, thought, [(NAME, ARGUMENTS)]) and first.end == called
        second = await ask(daemon, [USER, *first.new], is_stream)
        assert content_of(second) == (ANSWER, thought, []) and second.end == answered
