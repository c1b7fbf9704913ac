"""Reasoning ends at each delimiter of the family, at a call that begins before a delimiter, and wherever a budget is
used up.
"""

from __future__ import annotations

import pytest

from tests.real_templates.conftest import Open
from tests.real_templates.driver import Call, Json, Model, Prompt
from tests.real_templates.templates import BY_NAME, TEMPLATES, Template
from tests.real_templates.test_templates import CALL, MESSAGES, TOOL

THINKING = [template for template in TEMPLATES if template.thinks]
NOT_KNOWN_TO_LLAMA_CPP = {"upstage-Solar-Open-100B": "its template takes reasoning by another name"}
THOUGHT = "Weather é🙂, so "
CALLED = [Call("get_weather", '{"city": "Rome"}', None)]


def names(template: Template) -> str:
    return template.name


def rendered(model: Model, **more: object) -> Prompt:
    return model.render({"messages": MESSAGES, "tools": [TOOL], "follows_thinking": True, **more})


def call_marks(template: Template, model: Model) -> list[str]:
    """Returns delimiters that end reasoning because a call starts with them."""
    prompt = rendered(model)
    assert prompt.constraint
    triggers = [trigger["value"] for trigger in prompt.constraint["triggers"]]
    return [end for end in prompt.thinking["ends"] if end in triggers]


def heads(prompt: Prompt) -> list[str]:
    """Returns beginnings of a call, up to the tool's name. They end reasoning in families in which no delimiter alone
    does.
    """
    return [end for end in prompt.thinking["ends"] if "get_weather" in end]


def call_text(template: Template, model: Model, mark: str) -> str:
    """Returns the call in CALL as the template writes it."""
    past: Json = {"messages": [*MESSAGES, CALL], "tools": [TOOL], "add_generation_prompt": False}
    text = model.render(past).text
    text = text[text.rindex(mark) :]
    return text.split(template.ends.eos)[0]


def thought(prompt: Prompt) -> str:
    """Returns reasoning that has not ended."""
    return THOUGHT if prompt.thinking["is_open"] else prompt.thinking["start"] + THOUGHT


@pytest.mark.parametrize("template", THINKING, ids=names)
def test_every_mark_of_llama_cpp_ends_thinking(template: Template, opened: Open) -> None:
    model = opened(template)
    if not template.calls:  # llama.cpp does not parse calls of these templates
        ends = model.upstream(MESSAGES).thinking_ends
    else:
        ends = model.upstream(MESSAGES, tools=[TOOL]).thinking_ends
    prompt = rendered(model)
    if template.name in NOT_KNOWN_TO_LLAMA_CPP:
        assert not ends and prompt.thinking["ends"]
        return
    assert {end for end in prompt.thinking["ends"] if "get_weather" not in end} == {end.strip() for end in ends}
    assert prompt.thinking["forced"].strip() == ends[0].strip()


@pytest.mark.parametrize("template", THINKING, ids=names)
def test_a_call_in_a_thought_is_masked_and_parsed(template: Template, opened: Open) -> None:
    model = opened(template)
    for mark in call_marks(template, model):
        prompt, call = rendered(model), call_text(template, model, mark)
        walk = model.walk(prompt.constraint, text=thought(prompt) + call)
        assert walk.holds and walk.refused_at is None and walk.is_complete
        for sizes in ([], [1], [3]):
            answer = model.parse(prompt.syntax, walk.raw, pieces=sizes)
            assert (answer.content, answer.reasoning.strip()) == ("", THOUGHT.strip())
            assert [call.values() for call in answer.calls] == [{"city": "Rome"}]
        other = model.walk(prompt.constraint, text=thought(prompt) + call.replace("get_weather", "get_time"))
        assert other.refused_at is not None


@pytest.mark.parametrize("template", THINKING, ids=names)
def test_a_budget_never_breaks_a_call(template: Template, opened: Open) -> None:
    model = opened(template)
    marks = call_marks(template, model) or heads(rendered(model))
    assert marks or template.name in NO_HEAD or not template.calls
    for mark in marks:
        call = call_text(template, model, mark)
        n_whole = len(model.walk(rendered(model).constraint, text=thought(rendered(model)) + call).pieces)
        for budget in range(n_whole):
            prompt = rendered(model, thinking_tokens_max=budget)
            walk = model.walk(prompt.constraint, text=thought(prompt) + call)
            answer = model.parse(prompt.syntax, walk.raw)
            assert [call.values() for call in answer.calls] == [{"city": "Rome"}], (budget, walk.text)
            assert all(at < walk.text.encode().index(mark.encode()) for at, _ in walk.forced), (budget, walk.text)


