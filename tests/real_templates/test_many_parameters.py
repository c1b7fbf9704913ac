"""Requests with as many tools and parameters as agents have, and with more."""

from __future__ import annotations

import json

import pytest

from tests.real_templates.conftest import Open
from tests.real_templates.driver import DriverError, Json
from tests.real_templates.templates import BY_NAME
from tests.real_templates.test_masks import tool
from tests.real_templates.test_templates import MESSAGES

TYPES: list[Json] = [
    {"type": "string", "description": "What to look for, as it is written in the list of all things."},
    {"type": "integer"},
    {"type": "boolean"},
    {"type": "array", "items": {"type": "string"}},
    {"type": "string", "enum": ["a", "b", "c"]},
    {"type": "object", "properties": {"x": {"type": "number"}}},
]


def tools(n: int, n_parameters: int) -> list[Json]:
    properties = {f"param_{i}": TYPES[i % len(TYPES)] for i in range(n_parameters)}
    required = [f"param_{i}" for i in range(0, n_parameters, 4)]
    schema = {"type": "object", "properties": properties, "required": required}
    return [tool(f"tool_number_{i}", schema) for i in range(n)]


@pytest.mark.parametrize(
    ("name", "n", "n_parameters"),
    [
        ("GLM-4.6", 150, 20),
        ("Qwen3.5-4B", 150, 20),
        ("openai-gpt-oss-120b", 150, 20),
        ("LFM2-8B-A1B", 150, 20),
        ("deepseek-ai-DeepSeek-V3.2", 150, 20),
        ("IFM-K2-Horizon", 2, 100),
        ("Kimi-K3", 2, 100),
    ],
)
def test_calls_of_many_tools_are_constrained(name: str, n: int, n_parameters: int, opened: Open) -> None:
    prompt = opened(BY_NAME[name]).render({"messages": MESSAGES, "tools": tools(n, n_parameters)})
    assert f"tool_number_{n - 1}" in prompt.grammar and f"param_{n_parameters - 1}" in prompt.grammar
    assert len(prompt.syntax) < 1024 * n * n_parameters, "it is parsed again for each answer"


def test_tools_beyond_the_limit_take_any_arguments(opened: Open) -> None:
    model = opened(BY_NAME["GLM-4.6"])
    prompt = model.render({"messages": MESSAGES, "tools": tools(25, 250)})
    said = "<tool_call>tool_number_{}\n<arg_key>param_1</arg_key>\n<arg_value>{}</arg_value>\n</tool_call>"
    assert model.parse(prompt.syntax, said.format(24, 7)).calls[0].values() == {"param_1": 7}
    assert model.walk(prompt.constraint, text=said.format(24, "x")).refused_at is None
    assert model.walk(prompt.constraint, text=said.format(0, "x")).refused_at is not None


def past_calls(n: int, n_members: int) -> list[Json]:
    arguments = json.dumps({f"k{i}": 1 for i in range(n_members)})
    call = {"id": "call00001", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return [{"role": "assistant", "content": "", "tool_calls": [call]} for _ in range(n)]


def test_past_arguments_of_too_many_members_stay_a_text(opened: Open) -> None:
    """The time to parse arguments grows with the square of their number. A call with 20,000 members took 2 s, one with
    100,000 took 25 times as long.
    """
    model = opened(BY_NAME["Qwen3-Coder"])
    text = model.render({"messages": [*MESSAGES, *past_calls(1, 4096)]}).text
    assert "<parameter=k0>" in text and "<parameter=k4095>" in text
    text = model.render({"messages": [*MESSAGES, *past_calls(1, 4097)]}).text
    assert "<parameter=k0>" not in text and '<parameter=arguments>\n{"k0": 1, "k1": 1' in text
    with pytest.raises(DriverError, match="objects in all arguments of tool calls together have too many members"):
        model.render({"messages": [*MESSAGES, *past_calls(13, 4096)]})


@pytest.mark.parametrize("name", ["MiniMax-M2", "MiniMax-M3", "llm-jp-llm-jp-4.1-8b-thinking"])
def test_a_tool_of_many_members_fits_in_every_attempt(name: str, opened: Open) -> None:
    """These templates take more than four attempts here, and each attempt parses the request."""
    offered = tools(1, 1)
    offered[0]["function"]["parameters"]["$defs"] = {f"n{i}": True for i in range(4090)}
    answer = past_calls(1, 1)[0] | {"content": "Two calls."}
    answer["tool_calls"] = [{**answer["tool_calls"][0], "id": name} for name in ("call-1", "call-2")]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "r"} for call in answer["tool_calls"]]
    messages = [*MESSAGES, answer, *results, {"role": "system", "content": "Be brief."}]
    after = {"message": len(MESSAGES), "tokens": [5, 6, 7]}
    assert opened(BY_NAME[name]).render({"messages": messages, "tools": offered, "after": after}).text
