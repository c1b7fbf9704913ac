"""The table of templates is complete, and has for each template what llmd detects."""

from __future__ import annotations

import pytest

from tests.real_templates.conftest import Open
from tests.real_templates.driver import Driver, DriverError
from tests.real_templates.templates import BY_NAME, FOLDER, PROMPTS_ONLY, TEMPLATES, Template

MESSAGES = [{"role": "user", "content": "Hello"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tells the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}

CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": "abcdefgh1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "abcdefgh1", "content": "rain"}


def test_the_table_has_every_template_of_the_source() -> None:
    names = sorted(template.name for template in (*TEMPLATES, *PROMPTS_ONLY))
    assert names == sorted(path.stem for path in FOLDER.glob("*.jinja"))


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_the_table_says_what_a_template_can_do(template: Template, opened: Open) -> None:
    model = opened(template)
    prompt = model.render({"messages": MESSAGES, "tools": [TOOL], "follows_thinking": True})
    assert "get_weather" in prompt.text
    assert bool(prompt.thinking.get("ends")) == template.thinks
    called = model.render({"messages": [*MESSAGES, CALL, RESULT], "tools": [TOOL]})
    assert ("<tool_call>" in called.text and "<tool_call>" not in template.source) != template.calls


def test_an_answer_is_rendered_masked_and_parsed(opened: Open) -> None:
    model = opened(BY_NAME["Qwen-Qwen3-0.6B"])
    prompt = model.render({"messages": MESSAGES, "tools": [TOOL], "tool_choice": {"mode": "required"}})
    assert prompt.text == model.upstream(MESSAGES, tools=[TOOL], tool_choice="required").prompt
    for seed in range(5):
        walk = model.walk(prompt.constraint, seed=seed, max_bytes=5000)
        assert walk.is_complete and walk.holds and sum(walk.pieces) == len(walk.raw)
        answer = model.parse(prompt.syntax, walk.raw, pieces=[3])
        assert answer == model.parse(prompt.syntax, walk.raw)
        assert answer.content == "" and {call.name for call in answer.calls} == {"get_weather"}
        assert all(isinstance(call.values()["city"], str) for call in answer.calls)


def test_a_failed_command_says_what_failed(driver: Driver) -> None:
    model = driver.open("{{ raise_exception('nothing') }}")
    with pytest.raises(DriverError, match="nothing"):
        model.render({"messages": MESSAGES})


def test_a_mask_refuses_what_its_schema_does_not_allow(opened: Open) -> None:
    template = BY_NAME["Qwen-Qwen3-0.6B"]
    constraint = {"kind": "json_schema", "text": '{"enum": ["yes", "no"]}'}
    prompt = opened(template).render({"messages": MESSAGES, "constraint": constraint})
    assert opened(template).walk(prompt.constraint, text='"yes"').is_complete
    refused = opened(template).walk(prompt.constraint, text='"maybe"')
    assert refused.refused_at == 1 and not refused.is_complete
