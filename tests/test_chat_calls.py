"""Tool calls and reasoning from end to end. The simulated model generates the text of its script, in the syntax of its
template, and libllm parses this text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.calling import READ, calling
from tests.conftest import Serve
from tests.serving import Daemon, Json
from tests.test_chat_tools import ask, gathered, message, reserialized, whole, without_ids


@pytest.fixture
async def caller(serve: Serve, tmp_path: Path) -> Daemon:
    return await serve(**calling(tmp_path))


async def test_a_call(caller: Daemon) -> None:
    said, reason = await message(caller, ask("one file", tools=[READ]))
    assert reason == "tool_calls" and said["content"] == "I look."
    assert said["reasoning_content"] == "which one?"
    [call] = said["tool_calls"]
    assert call["id"] and call["function"] == {"name": "read", "arguments": '{"path": "a.txt"}'}


@pytest.mark.parametrize("text", ["one file", "two files", "ponder", "plain"])
@pytest.mark.parametrize("fields", [{"tools": [READ]}, {"functions": [READ["function"]]}, {}, {"max_tokens": 30}])
async def test_a_stream_says_what_a_whole_says(caller: Daemon, text: str, fields: Json) -> None:
    body = ask(text, **{"tools": [READ], **fields} if "max_tokens" in fields else fields)
    said, reason = await message(caller, body)
    told, told_reason = gathered(await caller.stream(body))
    del said["refusal"]
    assert told_reason == reason and without_ids(told) == without_ids({**said, "content": said["content"] or ""})


async def test_what_was_cut_off_is_told_as_far_as_it_came(caller: Daemon) -> None:
    said, reason = await message(caller, ask("two files", tools=[READ], stop=['"b']))
    assert reason == "stop", "nobody runs a call for that"
    assert '{"path": "b"}'.startswith(said["tool_calls"][0]["function"]["arguments"]) and not said["content"]
    told, told_reason = gathered(await caller.stream(ask("two files", tools=[READ], stop=['"b'])))
    assert (told_reason, told["tool_calls"][0]["function"]) == (reason, said["tool_calls"][0]["function"])


async def test_a_stop_behind_a_call_is_the_end_of_calling(caller: Daemon) -> None:
    said, reason = await message(caller, ask("one file", tools=[READ], stop=["</tool_call>"]))
    assert reason == "tool_calls" and said["tool_calls"][0]["function"]["arguments"] == '{"path": "a.txt"}'


async def test_thoughts_stay_in_the_text_for_who_wants_it(caller: Daemon) -> None:
    said, _ = await message(caller, ask("ponder", reasoning_format="none"))
    assert said["content"] == "<think>\nhm\n</think>\n\nYes." and "reasoning_content" not in said
    said, _ = await message(caller, ask("ponder"))
    assert (said["content"], said["reasoning_content"]) == ("Yes.", "hm")


@pytest.mark.parametrize(
    ("stop", "content", "reasoning"),
    [("\n", "Yes.", "hm"), ("hm", "Yes.", "hm"), ("\n\n", "Yes.", "hm"), ("es", "Y", "hm")],
)
async def test_stops_end_the_answer_not_the_thought_before_it(
    caller: Daemon, stop: str, content: str, reasoning: str
) -> None:
    body = ask("ponder", stop=[stop])
    said, reason = await message(caller, body)
    assert (said["content"], said["reasoning_content"], reason) == (content, reasoning, "stop")
    told, _ = gathered(await caller.stream(body))
    assert (told["content"], told["reasoning_content"]) == (content, reasoning)


async def test_what_is_told_as_one_text_is_stopped_as_one(caller: Daemon) -> None:
    said, _ = await message(caller, ask("ponder", reasoning_format="none", stop=["hm"]))
    assert said["content"] == "<think>\n"


async def test_a_message_is_continued(caller: Daemon) -> None:
    messages = [{"role": "user", "content": "plain"}, {"role": "assistant", "content": "Just "}]
    said, reason = await message(caller, ask("", messages=messages, continue_final_message=True))
    assert (said["content"], reason) == ("text.", "stop")
    told, _ = gathered(await caller.stream(ask("", messages=messages, continue_final_message=True)))
    assert told["content"] == "text."


async def test_an_answer_of_its_own_is_continued_behind_what_came_before(caller: Daemon) -> None:
    """The client does not send reasoning back. Nevertheless at most the last answer is prefilled again."""
    messages: list[Json] = []
    for _ in range(4):
        messages.append({"role": "user", "content": "ponder"})
        answer = await whole(caller, ask("", messages=messages, session_id="s"))
        messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
    usage = (await whole(caller, ask("", messages=messages, session_id="s", continue_final_message=True)))["usage"]
    unread = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
    assert unread <= usage["prompt_tokens"] // 4


@pytest.mark.parametrize("is_stripped", [False, True])
async def test_a_tool_loop_prefills_only_what_is_new(caller: Daemon, is_stripped: bool) -> None:
    """In three turns, the client sends calls back in another form than the model wrote, and without reasoning."""
    messages: list[Json] = [{"role": "user", "content": "one file"}]
    body: dict[str, Any] = ask("", tools=[READ], session_id="s")
    resident = 0
    for result in ("two files", "plain", None):
        answer = await whole(caller, {**body, "messages": messages})
        report, usage = answer["session"], answer["usage"]
        if resident:
            assert report["session_reset_reason"] == "exact_prefix"
            assert usage["prompt_tokens_details"]["cached_tokens"] >= resident - 1
        resident = usage["total_tokens"]
        said = answer["choices"][0]["message"]
        if result is None:
            assert said["content"] == "Just text."
            break
        assert answer["choices"][0]["finish_reason"] == "tool_calls"
        calls = said["tool_calls"]
        stripped = {"role": "assistant", "content": said["content"], "tool_calls": reserialized(said)}
        messages = [*messages, stripped if is_stripped else said]
        results = [result, *(["nothing"] * (len(calls) - 1))]
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": text}
            for call, text in zip(calls, reversed(results), strict=True)
        ]


async def test_the_tools_reach_the_prompt(caller: Daemon) -> None:
    messages = [{"role": "user", "content": "plain"}]
    answer = await caller.ask("POST", "/apply-template", {"messages": messages, "tools": [READ]})
    assert answer.status == 200 and '"description":"Reads a file"' in answer.json["prompt"].replace('": "', '":"')
    without = await caller.ask("POST", "/apply-template", {"messages": messages})
    assert "Reads a file" not in without.json["prompt"]
