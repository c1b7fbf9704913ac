"""An earlier call, as the template writes it, is parsed as the same call, whatever its arguments are.

EXCEPT lists what a template cannot write, with the reason. In these cases at most one call is parsed, which may be
incomplete."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.real_templates.conftest import Open
from tests.real_templates.driver import Answer, Json, Model
from tests.real_templates.templates import BY_NAME, TEMPLATES, Template

USER = {"role": "user", "content": "Hello"}
PROPERTIES: Json = {
    "text": {"type": "string"},
    "n": {"type": "integer"},
    "part": {"type": "number"},
    "flag": {"type": "boolean"},
    "list": {"type": "array", "items": {"type": "string"}},
    "what": {"type": "object", "additionalProperties": True},
}
TOOL = {
    "type": "function",
    "function": {
        "name": "note",
        "description": "Takes a note.",
        "parameters": {"type": "object", "properties": PROPERTIES, "required": ["text"]},
    },
}

TEXTS = {
    "quotes": "say \"hi\" and 'bye' \\ or \\n",
    "lines": "a\n\tb\n\nc",
    "json": '{"a": [1, "x"]}',
    "number": "42",
    "boolean": "true",
    "nothing": "null",
    "empty": "",
    "blanks": "  x ",
    "end of thinking": "a </think> b",
    "emoji": "\U0001f600 \u00e9 \u4e2d\u6587",
}
CASES: dict[str, Json] = {name: {"text": text} for name, text in TEXTS.items()} | {
    "long integer": {"text": "x", "n": 1234567890123456789},
    "negative integer": {"text": "x", "n": -9007199254740993},
    "values": {"text": "x", "n": 0, "part": 2.5, "flag": True},
    "list": {"text": "x", "list": ["a", "b c", "it's"]},
    "object": {"text": "x", "what": {"a": {"b": [1, "x", False]}}},
    "optional first": {"flag": False, "text": "x"},
}
OWN_MARK = "own mark"

# The text at which an earlier answer ends, if not at a token that ends answers.
ANSWER_ENDS: dict[str, tuple[str, ...]] = {
    "google-gemma-4-31B-it": ("<|tool_response>",),
    "GigaChat3-10B-A1.8B": ("<|message_sep|>\n\nfunction result",),
    "llama-cpp-rwkv-world": ("\n\nUser:",),
    "GigaChat3.1-10B-A1.8B": ("<|message_sep|>",),
    "tencent-Hy3": ("<｜hy_eos:opensource｜>",),
    "Apertus-8B-Instruct": ("[done",),
    "upstage-Solar-Open-100B": ("<|end|>", "<|calls|>"),
    "CohereForAI-c4ai-command-r-plus-tool_use": ("\n<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>",),
}

# The text after which an earlier answer starts, if not after the whole prompt without it.
ANSWER_BEGINS = {
    "Apriel-1.6-15b-Thinker-fixed": "<|begin_assistant|>",
    "llama-cpp-rwkv-world": "Assistant: ",
    "CohereForAI-c4ai-command-r-plus-tool_use": "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
}

# Tokens that end an answer and that the grammar requires.
END_OF_CALLS = {"solar": "<|calls|>"}

NO_ROUND_TRIP = {
    "LFM2-8B-A1B": "it does not write calls of the past",
    "LFM2.5-Instruct": "it does not write calls of the past",
}

EXCEPT: dict[str, dict[str, str]] = {
    "LFM2.5-8B-A1B": {"quotes": "it writes strings between quotes without escapes"},
    "MiniMax-M3": {"object": "it writes objects in marks, and only JSON is read there"},
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": {
        "end of thinking": "it drops all of an answer up to the last </think>"
    },
    "llama-cpp-rwkv-world": {"end of thinking": "it drops all of an answer up to the last </think>"},
    "openbmb-MiniCPM5-1B": {
        "list": "it writes the elements of lists without anything between them",
        "object": "it writes nothing of objects",
    },
}


def past_answer(
    model: Model, template: Template, *calls: Json, content: str = "", tool: Json = TOOL
) -> tuple[str, str]:
    """Returns the syntax for parsing an answer, and the answer as the template writes it. `calls` are the arguments of
    its calls.
    """
    ids = [f"abcdefgh{n}" for n in range(len(calls))]
    functions = [{"name": "note", "arguments": json.dumps(arguments, ensure_ascii=False)} for arguments in calls]
    called = [{"id": id, "type": "function", "function": function} for id, function in zip(ids, functions, strict=True)]
    call = {"role": "assistant", "content": content, "tool_calls": called}
    results = [{"role": "tool", "tool_call_id": id, "content": "done"} for id in ids]

    def text_of(*messages: Json, **more: bool) -> str:
        return model.render({"messages": [USER, *messages], "tools": [tool], **more}).text

    asked = model.render({"messages": [USER], "tools": [tool]})
    syntax = json.loads(asked.syntax)
    before = text_of(add_generation_prompt=False)
    text = text_of(call, *results)
    begin = ANSWER_BEGINS.get(template.name)
    turn = text[text.index(begin) + len(begin) :] if begin else text[len(common_prefix(before, text)) :]
    ends = [at for mark in answer_ends(template) if (at := turn.find(mark, 1)) >= 0]
    turn = turn[: min(ends, default=len(turn))]
    opening, reopening = syntax["opening"], syntax["reopening"]
    if turn.startswith(opening):
        return asked.syntax, turn[len(opening) :]
    answer = turn[len(common_prefix(reopening, turn)) :]
    thoughts: list[str] = asked.thinking.get("ends", [])
    if opening == reopening or answer.lstrip().startswith(tuple(thoughts)):
        return asked.syntax, answer
    if turn.startswith(reopening) and answer.lstrip().startswith(opening[len(reopening) :].strip()):
        return json.dumps({**syntax, "opening": reopening}), answer
    return asked.syntax, thoughts[0] + answer  # the earlier answer has no reasoning, but the prompt has opened it


def answer_ends(template: Template) -> tuple[str, ...]:
    return ANSWER_ENDS.get(template.name, (template.ends.eos, *template.ends.others))


def own_marks(syntax: str, answer_ends: tuple[str, ...]) -> list[str]:
    """Returns the delimiters of calls and of their names. Those that end an argument or the answer are left out,
    because no template can write them inside an argument.
    """
    parser = json.loads(json.loads(syntax)["parser"])
    ends = {mark.strip() for node in parser["parsers"] for mark in node.get("delimiters", ())}
    marks = {mark.strip() for mark in [*parser["closing_marks"], *parser["opening_marks"]]}
    return sorted(marks - ends - {""} - set(answer_ends))


def common_prefix(one: str, other: str) -> str:
    n = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:n]


ROUNDS = [template for template in TEMPLATES if template.name not in NO_ROUND_TRIP]


@pytest.mark.parametrize("template", ROUNDS, ids=lambda template: template.name)
def test_a_call_of_the_past_is_read_back(template: Template, opened: Open) -> None:
    model = opened(template)
    marks = own_marks(model.render({"messages": [USER], "tools": [TOOL]}).syntax, answer_ends(template))
    for case, arguments in [*CASES.items(), *((OWN_MARK, {"text": f"a {mark} b"}) for mark in marks)]:
        syntax, answer = past_answer(model, template, arguments)
        read = model.parse(syntax, answer)
        for size in (1, 2, 3):
            assert model.parse(syntax, answer, pieces=[size]) == read, (case, size)
        reason = EXCEPT.get(template.name, {}).get(case)
        assert (arguments_of_only_call(read) == arguments) == (reason is None), (case, reason, answer, read)
        assert len(read.calls) <= 1, (case, read)


def test_an_id_before_the_name_is_read_and_may_be_missing(opened: Open) -> None:
    template = BY_NAME["upstage-Solar-Open-100B"]
    model = opened(template)
    syntax, answer = past_answer(model, template, {"text": "a"}, {"text": "b"})
    assert [call.id for call in model.parse(syntax, answer, pieces=[2]).calls] == ["abcdefgh0", "abcdefgh1"]
    asked: Json = {"messages": [USER], "tools": [TOOL], "tool_choice": {"mode": "required"}}
    for text in (answer, answer.replace("abcdefgh0", "toolu_01A-b.c:9"), answer.replace("abcdefgh0", "")):
        said = model.walk(model.render(asked).constraint, text=text + END_OF_CALLS["solar"])
        assert said.refused_at is None and said.is_complete, (text, said)
        assert [call.values() for call in model.parse(syntax, text).calls] == [{"text": "a"}, {"text": "b"}], text


NUMBERS = [
    *("3.141592653589793", "40.712776", "1700000000.123", "1e-07", "-0.000123456789", "2.5"),
    *("713091731000000", "-9223372036854775808", "9223372036854775808", "18446744073709551615"),
]


@pytest.mark.parametrize("template", ROUNDS, ids=lambda template: template.name)
def test_numbers_of_the_past_keep_all_digits(template: Template, opened: Open) -> None:
    """llama.cpp's template engine prints six digits or six decimal places, and integers above 2^63 - 1 as negative
    numbers.
    """
    model = opened(template)
    for number in NUMBERS:
        _, answer = past_answer(model, template, {"text": "x", "part": json.loads(number)})
        assert number in answer, answer
    _, answer = past_answer(model, template, {"text": "x", "what": {"a": [json.loads(n) for n in NUMBERS]}})
    if "object" not in EXCEPT.get(template.name, {}):
        assert all(number in answer for number in NUMBERS), answer


def arguments_of_only_call(read: Answer) -> Any:
    """Returns the arguments of the only call, or None if the answer has no complete call or has anything else."""
    if len(read.calls) != 1 or read.content.strip() or read.reasoning.strip():
        return None
    try:
        return read.calls[0].values()
    except ValueError:
        return None
