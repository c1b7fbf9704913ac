"""An answer with thoughts, text and two calls, cut at places all over it: no half of a call looks like a whole one,
no mark of the form becomes text, and a stream says what a whole says."""

from __future__ import annotations

import json

import pytest

from tests.real_templates.conftest import Open
from tests.real_templates.driver import Answer, Call, DriverError, Json, Model
from tests.real_templates.templates import Template
from tests.real_templates.test_round_trip import ROUNDS, TOOL, USER, past_answer

CONTENT = "I take notes."
CALLS: list[Json] = [{"text": 'a\n"b" \u00e9', "n": 1234567890123456789}, {"text": "c", "flag": True, "part": 2.5}]
THOUGHT = "Hm, so."


# Templates that write text and calls as messages of their own, or drop one of both.
NO_TEXT_BESIDE_CALLS = ("GigaChat3-10B-A1.8B", "GigaChat3.1-10B-A1.8B", "llama-cpp-deepseek-r1")
STRIDE = 7  # bytes between two cuts; each takes some milliseconds


def whole_answer(model: Model, template: Template) -> tuple[str, str]:
    """The syntax, and the answer. Templates that refuse several calls at once have one."""
    content = "" if template.name in NO_TEXT_BESIDE_CALLS else CONTENT
    try:
        syntax, answer = past_answer(model, template, *CALLS, content=content)
    except DriverError:
        syntax, answer = past_answer(model, template, CALLS[0], content=content)
    thoughts: list[str] = model.render({"messages": [USER], "tools": [TOOL]}).thinking.get("ends", [])
    if thoughts and answer.startswith(thoughts[0]):
        answer = THOUGHT + answer
    return syntax, answer


def marks_of(syntax: str, thoughts: list[str]) -> list[str]:
    parser = json.loads(json.loads(syntax)["parser"])
    ends = [mark.strip() for node in parser["parsers"] for mark in node.get("delimiters", ())]
    return [*parser["closing_marks"], *parser["opening_marks"], *ends, *thoughts]


def completed(arguments: str) -> str:
    """With what closes the string and the containers that are open."""
    closers, in_string, at = [], False, 0
    while at < len(arguments):
        sign = arguments[at]
        if in_string:
            at += sign == "\\"
            in_string = sign != '"'
        elif sign == '"':
            in_string = True
        elif sign in "{[":
            closers.append("}" if sign == "{" else "]")
        elif sign in "}]":
            closers.pop()
        at += 1
    return arguments + '"' * in_string + "".join(reversed(closers))


def check_call(call: Call, whole: Call) -> None:
    assert call.name == whole.name
    if call.arguments == whole.arguments:
        return
    assert whole.arguments.startswith(call.arguments)
    with pytest.raises(ValueError, match="."):
        json.loads(call.arguments)
    assert set(json.loads(completed(call.arguments))) <= set(json.loads(whole.arguments))


def check_cut(cut: Answer, whole: Answer, marks: list[str]) -> None:
    assert whole.reasoning.startswith(cut.reasoning.rstrip())
    more = cut.content.rstrip().removeprefix(whole.content.rstrip()).lstrip()
    is_begun = any(mark != more and mark.startswith(more) for mark in marks)  # it could have become text, too
    assert whole.content.startswith(cut.content.rstrip()) or is_begun
    assert len(cut.calls) <= len(whole.calls)
    for call, expected in zip(cut.calls, whole.calls, strict=False):
        check_call(call, expected)
    assert cut.calls[:-1] == whole.calls[: max(0, len(cut.calls) - 1)]


@pytest.mark.parametrize("template", ROUNDS, ids=lambda template: template.name)
def test_a_cut_answer_is_the_beginning_of_the_whole_one(template: Template, opened: Open) -> None:
    model = opened(template)
    syntax, text = whole_answer(model, template)
    thoughts: list[str] = model.render({"messages": [USER], "tools": [TOOL]}).thinking.get("ends", [])
    whole, marks = model.parse(syntax, text), marks_of(syntax, thoughts)
    assert [call.values() for call in whole.calls] in (CALLS, CALLS[:1]), (text, whole)
    raw = text.encode()
    for n in range(sum(template.name.encode()) % STRIDE, len(raw), STRIDE):
        if raw[n] & 0xC0 == 0x80:
            continue  # the engine delivers whole characters
        cut = model.parse(syntax, raw[:n], is_cut=True)
        check_cut(cut, whole, marks)
        assert model.parse(syntax, raw[:n], pieces=[1 + n % 3], is_cut=True) == cut
