"""Tools offered to the model, requests that fit one of them, and what comes back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from tools.demo_model.chat import Message, tool_call
from tools.demo_model.phrases import expand
from tools.demo_model.words import Vocabulary, invented_word

Draw = Callable[[Vocabulary], str | int]


def _listed(category: str) -> Draw:
    return lambda words: words.draw(category)


def _small(words: Vocabulary) -> int:
    return int(words.number(0, 500))


def _noun(words: Vocabulary) -> str:
    return words.word("thing")


@dataclass(frozen=True, slots=True)
class Family:
    """Tools that do one thing: possible names, parameters (with how to draw a value), and ways to ask for it."""

    names: tuple[str, ...]
    about: tuple[str, ...]
    parameters: tuple[tuple[tuple[str, ...], Draw], ...]
    ask: tuple[str, ...]
    ask_held: tuple[str, ...]


# fmt: off
FAMILIES: tuple[Family, ...] = (
    Family(("get_weather", "weather", "current_weather", "get_current_weather", "weather_forecast"), ("Get the weather", "Current weather in a city", "Weather of a place"),
           ((("city", "location", "place", "town"), _listed("city")),),
           ("[What is|What's|How is|Tell me|Get|Check] the weather in {0}?", "[Weather|Is it warm|Does it rain|Will it rain|Is it cold] in {0}?", "How is the weather [today|now|tomorrow] in {0}?"),
           ("I want to know the weather in {0}.", "Could you look up the weather in {0}?")),
    Family(("get_time", "current_time", "get_current_time", "time_in"), ("Get the time in a city", "Current time of a place"),
           ((("city", "place", "location", "zone"), _listed("city")),),
           ("[What time is it|What is the time|Tell me the time|Time now] in {0}?", "How late is it in {0}?"), ("I need the time in {0}.", "What's the time in {0} now?")),
    Family(("add", "add_numbers", "sum", "calculate_sum"), ("Add two numbers", "Returns a sum"),
           ((("a", "x", "left", "first"), _small), (("b", "y", "right", "second"), _small)),
           ("[Add|Sum|Please add] {0} and {1}.", "What is {0} plus {1}?", "[Calculate|Compute] {0} + {1}.", "Add {1} to {0}."), ("Use the tool to add {0} and {1}.",)),
    Family(("multiply", "multiply_numbers", "product"), ("Multiply two numbers", "Returns a product"),
           ((("a", "x", "left", "first"), _small), (("b", "y", "right", "second"), _small)),
           ("[Multiply|Please multiply] {0} [by|and|with] {1}.", "What is {0} times {1}?", "[Calculate|Compute] {0} * {1}."), ("Use the tool to multiply {0} by {1}.",)),
    Family(("search", "web_search", "search_web", "find"), ("Search the web", "Search for a text"),
           ((("query", "text", "q", "term"), _noun),), ("[Search|Search for|Look up|Find|Search the web for] {0}.", "[Find|Look up] [something|pages] about {0}."), ("Can you search for {0}?",)),
    Family(("set_timer", "start_timer", "timer"), ("Set a timer", "Start a timer in minutes"),
           ((("minutes", "duration", "time"), lambda words: int(words.number(1, 120))),), ("[Set|Start|Please set] a timer [for|of] {0} minutes.", "Timer for {0} minutes."), ("Could you set a timer of {0} minutes?",)),
    Family(("send_message", "send_email", "send_mail", "message"), ("Send a message", "Send an email to a person"),
           ((("to", "recipient", "person", "name"), _listed("name")), (("text", "body", "message", "content"), _noun)),
           ("[Send|Write] {0} [a message|an email|a mail]: {1}", "[Send|Please send] a message to {0} that says {1}.", "[Tell|Message] {0}: {1}"), ("Please write to {0}: {1}",)),
    Family(("turn_on_light", "light_on", "switch_on", "lights"), ("Turn on the light in a room", "Switch on a light"),
           ((("room", "place", "where"), _listed("place")),), ("[Turn on|Switch on|Please turn on] the light in the {0}.", "Light on in the {0}."), ("I need light in the {0}.",)),
    Family(("play_music", "play_song", "play"), ("Play music", "Play a song"),
           ((("song", "title", "music", "name"), _noun),), ("[Play|Please play|Start] [the song|music by|] {0}.", "I want to [hear|listen to] the song {0}."), ("Can you play the song {0}?",)),
    Family(("read_file", "open_file", "cat", "get_file"), ("Read a file", "Returns the content of a file"),
           ((("path", "file", "filename"), lambda words: f"{words.word('thing').replace(' ', '_')}.{words.rng.choice(('txt', 'md', 'py', 'csv'))}"),),
           ("[Read|Open|Show|Show me|Print] [the file|] {0}.", "What is in [the file|] {0}?"), ("I want to see the file {0}.",)),
    Family(("translate", "translate_text"), ("Translate a text", "Translate to a language"),
           ((("text", "word", "source"), _noun), (("language", "to", "target"), lambda words: words.rng.choice(("French", "German", "Spanish", "Latin")))),
           ("[Translate|Please translate] {0} [to|into] {1}.", "[What is|How do you say] {0} in {1}?"), ("I need {0} in {1}.",)),
    Family(("get_user", "lookup_user", "find_user", "user_info"), ("Look up a user", "Get information about a user"),
           ((("name", "user", "user_name"), _listed("name")),), ("[Look up|Find|Show|Get] [the user|user] {0}.", "Who is the user {0}?"), ("Give me the user {0}.",)),
    Family(("create_note", "add_note", "save_note", "note"), ("Save a note", "Create a note with a text"),
           ((("text", "content", "note"), _noun),), ("[Make|Create|Save|Write|Add] a note: {0}", "[Note|Write] down {0}."), ("Please take a note: {0}",)),
)
# fmt: on


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool as offered: its schema, the family it belongs to, its parameter names."""

    schema: dict[str, Any]
    family: Family | None
    parameters: tuple[str, ...]
    noun: str = ""

    @property
    def name(self) -> str:
        return str(self.schema["function"]["name"])


