"""/v1/messages over HTTP: usage, reuse of sessions, counting of tokens, and errors in Anthropic's form."""

from __future__ import annotations

import io
import json
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from llmd.core import limits
from llmd.core.generation_request import GenerationRequest
from llmd.dialects.anthropic import messages
from llmd.dialects.anthropic.reader import request_of
from llmd.dialects.anthropic.wire import CountTokensRequest, MessagesRequest
from llmd.dialects.reading import Headers
from llmd.http.parameters import parameters_of
from tests.conftest import Serve
from tests.serving import Answer, Daemon, Json, chat
from tests.test_access import key_file
from tests.test_malformed import ODD_VALUES
from tests.test_messages_writer import events_of

PATH, COUNT = "/v1/messages", "/v1/messages/count_tokens"
N_MIXED = 150


def message(text: str = "hello", **fields: Any) -> Json:
    return {"model": "m", "max_tokens": 8, "temperature": 0, "messages": [{"role": "user", "content": text}], **fields}


async def answered(daemon: Daemon, body: Json, path: str = PATH, **kwargs: Any) -> Json:
    answer = await daemon.ask("POST", path, body, **kwargs)
    assert answer.status == 200, answer.body
    return answer.json


async def refused(daemon: Daemon, body: Json | bytes | io.BytesIO, path: str = PATH, **kwargs: Any) -> Answer:
    answer = await daemon.ask("POST", path, body, **kwargs)
    assert answer.status >= 400, answer.body
    assert set(answer.json) == {"type", "error", "request_id"} and answer.json["type"] == "error"
    assert set(answer.error) == {"type", "message", "code", "param"}
    return answer


async def streamed(daemon: Daemon, body: Json) -> list[Json]:
    answer = await daemon.ask("POST", PATH, {**body, "stream": True})
    assert answer.status == 200 and answer.headers["Content-Type"] == "text/event-stream"
    return events_of(answer.body)


async def test_a_prompt_is_read_ahead(daemon: Daemon) -> None:
    """With Anthropic's API, clients fill the cache in this way."""
    ahead = await answered(daemon, message("word " * 50, max_tokens=0, session_id="s"))
    assert (ahead["content"], ahead["stop_reason"], ahead["usage"]["output_tokens"]) == ([], "max_tokens", 0)
    assert ahead["usage"]["input_tokens"] > 50
    warm = await answered(daemon, message("word " * 50, session_id="s"))
    assert warm["usage"]["input_tokens"] <= 2 and warm["usage"]["output_tokens"] == 8
    events = await streamed(daemon, message(max_tokens=0))
    kinds = [event["type"] for event in events if event["type"] != "ping"]
    assert kinds == ["message_start", "message_delta", "message_stop"]
    assert events[-2]["delta"]["stop_reason"] == "max_tokens" and events[-2]["usage"]["output_tokens"] == 0


def n_prompt_of(answer: Json) -> int:
    return int(answer["usage"]["input_tokens"] + answer["usage"]["cache_read_input_tokens"])


def text_of(answer: Json) -> str:
    return "".join(block["text"] for block in answer["content"])


# --- answers ---------------------------------------------------------------------------------------------------------


