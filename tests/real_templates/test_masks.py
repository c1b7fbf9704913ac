"""Mask and parser agree: the parser reads each text that the sampler's mask allows as what the request asked for."""

from __future__ import annotations

import json

import jsonschema_rs
import pytest

from tests.real_templates.conftest import Open
from tests.real_templates.driver import Answer, Json, Model, Prompt, Walk
from tests.real_templates.templates import CLOSERS, TEMPLATES, Template
from tests.real_templates.test_templates import MESSAGES

PARAMETERS: Json = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "exact": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "place": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
ANSWER: Json = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"enum": ["x", "y"]}}},
    "required": ["a"],
    "additionalProperties": False,
}


def tool(name: str, parameters: Json) -> Json:
    return {"type": "function", "function": {"name": name, "description": "Tells.", "parameters": parameters}}


TOOLS = [tool("get_weather", PARAMETERS), tool("get_time", PARAMETERS)]
STRICT: Json = {"constraint": {"kind": "json_schema", "text": json.dumps(ANSWER)}}
REQUIRED: Json = {"tools": TOOLS, "tool_choice": {"mode": "required"}}
NAMED: Json = {"tools": TOOLS, "tool_choice": {"mode": "required", "names": ["get_time"]}}
ONCE: Json = {"parallel_tool_calls": False}
REQUESTS: dict[str, Json] = {
    "auto": {"tools": TOOLS},
    "auto, once": {"tools": TOOLS} | ONCE,
    "required": REQUIRED,
    "required, once": REQUIRED | ONCE,
    "named": NAMED,
    "strict": STRICT,
    "either": STRICT | {"tools": TOOLS},
}
SEEDS = range(3)

# Families whose calls begin like any JSON, so that no text triggers a grammar.
NO_TRIGGER = {"llama"}
# The start of a call in families whose triggers are regular expressions.
CALL_BEGIN = {
    "gpt-oss": "<|channel|>commentary to=functions.get_time",
    "muse": " to=get_time<|message|>",
}

PREAMBLES = {"gpt-oss": "its grammar allows messages to the user before a call"}
# The text between reasoning and the answer in families that may reason several times.
AFTER_THOUGHT = {"gpt-oss": "<|start|>assistant"}


def names(template: Template) -> str:
    return template.name


def render(template: Template, model: Model, request: Json) -> Prompt:
    return model.render({"messages": MESSAGES, "follows_thinking": True, **request})


def thought(template: Template, prompt: Prompt) -> str:
    """Returns reasoning that continues the prompt."""
    if not template.thinks:
        return ""
    begin = "" if prompt.thinking["is_open"] else str(prompt.thinking["start"])
    return f"{begin}hm{prompt.thinking['ends'][0]}{AFTER_THOUGHT.get(template.family, '')}"


def walk(template: Template, model: Model, prompt: Prompt, text: str, seed: int) -> Walk:
    return model.walk(
        prompt.constraint,
        text=text,
        seed=seed,
        soft_bytes=60,
        max_bytes=3000,
        closers=CLOSERS.get(template.family, []),
        avoid=[prompt.thinking["start"] or " to=self<|message|>"],  # llama.cpp has no name for muse's reasoning
    )


def beginning(template: Template, model: Model, prompt: Prompt) -> str:
    """Returns the start of a walk: reasoning, if the format has it. Random reasoning could contain the family's
    delimiters.
    """
    text = thought(template, prompt)
    is_allowed = model.walk(prompt.constraint, text=text).refused_at is None
    return text if is_allowed and model.parse(prompt.syntax, text).reasoning else ""


def call_begin(template: Template, prompt: Prompt) -> str:
    assert prompt.constraint
    words = [trigger["value"] for trigger in prompt.constraint["triggers"] if trigger["type"] in ("word", "token")]
    return CALL_BEGIN.get(template.family) or str(words[0])


def check_calls(template: Template, answer: Answer, request: Json, text: str) -> None:
    assert answer.calls and (answer.content.strip() == "" or template.family in PREAMBLES), text
    assert len(answer.calls) == 1 or request.get("parallel_tool_calls") is None, text
    expected = request.get("tool_choice", {}).get("names") or ["get_weather", "get_time"]
    assert {call.name for call in answer.calls} <= set(expected), text
    for call in answer.calls:
        assert jsonschema_rs.is_valid(PARAMETERS, call.values()), (call, text)


def check(template: Template, answer: Answer, request: Json, text: str) -> None:
    if "constraint" not in request or answer.calls:
        check_calls(template, answer, request, text)
    else:
        assert jsonschema_rs.is_valid(ANSWER, json.loads(answer.content)), (answer.content, text)


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize("template", TEMPLATES, ids=names)
def test_a_random_walk_is_parsed_into_what_was_asked_for(template: Template, kind: str, opened: Open) -> None:
    request, model = REQUESTS[kind], opened(template)
    prompt = render(template, model, request)
    if prompt.constraint is None or not prompt.grammar:
        assert template.family in NO_TRIGGER and kind.startswith("auto")
        return
    begin = beginning(template, model, prompt)
    text = begin + (call_begin(template, prompt) if prompt.constraint["lazy"] else "")
    walks = [walk(template, model, prompt, text, seed) for seed in SEEDS]
    assert all(said.refused_at is None and said.holds for said in walks)
    ended = [said for said in walks if said.is_complete]  # a walk may not reach the end of a long text
    assert ended, walks
    for said in ended:
        for sizes in ([], [1], [7]):
            answer = model.parse(prompt.syntax, said.raw, pieces=sizes)
            check(template, answer, request, said.text)
            assert answer.reasoning.strip() == ("hm" if begin else "") or template.family in AFTER_THOUGHT, said.text
