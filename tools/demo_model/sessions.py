"""Whole conversations in which facts are told, recalled, changed, and asked for although they were not told, among
other topics.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from random import Random

from tools.demo_model import frames, skills, toolbox, world
from tools.demo_model.chat import Conversation, Message
from tools.demo_model.everyday_ask import ASK
from tools.demo_model.everyday_tell import TELL
from tools.demo_model.facts import Fact, draw_fact, kind_named, revalue, with_article
from tools.demo_model.kinds import KINDS
from tools.demo_model.phrases import expand, join_lower, jumbled, noisy
from tools.demo_model.words import Vocabulary, invented_word

# fmt: off
_SYSTEM = (
    "You are a [helpful|friendly|useful|polite|small|kind] [assistant|chatbot|AI assistant|model|bot].", "You are llmd-demo.", "Answer [briefly|shortly|in one sentence|politely].",
    "You are a helpful assistant. [Be brief|Be concise|Answer in English|Be polite].", "You help [the user|people] with [questions|tasks|work].", "Be [brief|helpful|kind].",
)
_SYSTEM_HELD = ("You are an assistant that helps people.", "You are a helpful assistant who answers in short sentences.", "Please be a friendly companion.")

_BEFORE = (
    "First of all,", "About me:", "Here is something:", "Let me say that", "A detail:", "Before anything else,", "To start,", "I mention that", "To be exact,",
    "Hi!", "Hello!", "Hello.", "Hi,", "Hey,", "By the way,", "Just so you know,", "Let me tell you:", "Well,", "So,", "For your information,", "Also,", "Oh, and", "And", "One more thing:", "Please note:",
    "I want you to know that", "You should remember that", "Please remember that", "Remember that", "Remember:", "Okay,", "FYI,", "Listen,", "Good morning!",
    "[Before I forget:|At first,|For the record,|A fact about me:|Some news:|Let me add that|I should mention that|I have to say that|Let me start with this:|To begin with,|To be honest,|To be precise,]",
    "[You must know that|What you should know:|It is good to know that|I tell you that|I'd like to say that|A little thing:|A little detail about me:|Another detail:|Another thing:|Good evening!|Hello there!|Hello again, model!|Hey there,]",
)
_BEFORE_HELD = ("Before we start,", "Something about me:", "Good afternoon!", "Let me mention that", "To be clear,", "A small detail:")
_AFTER = ("Please remember that.", "Remember it.", "Don't forget it.", "Remember this.", "Okay?", "Just saying.", "Keep that in mind.", "Nice to meet you.", "Got it?", "How about you?", "That is important.",
    "[Will you remember that?|Can you keep that?|Store it in your memory.|Keep it in mind, please.|I may ask you later.|I will ask you about it later.|I hope that helps.|You may need to know it.|Please note it.|Don't lose it.|What do you think?|Thanks.|Thank you.|Good to know?|So now you know.]")
_AFTER_HELD = ("Please keep it in your memory.", "I hope you remember it.", "You may need it later.")
_TAIL = (", by the way.", ", nice to meet you.", " and I am happy to be here.", ", you know.", ", if you want to know.", " and that is true.", ", okay?", "!", " :)", ", so remember that.", " and nothing else.", ", as you may know.",
    " and I am glad about it.", " and it is nice to meet you.", " and I like to talk to you.", ", just to tell you.", ", for your information.", ", in case you wonder.", ", in case you need it.", " and so on.", ", so you know.", ", believe me.", " and I am proud of it.", ", I hope you like it.",
)
_TAIL_HELD = (" and I am glad to talk to you.", ", just so you know.")
_ASK_BEFORE = ("A test:", "Let me see:", "Back again:", "A little question:", "So,", "Okay,", "Now,", "Well,", "And", "Hey,", "Hi!", "Hello!", "Quick question:", "Now tell me:", "Thanks.", "Great.", "One question:",
    "[Let us see:|Let me test you:|A quick test:|Another test:|Test:|Back to us:|To come back to me:|Back to the facts:|Now back to business:|And now,|Please,|Sorry,|Wait,|Hm,|Um,|Good,|Fine,|By the way,|I wonder:|Say,|Tell me,|Help me:|Then|Listen,|Once again:]")
_ASK_BEFORE_HELD = ("Back to me:", "Let's see:", "A little test:")
_CLAUSE = ("[I don't know|I do not remember|I have forgotten|I can't say|I don't remember|I can not recall] {c}[, do you know?|, please help.|, do you?|. Can you help?|.]", "[Would you|Do you happen to|Might you|Could you possibly] [know|say|tell me|remember] {c}?", "[Say again|Tell me again|Please repeat|Please name|Once again]: {c}?", "[Tell me|Repeat|Name] {c} [again|once more].", "[Have I told you|Did I tell you|Did I mention|Are you aware of|Do you happen to remember] {c}?", "[I want to know|I would like to hear|Let me hear|Let us see if you know|I wonder|Repeat|Name] {c}.", "Do you [remember|know|still know|still remember|recall] {c}?", "Can you [tell me|remember|recall|say] {c}?", "[Tell me|Please tell me|Remind me of|Say] {c}.", "I forgot {c}.", "Could you [tell me|remind me of] {c}?", "{c}?")
_CLAUSE_HELD = ("Would you happen to know {c}?", "I can't remember {c}, can you?", "Please say {c} again.")
_CHANGE = ("I have to change something:", "Let me correct that:", "Something has changed:", "Hold it,", "I must correct this:", "Actually,", "Sorry,", "Wait,", "Correction:", "No,", "I was wrong:", "From now on,", "Update:", "I made a mistake:", "Oh no,", "I changed my mind:", "In fact,", "It changed:",
    "[There was a change:|There is a change:|I have news:|Things changed:|That changed:|It is different now:|Not any more:|Forget that,|Stop,|Hold it:|One moment,|I must correct myself:|I want to correct myself:|Let me fix that:|I take it back:|That was wrong,|Sorry, I was wrong,|New:|Now it is different:|Since today,|As of today,|As of now,|Starting now,|Meanwhile,]")
_CHANGE_HELD = ("Things have changed:", "I have to correct myself:", "Hold on,")
_ABOUT_ME = ("What do you know about me?", "[Tell me|Say] [everything|all|what] you know about me.", "What did I tell you [about me|about myself|so far]?", "What have you learned about me?", "Who am I and what do you know about me?",
    "[Sum up|Summarize|List|Repeat|Write down|Show me|Recite|Give me|Go over|Collect] [what I told you|everything I told you|all I told you|what you have learned about me|all that you know about me|everything about me|the facts about me|my facts|what I said about me|what you have noted about me].",
    "[Give me|Write|Make|I need|I want] a [summary|sum|list|report] of [what you know|what I told you|all you know about me|what you learned about me|the facts about me].",
    "What [do you|can you|did you|have you] [know|say|recall|note|learn|keep|store] [about me|of me|about me so far|about the user]?",
    "What [do you still know|have you remembered|have you noted|do you recall|have you stored|have you kept|else do you know] about me?")
_ABOUT_ME_HELD = ("Sum up what you know about me.", "What do you remember about me?")
_NOTHING = "You haven't told me anything about yourself yet."
_READ = ("[Read this|Here is a text|Look at this text|This is a text|Some text for you]: {t}", "{t}", "I read this today: {t}", "Notes: {t}")
# fmt: on


@dataclass(slots=True)
class Talk:
    """A conversation that is being generated: its messages, and the known facts."""

    rng: Random
    words: Vocabulary
    noise: float
    out: Conversation = field(default_factory=Conversation)
    known: dict[str, Fact] = field(default_factory=dict)
    tools: list[toolbox.Tool] = field(default_factory=list)
    plain: bool = False

    @property
    def held(self) -> bool:
        """Returns whether phrasings are those of the evaluation. A plain conversation has the evaluation's words in the
        phrasings of training.
        """
        return self.words.held and not self.plain

    def pick(self, train: tuple[str, ...], held: tuple[str, ...]) -> str:
        return expand(self.rng, self.rng.choice(held if self.held else train))

    def stray(self, text: str) -> str:
        """Sometimes another sentence, which has nothing to do with it, before or after what matters."""
        if self.held or not self.noise or self.rng.random() >= 0.15:
            return text
        other = skills.passage(self.rng, self.words, 1)
        if self.rng.random() < 0.3:
            other = " ".join(invented_word(self.rng) for _ in range(self.rng.randint(1, 5))).capitalize() + "."
        return f"{other} {text}" if self.rng.random() < 0.7 else f"{text} {other}"

    def say(self, user: str, answer: str, tag: str) -> None:
        self.out.messages.append(Message("user", user))
        self.out.messages.append(Message("assistant", answer, tag))

    def spell(self, template: str) -> str:
        """British or American spelling, and noise, before the slots are filled."""
        if self.rng.random() < 0.25:
            template = template.replace("colour", "color").replace("favourite", "favorite")
        if not self.held and self.noise:
            template = jumbled(self.rng, template, 0.35, invented_word)
        return noisy(self.rng, template, self.noise)

    def fill(self, fact: Fact, template: str) -> str:
        text = self.spell(with_article(template, fact.value))
        return (
            text.replace("{n}", self.spell_noun(fact.noun))
            .replace("{is}", fact.fill("{is}"))
            .replace("{v}", fact.value)
        )

    def spell_noun(self, noun: str) -> str:
        return noun.replace("colour", "color") if self.rng.random() < 0.25 else noun


def _statement(talk: Talk, fact: Fact) -> str:
    """Returns a template for telling a fact."""
    if not talk.held and talk.rng.random() < 0.3:
        return expand(talk.rng, talk.rng.choice(TELL[fact.kind.key]))
    named = frames.noun_phrase(fact.kind)
    if named and not talk.held and talk.rng.random() < 0.3:
        return _framed(talk.rng, frames.TELL, named)
    return talk.pick(fact.kind.tell, fact.kind.tell_held)


def _framed(rng: Random, templates: tuple[str, ...], named: str) -> str:
    """A template of any kind of fact, as a sentence about this one."""
    text = expand(rng, rng.choice(templates).replace("{c}", named))
    return text[:1].upper() + text[1:]


def _acknowledge(facts: list[Fact]) -> str:
    """The model repeats what it understood in the words of its later answer, so that recalling is copying."""
    return "Got it. " + " ".join(fact.answer for fact in facts)


def tell(talk: Talk, facts: list[Fact]) -> None:
    """Adds a message that tells one or more facts."""
    parts = [_statement(talk, fact) for fact in facts]
    rng, text = talk.rng, talk.fill(facts[0], parts[0])
    if rng.random() < 0.35:
        before = talk.pick(_BEFORE, _BEFORE_HELD)
        keep = before.endswith(("!", ":")) or text.startswith(facts[0].value)
        text = f"{before} {text}" if keep else join_lower(before, text)
    rest = [talk.fill(fact, part) for fact, part in zip(facts[1:], parts[1:], strict=True)]
    if rest and rng.random() < 0.4:
        text = " ".join([text, *rest])
    elif rest:
        lowered = [
            t if t.startswith((f.value, "I ")) else t[:1].lower() + t[1:] for t, f in zip(rest, facts[1:], strict=True)
        ]
        text = ", ".join(t.rstrip(".") for t in (text, *lowered[:-1])) + f" and {lowered[-1]}"
    if rng.random() < 0.12:
        text = text.rstrip(".") + rng.choice(_TAIL_HELD if talk.held else _TAIL)
    if rng.random() < 0.2:
        text = f"{text} {talk.pick(_AFTER, _AFTER_HELD)}"
    talk.say(talk.stray(text), _acknowledge(facts), "tell")
    talk.known.update((fact.key, fact) for fact in facts)


def question_for(talk: Talk, fact: Fact) -> str:
    """Returns a question for a fact. It does not depend on the fact's value."""
    rng = talk.rng
    named = frames.noun_phrase(fact.kind)
    if not talk.held and rng.random() < 0.35:
        template = expand(rng, rng.choice(ASK[fact.kind.key]))
    elif rng.random() < 0.35:
        clause = rng.choice((fact.kind.mine, fact.kind.mine, _what_is(fact)))
        template = talk.pick(_CLAUSE + frames.CLAUSE, _CLAUSE_HELD).replace("{c}", expand(rng, clause))
        template = template[:1].upper() + template[1:]
    elif named and not talk.held and rng.random() < 0.4:
        template = _framed(rng, frames.ASK, named)
    else:
        template = talk.pick(fact.kind.ask, fact.kind.ask_held)
    text = talk.fill(fact, template)
    if rng.random() < 0.2:
        before = talk.pick(_ASK_BEFORE, _ASK_BEFORE_HELD)
        text = join_lower(before, text) if before.endswith(",") or before == "And" else f"{before} {text}"
    return talk.stray(text)


