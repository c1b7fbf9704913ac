"""From the body of a chat to a GenerationRequest: tools, tool choice, output formats, reasoning and history. No daemon
runs.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from llmd.core import limits
from llmd.core.errors import ApiError
from llmd.core.generation_request import (
    ChatPrompt,
    Constraint,
    GenerationRequest,
    PlainMessage,
    PlainToolCall,
    Tool,
    ToolChoice,
)
from llmd.dialects.openai.reader import chat_of, completion_of
from llmd.dialects.openai.wire import ChatCompletionRequest, CompletionRequest
from tests.serving import Json

USER = {"role": "user", "content": "x"}
EMPTY = {"type": "object", "properties": {}}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def asked(**fields: Any) -> GenerationRequest:
    return chat_of(msgspec.convert({"messages": [USER], **fields}, ChatCompletionRequest), [])


def chat_prompt(**fields: Any) -> ChatPrompt:
    prompt = asked(**fields).prompt
    assert isinstance(prompt, ChatPrompt)
    return prompt


def refusal(**fields: Any) -> tuple[str, str | None]:
    with pytest.raises(ApiError) as caught:
        asked(**fields)
    assert caught.value.status == 400 and str(caught.value.param) in caught.value.message
    return caught.value.code, caught.value.param


def function(name: str, **fields: Any) -> Json:
    return {"type": "function", "function": {"name": name, **fields}}


F, G = function("f", description="does f", parameters=SCHEMA, strict=True), function("g")
TOOLS = (Tool("f", "does f", SCHEMA), Tool("g", "", EMPTY))


# --- tools -----------------------------------------------------------------------------------------------------------


def test_tools() -> None:
    prompt = chat_prompt(tools=[F, G], parallel_tool_calls=False)
    assert prompt.tools == TOOLS and prompt.tool_choice == ToolChoice() and prompt.has_parallel_calls is False
    assert chat_prompt(tools=[F]).has_parallel_calls is None
    assert chat_prompt(tools=[]).tools == chat_prompt(tools=None).tools == ()


def test_a_tool_of_the_type_null_is_a_function() -> None:
    custom = {"type": "custom", "custom": {"name": "c"}}
    prompt = chat_prompt(
        tools=[F | {"type": None}, G, custom], tool_choice={"type": "function", "function": {"name": "f"}}
    )
    assert prompt.tools[:2] == TOOLS and prompt.tool_choice == ToolChoice("required", ("f",))
    allowed = {"mode": "auto", "tools": [{"type": None, "function": {"name": "g"}}]}
    chosen = chat_prompt(tools=[F, G], tool_choice={"type": "allowed_tools", "allowed_tools": allowed}).tool_choice
    assert chosen == ToolChoice("auto", ("g",))


def test_tools_that_the_model_cannot_call_are_not_read() -> None:
    odd = [{"type": "web_search"}, {"type": "namespace", "tools": [F]}]
    assert chat_prompt(tools=[*odd, G]).tools == TOOLS[1:]


def test_of_several_tools_with_one_name_the_first_counts() -> None:
    assert chat_prompt(tools=[F, function("f", description="another"), G]).tools == TOOLS


def allowed(mode: str, *names: str) -> Json:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, ToolChoice()),
        ("auto", ToolChoice("auto")),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "function": {"name": "g"}}, ToolChoice("required", ("g",))),
        (allowed("auto", "f"), ToolChoice("auto", ("f",))),
        (allowed("required", "g", "f", "g"), ToolChoice("required", ("g", "f"))),
    ],
)
def test_tool_choice(choice: Any, expected: ToolChoice) -> None:
    assert chat_prompt(tools=[F, G], tool_choice=choice).tool_choice == expected


def test_a_choice_without_tools_asks_for_nothing() -> None:
    for choice in ("auto", "none"):
        assert chat_prompt(tool_choice=choice).tools == ()


def test_functions() -> None:
    functions = [F["function"], G["function"]]
    prompt = chat_prompt(functions=functions)
    assert prompt.tools == TOOLS and prompt.tool_choice == ToolChoice() and prompt.has_parallel_calls is False
    for choice, expected in (
        ("auto", ToolChoice()),
        ("none", ToolChoice("none")),
        ({"name": "g"}, ToolChoice("required", ("g",))),
    ):
        assert chat_prompt(functions=functions, function_call=choice).tool_choice == expected


def nested(n_levels: int) -> Json:
    return {"type": "object", "x": nested(n_levels - 1)} if n_levels > 1 else {"type": "object"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [F] * (limits.TOOLS_MAX + 1)}, "tools"),
        ({"functions": [G["function"]] * (limits.TOOLS_MAX + 1)}, "functions"),
        ({"tools": [F, {"type": "function"}]}, "tools[1].function"),
        ({"tools": [F, function("")]}, "tools[1].function.name"),
        ({"tools": [function("a b")]}, "tools[0].function.name"),
        ({"tools": [function('"')]}, "tools[0].function.name"),
        ({"tools": [function("x" * (limits.TOOL_NAME_CHARS_MAX + 1))]}, "tools[0].function.name"),
        ({"functions": [{"name": "é"}]}, "functions[0].name"),
        ({"tools": [F, function("g", parameters=nested(limits.TOOL_SCHEMA_DEPTH_MAX + 1))]},
         "tools[1].function.parameters"),
        ({"tools": [F], "functions": [G["function"]]}, "functions"),
        ({"tools": [F], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        ({"tools": [F], "tool_choice": allowed("auto", "f", "g")}, "tool_choice"),
        ({"tools": [], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [F], "tool_choice": {"type": "function"}}, "tool_choice.function"),
        ({"tools": [F], "tool_choice": {"type": "allowed_tools"}}, "tool_choice.allowed_tools"),
        ({"tools": [F], "tool_choice": {"type": "allowed_tools", "allowed_tools": {
            "mode": "auto", "tools": [{"type": "mcp"}]}}}, "tool_choice.allowed_tools.tools"),
        ({"functions": [G["function"]], "function_call": {"name": "f"}}, "function_call"),
        ({"tools": [F], "function_call": {"name": "f"}}, "function_call"),
        ({"tools": [F], "function_call": "none"}, "function_call"),
        ({"function_call": {"name": "f"}}, "function_call"),
        ({"functions": [G["function"]], "tool_choice": "none"}, "tool_choice"),
    ],
)  # fmt: skip
def test_tools_that_will_not_do(fields: Json, param: str) -> None:
    assert refusal(**fields)[1] == param


def test_the_largest_that_will_do() -> None:
    name = "x" * limits.TOOL_NAME_CHARS_MAX
    deep = nested(limits.TOOL_SCHEMA_DEPTH_MAX)
    tools = [function(f"{n}-_.:/") for n in range(limits.TOOLS_MAX - 1)]
    assert chat_prompt(tools=[function(name, parameters=deep), *tools]).tools[0] == Tool(name, "", deep)


# --- the past --------------------------------------------------------------------------------------------------------


def messages(*given: Json) -> list[PlainMessage]:
    return chat_prompt(messages=list(given)).messages


def test_calls_and_results() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    bare = {"function": {"name": "g"}}
    objects = {"id": "c2", "function": {"name": "g", "arguments": {"y": [2]}}}
    null = {"id": "c3", "function": {"name": "g", "arguments": None}}
    result = [{"type": "text", "text": "4"}, {"type": "text", "text": "2"}]
    assert messages(
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call, bare, objects, null]},
        {"role": "tool", "tool_call_id": "c1", "content": result},
        {"role": "tool", "tool_call_id": "c2", "content": None, "name": "g"},
    )[1:] == [
        PlainMessage("assistant", "", (
            PlainToolCall("f", '{"x": 1}', "c1"), PlainToolCall("g", "{}"), PlainToolCall("g", '{"y":[2]}', "c2"),
            PlainToolCall("g", "{}", "c3"),
        )),
        PlainMessage("tool", "4\n2", tool_call_id="c1"),
        PlainMessage("tool", "", name="g", tool_call_id="c2"),
    ]  # fmt: skip


def test_calls_and_results_of_the_first_interface_belong_together() -> None:
    """Templates match a call with its result by an id, and some templates accept only ids of nine letters and
    digits.
    """
    found = messages(
        USER,
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "42"},
        {"role": "assistant", "content": None, "function_call": {"name": "g", "arguments": "{}"}},
        {"role": "function", "name": "g", "content": "43"},
    )
    ids = [message.tool_calls[0].id for message in found if message.tool_calls]
    assert [message.tool_call_id for message in found if message.role == "tool"] == ids
    assert len(set(ids)) == 2 and all(id is not None and len(id) == 9 and id.isalnum() for id in ids)
    assert [(message.role, message.name, message.content) for message in found[2::2]] == [
        ("tool", "f", "42"), ("tool", "g", "43"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "reasoning"),
    [
        ({"reasoning_content": "hm"}, "hm"),
        ({"reasoning": "hm"}, "hm"),
        ({"reasoning_text": "hm"}, "hm"),
        ({"thinking": "hm"}, "hm"),
        ({"reasoning_content": "", "reasoning": "hm"}, "hm"),
        ({"reasoning_content": "a", "reasoning": "b"}, "a"),
        ({"reasoning": {"effort": "low"}, "thinking": "hm"}, "hm"),
        ({"reasoning_content": ""}, ""),
        ({"reasoning_content": None, "thinking": {"type": "enabled"}}, None),
        ({"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "said"}]}, "hm"),
        ({"content": [{"type": "reasoning", "text": "hm"}, {"type": "output_text", "text": "said"}]}, "hm"),
    ],
)
def test_thoughts_of_the_past(fields: Json, reasoning: str | None) -> None:
    found = messages(USER, {"role": "assistant", "content": "said", **fields})[1]
    assert (found.content, found.reasoning) == ("said", reasoning)


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}, "messages[1].content[0]"),
        ({"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "input_audio"}]},
         "messages[1].content[1]"),
        ({"role": "user", "content": [{"type": "file"}]}, "messages[1].content[0]"),
        ({"role": "user", "content": [{"type": "thinking", "thinking": "x"}]}, "messages[1].content[0]"),
        ({"role": "tool", "content": [{"type": "text"}]}, "messages[1].content[0].text"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[1].content[0].text"),
        ({"role": "assistant", "content": "x", "audio": {"id": "a"}}, "messages[1].audio"),
        ({"role": "user", "content": None}, "messages[1].content"),
    ],
)  # fmt: skip
def test_parts_that_the_model_cannot_read(message: Json, param: str) -> None:
    assert refusal(messages=[USER, message])[1] == param


@pytest.mark.parametrize("role", ["tool", "function"])
@pytest.mark.parametrize(
    ("kind", "name"), [("image_url", "image"), ("input_audio", "audio"), ("file", "file"), ("image", "image")]
)
def test_what_the_model_cannot_read_of_a_result_is_told(role: str, kind: str, name: str) -> None:
    parts = [{"type": "text", "text": "a.png"}, {"type": kind, kind: {"url": "data:image/png;base64,AAAA"}}]
    found = messages({"role": role, "content": parts, "tool_call_id": "c"})[-1]
    assert found.content == f"a.png\n[{name}: not shown, this model reads text only]"


def test_a_refusal_of_the_past_is_text() -> None:
    refused = {"role": "assistant", "content": [{"type": "refusal", "refusal": "I won't."}]}
    assert messages(USER, refused)[1].content == "I won't."


# --- the form of the answer ------------------------------------------------------------------------------------------

ANY, TEXT = {"type": "json_object"}, json.dumps(SCHEMA, separators=(",", ":"))


@pytest.mark.parametrize(
    ("fields", "constraint"),
    [
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": None}, None),
        ({"response_format": ANY}, Constraint("json", "")),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}},
         Constraint("json_schema", TEXT, "response_format.json_schema.schema")),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
         Constraint("json_schema", "{}", "response_format.json_schema.schema", is_strict=False)),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}},
         Constraint("json_schema", TEXT, "response_format.schema")),
        ({"response_format": {"type": "json_schema", "schema": SCHEMA}},
         Constraint("json_schema", TEXT, "response_format.schema")),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}, "schema": {}}},
         Constraint("json_schema", TEXT, "response_format.json_schema.schema", is_strict=False)),
        ({"json_schema": SCHEMA}, Constraint("json_schema", TEXT, "json_schema")),
        ({"json_schema": {}, "grammar": "", "guided_regex": "", "guided_choice": [], "structured_outputs": {}}, None),
        ({"grammar": 'root ::= "x"'}, Constraint("grammar", 'root ::= "x"', "grammar")),
        ({"guided_json": SCHEMA}, Constraint("json_schema", TEXT, "guided_json")),
        ({"guided_json": TEXT}, Constraint("json_schema", TEXT, "guided_json")),
        ({"guided_regex": "a+"}, Constraint("regex", "a+", "guided_regex")),
        ({"guided_choice": ["a", "é"]}, Constraint("choice", '["a","é"]', "guided_choice")),
        ({"guided_grammar": "root ::= [a]"}, Constraint("grammar", "root ::= [a]", "guided_grammar")),
        ({"structured_outputs": {"json": SCHEMA}}, Constraint("json_schema", TEXT, "structured_outputs.json")),
        ({"structured_outputs": {"regex": "a+"}}, Constraint("regex", "a+", "structured_outputs.regex")),
        ({"structured_outputs": {"choice": ["a"]}}, Constraint("choice", '["a"]', "structured_outputs.choice")),
        ({"structured_outputs": {"grammar": "g"}}, Constraint("grammar", "g", "structured_outputs.grammar")),
        ({"structured_outputs": {"json_object": True}}, Constraint("json", "", "structured_outputs.json_object")),
    ],
)  # fmt: skip
def test_forms(fields: Json, constraint: Constraint | None) -> None:
    assert asked(**fields).constraint == constraint
    wanted = msgspec.convert({"prompt": "x", **fields}, CompletionRequest)
    assert completion_of(wanted, []).constraint == constraint


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": ANY, "grammar": "g"}, "grammar"),
        ({"json_schema": SCHEMA, "guided_regex": "a"}, "guided_regex"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs.choice"),
        ({"guided_json": SCHEMA, "guided_grammar": "g"}, "guided_grammar"),
        ({"guided_json": "{"}, "guided_json"),
        ({"structured_outputs": {"json": "[" * 5000}}, "structured_outputs.json"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}},
         "response_format.json_schema.schema"),
    ],
)  # fmt: skip
def test_forms_that_will_not_do(fields: Json, param: str) -> None:
    assert refusal(**fields)[1] == param


# --- thinking, and answers that go on --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({}, None),
        ({"thinking_budget_tokens": -1}, None),
        ({"thinking_budget_tokens": 0}, 0),
        ({"thinking_budget": 7}, 7),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, 1024),
        ({"reasoning": {"max_tokens": 9}}, 9),
        ({"thinking_budget_tokens": 1, "thinking_budget": 2, "thinking": {"budget_tokens": 3}}, 1),
    ],
)
def test_thinking_budgets(fields: Json, most: int | None) -> None:
    assert asked(**fields).thinking_tokens_max == most


@pytest.mark.parametrize(("said", "is_apart"), [(None, True), ("auto", True), ("deepseek", True), ("none", False)])
def test_reasoning_format(said: str | None, is_apart: bool) -> None:
    assert chat_prompt(reasoning_format=said).is_reasoning_apart is is_apart


SAID = {"role": "assistant", "content": "Once"}


def test_continued_messages() -> None:
    assert chat_prompt(messages=[USER, SAID], continue_final_message=True).continues
    assert chat_prompt(messages=[USER, SAID], continue_final_message=True, add_generation_prompt=False).continues
    for fields in ({}, {"continue_final_message": False}):
        assert not chat_prompt(messages=[USER, SAID], **fields).continues


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"messages": [SAID, USER]},
        {"messages": [USER, {**SAID, "tool_calls": [{"id": "c", "function": {"name": "f"}}]}]},
        {"messages": [USER, SAID], "add_generation_prompt": True},
    ],
)
def test_what_cannot_be_continued(fields: Json) -> None:
    assert refusal(continue_final_message=True, **fields) == ("invalid_value", "continue_final_message")
