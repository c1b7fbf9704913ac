"""The conversation of an agent with tools, for `bench turns`."""

from __future__ import annotations

import json
import random
from typing import Any

from .conversation import WORDS

Json = dict[str, Any]

CALL = "read_note"
SYSTEM_WORDS, USER_WORDS, TEXT_WORDS, RESULT_WORDS = 1200, 40, 25, 195
USER_EVERY = 20
"""Distance between two messages of the user, in messages. Between them are pairs of a tool call and its result."""
TOOL_WORDS, PARAMETER_WORDS, N_PARAMETERS = 95, 10, 7


class Conversation:
    """A conversation with its tools. The messages grow with each turn."""

    def __init__(self, seed: str, n_messages: int, n_tools: int) -> None:
        """All conversations have the same tools, system message and number of messages. `seed` decides all other
        texts.
        """
        self.session = seed.replace(" ", "-")
        self.tools = [_tool(number) for number in range(n_tools - 1)] + [_note()]
        self._random = random.Random(seed)
        self.messages: list[Json] = [{"role": "system", "content": _text(random.Random("system"), SYSTEM_WORDS)}]
        while len(self.messages) < n_messages - 2:
            if len(self.messages) % USER_EVERY == 1:
                self.ask()
            else:
                self.messages.append(self._call())
                self.results()
        self.ask()

    def ask(self) -> None:
        self.messages.append({"role": "user", "content": _text(self._random, USER_WORDS)})

    def answer(self, message: Json) -> None:
        self.messages.append(message)

    def results(self) -> bool:
        """Adds the results of the calls of the last message. Returns whether there are any."""
        calls = self.messages[-1].get("tool_calls", [])
        for call in calls:
            result = _text(self._random, RESULT_WORDS)
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        return bool(calls)

    def forced(self) -> Json:
        """Returns the parameters of a request whose answer must call the tool CALL."""
        return {
            "tool_choice": {"type": "function", "function": {"name": CALL}},
            "thinking_budget_tokens": 0,
            "max_tokens": 200,
        }

    def _call(self) -> Json:
        tool = self._random.choice(self.tools)
        arguments = {name: _text(self._random, 4) for name in tool["function"]["parameters"]["required"]}
        function = {"name": tool["function"]["name"], "arguments": json.dumps(arguments)}
        call = {"id": f"call_{self._random.randrange(10**9):09}", "type": "function", "function": function}
        return {"role": "assistant", "content": _text(self._random, TEXT_WORDS), "tool_calls": [call]}


def _text(chance: random.Random, n_words: int) -> str:
    words = chance.choices(WORDS, k=n_words)
    return ".\n".join(" ".join(words[at : at + 12]) for at in range(0, n_words, 12))


def _tool(number: int) -> Json:
    chance = random.Random(number)
    properties: Json = {f"{chance.choice(WORDS)}_{n}": _parameter(chance, n) for n in range(N_PARAMETERS)}
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:2]}
    return _function(f"{chance.choice(WORDS)}_{chance.choice(WORDS)}_{number}", _text(chance, TOOL_WORDS), parameters)


def _note() -> Json:
    """Returns a tool that has only one possible call."""
    parameters = {"type": "object", "properties": {"name": {"enum": ["a"]}}, "required": ["name"]}
    return _function(CALL, "Reads the note.", {**parameters, "additionalProperties": False})


def _parameter(chance: random.Random, number: int) -> Json:
    kinds: list[Json] = [
        {"type": "string"},
        {"type": "string", "enum": [chance.choice(WORDS) for _ in range(4)]},
        {"type": "integer", "minimum": 0, "maximum": 1000},
        {"type": "boolean"},
        {"type": "array", "items": {"type": "string"}, "maxItems": 20},
        {"type": "object", "properties": {"path": {"type": "string"}, "line": {"type": "integer"}}},
        {"anyOf": [{"type": "string"}, {"type": "number"}]},
    ]
    return {**kinds[number % len(kinds)], "description": _text(chance, PARAMETER_WORDS)}


def _function(name: str, description: str, parameters: Json) -> Json:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}