def _what_is(fact: Fact) -> str:
    """`my name` as `what my name is`; clauses with a verb stay as they are."""
    mine = fact.kind.mine
    return mine if mine.startswith(("what", "where", "when")) else f"what {mine} is"


def recall(talk: Talk) -> None:
    """Asks for a fact that was told."""
    fact = talk.rng.choice(list(talk.known.values()))
    if talk.rng.random() < 0.12:
        _recall_yes_no(talk, fact)
        return
    others = [f for f in talk.known.values() if f.key != fact.key]
    if others and talk.rng.random() < 0.12:
        second = talk.rng.choice(others)
        _ask_two(talk, fact, second, second.answer)
        return
    talk.say(question_for(talk, fact), fact.answer, "recall")


def _recall_yes_no(talk: Talk, fact: Fact) -> None:
    claimed = fact if talk.rng.random() < 0.5 else revalue(fact, talk.words)
    sentence = (
        claimed.kind.answer.replace("Your ", "my ")
        .replace("The ", "the ")
        .replace("You are", "I am")
        .replace("You ", "I ")
    )
    text = talk.fill(
        claimed,
        talk.pick(
            ("Is it true that {s}", "Is it right that {s}", "Am I right that {s}"), ("Is it correct that {s}",)
        ).replace("{s}", sentence.rstrip(".") + "?"),
    )
    verdict = "yes" if claimed.value == fact.value else "no"
    talk.say(text, f"{fact.answer.rstrip('.')}, so {verdict}.", "yes_no")


