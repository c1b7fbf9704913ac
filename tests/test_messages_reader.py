"""Requests of Anthropic's clients become the same GenerationRequest as the corresponding chat requests."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from llmd.answers.digest import digests_of
from llmd.core.errors import ApiError
from llmd.core.generation_request import ChatPrompt, GenerationRequest, PlainMessage, PlainToolCall, ToolChoice
from llmd.dialects.anthropic.reader import request_of
from llmd.dialects.anthropic.turns import FILLERS
from llmd.dialects.anthropic.wire import MessagesRequest
from llmd.dialects.openai import wire as openai
from llmd.dialects.openai.messages import messages_of as chat_messages_of
from tests.serving import Json

USER: Json = {"role": "user", "content": "hi"}
HI = PlainMessage("user", "hi")
BILLING = "x-anthropic-billing-header: cc_version=2.1.5; cc_entrypoint=cli; cch=a1b2c;"
WEATHER: Json = {"name": "weather", "description": "of a place", "input_schema": {"type": "object"}}
IMAGE: Json = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
NO_IMAGE = "[image: not shown, this model reads text only]"
MIXED: Json = {"type": "content", "content": [{"type": "text", "text": "a"}, IMAGE]}
SEARCH_RESULT: Json = {
    "type": "search_result", "title": "Llamas", "source": "https://a.example", "citations": {"enabled": True},
    "content": [{"type": "text", "text": "They hum."}, {"type": "text", "text": "They spit."}],
}  # fmt: skip
CACHED: Json = {"cache_control": {"type": "ephemeral"}}


def read(headers: dict[str, str] | None = None, **fields: Any) -> GenerationRequest:
    body = {"model": "m", "max_tokens": 5, "messages": [USER], **fields}
    return request_of(msgspec.convert(body, MessagesRequest), (headers or {}).items())


def prompt(**fields: Any) -> ChatPrompt:
    found = read(**fields).prompt
    assert isinstance(found, ChatPrompt)
    return found


def refusal(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(**fields)
    return caught.value


def text(said: str, **more: Any) -> Json:
    return {"type": "text", "text": said, **more}


def use(id: str, name: str = "weather", **arguments: Any) -> Json:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def result(id: str, content: Any = "sunny", **more: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def document(data: str, **more: Any) -> Json:
    return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": data}, **more}


# --- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_a_text_and_its_block_are_one(role: str) -> None:
    def conversation(content: Any) -> list[PlainMessage]:
        return prompt(messages=[USER, {"role": role, "content": content}, USER]).messages

    plain = conversation("what now?")
    assert plain[1] == PlainMessage(role, "what now?")  # type: ignore[arg-type]
    assert conversation([text("what now?")]) == plain
    marked = conversation([text("what now?", **CACHED)])[1]
    assert marked == PlainMessage(role, "what now?", marks=(len("what now?"),))  # type: ignore[arg-type]


def test_system_is_the_first_message() -> None:
    wanted = PlainMessage("system", "be brief\nbe kind")
    assert prompt(system="be brief\nbe kind").messages == [wanted, PlainMessage("user", "hi")]
    assert prompt(system=[text("be brief"), text("be kind")]).messages[0] == wanted
    marked = prompt(system=[text("be brief", **CACHED), text("be kind", **CACHED)]).messages[0]
    assert (marked.content, marked.marks) == (wanted.content, (8, 16))
    for nothing in ("", [], None, [text(" ")]):
        assert prompt(system=nothing).messages == [PlainMessage("user", "hi")]


def test_the_billing_line_is_left_out() -> None:
    wanted = prompt(system="be brief").messages
    assert prompt(system=[text(BILLING), text("be brief")]).messages == wanted
    assert prompt(system=[text(f"{BILLING}\nbe brief")]).messages == wanted
    assert prompt(system=f"{BILLING}\nbe brief").messages == wanted
    assert prompt(system=[text(BILLING)]).messages == prompt().messages
    told = prompt(system=[text("be brief"), text(BILLING)]).messages[0].content
    assert told == f"be brief\n{BILLING}", "only where clients write it"


def test_a_turn_with_a_call() -> None:
    answer = [
        {"type": "thinking", "thinking": "let me see", "signature": "llmd"},
        {"type": "redacted_thinking", "data": "opaque"},
        text("I look."),
        use("c1", place="Rome", days=3),
    ]
    found = prompt(
        messages=[USER, {"role": "assistant", "content": answer}, {"role": "user", "content": [result("c1")]}]
    )
    call = PlainToolCall("weather", '{"place":"Rome","days":3}', "c1")
    assert found.messages[1:] == [
        PlainMessage("assistant", "I look.", (call,), reasoning="let me see"),
        PlainMessage("tool", "sunny", tool_call_id="c1"),
    ]
    assert not found.continues


def test_the_same_conversation_as_a_chat_brings() -> None:
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"days": 3, "place": "Rome"}'},
    }
    chat = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [text("where"), text("to?")]},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "hm"},
        {"role": "tool", "content": "sunny", "tool_call_id": "c1"},
        {"role": "assistant", "content": "Rome"},
        {"role": "user", "content": "thanks"},
    ]
    turns = [
        {"role": "user", "content": [text("where"), text("to?")]},
        {"role": "assistant", "content": [use("another", place="Rome", days=3)]},
        {"role": "user", "content": [result("another", [text("sunny")])]},
        {"role": "assistant", "content": [text("Rome")]},
        {"role": "user", "content": "thanks"},
    ]
    theirs = chat_messages_of(msgspec.convert(chat, list[openai.Message]))
    assert digests_of(prompt(system=[text("be brief")], messages=turns).messages) == digests_of(theirs)


def test_results_stand_in_the_order_of_their_calls() -> None:
    turns = [USER, {"role": "assistant", "content": [use("a"), use("b"), use("c")]}]
    orders = (
        [[result("a", "1"), result("b", "2"), result("c", "3")]],
        [[result("c", "3"), result("a", "1"), result("b", "2")]],
        [[result("b", "2")], [result("c", "3"), result("a", "1")]],
    )
    for order in orders:
        found = prompt(messages=[*turns, *({"role": "user", "content": blocks} for blocks in order)]).messages
        assert [message.content for message in found[2:]] == ["1", "2", "3"]
    between = [*turns, {"role": "system", "content": "hurry"}]
    found = prompt(messages=[*between, {"role": "user", "content": [result("c", "3"), result("a", "1")]}]).messages
    assert [message.content for message in found[3:]] == ["1", "3"]
    unknown = prompt(messages=[*turns, {"role": "user", "content": [result("x", "?"), result("b", "2")]}]).messages
    assert [message.content for message in unknown[2:]] == ["2", "?"]


def test_results_stand_before_the_text_of_their_turn() -> None:
    blocks = [text("and now?"), result("a"), text("go on")]
    turns = [USER, {"role": "assistant", "content": [use("a")]}, {"role": "user", "content": blocks}]
    found = prompt(messages=turns).messages[2:]
    assert [(message.role, message.content) for message in found] == [("tool", "sunny"), ("user", "and now?\ngo on")]


@pytest.mark.parametrize(
    ("content", "more", "wanted"),
    [
        ("sunny", {}, "sunny"),
        ([text("sun"), text("ny")], {}, "sun\nny"),
        ([], {}, ""),
        (None, {}, ""),
        ("no such place", {"is_error": True}, "Error: no such place"),
        ("fine", {"is_error": False}, "fine"),
        ([text("a.png"), IMAGE], {}, f"a.png\n{NO_IMAGE}"),
        ([IMAGE], {"is_error": True}, f"Error: {NO_IMAGE}"),
        ([document("a", title="T")], {}, "T\na"),
        ([text("two"), SEARCH_RESULT], {}, "two\nLlamas\nhttps://a.example\nThey hum.\nThey spit."),
        (
            [{"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}}],
            {},
            "[document: not shown, this model reads text only]",
        ),
        ([{"type": "document", "source": {"type": "content", "content": [text("a"), IMAGE]}}], {}, f"a\n{NO_IMAGE}"),
        ([{"type": "tool_reference", "tool_name": "weather"}], {}, "weather"),
        (
            [{"type": "browser_state", "source": {}, "content": {}}],
            {},
            "[browser_state: not shown, this model reads text only]",
        ),
        ([{"type": "x" * 1000}], {}, f"[{'x' * 120}: not shown, this model reads text only]"),
    ],
)
def test_contents_of_results(content: Any, more: Json, wanted: str) -> None:
    found = prompt(messages=[USER, {"role": "user", "content": [result("a", content, **more)]}]).messages
    assert found[-1] == PlainMessage("tool", wanted, tool_call_id="a")


def test_a_mark_on_an_image_of_a_result_is_kept() -> None:
    found = prompt(messages=[USER, {"role": "user", "content": [result("a", [IMAGE | CACHED])]}]).messages
    assert found[-1] == PlainMessage("tool", NO_IMAGE, tool_call_id="a", marks=(len(NO_IMAGE),))


def test_documents_and_search_results_of_the_user_are_text() -> None:
    parts = {"type": "content", "content": [text("one"), text("two")]}
    blocks = [
        document("all of it", title="T", context="C", **CACHED),
        {"type": "document", "source": {"type": "content", "content": "short"}, "title": None},
        {"type": "document", "source": parts},
        SEARCH_RESULT,
        text("well?"),
    ]
    first = "T\nC\nall of it"
    said = f"{first}\nshort\none\ntwo\nLlamas\nhttps://a.example\nThey hum.\nThey spit.\nwell?"
    found = prompt(messages=[{"role": "user", "content": blocks}]).messages
    assert found == [PlainMessage("user", said, marks=(len(first),))]


@pytest.mark.parametrize(
    "found",
    [
        {"type": "web_search_tool_result", "content": [{"type": "web_search_result", "title": "a", "url": "b"}]},
        {"type": "web_search_tool_result", "content": {"type": "web_search_tool_result_error", "error_code": "x"}},
        {"type": "web_fetch_tool_result", "content": {"type": "web_fetch_result", "content": document("a")}},
        {"type": "code_execution_tool_result", "content": {"type": "code_execution_result", "content": []}},
        {"type": "tool_search_tool_result", "content": {"tool_references": [{"type": "tool_reference"}]}},
        {"type": "mcp_tool_result", "content": [text("a")], "is_error": False},
    ],
)
def test_what_anthropics_servers_did_is_passed_over(found: Json) -> None:
    used = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "a"}}
    answer = [text("I look."), used, {**found, "tool_use_id": "s1"}, text(" They hum.", citations=[])]
    assert prompt(messages=[USER, {"role": "assistant", "content": answer}, USER]).messages == [
        HI, PlainMessage("assistant", "I look. They hum."), HI,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "block",
    [
        {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}, "trigger": None},
        {"type": "mcp_tool_listing", "mcp_server_name": "a", "tools": [{"name": "b", "input_schema": {}}]},
        {"type": "compaction", "content": None},
        {"type": "compaction", "content": ""},
    ],
)
def test_marks_of_their_servers_are_passed_over(block: Json) -> None:
    answer = {"role": "assistant", "content": [text("I look."), block, text(" They hum.")]}
    assert prompt(messages=[USER, answer, USER]).messages == [HI, PlainMessage("assistant", "I look. They hum."), HI]


def test_a_compaction_is_what_it_says() -> None:
    block = {"type": "compaction", "content": "We spoke of llamas.", "encrypted_content": "x", **CACHED}
    answer = {"role": "assistant", "content": [block, text("Go on.")]}
    said = "We spoke of llamas.\n\nGo on."
    found = prompt(messages=[USER, answer, USER]).messages
    assert found == [HI, PlainMessage("assistant", said, marks=(len(said),)), HI]
    wrong = {"role": "assistant", "content": [{"type": "compaction", "content": [text("a")]}]}
    assert refusal(messages=[USER, wrong, USER]).param == "messages[1].content[0].content"


def test_the_system_may_say_nothing() -> None:
    for more in ({"output_config": {"effort": "low"}}, {}, {"content": None}):
        assert prompt(messages=[USER, {"role": "system", **more}, USER]).messages == [HI, HI]
    for role in ("user", "assistant"):
        error = refusal(messages=[USER, {"role": role}])
        assert (error.code, error.param) == ("missing_parameter", "messages[1].content")


def test_words_of_the_system_may_hold_until_the_users_next() -> None:
    def said(clear_at: str | None, *later: Json) -> list[str]:
        reminder = {"role": "system", "content": "hurry", "clear_at": clear_at}
        return [message.content for message in prompt(messages=[USER, reminder, *later]).messages]

    answer: Json = {"role": "assistant", "content": "Yes."}
    assert said("next_user_message") == said("next_user_message", answer)[:2] == ["hi", "hurry"]
    assert said("next_user_message", answer, USER) == ["hi", "Yes.", "hi"]
    called = {"role": "assistant", "content": [use("a")]}
    assert said("next_user_message", called, {"role": "user", "content": [result("a")]}) == ["hi", "", "sunny"]
    assert said("never", answer, USER) == said(None, answer, USER) == ["hi", "hurry", "Yes.", "hi"]


def test_empty_answers_are_dropped() -> None:
    for content in ("", " ", [], [text("")], [{"type": "thinking", "thinking": "hm", "signature": ""}]):
        assert prompt(messages=[USER, {"role": "assistant", "content": content}, USER]).messages == [
            HI,
            HI,
        ]


@pytest.mark.parametrize("filler", FILLERS)
def test_what_clients_write_for_no_text_is_none(filler: str) -> None:
    """Clients write such texts because Anthropic's own API refuses an empty text."""
    answer = {"role": "assistant", "content": [text(filler), use("a", city="Paris")]}
    bare = {"role": "assistant", "content": [use("a", city="Paris")]}
    said, meant = (prompt(messages=[USER, one, {"role": "user", "content": [result("a")]}]) for one in (answer, bare))
    assert said.messages == meant.messages
    assert prompt(messages=[USER, {"role": "assistant", "content": filler}, USER]).messages == [HI, HI]
    assert prompt(messages=[{"role": "user", "content": filler}]).messages == [PlainMessage("user", filler)]


