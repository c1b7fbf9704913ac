"""The conversations of the evaluation, with held-out words and phrasings and the only right answer of each turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tools.demo_model import sessions, skills, toolbox, world
from tools.demo_model.chat import Message
from tools.demo_model.facts import Fact, draw_fact, kind_named, revalue
from tools.demo_model.sessions import Talk
from tools.demo_model.strangers import WORDINGS
from tools.demo_model.words import Vocabulary

STORY, ACKNOWLEDGED = "story", "tell"
PLAIN, STRANGE = "trained wording: ", "strangers' wording: "


@dataclass(slots=True)
class Step:
    """One message of the user (or of a tool) and the expected answer."""

    content: str
    expected: str
    tag: str
    role: str = "user"
    place: int = 0
    reset: bool = False


@dataclass(slots=True)
class Scenario:
    """Steps in one or more sessions, which `place` numbers."""

    steps: list[Step] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)


def start(rng: Random) -> Talk:
    return Talk(rng, Vocabulary(rng, held=True), noise=0.0)


def steps_of(messages: list[Message], tag: str = "", place: int = 0) -> list[Step]:
    """Returns the steps of a generated conversation. `tag` renames the turns that ask for a fact."""
    steps: list[Step] = []
    for asked, answer in zip(messages, messages[1:], strict=False):
        if asked.role in ("user", "tool") and answer.role == "assistant":
            asks = answer.tag in ("recall", "yes_no", "recall_two", "unknown")
            steps.append(Step(asked.content, answer.content, tag if tag and asks else answer.tag, asked.role, place))
    return steps


def fresh_facts(talk: Talk, count: int) -> list[Fact]:
    """Returns different facts that are not known yet, one of which is a name."""
    name = kind_named("name")
    facts = {f"{name.key}:": Fact(name, "", talk.words.draw("name"))}
    while len(facts) < count:
        fact = draw_fact(talk.rng, talk.words)
        if fact.key not in talk.known:
            facts.setdefault(fact.key, fact)
    chosen = list(facts.values())
    talk.rng.shuffle(chosen)
    return chosen


def ask(talk: Talk, fact: Fact) -> None:
    """Adds one plain question for a fact that the user did or did not tell."""
    known = talk.known.get(fact.key)
    answer, tag = (known.answer, "recall") if known else (fact.unknown, "unknown")
    talk.say(sessions.question_for(talk, fact), answer, tag)


def distract(talk: Talk) -> None:
    talk.rng.choice((sessions.skill, sessions.chat, sessions.outside))(talk)


def recall_after(rng: Random, turns: int) -> Scenario:
    talk = start(rng)
    fact = talk.rng.choice(fresh_facts(talk, 2))
    sessions.tell(talk, [fact])
    for _ in range(turns - 1):
        distract(talk)
    ask(talk, fact)
    return Scenario(steps_of(talk.out.messages, f"recall after {turns} turn{'s' if turns > 1 else ''}"))


def recall_among(rng: Random) -> Scenario:
    talk = start(rng)
    facts = fresh_facts(talk, 4)
    for fact in facts:
        sessions.tell(talk, [fact])
    distract(talk)
    rng.shuffle(facts)
    for fact in facts:
        ask(talk, fact)
    return Scenario(steps_of(talk.out.messages, "recall among 4 facts"))


def recall_updated(rng: Random) -> Scenario:
    talk = start(rng)
    for fact in fresh_facts(talk, 2):
        sessions.tell(talk, [fact])
    sessions.update(talk)
    distract(talk)
    for fact in list(talk.known.values()):
        ask(talk, fact)
    return Scenario(steps_of(talk.out.messages, "recall after an update"))


def recall_far(rng: Random) -> Scenario:
    """A fact, then a pasted text of about 1,200 tokens, then the question."""
    talk = start(rng)
    fact = fresh_facts(talk, 1)[0]
    sessions.tell(talk, [fact])
    sessions.reading(talk, 90)
    ask(talk, fact)
    return Scenario(steps_of(talk.out.messages, "recall after a long text"))


def unknown_among(rng: Random) -> Scenario:
    talk = start(rng)
    facts = fresh_facts(talk, 5)
    for fact in facts[:3]:
        sessions.tell(talk, [fact])
    for fact in facts[3:]:
        ask(talk, fact)
    return Scenario(steps_of(talk.out.messages, "unknown among other facts"))


def after_reset(rng: Random) -> Scenario:
    talk = start(rng)
    facts = fresh_facts(talk, 2)
    for fact in facts:
        sessions.tell(talk, [fact])
    for fact in facts:
        ask(talk, fact)
    scenario = Scenario(steps_of(talk.out.messages, "recall before reset"))
    again = start(rng)
    for fact in facts:
        ask(again, fact)
    forgotten = steps_of(again.out.messages, "unknown after reset")
    forgotten[0].reset = True
    scenario.steps.extend(forgotten)
    return scenario


def interleaved(rng: Random) -> Scenario:
    """Four sessions that take turns, each with its own values of the same facts."""
    model = start(rng)
    wanted = fresh_facts(model, 2)
    columns: list[list[Step]] = []
    for place in range(4):
        talk = start(rng)
        mine = [revalue(fact, talk.words) for fact in wanted]
        for fact in mine:
            sessions.tell(talk, [fact])
        for fact in mine:
            ask(talk, fact)
        columns.append(steps_of(talk.out.messages, "recall, 4 interleaved sessions", place))
    return Scenario([step for row in zip(*columns, strict=True) for step in row])


def one_skill(rng: Random, name: str) -> Scenario:
    talk = start(rng)
    question, answer = skills.SKILLS[name][0](rng, talk.words)
    talk.say(question, answer, name)
    return Scenario(steps_of(talk.out.messages))


def plain(rng: Random) -> Scenario:
    """Held-out words in the wording of training: three facts, each asked for, then one that was not told; then a reset."""
    talk = start(rng)
    talk.plain = True
    facts = fresh_facts(talk, 4)
    for fact in facts[:3]:
        sessions.tell(talk, [fact])
    for fact in facts:
        ask(talk, fact)
    again = start(rng)
    again.plain = True
    ask(again, facts[0])
    scenario = Scenario(steps_of(talk.out.messages) + steps_of(again.out.messages))
    scenario.steps[-1].reset = True
    for step in scenario.steps:
        step.tag = step.tag if step.tag == ACKNOWLEDGED else f"{PLAIN}{step.tag}"
    return scenario


def strange(rng: Random) -> Scenario:
    """Three facts in the words of somebody else, something in between, then a question for each and for one more."""
    talk = start(rng)
    facts = fresh_facts(talk, 4)
    for fact in facts[:3]:
        talk.say(talk.fill(fact, rng.choice(WORDINGS[fact.kind.key].tell)), fact.answer, ACKNOWLEDGED)
    distract(talk)
    for fact in facts:
        question = talk.fill(fact, rng.choice(WORDINGS[fact.kind.key].ask))
        told = fact is not facts[3]
        talk.say(question, *((fact.answer, "recall") if told else (fact.unknown, "unknown")))
    scenario = Scenario(steps_of(talk.out.messages))
    for step in scenario.steps:
        step.tag = f"{STRANGE}{step.tag}" if step.tag in ("recall", "unknown") else step.tag
    return scenario


def about_me(rng: Random) -> Scenario:
    talk = start(rng)
    for fact in fresh_facts(talk, 3):
        sessions.tell(talk, [fact])
    sessions.about_me(talk)
    return Scenario(steps_of(talk.out.messages))


def quote(rng: Random) -> Scenario:
    talk = start(rng)
    distract(talk)
    distract(talk)
    sessions.what_i_said(talk)
    return Scenario(steps_of(talk.out.messages))


def outside(rng: Random) -> Scenario:
    talk = start(rng)
    sessions.outside(talk)
    return Scenario(steps_of(talk.out.messages))


def use_tool(rng: Random) -> Scenario:
    talk = start(rng)
    tools = [toolbox.offer(rng, family) for family in rng.sample(toolbox.FAMILIES, 2)]
    messages = toolbox.call_turns(rng, talk.words, rng.choice(tools))
    return Scenario(steps_of(messages), [tool.schema for tool in {tool.name: tool for tool in tools}.values()])


def topics() -> Iterator[Scenario]:
    """Each held-out question about the model and llmd once."""
    for topic in world.TOPICS:
        for question in topic.held:
            tag = {"self": "about itself", "llmd": "about llmd", "chat": "small talk"}[topic.tag]
            yield Scenario([Step(question, topic.answer, tag)])


def everything(seed: int, count: int) -> Iterator[Scenario]:
    """Returns the whole evaluation, with `count` scenarios of each main kind."""
    rng = Random(f"evaluation-{seed}")
    makers: list[tuple[Callable[[Random], Scenario], int]] = [
        (recall_among, count // 2), (recall_updated, count // 2), (recall_far, count // 4), (interleaved, count // 4),
        (unknown_among, count // 2), (after_reset, count // 2), (plain, count), (strange, count), (about_me, count // 4),
        (quote, count // 4), (outside, count // 2), (use_tool, count // 2),
    ]  # fmt: skip
    for turns in (1, 2, 4, 8):
        for _ in range(count):
            yield recall_after(rng, turns)
    for maker, times in makers:
        for _ in range(times):
            yield maker(rng)
    for name in skills.SKILLS:
        for _ in range(count // 2):
            yield one_skill(rng, name)
    yield from topics()
