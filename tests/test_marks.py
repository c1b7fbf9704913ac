"""cache_control: llmd takes a checkpoint at a mark of the client, so that another prompt that differs only after the
mark prefills only the different part. For a model whose memory can be truncated at every token, marks cost nothing and
change nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from llmd.core import limits
from llmd.core.generation_request import ChatPrompt, PlainMessage, PlainToolCall
from llmd.core.session_key import SCRATCH
from llmd.engine.engine import Engine
from llmd.pipeline.history import in_order, plain
from llmd.pipeline.marks import marked_heads, with_marks
from llmd.pipeline.prompt import rendered
from llmd.turns.divergence import n_common
from tests.conftest import Serve
from tests.serving import Daemon, Json
from tests.test_pipeline import SENDER

DOCUMENT = "It was the best of times, it was the worst of times. " * 20
LONG = "Who says so, and why? " * 60
"""Text that is longer than a sliding window."""
BESIDE = 32
"""Number of tokens that the template adds around a question, including the beginning of the answer."""
MARK = {"type": "ephemeral"}
CLASSES = ("hybrid", "recurrent", "window")


def part(text: str, *, is_marked: bool = False) -> Json:
    return {"type": "text", "text": text, **({"cache_control": MARK} if is_marked else {})}


def asked_about(document: Json, question: str) -> list[Json]:
    return [{"role": "user", "content": [document, part(question)]}]


async def messages(daemon: Daemon, said: list[Json], **fields: Any) -> Json:
    body = {"model": "m", "max_tokens": 8, "temperature": 0, "messages": said, **fields}
    answer = await daemon.ask("POST", "/v1/messages", body)
    assert answer.status == 200, answer.body
    usage = answer.json["usage"]
    session = answer.json["session"]
    assert usage["cache_read_input_tokens"] == session["reused_prompt_tokens"]
    assert usage["input_tokens"] == session["prefilled_prompt_tokens"] and usage["cache_creation_input_tokens"] == 0
    assert isinstance(session, dict)
    return session


async def chat(daemon: Daemon, said: list[Json], **fields: Any) -> Json:
    session = (await daemon.chat(messages=said, **fields))["session"]
    assert isinstance(session, dict)
    return session


Ask = Callable[..., Any]


@pytest.mark.parametrize("ask", [messages, chat])
@pytest.mark.parametrize("memory", CLASSES)
async def test_another_question_about_the_marked_text_is_read_alone(serve: Serve, memory: str, ask: Ask) -> None:
    daemon = await serve(model=f"sim:{memory}")
    n_read = []
    for number, is_marked in enumerate((True, False)):
        document = part(f"{number}. {DOCUMENT}", is_marked=is_marked)
        await ask(daemon, asked_about(document, LONG), session_id=f"s{number}")
        again = await ask(daemon, asked_about(document, "When was that, and where?"), session_id=f"s{number}")
        n_read.append(again["prefilled_prompt_tokens"])
    assert n_read[0] <= BESIDE + 8 < n_read[1], n_read


@pytest.mark.parametrize("is_marked", [True, False])
async def test_sessions_share_the_marked_beginning_of_the_system_s_words(serve: Serve, is_marked: bool) -> None:
    """The text after the mark differs between sessions."""
    daemon = await serve(model="sim:hybrid")
    for number in range(2):
        system = [part(DOCUMENT, is_marked=is_marked), part(f"{number}: today.")]
        said = [{"role": "user", "content": f"{number}: what now?"}]
        report = await messages(daemon, said, system=system, session_id=f"s{number}")
    assert (report["prefilled_prompt_tokens"] <= 2 * BESIDE) == is_marked


async def test_a_loop_that_is_edited_behind_a_marked_result_goes_on_from_there(serve: Serve) -> None:
    n_read = {}
    for is_marked in (True, False):
        daemon = await serve(model="sim:hybrid")
        use = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [part(DOCUMENT, is_marked=is_marked)]}
        begun: list[Json] = [
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [result]},
        ]
        for word in ("one", "two"):
            said = [*begun, {"role": "assistant", "content": f"I see {word}."}, {"role": "user", "content": "And?"}]
            n_read[is_marked] = (await messages(daemon, said, session_id="s"))["prefilled_prompt_tokens"]
    assert n_read[True] <= 2 * BESIDE < n_read[False], n_read


async def test_what_can_be_cut_back_anywhere_is_rendered_once(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    rendering, n_rendered = Engine.render_chat, 0

    async def counted(*args: Any) -> Any:
        nonlocal n_rendered
        n_rendered += 1
        return await rendering(*args)

    monkeypatch.setattr(Engine, "render_chat", counted)
    for memory, n in (("dense", 1), ("hybrid", 2)):
        daemon, n_rendered = await serve(model=f"sim:{memory}"), 0
        await messages(daemon, asked_about(part(DOCUMENT, is_marked=True), "Who?"))
        assert n_rendered == n
        n_rendered = 0
        await messages(daemon, [{"role": "user", "content": [part(DOCUMENT), part("Who?", is_marked=True)]}])
        assert n_rendered == 1, "at the end of all a state is kept anyway"


async def test_a_mark_is_a_boundary_of_the_prompt(serve: Serve) -> None:
    daemon = await serve(model="sim:hybrid")
    text = f"{DOCUMENT}\n{LONG}"

    async def boundaries(*marks: int) -> list[int]:
        asked = ChatPrompt([PlainMessage("user", text, marks=marks)])
        found = await rendered(daemon.state.services, asked, SCRATCH, "", SENDER)
        return memoryview(found.prompt.boundaries).cast("i").tolist()

    plain, marked = await boundaries(), await boundaries(len(DOCUMENT))
    [mark] = set(marked) - set(plain)
    assert marked == sorted({*plain, mark}) and 100 < mark < max(plain) - 100


# --- which marks count -----------------------------------------------------------------------------------------------


def said(n: int, *marks: int, role: Any = "user") -> PlainMessage:
    return PlainMessage(role, f"message {n}", marks=marks)


def test_the_last_marks_count() -> None:
    conversation = [said(n, 3, 9, role="user" if n % 2 else "assistant") for n in range(1, 6)]
    heads = marked_heads(conversation)
    assert len(heads) == limits.MARKS_MAX == 4
    ends = [(len(head), head[-1].content) for head in heads]
    assert ends == [(3, "message 3"), (4, "mes"), (4, "message 4"), (5, "mes")]
    assert [len(head) for head in marked_heads(conversation, after=3)] == [5]


def test_where_states_are_kept_anyway_none_is_asked_for() -> None:
    whole = len("message 1")
    assert marked_heads([said(1, whole, role="system"), said(2, whole)]) == []
    assert len(marked_heads([said(1, 4, role="system"), said(2, whole)])) == 1
    assert len(marked_heads([said(1, whole), said(2, whole)])) == 1


def test_a_message_that_is_cut_calls_nothing() -> None:
    answer = msgspec.structs.replace(said(1, 3, 9, role="assistant"), tool_calls=(PlainToolCall("f", "{}"),))
    cut, whole = (head[-1] for head in marked_heads([answer, said(2)]))
    assert (cut.content, cut.tool_calls) == ("mes", ()) and whole == answer


def test_messages_that_are_joined_keep_their_marks() -> None:
    systems = in_order([said(1, 9, role="system"), said(2, 7, 9, role="system"), said(3)])
    assert systems[0].content == "message 1\n\nmessage 2" and systems[0].marks == (9, 18, 20)
    turns, _ = plain([said(1, 9), PlainMessage("user", " "), said(2, role="system"), said(3, 9)])
    assert [(turn.content, turn.marks) for turn in turns] == [("message 1\n\nmessage 2\n\nmessage 3", (9, 31))]


def test_tokens_in_common() -> None:
    def tokens(*some: int) -> bytes:
        return array("i", some).tobytes()

    assert n_common(tokens(1, 2, 3), tokens(1, 2, 4, 5)) == 2
    assert n_common(tokens(1, 2, 3), tokens(1, 2, 3, 5)) == 3
    assert n_common(tokens(), tokens(1)) == n_common(tokens(2), tokens(1)) == 0


def test_marks_that_are_near_to_another_boundary_are_none() -> None:
    boundaries = array("i", [40, 100]).tobytes()
    near = limits.MARK_NEAR_TOKENS
    found = memoryview(with_marks(boundaries, [near, 40 + near, 60, 61, 99, 200])).cast("i").tolist()
    assert found == [40, 60, 100, 200]
