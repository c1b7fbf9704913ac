"""From the body of a request for a response to a GenerationRequest: items, tools, and the names in errors."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from llmd.core import limits
from llmd.core.errors import ApiError
from llmd.core.generation_request import ChatPrompt, Constraint, PlainMessage, PlainToolCall, ToolChoice
from llmd.dialects.responses.items import enclosed
from llmd.dialects.responses.reader import ParsedRequest, response_of
from llmd.dialects.responses.store import ResponseStore, StoredResponse
from llmd.dialects.responses.tools import ToolName
from llmd.dialects.responses.wire import ResponseRequest
from llmd.http.parameters import parameters_of
from tests.conversation import read as chat_message
from tests.serving import Json

OWNER = 3


def read(known: ResponseStore | None = None, headers: Json | None = None, **fields: Any) -> ParsedRequest:
    wanted = msgspec.json.decode(json.dumps(fields), type=ResponseRequest)
    return response_of(wanted, list((headers or {}).items()), known or ResponseStore(), OWNER)


def prompt(**fields: Any) -> ChatPrompt:
    found = read(**fields).generation_request.prompt
    assert isinstance(found, ChatPrompt)
    return found


def messages(*items: Json) -> list[PlainMessage]:
    return prompt(input=list(items)).messages


def refusal(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as refused:
        read(**fields)
    return refused.value


def user(text: str = "q") -> Json:
    return {"role": "user", "content": text}


def said(*texts: str) -> Json:
    parts = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "role": "assistant", "content": parts}


def call(name: str = "f", arguments: Any = '{"a":1}', id: str = "c1", **fields: Any) -> Json:
    return {"type": "function_call", "name": name, "arguments": arguments, "call_id": id, **fields}


def output(text: Any = "42", id: str = "c1") -> Json:
    return {"type": "function_call_output", "call_id": id, "output": text}


def thought(**fields: Any) -> Json:
    return {"type": "reasoning", "id": "rs_1", "summary": [], **fields}


IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
NO_IMAGE = "[image: not shown, this model reads text only]"
F = PlainToolCall("f", '{"a":1}', "c1")


# --- items -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([user("hi")], [PlainMessage("user", "hi")]),
        ([{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "a"},
                                                               {"type": "input_text", "text": "b"}]}],
         [PlainMessage("system", "a\nb")]),
        ([user(), said("a", "b")], [PlainMessage("user", "q"), PlainMessage("assistant", "a\nb")]),
        ([user(), said(" "), user("again")], [PlainMessage("user", "q"), PlainMessage("user", "again")]),
        ([said("a"), said("b")], [PlainMessage("assistant", "a"), PlainMessage("assistant", "b")]),
        ([thought(content=[{"type": "reasoning_text", "text": "hm"}]), said("a"), call(), output()],
         [PlainMessage("assistant", "a", (F,), reasoning="hm"), PlainMessage("tool", "42", tool_call_id="c1")]),
        ([call(), call("g", {"b": 2}, "c2"), output(), output("43", "c2")],
         [PlainMessage("assistant", "", (F, PlainToolCall("g", '{"b":2}', "c2"))),
          PlainMessage("tool", "42", tool_call_id="c1"), PlainMessage("tool", "43", tool_call_id="c2")]),
        ([call(namespace="mcp__files__"), call("f", None, "c2", namespace="web")],
         [PlainMessage("assistant", "", (PlainToolCall("mcp__files__f", '{"a":1}', "c1"),
                                         PlainToolCall("web__f", "{}", "c2")))]),
        ([{"type": "custom_tool_call", "name": "patch", "input": 'say "x"\n', "call_id": "c1"},
          {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"}],
         [PlainMessage("assistant", "", (PlainToolCall("patch", '{"input":"say \\"x\\"\\n"}', "c1"),)),
          PlainMessage("tool", "done", tool_call_id="c1")]),
        ([{"type": "local_shell_call", "call_id": "c1", "status": "completed", "action": {"command": ["ls"]}},
          {"type": "local_shell_call_output", "id": "c1", "output": "a.txt"}],
         [PlainMessage("assistant", "", (PlainToolCall("local_shell", '{"command":["ls"]}', "c1"),)),
          PlainMessage("tool", "a.txt", tool_call_id="c1")]),
        ([output([{"type": "input_text", "text": "a"}, {"type": "output_text", "text": "b"}])],
         [PlainMessage("tool", "a\nb", tool_call_id="c1")]),
        ([output({"content": "no such file", "success": False})],
         [PlainMessage("tool", "no such file", tool_call_id="c1")]),
        ([output([{"type": "input_text", "text": "a.png"}, IMAGE])],
         [PlainMessage("tool", f"a.png\n{NO_IMAGE}", tool_call_id="c1")]),
        ([output([{"type": "input_file", "file_data": "AAAA"}])],
         [PlainMessage("tool", "[file: not shown, this model reads text only]", tool_call_id="c1")]),
        ([{"type": "computer_call_output", "call_id": "c1",
           "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,AAAA"}}],
         [PlainMessage("tool", NO_IMAGE, tool_call_id="c1")]),
        ([output(None)], [PlainMessage("tool", "", tool_call_id="c1")]),
        ([said("a") | {"content": [{"type": "refusal", "refusal": "I will not"}]}],
         [PlainMessage("assistant", "I will not")]),
    ],
)  # fmt: skip
def test_items_are_messages(given: list[Json], expected: list[PlainMessage]) -> None:
    assert messages(user("first"), *given)[1:] == expected


@pytest.mark.parametrize(
    "item",
    [
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
        {"type": "compaction", "encrypted_content": "gAAAA"},
        {"type": "ghost_snapshot", "ghost_commit": {"id": "abc"}},
        {"type": "mcp_list_tools", "id": "m", "server_label": "s", "tools": [5]},
        {"type": "image_generation_call", "id": "ig_1", "result": None, "status": "failed", "name": 7, "output": 8},
        {"type": "something.new", "content": {"not": "parts"}, "role": "robot"},
        thought(encrypted_content="gAAAA"),
        thought(content=None, summary=None),
    ],
    ids=lambda item: item["type"],
)
def test_what_means_nothing_here_is_skipped(item: Json) -> None:
    assert messages(user(), item, user("r")) == [PlainMessage("user", "q"), PlainMessage("user", "r")]


def test_a_text_is_a_message_of_the_user() -> None:
    assert prompt(input="hi", instructions="be brief").messages == [
        PlainMessage("system", "be brief"), PlainMessage("user", "hi"),
    ]  # fmt: skip


def test_reasoning_comes_back_however_it_was_told() -> None:
    whole, summary = {"type": "reasoning_text", "text": "hm, é"}, {"type": "summary_text", "text": "in short"}
    for fields, expected in (
        ({"content": [whole], "summary": [summary]}, "hm, é"),
        ({"encrypted_content": enclosed("hm, é"), "summary": [summary]}, "hm, é"),
        ({"encrypted_content": "gAAAAunreadable", "summary": [summary, summary]}, "in short\n\nin short"),
        ({"encrypted_content": "llmd:%%%", "summary": [summary]}, "in short"),
        ({"encrypted_content": "llmd://///w==", "summary": []}, None),
    ):
        [_, answer] = messages(user(), thought(**fields), said("a"))
        assert answer == PlainMessage("assistant", "a", reasoning=expected)


def test_a_conversation_reads_as_it_does_over_chat() -> None:
    """Otherwise one dialect could not continue answers of the other."""
    items = [user(), thought(), said("a"), call(), output(), {"role": "developer", "content": "s"}, user("r")]
    over_chat: list[Json] = [
        user(),
        {"role": "assistant", "content": "a", "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
        {"role": "developer", "content": "s"},
        user("r"),
    ]  # fmt: skip
    assert messages(*items) == [chat_message(message) for message in over_chat]


def test_references_stand_for_the_items_of_stored_responses() -> None:
    body = json.dumps({"output": [{**said("a"), "id": "msg_1"}, {**call(), "id": "fc_1"}]})
    store = ResponseStore()
    store.keep(StoredResponse("resp_1", OWNER, "", body.encode(), [], []), 1)
    found = read(store, input=[user(), {"type": "item_reference", "id": "msg_1"}, {"id": "fc_1"}, output()])
    assert found.before == [
        PlainMessage("user", "q"), PlainMessage("assistant", "a", (F,)), PlainMessage("tool", "42", tool_call_id="c1"),
    ]  # fmt: skip
    error = refusal(known=store, input=[{"type": "item_reference", "id": "msg_2"}])
    assert (error.code, error.status, error.param) == ("response_not_found", 404, "input[0].id")


# --- tools -----------------------------------------------------------------------------------------------------------

PARAMETERS: Json = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOLS: list[Json] = [
    {"type": "function", "name": "f", "description": "Does f.", "parameters": PARAMETERS, "strict": True},
    {"type": "web_search", "external_web_access": True, "filters": {"allowed_domains": []}},
    {"type": "custom", "name": "patch", "description": "Edits.",
     "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"}},
    {"type": "namespace", "name": "mcp__files__", "description": "Files.", "tools": [
        {"type": "function", "name": "read", "description": None, "parameters": None},
        {"type": "custom", "name": "write"}]},
    {"type": "code_interpreter", "container": {"type": "auto"}},
    {"type": "of the future", "name": {"odd": 1}, "tools": "none"},
    {"type": "function", "name": "f", "description": "A second one."},
]  # fmt: skip


def test_tools_of_servers_alone_are_refused() -> None:
    search = {"type": "web_search", "external_web_access": True}
    hollow: Json = {"type": "namespace", "name": "mcp__files__", "description": "Files.", "tools": []}
    interpreter = {"type": "code_interpreter", "container": {"type": "auto"}}
    for refused in ([search], [search, interpreter]):
        error = refusal(input="x", tools=refused)
        assert (error.code, error.param, error.status) == ("unsupported_parameter", "tools[0].type", 400)
        assert "web_search" in error.message
    assert refusal(input="x", tools=[hollow, search]).param == "tools[1].type"
    for nothing in ([], [hollow]):
        assert prompt(input="x", tools=nothing).tools == ()
    added = {"type": "additional_tools", "tools": [{"type": "function", "name": "f"}]}
    assert len(prompt(input=[user(), added], tools=[search]).tools) == 1


def formed(**form: Any) -> Json:
    return {"type": "custom", "name": "patch", "format": form}


def test_a_form_of_any_text_is_none() -> None:
    for form in ({"format": None}, {"format": {"type": "text"}}):
        [tool] = prompt(input="x", tools=[{"type": "custom", "name": "patch", **form}]).tools
        assert tool.form is None and tool.description == ""


def test_a_form_that_is_null_is_none() -> None:
    found = read(input="hi", text={"format": None})
    assert found.generation_request.constraint is None
    assert json.loads(bytes(found.response.text)) == {"format": {"type": "text"}, "verbosity": "medium"}


def test_tools_are_functions_of_the_model() -> None:
    found = read(input="x", tools=TOOLS)
    tools = {tool.name: tool for tool in found.offered.tools}
    assert list(tools) == ["f", "patch", "mcp__files__read", "mcp__files__write"]
    assert (tools["f"].description, tools["f"].parameters) == ("Does f.", PARAMETERS)
    assert tools["patch"].description.startswith("Edits.\n") and tools["patch"].description.endswith("lark:\nstart: x")
    assert tools["patch"].parameters["required"] == ["input"]
    assert found.offered.name_of("mcp__files__read") == ToolName("read", "mcp__files__")
    assert found.offered.name_of("mcp__files__write") == ToolName("write", "mcp__files__", is_custom=True)
    assert found.offered.name_of("invented") == ToolName("invented")
    assert (
        isinstance(found.generation_request.prompt, ChatPrompt)
        and found.generation_request.prompt.tools == found.offered.tools
    )
    assert msgspec.json.decode(found.response.tools) == TOOLS, "told as they came"


@pytest.mark.parametrize("kind", ["local_shell", "shell", "apply_patch", "computer", "computer_use_preview"])
def test_a_tool_that_the_client_runs_is_not_dropped(kind: str) -> None:
    error = refusal(input="x", tools=[TOOLS[0], {"type": kind}])
    assert (error.code, error.param) == ("unsupported_parameter", "tools[1].type")
    assert kind in error.message and "function" in error.message


def test_tools_may_come_with_the_items() -> None:
    found = read(input=[user(), {"type": "additional_tools", "role": "developer", "tools": TOOLS[:1]}])
    assert [tool.name for tool in found.offered.tools] == ["f"] and len(found.before) == 1


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, ToolChoice()),
        ("auto", ToolChoice()),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "name": "f"}, ToolChoice("required", ("f",))),
        ({"type": "custom", "name": "patch"}, ToolChoice("required", ("patch",))),
        ({"type": "function", "name": "read", "namespace": "mcp__files__"},
         ToolChoice("required", ("mcp__files__read",))),
        ({"type": "allowed_tools", "mode": "auto", "tools": [
            {"type": "function", "name": "f"}, {"type": "web_search"}, {"type": "custom", "name": "patch"}]},
         ToolChoice("auto", ("f", "patch"))),
        ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]},
         ToolChoice("required", ("f",))),
    ],
)  # fmt: skip
def test_choices(asked: Any, expected: ToolChoice) -> None:
    assert prompt(input="x", tools=TOOLS, tool_choice=asked).tool_choice == expected


# --- what else is asked ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("said", "is_strict"), [({"strict": True}, True), ({"strict": False}, False),
                                                 ({"strict": None}, False), ({}, False)])  # fmt: skip
def test_how_strictly_a_form_is_kept_to(said: Json, is_strict: bool) -> None:
    form = {"type": "json_schema", "name": "n", "schema": {}, **said}
    expected = Constraint("json_schema", "{}", "text.format.schema", is_strict=is_strict)
    assert read(input="x", text={"format": form}).generation_request.constraint == expected


def test_form_and_sampling() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    form = {"type": "json_schema", "name": "n", "schema": schema, "strict": True}
    found = read(input="x", text={"format": form, "verbosity": "low"}, temperature=0.5, top_k=7, seed=3, stop="!")
    assert found.generation_request.constraint is not None and found.generation_request.constraint.kind == "json_schema"
    assert json.loads(found.generation_request.constraint.text) == schema
    sampling = found.generation_request.sampling
    assert (sampling.temperature, sampling.top_k, sampling.seed, found.generation_request.stop) == (0.5, 7, 3, ["!"])
    assert msgspec.json.decode(found.response.text) == {"format": form, "verbosity": "low"}
    assert read(input="x", text={"format": {"type": "json_object"}}).generation_request.constraint == Constraint(
        "json", "", "text.format"
    )
    assert read(input="x", text={"format": {"type": "text"}}).generation_request.constraint is None


@pytest.mark.parametrize(
    ("fields", "variables"),
    [
        ({}, {}),
        ({"reasoning": {"effort": "high", "summary": "auto"}}, {"reasoning_effort": "high"}),
        ({"reasoning": {"effort": "none"}}, {"reasoning_effort": "none", "enable_thinking": False}),
        ({"reasoning": {"effort": "none"}, "enable_thinking": True},
         {"reasoning_effort": "none", "enable_thinking": True}),
        ({"enable_thinking": False, "chat_template_kwargs": {"enable_thinking": True, "x": 1}},
         {"enable_thinking": True, "x": 1}),
    ],
)  # fmt: skip
def test_thinking(fields: Json, variables: Json) -> None:
    assert prompt(input="x", **fields).variables == variables


def test_how_reasoning_is_told() -> None:
    assert not read(input="x", reasoning={"effort": "low"}).is_summary
    assert read(input="x", reasoning={"summary": "auto"}).is_summary
    assert read(input="x", reasoning={"generate_summary": "concise"}).is_summary
    assert read(input="x", include=["reasoning.encrypted_content"]).is_enclosed


def test_log_probabilities() -> None:
    assert read(input="x").generation_request.n_logprobs is None
    assert read(input="x", include=["message.output_text.logprobs"]).generation_request.n_logprobs == 0
    assert read(input="x", top_logprobs=3).generation_request.n_logprobs == 3


def test_sessions() -> None:
    store = ResponseStore()
    for name in ("s", ""):
        store.keep(StoredResponse(f"resp_{name}", OWNER, name, b'{"output":[]}', [], []), 1)

    def session(headers: Json | None = None, **fields: Any) -> tuple[str, str]:
        key = read(store, headers, input="x", **fields).generation_request.key
        return key.id, key.source

    assert session() == ("", "scratch")
    assert session({"session-id": "a", "thread-id": "b"}, prompt_cache_key="c") == ("b", "thread-id")
    assert session(prompt_cache_key="c") == ("c", "prompt_cache_key")
    assert session(previous_response_id="resp_s") == ("s", "previous_response_id")
    assert session(previous_response_id="resp_s", session_id="other") == ("other", "session_id")
    assert session(previous_response_id="resp_") == ("", "scratch")


def test_the_previous_conversation_comes_before_the_input_without_its_instructions() -> None:
    store = ResponseStore()
    body = json.dumps({"output": [{**said("a"), "id": "msg_1"}]}).encode()
    store.keep(StoredResponse("resp_1", OWNER, "", body, [], [PlainMessage("user", "q")]), 1)
    found = read(store, input="r", instructions="now be brief", previous_response_id="resp_1")
    asked = found.generation_request.prompt
    assert isinstance(asked, ChatPrompt)
    assert found.before == [PlainMessage("user", "q"), PlainMessage("assistant", "a"), PlainMessage("user", "r")]
    assert asked.messages == [PlainMessage("system", "now be brief"), *found.before]


def test_what_is_stored_of_the_input() -> None:
    items = [user(), {**call(), "id": "fc_given"}, output()]
    stored = [json.loads(item) for item in read(input=items).input]
    assert stored[0]["id"].startswith("msg_") and stored[1]["id"] == "fc_given" and stored[2]["id"].startswith("fco_")
    assert stored[0]["content"] == [{"type": "input_text", "text": "q"}] and stored[0]["type"] == "message"
    assert {**output(), "id": stored[2]["id"]} == stored[2]
    assert read(input=items, store=False).input == []


def test_stored_items_have_ids_of_their_own() -> None:
    """Clients page through items by id. If two items had the same id, a client would get the same page again and
    again.
    """
    items = [{**user(), "id": "msg_same"}] * 30 + [{**call(), "id": "msg_same"}]
    ids = [json.loads(item)["id"] for item in read(input=items).input]
    assert ids[0] == "msg_same" and len(set(ids)) == len(ids) == 31 and ids[30].startswith("fc_")


def test_members_of_stored_items_are_not_decoded() -> None:
    """Unknown members are stored as the client wrote them, which takes no time, whatever they contain."""
    item = '{"type":"unknown","x":[1.0000000000000000000000001e-300,"y"]}'
    wanted = msgspec.json.decode(f'{{"input":[{item},{json.dumps(user())}]}}', type=ResponseRequest)
    stored = response_of(wanted, [], ResponseStore(), OWNER).input[0]
    assert stored.startswith(item.removesuffix("}").encode() + b',"id":"item_')


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({}, "invalid_value", "input"),
        ({"input": []}, "invalid_value", "input"),
        ({"input": [said("")]}, "invalid_value", "input"),
        ({"input": [5]}, "invalid_type", "input[0]"),
        ({"input": [{"type": 5}]}, "invalid_type", "input[0].type"),
        ({"input": [{}]}, "missing_parameter", "input[0].role"),
        ({"input": [user(), {"role": "robot", "content": "x"}]}, "invalid_value", "input[1].role"),
        ({"input": [{"role": "user", "content": None}]}, "invalid_type", "input[0].content"),
        ({"input": [{"role": "user", "content": 5}]}, "invalid_type", "input[0].content"),
        ({"input": [{"role": "user", "content": [IMAGE]}]}, "unsupported_parameter", "input[0].content[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "missing_parameter",
         "input[0].content[0].text"),
        ({"input": [{"role": "user", "content": [{"text": "x"}]}]}, "missing_parameter", "input[0].content[0].type"),
        ({"input": [output([{"type": "input_text"}])]}, "missing_parameter", "input[0].output[0].text"),
        ({"input": [{"type": "function_call", "call_id": "c"}]}, "missing_parameter", "input[0].name"),
        ({"input": [call(arguments=5)]}, "invalid_type", "input[0].arguments"),
        ({"input": [{"type": "custom_tool_call", "name": "x"}]}, "missing_parameter", "input[0].input"),
        ({"input": [{"type": "item_reference"}]}, "missing_parameter", "input[0].id"),
        ({"input": [thought(summary=[5])]}, "invalid_type", "input[0].summary[0]"),
        ({"input": [user()] * (limits.MESSAGES_MAX + 1)}, "invalid_value", "input"),
        ({"previous_response_id": "resp_0"}, "previous_response_not_found", "previous_response_id"),
        ({"tools": [{"name": "f"}]}, "missing_parameter", "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "missing_parameter", "tools[0].name"),
        ({"tools": [{"type": "function", "name": "a b"}]}, "invalid_value", "tools[0].name"),
        ({"tools": [{"type": "custom", "name": 5}]}, "invalid_type", "tools[0].name"),
        ({"tools": [formed()]}, "missing_parameter", "tools[0].format.type"),
        ({"tools": [formed(type="gbnf")]}, "invalid_value", "tools[0].format.type"),
        ({"tools": [formed(type="grammar")]}, "missing_parameter", "tools[0].format.syntax"),
        ({"tools": [formed(type="grammar", definition="a")]}, "missing_parameter", "tools[0].format.syntax"),
        ({"tools": [formed(type="grammar", syntax="lark")]}, "missing_parameter", "tools[0].format.definition"),
        ({"tools": [formed(type="grammar", syntax="gbnf", definition="a")]}, "invalid_value", "tools[0].format.syntax"),
        ({"tools": [formed(type="grammar", syntax="lark", definition="")]}, "invalid_type",
         "tools[0].format.definition"),
        ({"tools": [formed(type="grammar", grammar={"syntax": "lark", "definition": "start: x"})]},
         "missing_parameter", "tools[0].format.syntax"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [formed(type="grammar")]}]}, "missing_parameter",
         "tools[0].tools[0].format.syntax"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}]}, "missing_parameter",
         "tools[0].tools[0].name"),
        ({"tools": TOOLS[:1] * (limits.TOOLS_MAX + 1)}, "invalid_value", "tools"),
        ({"tool_choice": "required"}, "invalid_value", "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "g"}, "tools": TOOLS}, "invalid_value", "tool_choice"),
        ({"tool_choice": {"type": "function"}, "tools": TOOLS}, "missing_parameter", "tool_choice.name"),
        ({"tool_choice": {"type": "web_search"}, "tools": TOOLS}, "unsupported_parameter", "tool_choice.type"),
        ({"tool_choice": {"type": "allowed_tools", "tools": [{"type": "mcp"}]}}, "invalid_value",
         "tool_choice.tools"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "missing_parameter", "text.format.schema"),
        ({"top_logprobs": 21}, "invalid_value", "top_logprobs"),
        ({"top_logprobs": -1}, "invalid_value", "top_logprobs"),
        ({"max_output_tokens": 0}, "invalid_value", "max_output_tokens"),
        ({"temperature": 100.5}, "invalid_value", "temperature"),
        ({"session_id": "has space"}, "invalid_session_id", "session_id"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_field(fields: Json, code: str, param: str) -> None:
    with_input = {} if not fields or "input" in fields or "previous_response_id" in fields else {"input": "x"}
    error = refusal(**with_input, **fields)
    assert (error.code, error.param) == (code, param)
    assert param in error.message or code in ("previous_response_not_found", "missing_parameter")


# --- every parameter -------------------------------------------------------------------------------------------------

EXAMPLES: Json = {
    "input": "y", "instructions": "be brief", "previous_response_id": "resp_1", "store": False, "tools": TOOLS,
    "tool_choice": "none", "parallel_tool_calls": False, "text": {"format": {"type": "json_object"}},
    "reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"], "max_output_tokens": 5,
    "top_logprobs": 2, "stream": True, "session_id": "s", "prompt_cache_key": "k", "metadata": {"session_id": "m"},
    "temperature": 0.5, "top_p": 0.5, "top_k": 5, "min_p": 0.5, "seed": 7, "stop": "x", "presence_penalty": 1,
    "frequency_penalty": 1, "repeat_penalty": 1.5, "ignore_eos": True, "cache_prompt": False, "enable_thinking": False,
    "chat_template_kwargs": {"x": 1}, "history": "template", "speculate": "off",
}  # fmt: skip
ELSEWHERE = {"model", "return_progress", "truncation"}
"""Parameters that are not tested here. `model` has no effect. test_responses.py tests `truncation`, and
test_token_details.py tests `return_progress`, which only streams have.
"""


def test_there_is_an_example_of_every_honoured_parameter() -> None:
    supported = {one.name for one in parameters_of(ResponseRequest).values() if one.treatment == "supported"}
    assert supported == EXAMPLES.keys() | ELSEWHERE


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_honoured_parameter_changes_what_is_asked_or_how_it_is_told(name: str) -> None:
    store = ResponseStore()
    store.keep(StoredResponse("resp_1", OWNER, "", b'{"output":[]}', [], [PlainMessage("user", "before")]), 1)

    def asked(**fields: Any) -> tuple[Any, ...]:
        found = read(store, **{"input": "x", **fields})
        return (
            found.generation_request,
            found.offered,
            found.is_summary,
            found.is_enclosed,
            found.before,
            len(found.input),
        )

    assert asked() == asked() != asked(**{name: EXAMPLES[name]})
