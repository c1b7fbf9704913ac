"""The conversations on which the demo model is trained: seeded, consistent, and without words and phrasings of the
evaluation.
"""

from __future__ import annotations

import itertools
import json
import re
from random import Random

import pytest

from tools.demo_model import frames, skills, world
from tools.demo_model.chat import END, START, Conversation, render
from tools.demo_model.everyday_ask import ASK
from tools.demo_model.everyday_tell import TELL
from tools.demo_model.facts import Fact, kind_named
from tools.demo_model.kinds import KINDS, Kind
from tools.demo_model.mixture import PROFILES, conversations, converse, transcript
from tools.demo_model.strangers import WORDINGS
from tools.demo_model.words import LISTS, Vocabulary, invented_word, is_held


def take(count: int, seed: int = 1, held: bool = False) -> list[Conversation]:
    return list(itertools.islice(conversations(seed, held=held), count))


def variants(template: str) -> set[str]:
    """Returns every text that a template without nested alternatives can produce."""
    parts = [part.split("|") if at % 2 else [part] for at, part in enumerate(re.split(r"\[([^\[\]]*)\]", template))]
    return {" ".join("".join(chosen).split()) for chosen in itertools.product(*parts)}


def texts(conversation: Conversation, *roles: str) -> list[str]:
    return [message.content for message in conversation.messages if message.role in roles]


def test_a_seed_gives_the_same_conversations_again() -> None:
    first, second = ("\n".join(transcript(c.messages) for c in take(200, seed=7)) for _ in range(2))
    assert first == second


def test_another_seed_gives_other_conversations() -> None:
    seen = {transcript(c.messages) for c in take(200, seed=7)}
    assert not seen & {transcript(c.messages) for c in take(200, seed=8) if len(c.messages) > 4}


@pytest.mark.parametrize("category", LISTS)
def test_word_lists_of_training_and_evaluation_are_disjoint(category: str) -> None:
    train, held = ({word.casefold() for word in words} for words in (LISTS[category].train, LISTS[category].held))
    assert train and held
    assert not train & held


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.key)
def test_phrasings_of_training_and_evaluation_are_disjoint(kind: object) -> None:
    for train, held in (("tell", "tell_held"), ("ask", "ask_held")):
        used = set().union(*(variants(template) for template in getattr(kind, train)))
        kept = set().union(*(variants(template) for template in getattr(kind, held)))
        assert kept and not used & kept


@pytest.mark.parametrize("topic", world.TOPICS, ids=lambda topic: topic.answer[:24])
def test_questions_of_training_and_evaluation_are_disjoint(topic: world.Topic) -> None:
    used = {text.casefold() for template in topic.ask for text in variants(template)}
    assert not used & {text.casefold() for template in topic.held for text in variants(template)}


@pytest.mark.parametrize("category", ["name", "city", "colour", "animal", "food", "drink", "job", "hobby", "place"])
def test_no_word_of_the_evaluation_is_ever_generated(category: str) -> None:
    generated = "\n".join(transcript(c.messages) for c in take(1500, seed=11)).casefold()
    leaked = [w for w in LISTS[category].held if re.search(rf"\b{re.escape(w.casefold())}\b", generated)]
    assert leaked == []


def test_the_evaluation_uses_its_own_words() -> None:
    generated = "\n".join(transcript(c.messages) for c in take(300, seed=11, held=True))
    assert sum(name in generated for name in LISTS["name"].held) > len(LISTS["name"].held) // 2


def test_numbers_of_training_and_evaluation_are_disjoint() -> None:
    train = {Vocabulary(Random(seed), held=False).number(10, 500) for seed in range(2000)}
    held = {Vocabulary(Random(seed), held=True).number(10, 500) for seed in range(2000)}
    assert len(train) > 100 and len(held) > 30
    assert not train & held


def test_invented_words_are_many_and_never_held_out() -> None:
    rng = Random(3)
    words = [invented_word(rng) for _ in range(20_000)]
    assert len(set(words)) > 15_000
    assert not any(is_held(word) for word in words)


@pytest.mark.parametrize("held", [False, True])
def test_a_recalled_value_was_told_before(held: bool) -> None:
    checked = 0
    for conversation in take(400, seed=5, held=held):
        for at, message in enumerate(conversation.messages):
            if message.tag == "recall":
                sentence = message.content.rstrip(".").removesuffix(" years old")
                value = sentence.split()[-1]
                assert any(
                    value in earlier.content for earlier in conversation.messages[:at] if earlier.role != "assistant"
                )
                checked += 1
    assert checked > 200


