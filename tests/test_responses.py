"""POST /v1/responses and stored responses, over HTTP with a simulated model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llmd.core import limits
from llmd.dialects.responses.store import STORE
from tests.conftest import Serve
from tests.responses import MESSAGE_NAMES, PATH, asking, deltas, events_of, names, respond, stream, text_of
from tests.serving import Daemon, Json, config_of, serving
from tests.test_access import ANN, BOB, bearer, key_file


def user(text: str) -> Json:
    return {"role": "user", "content": text}


async def refused(daemon: Daemon, body: Json | bytes, status: int = 400) -> Json:
    answer = await daemon.ask("POST", PATH, body)
    assert answer.status == status, answer.body
    assert set(answer.error) == {"message", "type", "code", "param"}
    return answer.error


# --- answers ---------------------------------------------------------------------------------------------------------


async def test_a_stream_says_what_a_whole_says(daemon: Daemon) -> None:
    whole = await respond(daemon, session_id="a")
    events = await stream(daemon, session_id="b")
    assert names(events) == ["created", "in_progress", *MESSAGE_NAMES, "incomplete"]
    response = events[-1]["response"]
    assert text_of(response) == text_of(whole) == deltas(events, response["output"][0]["id"]) != ""
    assert response["usage"]["output_tokens"] == whole["usage"]["output_tokens"] == 8
    assert whole["usage"]["total_tokens"] == whole["usage"]["input_tokens"] + 8
    assert {event["response"]["id"] for event in events if "response" in event} == {response["id"]}
    assert whole["session"]["id"] == "a" and response["session"]["id"] == "b"


async def test_the_models_own_end_completes_a_response(serve: Serve) -> None:
    daemon = await serve(model="sim:dense,length=5")
    events = await stream(daemon, ignore_eos=False, max_output_tokens=None)
    response = events[-1]["response"]
    assert events[-1]["type"] == "response.completed" and response["status"] == "completed"
    assert [item["status"] for item in response["output"]] == ["completed"]


async def test_it_answers_with_and_without_its_prefix(daemon: Daemon) -> None:
    answer = await daemon.ask("POST", "/responses", asking(session_id="s"))
    assert answer.status == 200 and answer.headers["X-LLM-Session-Id"] == "s"
    assert (await daemon.ask("GET", f"/responses/{answer.json['id']}")).json == answer.json


async def test_what_was_asked_is_in_the_response(daemon: Daemon) -> None:
    asked: Json = {
        "instructions": "be brief", "metadata": {"a": "1"}, "prompt_cache_key": "k", "top_p": 0.9,
        "parallel_tool_calls": False, "reasoning": {"effort": "low", "summary": "auto"}, "truncation": "auto",
        "store": False,
    }  # fmt: skip
    response = await respond(daemon, **asked)
    assert {name: response[name] for name in asked} == asked
    assert (response["max_output_tokens"], response["temperature"], response["tools"]) == (8, 0.0, [])
    assert response["text"] == {"format": {"type": "text"}, "verbosity": "medium"}


async def test_instructions_change_the_answer(daemon: Daemon) -> None:
    texts = {text_of(await respond(daemon, instructions=text)) for text in (None, "be brief", "be long")}
    assert len(texts) == 3


async def test_a_body_too_large_for_the_loop_is_answered(daemon: Daemon) -> None:
    """The value of `user` is ignored, so that it only makes the body large."""
    plain = await respond(daemon, [user("hello")])
    large = await respond(daemon, [user("hello")], user="x" * 2 * limits.TEXT_SHORT_BYTES)
    assert text_of(large) == text_of(plain)
    after = await respond(daemon, "more", previous_response_id=large["id"], user="x" * 2 * limits.TEXT_SHORT_BYTES)
    assert after["usage"]["input_tokens"] > large["usage"]["total_tokens"]


async def test_a_long_conversation_that_is_only_referred_to_is_kept_from_the_loop(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short body that continues a large stored response counts as large."""
    monkeypatch.setattr(limits, "TEXT_SHORT_BYTES", 1000)
    first = await respond(daemon, "x" * 2000)
    reference = {"type": "item_reference", "id": first["output"][0]["id"]}
    sizes: list[int] = []
    in_thread = daemon.state.engine.in_thread

    def watched(owner: int, n_bytes: int, call: Any) -> Any:
        sizes.append(n_bytes)
        return in_thread(owner, n_bytes, call)

    monkeypatch.setattr(daemon.state.engine, "in_thread", watched)
    await respond(daemon, "more", previous_response_id=first["id"])
    await respond(daemon, [user("hello"), *[reference] * 10, user("more")])
    assert len(sizes) == 4, "digests, and what the template reads"
    assert min(sizes) > limits.TEXT_SHORT_BYTES


