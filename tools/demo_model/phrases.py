"""Templates with alternatives, and random noise like that in text that people type."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

# Words that can be nearly anywhere in a sentence without changing its meaning.
FILLERS = (
    "really", "actually", "of course", "simply", "today", "well", "maybe", "still", "only", "kindly", "always", "surely",
    "certainly", "dear model", "as always", "you see", "here", "indeed", "honestly", "in general", "by now", "so far",
    "as of today", "for sure", "my dear", "quickly", "too", "also", "once more", "right away", "as it happens", "you two",
    "in truth", "um", "uh", "like", "basically", "truly", "luckily", "sadly", "anyway", "in short", "with pleasure",
    "my good model", "this time", "this evening", "from here", "as said", "clearly", "gladly", "hopefully", "perhaps",
)  # fmt: skip
_DROPPED = frozenset("is the a an my i do to of you please can it that this are am in was did for as me have".split())
_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"(\{\w+\})")


def expand(rng: Random, template: str) -> str:
    """Replaces each `[a|b|c]` by one of its alternatives, which may be nested."""
    while True:
        match = _CHOICE.search(template)
        if match is None:
            return re.sub(r" {2,}", " ", template).strip()
        choice = rng.choice(match.group(1).split("|"))
        template = template[: match.start()] + choice + template[match.end() :]


def join_lower(prefix: str, sentence: str) -> str:
    """Puts words before a sentence, which then no longer begins with a capital letter."""
    keep = sentence.startswith(("I ", "I'", "{"))
    return f"{prefix} {sentence if keep else sentence[:1].lower() + sentence[1:]}"


def noisy(rng: Random, template: str, amount: float) -> str:
    """Adds typos to the words of a template and removes capital letters and punctuation. Slots are not changed."""
    if rng.random() >= amount:
        return template
    parts = _SLOT.split(template)
    style = rng.choice(("lower", "typo", "bare", "lower bare", "typo", "shout"))
    if "lower" in style:
        parts = [p if p.startswith("{") else p.lower() for p in parts]
    if "bare" in style:
        parts = [p if p.startswith("{") else p.replace("'", "").replace("?", "").replace(".", "") for p in parts]
    if style == "shout" and rng.random() < 0.3:
        parts = [p if p.startswith("{") else p.upper() for p in parts]
    if style == "typo":
        parts = [p if p.startswith("{") else _typo(rng, p) for p in parts]
    return "".join(parts)


def jumbled(rng: Random, template: str, amount: float, invented: Callable[[Random], str]) -> str:
    """Adds or removes words, so that the model learns to rely on the few words that matter. Slots are not changed."""
    if rng.random() >= amount:
        return template
    words = template.split(" ")
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(words) + 1)
        if rng.random() < 0.35 and at < len(words) > 3 and words[at].lower() in _DROPPED:
            del words[at]
        else:
            beside = "".join(words[max(0, at - 1) : at + 1])
            words.insert(at, invented(rng) if rng.random() < 0.3 and "{" not in beside else rng.choice(FILLERS))
    return " ".join(words)


def wrapped(rng: Random, template: str, amount: float) -> str:
    """Adds a word or two before a request, or after it if it does not end with a slot."""
    if rng.random() >= amount:
        return template
    filler = rng.choice(FILLERS)
    return f"{template} {filler}" if rng.random() < 0.4 and not template.endswith("}") else f"{filler} {template}"


def _typo(rng: Random, text: str) -> str:
    """Drops, doubles or swaps one letter."""
    places = [i for i in range(1, len(text) - 1) if text[i].isalpha() and text[i + 1].isalpha()]
    if not places:
        return text
    at = rng.choice(places)
    kind = rng.randrange(3)
    if kind == 0:
        return text[:at] + text[at + 1 :]
    if kind == 1:
        return text[:at] + text[at] + text[at:]
    return text[:at] + text[at + 1] + text[at] + text[at + 2 :]
