"""Counting the reasoning tokens of an answer."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from llmd.engine.generation import TokenEnds
from llmd.pipeline.parsing import count_thoughts


def ends_of(events: list[list[str]]) -> TokenEnds:
    """Returns the ends of tokens. Each of `events` has the texts of its tokens."""
    ends = TokenEnds()
    for tokens in events:
        text = "".join(tokens)
        lengths = [sum(map(len, tokens[: n + 1])) for n in range(len(tokens))]
        ends.came(text, struct.pack(f"<{len(lengths)}I", *lengths))
    return ends


def test_only_tokens_of_thoughts_count() -> None:
    tokens = ["<think>", "\n", "I ", "wonder", "\n", "</think>", "I ", "wonder", " not"]
    answer = "".join(tokens)
    for events in ([[token] for token in tokens], [tokens]):
        assert count_thoughts(answer, [["I ", "wonder"]], ends_of(events)) == 2
    assert count_thoughts(answer, [], ends_of([tokens])) == 0


def test_tokens_that_write_a_part_of_a_character_count() -> None:
    """Tokens that end within a character count with that character."""
    assert count_thoughts("a\N{SNOWMAN}b", [["\N{SNOWMAN}"]], ends_of([["a"], ["", "", "\N{SNOWMAN}"], ["b"]])) == 3


def test_a_token_that_ends_in_a_thought_and_begins_before_it_counts() -> None:
    assert count_thoughts(">ab<", [["ab"]], ends_of([[">a"], ["b<"]])) == 2


def test_two_thoughts_are_told_apart_from_what_is_between() -> None:
    tokens = ["a ", "a ", "X", "a ", "a "]
    assert count_thoughts("".join(tokens), [["a a "], ["a ", "a "]], ends_of([tokens])) == 4


def test_a_thought_in_two_parts_is_found_by_its_pieces() -> None:
    tokens = ["ab", "</t><t>", "cd", "e"]
    assert count_thoughts("".join(tokens), [["ab", "cd"]], ends_of([tokens])) == 2


@given(st.lists(st.text("ab<> \n", min_size=1, max_size=4), min_size=1, max_size=30), st.data())
def test_every_piece_of_a_thought_is_as_many_tokens(tokens: list[str], data: st.DataObject) -> None:
    """The count does not depend on the number of tokens in one event."""
    answer = "".join(tokens)
    whole = [tokens]
    each = [[token] for token in tokens]
    begin = data.draw(st.integers(0, len(tokens) - 1))
    thought = "".join(tokens[:begin])
    expected = begin if thought else 0
    for events in (whole, each):
        assert count_thoughts(answer, [[thought]] if thought else [], ends_of(events)) == expected
