"""The text after a past answer is the same if the template gets the whole conversation or only a window of it."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import product

import pytest

from llmd.answers.memory import Past, PromptFacts
from llmd.core.generation_request import ChatPrompt, PlainMessage, PlainToolCall, Tool
from llmd.pipeline.rendering import render_request
from llmd.pipeline.window import Windows, window_of
from tests.real_templates.conftest import Open
from tests.real_templates.driver import DriverError, Model, Prompt
from tests.real_templates.templates import TEMPLATES, Template

N_TAILS, N_CONVERSATIONS = 4, 4
TOOLS = [
    Tool(name, f"The tool {name}.", {"type": "object", "properties": {"path": {"type": "string"}}})
    for name in ("read", "write")
]


def _text(chance: random.Random) -> str:
    return " ".join(chance.choices(["river", "engine", "42", "été", "a\nb", "<b>"], k=chance.randrange(1, 6)))


def _call(chance: random.Random) -> PlainToolCall:
    arguments = json.dumps({"path": _text(chance)})
    return PlainToolCall(chance.choice(TOOLS).name, arguments, f"call{chance.randrange(10_000, 99_999)}")


def _turn(chance: random.Random, has_tools: bool) -> list[PlainMessage]:
    """Returns a user's message, a random number of tool calls with their results, and an answer."""
    found = [PlainMessage("user", _text(chance))]
    for _ in range(chance.randrange(4) if has_tools else 0):
        call, text = _call(chance), chance.choice(["", _text(chance)])
        found.append(PlainMessage("assistant", text, (call,), reasoning=chance.choice([None, _text(chance)])))
        found.append(PlainMessage("tool", _text(chance), name=None, tool_call_id=call.id))
    found.append(PlainMessage("assistant", _text(chance), reasoning=chance.choice([None, _text(chance)])))
    return found


def _conversation(tail_seed: int, seed: int) -> tuple[ChatPrompt, int]:
    """Returns a conversation, and the index of the past answer. `tail_seed` decides the roles of the messages that a
    window keeps. `seed` decides all texts and the messages that it leaves out.
    """
    shape, chance = random.Random(tail_seed), random.Random(f"{tail_seed} {seed}")
    has_tools = shape.random() < 0.7
    messages = [PlainMessage("system", _text(chance))] if shape.random() < 0.7 else []
    for _ in range(chance.randrange(6, 9)):
        messages += _turn(chance, has_tools)
    if has_tools and shape.random() < 0.6:  # the past answer is a tool call
        call = _call(chance)
        messages += [PlainMessage("user", _text(chance)), PlainMessage("assistant", "", (call,))]
        end = len(messages) - 1
        messages.append(PlainMessage("tool", _text(chance), tool_call_id=call.id))
    else:
        end = len(messages) - 1
    if shape.random() < 0.5 or messages[-1].role != "tool":
        messages.append(PlainMessage("user", _text(chance)))
    return ChatPrompt(messages, tools=tuple(TOOLS) if has_tools else ()), end


def _rendered(model: Model, chat: ChatPrompt, messages: list[PlainMessage], past: Past) -> Prompt | None:
    """Returns the prompt without its boundaries, or None if the template refuses the conversation. A window can have
    more boundaries: its first messages are rendered alike with and without the last messages.
    """
    try:
        return replace(model.render(json.loads(render_request(chat, messages, past))), boundaries=[])
    except DriverError as error:
        assert error.status > 0, error
        return None


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_a_window_gives_the_prompt_of_the_whole_conversation(template: Template, opened: Open) -> None:
    """A window is used only if it gave the same prompt as the whole conversation for another conversation of the same
    shape. Then it gives the same prompt for this one, too.
    """
    model, windows, n_used = opened(template), Windows(), 0
    for tail_seed, seed in product(range(N_TAILS), range(N_CONVERSATIONS)):
        chat, end = _conversation(tail_seed, seed)
        past = Past(end, b"", b"", "", PromptFacts())
        window = window_of(chat, chat.messages, past)
        assert window is not None and len(window.messages) < len(chat.messages)
        use = windows.use(window.shape)
        whole = _rendered(model, chat, list(chat.messages), past)
        prompt = _rendered(model, chat, window.messages, window.past)
        windows.used(window.shape, prompt == whole)
        if use == "window":
            assert prompt == whole and whole is not None and whole.is_after
            n_used += 1
    assert n_used > 0
