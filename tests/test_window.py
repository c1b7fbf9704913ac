"""Which messages a window leaves out, and when a window is used."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from llmd.answers.digest import digests_of
from llmd.answers.memory import Answer, AnswerMemory, Past, PromptFacts
from llmd.core import limits
from llmd.core.generation_request import ChatPrompt, PlainMessage, PlainToolCall
from llmd.core.session_key import SessionKey
from llmd.engine.engine import Engine
from llmd.engine.opening import EngineOptions
from llmd.pipeline import prompt as prompts
from llmd.pipeline import rendering
from llmd.pipeline.prompt import Prepared, rendered
from llmd.pipeline.services import Sender, Services
from llmd.pipeline.window import Windows, window_of
from llmd.turns.log import TurnLog

USER, ANSWER = PlainMessage("user", "why?"), PlainMessage("assistant", "so")
CALL = PlainMessage("assistant", "", (PlainToolCall("f", "{}", "id"),))
RESULT = PlainMessage("tool", "done", tool_call_id="id")
PLAIN = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}<|im_start|>assistant\n"
COUNTING = PLAIN + "{{ messages|length }}"


def past_at(message: int, tokens: bytes = b"") -> Past:
    return Past(message, b"", tokens, "", PromptFacts())


# --- the messages ----------------------------------------------------------------------------------------------------


def test_a_window_has_the_last_user_message_before_the_answer() -> None:
    messages = [PlainMessage("system", "s"), *[USER, ANSWER] * 5, USER, *[CALL, RESULT] * 3, CALL, RESULT, USER]
    end = len(messages) - 3
    window = window_of(ChatPrompt(messages), messages, past_at(end))
    assert window is not None
    assert window.messages == [USER, CALL, RESULT, USER]
    assert window.messages[window.past.message] is messages[end]


def test_a_short_conversation_has_no_window() -> None:
    few = [USER, ANSWER] * (limits.WINDOW_LEAVES_OUT_MIN // 2 + 1)
    assert window_of(ChatPrompt([*few, USER]), [*few, USER], past_at(len(few) - 1)) is not None
    assert window_of(ChatPrompt([*few[2:], USER]), [*few[2:], USER], past_at(len(few) - 3)) is None


def test_a_conversation_without_a_user_has_no_window() -> None:
    messages = [*[ANSWER] * 20, USER]
    assert window_of(ChatPrompt(messages), messages, past_at(19)) is None


@pytest.mark.parametrize(
    "changed",
    [
        ChatPrompt([*[USER, ANSWER] * 10, USER], variables={"a": 1}),
        ChatPrompt([*[USER, ANSWER] * 10, USER], has_opening=False),
        ChatPrompt([*[USER, ANSWER] * 10, RESULT]),
        ChatPrompt([*[USER, ANSWER] * 10, USER, USER]),
        ChatPrompt([USER, CALL, RESULT, *[USER, ANSWER] * 9, USER]),
        ChatPrompt([*[USER, ANSWER] * 9, PlainMessage("user", " "), ANSWER, USER]),
        ChatPrompt([*[USER, ANSWER] * 20, USER]),
    ],
    ids=lambda chat: "",
)
def test_what_a_template_distinguishes_is_another_shape(changed: ChatPrompt) -> None:
    usual = ChatPrompt([*[USER, ANSWER] * 10, USER])
    shapes = set()
    for chat in (usual, ChatPrompt([*[USER, ANSWER] * 11, PlainMessage("user", "other")]), changed):
        end = max(index for index, message in enumerate(chat.messages) if message.role == "assistant")
        window = window_of(chat, chat.messages, past_at(end))
        assert window is not None
        shapes.add(window.shape)
    assert len(shapes) == 2


# --- when it is used -------------------------------------------------------------------------------------------------


def test_a_shape_is_compared_at_first_and_then_ever_less_often() -> None:
    windows, compared = Windows(), []
    for number in range(600):
        if windows.use(("a",)) == "compare":
            compared.append(number)
        windows.used(("a",), True)
    assert compared == [0, 8, 64, 512]


def test_no_window_is_used_before_a_comparison_has_ended() -> None:
    windows = Windows()
    assert [windows.use(("a",)) for _ in range(3)] == ["compare"] * 3


def test_a_refused_shape_stays_refused() -> None:
    windows = Windows()
    for is_right in (True, False, True):
        windows.used(("a",), is_right)
    assert windows.use(("a",)) == "whole"
    assert windows.use(("b",)) == "compare"


def test_the_least_recently_used_shape_is_dropped() -> None:
    windows = Windows(shapes_max=2)
    for shape in "aabac":
        windows.used((shape,), shape == "a")
    assert windows.use(("a",)) == "window"
    assert windows.use(("b",)) == "compare"


# --- prompts ---------------------------------------------------------------------------------------------------------


async def serving(template: str) -> AsyncIterator[Services]:
    engine = await Engine.open(EngineOptions(model="sim:dense,ctx=100000", n_ctx=100_000, chat_template=template))
    turns = TurnLog(engine.session_table)
    yield Services(engine=engine, answers=AnswerMemory(), turns=turns, history="resident", scratch_reuse=True)
    await engine.close()


async def continued(services: Services, messages: Sequence[PlainMessage]) -> Prepared:
    """Returns the prompt of the messages. The tokens of the messages before the last one are known."""
    before = await rendered(services, ChatPrompt(list(messages[:-1])), SessionKey("", ""), "", Sender(1, 100, False))
    services.answers.keep(0, "s", digests_of(messages)[-2], Answer(before.prompt.tokens, ""))
    return await rendered(services, ChatPrompt(list(messages)), SessionKey("s", ""), "", Sender(0, 100, False))


@pytest.mark.parametrize("template", [PLAIN, COUNTING], ids=["plain", "counts its messages"])
async def test_prompts_are_the_same_with_and_without_windows(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    conversations = [
        [PlainMessage("assistant" if i % 2 else "user", f"{n} {i}") for i in range(n)] for n in range(11, 45, 2)
    ]
    async for services in serving(template):
        found = [(await continued(services, messages)).prompt.tokens for messages in conversations]
        monkeypatch.setattr(prompts, "window_of", lambda *_: None)
        services.answers.forget(0, "s")
        assert found == [(await continued(services, messages)).prompt.tokens for messages in conversations]


async def test_the_template_gets_only_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    render = rendering.render_request

    def counted(chat: ChatPrompt, messages: Sequence[PlainMessage], *more: object) -> bytes:
        counts.append(len(messages))
        return render(chat, messages, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(prompts, "render_request", counted)
    async for services in serving(PLAIN):
        for _ in range(2):
            await continued(services, [*[USER, ANSWER] * 20, USER])
    assert counts == [40, 41, 3, 40, 3]
