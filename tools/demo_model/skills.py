"""Small skills with one right answer: sums, counting, spelling, repeating, lists, JSON, stories."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

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
    return wrapped(rng, expand(rng, rng.choice(train)), 0.2)


# fmt: off
_SUM_TRAIN = ("[Work out|Do|Solve|Find|How much would be|What makes] {s}.", "[What is|What's|Calculate|Compute|How much is|What does|Tell me] {s}?", "{s}", "{s} =", "{s}?", "[Please|Can you] [calculate|add up|compute] {s}.")
_SUM_HELD = ("How many is {s}?", "Work out {s} [please|for me].")
# fmt: on


def arithmetic(rng: Random, words: Vocabulary) -> Exchange:
    """Sums, differences and products of numbers up to ten; larger ones are refused."""
    sign = rng.choice("++--*")
    left, right = rng.randint(0, LIMIT), rng.randint(0, LIMIT)
    if rng.random() < 0.15:
        left, right = rng.randint(LIMIT + 1, 9999), rng.randint(0, rng.choice((LIMIT, 99, 9999)))
    if sign == "-" and right > left:
        left, right = right, left
    value = {"+": left + right, "-": left - right, "*": left * right}[sign]
    names = {"+": ("+", "plus"), "-": ("-", "minus"), "*": ("*", "x", "times")}[sign]
    show = str if max(left, right) > 12 or rng.random() < 0.8 else NUMBER_WORDS.__getitem__
    text = f"{show(left)} {rng.choice(names)} {show(right)}"
    if rng.random() < 0.15:
        text = f"{left}{sign}{right}"
    question = _phrase(rng, words, _SUM_TRAIN, _SUM_HELD).replace("{s}", text)
    return question, TOO_LARGE if max(left, right) > LIMIT else f"{left} {sign} {right} = {value}"


def counting(rng: Random, words: Vocabulary) -> Exchange:
    """Counting up to a number, between two numbers, or down to one."""
    low, high = 1, rng.randint(2, rng.choice((10, 20, 30)))
    how = rng.choice(("up", "up", "between", "down"))
    train = {
        "up": (
            "[Count|Count up|Please count|Can you count] to {h}[.|!|]",
            "Count from 1 to {h}.",
            "[Start counting|Count now|I want you to count] up to {h}.",
        ),
        "between": (
            "[Count|Please count] from {l} to {h}.",
            "[Numbers|Give me the numbers] from {l} to {h}.",
            "[Start with|Begin at|Start from] {l} and [go|count] up to {h}.",
        ),
        "down": (
            "[Count down|Count backwards|Count back] from {h}.",
            "[Start|Make|Give me] a countdown [of|at] {h}.",
            "[Count down|Count backwards] from {h} to 1.",
        ),
    }
    held = {
        "up": ("Now count up to {h}, please.",),
        "between": ("Start at {l} and count to {h}.",),
        "down": ("Do a countdown from {h}.",),
    }
    if how == "between":
        low = rng.randint(1, 20)
        high = low + rng.randint(1, 10)
    question = _phrase(rng, words, train[how], held[how])
    if not words.held and rng.random() < 0.35:
        question = question.rstrip(".!") + rng.choice((", please.", " for me.", ", then stop.", " please", ", okay?"))
    question = question.replace("{l}", str(low)).replace("{h}", str(high))
    numbers = range(high, low - 1, -1) if how == "down" else range(low, high + 1)
    return question, ", ".join(str(n) for n in numbers)


def spelling(rng: Random, words: Vocabulary) -> Exchange:
    """A word, letter by letter."""
    word = words.proper("name") if rng.random() < 0.5 else words.word("thing")
    word = word.split(" ")[0]
    question = _phrase(
        rng, words,
        ("[Spell|Please spell|Can you spell|Spell the word|Spell the name] {w}.", "How do you [spell|write] {w}?", "[Spell out|Give me the letters of] {w}.", "What are the letters in {w}?", "[Can you|Could you|Would you|Please] spell [the word|the name|] {w}?", "[Spell this letter by letter|Letter by letter, spell|Give each letter of]: {w}"),
        ("Could you spell {w} for me?", "Spell {w}, letter by letter."),
    )  # fmt: skip
    return question.replace("{w}", word), "-".join(word)


def repeating(rng: Random, words: Vocabulary) -> Exchange:
    """What was said, word for word, once or several times."""
    text = " ".join(words.word(rng.choice(("thing", "animal", "food", "colour"))) for _ in range(rng.randint(1, 5)))
    if rng.random() < 0.4:
        text = _sentence(rng, words)
    if rng.random() < 0.2:
        count = rng.randint(2, 4)
        question = _phrase(
            rng,
            words,
            (
                "[Say|Repeat|Write|Can you repeat|Could you say|Please say] {w} [two|2] times.".replace(
                    "[two|2]", f"[{NUMBER_WORDS[count]}|{count}]"
                ),
            ),
            (f"Can you say {{w}} {count} times?",),
        )
        return question.replace("{w}", text), " ".join([text] * count)
    question = _phrase(
        rng, words,
        ("[Repeat after me|Repeat|Say|Please repeat|Echo|Say this|Repeat this|Write this|Copy this]: {w}", "[Say|Repeat|Echo|Write] {w}", "[Please repeat this|Repeat the words|Say these words|I want you to say|Now say|Say the following|Please echo what I say]: {w}", '[Say|Repeat|Write] "{w}"'),
        ("Now repeat the following: {w}", "Please say after me: {w}"),
    )  # fmt: skip
    return question.replace("{w}", text), text


_SENTENCES = (
    "The {thing} is {colour}.", "I see a {thing} and a {animal}.", "The {animal} eats {food}.", "{name} likes {food}.", "My {animal} is under the {thing}.",
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
        question = _phrase(
            rng, words,
            ("[Make|Write|Give me|Create] a list [of|with|from]: {w}", "[List these|Put these in a list|Turn this into a list]: {w}", "Make a list with {w}."),
            ("As a list, please: {w}", "Format this as a list: {w}"),
        )  # fmt: skip
        return question.replace("{w}", ", ".join(items)), "\n".join(f"- {item}" for item in items)
    category, plural = rng.choice(list(_LISTABLE.items()))
    count = rng.randint(2, 5)
    question = _phrase(
        rng, words,
        ("[List|Name|Give me|Tell me|Write down|Show me] {k} {c}.", "[Give me|Make|Write] a list of {k} {c}.", "[I need|Can you give me|Can you list|Could you name|I want] {k} {c}."),
        ("I need a list of {k} {c}.", "Can you name {k} {c}?"),
    )  # fmt: skip
    question = question.replace("{k}", rng.choice((str(count), NUMBER_WORDS[count]))).replace("{c}", plural)
    return question, "\n".join(f"- {item}" for item in LISTS[category].train[:count])


def json_object(rng: Random, words: Vocabulary) -> Exchange:
    """A JSON object with given keys, and given values if there are any."""
    keys = list(dict.fromkeys(words.word("thing").replace(" ", "_") for _ in range(rng.randint(1, 4))))
    if rng.random() < 0.5:
        question = _phrase(
            rng, words,
            ("[Write|Give me|Make|Create|Return|Output] [a|one] JSON object with the [key|keys|fields] {w}.", "JSON object with [keys|fields] {w}", "[Give me|Make] JSON with the keys {w}.", "[I want|I need|Answer with] JSON [with|that has] the [keys|fields] {w}."),
            ("I need a JSON object that has the keys {w}.", "Answer with a JSON object with the keys {w}."),
        )  # fmt: skip
        joined = " and ".join((", ".join(keys[:-1]), keys[-1])) if len(keys) > 1 else keys[0]
        return question.replace("{w}", joined), json.dumps(dict.fromkeys(keys, ""))
    pairs: dict[str, object] = {}
    for key in keys:
        pairs[key] = int(words.number(0, 999)) if rng.random() < 0.4 else words.word("colour")
    question = _phrase(
        rng, words,
        ("[Write|Give me|Make|Create|Return|Output] [a|one] JSON object with {w}.", "[Turn this into|Convert to|As] JSON: {w}", "[Make|Write] JSON from {w}.", "[I want|I need|Format this as] JSON [with|of|:] {w}."),
        ("I need a JSON object with {w}.", "Format as JSON: {w}"),
    )  # fmt: skip
    sign = rng.choice((" = ", ": ", "="))
    joined = ", ".join(f"{key}{sign}{value}" for key, value in pairs.items())
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
    question = _phrase(
        rng, words,
        ("[Tell me|Tell|Write|Write me|Can you tell me] a [|short|little|two-sentence] story about [a|the] {w}.", "[A story|A short story] about a {w}, please."),
        ("I would like to hear a story about a {w}.", "Do you know a story about a {w}?"),
    )  # fmt: skip
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
