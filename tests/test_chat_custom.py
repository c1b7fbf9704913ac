"""Custom tools of chat completions, whose input is a text that can have a grammar: streamed, not streamed, and sent
back.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from llmd.core.errors import ApiError
from llmd.core.generation_request import ArgumentForm, PlainToolCall, ToolChoice
from llmd.core.parts import Part, ToolCallPiece
from llmd.dialects.openai.chat_writer import ChatWriter
from tests.calling import calling
from tests.conftest import Serve
from tests.serving import Daemon, Events, Json, chat, parse_events
from tests.test_chat_reader import F, chat_prompt
from tests.test_writer import end, written

TEXT = '*** Begin\n+a "b\\"'
OTHER = "+é"
GRAMMAR = 'start: "*** Begin" LF "+" /.+/\n%import common.LF'


def custom(name: str = "patch", **fields: Any) -> Json:
    return {"type": "custom", "custom": {"name": name, **fields}}


def formed(definition: str, syntax: str = "lark") -> Json:
    return custom(format={"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}})


def call_of(name: str, arguments: Json) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


REPLIES = {
    "mend it": "I do.\n" + call_of("patch", {"input": TEXT}),
    "right patch": call_of("patch", {"input": TEXT}),
    "both of them": call_of("f", {"city": "Rome"}) + "\n" + call_of("patch", {"input": OTHER}),
    "was mended": "Thanks.",
}
LEFT_ALONE: Json = {"max_tokens": None, "ignore_eos": False}


@pytest.fixture
async def scripted(serve: Serve, tmp_path: Path) -> Daemon:
    return await serve(**calling(tmp_path, REPLIES))


def asked(text: str, **fields: Any) -> Json:
    return chat(messages=[{"role": "user", "content": text}], **{**LEFT_ALONE, **fields})


async def answered(daemon: Daemon, body: Json) -> Json:
    answer = await daemon.ask("POST", "/v1/chat/completions", body)
    assert answer.status == 200, answer.body
    [choice] = answer.json["choices"]
    return {**choice["message"], "finish_reason": choice["finish_reason"], "session": answer.json["session"]}


# --- what is asked ---------------------------------------------------------------------------------------------------


def test_a_custom_tool_is_a_function_of_one_text() -> None:
    plain, grammar, expression, _ = chat_prompt(
        tools=[
            custom(description="Edits.", format={"type": "text"}),
            {**formed(GRAMMAR), "custom": {**formed(GRAMMAR)["custom"], "name": "lark"}},
            {**formed("a+", "regex"), "custom": {**formed("a+", "regex")["custom"], "name": "regex"}},
            F,
        ]
    ).tools
    assert (plain.name, plain.description, plain.form) == ("patch", "Edits.", None)
    assert plain.parameters["required"] == ["input"] and plain.parameters == grammar.parameters
    assert grammar.form == ArgumentForm("input", "lark_string", GRAMMAR) and GRAMMAR in grammar.description
    assert expression.form == ArgumentForm("input", "regex_string", "a+")


def allowed(mode: str, *tools: Json) -> Json:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list(tools)}}


def test_a_custom_tool_may_be_chosen() -> None:
    for choice, expected in (
        (custom(), ToolChoice("required", ("patch",))),
        (allowed("auto", custom(), F), ToolChoice("auto", ("patch", "f"))),
        (allowed("required", {"type": "web_search"}, custom()), ToolChoice("required", ("patch",))),
    ):
        assert chat_prompt(tools=[F, custom()], tool_choice=choice).tool_choice == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "custom"}]}, "tools[0].custom"),
        ({"tools": [{"type": "custom", "function": {"name": "f"}}]}, "tools[0].custom"),
        ({"tools": [custom("no name")]}, "tools[0].custom.name"),
        ({"tools": [custom()], "tool_choice": {"type": "custom"}}, "tool_choice.custom"),
        ({"tools": [custom()], "tool_choice": custom("other")}, "tool_choice"),
        ({"tools": [custom()], "tool_choice": allowed("auto", {"type": "custom"})},
         "tool_choice.allowed_tools.tools[0].custom"),
        ({"tools": [custom()], "tool_choice": allowed("auto", {"type": "web_search"})},
         "tool_choice.allowed_tools.tools"),
        ({"messages": [{"role": "user", "content": "x"},
                       {"role": "assistant", "tool_calls": [{"type": "custom", "id": "c"}]}]},
         "messages[1].tool_calls[0].custom"),
        ({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [{"id": "c"}]}]},
         "messages[1].tool_calls[0].function"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(fields: Json, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        chat_prompt(**fields)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("form", "code", "param"),
    [
        ({}, "missing_parameter", "type"),
        ({"type": "gbnf"}, "invalid_value", "type"),
        ({"grammar": {"syntax": "lark", "definition": GRAMMAR}}, "missing_parameter", "type"),
        ({"type": "grammar"}, "missing_parameter", "grammar"),
        ({"type": "grammar", "syntax": "lark", "definition": GRAMMAR}, "missing_parameter", "grammar"),
        ({"type": "grammar", "grammar": None}, "invalid_type", "grammar"),
        ({"type": "grammar", "grammar": {"definition": GRAMMAR}}, "missing_parameter", "grammar.syntax"),
        ({"type": "grammar", "grammar": {"syntax": "lark"}}, "missing_parameter", "grammar.definition"),
        ({"type": "grammar", "grammar": {"syntax": "gbnf", "definition": "a"}}, "invalid_value", "grammar.syntax"),
        ({"type": "grammar", "grammar": {"syntax": "lark", "definition": ""}}, "invalid_type", "grammar.definition"),
    ],
)
async def test_a_form_that_is_none_is_refused(daemon: Daemon, form: Json, code: str, param: str) -> None:
    """A format of another dialect is also refused."""
    error = (await daemon.refused(chat(tools=[F, custom(format=form)]))).error
    assert (error["code"], error["param"]) == (code, f"tools[1].custom.format.{param}")


def test_calls_of_the_past_are_those_of_the_function() -> None:
    history: list[Json] = [
        {"role": "user", "content": "x"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "patch", "input": TEXT}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ]
    message = chat_prompt(messages=history).messages[1]
    assert message.tool_calls == (PlainToolCall("patch", json.dumps({"input": TEXT}, separators=(",", ":")), "c"),)


# --- what is told ----------------------------------------------------------------------------------------------------

CALLS: list[Part] = [
    ToolCallPiece(0, 0, "", "c1", "patch"),
    ToolCallPiece(0, 0, '{"inp'),
    ToolCallPiece(0, 0, 'ut": "one\\'),
    ToolCallPiece(0, 0, 'ntwo"}'),
    ToolCallPiece(0, 1, '{"x": 1}', "c2", "f"),
    ToolCallPiece(0, 2, "as it came", "c3", "patch"),
    end(0, "end", 5),
]


def patched(text: str, **opens: Any) -> Json:
    name = {"name": "patch"} if opens else {}
    return {**opens, "custom": {**name, "input": text}}


async def test_texts_of_custom_calls_are_deltas(daemon: Daemon) -> None:
    writer = ChatWriter(daemon.state, n_answers=1, include_usage=False, customs=frozenset({"patch"}))
    events = parse_events(written(writer, CALLS))
    found = [call for chunk in events.chunks for call in chunk["choices"][0]["delta"].get("tool_calls", [])]
    assert found == [
        {"index": 0, **patched("", id="c1", type="custom")},
        {"index": 0, **patched("one")},
        {"index": 0, **patched("\ntwo")},
        {"index": 1, "id": "c2", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}},
        {"index": 2, **patched("", id="c3", type="custom")},
        {"index": 2, **patched("as it came")},
    ]
    assert events.finish_reasons == ["tool_calls"]


async def test_a_whole_has_the_text(daemon: Daemon) -> None:
    writer = ChatWriter(daemon.state, n_answers=1, include_usage=False, customs=frozenset({"patch"}))
    assert json.loads(writer.complete(CALLS))["choices"][0]["message"]["tool_calls"] == [
        patched("one\ntwo", id="c1", type="custom"),
        {"id": "c2", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}},
        patched("as it came", id="c3", type="custom"),
    ]


async def test_a_text_that_was_cut_off_is_what_there_is_of_it(daemon: Daemon) -> None:
    arguments = json.dumps({"input": TEXT})
    for n in range(len(arguments)):
        pieces = ToolCallPiece(0, 0, "", "c1", "patch"), ToolCallPiece(0, 0, arguments[:n])
        cut: list[Part] = [*pieces, end(0, "length", 5)]
        writers = [
            ChatWriter(daemon.state, n_answers=1, include_usage=False, customs=frozenset({"patch"})) for _ in range(2)
        ]
        [call] = json.loads(writers[0].complete(cut))["choices"][0]["message"]["tool_calls"]
        events = parse_events(written(writers[1], cut))
        assert text_of_calls(events) == call["custom"]["input"] == said_by(arguments[:n]), n
        assert events.finish_reasons == ["length"]


def said_by(arguments: str) -> str:
    """Returns the part of TEXT that these arguments contain."""
    for n in range(len(TEXT), -1, -1):
        if arguments.startswith(json.dumps({"input": TEXT[:n]}).removesuffix('"}')):
            return TEXT[:n]
    return ""


def text_of_calls(events: Events) -> str:
    calls = [call for chunk in events.chunks for call in chunk["choices"][0]["delta"].get("tool_calls", [])]
    return "".join(call["custom"]["input"] for call in calls)


# --- together --------------------------------------------------------------------------------------------------------


async def test_a_loop_stays_warm(scripted: Daemon) -> None:
    tools = [custom(description="Changes a file")]
    said = await answered(scripted, asked("mend it", tools=tools, session_id="s"))
    [call] = said["tool_calls"]
    assert (said["content"], said["finish_reason"]) == ("I do.", "tool_calls")
    assert (call["type"], call["custom"]) == ("custom", {"name": "patch", "input": TEXT})
    history = [
        {"role": "user", "content": "mend it"},
        {"role": "assistant", "content": said["content"], "tool_calls": said["tool_calls"]},
        {"role": "tool", "tool_call_id": call["id"], "content": "was mended"},
    ]
    then = await answered(scripted, chat(messages=history, tools=tools, session_id="s", **LEFT_ALONE))
    assert then["content"] == "Thanks." and then["session"]["session_reset_reason"] == "exact_prefix"


async def test_a_stream_is_the_whole(scripted: Daemon) -> None:
    body = asked("both of them", tools=[F, custom()])
    whole = (await answered(scripted, body))["tool_calls"]
    answer = await scripted.ask("POST", "/v1/chat/completions", {**body, "stream": True})
    calls: dict[int, Json] = {}
    for chunk in parse_events(answer.body).chunks:
        for delta in chunk["choices"][0]["delta"].get("tool_calls", []):
            into = calls.setdefault(delta["index"], {})
            for name, value in delta.items():
                if isinstance(value, dict):
                    member = into.setdefault(name, {})
                    member.update({key: member.get(key, "") + text for key, text in value.items()})
                elif name != "index":
                    into[name] = value
    without_id = [[{name: call[name] for name in call if name != "id"} for call in found] for found in
                  (whole, [calls[n] for n in sorted(calls)])]  # fmt: skip
    assert without_id[0] == without_id[1]
    assert without_id[0][1] == {"type": "custom", "custom": {"name": "patch", "input": OTHER}}


async def test_an_answer_may_be_cut_off_anywhere(scripted: Daemon) -> None:
    found = []
    body = asked("right patch", tools=[custom()])
    for n in itertools.count(1):
        cut = {**body, "max_tokens": n}
        said = await answered(scripted, cut)
        text = "".join(call["custom"]["input"] for call in said.get("tool_calls", []))
        stream = await scripted.ask("POST", "/v1/chat/completions", {**cut, "stream": True})
        assert text_of_calls(parse_events(stream.body)) == text and TEXT.startswith(text)
        found.append(text)
        if said["finish_reason"] == "tool_calls":
            break
    assert found[-1] == TEXT and found == sorted(found) and len(set(found)) > 3


@pytest.mark.parametrize("definition", [GRAMMAR, GRAMMAR + '\n%ignore " "'])
async def test_a_tool_has_a_grammar(scripted: Daemon, definition: str) -> None:
    """The second grammar has a part that cannot be enforced."""
    said = await answered(scripted, asked("right patch", tools=[formed(definition)], tool_choice=custom()))
    assert [call["custom"]["input"] for call in said["tool_calls"]] == [TEXT]


async def test_a_call_is_kept_to_the_grammar_of_its_tool(scripted: Daemon) -> None:
    """The script of the model has another text, which the grammar does not allow."""
    tools = [formed('start: "*** " ("End" | "Stop")')]
    said = await answered(scripted, asked("right patch", tools=tools, tool_choice=custom(), max_tokens=200))
    text = json.dumps(said)
    assert "*** Begin" not in text and ("*** End" in text or "*** Stop" in text)


async def test_what_is_no_grammar_is_refused(scripted: Daemon) -> None:
    for definition, syntax, why in (("start: missing", "lark", "missing"), ("a)", "regex", ")")):
        answer = await scripted.refused(asked("mend it", tools=[formed(definition, syntax)]))
        error = answer.error
        assert answer.status == 400 and error["param"] == "tools"
        assert "the grammar of patch" in error["message"] and why in error["message"]
