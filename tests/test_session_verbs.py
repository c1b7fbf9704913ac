"""The verbs fork, park, pin, rename, save, load and explain over HTTP, for each class of memory.

The simulated model answers by a hash of exactly the tokens it consumed: an answer that equals the cold one proves that
the session holds what its prompt says and nothing else.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from llmd.core import limits
from llmd.core.errors import ApiError
from llmd.engine.engine import Engine
from llmd.engine.wire import ALL_TOKENS, Load
from llmd.http.endpoints.session_verbs import fork_point
from llmd.routes import ENDPOINTS
from llmd.turns.divergence import n_common
from llmd.turns.log import TurnLog
from llmd.turns.user_starts import UserMessages, user_starts
from tests.conftest import Serve
from tests.conversation import Conversation, cold
from tests.serving import SETTLE_S, Answer, Daemon, Json, chat
from tests.test_tool_loops import template_of

CLASSES = ("dense", "window", "recurrent", "hybrid")


async def post(daemon: Daemon, name: str, verb: str, body: Json | None = None, **kwargs: Any) -> Answer:
    return await daemon.ask("POST", f"/v1/sessions/{name}/{verb}", body, **kwargs)


async def show(daemon: Daemon, name: str) -> Json:
    return (await daemon.ask("GET", f"/v1/sessions/{name}")).json


# --- fork ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", CLASSES)
async def test_a_fork_is_warm_and_isolated(serve: Serve, memory: str) -> None:
    daemon = await serve(model=f"sim:{memory}")
    parent = Conversation(daemon, "parent")
    for text in ("the first question", "and the second one"):
        await parent.ask(text)
    answer = await post(daemon, "parent", "fork", {"session_id": "child"})
    assert answer.status == 200 and answer.json["id"] == "child"
    assert answer.json["tokens"] == (await show(daemon, "parent"))["tokens"]
    child = parent.continued_as("child")
    for one, text in ((child, "left of the fork"), (parent, "right of it"), (child, "left again"), (parent, "right")):
        await one.ask(text)
        assert one.report["prefilled_prompt_tokens"] < one.n_prompt / 2


@pytest.mark.parametrize("memory", CLASSES)
async def test_a_fork_before_the_last_message(serve: Serve, memory: str) -> None:
    daemon = await serve(model=f"sim:{memory}")
    parent = Conversation(daemon, "parent", system="a system prompt that is long enough to be worth keeping")
    for text in ("the first question of three", "the second question of three", "the third question of three"):
        await parent.ask(text)
    starts = daemon.state.turns.by_user(0, "parent").starts
    assert sorted(starts) == [1, 2, 3] and list(starts.values()) == sorted(starts.values())
    for at, turn in (("last_user", 3), ("turn:2", 2)):
        answer = await post(daemon, "parent", "fork", {"session_id": "child", "at": at, "replace": True})
        assert answer.status == 200 and 0 < answer.json["tokens"] <= starts[turn]
        child = parent.continued_as("child", 1 + 2 * (turn - 1))
        await child.ask("another question")
        assert child.report["reused_prompt_tokens"] >= answer.json["tokens"]


@pytest.mark.parametrize("family", ["qwen3", "glm46"])
async def test_a_fork_before_the_last_message_in_every_template(serve: Serve, tmp_path: Path, family: str) -> None:
    """Some templates write earlier answers differently when another question follows, and do not show where that
    question begins.
    """
    template = tmp_path / "template.jinja"
    template.write_text(template_of(family))
    daemon = await serve(model="sim:hybrid", chat_template_file=template)
    parent = Conversation(daemon, "parent", system="a system prompt")
    held = []
    for text in ("the first of four questions", "the second question", "the third question", "the fourth question"):
        await parent.ask(text)
        held.append((await show(daemon, "parent"))["tokens"])
    answer = await post(daemon, "parent", "fork", {"session_id": "child", "at": "last_user"})
    assert answer.status == 200, answer.body
    assert held[2] - 1 <= answer.json["tokens"] < held[3]


async def test_a_fork_at_tokens(daemon: Daemon) -> None:
    await daemon.chat("a question of some length", session_id="a")
    assert (await post(daemon, "a", "fork", {"session_id": "b", "at": 5})).json["tokens"] == 5


async def test_a_refused_request_moves_no_message(serve: Serve) -> None:
    """A refused request does not change the positions of the session's messages."""
    daemon = await serve(ctx_size=512)
    talk = Conversation(daemon, "a")
    await talk.ask("the first question")
    await talk.ask("the second question")
    assert (await post(daemon, "a", "fork", {"session_id": "b", "at": "last_user"})).status == 200
    too_long = [*talk.messages, {"role": "user", "content": "word " * 2000}]
    refused = await daemon.refused(chat(messages=too_long, session_id="a"))
    assert refused.error["code"] == "context_length_exceeded"
    assert (await post(daemon, "a", "fork", {"session_id": "c", "at": "last_user"})).status == 200
    held = [(await show(daemon, name))["tokens"] for name in ("a", "b", "c")]
    assert held[1] == held[2] < held[0]


