"""Requests of real clients with one session id: the tokens of the long history are reused, whatever other requests come
in between.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.conftest import Serve
from tests.conversation import Conversation
from tests.serving import SETTLE_S, Daemon, Json, chat

CLASSES = ("dense", "window", "recurrent", "hybrid")
SYSTEM = "you are a careful assistant with tools " * 4
TITLE = "you write titles of at most five words and nothing else"
COMPACT = "summarize the conversation so far in a few lines"
SLOW = "sim:hybrid,ctx=1000000,step_us=1000,length=0"


async def timelines(daemon: Daemon, name: str) -> list[Json]:
    found = (await daemon.ask("GET", f"/v1/sessions/{name}")).json["timelines"]
    assert isinstance(found, list)
    return found


def side(daemon: Daemon, system: str) -> Conversation:
    return Conversation(daemon, "main", system=system)


async def talk(daemon: Daemon, n_turns: int) -> Conversation:
    main = Conversation(daemon, "main", system=SYSTEM)
    for n in range(n_turns):
        await main.ask(f"question {n} about the matter at hand")
    return main


def assert_warm(one: Conversation, n_new: int) -> None:
    """Checks that at most `n_new` tokens were prefilled: the new message, and the template's text around it."""
    assert one.n_prefilled <= n_new, one.report


@pytest.mark.parametrize("memory", CLASSES)
async def test_a_title_request_beside_the_first_turn(serve: Serve, memory: str) -> None:
    daemon = await serve(model=f"sim:{memory}")
    main, title = Conversation(daemon, "main", system=SYSTEM), side(daemon, TITLE)
    await asyncio.gather(main.ask("fix the tests please"), title.ask("fix the tests please"))
    assert len(await timelines(daemon, "main")) == 2
    await main.ask("and then the other ones")
    assert_warm(main, 40)


async def test_overlapping_requests_run_side_by_side(serve: Serve) -> None:
    """The second request ends while the first, which never ends by itself, still runs."""
    daemon = await serve(model=SLOW, ctx_size=200_000)
    body = chat(SYSTEM, session_id="main", max_tokens=100_000)
    async with daemon.streaming(body):
        async with asyncio.timeout(SETTLE_S):
            answer = await daemon.chat(TITLE, session_id="main")
        assert answer["usage"]["completion_tokens"] == 8
        states = sorted(one["state"] for one in await timelines(daemon, "main"))
        assert states == ["decode", "idle"]
        assert (await daemon.ask("GET", "/v1/sessions/main")).json["state"] == "decode"


@pytest.mark.parametrize("memory", CLASSES)
async def test_compaction_under_the_same_id(serve: Serve, memory: str) -> None:
    daemon = await serve(model=f"sim:{memory}")
    main = await talk(daemon, 4)
    summary = side(daemon, COMPACT)
    await summary.ask("here is what was said: " + "words " * 20)
    await main.ask("and the main conversation goes on")
    assert_warm(main, 40)


@pytest.mark.parametrize("memory", CLASSES)
async def test_return_with_a_rewritten_history(serve: Serve, memory: str) -> None:
    """After its own compaction, pi sends the same system prompt and a short history."""
    daemon = await serve(model=f"sim:{memory}")
    await talk(daemon, 5)
    again = side(daemon, SYSTEM)
    await again.ask("the conversation so far: everything is well")
    assert again.report["session_reset_reason"] in ("checkpoint", "rewind", "shared")
    assert again.report["reused_prompt_tokens"] > again.n_prompt / 3
    await again.ask("go on")
    assert_warm(again, 40)


@pytest.mark.parametrize("memory", CLASSES)
async def test_compaction_without_an_id(serve: Serve, memory: str) -> None:
    """pi asks for the summary without its session id. The session then continues with the summary, or, if the
    compaction was cancelled, with its old history.
    """
    daemon = await serve(model=f"sim:{memory}")
    main = await talk(daemon, 4)
    before = main.messages
    await daemon.chat(messages=[{"role": "system", "content": COMPACT}, *main.messages[1:]])
    again = side(daemon, SYSTEM)
    await again.ask("what was said: everything is well")
    await again.ask("go on")
    assert_warm(again, 40)
    main.messages = before
    await main.ask("and the old conversation goes on")
    assert_warm(main, 40)


@pytest.mark.parametrize("memory", CLASSES)
async def test_two_user_messages_after_an_aborted_turn(serve: Serve, memory: str) -> None:
    daemon = await serve(model=f"sim:{memory}")
    main = await talk(daemon, 3)
    main.messages.append({"role": "user", "content": "a question whose answer is aborted"})
    body = chat(messages=main.messages, session_id="main", max_tokens=400)
    async with daemon.streaming(body) as response:
        response.close()
    await daemon.idle()
    await main.ask("never mind, this instead")
    assert_warm(main, 60)


