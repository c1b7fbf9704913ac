"""The mask of every family allows a model to call with any valid arguments.

Tools and arguments are random, by seed. The template writes the frame of a call, and this test writes the values in it.
The reason is that templates write some values of earlier calls differently from what they ask of a model. For example,
they write booleans as Python does."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from tests.real_templates.conftest import Open
from tests.real_templates.driver import Json, Model, Prompt
from tests.real_templates.templates import CLOSERS, TEMPLATES, Template
from tests.real_templates.test_arguments import ONLY_DECLARED, SEPARATE, USER
from tests.real_templates.test_cut_anywhere import ONE_CALL
from tests.real_templates.test_masks import AFTER_THOUGHT, NO_TRIGGER, beginning, names, tool
from tests.real_templates.test_round_trip import END_OF_CALLS, NO_ROUND_TRIP, past_answer
from tests.real_templates.valid_arguments import Source, gemma_of, plain, text_of

SEEDS = range(6)
CALLED = [one for one in TEMPLATES if one.name not in NO_ROUND_TRIP]
REQUIRED: Json = {"tool_choice": {"mode": "required"}}
MODES: dict[str, Json] = {
    "auto": {"parallel_tool_calls": False},
    "auto, parallel": {"parallel_tool_calls": True},
    "required": REQUIRED | {"parallel_tool_calls": False},
    "required, parallel": REQUIRED | {"parallel_tool_calls": True},
    "named": {"tool_choice": {"mode": "required", "names": ["note"]}},
}


# Keywords of schemas that the template of a family cannot show to a model, or whose values it does not write in one
# piece.
BEYOND: dict[str, tuple[str, ...]] = {
    "MiniMax-M3": ("array",),
}
# Each call needs its own message, or the template accepts only one call.
ONE_MESSAGE = (*ONE_CALL, "llm-jp-llm-jp-4.1-8b-thinking")


class Frame:
    """A call as the template writes it, with a placeholder for each value."""

    def __init__(self) -> None:
        self._values: list[tuple[str, Any, str]] = []

    def marks(self, source: Source, arguments: Json) -> Json:
        return {name: self._mark(value, source) for name, value in arguments.items()}

    def _mark(self, value: Any, source: Source) -> str | int:
        number = 7130000000 + len(self._values)
        mark = f"v4lu3{number}" if isinstance(value, str) else str(number)
        self._values.append((mark, value, source.spelled(value)))
        return mark if isinstance(value, str) else number

    def filled(self, text: str) -> str:
        for mark, value, spelled in self._values:
            assert mark in text, (mark, text)
            for quote in ('"', "'"):
                text = text.replace(f"{quote}{mark}{quote}", spelled)
            text = text.replace(mark, value if isinstance(value, str) else spelled)
        return text


def after_thought(template: Template, model: Model, prompt: Prompt, past: str) -> str:
    """Returns the call for an answer that must be a call. It follows the reasoning, if the format has reasoning."""
    ends = [at + len(end) for end in prompt.thinking.get("ends", []) if (at := past.find(end)) >= 0]
    begin, call = beginning(template, model, prompt), past[min(ends, default=0) :]
    frame = AFTER_THOUGHT.get(template.family, "")
    return begin.removesuffix(frame) + call if frame and call.startswith(frame) else begin + call


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("template", CALLED, ids=names)
def test_valid_arguments_are_allowed(template: Template, seed: int, opened: Open) -> None:
    model = opened(template)
    source = Source(
        f"{template.name} {seed}",
        avoid=CLOSERS.get(template.family, ()),
        writes=gemma_of if template.family == "gemma4" else None,
        accepts=lambda schema: not any(word in json.dumps(schema) for word in BEYOND.get(template.name, ())),
    )
    parameters = source.parameters()
    tools = [tool("note", parameters), tool("other", source.parameters())]
    for mode, more in MODES.items():
        n_calls = 2 if more.get("parallel_tool_calls") and template.name not in ONE_MESSAGE else 1
        calls = [
            source.arguments(
                parameters,
                is_ordered=template.family not in SEPARATE,
                has_others=template.family not in ONLY_DECLARED,
            )
            for _ in range(n_calls)
        ]
        for call in calls:
            assert jsonschema_rs.is_valid(parameters, plain(call)), (parameters, text_of(call))
        frame = Frame()
        _, past = past_answer(model, template, *(frame.marks(source, call) for call in calls), tool=tools[0])
        prompt = model.render({"messages": [USER], "tools": tools, "follows_thinking": True, **more})
        if prompt.constraint is None or not prompt.grammar:
            assert template.family in NO_TRIGGER and mode.startswith("auto")
            continue
        past = past if prompt.constraint["lazy"] else after_thought(template, model, prompt, past)
        answer = frame.filled(past).rstrip() + END_OF_CALLS.get(template.family, "")
        said = model.walk(prompt.constraint, text=answer)
        refused = "" if said.refused_at is None else f"{answer.encode()[: said.refused_at].decode(errors='replace')!r}"
        assert said.refused_at is None, f"\nMODE {mode} REFUSED {refused}\nTEXT {answer!r}\nSCHEMA {parameters}"
        assert said.holds and said.is_complete, (mode, answer)
