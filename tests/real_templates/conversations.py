"""Kinds of conversations that clients send."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from tests.real_templates.driver import Json


@dataclass(frozen=True)
class Shape:
    messages: list[Json]
    tools: list[Json] = field(default_factory=list)
    opens: bool = True  # the prompt ends with the start of an answer
    continues: bool = False  # the last message
    variables: Json = field(default_factory=dict)  # of the template
    schema: Json | None = None  # of the answer

    @property
    def request(self) -> Json:
        """Returns the request in the form of llm_chat_render (llm.h)."""
        out: Json = {"messages": self.messages, "add_generation_prompt": self.opens, "continues": self.continues}
        if self.tools:
            out["tools"] = self.tools
        if self.variables:
            out["chat_template_kwargs"] = self.variables
        if self.schema is not None:
            out["constraint"] = {"kind": "json_schema", "text": json.dumps(self.schema)}
        return out

    @property
    def inputs(self) -> Json:
        """Returns llama.cpp's inputs, without the messages."""
        out: Json = {"add_generation_prompt": self.opens, "continues": self.continues, "kwargs": self.variables}
        if self.tools:
            out["tools"] = self.tools
        if "enable_thinking" in self.variables:
            out["enable_thinking"] = self.variables["enable_thinking"]
        if self.schema is not None:
            out["json_schema"] = self.schema
        return out


def _tool(name: str, **properties: str) -> Json:
    parameters = {
        "type": "object",
        "properties": {key: {"type": kind, "description": f"the {key}"} for key, kind in properties.items()},
        "required": list(properties)[:1],
    }
    return {"type": "function", "function": {"name": name, "description": f"Does {name}.", "parameters": parameters}}


def _system(text: str) -> Json:
    return {"role": "system", "content": text}


def _user(*texts: str) -> Json:
    """Returns a user's message. A message whose images were removed has several texts."""
    parts = [{"type": "text", "text": text} for text in texts]
    return {"role": "user", "content": texts[0] if len(texts) == 1 else parts}


def _answer(text: str | None, *calls: Json, reasoning: str = "") -> Json:
    out: Json = {"role": "assistant", "content": text}
    if reasoning:
        out["reasoning_content"] = reasoning
    if calls:
        out["tool_calls"] = list(calls)
    return out


def _call(ident: str, name: str, arguments: str) -> Json:
    return {"type": "function", "id": ident, "function": {"name": name, "arguments": arguments}}


def _result(ident: str, name: str, text: str) -> Json:
    return {"role": "tool", "tool_call_id": ident, "name": name, "content": text}


_TOOLS = [_tool("get_weather", city="string", days="integer"), _tool("get_time", zone="string")]
_BRIEF, _HELLO, _HI = _system("Be brief."), _user("Hello"), _answer("Hi.")
_ASKED = _user("How is the weather in Rome?")
# The id has nine letters and digits, as the templates of Mistral require.
_WEATHER = _call("call00001", "get_weather", '{"city": "Rome", "days": 2}')
_SUNNY = _result("call00001", "get_weather", "sunny, 21 degrees")
_TIME, _NOON = _call("call00002", "get_time", '{"zone": "CET"}'), _result("call00002", "get_time", "12:00")
_OSLO, _SNOW = _call("call00003", "get_weather", '{"city": "Oslo"}'), _result("call00003", "get_weather", "snow")

SHAPES = {
    "plain": Shape([_HELLO]),
    "system": Shape([_BRIEF, _HELLO]),
    "turns": Shape([_BRIEF, _HELLO, _HI, _user("Why?"), _answer("So."), _user("And?")]),
    "tools and no calls": Shape([_BRIEF, _HELLO, _HI, _ASKED], _TOOLS),
    "call and result": Shape([_ASKED, _answer("", _WEATHER), _SUNNY], _TOOLS),
    "text, call and result": Shape([_ASKED, _answer("Let me look.", _WEATHER), _SUNNY], _TOOLS),
    "no content beside a call": Shape([_ASKED, _answer(None, _WEATHER), _SUNNY], _TOOLS),
    "a result that is JSON": Shape(
        [_ASKED, _answer("", _WEATHER), _result("call00001", "get_weather", '{"sky": ["clear", 1.5, null]}')], _TOOLS
    ),
    "tool loop": Shape(
        [
            *(_BRIEF, _ASKED, _answer("", _WEATHER), _SUNNY, _answer("And the time.", _TIME), _NOON),
            *(_answer("", _OSLO), _SNOW, _answer("Snow in Oslo."), _user("And in Paris?")),
        ],
        _TOOLS,
    ),
    "parallel calls": Shape([_ASKED, _answer("", _WEATHER, _TIME), _SUNNY, _NOON], _TOOLS),
    "parallel results out of order": Shape([_ASKED, _answer("", _WEATHER, _TIME), _NOON, _SUNNY], _TOOLS),
    "reasoning in a loop": Shape(
        [
            *(_ASKED, _answer("", _WEATHER, reasoning="I look it up."), _SUNNY),
            *(_answer("", _TIME, reasoning="Now the time."), _NOON),
        ],
        _TOOLS,
    ),
    "reasoning, text and call": Shape([_ASKED, _answer("Look.", _WEATHER, reasoning="I look it up."), _SUNNY], _TOOLS),
    "reasoning in earlier turns": Shape(
        [_HELLO, _answer("Hi.", reasoning="A greeting."), _ASKED, _answer("Fine.", reasoning="Easy."), _user("And?")]
    ),
    "system in the middle": Shape([_BRIEF, _HELLO, _HI, _system("Be long."), _user("Why?")]),
    "only a system message": Shape([_BRIEF]),
    "developer": Shape([{"role": "developer", "content": "Be brief."}, _HELLO]),
    "empty contents": Shape(
        [
            *(_system(""), _user(""), _answer("", _WEATHER), _result("call00001", "get_weather", "")),
            *(_answer("Nothing."), _user("")),
        ],
        _TOOLS,
    ),
    "images dropped": Shape([_user("What is this?", "And that?"), _answer("A cat."), _user()]),
    "blanks at both ends": Shape(
        [
            *(_system(" Be brief.\n"), _user("\n Hello \n")),
            *(_answer("\n\nHi. \n", reasoning="\n A greeting.\n"), _user(" Why?\n")),
        ]
    ),
    "no question": Shape([_HELLO, _HI], opens=False),
    "continued answer": Shape([_BRIEF, _HELLO, _answer("Hi")], continues=True),
    "continued answer with reasoning": Shape([_HELLO, _answer("Hi", reasoning="A greeting.")], continues=True),
    "continued reasoning": Shape([_HELLO, _answer("", reasoning="A gree")], continues=True),
    "continued after a result": Shape(
        [_ASKED, _answer("", _WEATHER), _SUNNY, _answer("It is")], _TOOLS, continues=True
    ),
    "no thinking": Shape([_HELLO], variables={"enable_thinking": False}),
    "structured answer": Shape(
        [_HELLO], schema={"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    ),
    "ids of another server": Shape(
        [
            *(_ASKED, _answer("", _call("toolu_01A09q90", "get_weather", '{"city": "Rome"}'))),
            _result("toolu_01A09q90", "get_weather", "sunny"),
        ],
        _TOOLS,
    ),
    "arguments that are not JSON": Shape(
        [_ASKED, _answer("", _call("call00001", "get_weather", "{city: Rome")), _SUNNY], _TOOLS
    ),
    "tools no longer offered": Shape([_ASKED, _answer("", _WEATHER), _SUNNY, _answer("Fine."), _user("Thanks.")]),
}
