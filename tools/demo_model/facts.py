"""Random facts: a kind of fact, the thing it is about, and its value."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tools.demo_model.kinds import KINDS, Kind
from tools.demo_model.words import Vocabulary, invented_word


@dataclass(frozen=True, slots=True)
class Fact:
    """A kind with its noun and value filled in."""

    kind: Kind
    noun: str
    value: str

    @property
    def key(self) -> str:
        return f"{self.kind.key}:{self.noun}"

    def fill(self, template: str) -> str:
        text = template.replace("{n}", self.noun).replace("{is}", verb_of(self.noun))
        return with_article(text, self.value).replace("{v}", self.value)

    @property
    def answer(self) -> str:
        return self.fill(self.kind.answer)

    @property
    def unknown(self) -> str:
        return self.fill(self.kind.unknown)


def with_article(template: str, value: str) -> str:
    """Replaces `a` by `an` before a value that needs it."""
    return template.replace(" a {v}", " an {v}") if value[:1].lower() in "aeiou" else template


def verb_of(noun: str) -> str:
    """Returns the verb form for a thing: keys are, a phone is."""
    return "are" if noun in ("keys", "glasses", "shoes", "gloves", "tickets", "books", "letters", "boots") else "is"


# fmt: off
_FAVOURITE_CATEGORY = {
    "colour": "colour", "animal": "animal", "food": "food", "meal": "food", "dish": "food",
    "drink": "drink", "number": "number", "city": "city", "month": "month", "day": "day", "sport": "hobby",
    "place": "city", "game": "hobby", "band": "name", "team": "name", "movie": "thing",
}
# fmt: on


_FIRST = (
    "secret lucky door room gate entry bank safe bike car phone ticket train order house member student team group desk "
    "tax user home work summer winter garden office bus boat first last main old new real blue red short long big small"
).split()
_SECOND = "code number word name key card plan date list address line mark tag rule place group book letter".split()


def kind_named(key: str) -> Kind:
    return next(kind for kind in KINDS if kind.key == key)


def category_of(kind: Kind, noun: str) -> str:
    """Returns the category of values that fits a kind and its noun."""
    if kind.key == "favourite":
        return _FAVOURITE_CATEGORY.get(noun, "thing")
    if kind.key in ("mine", "memo") and "number" in noun:
        return "number"
    return kind.category


def draw_noun(rng: Random, kind: Kind, held: bool) -> str:
    """Returns the thing that a fact is about. In training it is sometimes invented, so that the model learns to handle
    any noun.
    """
    if not kind.nouns:
        return ""
    if held:
        return rng.choice(kind.nouns_held)
    roll = rng.random()
    if kind.key in ("mine", "memo") and roll < 0.3:
        second = rng.choice(_SECOND) if rng.random() < 0.75 else invented_word(rng)
        return f"{rng.choice(_FIRST) if rng.random() < 0.6 else invented_word(rng)} {second}"
    return invented_word(rng) if roll > 0.8 else rng.choice(kind.nouns)


def draw_kind(rng: Random) -> Kind:
    return rng.choices(KINDS, [kind.weight for kind in KINDS])[0]


def draw_fact(rng: Random, words: Vocabulary) -> Fact:
    """Returns a random fact."""
    kind = draw_kind(rng)
    noun = draw_noun(rng, kind, words.held)
    return Fact(kind, noun, words.draw(category_of(kind, noun)))


def revalue(fact: Fact, words: Vocabulary) -> Fact:
    """Returns the same fact with another value."""
    while True:
        value = words.draw(category_of(fact.kind, fact.noun))
        if value != fact.value:
            return Fact(fact.kind, fact.noun, value)