async def test_a_silent_stream_tells_events(serve: Serve) -> None:
    """Comments are not events for codex, which gives up after five minutes without an event."""
    daemon = await serve(model="sim:dense,token_us=4000", keepalive_interval=0.1)  # a prefill of a second
    events = await stream(daemon, "word " * 50, max_output_tokens=2)
    told = [event["type"] for event in events]
    n_begun = told.index("response.output_item.added")
    assert told[:n_begun] == ["response.created", *["response.in_progress"] * (n_begun - 1)] and n_begun > 3
    assert {event["response"]["id"] for event in events if "response" in event} == {events[0]["response"]["id"]}


async def test_a_failure_is_an_event_of_a_stream_and_a_status_of_a_whole(serve: Serve) -> None:
    daemon = await serve(model="sim:dense,fail_at=12")
    events = await stream(daemon, max_output_tokens=100)
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    assert events[-2]["code"] == events[-1]["response"]["error"]["code"] == "step_failed"
    assert (await daemon.ask("GET", f"{PATH}/{events[0]['response']['id']}")).status == 404
    daemon = await serve(model="sim:dense,fail_at=12")
    assert (await refused(daemon, asking(max_output_tokens=100), 500))["code"] == "step_failed"


# --- sessions and warmth ---------------------------------------------------------------------------------------------


async def test_a_conversation_goes_on_by_the_previous_response(daemon: Daemon) -> None:
    first = await respond(daemon, "hello", session_id="s", instructions="be brief")
    second = await respond(daemon, "more", previous_response_id=first["id"], instructions="be brief")
    third = await respond(daemon, "and more", previous_response_id=second["id"], instructions="be brief")
    assert [response["session"]["id"] for response in (second, third)] == ["s", "s"]
    assert {second["session"]["session_reset_reason"], third["session"]["session_reset_reason"]} == {"exact_prefix"}
    assert third["usage"]["input_tokens_details"]["cached_tokens"] >= second["usage"]["input_tokens"]
    history = [user("hello"), *first["output"], user("more"), *second["output"], user("and more")]
    whole = await respond(daemon, history, instructions="be brief", session_id="other", store=False)
    assert whole["usage"]["input_tokens"] == third["usage"]["input_tokens"]


async def test_a_history_that_is_sent_whole_finds_its_answers(daemon: Daemon) -> None:
    history: list[Json] = [user("hello")]
    response = await respond(daemon, history, store=False, prompt_cache_key="k")
    for turn in range(3):
        n_before = response["usage"]["input_tokens"]
        history += [*response["output"], user(f"more {turn}")]
        response = await respond(daemon, history, store=False, prompt_cache_key="k")
        assert response["session"]["session_reset_reason"] == "exact_prefix"
        assert response["usage"]["input_tokens_details"]["cached_tokens"] > n_before


async def test_one_conversation_stays_warm_across_dialects(daemon: Daemon) -> None:
    """The conversation begins as a chat, continues as responses, and continues as a chat again."""
    messages: list[Json] = [{"role": "system", "content": "be brief"}, user("hello")]
    answer = await daemon.chat(messages=messages, session_id="s", temperature=0)
    messages += [{"role": "assistant", "content": answer["choices"][0]["message"]["content"]}, user("more")]
    response = await respond(daemon, messages[1:], instructions="be brief", session_id="s")
    n_known = answer["usage"]["total_tokens"]
    assert response["session"]["session_reset_reason"] == "exact_prefix"
    assert response["session"]["prefilled_prompt_tokens"] <= response["usage"]["input_tokens"] - n_known + 1
    messages += [{"role": "assistant", "content": text_of(response)}, user("and more")]
    answer = await daemon.chat(messages=messages, session_id="s", temperature=0)
    assert answer["session"]["session_reset_reason"] == "exact_prefix"
    assert answer["session"]["reused_prompt_tokens"] >= response["usage"]["total_tokens"] - 1


CODEX: Json = {
    "model": "gpt-oss", "instructions": "You are a coding agent.", "tools": [], "tool_choice": "auto",
    "parallel_tool_calls": True, "reasoning": {"effort": "medium", "summary": "auto"}, "store": False, "stream": True,
    "include": ["reasoning.encrypted_content"], "text": {"verbosity": "low"}, "service_tier": None,
    "prompt_cache_key": "0199-thread", "client_metadata": {"x-codex-installation-id": "1"},
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "<permissions>"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<environment_context>"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "fix it"}]},
        {"type": "ghost_snapshot", "ghost_commit": {"id": "abc"}},
        {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "x"}},
    ],
}  # fmt: skip


