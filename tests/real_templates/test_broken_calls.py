"""The second call of an answer names a tool that does not exist. The first call is reported, and the second is text."""

from __future__ import annotations

import pytest

from tests.real_templates.driver import Driver
from tests.real_templates.templates import Template
from tests.real_templates.test_cut_anywhere import ONE_CALL, calls_of, small_driver, whole_answer
from tests.real_templates.test_round_trip import ROUNDS

__all__ = ["small_driver"]
NAME = "note"  # the name of TOOL in test_round_trip.py
UNKNOWN = f"{NAME[:2]}Qx{NAME[2:]}"
SEVERAL = [template for template in ROUNDS if template.name not in ONE_CALL]


@pytest.mark.parametrize("template", SEVERAL, ids=lambda template: template.name)
def test_a_later_call_of_an_unknown_tool_is_text(template: Template, small_driver: Driver) -> None:
    model = template.open(small_driver)
    syntax, text = whole_answer(model, template)
    begun = [cut.whole for cut in model.cuts(syntax, text, [len(sign.encode()) for sign in text], is_cut=True)]
    second = next(at for at, answer in enumerate(begun) if len(answer.calls) == 2)
    name = text.rindex(NAME, 0, second + 1)
    broken = text[:name] + UNKNOWN + text[name + len(NAME) :]

    answer = model.parse(syntax, broken)
    assert [call.values() for call in answer.calls] == calls_of(template)[:1]
    assert UNKNOWN in answer.content
    for size in (1, 3):
        streamed = model.parse(syntax, broken, pieces=[size])
        assert (streamed.content, streamed.reasoning) == (answer.content, answer.reasoning)
        assert [call.values() for call in streamed.calls] == calls_of(template)[:1]