async def test_usage_adds_up_to_the_prompt(daemon: Daemon) -> None:
    first = await answered(daemon, message(session_id="s"))
    usage, n_prompt = first["usage"], (await answered(daemon, message(), COUNT))["input_tokens"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (n_prompt, 0)
    assert first["stop_reason"] == "max_tokens" and usage["output_tokens"] == 8
    events = await streamed(daemon, message(session_id="s"))
    for usage in (events[0]["message"]["usage"], events[-2]["usage"]):
        assert usage["cache_read_input_tokens"] > 0
        assert usage["input_tokens"] + usage["cache_read_input_tokens"] == n_prompt
    deltas = [event["delta"]["text"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(deltas) == text_of(first)


async def test_which_stop_sequence_ended_it(daemon: Daemon) -> None:
    said = text_of(await answered(daemon, message(max_tokens=40)))
    word = said.split()[3]
    body = message(max_tokens=40, stop_sequences=["never, ever", word])
    answer = await answered(daemon, body)
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", word)
    assert text_of(answer) == said.partition(word)[0]
    assert (await streamed(daemon, body))[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": word}


async def test_an_answer_that_fills_the_context_says_so(serve: Serve) -> None:
    daemon = await serve(model="sim:dense,length=0", ctx_size=64)
    answer = await answered(daemon, message(max_tokens=1 << 40))
    assert answer["stop_reason"] == "model_context_window_exceeded"
    exact = await answered(daemon, message(max_tokens=answer["usage"]["output_tokens"]))
    assert exact["usage"]["output_tokens"] == answer["usage"]["output_tokens"] and exact["stop_reason"] == "max_tokens"


async def test_a_silent_stream_is_pinged(serve: Serve) -> None:
    daemon = await serve(model="sim:dense,token_us=4000", keepalive_interval=0.05)
    events = await streamed(daemon, message("word " * 50, max_tokens=2))
    kinds = [event["type"] for event in events]
    assert "ping" in kinds[: kinds.index("content_block_start")]


async def test_a_turn_goes_on_warm_whatever_began_it(serve: Serve) -> None:
    """If a conversation alternates between /v1/chat/completions and /v1/messages, each turn prefills only the new
    tokens.
    """
    daemon = await serve(model="sim:hybrid")
    history: list[Json] = [{"role": "system", "content": "be brief, " * 20}]
    n_prefilled = []
    for turn in range(4):
        history.append({"role": "user", "content": f"question {turn}"})
        if turn % 2:
            turns = [{**one, "content": [{"type": "text", "text": one["content"]}]} for one in history[1:]]
            body = message(messages=turns, system=history[0]["content"], session_id="s")
            answer = await answered(daemon, body)
            said = text_of(answer)
        else:
            answer = await daemon.chat(messages=history, session_id="s", temperature=0)
            said = answer["choices"][0]["message"]["content"]
        n_prefilled.append(answer["session"]["prefilled_prompt_tokens"])
        history.append({"role": "assistant", "content": said})
    assert n_prefilled[0] > 30 and max(n_prefilled[1:]) < 16, n_prefilled


async def test_claude_code_is_one_session(daemon: Daemon) -> None:
    """Between requests of Claude Code, the billing line differs, marks move, and a message is sent as a text or as
    blocks.
    """
    mark: Json = {"cache_control": {"type": "ephemeral"}}
    user = json.dumps({"device_id": "d", "account_uuid": "", "session_id": "of-claude"})
    prefilled = []
    for number, content in enumerate(("look", [{"type": "text", "text": "look", **mark}], "look")):
        billing = f"x-anthropic-billing-header: cc_version=2.1.5; cch={number};"
        system = [{"type": "text", "text": billing}, {"type": "text", "text": "be brief, " * 20, **mark}]
        body = message(system=system, messages=[{"role": "user", "content": content}], metadata={"user_id": user})
        answer = await answered(daemon, body, f"{PATH}?beta=true", headers={"anthropic-version": "2023-06-01"})
        assert answer["session"]["id"] == "of-claude"
        prefilled.append(answer["session"]["prefilled_prompt_tokens"])
    assert prefilled[0] > 30 and prefilled[1:] == [0, 0], prefilled


async def test_a_long_history_is_read_beside_the_loop(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request has megabytes of blocks, and is refused because of their length."""
    threads = []

    def read(wanted: MessagesRequest, headers: Headers) -> GenerationRequest:
        threads.append(threading.current_thread())
        return request_of(wanted, headers)

    monkeypatch.setattr(messages, "request_of", read)
    blocks = [{"type": "text", "text": "word " * 40_000, "cache_control": {"type": "ephemeral"}}] * 60
    answer = await refused(
        daemon, io.BytesIO(json.dumps(message(messages=[{"role": "user", "content": blocks}])).encode())
    )
    assert answer.error["code"] == "context_length_exceeded"
    await answered(daemon, message())
    assert [thread is threading.main_thread() for thread in threads] == [False, True]


# --- counting --------------------------------------------------------------------------------------------------------


async def test_counted_is_what_is_asked(daemon: Daemon) -> None:
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    shapes: tuple[Json, ...] = ({}, {"system": "be brief"}, {"messages": turns}, {"messages": turns[:2]})
    for fields in shapes:
        counted = (await answered(daemon, message(**fields), COUNT))["input_tokens"]
        assert counted == n_prompt_of(await answered(daemon, message(**fields)))


async def test_counting_needs_no_room(serve: Serve) -> None:
    small, large = await serve(ctx_size=64), await serve(model="sim:dense,ctx=1000000", ctx_size=200_000)
    for n_words in (1000, 30_000):
        body = message("word " * n_words)
        counted = (await answered(small, body, COUNT))["input_tokens"]
        assert counted == n_prompt_of(await answered(large, body)) > small.state.engine.info.n_ctx


# --- errors ----------------------------------------------------------------------------------------------------------


async def test_overflow_is_told_in_their_words(serve: Serve) -> None:
    daemon = await serve(ctx_size=64)
    for body in (message("word " * 70), message("word " * 70, stream=True)):
        error = (await refused(daemon, body)).error
        counted = (await answered(daemon, body, COUNT))["input_tokens"]
        assert error["message"].startswith(f"prompt is too long: {counted + 1} tokens > 64 maximum")
        assert (error["type"], error["code"]) == ("invalid_request_error", "context_length_exceeded")
    error = (await refused(daemon, message("word " * 50_000))).error
    assert error["message"].startswith("prompt is too long: ") and " tokens > 64 maximum" in error["message"]


async def test_errors_before_the_handler(serve: Serve, tmp_path: Path) -> None:
    daemon = await serve(api_key_file=key_file(tmp_path), body_limit=4096)
    [word] = [line.split()[0] for line in (tmp_path / "keys").read_text().splitlines()[:1]]
    for headers in ({"X-Api-Key": word}, {"Authorization": f"Bearer {word}"}):
        assert (await daemon.ask("POST", PATH, message(), headers=headers)).status == 200
    key = {"X-Api-Key": word}
    for path, body, headers, status, type in (
        (PATH, message(), {}, 401, "authentication_error"),
        (COUNT, message(), {"X-Api-Key": "wrong"}, 401, "authentication_error"),
        ("/messages", message(), {}, 401, "authentication_error"),
        (PATH, message(), {**key, "Origin": "http://elsewhere.example"}, 403, "permission_error"),
        ("/v1/messages/batches", message(), key, 404, "not_found_error"),
        ("/messages/batches/x", message(), key, 404, "not_found_error"),
        (PATH, message("x" * 5000), key, 413, "request_too_large"),
        (PATH, message(), {**key, "Content-Encoding": "gzip"}, 415, "invalid_request_error"),
        (PATH, b"{", key, 400, "invalid_request_error"),
        (PATH, b"[]", key, 400, "invalid_request_error"),
    ):
        answer = await refused(daemon, body, path, headers=headers)
        assert (answer.status, answer.error["type"]) == (status, type), path
    for path in (PATH, COUNT, "/messages"):
        got = await daemon.ask("GET", path, headers=key)
        assert (got.status, got.json["error"]["type"]) == (405, "invalid_request_error")
        assert "POST" in got.headers["Allow"]
    assert set((await daemon.ask("GET", "/v1/message", headers=key)).json) == {"error"}


async def test_a_busy_server_is_529(serve: Serve) -> None:
    daemon = await serve()
    daemon.state.admission.limit = 0
    answer = await refused(daemon, message())
    assert (answer.status, answer.error["type"], answer.error["code"]) == (529, "overloaded_error", "overloaded")
    assert answer.headers["Retry-After"] == str(limits.RETRY_AFTER_S)
    opened, daemon.state.loaded_model = daemon.state.loaded_model, None
    assert (await refused(daemon, message())).status == 529
    daemon.state.loaded_model = opened
    assert (await daemon.ask("POST", "/v1/chat/completions", chat())).status == 503


async def test_a_full_server_is_429(serve: Serve) -> None:
    daemon = await serve(max_sessions=1, capacity_policy="refuse")
    await answered(daemon, message(session_id="holder"))
    answer = await refused(daemon, message(session_id="another"))
    assert (answer.status, answer.error["type"]) == (429, "rate_limit_error") and "Retry-After" in answer.headers


async def test_a_failed_step(serve: Serve) -> None:
    daemon = await serve(model="sim:dense,fail_at=12")
    events = await streamed(daemon, message(max_tokens=100))
    assert events[-1]["type"] == "error" and events[-1]["error"]["type"] == "api_error"
    daemon = await serve(model="sim:dense,fail_at=12")
    answer = await refused(daemon, message(max_tokens=100))
    assert (answer.status, answer.error["type"]) == (500, "api_error")


# --- parameters ------------------------------------------------------------------------------------------------------


def accepted(kind: type[Any]) -> list[str]:
    return [one.name for one in parameters_of(kind).values() if one.treatment == "accepted"]


async def test_accepted_ones_change_nothing(daemon: Daemon) -> None:
    plain = await answered(daemon, message(session_id="a"))
    sent: Json = dict.fromkeys(accepted(MessagesRequest), {"type": "x"})
    answer = await answered(daemon, message(session_id="b", **sent))
    assert answer["content"] == plain["content"]
    counted = dict.fromkeys(accepted(CountTokensRequest), "x")
    assert await answered(daemon, message(**counted), COUNT) == await answered(daemon, message(), COUNT)


async def test_unknown_ones_are_refused(daemon: Daemon) -> None:
    for path in (PATH, COUNT):
        error = (await refused(daemon, message(max_tokns=5), path)).error
        assert (error["code"], error["param"]) == ("unsupported_parameter", "max_tokns")


async def test_servers_of_tools_are_refused(daemon: Daemon) -> None:
    servers = [{"type": "url", "url": "https://example.com", "name": "s"}]
    for path in (PATH, COUNT):
        error = (await refused(daemon, message(mcp_servers=servers), path)).error
        assert (error["code"], error["param"]) == ("unsupported_parameter", "mcp_servers")
    await answered(daemon, message(mcp_servers=[]))


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"max_tokens": None}, "invalid_type", "max_tokens"),
        ({"max_tokens": "many"}, "invalid_type", "max_tokens"),
        ({"messages": "hello"}, "invalid_type", "messages"),
        ({"messages": [{"role": "user"}]}, "missing_parameter", "messages[0].content"),
        ({"messages": [{"content": "x"}]}, "missing_parameter", "messages[0].role"),
        (
            {"messages": [{"role": "user", "content": [{"text": "x"}]}]},
            "missing_parameter",
            "messages[0].content[0].type",
        ),
        ({"system": 5}, "invalid_type", "system"),
        ({"tools": [{"name": "f", "input_schema": "x"}]}, "invalid_type", "tools[0].input_schema"),
        ({"tool_choice": {"type": "some"}}, "invalid_value", "tool_choice.type"),
        ({"tool_choice": "auto"}, "invalid_type", "tool_choice"),
        ({"thinking": {"type": "sometimes"}}, "invalid_value", "thinking.type"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "missing_parameter", "output_config.format.schema"),
        ({"output_format": {"type": "xml", "schema": {}}}, "invalid_value", "output_format.type"),
        ({"stop_sequences": "x"}, "invalid_type", "stop_sequences"),
        ({"temperature": 100.5}, "invalid_value", "temperature"),
        ({"session_id": "has space"}, "invalid_session_id", "session_id"),
        ({"metadata": "x" * 70_000}, "invalid_value", "metadata"),
    ],
)
async def test_refusals_name_the_field(daemon: Daemon, fields: Json, code: str, param: str) -> None:
    error = (await refused(daemon, message(**fields))).error
    assert (error["code"], error["param"], error["type"]) == (code, param, "invalid_request_error")


async def test_large_fields_are_refused(daemon: Daemon) -> None:
    for param, most in (("tools", limits.TOOLS_BYTES_MAX), ("output_format", limits.FIELD_BYTES_MAX)):
        error = (await refused(daemon, io.BytesIO(json.dumps(message(**{param: "x" * most})).encode()))).error
        assert (error["code"], error["param"]) == ("invalid_value", param) and f"at most {most}" in error["message"]


async def test_max_tokens_is_required(daemon: Daemon) -> None:
    body = message()
    del body["max_tokens"]
    assert (await refused(daemon, body)).error["param"] == "max_tokens"
    assert (await daemon.ask("POST", COUNT, body)).status == 200


# --- whatever else a client sends ------------------------------------------------------------------------------------

ODD_BLOCKS: tuple[Any, ...] = (
    [{"role": "user", "content": [{"type": kind}]} for kind in ("text", "tool_result", "thinking", "image")],
    [{"role": "assistant", "content": [{"type": "tool_use", "id": "", "name": "f", "input": {"a": [[]]}}]}],
    [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": [{"type": "text"}]}]}],
    [{"role": "system", "content": []}], {"type": "enabled"}, {"type": "tool"}, {"format": {}}, {"user_id": "{}"},
)  # fmt: skip


def judged(answer: Answer) -> None:
    if answer.status != 200:
        assert 400 <= answer.status < 500, answer.body
        assert answer.error["message"] and answer.json["type"] == "error"


@pytest.mark.parametrize("field", MessagesRequest.__struct_fields__)
async def test_any_value_of_any_field(daemon: Daemon, field: str) -> None:
    for value in (*ODD_VALUES, *ODD_BLOCKS):
        data = json.dumps({**message(max_tokens=2), field: value}).encode()
        for path in (PATH, COUNT):
            judged(await daemon.ask("POST", path, data))


async def test_mutilated_bodies(daemon: Daemon) -> None:
    chance = random.Random(2)
    whole = json.dumps(message(max_tokens=2, system="x", stop_sequences=["a", "b"], session_id="s")).encode()
    for _ in range(N_MIXED):
        cut = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            cut[chance.randrange(len(cut))] = chance.randrange(256)
        judged(await daemon.ask("POST", PATH, bytes(cut)))
