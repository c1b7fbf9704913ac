"""The requests of each scenario, by the name of the file that contains the answers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from llmd.app import stop_serving
from tests.calling import READ, REPLIES, calling
from tests.golden.refusals import CHAT_REFUSALS, COMPLETION_REFUSALS, MESSAGE_REFUSALS, RESPONSE_REFUSALS
from tests.golden.transcript import Transcript
from tests.responses import asking
from tests.serving import Daemon, chat
from tests.test_delivery import slow_reader
from tests.test_sessions import ENDLESS, SLOW, running

CHAT, COMPLETIONS, TEMPLATE = "/v1/chat/completions", "/v1/completions", "/apply-template"
MESSAGES, COUNT_TOKENS = "/v1/messages", "/v1/messages/count_tokens"
MESSAGE: dict[str, Any] = {"max_tokens": 8, "temperature": 0, "messages": [{"role": "user", "content": "hello"}]}
RESPONSES = "/v1/responses"
USAGE: dict[str, Any] = {"stream_options": {"include_usage": True}}
GREEDY: dict[str, Any] = {"temperature": 0}
COLD: dict[str, Any] = {"cache_prompt": False}

Serve = Callable[..., Awaitable[Daemon]]
Scenario = Callable[[Transcript, Serve, Path], Awaitable[None]]


def greedy(text: str = "hello", **fields: Any) -> dict[str, Any]:
    return chat(text, **GREEDY, **fields)


def raw(prompt: Any = "once upon a time", **fields: Any) -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": 8, "ignore_eos": True, **GREEDY, **fields}


SHAPES: tuple[dict[str, Any], ...] = (
    {},
    {"max_tokens": 300},
    {"max_tokens": 300, "ignore_eos": False},
    {"max_tokens": 1},
    {"seed": 7, "temperature": 1.0, "max_tokens": 20},
    {"model": "another", "user": "me", "metadata": {"a": 1}, "n": 1},
)
"""Of answers, whatever the endpoint and the delivery."""


async def whole(transcript: Transcript, serve: Serve, _: Path) -> None:
    daemon = await serve()
    for shape in SHAPES:
        await transcript.ask(daemon, CHAT, {**greedy(), **shape})
        await transcript.ask(daemon, COMPLETIONS, {**raw(), **shape})
    await transcript.ask(daemon, "/chat/completions", greedy(max_completion_tokens=2))
    await transcript.ask(daemon, "/completions", raw([300, 301, 302], n_predict=2))
    await transcript.ask(daemon, COMPLETIONS, {"prompt": [[300, 301]], **GREEDY, "ignore_eos": True})
    await transcript.ask(daemon, COMPLETIONS, raw("<|im_end|>", parse_special=False, max_tokens=2))


async def streams(transcript: Transcript, serve: Serve, _: Path) -> None:
    daemon = await serve()
    for shape in (*SHAPES, USAGE, {"stream_options": {"continuous_usage_stats": True}}, {"stream_options": {}}):
        await transcript.ask(daemon, CHAT, {**greedy(stream=True), **shape})
        await transcript.ask(daemon, COMPLETIONS, {**raw(stream=True), **shape})


async def told(transcript: Transcript, serve: Serve, _: Path) -> None:
    """Several answers to one prompt, with token details. The steps are slow, so that each token has its own event."""
    daemon = await serve(model="sim:dense,step_us=2000", scratch_sessions=4)
    tells: tuple[dict[str, Any], ...] = (
        {"n": 2, "seed": 7, "temperature": 1.0, **COLD},
        {"n": 2, "best_of": 3, "seed": 7, "temperature": 1.0, **COLD},
        {"return_token_ids": True},
        {"timings_per_token": True},
        {"include_stop_str_in_output": True, "stop": "e"},
        {"min_tokens": 2, "stop_token_ids": [300], "logit_bias": {"300": 100}, "ignore_eos": False},
    )
    for fields in tells:
        await transcript.ask(daemon, CHAT, {**greedy(max_tokens=3), **fields})
        await transcript.ask(daemon, COMPLETIONS, {**raw(), "max_tokens": 3, **fields})
    await transcript.ask(daemon, CHAT, greedy(max_tokens=3, logprobs=True, top_logprobs=2))
    await transcript.ask(daemon, COMPLETIONS, {**raw(), "max_tokens": 3, "logprobs": 2})
    await transcript.ask(daemon, COMPLETIONS, raw(["once", [300, 301]], echo=True, **COLD))
    running = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    fields = {"max_tokens": 1, "return_token_ids": True, **running}
    await transcript.ask(daemon, CHAT, {**greedy(), **fields, "logprobs": True})
    await transcript.ask(daemon, COMPLETIONS, {**raw(), **fields, "logprobs": 1})
    await transcript.ask(daemon, CHAT, greedy(max_tokens=1, return_progress=True, timings_per_token=True, stream=True))


async def stop_strings(transcript: Transcript, serve: Serve, _: Path) -> None:
    daemon = await serve()
    said = (await daemon.chat(**GREEDY, max_tokens=40))["choices"][0]["message"]["content"]
    completed = (await daemon.ask("POST", COMPLETIONS, raw(max_tokens=40))).json["choices"][0]["text"]
    for is_stream in (False, True):
        for stop, other in ((said[9:14], completed[9:14]), ([said[:1]], [completed[:1]]), (["never, ever"], "")):
            await transcript.ask(daemon, CHAT, greedy(max_tokens=40, stop=stop, stream=is_stream, **USAGE))
            await transcript.ask(daemon, COMPLETIONS, raw(max_tokens=40, stop=other, stream=is_stream))


async def conversations(transcript: Transcript, serve: Serve, _: Path) -> None:
    """Turns of one session, with and without edited messages, and what each answer reports about the session."""
    daemon = await serve(model="sim:hybrid")
    messages: list[dict[str, Any]] = [{"role": "system", "content": "be brief"}]
    for turn in range(4):
        messages.append({"role": "user", "content": f"question {turn}"})
        body = greedy(max_tokens=12, messages=messages, session_id="s")
        answer = await transcript.ask(daemon, CHAT, {**body, **({"stream": True, **USAGE} if turn == 3 else {})})
        if turn < 3:
            content = str(json.loads(answer)["choices"][0]["message"]["content"])
            messages.append({"role": "assistant", "content": content})
    edited = [*messages[:2], {"role": "assistant", "content": "another answer"}, {"role": "user", "content": "why?"}]
    await transcript.ask(daemon, CHAT, greedy(messages=edited, session_id="s"))
    await transcript.ask(daemon, CHAT, greedy(messages=messages, session_id="s", history="template", stream=True))
    await transcript.ask(daemon, CHAT, greedy(messages=messages, session_id="s", cache_prompt=False))


async def sessions(transcript: Transcript, serve: Serve, _: Path) -> None:
    daemon = await serve(model="sim:recurrent")
    for headers, fields in (
        ({"X-LLM-Session-Id": "explicit"}, {}),
        ({"X-Session-Affinity": "affine"}, {"stream": True}),
        ({}, {"prompt_cache_key": "key", "stream": True, **USAGE}),
        ({}, {"metadata": {"session_id": "nested"}}),
        ({"X-LLM-Session-Id": "header"}, {"session_id": "body"}),
        ({"X-LLM-Session-Id": "child", "X-Parent-Session-Id": "explicit"}, {}),
        ({"X-Session-Affinity": "no valid id"}, {}),
        ({"X-LLM-Session-Id": "no valid id"}, {}),
        ({}, {"session_id": ""}),
    ):
        await transcript.ask(daemon, CHAT, greedy(**fields), headers=headers)
    await transcript.ask(daemon, COMPLETIONS, raw(session_id="raw"))
    await transcript.ask(daemon, COMPLETIONS, raw("once upon another time", session_id="raw", stream=True))
    await transcript.ask(daemon, CHAT, greedy("a long question that goes on to its old end", session_id="d"))
    await transcript.ask(daemon, CHAT, greedy("a long question that goes on to another end", session_id="d"))


async def templates(transcript: Transcript, serve: Serve, directory: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": "q"},
        {"role": "user", "content": "q2", "name": "me"},
        {"role": "assistant", "content": " "},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "hm"},
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
    ]
    daemon = await serve()
    await transcript.ask(daemon, TEMPLATE, {"messages": messages})
    await transcript.ask(daemon, TEMPLATE, {"messages": messages, "add_generation_prompt": False})
    await transcript.ask(daemon, CHAT, greedy(messages=messages, add_generation_prompt=False))
    file = directory / "shown.jinja"
    file.write_text("{{ enable_thinking }} {{ reasoning_effort | default('unset') }} {{ messages | tojson }}")
    shown = await serve(chat_template_file=file)
    for fields in (
        {},
        {"enable_thinking": False},
        {"thinking": {"type": "disabled"}},
        {"reasoning": {"effort": "high"}},
        {"reasoning_effort": "none"},
        {"chat_template_kwargs": {"enable_thinking": True}, "reasoning": {"enabled": False}},
        {"messages": messages},
    ):
        await transcript.ask(shown, TEMPLATE, chat(**fields))
    refusing = directory / "refusing.jinja"
    refusing.write_text("{{ raise_exception('roles must alternate') }}")
    refused = await serve(chat_template_file=refusing)
    for path in (TEMPLATE, CHAT):
        await transcript.ask(refused, path, chat())
    await transcript.ask(daemon, CHAT, chat(chat_template_kwargs={"tools": []}))


async def refused_fields(transcript: Transcript, serve: Serve, _: Path) -> None:
    daemon = await serve()
    for fields in CHAT_REFUSALS:
        assert b'{"error"' in await transcript.ask(daemon, CHAT, {**chat(), **fields})
    for fields in COMPLETION_REFUSALS:
        assert b'{"error"' in await transcript.ask(daemon, COMPLETIONS, {"prompt": "x", "stream": True, **fields})
    await transcript.ask(daemon, CHAT, {"stream": True})
    await transcript.ask(daemon, COMPLETIONS, {})
    await transcript.ask(daemon, TEMPLATE, {"messages": [{"role": "robot"}]})


async def context_length(transcript: Transcript, serve: Serve, _: Path) -> None:
    daemon = await serve(ctx_size=64)
    for is_stream in (False, True):
        await transcript.ask(daemon, CHAT, greedy("word " * 70, stream=is_stream))
        await transcript.ask(daemon, CHAT, greedy("word " * 5000, stream=is_stream))
        await transcript.ask(daemon, COMPLETIONS, raw("word " * 70, stream=is_stream))
        await transcript.ask(daemon, COMPLETIONS, raw([300] * 65, stream=is_stream))
    await transcript.ask(daemon, CHAT, greedy(max_tokens=32_000))
    await transcript.ask(daemon, TEMPLATE, greedy("word " * 5000))


async def capacity(transcript: Transcript, serve: Serve, _: Path) -> None:
    daemon = await serve(model=SLOW, ctx_size=200_000, max_sessions=1, capacity_policy="refuse")
    asked = await running(daemon, "holder")
    await transcript.ask(daemon, CHAT, greedy(session_id="b"))
    await transcript.ask(daemon, COMPLETIONS, raw(session_id="b", stream=True))
    await daemon.ask("DELETE", "/v1/sessions/holder")
    await asked


async def deadline(transcript: Transcript, serve: Serve, _: Path) -> None:
    daemon = await serve(model=SLOW, ctx_size=200_000, request_timeout=1.0)
    for path, body in ((CHAT, greedy()), (COMPLETIONS, raw())):
        await transcript.ask(daemon, path, {**body, **ENDLESS})
        await transcript.ask(daemon, path, {**body, **ENDLESS, "stream": True}, is_endless=True)


async def cancelled(transcript: Transcript, serve: Serve, _: Path) -> None:
    """Requests are cancelled because a client closes or resets the session."""
    daemon = await serve(model=SLOW, ctx_size=200_000)
    for path, body in ((CHAT, greedy()), (COMPLETIONS, raw())):
        for is_stream in (False, True):
            fields = {**body, **ENDLESS, "session_id": "s", "stream": is_stream}
            asked = asyncio.create_task(transcript.ask(daemon, path, fields, is_endless=True))
            while (await daemon.ask("GET", "/v1/sessions/s")).json.get("tokens", 0) < 60:
                pass
            await daemon.ask("DELETE", "/v1/sessions/s")
            await asked


async def failed_step(transcript: Transcript, serve: Serve, _: Path) -> None:
    """A failed step leaves the session in an unknown state. The next request prefills it again."""
    for is_stream in (False, True):
        daemon = await serve(model="sim:dense,fail_at=12")
        await transcript.ask(daemon, CHAT, greedy(max_tokens=100, session_id="s", stream=is_stream), is_endless=True)
        await transcript.ask(daemon, CHAT, greedy(session_id="s"))
        daemon = await serve(model="sim:dense,fail_at=12")
        await transcript.ask(daemon, COMPLETIONS, raw(max_tokens=100, stream=is_stream), is_endless=True)
    daemon = await serve(model="sim:dense,fail_at=1")
    await transcript.ask(daemon, CHAT, greedy(stream=True))


async def slow_readers(transcript: Transcript, serve: Serve, _: Path) -> None:
    """llmd closes the connection of a client that stops reading."""
    daemon = await serve(model="sim:dense,ctx=1000000,length=0", ctx_size=1_000_000, slow_reader_timeout=0.2)
    reader, writer = await slow_reader(daemon)
    async with asyncio.timeout(60):
        while 'outcome="slow_reader"' not in str(await daemon.metrics()):
            pass  # as long as it takes
    transcript.note("a stream without end, over the unix socket, that nobody reads until it was given up")
    head = await reader.readuntil(b"\r\n\r\n")
    try:
        body = await reader.read(-1)
    except ConnectionError:
        body = b""
    writer.transport.abort()
    transcript.note_answer(head, b"")
    assert b"[DONE]" not in body and not body.endswith(b"0\r\n\r\n")


async def shutdown(transcript: Transcript, serve: Serve, _: Path) -> None:
    for path, body in ((CHAT, greedy()), (COMPLETIONS, raw())):
        for is_stream in (False, True):
            daemon = await serve(model=SLOW, ctx_size=200_000, shutdown_timeout=0.0)
            fields = {**body, **ENDLESS, "session_id": "s", "stream": is_stream}
            asked = asyncio.create_task(transcript.ask(daemon, path, fields, is_endless=True))
            while (await daemon.ask("GET", "/v1/sessions/s")).json.get("tokens", 0) < 60:
                pass
            await stop_serving(daemon.state)
            await asked
    await transcript.ask(daemon, CHAT, greedy())
    await transcript.ask(daemon, COMPLETIONS, raw(stream=True))


async def messages(transcript: Transcript, serve: Serve, directory: Path) -> None:
    """Anthropic's messages: streamed and not, counted, stopped, refused, failed, and refused before the handler
    runs.
    """
    daemon = await serve(model="sim:hybrid")
    history: list[dict[str, Any]] = []
    for turn in range(3):
        history.append({"role": "user", "content": [{"type": "text", "text": f"question {turn}"}]})
        body = {**MESSAGE, "system": "be brief", "messages": history, "session_id": "s"}
        await transcript.ask(daemon, COUNT_TOKENS, body)
        answer = json.loads(await transcript.ask(daemon, MESSAGES, body))
        await transcript.ask(daemon, f"{MESSAGES}?beta=true", {**body, "stream": True})
        history.append({"role": "assistant", "content": answer["content"]})
    for is_stream in (False, True):
        stops = {"stop_sequences": ["never, ever", history[-1]["content"][0]["text"][9:14]], "stream": is_stream}
        await transcript.ask(daemon, MESSAGES, {**body, "messages": history[:5], **stops})
    for fields in MESSAGE_REFUSALS:
        assert b'{"type":"error"' in await transcript.ask(daemon, MESSAGES, {**MESSAGE, **fields})
    keys = directory / "keys"
    keys.write_text("a-key-that-nobody-guesses somebody\n")
    keys.chmod(0o600)
    closed, key = await serve(api_key_file=keys, body_limit=4096), {"X-Api-Key": "a-key-that-nobody-guesses"}
    for path in (MESSAGES, COUNT_TOKENS, "/messages/batches"):
        await transcript.ask(closed, path, MESSAGE)
        await transcript.ask(closed, path, method="GET", headers=key)
        await transcript.ask(closed, path, b"{", headers=key)
    await transcript.ask(closed, MESSAGES, {**MESSAGE, "system": "x" * 5000}, headers=key)
    small = await serve(ctx_size=64, model="sim:dense,fail_at=12")
    await transcript.ask(small, MESSAGES, {**MESSAGE, "system": "word " * 70})
    await transcript.ask(small, MESSAGES, {**MESSAGE, "max_tokens": 100, "stream": True}, is_endless=True)
    small.state.admission.limit = 0
    await transcript.ask(small, MESSAGES, MESSAGE)


async def keep_alive(transcript: Transcript, serve: Serve, _: Path) -> None:
    """A prefill takes a second, and llmd sends a comment every tenth of a second."""
    daemon = await serve(model="sim:dense,token_us=4000", keepalive_interval=0.1)
    await transcript.ask(daemon, CHAT, greedy("word " * 50, max_tokens=2, stream=True))
    await transcript.ask(daemon, COMPLETIONS, raw("word " * 50, max_tokens=2, stream=True, **USAGE))


async def responses(transcript: Transcript, serve: Serve, _: Path) -> None:
    daemon = await serve()
    items = [
        {"role": "developer", "content": [{"type": "input_text", "text": "be brief"}]},
        {"role": "user", "content": "hello"},
        {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"},
    ]
    ids = []
    for fields in ({}, {"stream": True}, {"input": items, "instructions": "be kind", "metadata": {"a": "b"}}):
        answer = await transcript.ask(daemon, RESPONSES, {**asking(), **fields})
        ids.append(re.findall(rb'"(resp_\w+)"', answer)[0].decode())
    for is_stream in (False, True):
        body = asking("more", previous_response_id=ids[0], session_id="s", stream=is_stream, max_output_tokens=None)
        await transcript.ask(daemon, RESPONSES, {**body, "ignore_eos": False, "reasoning": {"summary": "auto"}})
    for method, path in (
        ("GET", ids[2]), ("GET", f"{ids[2]}/input_items"), ("GET", f"{ids[2]}/input_items?order=asc&limit=1"),
        ("GET", f"{ids[2]}?stream=true"), ("DELETE", ids[2]), ("DELETE", ids[2]), ("GET", "resp_nobody/input_items"),
    ):  # fmt: skip
        await transcript.ask(daemon, f"{RESPONSES}/{path}", method=method)
    for refused in RESPONSE_REFUSALS:
        assert b'{"error"' in await transcript.ask(daemon, RESPONSES, {**asking(stream=True), **refused})
    for is_stream in (False, True):
        torn = await serve(model="sim:dense,fail_at=12")
        body = asking(max_output_tokens=100, stream=is_stream)
        await transcript.ask(torn, RESPONSES, body, is_endless=True)
        await transcript.ask(daemon, RESPONSES, asking("word " * 5000, stream=is_stream))


async def response_calls(transcript: Transcript, serve: Serve, directory: Path) -> None:
    """Reasoning and calls of functions and custom tools, calls that were cut off, and calls that the client sends
    back.
    """
    edit = '<tool_call>\n{"name": "edit__patch", "arguments": {"input": "+ \\"x\\"\\n"}}\n</tool_call>'
    daemon = await serve(**calling(directory, {**REPLIES, "mend it": edit}))
    patch = {"type": "custom", "name": "patch", "description": "Changes a file"}
    fields: dict[str, Any] = {
        "tools": [{"type": "function", **READ["function"]}, {"type": "namespace", "name": "edit", "tools": [patch]}],
        "max_output_tokens": 200,
        "ignore_eos": False,
        "reasoning": {"summary": "auto"},
    }
    for text in ("one file", "two files", "mend it"):
        for is_stream in (False, True):
            await transcript.ask(daemon, RESPONSES, asking(text, **{**fields, "stream": is_stream}))
    for is_stream in (False, True):
        await transcript.ask(
            daemon, RESPONSES, asking("one file", **{**fields, "reasoning": None, "stream": is_stream})
        )
        cut = {**fields, "max_output_tokens": 37, "stream": is_stream}
        await transcript.ask(daemon, RESPONSES, asking("two files", **cut))
    past = [
        {"role": "user", "content": "one file"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "which one?"}]},
        {"type": "function_call", "name": "read", "arguments": '{"path":"a.txt"}', "call_id": "c00000001"},
        {"type": "function_call_output", "call_id": "c00000001", "output": "plain"},
    ]
    await transcript.ask(daemon, RESPONSES, asking(past, **fields))
    await transcript.ask(daemon, RESPONSES, asking("plain", **{**fields, "tool_choice": "none"}))


async def before_the_handler(transcript: Transcript, serve: Serve, directory: Path) -> None:
    keys = directory / "keys"
    keys.write_text("a-key-that-nobody-guesses somebody\n")
    keys.chmod(0o600)
    daemon = await serve(api_key_file=keys, body_limit=4096)
    key = {"Authorization": "Bearer a-key-that-nobody-guesses"}
    for path in (CHAT, COMPLETIONS):
        await transcript.ask(daemon, path, chat())
        await transcript.ask(daemon, path, chat(), headers={"Authorization": "Bearer wrong"})
        await transcript.ask(daemon, path, method="GET", headers=key)
        await transcript.ask(daemon, path, chat("x" * 5000), headers=key)
        await transcript.ask(daemon, path, b"{", headers=key)
        await transcript.ask(daemon, path, b"[]", headers=key)
        await transcript.ask(daemon, path, b"", headers=key)
        await transcript.ask(daemon, path, chat(), headers={**key, "Content-Encoding": "gzip"})
        await transcript.ask(daemon, path, chat(), headers={**key, "Expect": "a miracle"})
        await transcript.ask(daemon, path, chat(), headers={**key, "Origin": "http://elsewhere.example"})
        await transcript.ask(daemon, path, chat(), headers={**key, "Content-Length": "x"})
    await transcript.ask(daemon, "/v1/chat", chat(), headers=key)
    plain = await serve()
    opened, plain.state.loaded_model = plain.state.loaded_model, None
    await transcript.ask(plain, CHAT, chat(stream=True))
    plain.state.loaded_model = opened


async def calls(transcript: Transcript, serve: Serve, directory: Path) -> None:
    """Calls of tools and functions, streamed and not, calls that were cut off, and calls that the client sends back."""
    daemon = await serve(**calling(directory))
    limits = {"max_tokens": 200, "ignore_eos": False}
    for text in ("one file", "two files", "plain"):
        await transcript.ask(daemon, CHAT, greedy(text, tools=[READ]) | limits)
        await transcript.ask(daemon, CHAT, greedy(text, tools=[READ], stream=True, **USAGE) | limits)
    for text in ("one file", "plain"):
        await transcript.ask(daemon, CHAT, greedy(text, functions=[READ["function"]]) | limits)
        await transcript.ask(daemon, CHAT, greedy(text, functions=[READ["function"]], stream=True) | limits)
    await transcript.ask(daemon, CHAT, greedy("two files", tools=[READ], max_tokens=37, ignore_eos=False))
    await transcript.ask(daemon, CHAT, greedy("two files", tools=[READ], stream=True, stop=["path"]) | limits)
    call = {"id": "c00000001", "type": "function", "function": {"name": "read", "arguments": '{"path":"a.txt"}'}}
    result = {"role": "tool", "tool_call_id": "c00000001", "content": "plain"}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    past = [{"role": "user", "content": "one file"}, said, result]
    await transcript.ask(daemon, TEMPLATE, {"messages": past, "tools": [READ]})
    await transcript.ask(daemon, CHAT, greedy(messages=past, tools=[READ]) | limits)


async def thoughts(transcript: Transcript, serve: Serve, directory: Path) -> None:
    daemon = await serve(**calling(directory))
    limits = {"max_tokens": 200, "ignore_eos": False}
    for fields in ({}, {"reasoning_format": "none"}, {"enable_thinking": False}, {"max_tokens": 4}):
        await transcript.ask(daemon, CHAT, greedy("ponder") | limits | fields)
        await transcript.ask(daemon, CHAT, greedy("ponder", stream=True, **USAGE) | limits | fields)
    said = {"role": "assistant", "content": "Yes.", "reasoning": "hm"}
    past = [{"role": "user", "content": "ponder"}, said, {"role": "user", "content": "plain"}]
    daemon = await serve(**calling(directory))
    await transcript.ask(daemon, TEMPLATE, {"messages": past})
    begun = [{"role": "user", "content": "plain"}, {"role": "assistant", "content": "Just"}]
    await transcript.ask(daemon, CHAT, greedy(messages=begun, continue_final_message=True) | limits)


async def ollama(transcript: Transcript, serve: Serve, _: Path) -> None:
    """Ollama's chats and completions: streamed as lines, as one answer, and with blank lines in between. Also facts of
    the model, and refusals.
    """
    daemon = await serve()
    few: dict[str, Any] = {"options": {"num_predict": 20, "temperature": 0}}
    user = {"role": "user", "content": "hello"}
    for path, body in (("/api/chat", {"messages": [user], **few}), ("/api/generate", {"prompt": "hello", **few})):
        for fields in ({}, {"stream": False}, {"options": {"temperature": 0, "num_predict": -1}}, {"keep_alive": "1h"}):
            await transcript.ask(daemon, path, {**body, **fields})
        own: tuple[dict[str, Any], ...] = ({"images": ["x"]}, {"raw": 1}) if "prompt" in body else ()
        both: tuple[dict[str, Any], ...] = ({"options": {"top_p": 7}}, {"format": 1})
        for wrong in (*both, *own):
            assert b'{"error"' in await transcript.ask(daemon, path, {**body, **wrong})
        for fields in ({}, {"stream": False}):
            told = {"logprobs": True, "top_logprobs": 1, "options": {"num_predict": 2, "temperature": 0}}
            await transcript.ask(daemon, path, {**body, **told, **fields})
        await transcript.ask(daemon, path, {})
        await transcript.ask(daemon, path, {"keep_alive": 0})
        await transcript.ask(daemon, path, b"{")
        await transcript.ask(daemon, path, {**body, "options": {"num_predict": 2, "temperature": 0}, "messages": "x"})
    for path in ("/api/version", "/api/tags", "/api/ps", "/"):
        await transcript.ask(daemon, path, method="GET")
    await transcript.ask(daemon, "/api/show", {"model": "any"})
    await transcript.ask(daemon, "/api/show", {"modell": "any"})
    slow = await serve(model="sim:dense,token_us=4000", keepalive_interval=0.1)
    await transcript.ask(slow, "/api/generate", {"prompt": "word " * 50, **few})


async def embeddings(transcript: Transcript, serve: Serve, _: Path) -> None:
    daemon = await serve(model="sim:dense,embed=3", ctx_size=64)
    await transcript.ask(daemon, "/v1/embeddings", {"input": "hello", "model": "any", "dimensions": 3})
    await transcript.ask(daemon, "/embeddings", {"input": ["hello", "there"], "encoding_format": "base64"})
    await transcript.ask(daemon, "/v1/embeddings", {"input": [300, 301]})
    await transcript.ask(daemon, "/embedding", {"content": ["hello", "there"]})
    await transcript.ask(daemon, "/api/embed", {"model": "any", "input": ["hello", "there"]})
    await transcript.ask(daemon, "/api/embeddings", {"model": "any", "prompt": "hello"})
    without = await serve()
    for path, field in (("/v1/embeddings", "input"), ("/embedding", "content"), ("/api/embed", "input")):
        await transcript.ask(
            daemon, path, {field: ["a", "the " * 100], **({"truncate": False} if "api" in path else {})}
        )
        await transcript.ask(daemon, path, {field: []})
        await transcript.ask(daemon, path, {})
        await transcript.ask(without, path, {field: "hello"})


async def native(transcript: Transcript, serve: Serve, _: Path) -> None:
    """llama.cpp's own endpoints for completions, infill and facts of the server."""
    daemon = await serve(model="sim:dense,fim=1")
    few: dict[str, Any] = {"n_predict": 12, **GREEDY}
    for fields in ({}, {"stream": True}, {"n_predict": 0}, {"response_fields": ["content", "stop_type", "model"]}):
        await transcript.ask(daemon, "/completion", {"prompt": "once upon a time", **few, **fields})
        await transcript.ask(daemon, "/infill", {"input_prefix": "once", "input_suffix": "time", **few, **fields})
    for wrong in ({"prompt": ""}, {"n_probs": 21}, {"samplers": ["x"]}, {"stop": [1]}, {"input_suffix": "x"}):
        await transcript.ask(daemon, "/completion", {"prompt": "x", **wrong})
    for fields in ({}, {"stream": True}):
        beside = {"n_predict": 2, "n_probs": 1, "return_tokens": True}
        await transcript.ask(daemon, "/completion", {"prompt": "once upon a time", **GREEDY, **beside, **fields})
    await transcript.ask(daemon, "/infill", {"input_extra": [{}]})
    await transcript.ask(daemon, "/slots", method="GET")
    await transcript.ask(await serve(), "/infill", {"input_prefix": "once", "input_suffix": "time"})


SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        whole, streams, told, stop_strings, conversations, sessions, templates, refused_fields, context_length,
        capacity, deadline, cancelled, failed_step, slow_readers, shutdown, keep_alive, before_the_handler, calls,
        thoughts, messages, responses, response_calls, ollama, embeddings, native,
    )
}  # fmt: skip
