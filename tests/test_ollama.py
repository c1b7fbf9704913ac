"""Ollama's API: requests that its clients send, and the lines that the clients expect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llmd.core.errors import ApiError
from llmd.core.generation_request import ChatPrompt, Constraint, PlainMessage, PlainToolCall, RawPrompt, Tool
from llmd.core.parts import End, Failed, Part, ReasoningPart, SessionReport, TextPart, ToolCallPiece, UsedTokens
from llmd.dialects.ollama import models
from llmd.dialects.ollama.reader import chat_of, generate_of
from llmd.dialects.ollama.wire import OllamaChatRequest, OllamaGenerateRequest
from llmd.dialects.ollama.writer import GenerateWriter, OllamaChatWriter, measures_of
from tests.calling import READ, calling
from tests.conftest import Serve
from tests.serving import Answer, Daemon, Json

CHAT, GENERATE = "/api/chat", "/api/generate"
SHORT: Json = {"num_predict": 8, "temperature": 0}


def chat(text: str = "hello", **fields: Any) -> Json:
    return {"model": "any", "messages": [{"role": "user", "content": text}], "options": SHORT, **fields}


def generate(text: str = "hello", **fields: Any) -> Json:
    return {"model": "any", "prompt": text, "options": SHORT, **fields}


def lines(answer: Answer) -> list[Json]:
    """Returns the lines of a stream. Checks that each line is one object, and that only the last is done."""
    assert answer.status == 200, answer.body
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    assert answer.body.endswith(b"\n")
    found = [json.loads(line) for line in answer.body.removesuffix(b"\n").split(b"\n")]
    assert [line["done"] for line in found] == [False] * (len(found) - 1) + [True]
    return found


# --- answers ---------------------------------------------------------------------------------------------------------


async def test_a_chat_is_a_stream_unless_asked_otherwise(daemon: Daemon) -> None:
    streamed = lines(await daemon.ask("POST", CHAT, chat()))
    whole = (await daemon.ask("POST", CHAT, chat(stream=False))).json
    text = "".join(line["message"]["content"] for line in streamed)
    assert text == whole["message"]["content"] != ""
    last = streamed[-1]
    assert set(last) == set(whole)
    for answer in (last, whole):
        assert (answer["model"], answer["done_reason"]) == (daemon.state.model_id, "length")
        assert answer["eval_count"] == 8 and answer["prompt_eval_count"] > 1
        assert answer["total_duration"] >= answer["eval_duration"] > 1000


async def test_a_text_is_generated(daemon: Daemon) -> None:
    streamed = lines(await daemon.ask("POST", GENERATE, generate()))
    whole = (await daemon.ask("POST", GENERATE, generate(stream=False))).json
    assert "".join(line["response"] for line in streamed) == whole["response"] != ""
    assert whole["done_reason"] == "length" and whole["eval_count"] == 8


async def test_a_prompt_goes_through_the_template_unless_raw(daemon: Daemon) -> None:
    chatted = (await daemon.ask("POST", CHAT, chat("once", stream=False))).json
    generated = (await daemon.ask("POST", GENERATE, generate("once", stream=False))).json
    raw = (await daemon.ask("POST", GENERATE, generate("once", stream=False, raw=True))).json
    assert generated["response"] == chatted["message"]["content"]
    assert raw["prompt_eval_count"] < generated["prompt_eval_count"]
    told = (await daemon.ask("POST", GENERATE, generate("once", stream=False, system="be brief"))).json
    assert told["prompt_eval_count"] > generated["prompt_eval_count"]


async def test_options_change_the_answer(daemon: Daemon) -> None:
    said = (await daemon.ask("POST", CHAT, chat(stream=False))).json["message"]["content"]
    stopped = (await daemon.ask("POST", CHAT, chat(stream=False, options={**SHORT, "stop": [said[4:8]]}))).json
    assert stopped["message"]["content"] == said[:4] and stopped["done_reason"] == "stop"
    drawn = {"num_predict": 8, "temperature": 1.5, "seed": 3, "top_k": 0}
    answers = [(await daemon.ask("POST", CHAT, chat(stream=False, options=drawn))).json for _ in range(2)]
    assert answers[0]["message"] == answers[1]["message"]
    assert answers[0]["message"]["content"] != said


@pytest.mark.parametrize("path", [CHAT, GENERATE])
@pytest.mark.parametrize(("keep_alive", "reason"), [(None, "load"), ("5m", "load"), (0, "unload"), ("0s", "unload")])
async def test_without_a_prompt_nothing_is_generated(daemon: Daemon, path: str, keep_alive: Any, reason: str) -> None:
    answer = await daemon.ask("POST", path, {"model": "any", "keep_alive": keep_alive})
    assert answer.status == 200
    assert (answer.json["done"], answer.json["done_reason"]) == (True, reason)
    assert daemon.counter("decode_tokens_total") == 0


async def test_a_middle_is_filled_in(serve: Serve) -> None:
    daemon = await serve(model="sim:dense,fim=1")
    answer = (await daemon.ask("POST", GENERATE, generate("a", suffix="b", stream=False))).json
    assert answer["prompt_eval_count"] == 5 and answer["response"]


async def test_a_header_names_the_session(daemon: Daemon) -> None:
    headers = {"X-LLM-Session-Id": "mine"}
    for path, body in ((CHAT, chat(stream=False)), (GENERATE, generate())):
        answer = await daemon.ask("POST", path, body, headers=headers)
        assert answer.headers["X-LLM-Session-Id"] == "mine"


async def test_a_long_silence_breaks_no_line(serve: Serve) -> None:
    """Blanks keep the stream alive during a slow prefill. Each line must still be one JSON value."""
    daemon = await serve(model="sim:dense,token_us=4000", keepalive_interval=0.1)
    answer = await daemon.ask("POST", CHAT, chat("word " * 50))
    assert len(lines(answer)) > 1
    assert answer.body.startswith(b" ")


async def test_a_failure_in_a_stream_is_a_line(serve: Serve) -> None:
    daemon = await serve(model="sim:dense,fail_at=5")
    answer = await daemon.ask("POST", CHAT, chat(options={"num_predict": 100, "temperature": 0}))
    *told, last = [json.loads(line) for line in answer.body.splitlines()]
    assert told and all(line["done"] is False for line in told)
    assert last["code"] == "step_failed" and isinstance(last["error"], str)


# --- tools, thoughts and forms ---------------------------------------------------------------------------------------

LONG: Json = {"num_predict": 200, "temperature": 0}


async def test_a_loop_of_tools(serve: Serve, tmp_path: Path) -> None:
    daemon = await serve(**calling(tmp_path))
    body = chat("one file", tools=[READ], options=LONG)
    whole = (await daemon.ask("POST", CHAT, {**body, "stream": False})).json
    [made] = whole["message"]["tool_calls"]
    assert made["function"] == {"index": 0, "name": "read", "arguments": {"path": "a.txt"}}
    assert whole["message"]["thinking"].strip() == "which one?" and whole["message"]["content"].strip() == "I look."
    streamed = [line["message"] for line in lines(await daemon.ask("POST", CHAT, body))]
    assert [one["function"] for message in streamed for one in message.get("tool_calls", ())] == [made["function"]]
    assert "".join(message.get("thinking", "") for message in streamed) == whole["message"]["thinking"]
    result = {"role": "tool", "content": "plain", "tool_name": "read"}
    past = [*body["messages"], whole["message"], result]
    done = (await daemon.ask("POST", CHAT, {**body, "messages": past, "stream": False})).json
    assert done["message"] == {"role": "assistant", "content": "Just text."} and done["done_reason"] == "stop"


async def test_thinking_can_be_switched_off(serve: Serve, tmp_path: Path) -> None:
    daemon = await serve(**calling(tmp_path))
    for path, body in ((CHAT, chat("ponder", options=LONG)), (GENERATE, generate("ponder", options=LONG))):
        thought = (await daemon.ask("POST", path, {**body, "think": True, "stream": False})).json
        told = thought.get("message", thought)
        assert (told["thinking"].strip(), told.get("content", told.get("response"))) == ("hm", "Yes.")
        off = (await daemon.ask("POST", path, {**body, "think": False, "stream": False})).json
        assert off["prompt_eval_count"] > thought["prompt_eval_count"]


async def test_an_answer_has_the_form_asked_for(daemon: Daemon) -> None:
    schema = {
        "type": "object",
        "properties": {"x": {"enum": ["a", "b"]}},
        "required": ["x"],
        "additionalProperties": False,
    }
    for path, body in ((CHAT, chat()), (GENERATE, generate()), (GENERATE, generate(raw=True))):
        answer = (await daemon.ask("POST", path, {**body, "format": schema, "options": LONG, "stream": False})).json
        text = answer["message"]["content"] if path == CHAT else answer["response"]
        assert json.loads(text)["x"] in ("a", "b") and answer["done_reason"] == "stop"
    refused = await daemon.ask("POST", CHAT, chat(format="sentence"))
    assert refused.status == 400
    wider = {**schema, "minProperties": 1, "propertyNames": {"maxLength": 1}}
    answer = (await daemon.ask("POST", CHAT, {**chat(), "format": wider, "options": LONG, "stream": False})).json
    assert json.loads(answer["message"]["content"])["x"] in ("a", "b")


async def test_an_answer_goes_on(serve: Serve, tmp_path: Path) -> None:
    daemon = await serve(**calling(tmp_path))
    past = [{"role": "user", "content": "plain"}, {"role": "assistant", "content": "Just"}]
    answer = (await daemon.ask("POST", CHAT, chat(messages=past, options=LONG, stream=False))).json
    assert answer["message"]["content"] == " text."


# --- what does not fit -----------------------------------------------------------------------------------------------


async def test_a_conversation_that_does_not_fit_is_cut(serve: Serve) -> None:
    """The truncated conversation begins at the same message as long as it fits, so that its tokens are reused while it
    grows.
    """
    daemon = await serve(ctx_size=256)
    history: list[Json] = [{"role": "system", "content": "never forget this"}]
    cold = 0
    for turn in range(40):
        history.append({"role": "user", "content": f"question {turn} of a conversation that goes on and on"})
        body = chat(messages=history, stream=False)
        answer = await daemon.ask("POST", CHAT, body, headers={"X-LLM-Session-Id": "s"})
        assert answer.status == 200, answer.body
        last = (await daemon.ask("GET", "/v1/sessions/s")).json["last"]
        cold += turn > 0 and last["reused_tokens"] < 30
        history.append(answer.json["message"])
    assert 0 < cold < 15, "it is cut now and then, not at every turn"
    for fields, status in (({}, 200), ({"truncate": True}, 200), ({"truncate": None}, 200), ({"truncate": False}, 400)):
        answer = await daemon.ask("POST", CHAT, chat(messages=history[:-1], stream=False, **fields))
        assert answer.status == status
    assert (answer.json["code"], answer.json["param"]) == ("context_length_exceeded", "messages")


async def test_the_last_message_is_never_cut(serve: Serve) -> None:
    daemon = await serve(ctx_size=64)
    said = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
    for n_words in (70, 5000):
        long = {"role": "user", "content": "word " * n_words}
        answer = await daemon.ask("POST", CHAT, chat(messages=[*said, long]))
        assert (answer.status, answer.json["code"]) == (400, "context_length_exceeded")


async def test_what_fits_is_rendered_once(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversation is rendered only once as long as it fits. When it no longer fits, it is truncated, so that the
    answer has room again.
    """
    daemon = await serve(ctx_size=256)
    render, n_rendered = daemon.state.engine.render_chat, 0

    async def counted(*given: Any) -> Any:
        nonlocal n_rendered
        n_rendered += 1
        return await render(*given)

    monkeypatch.setattr(daemon.state.engine, "render_chat", counted)
    history: list[Json] = []
    counts = []
    for turn in range(20):
        history += [{"role": "user", "content": f"question {turn}"}, {"role": "assistant", "content": f"answer {turn}"}]
        n_rendered = 0
        body = chat(messages=[*history, {"role": "user", "content": "and?"}], stream=False)
        answer = (await daemon.ask("POST", CHAT, body)).json
        counts.append((answer["prompt_eval_count"], n_rendered))
    before = [number for number, n in counts if n == 1]
    assert before == sorted(before) and len(before) > 5 and counts[: len(before)] == [(one, 1) for one in before]
    assert all(number < 256 - 8 for number, n in counts if n > 1) and len(before) < len(counts)


