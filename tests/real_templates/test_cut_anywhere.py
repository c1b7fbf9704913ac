"""An answer with reasoning, text and two calls is cut after each character and after each token.

No call that was cut looks complete, no delimiter becomes text, and the streamed parts equal the answer that is not
streamed. max_tokens cuts after a token, and a stop string before any character. A client that disconnects has received
the first part of these answers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import pytest

from tests.real_templates.driver import Answer, Call, Driver, Json, Model
from tests.real_templates.templates import TOKEN, Template
from tests.real_templates.test_round_trip import ROUNDS, TOOL, USER, past_answer

CONTENT = "I take notes."
CALLS: list[Json] = [{"text": 'a\n"b" \u00e9', "n": 1234567890123456789}, {"text": "c", "flag": True, "part": 2.5}]
THOUGHT = "Hm, so."


ONE_CALL = {
    "GigaChat3-10B-A1.8B": "each call is a message",
    "GigaChat3.1-10B-A1.8B": "each call is a message",
    "meta-llama-Llama-3.1-8B-Instruct": "it refuses several calls at once",
    "meta-llama-Llama-3.2-3B-Instruct": "it refuses several calls at once",
    "meta-llama-Llama-3.3-70B-Instruct": "it refuses several calls at once",
    "muse-glimmer": "each call is a message",
    "openai-gpt-oss-120b": "each call is a message",
}
# Templates that write text and calls as separate messages, or leave out one of the two.
NO_TEXT_BESIDE_CALLS = ("GigaChat3-10B-A1.8B", "GigaChat3.1-10B-A1.8B", "llama-cpp-deepseek-r1")


def calls_of(template: Template) -> list[Json]:
    return CALLS[:1] if template.name in ONE_CALL else CALLS


def whole_answer(model: Model, template: Template) -> tuple[str, str]:
    content = "" if template.name in NO_TEXT_BESIDE_CALLS else CONTENT
    syntax, answer = past_answer(model, template, *calls_of(template), content=content)
    thoughts: list[str] = model.render({"messages": [USER], "tools": [TOOL]}).thinking.get("ends", [])
    if thoughts and answer.startswith(thoughts[0]):
        answer = THOUGHT + answer
    return syntax, answer


def marks_of(syntax: str, thoughts: list[str]) -> list[str]:
    parser = json.loads(json.loads(syntax)["parser"])
    ends = [mark.strip() for node in parser["parsers"] for mark in node.get("delimiters", ())]
    return [*parser["closing_marks"], *parser["opening_marks"], *ends, *thoughts]


def completed(arguments: str) -> str:
    """Returns the text with its open string, objects and arrays closed."""
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


def sizes(pieces: Iterable[str]) -> list[int]:
    return [len(piece.encode()) for piece in pieces]


@pytest.fixture
def small_driver() -> Iterator[Driver]:
    """Yields a separate process. It is forked for each cut, which takes longer if it has loaded more templates."""
    driver = Driver()
    yield driver
    driver.close()


@pytest.mark.parametrize("template", ROUNDS, ids=lambda template: template.name)
def test_a_cut_answer_is_the_beginning_of_the_whole_one(template: Template, small_driver: Driver) -> None:
    model = template.open(small_driver)
    syntax, text = whole_answer(model, template)
    thoughts: list[str] = model.render({"messages": [USER], "tools": [TOOL]}).thinking.get("ends", [])
    whole, marks = model.parse(syntax, text), marks_of(syntax, thoughts)
    assert [call.values() for call in whole.calls] == calls_of(template), (text, whole)
    characters, tokens = sizes(text), sizes(TOKEN.findall(text))
    assert sum(tokens) == sum(characters)
    for pieces in (characters, tokens):
        for cut in model.cuts(syntax, text, pieces, is_cut=True):
            assert cut.streamed == cut.whole
            check_cut(cut.whole, whole, marks)
    for cut in model.cuts(syntax, text, tokens, is_cut=False):  # the model ended the answer there
        assert cut.streamed == cut.whole
        for call, expected in zip(cut.whole.calls, whole.calls, strict=False):
            check_call(call, expected)