def _ask_two(talk: Talk, first: Fact, second: Fact, second_answer: str) -> None:
    """Two questions in one message."""
    one = talk.fill(first, talk.pick(first.kind.ask, first.kind.ask_held)).rstrip("?. ")
    two = talk.fill(second, talk.pick(second.kind.ask, second.kind.ask_held))
    talk.say(f"{one} and {two[:1].lower() + two[1:]}", f"{first.answer} {second_answer}", "recall_two")


def _stranger(talk: Talk) -> Fact:
    """Returns a fact that was not told, often of the same kind as one that was."""
    rng = talk.rng
    while True:
        fact = draw_fact(rng, talk.words)
        if rng.random() < 0.25:
            kind = kind_named("name")
            fact = Fact(kind, "", talk.words.draw(kind.category))
        if talk.known and rng.random() < 0.3:
            near = rng.choice(list(talk.known.values()))
            same = [kind for kind in KINDS if kind.category == near.kind.category or kind.key == near.kind.key]
            kind = rng.choice(same)
            noun = rng.choice(kind.nouns_held if talk.held else kind.nouns) if kind.nouns else ""
            fact = Fact(kind, noun, near.value)
        if fact.key not in talk.known:
            return fact


def ask_unknown(talk: Talk) -> None:
    """Asks for a fact that was not told."""
    fact = _stranger(talk)
    if talk.known and talk.rng.random() < 0.08:
        _ask_two(talk, talk.rng.choice(list(talk.known.values())), fact, fact.unknown)
        return
    talk.say(question_for(talk, fact), fact.unknown, "unknown")