async def test_a_request_as_codex_sends_it(daemon: Daemon) -> None:
    """Sends a turn, and the next turn with the whole history. The header thread-id names the session."""
    headers = {"session-id": "0199-session", "thread-id": "0199-thread", "x-client-request-id": "0199-session"}
    body = {**CODEX, "max_output_tokens": 8, "ignore_eos": True}
    first = await daemon.ask("POST", PATH, body, headers=headers)
    assert first.headers["X-LLM-Session-Id"] == "0199-thread"
    done = [event["item"] for event in events_of(first.body) if event["type"] == "response.output_item.done"]
    echo = [{name: value for name, value in item.items() if name != "id"} for item in done]
    again = await daemon.ask("POST", PATH, {**body, "input": [*body["input"], *echo, user("now")]}, headers=headers)
    response = events_of(again.body)[-1]["response"]
    assert response["session"]["session_reset_reason"] == "exact_prefix"
    n_first = events_of(first.body)[-1]["response"]["usage"]["total_tokens"]
    assert response["usage"]["input_tokens_details"]["cached_tokens"] >= n_first - 1


# --- what is stored --------------------------------------------------------------------------------------------------


async def test_a_response_can_be_asked_for_again(daemon: Daemon) -> None:
    response = await respond(daemon)
    streamed = (await stream(daemon))[-1]["response"]
    for stored in (response, streamed):
        found = await daemon.ask("GET", f"{PATH}/{stored['id']}")
        assert (found.status, found.json) == (200, stored)
    error = (await daemon.ask("GET", f"{PATH}/{response['id']}?stream=true")).error
    assert (error["code"], error["param"]) == ("unsupported_parameter", "stream")


async def test_what_is_not_stored_is_not_found(daemon: Daemon) -> None:
    response = await respond(daemon, store=False)
    assert not response["store"]
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/input_items")):
        answer = await daemon.ask(method, f"{PATH}/{response['id']}{path}")
        assert (answer.status, answer.error["code"], answer.error["param"]) == (404, "response_not_found", "id")
        assert answer.error["type"] == "invalid_request_error" and response["id"] in answer.error["message"]
    error = await refused(daemon, asking(previous_response_id=response["id"]))
    assert (error["code"], error["param"]) == ("previous_response_not_found", "previous_response_id")


async def test_a_response_can_be_deleted(daemon: Daemon) -> None:
    first = await respond(daemon)
    second = await respond(daemon, "more", previous_response_id=first["id"])
    answer = await daemon.ask("DELETE", f"{PATH}/{first['id']}")
    assert answer.json == {"id": first["id"], "object": "response", "deleted": True}
    assert (await daemon.ask("DELETE", f"{PATH}/{first['id']}")).status == 404
    third = await respond(daemon, "and more", previous_response_id=second["id"])
    assert third["usage"]["input_tokens"] > second["usage"]["total_tokens"], "what was said before is in the second"


async def test_input_items_come_in_pages(daemon: Daemon) -> None:
    items = [user(f"message {n}") for n in range(25)]
    response = await respond(daemon, items)
    path = f"{PATH}/{response['id']}/input_items"

    async def page(query: str) -> tuple[list[str], Json]:
        answer = (await daemon.ask("GET", path + query)).json
        assert answer["object"] == "list"
        return [item["content"][0]["text"] for item in answer["data"]], answer

    texts = [item["content"] for item in items]
    assert (await page(""))[0] == texts[:4:-1], "the last first, as many as 20"
    found, answer = await page("?order=asc&limit=10")
    assert found == texts[:10] and answer["has_more"] and answer["first_id"] == answer["data"][0]["id"]
    assert (await page(f"?order=asc&limit=10&after={answer['last_id']}"))[0] == texts[10:20]
    last, answer = await page(f"?order=asc&limit=100&after={answer['last_id']}")
    assert last == texts[10:] and not answer["has_more"]
    for query, param in (
        ("limit=0", "limit"), ("limit=101", "limit"), ("limit=x", "limit"), ("limit=" + "9" * 5000, "limit"),
        ("order=up", "order"), ("after=nobody", "after"),
    ):  # fmt: skip
        error = (await daemon.ask("GET", f"{path}?{query}")).error
        assert (error["code"], error["param"]) == ("invalid_value", param)