def test_the_name_is_unknown_only_before_it_was_told() -> None:
    unknown = Fact(kind_named("name"), "", "").unknown
    seen = 0
    for conversation in take(1500, seed=6):
        answers = texts(conversation, "assistant")
        for at, answer in enumerate(answers):
            if answer == unknown:
                seen += 1
                others = [earlier.replace(unknown, "") for earlier in answers[:at]]
                assert not any("Your name is" in earlier for earlier in others)
    assert seen > 100


def test_an_update_replaces_the_value() -> None:
    for conversation in take(500, seed=9):
        value = ""
        for message in conversation.messages:
            if message.tag == "update" and "Your name is" in message.content:
                value = message.content.rsplit(" is ", 1)[1]
            elif message.tag == "recall" and message.content.startswith("Your name is") and value:
                assert message.content == f"Your name is {value}"


def test_sums_are_right_or_refused() -> None:
    rng = Random(1)
    for _ in range(500):
        _, answer = skills.arithmetic(rng, Vocabulary(rng, held=False))
        if answer != skills.TOO_LARGE:
            sides = re.fullmatch(r"(\d+) ([+*-]) (\d+) = (-?\d+)", answer)
            assert sides is not None
            left, right = int(sides[1]), int(sides[3])
            assert int(sides[4]) == {"+": left + right, "-": left - right, "*": left * right}[sides[2]]


def test_json_objects_and_tool_calls_parse() -> None:
    calls = 0
    for conversation in take(800, seed=4):
        for message in conversation.messages:
            if message.tag == "json":
                assert isinstance(json.loads(message.content), dict)
            if message.tag == "tool_call":
                call = json.loads(message.content.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>"))
                schemas = {tool["function"]["name"]: tool["function"] for tool in conversation.tools}
                assert set(call["arguments"]) == set(schemas[call["name"]]["parameters"]["properties"])
                calls += 1
    assert calls > 30


def test_spelling_joins_to_the_word() -> None:
    rng = Random(2)
    for _ in range(100):
        question, answer = skills.spelling(rng, Vocabulary(rng, held=False))
        assert answer.replace("-", "") in question


@pytest.mark.parametrize("profile", PROFILES)
def test_each_assistant_turn_ends_and_is_tagged(profile: str) -> None:
    conversation = converse(Random(8), PROFILES[profile][0])
    written = [(text, tag) for text, tag in render(conversation) if tag]
    assert written
    assert all(text.endswith(END) and text.count(END) == 1 and START not in text for text, _ in written)


def test_long_conversations_reach_over_a_thousand_tokens_and_stay_within_the_context() -> None:
    profile = PROFILES["very far"][0]
    sizes = [len("".join(text for text, _ in render(converse(Random(seed), profile)))) for seed in range(60)]
    assert max(sizes) > 4_000
    assert sorted(sizes)[-3] < 9_000


def bare(text: str) -> str:
    """Returns a sentence without case and punctuation."""
    return " ".join(re.findall(r"[a-z{}']+", text.casefold()))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.key)
def test_frames_and_everyday_words_never_give_a_phrasing_of_the_evaluation(kind: Kind) -> None:
    kept = {
        bare(text.replace("{c}", clause))
        for clause in variants(kind.mine)
        for template in (*kind.tell_held, *kind.ask_held)
        for text in variants(template)
    }
    used: set[str] = set()
    for named in variants(frames.noun_phrase(kind)) - {""}:
        for template in frames.TELL + frames.ASK:
            used |= {bare(text.replace("{c}", named)) for text in variants(template)}
    for template in ASK[kind.key] + TELL[kind.key]:
        used |= {bare(text) for text in variants(template)}
    assert not used & kept


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.key)
def test_everyday_words_name_what_they_tell_and_ask_for(kind: Kind) -> None:
    has_noun = int(bool(kind.nouns))
    tells = [text for template in TELL[kind.key] for text in variants(template)]
    asks = [text for template in ASK[kind.key] for text in variants(template)]
    assert tells and all(text.count("{v}") == 1 and text.count("{n}") == has_noun for text in tells)
    assert asks and all("{v}" not in text and text.count("{n}") == has_noun for text in asks)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.key)
def test_strangers_name_what_they_tell_and_ask_for(kind: Kind) -> None:
    wording = WORDINGS[kind.key]
    has_noun = int(bool(kind.nouns))
    assert wording.tell and wording.ask
    assert all(text.count("{v}") == 1 and text.count("{n}") == has_noun for text in wording.tell)
    assert all("{v}" not in text and text.count("{n}") == has_noun for text in wording.ask)
