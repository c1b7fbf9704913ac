"""Tools for the model, requests that fit one of them, and their results."""

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


def _file(words: Vocabulary) -> str:
    return f"{words.word('thing').replace(' ', '_')}.{words.rng.choice(('txt', 'md', 'py', 'csv'))}"


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
           ("[What is|What's|How is|Tell me|Get|Check] the weather in {0}?", "[Weather|Is it warm|Does it rain|Will it rain|Is it cold] in {0}?", "How is the weather [today|now|tomorrow] in {0}?", "[Check|Find out|Look at|Give me|Show me|Tell me] the weather [for|in|of] {0}.", "{0}: [how is the weather|what is the weather]?", "[Is it|Will it be] [sunny|warm|hot|windy|dry|rainy] in {0} [today|tomorrow|]?", "[Do I need a coat|How cold is it|How warm is it|Does the sun shine] in {0}?"),
           ("I want to know the weather in {0}.", "Could you look up the weather in {0}?")),
    Family(("get_time", "current_time", "get_current_time", "time_in"), ("Get the time in a city", "Current time of a place"),
           ((("city", "place", "location", "zone"), _listed("city")),),
           ("[What time is it|What is the time|Tell me the time|Time now] in {0}?", "How late is it in {0}?", "[Tell me|Give me|Check|Show me|Find out] [the time|what time it is|the local time] in {0}.", "[What is the local time|What hour is it|Which time is it] in {0}?", "{0}: [what time is it|how late is it] there?"), ("I need the time in {0}.", "What's the time in {0} now?")),
    Family(("add", "add_numbers", "sum", "calculate_sum"), ("Add two numbers", "Returns a sum"),
           ((("a", "x", "left", "first"), _small), (("b", "y", "right", "second"), _small)),
           ("[Add|Sum|Please add] {0} and {1}.", "What is {0} plus {1}?", "[Calculate|Compute] {0} + {1}.", "Add {1} to {0}.", "[Could you|Can you|Please] [add|add up|sum] {0} and {1}[.|?]", "[What is|Give me|I need|Find] the sum of {0} and {1}.", "[How much is|Tell me] {0} [plus|and] {1}."), ("Use the tool to add {0} and {1}.",)),
    Family(("multiply", "multiply_numbers", "product"), ("Multiply two numbers", "Returns a product"),
           ((("a", "x", "left", "first"), _small), (("b", "y", "right", "second"), _small)),
           ("[Multiply|Please multiply] {0} [by|and|with] {1}.", "What is {0} times {1}?", "[Calculate|Compute] {0} * {1}.", "[Could you|Can you|Please] multiply {0} [by|with] {1}[.|?]", "[What is|Give me|I need|Find] the product of {0} and {1}.", "[How much is|Tell me] {0} times {1}."), ("Use the tool to multiply {0} by {1}.",)),
    Family(("search", "web_search", "search_web", "find"), ("Search the web", "Search for a text"),
           ((("query", "text", "q", "term"), _noun),), ("[Search|Search for|Look up|Find|Search the web for] {0}.", "[Find|Look up] [something|pages] about {0}.", "[Could you|Please|I want you to] [search|search the web|look on the web|google] for {0}.", "[What does the web say|What is on the web|Search for pages] about {0}?", "[Web search|Search query|Search]: {0}"), ("Can you search for {0}?",)),
    Family(("set_timer", "start_timer", "timer"), ("Set a timer", "Start a timer in minutes"),
           ((("minutes", "duration", "time"), lambda words: int(words.number(1, 120))),), ("[Set|Start|Please set] a timer [for|of] {0} minutes.", "Timer for {0} minutes.", "[Wake|Remind|Ring|Call] me in {0} minutes.", "[I need|I want|Give me|Please make] a timer [for|of] {0} minutes.", "{0} minutes[, start the timer.|, set a timer.| on the timer, please.]", "[Can you|Will you|Would you] [set|start] a timer for {0} minutes?"), ("Could you set a timer of {0} minutes?",)),
    Family(("send_message", "send_email", "send_mail", "message"), ("Send a message", "Send an email to a person"),
           ((("to", "recipient", "person", "name"), _listed("name")), (("text", "body", "message", "content"), _noun)),
           ("[Send|Write] {0} [a message|an email|a mail]: {1}", "[Send|Please send] a message to {0} that says {1}.", "[Tell|Message] {0}: {1}", "[Could you|Can you|Please|I want you to] [send|write] a message to {0}: {1}", "[Let {0} know|Text {0}|Mail {0}|Email {0}|Inform {0}]: {1}", "[Message|Mail|Email|Letter] to {0}: {1}"), ("Please write to {0}: {1}",)),
    Family(("turn_on_light", "light_on", "switch_on", "lights"), ("Turn on the light in a room", "Switch on a light"),
           ((("room", "place", "where"), _listed("place")),), ("[Turn on|Switch on|Please turn on] the light in the {0}.", "Light on in the {0}.", "[Can you|Could you|Would you] [turn on|switch on] the [light|lamp|lights] in the {0}?", "[It is dark|It is too dark|I can see nothing] in the {0}.", "[Lights|Light] in the {0}, please.", "[Make|I want] light in the {0}."), ("I need light in the {0}.",)),
    Family(("play_music", "play_song", "play"), ("Play music", "Play a song"),
           ((("song", "title", "music", "name"), _noun),), ("[Play|Please play|Start] [the song|music by|] {0}.", "I want to [hear|listen to] the song {0}.", "[Put on|Turn on|Let me hear|I would like to hear] [the song|the music|the tune] {0}.", "[Could you|Would you|Will you] play [the song|the title|] {0}?", "[Music|Song|Play this song]: {0}"), ("Can you play the song {0}?",)),
    Family(("read_file", "open_file", "cat", "get_file"), ("Read a file", "Returns the content of a file"),
           ((("path", "file", "filename"), _file),),
           ("[Read|Open|Show|Show me|Print] [the file|] {0}.", "What is in [the file|] {0}?", "[Could you|Can you|Please] [read|open|show|print] [the file|] {0}[.|?]", "[Give me|Tell me|I need] [the content of|the text of|what is in] {0}.", "[What does|What text does] the file {0} [say|contain|hold]?"), ("I want to see the file {0}.",)),
    Family(("translate", "translate_text"), ("Translate a text", "Translate to a language"),
           ((("text", "word", "source"), _noun), (("language", "to", "target"), lambda words: words.rng.choice(("French", "German", "Spanish", "Latin")))),
           ("[Translate|Please translate] {0} [to|into] {1}.", "[What is|How do you say] {0} in {1}?", "[Could you|Can you|Would you] translate {0} [to|into] {1}?", "[Say|Write|Put] {0} in {1}.", "[Tell me|Give me] the {1} [word|words|name] for {0}.", "{0} in {1}, please."), ("I need {0} in {1}.",)),
    Family(("get_user", "lookup_user", "find_user", "user_info"), ("Look up a user", "Get information about a user"),
           ((("name", "user", "user_name"), _listed("name")),), ("[Look up|Find|Show|Get] [the user|user] {0}.", "Who is the user {0}?", "[Could you|Can you|Please] [look up|find|get|show] the user {0}[.|?]", "[Give me|I need|Tell me] [the data of|information about|details of] [the user|user] {0}.", "[User|Which user is] {0}?"), ("Give me the user {0}.",)),
    Family(("create_note", "add_note", "save_note", "note"), ("Save a note", "Create a note with a text"),
           ((("text", "content", "note"), _noun),), ("[Make|Create|Save|Write|Add] a note: {0}", "[Note|Write] down {0}.", "[Could you|Can you|Please] [make|create|save|write] a note[ that says|]: {0}", "[New note|My note|A note|Put this in my notes|Add to my notes]: {0}", "[I want|I need] a note [with|that says] {0}."), ("Please take a note: {0}",)),
    Family(("subtract", "minus", "difference"), ("Subtract two numbers", "Returns a difference"),
           ((("a", "x", "left", "first"), _small), (("b", "y", "right", "second"), _small)),
           ("[Compute|Calculate|Do] {0} minus {1}.", "[What is|How much is] {0} [minus|less] {1}?", "[What is|Give me] the difference of {0} and {1}.", "[Subtract|Take|Please subtract] {1} from {0}."), ("Use the tool for {0} minus {1}.",)),
    Family(("divide", "divide_numbers", "quotient"), ("Divide two numbers", "Returns a quotient"),
           ((("a", "x", "left", "number"), _small), (("b", "y", "right", "by"), _small)),
           ("[Divide|Please divide] {0} by {1}.", "[What is|How much is] {0} [divided by|over] {1}?", "[Compute|Calculate] {0} / {1}."), ("Use the tool to divide {0} by {1}.",)),
    Family(("turn_off_light", "light_off", "switch_off"), ("Turn off the light in a room", "Switch off a light"),
           ((("room", "place", "where"), _listed("place")),), ("[Turn off|Switch off|Please turn off|Put out] the [light|lamp|lights] in the {0}.", "[Light|Lights] off in the {0}.", "[It is too bright|Make it dark] in the {0}."), ("I need no more light in the {0}.",)),
    Family(("book_flight", "find_flight", "search_flights", "flights"), ("Find a flight between two cities", "Book a flight"),
           ((("from", "origin", "start"), _listed("city")), (("to", "destination", "target"), _listed("city"))),
           ("[Book|Find|Search|Get me|I need] a flight from {0} to {1}.", "[Fly|I want to fly|I have to fly] from {0} to {1}.", "[Is there|Which is] a flight from {0} to {1}?"), ("Can you find me a flight from {0} to {1}?",)),
    Family(("book_hotel", "find_hotel", "hotel", "reserve_room"), ("Find a hotel in a city", "Book a hotel room"),
           ((("city", "place", "location"), _listed("city")),), ("[Book|Find|Get me|Reserve|I need] [a hotel|a hotel room] in {0}.", "[Where can I sleep|Which hotels are there|Is there a hotel] in {0}?"), ("I am looking for a hotel in {0}.",)),
    Family(("order_food", "order", "food_order"), ("Order food", "Order something to eat"),
           ((("dish", "food", "meal", "item"), _listed("food")),), ("[Order|Please order|Get me|Bring me] {0}[.| for dinner.| for lunch.]", "[I want|I would like] to [eat|order] {0}.", "I am hungry, [order|get] {0}."), ("Could you order {0} for me?",)),
    Family(("get_recipe", "recipe", "find_recipe"), ("Get a recipe", "How to cook a dish"),
           ((("dish", "food", "name"), _listed("food")),), ("[How do I|How can I|How does one] [cook|make|prepare] {0}?", "[Give me|Find|Show me|Get] [a|the] recipe for {0}."), ("I need the recipe for {0}.",)),
    Family(("add_event", "create_event", "calendar", "schedule"), ("Add an event to the calendar", "Create an appointment"),
           ((("title", "event", "name"), _noun), (("day", "date", "when"), _listed("day"))),
           ("[Add|Put|Enter] {0} [to|in] my calendar on {1}.", "[Schedule|Plan] {0} [for|on] {1}.", "[On|For] {1}, [add|plan|schedule] {0}."), ("Please put {0} on my calendar for {1}.",)),
    Family(("call_person", "phone_call", "call", "dial"), ("Call a person", "Make a phone call"),
           ((("name", "person", "contact"), _listed("name")),), ("[Call|Please call|Phone|Ring|Dial] {0}.", "[I want to|I need to|Let me] [call|phone|speak to] {0}.", "[Could you|Can you] [call|phone] {0}?"), ("Make a phone call to {0}.",)),
    Family(("delete_file", "remove_file", "rm"), ("Delete a file", "Removes a file"),
           ((("path", "file", "filename"), _file),), ("[Delete|Remove|Erase|Please delete] [the file|] {0}.", "[I do not need|Throw away|Get rid of] the file {0}."), ("Can you delete the file {0}?",)),
    Family(("convert_currency", "exchange", "currency"), ("Convert an amount of money", "Exchange rate of a currency"),
           ((("amount", "value", "sum"), _small), (("currency", "to", "target"), lambda words: words.rng.choice(("euros", "dollars", "pounds", "yen", "francs")))),
           ("[Convert|Change|Exchange] {0} [to|into] {1}.", "[How much is|What is] {0} in {1}?"), ("I want {0} changed to {1}.",)),
    Family(("get_price", "price", "stock_price", "check_price"), ("Get the price of a product", "Price of an item"),
           ((("product", "item", "name"), _noun),), ("[What is|Tell me|Check|Get|Show] the price of {0}.", "[How much|What] does {0} cost?"), ("I want to know the price of {0}.",)),
    Family(("set_alarm", "alarm", "wake_up"), ("Set an alarm at an hour", "Wake somebody up"),
           ((("hour", "at", "time"), lambda words: int(words.number(1, 24))),), ("[Set|Make] an alarm [at|for] {0}.", "Wake me [up|] at {0}.", "[Alarm|Ring] at {0}, please."), ("I have to get up at {0}.",)),
    Family(("set_temperature", "heat", "heating", "thermostat"), ("Set the heating of a room", "Heat a room"),
           ((("degrees", "temperature", "value"), lambda words: int(words.number(10, 30))),), ("[Set|Put|Turn] the heating to {0} [degrees|].", "[Heat|Warm] [the house|the room|it] to {0} degrees.", "Make it {0} degrees [in here|]."), ("I want it to be {0} degrees here.",)),
    Family(("get_distance", "distance", "route"), ("Distance between two cities", "Find a route"),
           ((("from", "a", "start"), _listed("city")), (("to", "b", "end"), _listed("city"))),
           ("How far is it from {0} to {1}?", "[What is|Tell me|Get|Find] the [distance|way|route] from {0} to {1}."), ("I want to know how far {1} is from {0}.",)),
    Family(("define_word", "dictionary", "definition"), ("Look up a word in the dictionary", "Definition of a word"),
           ((("word", "term", "text"), _noun),), ("[Define|Please define] {0}.", "[What does|What might] {0} mean?", "[What is|Give me] the [meaning|definition] of {0}."), ("I need a definition of {0}.",)),
    Family(("add_contact", "save_contact", "new_contact"), ("Save a contact with a number", "Add a person to the contacts"),
           ((("name", "person", "contact"), _listed("name")), (("number", "phone"), lambda words: int(words.number(1000, 99999)))),
           ("[Add|Save|Store] [the contact|] {0} with [the number|number] {1}.", "The number of {0} is {1}, [save|store|add] it.", "[New contact|Contact]: {0}, {1}"), ("Please keep {0} as a contact with {1}.",)),
    Family(("buy_item", "add_to_cart", "shopping_list", "buy"), ("Buy a number of things", "Add things to the shopping cart"),
           ((("item", "product", "what"), _noun), (("count", "quantity", "amount"), lambda words: int(words.number(1, 40)))),
           ("[Buy|Get|Order|Please buy] {1} of {0}.", "[Add|Put] {1} {0} [to|in] [the|my] cart.", "[Shopping|To buy]: {0}, {1} pieces."), ("I would like to buy {0}, {1} of them.",)),
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


