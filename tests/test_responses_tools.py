"""Responses with reasoning, tool calls and output formats, in tool loops of agents. The simulated model generates the
text of its script.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pydantic
import pytest

from tests.calling import calling
from tests.conftest import Serve
from tests.responses import MESSAGE_NAMES, deltas, names, respond, stream
from tests.serving import Daemon, Json

PATCH = '*** Begin\n+"é"'
PATCHING = {"name": "edit__patch", "arguments": {"input": PATCH}}
TOOLS: list[Json] = [
    {"type": "web_search"},
    {"type": "function", "name": "read", "description": "Reads a file", "strict": False,
     "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}},
    {"type": "namespace", "name": "edit", "description": "Edits.", "tools": [
        {"type": "custom", "name": "patch", "description": "Changes a file", "format": {"type": "text"}}]},
]  # fmt: skip


RIGHT = '*** Begin\n+a "b\\"'
GRAMMAR = 'start: "*** Begin" LF "+" /.+/\n%import common.LF'


def custom(definition: str, syntax: str = "lark") -> Json:
    form = {"type": "grammar", "syntax": syntax, "definition": definition}
    return {"tools": [{"type": "custom", "name": "patch", "format": form}], "tool_choice": "required"}


def called(name: str, arguments: Json) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


REPLIES = {
    "look into a": "<think>\nwhich one?\n</think>\n\nI look.\n" + called("read", {"path": "a.txt"}),
    "the text of a": "<think>\nit is wrong\n</think>\n\n" + called("edit__patch", {"input": PATCH}),
    "patched": "<think>\ndone\n</think>\n\nIt is mended.",
    "both of them": called("read", {"path": "b"}) + "\n" + called("read", {"path": "c"}),
    "right patch": called("patch", {"input": RIGHT}),
    "a number": '{"number": 7}',
    "weather in Paris": called("Weather", {"city": "Paris"}),
}
CALL_NAMES = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"]
CUSTOM_NAMES = [
    "output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done", "output_item.done",
]  # fmt: skip
SUMMARY_NAMES = [
    "output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta", "reasoning_summary_text.done",
    "reasoning_summary_part.done", "output_item.done",
]  # fmt: skip
ASKED: Json = {
    "tools": TOOLS, "max_output_tokens": None, "ignore_eos": False, "reasoning": {"summary": "auto"},
    "include": ["reasoning.encrypted_content"], "store": False, "session_id": "s", "instructions": "You mend files.",
}  # fmt: skip


@pytest.fixture
async def scripted(serve: Serve, tmp_path: Path) -> Daemon:
    return await serve(**calling(tmp_path, REPLIES))


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def done(events: list[Json]) -> list[Json]:
    return [event["item"] for event in events if event["type"] == "response.output_item.done"]


def output_of(item: Json, text: str) -> Json:
    return {"type": item["type"] + "_output", "call_id": item["call_id"], "output": text}


async def test_a_loop_of_an_agent_stays_warm(scripted: Daemon) -> None:
    """Each turn sends the whole history, as codex does: without ids, and with reasoning only as encrypted_content."""
    history = [user("look into a")]
    events = await stream(scripted, history, **ASKED)
    assert names(events) == ["created", "in_progress", *SUMMARY_NAMES, *MESSAGE_NAMES, *CALL_NAMES, "completed"]
    reasoning, message, call = done(events)
    assert reasoning["summary"][0]["text"].strip() == "which one?" and message["content"][0]["text"] == "I look."
    assert (call["name"], json.loads(call["arguments"])) == ("read", {"path": "a.txt"})
    assert deltas(events, call["id"]) == call["arguments"]
    usage = events[-1]["response"]["usage"]
    assert usage["output_tokens_details"]["reasoning_tokens"] > 0

    history += [*_as_codex_echoes(done(events)), output_of(call, "the text of a")]
    events = await stream(scripted, history, **ASKED)
    assert names(events) == ["created", "in_progress", *SUMMARY_NAMES, *CUSTOM_NAMES, "completed"]
    _, patch = done(events)
    assert (patch["type"], patch["namespace"], patch["name"], patch["input"]) == (
        "custom_tool_call", "edit", "patch", PATCH,
    )  # fmt: skip
    assert deltas(events, patch["id"]) == PATCH
    _prefilled_little(events[-1]["response"], usage)

    usage = events[-1]["response"]["usage"]
    history += [*_as_codex_echoes(done(events)), output_of(patch, "patched")]
    events = await stream(scripted, history, **ASKED)
    assert done(events)[-1]["content"][0]["text"] == "It is mended."
    _prefilled_little(events[-1]["response"], usage)


def _as_codex_echoes(items: list[Json]) -> list[Json]:
    def is_kept(item: Json, name: str) -> bool:
        return name != "id" and (item["type"], name) != ("reasoning", "content")

    return [{name: value for name, value in item.items() if is_kept(item, name)} for item in items]


def _prefilled_little(response: Json, before: Json) -> None:
    """Checks that only new tokens were prefilled: the tool's result, and the template's text around it."""
    n_new = response["usage"]["input_tokens"] - before["total_tokens"]
    assert response["session"]["session_reset_reason"] == "exact_prefix"
    assert response["session"]["prefilled_prompt_tokens"] <= n_new + 32


@pytest.mark.parametrize(
    "asked",
    [
        custom(GRAMMAR),
        custom(r"\*{3} Begin\n\+.*", "regex"),
        custom(GRAMMAR + '\n%ignore " "'),
    ],
)
async def test_a_custom_tool_has_a_grammar(scripted: Daemon, asked: Json) -> None:
    """A grammar can have a part that cannot be enforced."""
    response = await respond(scripted, [user("right patch")], **asked, ignore_eos=False, max_output_tokens=None)
    assert [(item["type"], item["input"]) for item in response["output"]] == [("custom_tool_call", RIGHT)]


async def test_a_call_is_kept_to_the_grammar_of_its_tool(scripted: Daemon) -> None:
    """The script of the model has another text, which the grammar does not allow."""
    asked = custom('start: "*** " ("End" | "Stop")')
    response = await respond(scripted, [user("right patch")], **asked, ignore_eos=False, max_output_tokens=200)
    said = json.dumps(response["output"])
    assert "*** Begin" not in said and ("*** End" in said or "*** Stop" in said)


async def test_what_is_no_grammar_is_refused(scripted: Daemon) -> None:
    for definition, syntax, why in (
        ("start: missing", "lark", "missing"),
        ("start: (", "lark", "line 1"),
        ("a)", "regex", ")"),
    ):
        answer = await scripted.refused({"input": "right patch", **custom(definition, syntax)}, "/v1/responses")
        assert answer.status == 400, answer.body
        error = answer.error
        assert error["param"] == "tools" and "the grammar of patch" in error["message"] and why in error["message"]


async def test_a_loop_by_previous_responses(scripted: Daemon) -> None:
    asked = {**ASKED, "store": True, "session_id": None}
    first = await respond(scripted, [user("look into a")], **asked)
    call = first["output"][-1]
    second = await respond(scripted, [output_of(call, "the text of a")], previous_response_id=first["id"], **asked)
    patch = second["output"][-1]
    assert patch["input"] == PATCH
    third = await respond(scripted, [output_of(patch, "patched")], previous_response_id=second["id"], **asked)
    assert third["output"][-1]["content"][0]["text"] == "It is mended."
    references = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
    history = [user("look into a"), *references, output_of(call, "the text of a")]
    assert (await respond(scripted, history, **asked))["output"][-1]["input"] == PATCH


async def test_several_calls_in_one_answer(scripted: Daemon) -> None:
    events = await stream(scripted, [user("both of them")], **ASKED)
    assert names(events) == ["created", "in_progress", *CALL_NAMES, *CALL_NAMES, "completed"]
    calls = done(events)
    assert [json.loads(call["arguments"])["path"] for call in calls] == ["b", "c"]
    assert len({call["call_id"] for call in calls}) == 2


async def test_a_conversation_with_calls_goes_on_over_chat(scripted: Daemon) -> None:
    """Both dialects make the same messages from the conversation."""
    response = await respond(scripted, [user("look into a")], **ASKED)
    call = response["output"][-1]
    function = {name: TOOLS[1][name] for name in ("name", "description", "parameters")}
    patch: Json = {"name": "edit__patch", "description": "Changes a file", "parameters": {
        "type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"],
        "additionalProperties": False}}  # fmt: skip
    messages: list[Json] = [
        {"role": "system", "content": "You mend files."},
        user("look into a"),
        {"role": "assistant", "content": "I look.", "tool_calls": [
            {"id": call["call_id"], "type": "function",
             "function": {"name": "read", "arguments": '{"path":"a.txt"}'}}]},
        {"role": "tool", "tool_call_id": call["call_id"], "content": "the text of a"},
    ]  # fmt: skip
    answer = await scripted.chat(
        messages=messages, tools=[{"type": "function", "function": one} for one in (function, patch)],
        session_id="s", max_tokens=None, ignore_eos=False, temperature=0,
    )  # fmt: skip
    [made] = answer["choices"][0]["message"]["tool_calls"]
    assert made["function"]["name"] == "edit__patch"
    assert answer["session"]["session_reset_reason"] == "exact_prefix"
    n_new = answer["usage"]["prompt_tokens"] - response["usage"]["total_tokens"]
    assert answer["session"]["prefilled_prompt_tokens"] <= n_new + 32


async def test_reasoning_as_it_is(scripted: Daemon) -> None:
    fields = {**ASKED, "reasoning": None, "include": None}
    reasoning = (await respond(scripted, [user("look into a")], **fields))["output"][0]
    assert reasoning["content"][0]["text"].strip() == "which one?" and reasoning["summary"] == []


# --- the official client ---------------------------------------------------------------------------------------------


class Found(pydantic.BaseModel):
    number: int


class Weather(pydantic.BaseModel):
    city: str


@pytest.fixture
async def client(scripted: Daemon) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{scripted.url}/v1", api_key="none", max_retries=0) as client:
        yield client


async def test_a_parsed_answer(client: openai.AsyncOpenAI) -> None:
    response = await client.responses.parse(model="any", input="a number", text_format=Found, temperature=0)
    assert response.output_parsed == Found(number=7)
    async with client.responses.stream(model="any", input="a number", text_format=Found, temperature=0) as events:
        parsed = [event.parsed async for event in events if event.type == "response.output_text.done"]
        assert (await events.get_final_response()).output_parsed == parsed[0] == Found(number=7)


async def test_a_parsed_call(client: openai.AsyncOpenAI) -> None:
    tool: Any = openai.pydantic_function_tool(Weather)
    tool = {"type": "function", **tool["function"]}
    async with client.responses.stream(model="any", input="weather in Paris", tools=[tool], temperature=0) as events:
        snapshots = [event.snapshot async for event in events
                     if event.type == "response.function_call_arguments.delta"]  # fmt: skip
        response = await events.get_final_response()
    [call] = response.output
    assert call.type == "function_call" and call.name == "Weather" and call.arguments == snapshots[-1]
    assert json.loads(call.arguments) == {"city": "Paris"}


async def test_a_loop_of_the_client(client: openai.AsyncOpenAI) -> None:
    """The items are sent back as the client received them."""
    history: list[Any] = [user("look into a")]
    tools: Any = TOOLS
    fields: dict[str, Any] = {"model": "any", "tools": tools, "temperature": 0, "reasoning": {"summary": "auto"}}
    for result in ("the text of a", "patched"):
        response = await client.responses.create(input=history, **fields)
        made = response.output[-1]
        assert made.type in ("function_call", "custom_tool_call")
        history += [*response.output, {"type": f"{made.type}_output", "call_id": made.call_id, "output": result}]
    assert (await client.responses.create(input=history, **fields)).output_text == "It is mended."