# --- the model -------------------------------------------------------------------------------------------------------


async def test_the_model_is_listed(daemon: Daemon) -> None:
    [tagged] = (await daemon.ask("GET", "/api/tags")).json["models"]
    [running] = (await daemon.ask("GET", "/api/ps")).json["models"]
    assert tagged["name"] == tagged["model"] == running["name"] == daemon.state.model_id
    assert tagged["digest"] == running["digest"] == daemon.state.engine.info.fingerprint
    assert running["context_length"] == daemon.state.engine.info.n_ctx
    assert (await daemon.ask("GET", "/api/version")).json["version"]


async def test_the_model_is_shown(serve: Serve) -> None:
    daemon = await serve(model="sim:dense,fim=1")
    shown = (await daemon.ask("POST", "/api/show", {"model": daemon.state.model_id})).json
    assert shown["model_info"]["sim.context_length"] == daemon.state.engine.info.n_ctx
    assert "messages" in shown["template"] and "temperature" in shown["parameters"]
    assert shown["capabilities"][:3] == ["completion", "insert", "tools"]
    assert "insert" not in (await (await serve()).ask("POST", "/api/show", {"name": "x"})).json["capabilities"]


async def test_what_ollama_itself_sends(daemon: Daemon) -> None:
    """Ollama's command line sends every field, even if its value is empty."""
    empty = {"system": "", "template": "", "options": None}
    assert (await daemon.ask("POST", "/api/show", {"model": "x", "name": "", "verbose": False, **empty})).status == 200
    asked: Json = {"suffix": "", "raw": False, "images": [], "context": [], "_debug_render_only": False, **empty}
    assert (await daemon.ask("POST", GENERATE, {"model": "x", "prompt": "", **asked})).json["done_reason"] == "load"
    plain = (await daemon.ask("POST", GENERATE, generate(stream=False))).json
    named = (await daemon.ask("POST", GENERATE, {**generate(stream=False), **asked, "options": SHORT})).json
    assert named["response"] == plain["response"]
    body = chat(_debug_render_only=False, keep_alive="5m", format="", tools=[], truncate=True, shift=True)
    assert lines(await daemon.ask("POST", CHAT, body))