def _schema(rng: Random, name: str, about: str, parameters: dict[str, str], described: float = 0.85) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for key, of_type in parameters.items():
        properties[key] = {"type": of_type}
        if rng.random() < 0.3:
            properties[key]["description"] = f"The {key}"
    function: dict[str, Any] = {"name": name}
    if rng.random() < described:
        function["description"] = about + rng.choice(("", "."))
    function["parameters"] = {"type": "object", "properties": properties}
    if rng.random() < 0.8:
        function["parameters"]["required"] = list(parameters)
    return {"type": "function", "function": function}


def offer(rng: Random, family: Family, name: str = "") -> Tool:
    """A tool of a family, under one of its names, or under another that only its description explains."""
    keys = tuple(rng.choice(names) for names, _ in family.parameters)
    draws = Vocabulary(Random(rng.random()), held=False)
    kinds = {
        key: "integer" if isinstance(draw(draws), int) else "string"
        for key, (_, draw) in zip(keys, family.parameters, strict=True)
    }
    about, described = rng.choice(family.about), 1.0 if name else 0.85
    return Tool(_schema(rng, name or rng.choice(family.names), about, kinds, described), family, keys)


_INVENTED_VERBS = ("get", "find", "check", "open", "show", "read", "load", "fetch", "test", "count")
_INVENTED_ASK = (
    "[Get|Find|Check|Open|Show|Read|Load|Fetch] the {n} [of|for] {0}.",
    "[What is|Tell me|Give me|Look up|I need|Show me|I want] the {n} [of|for] {0}.",
    "[Can you|Could you|Please|Would you] [get|find|check|open|show] the {n} [of|for] {0}[.|?]",
    "{0}: [what is|get|find|show] the {n}[.|?| of it.]",
    "[Use|Call|Run|Ask] the {n} [for|with|on] {0}.",
)


