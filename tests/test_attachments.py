"""Attachments of users, in every dialect: refused in the newest question, and replaced by a placeholder in earlier
questions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from llmd.core.errors import ApiError
from llmd.core.generation_request import PlainMessage
from llmd.dialects.anthropic import turns
from llmd.dialects.anthropic.deferred import tools_of_history
from llmd.dialects.anthropic.wire import InputTurn
from llmd.dialects.conversation import newest_question
from llmd.dialects.ollama import reader as ollama
from llmd.dialects.ollama.wire import OllamaMessage
from llmd.dialects.openai import messages as chat
from llmd.dialects.openai.wire import Message
from llmd.dialects.responses import items
from tests.serving import Json

Read = Callable[[list[Json]], list[PlainMessage]]


def of_chat(given: list[Json]) -> list[PlainMessage]:
    return chat.messages_of(msgspec.convert(given, list[Message]))


def of_anthropic(given: list[Json]) -> list[PlainMessage]:
    found = msgspec.convert(given, list[InputTurn])
    return turns.messages_of(None, found, tools_of_history((), found))


def of_ollama(given: list[Json]) -> list[PlainMessage]:
    return ollama.messages_of(msgspec.convert(given, list[OllamaMessage]))


def of_responses(given: list[Json]) -> list[PlainMessage]:
    raw = [msgspec.Raw(msgspec.json.encode(one)) for one in given]
    return items.messages_of(items.items_of(raw, lambda id: None))


def parts(kind: str, **more: Any) -> Json:
    return {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": kind, **more}]}


BASE64 = {"source": {"type": "base64", "media_type": "x/y", "data": "AAAA"}}
KINDS: list[tuple[Read, Json, str, str]] = [
    (of_chat, parts("image_url", image_url={"url": "data:image/png;base64,AAAA"}), "image", ".content[1]"),
    (of_chat, parts("input_audio", input_audio={"data": "AAAA", "format": "wav"}), "audio", ".content[1]"),
    (of_chat, parts("file", file={"file_data": "AAAA"}), "file", ".content[1]"),
    (of_anthropic, parts("image", **BASE64), "image", ".content[1].image"),
    (of_anthropic, parts("document", **BASE64), "document", ".content[1].document"),
    (of_ollama, {"role": "user", "content": "look", "images": ["AAAA"]}, "image", ".images"),
    (of_responses, parts("input_image", image_url="data:image/png;base64,AAAA"), "image", ".content[1]"),
    (of_responses, parts("input_file", file_data="AAAA"), "file", ".content[1]"),
]  # fmt: skip
HI: Json = {"role": "user", "content": "hi"}
SAID: Json = {"role": "assistant", "content": "said"}
RESULTS: dict[Read, list[Json]] = {
    of_chat: [
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f"}}]},
        {"role": "tool", "content": "a.png", "tool_call_id": "c"},
    ],
    of_anthropic: [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "a.png"}]},
    ],
    of_ollama: [
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
        {"role": "tool", "content": "a.png", "tool_name": "f"},
    ],
    of_responses: [
        {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": "a.png"},
    ],
}
each = pytest.mark.parametrize(("read", "question", "name", "member"), KINDS)


def told(name: str) -> str:
    return f"look\n[{name}: not shown, this model reads text only]"


@each
def test_in_the_newest_question_it_is_refused(read: Read, question: Json, name: str, member: str) -> None:
    for before, behind in (([], []), ([HI, SAID], []), ([HI], []), ([question, SAID], []), ([], [SAID])):
        with pytest.raises(ApiError) as caught:
            read([*before, question, *behind])
        assert caught.value.code == "unsupported_parameter" and caught.value.param is not None
        assert re.fullmatch(rf"(messages|input)\[{len(before)}\]{re.escape(member)}", caught.value.param)
        assert caught.value.message.startswith(caught.value.param)


@each
def test_in_an_earlier_one_it_is_told(read: Read, question: Json, name: str, member: str) -> None:
    """Clients send an attachment again with every later turn, so that refusing it would end the conversation."""
    for behind in ([SAID, HI], [HI], [SAID, HI, SAID]):
        assert read([HI, SAID, question, *behind])[2] == PlainMessage("user", told(name))


@each
def test_beside_the_results_of_tools_it_is_told(read: Read, question: Json, name: str, member: str) -> None:
    """If an API has no pictures in results, a client puts the picture of a tool's result into a user message next to
    the result.
    """
    assert read([HI, *RESULTS[read], question])[-1] == PlainMessage("user", told(name))
    with pytest.raises(ApiError):
        read([HI, *RESULTS[read], SAID, question])


def test_a_picture_beside_a_result_of_the_same_turn_is_told() -> None:
    called, results = RESULTS[of_anthropic]
    both = {"role": "user", "content": [*results["content"], *parts("image", **BASE64)["content"]]}
    assert of_anthropic([HI, called, both])[-1] == PlainMessage("user", told("image"))


def test_what_nobody_attaches_stays_refused() -> None:
    for read, kind in ((of_chat, "thinking"), (of_anthropic, "tool_use"), (of_responses, "reasoning_text")):
        with pytest.raises(ApiError):
            read([parts(kind), SAID, HI])


def test_claude_code_finds_what_to_leave_out() -> None:
    with pytest.raises(ApiError) as caught:
        of_anthropic([HI, SAID, parts("image", **BASE64)])
    found = re.search(r"messages[.[](\d+)[\].]+content[.[](\d+)[\].]+(image|document|pdf)", caught.value.message)
    assert found is not None and found.groups() == ("2", "1", "image")


@pytest.mark.parametrize(
    ("roles", "newest"),
    [
        ("", None), ("user", 0), ("system user", 1), ("user system", 0), ("user user", 1), ("assistant", None),
        ("user assistant", 0), ("user assistant user", 2), ("user assistant tool", None),
        ("user assistant tool user", None), ("user assistant user tool", None), ("tool assistant user", 2),
        ("system", None),
    ],
)  # fmt: skip
def test_which_question_is_the_newest(roles: str, newest: int | None) -> None:
    assert newest_question(roles.split()) == newest
