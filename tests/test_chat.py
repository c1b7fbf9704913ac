"""POST /v1/chat/completions: answers, streams, usage, sampling."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Serve
from tests.serving import Daemon, Json, chat


async def test_one_answer(daemon: Daemon) -> None:
    answer = await daemon.chat("hello", session_id="a", max_tokens=5)
    assert answer["object"] == "chat.completion"
    assert answer["model"] == daemon.state.model_id
    [choice] = answer["choices"]
    assert choice["message"]["role"] == "assistant" and choice["message"]["content"]
    assert choice["finish_reason"] == "length"
    usage = answer["usage"]
    assert usage["completion_tokens"] == 5
    assert usage["total_tokens"] == usage["prompt_tokens"] + 5
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}
    assert answer["session"]["id"] == "a"
    assert answer["session"]["session_reset_reason"] == "new"
    assert answer["session"]["prefilled_prompt_tokens"] == usage["prompt_tokens"]


async def test_stream(daemon: Daemon) -> None:
    events = await daemon.stream(chat(session_id="a", seed=1))
    assert events.chunks[0]["choices"] == [
        {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    ]
    assert events.done and events.finish_reasons == ["length"]
    assert {chunk["object"] for chunk in events.chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in events.chunks}) == 1
    assert all("usage" not in chunk for chunk in events.chunks)
    assert events.session["id"] == "a"
    assert events.text


async def test_a_stream_says_what_an_answer_says(daemon: Daemon) -> None:
    events = await daemon.stream(chat(session_id="a", seed=7, max_tokens=40))
    answer = await daemon.chat(session_id="b", seed=7, max_tokens=40)
    assert events.text == answer["choices"][0]["message"]["content"]


async def test_usage_comes_last_and_on_request(daemon: Daemon) -> None:
    events = await daemon.stream(chat(stream_options={"include_usage": True}))
    last = events.chunks[-1]
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == 8
    assert last["session"]["id"] is None
    assert "session" not in events.chunks[-2]


async def test_a_second_turn_is_warm(daemon: Daemon) -> None:
    first = await daemon.chat("hello", session_id="a", seed=3, max_tokens=200, ignore_eos=False)
    said = first["choices"][0]["message"]["content"]
    assert first["choices"][0]["finish_reason"] == "stop"
    messages = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": said},
        {"role": "user", "content": "and more?"},
    ]
    second = await daemon.chat(session_id="a", messages=messages)
    assert second["session"]["session_reset_reason"] in ("exact_prefix", "rewind")  # depends on how the text tokenizes
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= first["usage"]["prompt_tokens"]
    report = second["session"]
    assert report["reused_prompt_tokens"] + report["prefilled_prompt_tokens"] == second["usage"]["prompt_tokens"]


async def test_an_answer_says_where_the_histories_diverged(serve: Serve) -> None:
    daemon = await serve(model="sim:recurrent")
    await daemon.chat("a long question that goes on to its old end", session_id="a")
    answer = await daemon.chat("a long question that goes on to another end", session_id="a")
    report = answer["session"]
    assert report["session_reset_reason"] in ("mismatch", "checkpoint")
    assert report["reused_prompt_tokens"] <= report["diverged_at"] < answer["usage"]["prompt_tokens"]
    assert report["diverged_before"].endswith("goes on to")
    assert report["diverged_after"].startswith(" another end")


async def test_session_header(daemon: Daemon) -> None:
    answer = await daemon.ask("POST", "/v1/chat/completions", chat(), headers={"X-Session-Affinity": "from-header"})
    assert answer.headers["X-LLM-Session-Id"] == "from-header"
    assert answer.json["session"]["id"] == "from-header"
    scratch = await daemon.ask("POST", "/v1/chat/completions", chat())
    assert "X-LLM-Session-Id" not in scratch.headers


async def test_stop_string(daemon: Daemon) -> None:
    """A stop string is found at every position, also if it spans several tokens, and is never part of the answer."""
    whole = (await daemon.chat(session_id="a", seed=5, max_tokens=40))["choices"][0]["message"]["content"]
    for start in range(1, len(whole) - 6):
        stop = whole[start : start + 5]
        expected = whole[: whole.index(stop)]
        answer = await daemon.chat(session_id="a", seed=5, max_tokens=40, stop=[stop], cache_prompt=False)
        assert answer["choices"][0]["message"]["content"] == expected
        assert answer["choices"][0]["finish_reason"] == "stop"
    events = await daemon.stream(chat(session_id="a", seed=5, max_tokens=40, stop=stop))
    assert events.text == expected and events.finish_reasons == ["stop"]


async def test_characters_arrive_whole(daemon: Daemon) -> None:
    """The simulated model writes multi-byte characters as byte tokens."""
    events = await daemon.stream(chat(seed=11, max_tokens=2000, ignore_eos=True))
    assert any(ord(character) > 127 for character in events.text)
    assert "\ufffd" not in events.text


async def test_ignore_eos_and_max_tokens(daemon: Daemon) -> None:
    answer = await daemon.chat(ignore_eos=True, max_tokens=300)
    assert answer["usage"]["completion_tokens"] == 300
    answer = await daemon.chat(ignore_eos=True, max_tokens=300, max_completion_tokens=4)
    assert answer["usage"]["completion_tokens"] == 4


async def test_max_tokens_is_cut_to_the_room_left(serve: Serve) -> None:
    daemon = await serve(ctx_size=128)
    answer = await daemon.chat(ignore_eos=True, max_tokens=32_000)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] in (128, 129)


async def test_overflow_is_worded_as_agents_expect(serve: Serve) -> None:
    daemon = await serve(ctx_size=64)
    for text in ("word " * 70, "word " * 5000):
        answer = await daemon.refused(chat(text))
        assert answer.status == 400 and answer.error["code"] == "context_length_exceeded"
        assert answer.error["message"].startswith(
            "This model's maximum context length is 64 tokens. However, you requested "
        )


async def test_seed_and_temperature(daemon: Daemon) -> None:
    async def said(**fields: Any) -> str:
        answer = await daemon.chat(max_tokens=60, cache_prompt=False, **fields)
        return str(answer["choices"][0]["message"]["content"])

    assert await said(seed=1, temperature=1.5) == await said(seed=1, temperature=1.5)
    assert await said(seed=1, temperature=1.5) != await said(seed=2, temperature=1.5)
    assert await said(seed=1, temperature=0) == await said(seed=2, temperature=0)


async def test_logit_bias(daemon: Daemon) -> None:
    answer = await daemon.chat(temperature=0, max_tokens=1)
    text = answer["choices"][0]["message"]["content"]
    tokens = (await daemon.ask("POST", "/tokenize", {"content": text})).json["tokens"]
    banned = await daemon.chat(temperature=0, max_tokens=1, logit_bias={str(tokens[0]): -100}, cache_prompt=False)
    assert banned["choices"][0]["message"]["content"] != text


async def test_empty_answers_are_dropped_and_roles_may_repeat(daemon: Daemon) -> None:
    clean = [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    noisy = [
        {"role": "developer", "content": [{"type": "text", "text": "s"}]},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": " \n"},
        {"role": "user", "content": [{"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}]},
    ]
    rendered = [await daemon.ask("POST", "/apply-template", {"messages": messages}) for messages in (clean, noisy)]
    assert rendered[0].json == rendered[1].json


SHOWS_TOOLS = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role }}[{{ m.tool_call_id }}]{{ m.content }}"
    "{% for call in m.tool_calls or [] %}({{ call.id }} {{ call.type }} {{ call.function.name }}"
    "{% for name, value in call.function.arguments.items() %} {{ name }}={{ value }}{% endfor %}){% endfor %}"
    "{{ '<|im_end|>' }}{% endfor %}"
)


async def test_tool_messages_of_the_past_are_rendered(serve: Serve, tmp_path: Path) -> None:
    """The template gets the complete messages: the call with its arguments as an object, and the result with the id of
    the call.
    """
    file = tmp_path / "template.jinja"
    file.write_text(SHOWS_TOOLS)
    daemon = await serve(chat_template_file=file)
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    messages = [
        {"role": "user", "content": "use it"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "42"}]},
    ]
    rendered = (await daemon.ask("POST", "/apply-template", {"messages": messages})).json["prompt"]
    turns = [turn.removeprefix("<|im_start|>") for turn in rendered.split("<|im_end|>") if turn]
    assert turns == ["user[]use it", "assistant[](c1 function f x=1)", "tool[c1]42"]
    answer = await daemon.chat(messages=messages)
    tokens = (await daemon.ask("POST", "/tokenize", {"content": rendered, "parse_special": True})).json
    assert answer["usage"]["prompt_tokens"] == tokens["count"]


TAKES_OBJECTS = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content }}{% for call in m.tool_calls or [] %}"
    "{% for name, value in call.function.arguments.items() %}{{ name }}={{ value }}{% endfor %}{% endfor %}"
    "{{ '<|im_end|>\\n' }}{% endfor %}"
)


@pytest.mark.parametrize("arguments", ["", "{}", "nonsense", "[1, 2", "[" * 2000, "[" * 300 + "]" * 300])
@pytest.mark.parametrize("takes_objects", [True, False])
async def test_arguments_that_are_no_json(serve: Serve, tmp_path: Path, arguments: str, takes_objects: bool) -> None:
    """Such arguments are passed as text if the template accepts text, and as a member of an object if the template
    needs objects.
    """
    file = tmp_path / "template.jinja"
    file.write_text(TAKES_OBJECTS)
    daemon = await serve(**({"chat_template_file": file} if takes_objects else {}))
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [{"role": "user", "content": "use it"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    answer = await daemon.ask("POST", "/v1/chat/completions", chat(messages=messages, session_id="a"))
    assert answer.status == 200, answer.body


@pytest.mark.parametrize("variable", [{"add_generation_prompt": True}, {"tools": []}, {"messages": []}])
async def test_variables_of_the_server_are_not_the_clients(daemon: Daemon, variable: Json) -> None:
    answer = await daemon.refused(chat(chat_template_kwargs=variable))
    assert (answer.status, answer.error["code"]) == (400, "invalid_value")
    assert answer.error["param"] == "chat_template_kwargs" and next(iter(variable)) in answer.error["message"]


@pytest.mark.parametrize("n_levels", [100, 125, 129, 300, 480, 700, 960, 1000, 20_000])
async def test_nesting_of_any_depth_has_an_answer(daemon: Daemon, n_levels: int) -> None:
    deep = '{"a":' * n_levels + "1" + "}" * n_levels
    plain = '"messages":[{"role":"user","content":"x"}],"max_tokens":1'
    call = '{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":' + deep + "}}]}"
    called = f'"messages":[{{"role":"user","content":"x"}},{call}],"max_tokens":1'
    for fields in (plain + f',"chat_template_kwargs":{deep}', called, plain + f',"metadata":{deep}'):
        answer = await daemon.ask("POST", "/v1/chat/completions", ("{" + fields + "}").encode())
        assert answer.status == 200 or (answer.status == 400 and answer.error["message"]), answer.body


@pytest.mark.parametrize(
    ("fields", "variables"),
    [
        ({}, "True unset"),
        ({"enable_thinking": False}, "False unset"),
        ({"thinking": {"type": "disabled"}}, "False unset"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "True unset"),
        ({"thinking": {"type": "adaptive"}}, "True unset"),
        ({"reasoning": {"enabled": False}}, "False unset"),
        ({"reasoning": {"effort": "high", "summary": "auto"}}, "True high"),
        ({"reasoning": {"effort": "none"}}, "False none"),
        ({"reasoning_effort": "none"}, "False none"),
        ({"reasoning_effort": "low", "reasoning": {"effort": "high"}}, "True low"),
        ({"enable_thinking": True, "thinking": {"type": "disabled"}}, "True unset"),
        ({"thinking": {"type": "disabled"}, "chat_template_kwargs": {"enable_thinking": True}}, "True unset"),
        ({"reasoning": {"effort": "none"}, "chat_template_kwargs": {"reasoning_effort": "low"}}, "False low"),
        ({"thinking": None, "reasoning": None, "reasoning_format": "none", "thinking_budget_tokens": -1}, "True unset"),
    ],
)
async def test_thinking_is_a_variable_of_the_template(
    serve: Serve, tmp_path: Path, fields: Json, variables: str
) -> None:
    file = tmp_path / "template.jinja"
    file.write_text("{{ enable_thinking }} {{ reasoning_effort | default('unset') }}")
    daemon = await serve(chat_template_file=file)
    rendered = await daemon.ask("POST", "/apply-template", chat(**fields))
    assert rendered.json["prompt"] == variables


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"thinking_budget_tokens": -2}, "thinking_budget_tokens"),
        ({"thinking_budget": 1 << 31}, "thinking_budget"),
        ({"thinking": {"budget_tokens": -2}}, "thinking.budget_tokens"),
        ({"reasoning": {"max_tokens": -2}}, "reasoning.max_tokens"),
        ({"reasoning_format": "harmony"}, "reasoning_format"),
        ({"thinking": {"type": "sometimes"}}, "thinking.type"),
        ({"thinking": False}, "thinking"),
        ({"reasoning": {"enabled": "no"}}, "reasoning.enabled"),
    ],
)
async def test_wishes_about_thinking_that_cannot_be_met(daemon: Daemon, fields: Json, param: str) -> None:
    answer = await daemon.refused(chat(**fields))
    assert (answer.status, answer.error["param"]) == (400, param)


async def test_user_text_is_no_control_token(daemon: Daemon) -> None:
    rendered = await daemon.chat("<|im_end|>", max_tokens=1)
    plain = await daemon.chat("x", max_tokens=1)
    assert rendered["usage"]["prompt_tokens"] > plain["usage"]["prompt_tokens"]


async def test_connection_is_kept_after_a_stream(daemon: Daemon) -> None:
    """Sends three requests over one connection, the second of which is streamed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(daemon.url.rpartition(":")[2]))

    async def ask(method: str, path: str, body: bytes = b"") -> tuple[bytes, bytes]:
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        headers = await reader.readuntil(b"\r\n\r\n")
        if b"chunked" not in headers.lower():
            length = int(headers.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            return headers, await reader.readexactly(length)
        return headers, await reader.readuntil(b"\r\n0\r\n\r\n")

    try:
        stream = json.dumps(chat(stream=True)).encode()
        for _ in range(2):
            headers, body = await ask("POST", "/v1/chat/completions", stream)
            assert headers.startswith(b"HTTP/1.1 200") and b"[DONE]" in body
            headers, body = await ask("GET", "/health")
            assert headers.startswith(b"HTTP/1.1 200")
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/chat/completions"])
async def test_both_spellings(daemon: Daemon, path: str) -> None:
    assert (await daemon.ask("POST", path, chat())).status == 200


async def test_silent_streams_get_comments(serve: Serve) -> None:
    """Prefill takes longer than the keep-alive interval, so that at least one comment must arrive."""
    daemon = await serve(model="sim:dense,token_us=2000", keepalive_interval=0.1)
    events = await daemon.stream(chat("word " * 200, max_tokens=2))
    assert events.comments >= 1 and events.done and events.error is None


async def test_the_model_field_is_lenient(daemon: Daemon) -> None:
    assert (await daemon.chat(model="gpt-whatever"))["model"] == daemon.state.model_id


# --- a prompt that is read ahead -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_a_prompt_can_be_read_ahead(daemon: Daemon, path: str) -> None:
    """llama.vim and llama.vscode send such a request while the user is still typing. It generates nothing, and the next
    request reuses the prefilled prompt.
    """
    said = {"prompt": "word " * 50} if path == "/v1/completions" else chat("word " * 50)
    fields: Json = {
        "id_slot": 3,
        "samplers": [],
        "t_max_prompt_ms": 500,
        "t_max_predict_ms": 1,
        "response_fields": [""],
    }
    said = {name: value for name, value in said.items() if name != "max_tokens"} | fields
    ahead = await daemon.ask("POST", path, {**said, "n_predict": 0, "session_id": "s"})
    assert ahead.status == 200, ahead.body
    [choice] = ahead.json["choices"]
    assert (choice.get("text") or choice.get("message", {}).get("content") or "", choice["finish_reason"]) == (
        "",
        "length",
    )
    assert ahead.json["usage"]["completion_tokens"] == 0
    events = await daemon.stream({**said, "n_predict": 0, "logprobs": 1 if "prompt" in said else True}, path)
    assert events.text == "" and events.finish_reasons == ["length"]
    warm = await daemon.ask("POST", path, {**said, "max_tokens": 4, "session_id": "s"})
    assert warm.json["session"]["prefilled_prompt_tokens"] <= 2 and warm.json["usage"]["completion_tokens"] == 4
