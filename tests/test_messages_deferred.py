"""Tools with defer_loading: the definition is shown once, where the history first names the tool, and the tool can be
called from there on. The beginning of the prompt and the session's kept tokens do not change.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llmd.answers.digest import digests_of
from llmd.core.generation_request import PlainMessage, ToolChoice
from llmd.pipeline.history import in_order
from tests.calling import calling
from tests.conftest import Serve
from tests.serving import Daemon, Json
from tests.test_messages_reader import CACHED, USER, prompt, refusal, result, text, use

SCHEMA: Json = {"type": "object", "properties": {"query": {"type": "string"}}}
SEARCH: Json = {"name": "ToolSearch", "description": "finds tools", "input_schema": SCHEMA}
WEB: Json = {"name": "WebSearch", "description": 'a "web"', "input_schema": SCHEMA, "defer_loading": True}
FETCH: Json = {"name": "WebFetch", "input_schema": SCHEMA, "defer_loading": True}
PLACEHOLDER: Json = {
    "name": "DeferredToolPlaceholder", "description": "never call this tool", "input_schema": {"type": "object"},
    "defer_loading": True,
}  # fmt: skip
TOOLS = [WEB, SEARCH, FETCH, PLACEHOLDER]
DEFINITION = json.dumps(
    {"description": WEB["description"], "name": "WebSearch", "parameters": SCHEMA}, separators=(",", ":")
)
TOLD = f"<functions>\n<function>{DEFINITION}</function>\n</functions>"


def reference(name: str, **more: Any) -> Json:
    return {"type": "tool_reference", "tool_name": name, **more}


def searched(*found: Json, id: str = "a") -> list[Json]:
    answer = {"role": "assistant", "content": [use(id, "ToolSearch", query="select:WebSearch")]}
    return [answer, {"role": "user", "content": [result(id, list(found))]}]


def results_of(messages: list[PlainMessage]) -> list[str]:
    return [message.content for message in messages if message.role == "tool"]


def test_what_is_deferred_is_no_tool_until_it_is_named() -> None:
    assert [tool.name for tool in prompt(tools=TOOLS).tools] == ["ToolSearch"]
    found = prompt(tools=TOOLS, messages=[USER, *searched(reference("WebSearch"))])
    assert [(tool.name, tool.is_deferred) for tool in found.tools] == [("WebSearch", True), ("ToolSearch", False)]
    assert results_of(found.messages) == [TOLD]


def test_definitions_are_told_once() -> None:
    marked = searched(reference("WebSearch", **CACHED))
    again = searched(text("two:"), reference("WebSearch"), reference("WebFetch"), reference("nothing"), id="b")
    found = prompt(tools=TOOLS, messages=[USER, *marked, *again]).messages
    fetch = '{"description":"","name":"WebFetch","parameters":' + json.dumps(SCHEMA, separators=(",", ":")) + "}"
    told = f"two:\nWebSearch\n<functions>\n<function>{fetch}</function>\n</functions>\nnothing"
    assert results_of(found) == [TOLD, told]
    assert found[2].marks == (len(TOLD),)
    both = prompt(tools=TOOLS, messages=[USER, *searched(reference("WebSearch"), reference("WebFetch"))]).messages
    assert results_of(both) == [
        f"<functions>\n<function>{DEFINITION}</function>\n<function>{fetch}</function>\n</functions>"
    ]


def test_tools_that_are_loaded_anyway_are_named() -> None:
    assert results_of(prompt(tools=[SEARCH], messages=[USER, *searched(reference("ToolSearch"))]).messages) == [
        "ToolSearch"
    ]


@pytest.mark.parametrize("order", [1, -1])
def test_results_in_any_order_tell_the_same(order: int) -> None:
    answer = {"role": "assistant", "content": [use("a", "ToolSearch"), use("b", "ToolSearch")]}
    results = [result("a", [reference("WebSearch")]), result("b", [reference("WebSearch")])][::order]
    found = in_order(prompt(tools=TOOLS, messages=[USER, answer, {"role": "user", "content": results}]).messages)
    assert results_of(found) == [TOLD, "WebSearch"]


def test_the_past_is_the_same_when_a_tool_is_loaded() -> None:
    before, after = (
        prompt(tools=tools, messages=[USER, *searched(reference("WebSearch"))[:n]])
        for tools, n in (([SEARCH, PLACEHOLDER], 1), (TOOLS, 2))
    )
    known = digests_of(before.messages, before.tools)
    assert digests_of(after.messages, after.tools)[: len(known)] == known
    assert digests_of(before.messages, ()) != known


def test_a_choice_of_what_is_not_loaded_is_refused() -> None:
    choice = {"type": "tool", "name": "WebSearch"}
    error = refusal(tools=TOOLS, tool_choice=choice)
    assert error.param == "tool_choice" and "defer_loading" in error.message
    loaded = [USER, *searched(reference("WebSearch"))]
    assert prompt(tools=TOOLS, tool_choice=choice, messages=loaded).tool_choice == ToolChoice(
        "required", ("WebSearch",)
    )
    assert refusal(tools=[WEB], tool_choice={"type": "any"}).param == "tool_choice"


# --- changes by the system -------------------------------------------------------------------------------------------


def change(kind: str, name: str, **more: Any) -> Json:
    return {"role": "system", "content": [{"type": kind, "tool": {"type": "tool_reference", "name": name}, **more}]}


def test_additions_and_removals() -> None:
    turns = [USER, change("tool_addition", "WebSearch"), change("tool_removal", "ToolSearch"), USER]
    found = prompt(tools=TOOLS, messages=turns)
    assert [message.content for message in found.messages[1:3]] == [
        TOLD, "The function ToolSearch can no longer be called.",
    ]  # fmt: skip
    assert [tool.name for tool in found.tools] == ["WebSearch", "ToolSearch"], "it stays rendered"
    assert found.tool_choice == ToolChoice("auto", ("WebSearch",))
    gone = prompt(tools=TOOLS, messages=[*turns, change("tool_removal", "WebSearch"), USER])
    assert [tool.name for tool in gone.tools] == ["ToolSearch"] and gone.tool_choice.mode == "none"
    back = prompt(tools=TOOLS, messages=[*turns, change("tool_addition", "ToolSearch"), USER])
    assert back.messages[4].content == "The function ToolSearch can be called."
    assert back.tool_choice == ToolChoice()
    assert (
        refusal(tools=TOOLS, messages=turns, tool_choice={"type": "tool", "name": "ToolSearch"}).param == "tool_choice"
    )


def test_tools_of_a_message_that_is_cleared_stay() -> None:
    turn = change("tool_addition", "WebSearch") | {"clear_at": "next_user_message"}
    turn["content"].append(text("hurry"))
    found = prompt(tools=TOOLS, messages=[USER, turn, USER])
    assert found.messages[1].content == TOLD and len(found.tools) == 2


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        (None, "tool"),
        ({"type": "tool_reference", "name": "nothing"}, "tool"),
        ({"type": "tool_reference"}, "tool.name"),
        ({"type": "tool_definition", "definition": WEB}, "tool"),
        ({"type": "mcp_toolset_reference", "server_name": "x"}, "tool"),
    ],
)
def test_changes_that_cannot_be_made_are_refused(tool: Any, param: str) -> None:
    turn = {"role": "system", "content": [text("now"), {"type": "tool_addition", "tool": tool}]}
    assert refusal(tools=TOOLS, messages=[USER, turn]).param == f"messages[1].content[1].{param}"


# --- a session -------------------------------------------------------------------------------------------------------


def of(id: str, name: str, arguments: Json) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


REPLIES = {
    "what is new": of("a", "ToolSearch", {"query": "select:WebSearch"}),
    "finds the web": of("b", "WebSearch", {"query": "llamas"}),
    "llamas: hum": "They hum.",
}


async def asked(daemon: Daemon, messages: list[Json], tools: list[Json]) -> Json:
    body = {
        "model": "m", "max_tokens": 200, "temperature": 0, "messages": messages, "tools": tools, "session_id": "s",
        "system": "be brief, " * 50,
    }  # fmt: skip
    answer = await daemon.ask("POST", "/v1/messages", body)
    assert answer.status == 200, answer.body
    found: Json = answer.json
    return found


async def test_a_tool_that_was_searched_for_costs_its_definition(serve: Serve, tmp_path: Path) -> None:
    daemon = await serve(**calling(tmp_path, REPLIES))
    web = {**WEB, "description": "finds the web"}
    more = [{**SEARCH, "name": f"tool{n}"} for n in range(20)]
    messages: list[Json] = [{"role": "user", "content": "what is new?"}]
    first = await asked(daemon, messages, [*more, SEARCH, PLACEHOLDER])
    [called] = first["content"]
    assert called["name"] == "ToolSearch"
    messages += searched(reference("WebSearch"), id=called["id"])
    messages[1]["content"] = first["content"]
    second = await asked(daemon, messages, [*more[:10], web, *more[10:], SEARCH, PLACEHOLDER])
    [called] = second["content"]
    assert called["name"] == "WebSearch" and called["input"] == {"query": "llamas"}
    session, n_first = second["session"], first["usage"]["input_tokens"] + first["usage"]["output_tokens"]
    assert session["reused_prompt_tokens"] >= n_first - 1 > 500, session
    assert session["prefilled_prompt_tokens"] < 200, session
    messages += [{"role": "assistant", "content": second["content"]}]
    messages += [{"role": "user", "content": [result(called["id"], "llamas: hum")]}]
    third = await asked(daemon, messages, [*more[:10], web, *more[10:], SEARCH, FETCH, PLACEHOLDER])
    assert [block["type"] for block in third["content"]] == ["text"]
    assert third["session"]["prefilled_prompt_tokens"] < 60, third["session"]