async def test_a_fork_replaces_only_what_it_is_told_to(daemon: Daemon) -> None:
    await daemon.chat("one", session_id="a")
    await daemon.chat("a quite different one", session_id="b")
    before = await show(daemon, "b")
    answer = await post(daemon, "a", "fork", {"session_id": "b"})
    assert answer.status == 409 and answer.error["code"] == "session_exists" and "replace" in answer.error["message"]
    assert await show(daemon, "b") == before
    forked = (await post(daemon, "a", "fork", {"session_id": "b", "replace": True})).json
    assert forked["tokens"] == (await show(daemon, "a"))["tokens"]


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({}, "missing_parameter", "session_id"),
        ({"session_id": "a"}, "invalid_value", "session_id"),
        ({"session_id": "no good"}, "invalid_session_id", "session_id"),
        ({"session_id": "b", "at": -1}, "invalid_value", "at"),
        ({"session_id": "b", "at": "turn:0"}, "invalid_value", "at"),
        ({"session_id": "b", "at": "turn:9"}, "invalid_value", "at"),
        ({"session_id": "b", "at": "turn:" + "9" * 5000}, "invalid_value", "at"),
        ({"session_id": "b", "at": 5_000_000_000}, "invalid_value", "at"),
        ({"session_id": "b", "at": 0xFFFFFFFF}, "invalid_value", "at"),
        ({"session_id": "b", "at": 10**20}, "invalid_value", "at"),
        ({"session_id": "b", "at": "yesterday"}, "invalid_value", "at"),
        ({"session_id": "b", "where": 1}, "unsupported_parameter", "where"),
    ],
)
async def test_bad_forks(daemon: Daemon, body: Json, code: str, param: str) -> None:
    await daemon.chat(session_id="a")
    answer = await post(daemon, "a", "fork", body)
    assert (answer.status, answer.error["code"], answer.error["param"]) == (400, code, param)
    assert (await daemon.ask("GET", "/v1/sessions/b")).status == 404


@pytest.mark.parametrize("owner", ["9" * 5000, "99999999999", str(1 << 32), "-1", "x", ""])
async def test_an_owner_is_a_number_of_the_engine(daemon: Daemon, owner: str) -> None:
    await daemon.chat(session_id="a")
    for method, verb in (("GET", ""), ("POST", "/load"), ("DELETE", "")):
        body: Json | None = {"name": "label"} if verb else None
        answer = await daemon.ask(method, f"/v1/sessions/a{verb}?owner={owner}", body, local=True)
        assert (answer.status, answer.error["code"], answer.error["param"]) == (400, "invalid_value", "owner")
        assert "from 0 to 4294967295" in answer.error["message"]


