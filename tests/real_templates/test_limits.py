"""docs/limits.md lists what templates cannot do, and the result. Each row of its table is tested."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from tests.real_templates.conftest import Open
from tests.real_templates.driver import ROOT, Answer, DriverError, Json
from tests.real_templates.templates import BY_NAME, PROMPTS_ONLY
from tests.real_templates.test_round_trip import CASES, TOOL, USER, past_answer

ALL = BY_NAME | {template.name: template for template in PROMPTS_ONLY}
CALL: Json = {
    "id": "abcdefgh0",
    "type": "function",
    "function": {"name": "note", "arguments": '{"text": "seen"}'},
}


def rows() -> dict[str, str]:
    """Returns the results of the table, by the names of the models."""
    page = (ROOT / "docs/limits.md").read_text()
    table = page[page.index("| model | limitation | result |") :].split("\n\n")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {models: result for models, _, result in cells}


def round_trip(opened: Open, name: str, case: str) -> tuple[str, Answer]:
    """Returns an earlier call as the template writes it, and as the parser reads it."""
    model = opened(ALL[name])
    syntax, answer = past_answer(model, ALL[name], CASES[case])
    return answer, model.parse(syntax, answer)


def translates_only(opened: Open) -> str:
    model = opened(ALL["google-translategemma-4b-it"])
    assert "note" not in model.render({"messages": [USER], "tools": [TOOL]}).text
    with pytest.raises(DriverError) as refused:
        model.render({"messages": [USER], "tools": [TOOL], "tool_choice": {"mode": "required"}})
    return str(refused.value)


def joins_text_and_call(opened: Open) -> str:
    model = opened(ALL["meetkai-functionary-medium-v3.2"])
    syntax = model.render({"messages": [USER], "tools": [TOOL]}).syntax
    assert [call.name for call in model.parse(syntax, 'note\n{"text":"a"}').calls] == ["note"]
    answer = model.parse(syntax, 'all\nLook.>>>note\n{"text":"a"}')
    assert not answer.calls
    return answer.content


def leaves_out_calls(opened: Open) -> str:
    for name in ("LFM2-8B-A1B", "LFM2.5-Instruct"):
        messages = [USER, {"role": "assistant", "content": "", "tool_calls": [CALL]}]
        messages.append({"role": "tool", "tool_call_id": "abcdefgh0", "content": "a result"})
        text = opened(ALL[name]).render({"messages": messages, "tools": [TOOL]}).text
        assert "seen" not in text and "a result" in text
    return ""


def ends_texts_at_quotes(opened: Open) -> str:
    answer, _ = round_trip(opened, "LFM2.5-8B-A1B", "quotes")
    assert "'say \"hi\" and 'bye' " in answer
    return ""


def reads_objects_as_json(opened: Open) -> str:
    name, model = "MiniMax-M3", opened(BY_NAME["MiniMax-M3"])
    answer, read = round_trip(opened, name, "object")
    with pytest.raises(ValueError, match="."):
        json.loads(read.calls[0].arguments)
    asked = model.render({"messages": [USER], "tools": [TOOL]})
    begin, end = (answer.index(mark) for mark in ("<what>", "]<]minimax[>[</what>"))
    as_json = answer[: begin + len("<what>")] + json.dumps(CASES["object"]["what"]) + answer[end:]
    said = model.walk(asked.constraint, text=as_json)
    assert said.refused_at is None and model.walk(asked.constraint, text=answer).refused_at is not None
    assert model.parse(asked.syntax, as_json).calls[0].values() == CASES["object"]
    return ""


def loses_containers(opened: Open) -> str:
    assert ">ab cit's<" in round_trip(opened, "openbmb-MiniCPM5-1B", "list")[0]
    assert '<param name="what"></param>' in round_trip(opened, "openbmb-MiniCPM5-1B", "object")[0]
    return ""


def drops_thoughts(opened: Open) -> str:
    for name in ("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "llama-cpp-rwkv-world"):
        answer, read = round_trip(opened, name, "end of thinking")
        assert "note" not in answer and not read.calls
    return ""


CHECKS: dict[str, Callable[[Open], str]] = {
    "TranslateGemma": translates_only,
    "Functionary 3.2": joins_text_and_call,
    "LFM2, LFM2.5-Instruct": leaves_out_calls,
    "LFM2.5-8B-A1B": ends_texts_at_quotes,
    "MiniMax M3": reads_objects_as_json,
    "MiniCPM5": loses_containers,
    "DeepSeek R1 Distill Llama, RWKV World": drops_thoughts,
}


def test_each_row_is_tried_out() -> None:
    assert list(rows()) == list(CHECKS)


@pytest.mark.parametrize("models", CHECKS)
def test_a_row_is_true(models: str, opened: Open) -> None:
    said = CHECKS[models](opened)
    for quoted in re.findall(r'"([^"]+)"', rows()[models]):
        assert quoted in said