def test_a_last_answer_is_gone_on_with() -> None:
    assert prompt(messages=[USER, {"role": "assistant", "content": "It is"}]).continues
    assert not prompt(messages=[USER, {"role": "assistant", "content": " "}]).continues
    assert not prompt(messages=[USER, {"role": "assistant", "content": [use("a")]}]).continues


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"messages": []}, "invalid_value", "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "invalid_value", "messages[0].role"),
        ({"messages": [USER] * 16_385}, "invalid_value", "messages"),
        (
            {"messages": [USER, {"role": "user", "content": [text("x"), {"type": "image", "source": {}}]}]},
            "unsupported_parameter",
            "messages[1].content[1].image",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}]},
            "unsupported_parameter",
            "messages[0].content[0].document",
        ),
        (
            {"messages": [{"role": "user", "content": [result("a", [{"type": "text"}])]}]},
            "missing_parameter",
            "messages[0].content[0].content[0].text",
        ),
        (
            {"messages": [{"role": "user", "content": [use("a")]}]},
            "unsupported_parameter",
            "messages[0].content[0]",
        ),
        (
            {"messages": [{"role": "assistant", "content": [result("a")]}]},
            "unsupported_parameter",
            "messages[0].content[0]",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "document", "source": {"type": "text"}}]}]},
            "missing_parameter",
            "messages[0].content[0].source.data",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "document", "source": MIXED}]}]},
            "unsupported_parameter",
            "messages[0].content[0].source.content[1].image",
        ),
        (
            {"messages": [{"role": "assistant", "content": [document("a")]}]},
            "unsupported_parameter",
            "messages[0].content[0].document",
        ),
        (
            {"messages": [{"role": "user", "content": [result("a", {"type": "text", "text": "x"})]}]},
            "invalid_type",
            "messages[0].content[0].content",
        ),
        ({"system": [document("a")]}, "unsupported_parameter", "system[0].document"),
        ({"system": [{"type": "image"}]}, "unsupported_parameter", "system[0].image"),
        ({"system": [{"type": "text"}]}, "missing_parameter", "system[0].text"),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "thinking"}]}]},
            "missing_parameter",
            "messages[0].content[0].thinking",
        ),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "tool_use"}]}]},
            "missing_parameter",
            "messages[0].content[0].name",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
            "missing_parameter",
            "messages[0].content[0].tool_use_id",
        ),
    ],
)
def test_what_cannot_be_rendered_is_named(fields: Json, code: str, param: str) -> None:
    error = refusal(**fields)
    assert (error.code, error.param) == (code, param) and error.message.startswith(param)