def update(talk: Talk) -> None:
    """Changes a fact that was told."""
    old = talk.rng.choice(list(talk.known.values()))
    fact = revalue(old, talk.words)
    text = talk.fill(fact, _statement(talk, fact))
    before = talk.pick(_CHANGE, _CHANGE_HELD)
    if talk.rng.random() < 0.15 and not talk.held and old.kind.key in ("favourite", "mine"):
        text = f"My {fact.kind.answer[5:].split(' is')[0].replace('{n}', fact.noun)} is [no longer|not] {old.value}[, it is|. It is|, but] {{v}}."
        text = expand(talk.rng, text).replace("{v}", fact.value)
    elif before.endswith(":") or text.startswith(fact.value):
        text = f"{before} {text}"
    else:
        text = join_lower(before, text)
    talk.say(text, _acknowledge([fact]), "update")
    del talk.known[old.key]
    talk.known[fact.key] = fact


def about_me(talk: Talk) -> None:
    """Asks for all facts that were told, in the order of their last mention."""
    facts = list(talk.known.values())
    if len(facts) > 4:
        return
    text = " ".join(fact.answer for fact in facts) if facts else _NOTHING
    talk.say(talk.spell(talk.pick(_ABOUT_ME, _ABOUT_ME_HELD)), text, "about_me")


