"""From the text of an answer to its parts, whatever the pieces in which the text arrives, and the results if a parser
fails.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmd.core import limits
from llmd.core.errors import ApiError
from llmd.core.generation_request import PlainMessage, PlainToolCall
from llmd.core.parts import Part, ReasoningPart, TextPart, ToolCallPiece
from llmd.engine.answer_parser import Diff
from llmd.engine.text_threads import TextThreads
from llmd.pipeline.parsing import Parser, Parsing
from tests.fake_parser import FakeParser

ANSWER = (
    "<think>hm, <b> \n1 < 2\n \n</think>"
    + '\n\nI will < look.<call read>{"path": "a<b", "n": [1]}</call>\n<call ls>{}</call> é…'
)


async def here(n_chars: int, call: Callable[[], list[Diff]]) -> list[Diff]:
    return call()


def joined(parts: Sequence[Part]) -> list[tuple[str, ...]]:
    """Returns the parts without ids. Successive parts of one kind are joined."""
    found: list[tuple[str, ...]] = []
    for part in parts:
        if isinstance(part, ToolCallPiece):
            one: tuple[str, ...] = ("call", str(part.call), part.arguments)
            if part.name is not None:
                assert part.id and ("call", str(part.call)) not in [key[:2] for key in found], "a call begins once"
                found.append(("call", str(part.call), ""))
                found.insert(len(found) - 1, ("name", part.name))
        else:
            assert isinstance(part, TextPart | ReasoningPart) and part.text
            one = (type(part).__name__, part.text)
        if found and found[-1][:-1] == one[:-1]:
            found[-1] = (*one[:-1], found[-1][-1] + one[-1])
        else:
            found.append(one)
    return found


WHOLE = [
    ("ReasoningPart", "hm, <b> \n1 < 2"),
    ("TextPart", "\n\nI will < look."),
    ("name", "read"),
    ("call", "0", '{"path": "a<b", "n": [1]}'),
    ("TextPart", "\n"),
    ("name", "ls"),
    ("call", "1", "{}"),
    ("TextPart", " é…"),
]


async def parts_of(pieces: Sequence[str], parsing: Parsing) -> list[Part]:
    found: list[Part] = []
    for piece in pieces:
        found += await parsing.fed(piece, False)
    return found + await parsing.fed("", True)


@given(st.lists(st.integers(0, len(ANSWER)), max_size=len(ANSWER)))
@settings(deadline=None, max_examples=200)
def test_any_split_gives_the_same_parts(cuts: list[int]) -> None:
    ends = [0, *sorted(cuts), len(ANSWER)]
    pieces = [ANSWER[start:end] for start, end in zip(ends, ends[1:], strict=False)]
    parsing = Parsing(3, FakeParser(), here)
    parts = asyncio.run(parts_of(pieces, parsing))
    assert joined(parts) == WHOLE and {part.index for part in parts} == {3}
    message = parsing.message()
    assert (message.content, message.reasoning) == ("\n\nI will < look.\n é…", "hm, <b> \n1 < 2")
    assert [(call.name, call.arguments) for call in message.tool_calls] == [("read", WHOLE[3][2]), ("ls", "{}")]
    ids = [part.id for part in parts if isinstance(part, ToolCallPiece) and part.id]
    assert [call.id for call in message.tool_calls] == ids and len(set(ids)) == 2


async def test_what_is_much_to_read_is_parsed_in_a_thread_and_in_order() -> None:
    """The size of a piece is its new text and the text that the parser parses again. So a piece of a long call is small
    if the parser parses little again.
    """
    threads, used = TextThreads(asyncio.get_running_loop(), n_jobs_max=1), []

    class Watched(FakeParser):
        @property
        def n_reread(self) -> int:
            return again[0]

        def feed(self, text: str, is_final: bool, is_cut: bool = False) -> list[Diff]:
            used.append((text, threading.current_thread() is threading.main_thread()))
            return super().feed(text, is_final, is_cut)

    async def in_thread(n_chars: int, call: Callable[[], list[Diff]]) -> list[Diff]:
        return await threads.run(0, n_chars, call, is_bounded=True)

    most, again = limits.PARSED_ON_LOOP_CHARS_MAX, [0]
    argument = "y" * 64 * 100
    pieces = ["x" * most, "x" * (most + 1), "<call f>", *["y" * 64] * 100, "</call>", "z"]
    assert len(argument) > most
    both = [asyncio.ensure_future(parts_of(pieces, Parsing(n, Watched(), in_thread))) for n in range(2)]
    for parts in await asyncio.gather(*both):
        assert joined(parts) == [
            ("TextPart", "x" * (2 * most + 1)), ("name", "f"), ("call", "0", argument), ("TextPart", "z"),
        ]  # fmt: skip
    in_threads = [text for text, is_loop in used if not is_loop]
    assert Counter(in_threads) == {"x" * (most + 1): 2}
    used.clear()
    again[0] = most
    await parts_of(["", "a"], Parsing(0, Watched(), in_thread))
    assert [is_loop for _, is_loop in used] == [False, True], "what is looked at again counts, and what comes"
    await threads.close()


async def test_a_thread_refuses_no_answer_that_is_under_way() -> None:
    """New requests can be refused if too many jobs wait. Jobs of running answers are not refused, because the number of
    answers is limited.
    """
    threads = TextThreads(asyncio.get_running_loop(), n_jobs_max=1)
    blocked = threading.Event()
    waiting = asyncio.ensure_future(threads.run(0, 1, blocked.wait, is_bounded=True))
    await asyncio.sleep(0)
    with pytest.raises(ApiError, match="overloaded"):
        await threads.run(0, 1, lambda: 1)
    assert await threads.run(0, 1, lambda: 2, is_bounded=True) == 2
    blocked.set()
    assert await waiting is True
    assert threads.n_jobs == 0
    await threads.close()


class Failing:
    """A parser that fails at a call. The text that it returned before must be delivered."""

    n_reread = 0

    def __init__(self, at: int, error: Exception) -> None:
        self._left, self._error = at, error

    def feed(self, text: str, is_final: bool, is_cut: bool = False) -> list[Diff]:
        self._left -= 1
        if self._left < 0:
            raise self._error
        return [] if text == "held" else [Diff("text", text)]


@pytest.mark.parametrize("error", [ValueError("odd"), RecursionError(), ApiError("shutting_down")])
async def test_a_parser_that_fails_leaves_text(error: Exception) -> None:
    parsing = Parsing(0, Failing(2, error), here)
    parts = await parts_of(["a", "held", "b", "c"], parsing)
    assert joined(parts) == [("TextPart", "aheldbc")]
    assert parsing.message() == PlainMessage("assistant", "aheldbc")


async def test_without_a_parser_the_answer_is_text() -> None:
    assert joined(await parts_of(["a", "<call x>"], Parsing(0, None, here))) == [("TextPart", "a<call x>")]


class Scripted:
    n_reread = 0

    def __init__(self, *diffs: Diff) -> None:
        self._diffs = list(diffs)

    def feed(self, text: str, is_final: bool, is_cut: bool = False) -> list[Diff]:
        found, self._diffs = self._diffs, []
        return found


async def test_the_model_s_own_ids_are_kept() -> None:
    parser: Parser = Scripted(Diff("call", "{", 0, "f", "abcdefghi"), Diff("call", "}", 0), Diff("call", "", 1, "g"))
    parsing = Parsing(0, parser, here)
    parts = await parsing.fed("x", True)
    first, more, other = parts
    assert isinstance(other, ToolCallPiece) and other.name == "g" and other.id is not None
    assert re.fullmatch("call_[0-9a-f]{24}", other.id)
    assert first == ToolCallPiece(0, 0, "{", "abcdefghi", "f") and more == ToolCallPiece(0, 0, "}")
    assert parsing.message().tool_calls == (PlainToolCall("f", "{}", "abcdefghi"), PlainToolCall("g", "", other.id))


async def test_nothing_is_not_parsed() -> None:
    parsing = Parsing(0, Failing(0, ValueError("must not be called")), here)
    assert await parsing.fed("", False) == []