@pytest.mark.parametrize("template", THINKING, ids=names)
def test_a_budget_ends_a_thought_at_a_character_and_outside_of_marks(template: Template, opened: Open) -> None:
    """Each token of the reasoning is a byte. The model answers after the budget has ended its reasoning."""
    model = opened(template)
    end = rendered(model).thinking["ends"][0]
    n_most = len(thought(rendered(model)).encode()) + len(end)
    for budget in range(n_most):
        prompt = rendered(model, thinking_tokens_max=budget)
        said = thought(prompt) + end[:-1]
        walk = model.walk(prompt.constraint, text=said + " then" * n_most, instead="Sunny.")
        walk.raw.decode()
        assert walk.forced, budget
        text = "".join(part for _, part in walk.forced)
        assert end in text and prompt.thinking["forced"].startswith(text) and walk.text.count(end) == 1
        before = walk.raw[: walk.forced[0][0]]
        assert not any(before.endswith(end[:n].encode()) for n in range(1, len(end))), walk.text


# Templates for which a call cannot be distinguished from reasoning.
NO_HEAD = {
    "LFM2-8B-A1B": "the template does not write calls of the past",
    "LFM2.5-Instruct": "the template does not write calls of the past",
    "llm-jp-llm-jp-4.1-8b-thinking": "a thought is a message, which a call cannot interrupt",
    "openai-gpt-oss-120b": "a thought is a message, which a call cannot interrupt",
    "upstage-Solar-Open-100B": "a thought is a message, which a call cannot interrupt",
}
# For these families, llama.cpp's parser ends reasoning at any delimiter of a call.
ANY_MARK_ENDS = ("cohere2-moe", "kimi-k2")
WITHOUT_A_MARK = [template for template in THINKING if template.calls]


@pytest.mark.parametrize("template", WITHOUT_A_MARK, ids=names)
def test_a_call_of_a_known_tool_ends_thinking(template: Template, opened: Open) -> None:
    """The model never closes its reasoning. If the reasoning mentions the delimiter or another tool, it continues."""
    model = opened(template)
    prompt = rendered(model)
    if call_marks(template, model):
        return  # any call ends reasoning
    assert bool(heads(prompt)) == (template.name not in NO_HEAD), prompt.thinking
    if not model.parse(prompt.syntax, thought(prompt)).reasoning:
        return  # the prompt has closed reasoning
    for head in heads(prompt):
        call = call_text(template, model, head)
        mentions = f"{head.replace('get_weather', 'get_time')} or {head[:-2]}. "
        said = thought(prompt) + (mentions if template.family not in ANY_MARK_ENDS else "") + call
        walk = model.walk(prompt.constraint, text=said)
        assert walk.holds and walk.refused_at is None and walk.is_complete, walk
        whole = model.parse(prompt.syntax, walk.raw)
        assert [call.values() for call in whole.calls] == [{"city": "Rome"}], (walk.text, whole)
        assert (
            whole.content == ""
            and whole.reasoning.strip()
            == said[: -len(call)]
            .removeprefix(prompt.thinking["start"] if not prompt.thinking["is_open"] else "")
            .strip()
        )
        for size in (1, 3, 7):
            assert model.parse(prompt.syntax, walk.raw, pieces=[size]) == whole


CONTENT = "<|content|>Sunny."
CALLED_AS_MESSAGE = (
    '<|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>get_weather<|tool_call:args|>{"city": "Rome"}'
    "<|tool_call:end|>"
)
NEXT = "<|end|><|begin|>assistant"


@pytest.mark.parametrize("thinks", [False, True])
@pytest.mark.parametrize(
    ("said", "content", "n_calls"),
    [(CONTENT, "Sunny.", 0), (CALLED_AS_MESSAGE, "", 1), (CONTENT + NEXT + CALLED_AS_MESSAGE, "Sunny.", 1)],
)
def test_marks_of_solar_open_s_messages_are_no_text(
    said: str, content: str, n_calls: int, thinks: bool, opened: Open
) -> None:
    model = opened(BY_NAME["upstage-Solar-Open-100B"])
    answer = f"<|think|>{THOUGHT}{NEXT}{said}" if thinks else said
    for prompt in (rendered(model), *([] if n_calls else [model.render({"messages": MESSAGES})])):
        for sizes in ([], [1], [3]):
            read = model.parse(prompt.syntax, answer, pieces=sizes)
            assert (read.content, read.reasoning) == (content, THOUGHT if thinks else "")
            assert [call.values() for call in read.calls] == [{"city": "Rome"}] * n_calls