# --- tools -----------------------------------------------------------------------------------------------------------


def test_tools() -> None:
    found = prompt(
        tools=[
            WEATHER,
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
            {"type": "mcp_toolset", "mcp_server_name": "x"},
            {"type": "code_execution_20260120", "name": "code_execution"},
            {"type": "custom", "name": "plain", "input_schema": {"type": "object", "properties": {}}, **CACHED},
            {"name": "bare"},
        ]
    )
    assert [(tool.name, tool.description) for tool in found.tools] == [
        ("weather", "of a place"), ("plain", ""), ("bare", ""),
    ]  # fmt: skip
    assert found.tools[0].parameters == {"type": "object"}
    assert (found.tool_choice, found.has_parallel_calls) == (ToolChoice(), None)


@pytest.mark.parametrize("choice", [None, {"type": "auto"}, {"type": "tool", "name": "web_search"}])
def test_tools_of_servers_alone_are_refused(choice: Json | None) -> None:
    """Claude Code sends such a request for a web search, and would take any text for the results of the search."""
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
    for tools in ([search], [search, {"type": "code_execution_20260120", "name": "code_execution"}]):
        error = refusal(tools=tools, tool_choice=choice)
        assert (error.code, error.param, error.status) == ("unsupported_parameter", "tools[0].type", 400)
        assert "web_search_20250305" in error.message
    assert prompt(tools=[]).tools == ()