def offer_invented(rng: Random) -> Tool:
    """A tool with an invented purpose: it is asked for by its noun, which its name or its description tells."""
    noun, key = invented_word(rng), rng.choice(("name", "id", "value", "text", "item", "key", "user", "query"))
    verb = rng.choice(_INVENTED_VERBS)
    plain = rng.random() < 0.6
    name = rng.choice((f"{verb}_{noun}", f"{verb}_{noun}", noun, f"{noun}_{verb}")) if plain else invented_word(rng)
    about = f"{verb.title()} the {noun}"
    return Tool(_schema(rng, name, about, {key: "string"}, 0.85 if plain else 1.0), None, (key,), noun)


def request(rng: Random, words: Vocabulary, tool: Tool) -> tuple[str, dict[str, Any]]:
    """Returns a question that this tool answers, and the arguments for it."""
    if tool.family is None:
        value = words.proper("name")
        ask = expand(rng, rng.choice(_INVENTED_ASK)).replace("{n}", tool.noun)
        return ask.replace("{0}", value), {tool.parameters[0]: value}
    values = [draw(words) for _, draw in tool.family.parameters]
    text = expand(rng, rng.choice(tool.family.ask_held if words.held else tool.family.ask))
    for index, filled in enumerate(values):
        text = text.replace(f"{{{index}}}", str(filled))
    return text, dict(zip(tool.parameters, values, strict=True))