async def test_pages_end_where_a_client_gave_all_its_items_one_id(daemon: Daemon) -> None:
    response = await respond(daemon, [{**user(f"message {n}"), "id": "msg_same"} for n in range(30)])
    path, found, after = f"{PATH}/{response['id']}/input_items?limit=10", list[str](), ""
    for _ in range(3):
        answer = (await daemon.ask("GET", path + after)).json
        found += [item["content"][0]["text"] for item in answer["data"]]
        after = f"&after={answer['last_id']}"
    assert found == [f"message {n}" for n in reversed(range(30))] and not answer["has_more"]


async def test_references_to_items_of_a_stored_response(daemon: Daemon) -> None:
    first = await respond(daemon, session_id="s")
    reference = {"type": "item_reference", "id": first["output"][0]["id"]}
    second = await respond(daemon, [user("hello"), reference, user("more")], session_id="s")
    assert second["session"]["session_reset_reason"] == "exact_prefix"
    unknown = asking([user("hello"), {"type": "item_reference", "id": "msg_0"}])
    assert (await refused(daemon, unknown, 404))["param"] == "input[1].id"


async def test_a_long_answer_cannot_be_referred_to_without_end(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await respond(daemon, session_id="s")
    item = first["output"][0]
    n_bytes = len(msgspec.json.encode(item))
    monkeypatch.setattr(limits, "RESPONSE_REFERRED_BYTES_MAX", 2 * n_bytes)
    reference = {"type": "item_reference", "id": item["id"]}
    await respond(daemon, [user("hello"), reference, reference, user("more")])
    error = await refused(daemon, asking([user("hello"), reference, reference, reference]), 413)
    assert (error["code"], error["param"]) == ("request_too_large", "input[3].id")


async def test_owners_do_not_see_each_others_responses(serve: Serve, tmp_path: Path) -> None:
    daemon = await serve(api_key_file=key_file(tmp_path))
    mine, theirs = bearer(ANN), bearer(BOB)
    response = (await daemon.ask("POST", PATH, asking(), headers=mine)).json
    assert (await daemon.ask("GET", f"{PATH}/{response['id']}", headers=mine)).status == 200
    for headers, local in ((theirs, False), ({}, True)):
        for method in ("GET", "DELETE"):
            answer = await daemon.ask(method, f"{PATH}/{response['id']}", headers=headers, local=local)
            assert answer.error["code"] == "response_not_found"
        for body, code in (
            (asking(previous_response_id=response["id"]), "previous_response_not_found"),
            (asking([{"type": "item_reference", "id": response["output"][0]["id"]}]), "response_not_found"),
        ):
            assert (await daemon.ask("POST", PATH, body, headers=headers, local=local)).error["code"] == code


async def test_the_store_is_bounded(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    store = daemon.app[STORE]
    monkeypatch.setattr(store, "_responses_max", 3)
    ids = [(await respond(daemon, f"number {n}"))["id"] for n in range(5)]
    found = [(await daemon.ask("GET", f"{PATH}/{id}")).status for id in ids]
    assert found == [404, 404, 200, 200, 200] and store.n_responses == 3


def files(directory: Path) -> list[Path]:
    return list(directory.rglob("responses.*"))


async def test_responses_outlive_the_daemon(tmp_path: Path) -> None:
    """The tokens of their sessions are reused after the restart, too."""
    async with serving(config_of(tmp_path)) as daemon:
        first = await respond(daemon, session_id="s")
        gone = await respond(daemon, "to be deleted")
        await daemon.ask("DELETE", f"{PATH}/{gone['id']}")
    async with serving(config_of(tmp_path)) as daemon:
        assert (await daemon.ask("GET", f"{PATH}/{first['id']}")).json == first
        assert (await daemon.ask("GET", f"{PATH}/{gone['id']}")).status == 404
        second = await respond(daemon, "more", previous_response_id=first["id"])
        assert second["session"]["id"] == "s"
        assert second["usage"]["input_tokens_details"]["cached_tokens"] >= first["usage"]["total_tokens"] - 1
        for response in (first, second):
            await daemon.ask("DELETE", f"{PATH}/{response['id']}")
    assert files(tmp_path) == [], "what was deleted is on no disk"


async def test_without_a_state_directory_responses_end_with_the_daemon(tmp_path: Path) -> None:
    async with serving(config_of(tmp_path, state_dir=None)) as daemon:
        first = await respond(daemon)
    async with serving(config_of(tmp_path, state_dir=None)) as daemon:
        assert (await daemon.ask("GET", f"{PATH}/{first['id']}")).status == 404


# --- what does not fit -----------------------------------------------------------------------------------------------


async def test_overflow_is_told_as_agents_know_it(serve: Serve) -> None:
    daemon = await serve(ctx_size=64)
    for is_stream in (False, True):
        for n_words in (70, 5000):
            error = await refused(daemon, asking("word " * n_words, stream=is_stream))
            assert (error["code"], error["param"]) == ("context_length_exceeded", "input")
            assert error["message"].startswith(
                "This model's maximum context length is 64 tokens. However, you requested"
            )


async def test_truncation_leaves_out_the_beginning(serve: Serve) -> None:
    """The truncated conversation begins at the same message as long as it fits, so that its tokens are reused while it
    grows.
    """
    daemon = await serve(ctx_size=256)
    history: list[Json] = []
    cold = 0
    for turn in range(40):
        history.append(user(f"question {turn} of a conversation that goes on and on"))
        asked: Json = {"instructions": "never forget this", "session_id": "s", "truncation": "auto", "store": False}
        response = await respond(daemon, history, **asked)
        assert response["usage"]["total_tokens"] <= 256
        cold += turn > 0 and response["usage"]["input_tokens_details"]["cached_tokens"] < 30
        history += response["output"]
    assert (await refused(daemon, asking(history)))["code"] == "context_length_exceeded"
    assert 0 < cold < 15, "it is cut now and then, not at every turn"


async def test_input_is_counted_as_it_would_be_cut(serve: Serve) -> None:
    """Tokens are also counted if the request would be refused, because clients decide by this number whether to compact
    their history.
    """
    daemon = await serve(ctx_size=256)
    history = [user(f"question {n} of a conversation that goes on and on") for n in range(40)]
    cut = {**asking(history), "truncation": "auto"}
    counted = (await daemon.ask("POST", "/v1/responses/input_tokens", cut)).json
    assert counted["input_tokens"] == (await respond(daemon, history, truncation="auto"))["usage"]["input_tokens"]
    whole = (await daemon.ask("POST", "/v1/responses/input_tokens", asking(history))).json
    assert whole["input_tokens"] > 256


async def test_truncation_has_its_own_end(serve: Serve) -> None:
    daemon = await serve(ctx_size=64)
    error = await refused(daemon, asking([user("word " * 70)], truncation="auto"))
    assert error["code"] == "context_length_exceeded"


# --- what is wrong with a request ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"background": True}, "unsupported_parameter", "background"),
        ({"conversation": "conv_1"}, "unsupported_parameter", "conversation"),
        ({"prompt": {"id": "p"}}, "unsupported_parameter", "prompt"),
        ({"messages": []}, "unsupported_parameter", "messages"),
        ({"input": 5}, "invalid_type", "input"),
        ({"input": [user("x"), {"role": "user", "content": {}}]}, "invalid_type", "input[1].content"),
        ({"instructions": []}, "invalid_type", "instructions"),
        ({"truncation": "some"}, "invalid_value", "truncation"),
        ({"tool_choice": "sometimes"}, "invalid_value", "tool_choice"),
        ({"text": {"format": {"type": "yaml"}}}, "invalid_value", "text.format.type"),
        ({"stream": "yes"}, "invalid_type", "stream"),
        ({"metadata": []}, "invalid_type", "metadata"),
        ({"max_output_tokens": 0}, "invalid_value", "max_output_tokens"),
        ({"session_id": "has space"}, "invalid_session_id", "session_id"),
        ({"reasoning": "high"}, "invalid_type", "reasoning"),
        ({"metadata": {"x": "x" * 70_000}}, "invalid_value", "metadata"),
    ],
)
async def test_refusals_name_the_field(daemon: Daemon, fields: dict[str, Any], code: str, param: str) -> None:
    error = await refused(daemon, {**asking(), **fields})
    assert (error["code"], error["param"]) == (code, param) and param in error["message"]


async def test_bad_json(daemon: Daemon) -> None:
    for body in (b"", b"{", b'{"input": "x"', b'{"input": "\xff"}'):
        assert (await refused(daemon, body))["code"] == "invalid_json"
    deep = b'{"input": [' + b'{"type":"x","a":' * 300 + b"1" + b"}" * 300 + b"]}"
    assert (await refused(daemon, deep))["code"] == "invalid_json"
    assert json.dumps(await refused(daemon, b"[]")).count("invalid_type") == 1