@pytest.mark.parametrize("memory", CLASSES)
async def test_the_identical_request_after_a_cut_stream(serve: Serve, memory: str) -> None:
    daemon = await serve(model=f"sim:{memory}")
    main = await talk(daemon, 3)
    main.messages.append({"role": "user", "content": "a question whose stream is cut"})
    body = chat(messages=main.messages, session_id="main", max_tokens=400)
    async with daemon.streaming(body) as response:
        response.close()
    await daemon.idle()
    await main.again()
    assert_warm(main, 0)


@pytest.mark.parametrize("memory", CLASSES)
async def test_regenerate_and_edit_the_last_message(serve: Serve, memory: str) -> None:
    daemon = await serve(model=f"sim:{memory}")
    main = await talk(daemon, 4)
    main.messages.pop()
    await main.again()
    assert_warm(main, 0)
    main.messages = main.messages[:-2]
    await main.ask("the last message, edited")
    assert_warm(main, 40)


async def test_an_empty_answer_in_the_history_is_dropped(daemon: Daemon) -> None:
    main = await talk(daemon, 2)
    main.messages += [{"role": "assistant", "content": ""}]
    await main.ask("go on")
    assert_warm(main, 60)


async def test_timelines_are_bounded(serve: Serve) -> None:
    daemon = await serve(session_timelines=2)
    for text in ("alpha " * 9, "beta " * 9, "gamma " * 9, "delta " * 9):
        await daemon.chat(text, session_id="main")
    assert len(await timelines(daemon, "main")) == 2


async def test_a_pinned_history_outlives_other_prompts_under_its_id(daemon: Daemon) -> None:
    main = await talk(daemon, 2)
    answer = await daemon.ask("POST", "/v1/sessions/main/pin", {"pinned": True})
    assert answer.json["pinned"] is True
    for text in ("alpha " * 9, "beta " * 9, "gamma " * 9, "delta " * 9):
        await daemon.chat(text, session_id="main")
    await main.ask("and the pinned conversation goes on")
    assert main.report["session_reset_reason"] == "exact_prefix"
    assert (await daemon.ask("GET", "/v1/sessions/main")).json["pinned"] is True


async def test_conversations_behind_one_system_prompt_stay_apart(daemon: Daemon) -> None:
    """Short conversations share a long system prompt. Each continues from its own state, with and without a session
    id.
    """
    talks = [Conversation(daemon, "main", system=SYSTEM * 8) for _ in range(2)]
    for texts in (("which way to the station?", "how do birds sleep?"), ("and by bus?", "and fishes?")):
        for one, text in zip(talks, texts, strict=True):
            await one.ask(text)
    assert len(await timelines(daemon, "main")) == 2
    assert [one.report["session_reset_reason"] for one in talks] == ["exact_prefix"] * 2


async def test_verbs_act_on_all_timelines(daemon: Daemon) -> None:
    async def open_two() -> None:
        for text in ("alpha " * 9, "beta " * 9):
            await daemon.chat(text, session_id="main")
        assert len(await timelines(daemon, "main")) == 2

    await open_two()
    total = sum(one["tokens"] for one in await timelines(daemon, "main"))
    assert (await daemon.ask("GET", "/v1/sessions/main")).json["tokens"] == total
    parked = (await daemon.ask("POST", "/v1/sessions/main/park")).json
    assert [one["state"] for one in parked["timelines"]] == ["parked", "parked"]
    reset = (await daemon.ask("POST", "/v1/sessions/main/reset")).json
    assert [one["tokens"] for one in reset["timelines"]] == [0]
    await open_two()
    assert (await daemon.ask("DELETE", "/v1/sessions/main")).status == 200
    assert list(daemon.state.engine.session_table.sessions()) == []


@pytest.mark.parametrize("memory", CLASSES)
async def test_a_system_text_outlives_the_session_that_brought_it(serve: Serve, memory: str) -> None:
    daemon = await serve(model=f"sim:{memory}")
    await Conversation(daemon, "first", system=3 * SYSTEM).ask("fix the tests please")
    assert (await daemon.ask("DELETE", "/v1/sessions/first")).status == 200
    other = Conversation(daemon, "other", system=3 * SYSTEM)
    await other.ask("write a parser")
    assert other.report["session_reset_reason"] == "shared"
    assert_warm(other, 30)


@pytest.mark.parametrize("memory", CLASSES)
async def test_an_answer_that_was_dropped(serve: Serve, memory: str) -> None:
    """A client that aborted a request sends its next message directly after the message that got no answer."""
    daemon = await serve(model=f"sim:{memory}")
    main = await talk(daemon, 1)
    await main.ask("a long question " * 40)
    main.messages.pop()
    await main.ask("never mind, what is next?")
    assert_warm(main, 40)