@pytest.mark.parametrize("kind", ["bash_20250124", "text_editor_20250728", "memory_20250818", "computer_20251124"])
def test_a_tool_that_the_client_runs_is_not_dropped(kind: str) -> None:
    error = refusal(tools=[WEATHER, {"type": kind, "name": "x"}])
    assert (error.code, error.param) == ("unsupported_parameter", "tools[1].type")
    assert kind in error.message and "input_schema" in error.message


@pytest.mark.parametrize(
    ("choice", "wanted", "has_parallel_calls"),
    [
        (None, ToolChoice(), None),
        ({"type": "auto"}, ToolChoice("auto"), None),
        ({"type": "any"}, ToolChoice("required"), None),
        ({"type": "none"}, ToolChoice("none"), None),
        ({"type": "tool", "name": "weather"}, ToolChoice("required", ("weather",)), None),
        ({"type": "auto", "name": "nobody"}, ToolChoice("auto"), None),
        ({"type": "any", "disable_parallel_tool_use": True}, ToolChoice("required"), False),
        ({"type": "auto", "disable_parallel_tool_use": False}, ToolChoice("auto"), None),
    ],
)
def test_choices(choice: Json | None, wanted: ToolChoice, has_parallel_calls: bool | None) -> None:
    found = prompt(tools=[WEATHER], tool_choice=choice)
    assert (found.tool_choice, found.has_parallel_calls) == (wanted, has_parallel_calls)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [WEATHER], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "nobody"}}, "tool_choice"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [WEATHER] * 257}, "tools"),
        ({"tools": [{**WEATHER, "name": ""}]}, "tools[0].name"),
        ({"tools": [{**WEATHER, "name": "with space"}]}, "tools[0].name"),
    ],
)
def test_tools_that_are_refused(fields: Json, param: str) -> None:
    assert refusal(**fields).param == param


