"""The mixture of conversations the model is trained on, from one seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from tools.demo_model import sessions
from tools.demo_model.chat import Conversation, Message
from tools.demo_model.facts import Fact, draw_fact, kind_named
from tools.demo_model.sessions import Talk
from tools.demo_model.words import Vocabulary


@dataclass(frozen=True, slots=True)
class Profile:
    """The length of a conversation, and how often each kind of turn occurs in it."""

    turns: tuple[int, int]
    tell: float
    recall: float
    unknown: float
    update: float
    other: float
    noise: float = 0.15
    system: float = 0.3
    tools: float = 0.0
    reading: int = 0


PROFILES: dict[str, tuple[Profile, float]] = {
    "first": (Profile((3, 6), tell=4, recall=5, unknown=1.5, update=0.5, other=0.2, noise=0.0), 0.0),
    "recall": (Profile((4, 12), tell=3, recall=4, unknown=2.5, update=1.2, other=1.0), 0.32),
    "mixed": (Profile((3, 10), tell=1.5, recall=2, unknown=1.5, update=0.5, other=4), 0.28),
    "short": (Profile((1, 3), tell=0.5, recall=1, unknown=1.5, update=0, other=4), 0.18),
    "drill": (Profile((5, 12), tell=0.0, recall=0.0, unknown=0.3, update=0.0, other=6), 0.10),
    "tools": (Profile((1, 4), tell=0.6, recall=1, unknown=0.5, update=0.2, other=1.5, tools=1.0), 0.20),
    "far": (Profile((6, 12), tell=2, recall=3, unknown=1.5, update=0.8, other=2, reading=8), 0.06),
    "very far": (Profile((4, 10), tell=2, recall=3, unknown=1.5, update=0.8, other=2, reading=80), 0.03),
}


def _fresh_fact(talk: Talk) -> Fact:
    """Returns a fact that is not known yet. It is often the name, because people begin with it."""
    while True:
        fact = draw_fact(talk.rng, talk.words)
        if not talk.known and talk.rng.random() < 0.3:
            fact = Fact(kind_named("name"), "", talk.words.draw("name"))
        if fact.key not in talk.known:
            return fact


def _tell(talk: Talk) -> None:
    count = talk.rng.choices((1, 2, 3), (80, 15, 5))[0]
    facts = [_fresh_fact(talk) for _ in range(count)]
    sessions.tell(talk, list({fact.key: fact for fact in facts}.values()))


def _other(talk: Talk, profile: Profile) -> None:
    """Adds a turn that is not about the user's facts."""
    if talk.tools and talk.rng.random() < 0.75:
        sessions.use_tool(talk)
        return
    if profile.reading and talk.rng.random() < 0.5:
        sessions.reading(talk, talk.rng.randint(2, profile.reading))
        return
    kinds = (sessions.skill, sessions.chat, sessions.outside, sessions.about_me, sessions.what_i_said)
    weights = (8, 4, 0 if talk.tools else 1.4, 1.2, 0.5)  # a tool may know what the model does not
    talk.rng.choices(kinds, weights)[0](talk)


def converse(rng: Random, profile: Profile, held: bool = False) -> Conversation:
    """Returns one conversation of a profile."""
    talk = Talk(rng, Vocabulary(rng, held), profile.noise)
    if profile.tools:
        sessions.offer_tools(talk)
    if rng.random() < profile.system:
        sessions.set_system(talk)
    for _ in range(rng.randint(*profile.turns)):
        known = bool(talk.known)
        weights = (profile.tell, profile.recall * known, profile.unknown, profile.update * known, profile.other)
        event = rng.choices(("tell", "recall", "unknown", "update", "other"), weights)[0]
        if event == "tell" and len(talk.known) < 8:
            _tell(talk)
        elif event == "recall":
            sessions.recall(talk)
        elif event == "unknown":
            sessions.ask_unknown(talk)
        elif event == "update":
            sessions.update(talk)
        else:
            _other(talk, profile)
    if not any(m.role == "assistant" for m in talk.out.messages):
        sessions.chat(talk)
    return talk.out


def conversations(seed: int, stage: float = 1.0, held: bool = False) -> Iterator[Conversation]:
    """Yields conversations endlessly. At stage 0 most are short recalls. At stage 1 they follow the mixture."""
    rng = Random(f"{seed}-{held}")
    names = list(PROFILES)
    weights = [PROFILES[name][1] for name in names]
    while True:
        name = "first" if rng.random() > stage else rng.choices(names, weights)[0]
        yield converse(rng, PROFILES[name][0], held)


def transcript(messages: list[Message]) -> str:
    """Returns a conversation in a form for people to read."""
    return "\n".join(f"{m.role}: {m.content}" for m in messages)