def test_the_point_of_a_fork() -> None:
    by_user = UserMessages(3, {2: 10, 3: 20})
    assert [fork_point(at, by_user) for at in (None, 7, "last_user", "turn:2")] == [ALL_TOKENS, 7, 20, 10]
    with pytest.raises(ApiError, match="does not know"):
        fork_point("last_user", UserMessages())
    with pytest.raises(ApiError, match="llmd does not know where turn 4 begins; it knows this for the turns 2, 3"):
        fork_point("last_user", UserMessages(4, {2: 10, 3: 20}))


def test_where_messages_begin() -> None:
    def packed(*counts: int) -> bytes:
        return b"".join(count.to_bytes(4, "little") for count in counts)

    assert user_starts(["system", "user", "assistant", "user"], packed(5, 9, 12)) == {1: 5, 2: 9}
    assert user_starts(["user", "assistant", "user"], packed(9, 12)) == {1: 0, 2: 9}
    assert user_starts(["system", *["user", "assistant"] * 5, "user"], packed(3, 11, 21, 31, 41, 44)) == {
        3: 11, 4: 21, 5: 31, 6: 41,
    }  # fmt: skip
    assert user_starts(["system", "user"], packed(12)) == {}, "one was left out: unknown which"
    roles = ["user", "assistant", "user", "assistant", "user"]
    assert user_starts(roles, packed(9), after=3) == {3: 0}, "it begins behind the answer at the latest"
    assert user_starts([*roles, "user"], packed(9), after=3) == {3: 0}
    assert user_starts(roles, packed(9), after=1) == {2: 0}


async def test_parent_header(daemon: Daemon) -> None:
    """A subagent's first request begins as a copy of its parent's session."""
    parent = Conversation(daemon, "parent")
    await parent.ask("a question that is long enough to be worth something")
    child = parent.continued_as("child")
    await child.ask("the same, but otherwise", headers={"X-Parent-Session-Id": "parent"})
    assert child.report["reused_prompt_tokens"] > 0
    stranger = Conversation(daemon, "stranger")
    await stranger.ask("nothing in common", headers={"X-Parent-Session-Id": "nobody"})


# --- park, pin, rename -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", CLASSES)
async def test_park_and_come_back(serve: Serve, memory: str) -> None:
    daemon = await serve(model=f"sim:{memory}")
    talk = Conversation(daemon, "a")
    await talk.ask("a question")
    for _ in range(2):
        parked = (await post(daemon, "a", "park")).json
        assert parked["state"] == "parked" and parked["timelines"][0]["tokens"] == parked["tokens"] > 0
    listed = (await daemon.ask("GET", "/v1/sessions", local=True)).json
    assert listed["places"]["parked"] == 1 and listed["places"]["named_used"] == 0
    assert listed["storage"]["parked_bytes"] > 0
    assert listed["storage"]["state_dir"] == str(daemon.config.state_dir)
    await talk.ask("and another")
    assert talk.report["session_reset_reason"] == "restored"
    assert talk.report["prefilled_prompt_tokens"] < talk.n_prompt


@pytest.mark.parametrize(
    ("options", "place"),
    [({}, "memory"), ({"park_memory": 1}, "disk"), ({"park_memory": 1, "state_dir": None}, "none")],
)
async def test_a_session_says_where_its_state_is(serve: Serve, options: dict[str, Any], place: str) -> None:
    daemon = await serve(**options)
    await daemon.chat(session_id="a")
    assert (await daemon.ask("GET", "/v1/sessions/a")).json["kept_in"] == "slot"
    await post(daemon, "a", "park")
    async with asyncio.timeout(SETTLE_S):
        while (found := (await daemon.ask("GET", "/v1/sessions/a")).json)["kept_in"] != place:
            await daemon.chat(session_id="b")
    assert found["timelines"][0]["kept_in"] == place and found["state"] == "parked"
    await daemon.chat(session_id="a")
    assert (await daemon.ask("GET", "/v1/sessions/a")).json["kept_in"] == "slot"