def skill(talk: Talk) -> None:
    """Adds a turn with any skill. Sums are left to the tools if there are any."""
    names = [name for name in skills.SKILLS if not (talk.tools and name == "arithmetic")]
    name = talk.rng.choices(names, [skills.SKILLS[n][1] for n in names])[0]
    question, answer = skills.SKILLS[name][0](talk.rng, talk.words)
    talk.say(question, answer, name)


def chat(talk: Talk) -> None:
    if talk.rng.random() < 0.15:
        talk.say(talk.spell(world.greeting(talk.rng, talk.held)), world.GREETING_ANSWER, "chat")
        return
    question, topic = world.topic_question(talk.rng, talk.held)
    talk.say(talk.spell(question), topic.answer, topic.tag)


def outside(talk: Talk) -> None:
    talk.say(talk.spell(world.outside_question(talk.rng, talk.words)), world.UNKNOWN, "outside")


def reading(talk: Talk, sentences: int) -> None:
    """Adds a pasted text, so that a fact and the question for it are far apart."""
    text = skills.passage(talk.rng, talk.words, sentences)
    talk.say(expand(talk.rng, talk.rng.choice(_READ)).replace("{t}", text), "Okay, I have read it.", "reading")


def use_tool(talk: Talk) -> None:
    talk.out.messages.extend(toolbox.call_turns(talk.rng, talk.words, talk.rng.choice(talk.tools)))


def what_i_said(talk: Talk) -> None:
    """Quote the first or the last message of the user."""
    said = [m.content for m in talk.out.messages if m.role == "user"]
    if not said or len(said[0]) > 120 or len(said[-1]) > 120:
        return
    first = talk.rng.random() < 0.5
    which = "[first|very first]" if first else "[last|previous]"
    text = talk.pick(
        (
            f"What was my {which} message?",
            f"What did I say {'first' if first else 'before this'}?",
            f"[What did I write|What did I type|What was it that I said|Which words did I use] {'[first|at first|at the start|in the beginning]' if first else '[just now|last|before this|a moment ago]'}?",
            f"[Quote|Repeat|Show|Show me|Give me|Copy|Cite|Print] [the message I sent|the message I wrote|the line I sent|what I said|what I wrote] {'first' if first else 'last'}.",
            f"[Can you quote|Please quote|Could you quote|Please repeat|Can you repeat|Repeat] my {which} [message|words|sentence], [please|word for word].",
        ),
        (f"Quote my {'first' if first else 'last'} message.",),
    )
    talk.say(text, f'You said: "{said[0] if first else said[-1]}"', "quote")


def offer_tools(talk: Talk) -> None:
    talk.tools = toolbox.offers(talk.rng)
    talk.out.tools = [tool.schema for tool in talk.tools]


def set_system(talk: Talk) -> None:
    """A system prompt, which now and then tells a fact about the user."""
    text = talk.pick(_SYSTEM, _SYSTEM_HELD)
    if talk.rng.random() < 0.15:
        fact = draw_fact(talk.rng, talk.words)
        if fact.kind.key != "memo":
            sentence = re.sub(r"^Your", "The user's", fact.kind.answer)
            if sentence.startswith("The user's"):
                text = f"{text} {fact.fill(sentence)}"
                talk.known[fact.key] = fact
    talk.out.messages.insert(0, Message("system", text))