def _schema(rng: Random, name: str, about: str, parameters: dict[str, str]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for key, of_type in parameters.items():
        properties[key] = {"type": of_type}
        if rng.random() < 0.3:
            properties[key]["description"] = f"The {key}"
    function: dict[str, Any] = {"name": name}
    if rng.random() < 0.85:
        function["description"] = about + rng.choice(("", "."))
    function["parameters"] = {"type": "object", "properties": properties}
    if rng.random() < 0.8:
        function["parameters"]["required"] = list(parameters)
    return {"type": "function", "function": function}


def offer(rng: Random, family: Family) -> Tool:
    """A tool of a family, under one of its names."""
    keys = tuple(rng.choice(names) for names, _ in family.parameters)
    draws = Vocabulary(Random(rng.random()), held=False)
    kinds = {
        key: "integer" if isinstance(draw(draws), int) else "string"
        for key, (_, draw) in zip(keys, family.parameters, strict=True)
    }
    return Tool(_schema(rng, rng.choice(family.names), rng.choice(family.about), kinds), family, keys)


def offer_invented(rng: Random) -> Tool:
    """A tool with an invented purpose: it is asked for by its noun."""
    noun, key = invented_word(rng), rng.choice(("name", "id", "value", "text", "item"))
    verb = rng.choice(("get", "find", "check", "open", "show"))
    return Tool(_schema(rng, f"{verb}_{noun}", f"{verb.title()} the {noun}", {key: "string"}), None, (key,), noun)


def request(rng: Random, words: Vocabulary, tool: Tool) -> tuple[str, dict[str, Any]]:
    """A question that this tool answers, and the arguments it needs."""
    if tool.family is None:
        value = words.proper("name")
        ask = expand(rng, f"[Get|Find|Check|Open|Show] the {tool.noun} [of|for] {{0}}.")
        return ask.replace("{0}", value), {tool.parameters[0]: value}
    values = [draw(words) for _, draw in tool.family.parameters]
    text = expand(rng, rng.choice(tool.family.ask_held if words.held else tool.family.ask))
    for index, filled in enumerate(values):
        text = text.replace(f"{{{index}}}", str(filled))
    return text, dict(zip(tool.parameters, values, strict=True))


def response(rng: Random, words: Vocabulary) -> tuple[str, str]:
    """What a tool may return, and how the model tells it."""
    if rng.random() < 0.4:
        text = rng.choice(
            (
                words.word("thing"),
                words.number(0, 9999),
                f"{words.word('colour')} {words.word('thing')}",
                "ok",
                "done",
                f"{words.number(0, 40)} degrees, sunny",
            )
        )
        return text, f"The result is: {text}"
    pairs: dict[str, str | int] = {}
    for _ in range(rng.randint(1, 3)):
        key = rng.choice(
            (
                "temperature",
                "time",
                "result",
                "status",
                "name",
                "wind",
                "id",
                "sky",
                words.word("thing").replace(" ", "_"),
            )
        )
        pairs[key] = int(words.number(0, 999)) if rng.random() < 0.5 else words.word("colour")
    return json.dumps(pairs), "The result is: " + ", ".join(f"{key} {value}" for key, value in pairs.items())


def call_turns(rng: Random, words: Vocabulary, tool: Tool) -> list[Message]:
    """A request, the call, the tool's response, and the final answer."""
    question, arguments = request(rng, words, tool)
    result, told = response(rng, words)
    return [
        Message("user", question),
        Message("assistant", tool_call(tool.name, arguments), "tool_call"),
        Message("tool", result),
        Message("assistant", told, "tool_answer"),
    ]


def offers(rng: Random) -> list[Tool]:
    """One to three tools with different names."""
    families = rng.sample(FAMILIES, rng.choice((1, 1, 2, 3)))
    tools = [offer(rng, family) for family in families]
    if rng.random() < 0.35:
        tools[rng.randrange(len(tools))] = offer_invented(rng)
    return list({tool.name: tool for tool in tools}.values())