async def test_somebody_is_there(daemon: Daemon) -> None:
    answer = await daemon.ask("GET", "/")
    assert (answer.status, answer.body) == (200, b"llmd is running")
    assert (await daemon.ask("HEAD", "/")).status == 200


# --- refusals --------------------------------------------------------------------------------------------------------

REFUSED: tuple[tuple[Json, str, str], ...] = (
    ({"options": {"temperature": 101}}, "options.temperature", "invalid_value"),
    ({"options": {"temperature": "hot"}}, "options.temperature", "invalid_type"),
    ({"options": {"stop": ["x"] * 17}}, "options.stop", "invalid_value"),
    ({"options": 5}, "options", "invalid_type"),
    ({"stream": "yes"}, "stream", "invalid_type"),
    ({"format": "xml"}, "format", "invalid_value"),
    ({"think": "sometimes"}, "think", "invalid_value"),
    ({"top_logprobs": 2}, "top_logprobs", "invalid_value"),
)
REFUSED_CHATS: tuple[tuple[Json, str, str], ...] = (
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", "invalid_value"),
    ({"messages": [{"content": "x"}]}, "messages[0].role", "missing_parameter"),
    ({"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, "messages[0].images",
     "unsupported_parameter"),
    ({"messages": [{"role": "assistant", "content": ""}]}, "messages", "invalid_value"),
    ({"messages": "hello"}, "messages", "invalid_type"),
    ({"tools": [{"type": "function", "function": {"name": "f g"}}]}, "tools[0].function.name", "invalid_value"),
    ({"tools": [{"type": "function"}]}, "tools[0].function", "missing_parameter"),
)  # fmt: skip
REFUSED_PROMPTS: tuple[tuple[Json, str, str], ...] = (
    ({"prompt": 5}, "prompt", "invalid_type"),
    ({"images": ["aGk="]}, "images", "unsupported_parameter"),
    ({"context": [1, 2]}, "context", "unsupported_parameter"),
    ({"template": "{{ .Prompt }}"}, "template", "unsupported_parameter"),
    ({"suffix": "end"}, "suffix", "unsupported_parameter"),
    ({"raw": True, "system": "s"}, "system", "invalid_value"),
    ({"raw": True, "think": True}, "think", "invalid_value"),
)
ASKED = [(CHAT, chat(), *row) for row in (*REFUSED, *REFUSED_CHATS)] + [
    (GENERATE, generate(), *row) for row in (*REFUSED, *REFUSED_PROMPTS)
]


async def test_a_refusal_names_the_field(daemon: Daemon) -> None:
    for path, body, fields, param, code in ASKED:
        answer = await daemon.ask("POST", path, {**body, **fields})
        assert answer.status == 400, (fields, answer.body)
        assert set(answer.json) == {"error", "code", "param"}
        assert (answer.json["param"], answer.json["code"]) == (param, code), answer.json
        assert param in answer.json["error"]


async def test_unknown_names_are_ignored_and_logged_once(daemon: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    """Ollama ignores unknown names, too, because clients send names of other versions and forks."""
    caplog.set_level("INFO", "llmd")
    unknown: Json = {"keepalive": 5, "prompts": "x", "options": {**SHORT, "temprature": 1, "tfs_z": 0.5}}
    for _ in range(2):
        for path, body in ((CHAT, chat()), (GENERATE, generate())):
            assert (await daemon.ask("POST", path, {**body, **unknown})).status == 200
    ignored = [record.__dict__["fields"] for record in caplog.records if record.message == "parameter ignored"]
    assert sorted((one["request"], one["param"]) for one in ignored) == [
        ("OllamaChatRequest", "keepalive"), ("OllamaChatRequest", "prompts"),
        ("OllamaGenerateRequest", "keepalive"), ("OllamaGenerateRequest", "prompts"),
        ("Options", "options.temprature"),
    ]  # fmt: skip


async def test_errors_before_the_handler_have_the_same_envelope(serve: Serve) -> None:
    daemon = await serve(body_limit=4096)
    for path in (CHAT, GENERATE, "/api/show"):
        for body, status in ((b"{", 400), (b"[]", 400), (b"x" * 5000, 413)):
            answer = await daemon.ask("POST", path, body)
            assert answer.status == status and isinstance(answer.json["error"], str)
        assert isinstance((await daemon.ask("DELETE", path)).json["error"], str)


async def test_models_are_not_changed_here(daemon: Daemon) -> None:
    for method, path in models.CHANGES:
        answer = await daemon.ask(method, path, {"model": "llama3", "stream": True})
        assert (answer.status, answer.json["code"]) == (404, "not_found")
        assert answer.json["error"].startswith("llmd serves one model, ")
        answer = await daemon.ask("GET", path)
        assert (answer.status, answer.json["code"]) == (405, "method_not_allowed")
        assert isinstance(answer.json["error"], str)


# --- what is asked ---------------------------------------------------------------------------------------------------


def asked_chat(**fields: Any) -> Any:
    return chat_of(msgspec.convert(chat(**fields), OllamaChatRequest), [])


def test_tools_and_calls_are_read() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": schema}}
    call = {"function": {"name": "weather", "arguments": {"city": "Bern"}}}
    messages = [
        {"role": "user", "content": "how is it?"},
        {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [call]},
        {"role": "assistant", "content": " "},
        {"role": "tool", "content": "sunny", "tool_name": "weather"},
    ]
    prompt = asked_chat(messages=messages, tools=[tool]).prompt
    assert isinstance(prompt, ChatPrompt)
    assert prompt.tools == (Tool("weather", "of a city", schema),)
    assert prompt.messages == [
        PlainMessage("user", "how is it?"),
        PlainMessage("assistant", "", (PlainToolCall("weather", '{"city":"Bern"}'),), reasoning="hm"),
        PlainMessage("tool", "sunny", name="weather"),
    ]
    assert not prompt.continues


def test_a_call_without_arguments_is_read() -> None:
    calls = [{"function": {"name": "f", "arguments": None}}, {"function": {"name": "g"}}]
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": calls}]
    assert asked_chat(messages=messages).prompt.messages[-1].tool_calls == (
        PlainToolCall("f", "{}"), PlainToolCall("g", "{}"),
    )  # fmt: skip


def test_an_image_of_a_result_is_told() -> None:
    result = {"role": "tool", "tool_name": "f", "content": "a.png", "images": ["AAAA", "BBBB"]}
    found = asked_chat(messages=[{"role": "user", "content": "q"}, result]).prompt
    no_image = "[image: not shown, this model reads text only]"
    assert isinstance(found, ChatPrompt) and found.messages[-1].content == f"a.png\n{no_image}\n{no_image}"


def test_an_answer_that_was_begun_is_continued() -> None:
    messages = [{"role": "user", "content": "count"}, {"role": "assistant", "content": "one, two"}]
    assert asked_chat(messages=messages).prompt.continues


def test_formats_and_thinking_are_read() -> None:
    assert asked_chat(format="").constraint is None
    assert asked_chat(format="json").constraint == Constraint("json", "", "format")
    schema = {"type": "object"}
    expected = Constraint("json_schema", '{"type":"object"}', "format", is_strict=False)
    assert asked_chat(format=schema).constraint == expected
    assert asked_chat().prompt.variables == {}
    assert asked_chat(think=False).prompt.variables == {"enable_thinking": False}
    assert asked_chat(think="low").prompt.variables == {"enable_thinking": True, "reasoning_effort": "low"}
    assert asked_chat(think="max").prompt.variables == {"enable_thinking": True, "reasoning_effort": "high"}


def test_an_answer_goes_on_with_a_text_and_not_with_calls() -> None:
    begun = {"role": "assistant", "content": "It is"}
    calls = {**begun, "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}
    question = {"role": "user", "content": "q"}
    assert [asked_chat(messages=[question, last]).prompt.continues for last in (question, begun, calls)] == [
        False, True, False,
    ]  # fmt: skip


def test_an_end_of_the_text_is_a_suffix() -> None:
    found = generate_of(msgspec.convert(generate("a", suffix="c"), OllamaGenerateRequest), [])
    assert found is not None and found.prompt == RawPrompt("a", parse_special=False, suffix="c")


@pytest.mark.parametrize("n", [0, -1, -2])
def test_no_limit(n: int) -> None:
    assert asked_chat(options={"num_predict": n}).max_tokens == 0


# --- what is told ----------------------------------------------------------------------------------------------------

REPORT = SessionReport(None, 1, 2, None, 1.0, 2.0, 3.0)
END = End(0, "end", UsedTokens(10, 4, 5), REPORT)


def test_every_time_is_told_however_short() -> None:
    """The prefill of a prompt that is completely resident takes less than a microsecond. Clients divide by the time, so
    it must not be 0.
    """
    at_once = SessionReport(None, 10, 0, None, 0.0, 0.0, 0.0)
    told = measures_of(End(0, "end", UsedTokens(10, 10, 5), at_once))
    assert min(told[f"{what}_duration"] for what in ("load", "prompt_eval", "eval")) == 1


ANSWER: tuple[Part, ...] = (
    ReasoningPart(0, "hm"),
    TextPart(0, "so: "),
    ToolCallPiece(0, 0, "", "c1", "f"),
    ToolCallPiece(0, 0, '{"x":'),
    ToolCallPiece(0, 0, "1}"),
    ToolCallPiece(0, 1, "", "c2", "g"),
    END,
)
CALLS = [
    {"id": "c1", "function": {"index": 0, "name": "f", "arguments": {"x": 1}}},
    {"id": "c2", "function": {"index": 1, "name": "g", "arguments": {}}},
]


def told(writer: Any, parts: tuple[Part, ...]) -> list[Json]:
    found = b"".join([writer.opening(), *(writer.events([part]) for part in parts), writer.ending()])
    return [json.loads(line) for line in found.splitlines()]


async def test_calls_come_whole(daemon: Daemon) -> None:
    streamed = told(OllamaChatWriter(daemon.state), ANSWER)
    messages = [line["message"] for line in streamed]
    assert [message.get("thinking", "") for message in messages] == ["hm", "", "", "", ""]
    assert [message["content"] for message in messages] == ["", "so: ", "", "", ""]
    assert [call for message in messages for call in message.get("tool_calls", ())] == CALLS
    whole = json.loads(OllamaChatWriter(daemon.state).complete(ANSWER))
    assert whole["message"] == {"role": "assistant", "content": "so: ", "thinking": "hm", "tool_calls": CALLS}
    assert whole["done_reason"] == streamed[-1]["done_reason"] == "stop"
    assert (whole["total_duration"], whole["prompt_eval_count"], whole["eval_count"]) == (6_000_000, 10, 5)


@pytest.mark.parametrize(
    "end", [End(0, "length", END.usage, REPORT), End(0, "stop", END.usage, REPORT, has_broken_call=True)]
)
async def test_a_call_that_was_cut_is_a_call_as_far_as_it_came(daemon: Daemon, end: End) -> None:
    cut: tuple[Part, ...] = (*ANSWER[1:3], ToolCallPiece(0, 0, '{"x": 1, "y": "a, b', "c1", "f"), end)
    streamed = told(OllamaChatWriter(daemon.state), cut)
    whole = json.loads(OllamaChatWriter(daemon.state).complete(cut))
    assert "".join(line["message"]["content"] for line in streamed) == whole["message"]["content"] == "so: "
    [call] = [call for line in streamed for call in line["message"].get("tool_calls", ())]
    assert whole["message"]["tool_calls"] == [call] and call["function"] == CALLS[0]["function"]
    assert whole["done_reason"] == streamed[-1]["done_reason"] == end.reason


async def test_a_call_that_is_no_object_at_its_own_end_is_text(daemon: Daemon) -> None:
    parts = (ToolCallPiece(0, 0, '{"x":', "c1", "f"), END)
    whole = json.loads(OllamaChatWriter(daemon.state).complete(parts))
    assert whole["message"] == {"role": "assistant", "content": 'f({"x":)'}


async def test_a_line_is_whole_however_a_model_writes_arguments(daemon: Daemon) -> None:
    """Many models write each argument on a line of its own."""
    parts = (ToolCallPiece(0, 0, '{\n  "x":\r\n 1\n}\n', "c1", "f"), END)
    (called, _), writer = told(OllamaChatWriter(daemon.state), parts), OllamaChatWriter(daemon.state)
    assert called["message"]["tool_calls"] == CALLS[:1]
    assert writer.complete(parts).count(b"\n") == 0


@pytest.mark.parametrize("arguments", ['{"x":' + "[" * 20_000 + "]" * 20_000 + "}", '{"x":1} {"y":2}'])
async def test_arguments_that_cannot_be_told_as_such_are_text(daemon: Daemon, arguments: str) -> None:
    parts = (ToolCallPiece(0, 0, arguments, "c1", "f"), END)
    first, last = told(OllamaChatWriter(daemon.state), parts)
    assert first["message"] == {"role": "assistant", "content": f"f({arguments})"} and last["done"]


async def test_thoughts_of_a_generated_text(daemon: Daemon) -> None:
    streamed = told(GenerateWriter(daemon.state), (*ANSWER[:2], END))
    assert [(line["response"], line.get("thinking", "")) for line in streamed] == [("", "hm"), ("so: ", ""), ("", "")]
    whole = json.loads(GenerateWriter(daemon.state).complete((*ANSWER[:2], END)))
    assert (whole["response"], whole["thinking"]) == ("so: ", "hm")


async def test_a_failure_is_told(daemon: Daemon) -> None:
    [line] = told(GenerateWriter(daemon.state), (Failed(0, ApiError("torn")),))
    assert line["code"] == "torn"


# --- log probabilities -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "make"), [(CHAT, chat), (GENERATE, generate)])
async def test_log_probabilities_come_with_the_text(daemon: Daemon, path: str, make: Any) -> None:
    fields = {"logprobs": True, "options": {"num_predict": 40, "temperature": 1.0, "seed": 3}}
    body = make(**fields, top_logprobs=2)
    whole = (await daemon.ask("POST", path, {**body, "stream": False})).json
    streamed = lines(await daemon.ask("POST", path, body))
    assert [one for line in streamed for one in line.get("logprobs", [])] == whole["logprobs"]
    n_told = whole["eval_count"] - (whole["done_reason"] == "stop")  # the token that ends the answer has no text
    assert len(whole["logprobs"]) == n_told > 8
    for one in whole["logprobs"]:
        assert set(one) == {"token", "logprob", "bytes", "top_logprobs"} and one["logprob"] <= 0
        assert bytes(one["bytes"]).decode("utf-8", "replace") == one["token"]
        assert [likely["logprob"] for likely in one["top_logprobs"]] == sorted(
            (likely["logprob"] for likely in one["top_logprobs"]), reverse=True
        )
        assert len(one["top_logprobs"]) == 2
    alone = (await daemon.ask("POST", path, make(**fields, stream=False))).json
    assert [one["logprob"] for one in alone["logprobs"]] == [one["logprob"] for one in whole["logprobs"]]
    assert all(one["top_logprobs"] == [] for one in alone["logprobs"])
    plain = make(options=fields["options"])
    assert "logprobs" not in (await daemon.ask("POST", path, {**plain, "stream": False})).json
    assert not any("logprobs" in line for line in lines(await daemon.ask("POST", path, plain)))


async def test_of_a_call_all_tokens_are_told(serve: Serve, tmp_path: Path) -> None:
    """Log probabilities of tokens without text are reported in lines without text."""
    daemon = await serve(**calling(tmp_path))
    body = {**chat("two files", tools=[READ], logprobs=True), "options": {"num_predict": 300, "temperature": 0}}
    streamed = lines(await daemon.ask("POST", CHAT, body))
    whole = (await daemon.ask("POST", CHAT, {**body, "stream": False})).json
    assert whole["message"]["tool_calls"] and len(whole["logprobs"]) > 10
    assert [one for line in streamed for one in line.get("logprobs", [])] == whole["logprobs"]
    assert [c for line in streamed for c in line["message"].get("tool_calls", [])]


@pytest.mark.parametrize(
    ("fields", "why"), [({"logprobs": True, "top_logprobs": 21}, "20"), ({"top_logprobs": 2}, "requires logprobs")]
)
async def test_log_probabilities_that_cannot_be_told_are_refused(daemon: Daemon, fields: Json, why: str) -> None:
    answer = await daemon.ask("POST", CHAT, chat(**fields))
    assert (answer.status, answer.json["param"]) == (400, "top_logprobs") and why in answer.json["error"]
