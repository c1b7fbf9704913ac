"""Small skills with one right answer: sums, counting, spelling, repeating, lists, JSON, stories."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

from tools.demo_model import askings
from tools.demo_model.phrases import expand, wrapped
from tools.demo_model.words import LISTS, Vocabulary

LIMIT = 10
NUMBER_WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()
TOO_LARGE = "That is too large for me. I only do sums with numbers up to ten."

Exchange = tuple[str, str]
Skill = Callable[[Random, Vocabulary], Exchange]


def _phrase(rng: Random, words: Vocabulary, train: tuple[str, ...], held: tuple[str, ...]) -> str:
    if words.held:
        return expand(rng, rng.choice(held))
    text = expand(rng, rng.choice(train))
    return text if text.startswith("{w}") else wrapped(rng, text, 0.2)


_SUM_HELD = ("How many is {s}?", "Work out {s} [please|for me].")
_OPERATIONS = {"+": ("+", "plus"), "-": ("-", "minus"), "*": ("*", "x", "times")}


def _too_large(rng: Random, held: bool) -> tuple[int, int]:
    """Two numbers of which one at least is above the limit, often by little."""
    if held:
        return rng.randint(LIMIT + 1, 9999), rng.randint(0, rng.choice((LIMIT, 99, 9999)))
    large = rng.randint(LIMIT + 1, rng.choice((13, 20, 99, 999, 9999)))
    other = rng.randint(0, rng.choice((LIMIT, LIMIT, 20, 99, 999, 9999)))
    return (large, other) if rng.random() < 0.6 else (other, large)


def arithmetic(rng: Random, words: Vocabulary) -> Exchange:
    """Sums, differences and products of numbers up to ten; larger ones are refused."""
    sign = rng.choice("++--*")
    left, right = rng.randint(0, LIMIT), rng.randint(0, LIMIT)
    if rng.random() < (0.15 if words.held else 0.22):
        left, right = _too_large(rng, words.held)
    if sign == "-" and right > left:
        left, right = right, left
    value = {"+": left + right, "-": left - right, "*": left * right}[sign]
    show = str if max(left, right) > 12 or rng.random() < 0.8 else NUMBER_WORDS.__getitem__
    text = f"{show(left)} {rng.choice(_OPERATIONS[sign])} {show(right)}"
    if not words.held and rng.random() < 0.06:
        what = {"+": "the sum of", "-": "the difference of", "*": "the product of"}[sign]
        text = f"{what} {show(left)} and {show(right)}"
    if rng.random() < 0.15:
        text = f"{left}{sign}{right}"
    question = _phrase(rng, words, askings.SUM, _SUM_HELD).replace("{s}", text)
    return question, TOO_LARGE if max(left, right) > LIMIT else f"{left} {sign} {right} = {value}"


def counting(rng: Random, words: Vocabulary) -> Exchange:
    """Counting up to a number, between two numbers, or down to one."""
    low, high = 1, rng.randint(2, rng.choice((10, 20, 30)))
    how = rng.choice(("up", "up", "between", "down"))
    held = {
        "up": ("Now count up to {h}, please.",),
        "between": ("Start at {l} and count to {h}.",),
        "down": ("Do a countdown from {h}.",),
    }
    if how == "between":
        low = rng.randint(1, 20)
        high = low + rng.randint(1, 10)
    question = _phrase(rng, words, askings.COUNT[how], held[how])
    if not words.held and rng.random() < 0.35:
        question = question.rstrip(".!") + rng.choice((", please.", " for me.", ", then stop.", " please", ", okay?"))
    question = question.replace("{l}", str(low)).replace("{h}", str(high))
    numbers = range(high, low - 1, -1) if how == "down" else range(low, high + 1)
    return question, ", ".join(str(n) for n in numbers)


def _single_word(rng: Random, words: Vocabulary) -> str:
    """A word to spell; training spells words of every category."""
    if words.held:
        word = words.proper("name") if rng.random() < 0.5 else words.word("thing")
        return word.split(" ")[0]
    category = rng.choice(("name", "name", "name", "city", "thing", "thing", "animal", "food", "colour", "job"))
    word = words.proper(category) if category in ("name", "city") else words.word(category)
    word = rng.choice(word.split(" "))
    return word if rng.random() < 0.9 else rng.choice((word.title(), word.upper()))


def spelling(rng: Random, words: Vocabulary) -> Exchange:
    """A word, letter by letter."""
    word = _single_word(rng, words)
    held = ("Could you spell {w} for me?", "Spell {w}, letter by letter.")
    return _phrase(rng, words, askings.SPELL, held).replace("{w}", word), "-".join(word)


def repeating(rng: Random, words: Vocabulary) -> Exchange:
    """Repeats a text word for word, once or several times."""
    text = " ".join(words.word(rng.choice(("thing", "animal", "food", "colour"))) for _ in range(rng.randint(1, 5)))
    if rng.random() < 0.4:
        text = _sentence(rng, words)
    if rng.random() < 0.2:
        count = rng.randint(2, 4)
        question = _phrase(rng, words, askings.REPEAT_TIMES, ("Can you say {w} {n} times?",))
        shown = str(count) if words.held else rng.choice((str(count), NUMBER_WORDS[count]))
        question = question.replace("{n}", shown)
        return question.replace("{w}", text), " ".join([text] * count)
    held = ("Now repeat the following: {w}", "Please say after me: {w}")
    question = _phrase(rng, words, askings.REPEAT, held)
    if text.endswith("."):
        question = question.replace("{w}?", "{w}")
    return question.replace("{w}", text), text


_SENTENCES = (
    "The {thing} is {colour}.", "I see a {thing} and a {animal}.", "The {animal} eats {food}.", "{name} likes {food}.", "The {animal} sleeps under the {thing}.",
    "We go to {city} on {day}.", "{name} and {name} drink {drink}.", "The {job} has a {colour} {thing}.", "There is a {thing} in the {place}.", "In {month} it is warm in {city}.",
)  # fmt: skip


def _sentence(rng: Random, words: Vocabulary) -> str:
    text = rng.choice(_SENTENCES)
    while "{" in text:
        start, end = text.index("{"), text.index("}")
        category = text[start + 1 : end]
        text = text[:start] + words.draw(category) + text[end + 1 :]
    return text


def passage(rng: Random, words: Vocabulary, sentences: int) -> str:
    """Plain sentences that have nothing to do with the person who pastes them."""
    return " ".join(_sentence(rng, words) for _ in range(sentences))


# fmt: off
_LISTABLE = {"colour": "colours", "animal": "animals", "food": "foods", "drink": "drinks", "name": "names", "city": "cities", "job": "jobs"}
# fmt: on


def listing(rng: Random, words: Vocabulary) -> Exchange:
    """A list of a category, or of given things."""
    if rng.random() < 0.5:
        items = [words.word(rng.choice(("thing", "food", "animal", "colour"))) for _ in range(rng.randint(2, 5))]
        held = ("As a list, please: {w}", "Format this as a list: {w}")
        question = _phrase(rng, words, askings.LIST_ITEMS, held)
        return question.replace("{w}", ", ".join(items)), "\n".join(f"- {item}" for item in items)
    category, plural = rng.choice(list(_LISTABLE.items()))
    count = rng.randint(2, 5)
    held = ("I need a list of {k} {c}.", "Can you name {k} {c}?")
    question = _phrase(rng, words, askings.LIST_OF, held)
    question = question.replace("{k}", rng.choice((str(count), NUMBER_WORDS[count]))).replace("{c}", plural)
    return question, "\n".join(f"- {item}" for item in LISTS[category].train[:count])


_VALUED = ("colour", "colour", "thing", "animal", "food", "drink", "name", "city", "job", "day")
_EQUALS_HELD = (" = ", ": ", "=")
_EQUALS = (*_EQUALS_HELD, *_EQUALS_HELD, ":", " : ", " =", "= ", " is ", " -> ")


def _key(rng: Random, words: Vocabulary) -> str:
    if not words.held and rng.random() < 0.3:
        return rng.choice(askings.KEYS)
    category = "thing" if words.held else rng.choice(("thing", "thing", "animal", "food"))
    return words.word(category).replace(" ", "_")


def _value(rng: Random, words: Vocabulary) -> str | int:
    if rng.random() < 0.4:
        return int(words.number(0, 999 if words.held else rng.choice((9, 99, 999, 9999))))
    if words.held:
        return words.word("colour")
    value = words.draw(rng.choice(_VALUED))
    return int(value) if value.isdigit() else value


def _joined(rng: Random, parts: list[str], held: bool) -> str:
    """Parts of a list, separated by commas or in other ways."""
    if held or rng.random() < 0.5:
        return ", ".join(parts)
    if rng.random() < 0.5 and len(parts) > 1:
        return " and ".join((", ".join(parts[:-1]), parts[-1]))
    return rng.choice((" and ", "; ", ",", ", and ", " , ")).join(parts)


def json_object(rng: Random, words: Vocabulary) -> Exchange:
    """A JSON object with given keys, and given values if there are any."""
    keys = list(dict.fromkeys(_key(rng, words) for _ in range(rng.randint(1, 4))))
    if rng.random() < 0.5:
        held = ("I need a JSON object that has the keys {w}.", "Answer with a JSON object with the keys {w}.")
        question = _phrase(rng, words, askings.JSON_KEYS, held)
        joined = " and ".join((", ".join(keys[:-1]), keys[-1])) if len(keys) > 1 else keys[0]
        if not words.held and rng.random() < 0.3:
            joined = _joined(rng, keys, words.held)
        return question.replace("{w}", joined), json.dumps(dict.fromkeys(keys, ""))
    pairs = {key: _value(rng, words) for key in keys}
    held = ("I need a JSON object with {w}.", "Format as JSON: {w}")
    question = _phrase(rng, words, askings.JSON_PAIRS, held)
    sign = rng.choice(_EQUALS_HELD if words.held else _EQUALS)
    joined = _joined(rng, [f"{key}{sign}{value}" for key, value in pairs.items()], words.held)
    return question.replace("{w}", joined), json.dumps(pairs)


_STORY_FIRST = (
    "Once there was a {a} {w} that lived near a river.", "Long ago a {a} {w} stood at the end of the world.", "One morning a {a} {w} woke up and wanted to see the sea.",
    "There was once a {a} {w} that nobody knew.", "In a quiet village there was a {a} {w}.", "Every night a {a} {w} looked at the stars.",
)  # fmt: skip
_STORY_SECOND = (
    "It went on a long journey and found a good friend.", "One day it rained, and from then on the {w} was happy.", "Then a child came, and the {w} was never alone again.",
    "It helped everyone who came by, and so people still tell of the {w}.", "In the end the {w} came home and slept well.", "A bird showed it the way, and they stayed together.",
)  # fmt: skip
_ADJECTIVES = ("small", "brave", "old", "quiet", "happy", "lonely", "clever", "kind", "tiny", "friendly")


def story(rng: Random, words: Vocabulary) -> Exchange:
    """Two sentences about a given thing."""
    word = words.word(rng.choice(("thing", "animal")))
    held = ("I would like to hear a story about a {w}.", "Do you know a story about a {w}?")
    question = _phrase(rng, words, askings.STORY, held)
    text = f"{rng.choice(_STORY_FIRST)} {rng.choice(_STORY_SECOND)}".replace("{a}", rng.choice(_ADJECTIVES))
    return question.replace("{w}", word), text.replace("{w}", word)


SKILLS: dict[str, tuple[Skill, float]] = {
    "arithmetic": (arithmetic, 3.0),
    "counting": (counting, 1.0),
    "spelling": (spelling, 2.5),
    "repeating": (repeating, 1.6),
    "listing": (listing, 1.2),
    "json": (json_object, 1.4),
    "story": (story, 0.8),
}