async def test_a_parked_session_that_is_reset_takes_no_slot(serve: Serve) -> None:
    daemon = await serve()
    await Conversation(daemon, "a").ask("a question")
    await post(daemon, "a", "park")
    reset = (await post(daemon, "a", "reset")).json
    assert (reset["state"], reset["tokens"]) == ("parked", 0)
    places = (await daemon.ask("GET", "/v1/sessions", local=True)).json["places"]
    assert (places["named_used"], places["parked"]) == (0, 1)
    talk = Conversation(daemon, "a")
    await talk.ask("a new beginning")
    assert talk.report["session_reset_reason"] != "restored"
    assert (await daemon.ask("GET", "/v1/sessions/a", local=True)).json["state"] == "idle"


async def test_the_state_directory_is_no_business_of_everybody(daemon: Daemon) -> None:
    assert (await daemon.ask("GET", "/v1/sessions")).json["storage"]["state_dir"] is None


async def test_pinned_sessions_are_not_evicted(serve: Serve) -> None:
    daemon = await serve(max_sessions=2, capacity_policy="evict")
    await daemon.chat(session_id="kept")
    assert (await post(daemon, "kept", "pin", {"pinned": True})).json["pinned"] is True
    for name in ("b", "c", "d"):
        await daemon.chat(f"I am {name}", session_id=name)
    assert (await show(daemon, "kept"))["pinned"] is True
    assert (await post(daemon, "kept", "pin", {"pinned": False})).json["pinned"] is False
    for name in ("e", "f"):
        await daemon.chat(f"I am {name}", session_id=name)
    assert (await daemon.ask("GET", "/v1/sessions/kept")).status == 404


async def test_rename(daemon: Daemon) -> None:
    talk = Conversation(daemon, "old")
    await talk.ask("a question")
    await daemon.chat("other", session_id="taken")
    answer = await post(daemon, "old", "rename", {"session_id": "taken"})
    assert answer.status == 409 and answer.error["code"] == "session_exists"
    assert (await post(daemon, "old", "rename", {"session_id": "new"})).json["id"] == "new"
    assert (await daemon.ask("GET", "/v1/sessions/old")).status == 404
    again = talk.continued_as("new")
    await again.ask("more")
    assert again.report["session_reset_reason"] in ("exact_prefix", "rewind", "checkpoint")
    assert len((await daemon.ask("GET", "/v1/sessions/new/explain")).json["turns"]) == 2


@pytest.mark.parametrize("verb", ["fork", "park", "pin", "rename", "save", "explain"])
async def test_unknown_sessions(daemon: Daemon, verb: str) -> None:
    bodies: dict[str, Json] = {"pin": {"pinned": True}, "save": {"name": "n"}}
    method = "GET" if verb == "explain" else "POST"
    answer = await daemon.ask(method, f"/v1/sessions/nobody/{verb}", bodies.get(verb, {"session_id": "x"}))
    assert answer.status == 404 and answer.error["code"] == "session_not_found"


# --- save, load ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", CLASSES)
async def test_save_and_load(serve: Serve, memory: str) -> None:
    daemon = await serve(model=f"sim:{memory}")
    talk = Conversation(daemon, "a")
    await talk.ask("the question that is saved")
    saved = (await post(daemon, "a", "save", {"name": "label"})).json
    assert (saved["id"], saved["name"]) == ("a", "label") and saved["tokens"] > 0
    then = talk.continued_as("b")
    await talk.ask("what came later")
    await daemon.chat("something that is replaced", session_id="b")
    loaded = (await post(daemon, "b", "load", {"name": "label", "replace": True})).json
    assert loaded["id"] == "b" and loaded["tokens"] == saved["tokens"]
    await then.ask("another way to go on")
    assert then.report["session_reset_reason"] in ("restored", "checkpoint", "shared")
    assert then.report["prefilled_prompt_tokens"] < then.n_prompt