_RESULT_KEYS = ("temperature", "time", "result", "status", "name", "wind", "id", "sky")
_MORE_KEYS = tuple(
    "humidity count price user message sent file lines state level size date room title city value".split()
)
_RESULT_VALUES = ("colour", "colour", "thing", "animal", "food", "name", "city", "day", "job", "place")


def _field(rng: Random, words: Vocabulary) -> tuple[str, str | int]:
    """Returns a key and a value for a JSON result."""
    keys = _RESULT_KEYS if words.held else (*_RESULT_KEYS, *_MORE_KEYS)
    key = rng.choice((*keys, *[words.word("thing").replace(" ", "_")] * (1 if words.held else 8)))
    if rng.random() < 0.5:
        return key, int(words.number(0, 999 if words.held else rng.choice((9, 99, 999, 9999))))
    value = words.word("colour") if words.held else words.draw(rng.choice(_RESULT_VALUES))
    return key, int(value) if value.isdigit() else value


def response(rng: Random, words: Vocabulary) -> tuple[str, str]:
    """Returns a result of the tool, and the model's sentence about it."""
    if rng.random() < 0.4:
        options = [
            words.word("thing"),
            words.number(0, 9999),
            f"{words.word('colour')} {words.word('thing')}",
            "ok",
            "done",
            f"{words.number(0, 40)} degrees, sunny",
        ]
        if not words.held:
            sky = rng.choice(("rain", "snow", "cloudy", "windy", "clear"))
            options += [words.proper("name"), words.draw(rng.choice(_RESULT_VALUES)), f"{words.number(0, 40)} {sky}"]
            options += [f"{words.word('thing')}, {words.word('thing')}", words.code()]
        text = rng.choice(options)
        return text, f"The result is: {text}"
    pairs = dict(_field(rng, words) for _ in range(rng.randint(1, 3)))
    return json.dumps(pairs), "The result is: " + ", ".join(f"{key} {value}" for key, value in pairs.items())


def call_turns(rng: Random, words: Vocabulary, tool: Tool) -> list[Message]:
    """Returns a request, the call, the tool's response and the final answer."""
    question, arguments = request(rng, words, tool)
    result, told = response(rng, words)
    return [
        Message("user", question),
        Message("assistant", tool_call(tool.name, arguments), "tool_call"),
        Message("tool", result),
        Message("assistant", told, "tool_answer"),
    ]


def offers(rng: Random) -> list[Tool]:
    """Returns one to four tools with different names, in any order. Some differ only in their descriptions."""
    families = rng.sample(FAMILIES, rng.choice((1, 2, 2, 2, 3, 3, 4)))
    tools: list[Tool] = []
    for family in families:
        roll = rng.random()
        if roll < 0.2:
            tools.append(offer_invented(rng))
        else:
            tools.append(offer(rng, family, invented_word(rng) if roll < 0.3 else ""))
    rng.shuffle(tools)
    return list({tool.name: tool for tool in tools}.values())