# --- the rest --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "variables", "budget"),
    [
        ({}, {}, None),
        ({"thinking": {"type": "adaptive"}}, {}, None),
        ({"thinking": {"type": "between_tools"}}, {}, None),
        ({"thinking": {"type": "disabled", "budget_tokens": 5}}, {"enable_thinking": False}, None),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, {"enable_thinking": True}, 2048),
        ({"output_config": {"effort": "low"}}, {"reasoning_effort": "low"}, None),
        ({"output_config": {"effort": "max"}}, {"reasoning_effort": "high"}, None),
    ],
)
def test_thinking(fields: Json, variables: Json, budget: int | None) -> None:
    found = read(**fields)
    assert isinstance(found.prompt, ChatPrompt) and found.prompt.variables == variables
    assert found.thinking_tokens_max == budget


@pytest.mark.parametrize("field", ["output_config", "output_format"])
def test_a_form(field: str) -> None:
    form: Json = {"type": "json_schema", "schema": {"type": "object"}}
    fields: Json = {field: {"format": form} if field == "output_config" else form}
    found = read(**fields).constraint
    assert found is not None and (found.kind, found.text) == ("json_schema", '{"type":"object"}')
    assert found.param.startswith(field)


def test_lengths_and_stops() -> None:
    found = read(max_tokens=1 << 70, stop_sequences=["a", "", "b"], temperature=0, top_p=0.5, top_k=3)
    assert (found.max_tokens, found.stop) == (1 << 70, ["a", "b"])
    assert (found.sampling.temperature, found.sampling.top_p, found.sampling.top_k) == (0, 0.5, 3)
    for fields, param in (
        ({"max_tokens": -1}, "max_tokens"),
        ({"stop_sequences": ["x"] * 17}, "stop_sequences"),
        ({"temperature": 101}, "temperature"),
        ({"thinking": {"type": "enabled", "budget_tokens": -1}}, "thinking.budget_tokens"),
    ):
        assert refusal(**fields).param == param


@pytest.mark.parametrize(
    ("user", "session"),
    [
        ('{"device_id":"d","account_uuid":"","session_id":"s-1"}', "s-1"),
        ("user_0a1b_account_5e6f_session_11-22-33", "11-22-33"),
        ("somebody", ""),
        ("{", ""),
        ('{"session_id": 5}', ""),
        ("[" * 5000, ""),
        ("{" + '"a":{' * 200, ""),
        ('{"session_id":"has space"}', ""),
        (5, ""),
        (None, ""),
    ],
)
def test_the_session_of_a_user(user: Any, session: str) -> None:
    assert read(metadata={"user_id": user}).key.id == session
    assert read({"X-Claude-Code-Session-Id": "header"}, metadata={"user_id": user}).key.id == "header"
    assert read(session_id="body", metadata={"user_id": user}).key.id == "body"


def test_metadata_is_no_obstacle() -> None:
    odd: tuple[Any, ...] = (None, 5, "x", [], {})
    for metadata in odd:
        assert read(metadata=metadata).key.id == ""
    assert read(metadata={"session_id": "nested"}).key.id == "nested"