async def test_an_empty_session_is_not_saved(daemon: Daemon) -> None:
    await daemon.chat(session_id="a")
    await post(daemon, "a", "reset", {})
    answer = await post(daemon, "a", "save", {"name": "label"})
    assert (answer.status, answer.error["code"]) == (409, "nothing_to_save")
    assert answer.error["message"] == "The session is empty: there is nothing to save."


async def test_load_of_nothing_loses_nothing(daemon: Daemon) -> None:
    await daemon.chat(session_id="a")
    held = (await show(daemon, "a"))["tokens"]
    answer = await post(daemon, "a", "load", {"name": "nobody-saved-this"})
    assert answer.status == 404 and answer.error["code"] == "snapshot_not_found" and answer.error["param"] == "name"
    assert (await show(daemon, "a"))["tokens"] == held
    assert [one["id"] for one in (await daemon.ask("GET", "/v1/sessions")).json["data"]] == ["a"]


async def test_a_load_takes_the_place_of_what_it_replaces(serve: Serve) -> None:
    daemon = await serve(max_sessions=1, capacity_policy="refuse")
    await daemon.chat(session_id="a")
    saved = (await post(daemon, "a", "save", {"name": "label"})).json
    loaded = await post(daemon, "a", "load", {"name": "label", "replace": True})
    assert (loaded.status, loaded.json.get("tokens")) == (200, saved["tokens"])
    refused = await post(daemon, "b", "load", {"name": "label", "replace": True})
    assert (refused.status, refused.error["code"]) == (429, "capacity_exhausted")
    assert (await show(daemon, "a"))["tokens"] == saved["tokens"]


async def test_whoever_leaves_during_a_load_leaves_nothing_behind(daemon: Daemon) -> None:
    await daemon.chat(session_id="a")
    await post(daemon, "a", "save", {"name": "label"})
    owner = (await show(daemon, "a"))["owner"]
    leaving = asyncio.create_task(daemon.state.engine.ask(Load, owner, "b", "label"))
    await asyncio.sleep(0)  # the command is queued
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert (await post(daemon, "c", "load", {"name": "label"})).status == 200  # the store works in order
    listed = (await daemon.ask("GET", "/v1/sessions")).json["data"]
    assert {one["id"] for one in listed} == {"a", "b", "c"}


async def test_save_without_a_directory(serve: Serve) -> None:
    daemon = await serve(state_dir=None)
    await daemon.chat(session_id="a")
    for verb in ("save", "load"):
        answer = await post(daemon, "a", verb, {"name": "label"})
        assert answer.status == 409 and answer.error["code"] == "no_state_dir"


async def test_owners_do_not_meet(serve: Serve, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("first-key\nsecond-key\nadmin-key boss admin\n")
    keys.chmod(0o600)
    daemon = await serve(api_key_file=keys)
    first, second, admin = ({"Authorization": f"Bearer {name}-key"} for name in ("first", "second", "admin"))
    await daemon.ask("POST", "/v1/chat/completions", chat(session_id="a"), headers=first)
    for verb in ("park", "explain"):
        method = "GET" if verb == "explain" else "POST"
        assert (await daemon.ask(method, f"/v1/sessions/a/{verb}", headers=second)).status == 404
        assert (await daemon.ask(method, f"/v1/sessions/a/{verb}", headers=admin)).status == 200
    assert (await post(daemon, "a", "save", {"name": "mine"}, headers=first)).status == 200
    assert (await post(daemon, "b", "load", {"name": "mine"}, headers=second)).status == 404
    owner = (await daemon.ask("GET", "/v1/sessions/a", headers=admin)).json["owner"]
    path = f"/v1/sessions/b/load?owner={owner}"
    refused = await daemon.ask("POST", path, {"name": "mine"}, headers=second)
    assert refused.status == 403 and refused.error["code"] == "admin_required"
    assert (await daemon.ask("POST", path, {"name": "mine"}, headers=admin)).status == 200


# --- explain ---------------------------------------------------------------------------------------------------------


async def test_explain_tells_where_histories_parted(daemon: Daemon) -> None:
    talk = Conversation(daemon, "a")
    await talk.ask("a question that begins the same way and then ends in APPLES")
    edited = Conversation(daemon, "a")
    await edited.ask("a question that begins the same way and then ends in PEARS")
    turns = (await daemon.ask("GET", "/v1/sessions/a/explain")).json["turns"]
    assert [turn["outcome"] for turn in turns] == ["length", "length"]
    first, second = turns
    assert first["reason"] == "new" and first["divergence"] is None
    assert first["prefilled_tokens"] == first["prompt_tokens"] and first["generated_tokens"] == 8
    parted = second["divergence"]
    assert parted["resident"].startswith("APPLES") and parted["prompt"].startswith("PEARS")
    assert "then ends in " in parted["before"]
    for side in ("resident", "prompt"):
        answer = await daemon.ask("POST", "/detokenize", {"tokens": parted[f"{side}_tokens"]})
        assert answer.json["content"] == parted[side]
    assert second["reused_tokens"] + second["prefilled_tokens"] == second["prompt_tokens"]


def asking(user: str, **fields: Any) -> Json:
    """Returns a request with a question after a system message that all requests share."""
    system = {"role": "system", "content": "You are a helper. " * 20}
    return {**chat(**fields), "messages": [system, {"role": "user", "content": user}]}


async def explained(daemon: Daemon, session: str) -> list[Json]:
    turns = (await daemon.ask("GET", f"/v1/sessions/{quote(session, safe='')}/explain")).json["turns"]
    assert isinstance(turns, list)
    return turns


async def test_explain_tells_where_a_new_branch_left_its_session(daemon: Daemon) -> None:
    """`explain` must show the divergence of a turn that starts a new branch, because such a turn prefills the most
    tokens.
    """
    for word in ("alpha ", "beta "):
        answer = await daemon.ask("POST", "/v1/chat/completions", asking(word * 300, session_id="s"))
        assert answer.status == 200
    first, second = await explained(daemon, "s")
    assert (first["reason"], first["divergence"]) == ("new", None)
    assert second["reason"] == "shared" and second["prefilled_tokens"] > limits.DIVERGENCE_PREFILLED_MIN
    assert second["reason_text"].startswith("Another branch of this session")
    assert (await daemon.ask("GET", "/v1/sessions/s")).json["last"]["reason_text"] == second["reason_text"]
    parted = second["divergence"]
    assert parted["at"] == second["reused_tokens"] and "You are a helper." in parted["before"]
    assert parted["resident"].startswith("alpha") and parted["prompt"].startswith("beta")


async def test_what_another_session_lent_is_told_as_such(daemon: Daemon) -> None:
    for session in ("s", "t"):
        await daemon.ask("POST", "/v1/chat/completions", asking("alpha " * 300, session_id=session))
    [turn] = await explained(daemon, "t")
    assert turn["reason"] == "shared" and turn["reason_text"].startswith("Another session held")
    assert turn["divergence"] is None


async def test_an_explanation_can_be_refused_if_the_text_threads_are_busy(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    await daemon.chat(session_id="s")

    async def refuse(*_: Any) -> None:
        raise ApiError("overloaded")

    monkeypatch.setattr(Engine, "in_thread", refuse)
    answer = await daemon.ask("GET", "/v1/sessions/s/explain")
    assert answer.status == 503 and answer.error["code"] == "overloaded"
    (row,) = (row for row in ENDPOINTS if row.path == "/v1/sessions/{id}/explain")
    assert {"overloaded", "shutting_down"} <= set(row.failures)


async def test_a_session_that_shares_only_the_template_is_new(daemon: Daemon) -> None:
    await daemon.chat("alpha " * 100, session_id="s")
    await daemon.chat("beta " * 100, session_id="t")
    [turn] = await explained(daemon, "t")
    assert 0 < turn["reused_tokens"] < 64 and turn["reason"] == "new"
    last = (await daemon.ask("GET", "/v1/sessions/t")).json["last"]
    assert last["reason"] == "new" and last["reason_text"] == turn["reason_text"]
    assert "Only the first few tokens of the prompt were copied" in turn["reason_text"]


async def test_requests_without_a_session_can_be_explained(daemon: Daemon) -> None:
    agent = {"User-Agent": "qwen-code/0.1 (x)"}
    await daemon.ask("POST", "/v1/chat/completions", asking("alpha " * 300), headers=agent)
    await daemon.chat(session_id="named")
    listed = (await daemon.ask("GET", "/v1/sessions")).json
    assert [one["id"] for one in listed["data"]] == ["named"]
    [scratch] = listed["scratch"]
    assert scratch["client"] == "qwen-code" and scratch["tokens"] > 300
    [turn] = await explained(daemon, scratch["id"])
    assert turn["prefilled_tokens"] == turn["prompt_tokens"] and turn["slot"] == scratch["slot"]
    assert (await daemon.ask("GET", f"/v1/sessions/{quote(scratch['id'])}")).json["tokens"] == scratch["tokens"]
    named = (await daemon.ask("GET", "/v1/sessions/named")).json["slot"]
    for wrong in (f"(scratch {named})", "(scratch 999999)"):
        assert (await daemon.ask("GET", f"/v1/sessions/{quote(wrong)}/explain")).status == 404


async def test_others_do_not_see_what_requests_without_a_session_left(serve: Serve, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("first-key first\nsecond-key second\n")
    keys.chmod(0o600)
    daemon = await serve(api_key_file=keys)
    first, second = ({"Authorization": f"Bearer {name}-key"} for name in ("first", "second"))
    await daemon.ask("POST", "/v1/chat/completions", chat(), headers=first)
    [scratch] = (await daemon.ask("GET", "/v1/sessions", headers=first)).json["scratch"]
    assert (await daemon.ask("GET", "/v1/sessions", headers=second)).json["scratch"] == []
    path = f"/v1/sessions/{quote(scratch['id'])}/explain"
    assert (await daemon.ask("GET", path, headers=second)).status == 404
    assert len((await daemon.ask("GET", path, headers=first)).json["turns"]) == 1


async def test_a_session_says_which_program_uses_it(daemon: Daemon) -> None:
    for agent, name in (("claude-cli/2.1.330 (external, cli)", "claude-cli"), ("", None), ("(x)", "(x)")):
        await daemon.ask("POST", "/v1/chat/completions", chat(session_id="a"), headers={"User-Agent": agent})
        assert (await daemon.ask("GET", "/v1/sessions/a")).json["client"] == name
    await daemon.ask("POST", "/v1/chat/completions", chat(session_id="a"), headers={"User-Agent": "x" * 5000})
    assert (await daemon.ask("GET", "/v1/sessions/a")).json["client"] == "x" * limits.CLIENT_CHARS_MAX


async def test_explain_lists_what_did_not_fit(serve: Serve) -> None:
    daemon = await serve(ctx_size=512)
    await daemon.chat(session_id="a")
    for session in ("a", "never"):
        await daemon.refused(chat("the of " * 500, session_id=session))
    _, refused = await explained(daemon, "a")
    assert (refused["outcome"], refused["reason"], refused["slot"]) == ("refused", None, None)
    assert refused["prompt_tokens"] > 512


async def test_explain_tells_nothing_from_before_a_reset(serve: Serve) -> None:
    """`explain` shows no turn from before a reset, not even the turn that the reset ends."""
    daemon = await serve(model="sim:dense,length=0,step_us=500,ctx=100000", ctx_size=100_000)
    await daemon.chat("a secret that is long enough", session_id="a", max_tokens=4)
    async with daemon.streaming(chat("a secret that is changed", session_id="a", max_tokens=90_000)):
        assert (await post(daemon, "a", "reset")).status == 200
    await daemon.idle()
    assert (await daemon.ask("GET", "/v1/sessions/a/explain")).json["turns"] == []
    await daemon.chat("hello", session_id="a", max_tokens=4)
    turns = (await daemon.ask("GET", "/v1/sessions/a/explain")).json["turns"]
    assert [turn["reason"] for turn in turns] == ["new"]


async def test_explain_is_bounded(daemon: Daemon) -> None:
    for n in range(20):
        await daemon.chat(f"turn {n}", session_id="a")
    assert len((await daemon.ask("GET", "/v1/sessions/a/explain")).json["turns"]) == 16


def test_common_prefix() -> None:
    for n in range(6):
        a = bytes(4 * n) + b"\1\0\0\0" * 3
        assert n_common(a, bytes(40)) == n and n_common(a, a) == n + 3
    assert n_common(b"", b"\0\0\0\0") == 0


async def test_the_comparison_is_sensitive(daemon: Daemon) -> None:
    one, other = ([{"role": "user", "content": text}] for text in ("one thing", "two thing"))
    assert await cold(daemon, one) != await cold(daemon, other)


@pytest.mark.parametrize("verb", ["save", "load"])
@pytest.mark.parametrize("name", ["", "no good", "x" * 129, "\u00fc"])
async def test_a_bad_label_is_called_a_name(daemon: Daemon, verb: str, name: str) -> None:
    await daemon.chat(session_id="a")
    answer = await post(daemon, "a", verb, {"name": name})
    assert (answer.status, answer.error["code"], answer.error["param"]) == (400, "invalid_value", "name")
    assert "is not a valid name for a saved session" in answer.error["message"] and len(answer.error["message"]) < 300


async def test_who_loses_the_session_to_a_fork_hears_of_it(serve: Serve) -> None:
    daemon = await serve(model="sim:dense,length=0,step_us=500,ctx=100000", ctx_size=100_000)
    await daemon.chat(session_id="a", max_tokens=4)
    body = chat(session_id="b", max_tokens=90_000)
    async with daemon.streaming(body) as response:
        assert (await post(daemon, "a", "fork", {"session_id": "b", "replace": True})).status == 200
        rest = (await response.read()).decode()
    assert '"code":"cancelled"' in rest and "replaced by a fork or a load" in rest


async def test_what_is_told_of_a_session_outlives_the_many_of_another_owner(daemon: Daemon) -> None:
    turns = TurnLog(daemon.state.engine.session_table)
    turns.started(turns.begin_trace(1, "a", b""), UserMessages(1, {1: 0}))
    for number in range(limits.TURN_SESSIONS_MAX + 10):
        turns.begin_trace(2, f"s{number}", b"")
    assert turns.by_user(1, "a").starts == {1: 0}


async def test_a_session_shows_what_its_user_said_last(daemon: Daemon) -> None:
    messages: list[Json] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "\n  Rename\n\tthe\u202e parser,   and everything that calls it, in all files"},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": " "},
    ]
    await daemon.chat(messages=messages, session_id="a")
    shown = "Rename the parser, and everything that calls it, in all files"[: limits.LAST_WORDS_CHARS_MAX]
    assert (await daemon.ask("GET", "/v1/sessions/a")).json["last_words"] == shown
    await daemon.ask("POST", "/v1/completions", {"prompt": "raw", "session_id": "b", "max_tokens": 1})
    listed = (await daemon.ask("GET", "/v1/sessions")).json["data"]
    assert {one["id"]: one["last_words"] for one in listed} == {"a": shown, "b": None}
