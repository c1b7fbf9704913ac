"""POST /v1/chat/completions with tool calls, reasoning and output formats. The simulated model generates the text of
its script, and fake_parser.py parses this text.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llmd.core import limits
from llmd.dialects.openai import endpoints as endpoint
from llmd.dialects.openai import reader
from llmd.engine.answer_parser import Diff
from llmd.engine.native import lib
from llmd.pipeline.answer_record import spelled
from tests.conftest import Serve
from tests.fake_parser import FakeParser, parsed_by
from tests.serving import Daemon, Events, Json, chat

SCRIPT = """\
? read it
<think>Which file? a.txt.</think>I look.<call read>{"path": "a.txt", "lines": [1, 2.0]}</call>
? read both
<call read>{"path": "a"}</call><call read>{"path": "b"}</call>
? ponder
<think>hm</think>Yes.
? wonder
<think>hm
? plain
Just text.
? cut
<call read>{"path": "a.txt
? broken
before <call read{"path"
"""
READ = {
    "type": "function",
    "function": {"name": "read", "description": "Reads a file", "parameters": {"type": "object", "properties": {}}},
}
USAGE = {"stream_options": {"include_usage": True}}


@pytest.fixture
async def scripted(serve: Serve, tmp_path: Path) -> Daemon:
    file = tmp_path / "script"
    file.write_text(SCRIPT)
    return await serve(model=f"sim:hybrid,script={file}")


@pytest.fixture
def renders(scripted: Daemon, monkeypatch: pytest.MonkeyPatch) -> list[Json]:
    """Makes answers parsed. Returns the list of requests to the renderer."""
    return parsed_by(monkeypatch, scripted)


def ask(text: str, **fields: Any) -> Json:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 200, "temperature": 0, **fields}


async def whole(daemon: Daemon, body: Json) -> Json:
    answer = await daemon.ask("POST", "/v1/chat/completions", body)
    assert answer.status == 200, answer.body
    return answer.json


async def message(daemon: Daemon, body: Json) -> tuple[Json, str]:
    [choice] = (await whole(daemon, body))["choices"]
    return choice["message"], choice["finish_reason"]


def gathered(events: Events, index: int = 0) -> tuple[Json, str]:
    """Returns the message that clients assemble from a stream, and the finish reason. Checks the form that OpenAI's own
    clients require.
    """
    found: Json = {}
    reasons = []
    for chunk in events.chunks:
        for choice in chunk["choices"]:
            if choice["index"] != index:
                continue
            delta = choice["delta"]
            if "role" in delta:
                assert delta == {"role": "assistant", "content": ""} and not found
                found = {"role": "assistant", "content": ""}
            else:
                assert found, "the role comes first"
                _join(found, delta)
            reasons += [choice["finish_reason"]] if choice["finish_reason"] else []
    assert events.done and len(reasons) == 1
    return found, reasons[0]


def _join(found: Json, delta: Json) -> None:
    assert set(delta) <= {"content", "reasoning_content", "tool_calls", "function_call"} and None not in delta.values()
    for name in {"content", "reasoning_content"} & set(delta):
        assert delta[name]
        found[name] = found.get(name, "") + delta[name]
    if "function_call" in delta:
        _join_function(found.setdefault("function_call", {}), delta["function_call"])
    for piece in delta.get("tool_calls", []):
        calls = found.setdefault("tool_calls", [])
        if piece["index"] == len(calls):
            assert piece["id"] and piece["type"] == "function" and piece["function"]["name"]
            calls.append({"id": piece["id"], "type": "function", "function": {}})
        else:
            assert piece["index"] == len(calls) - 1 and set(piece) == {"index", "function"}
        _join_function(calls[-1]["function"], piece["function"])


def _join_function(found: Json, piece: Json) -> None:
    assert ("name" in piece) == (not found), "a name comes once"
    found.setdefault("name", piece.get("name"))
    found["arguments"] = found.get("arguments", "") + piece["arguments"]


def without_ids(said: Json) -> Json:
    calls = [{**call, "id": ""} for call in said.get("tool_calls", [])]
    return {**said, **({"tool_calls": calls} if calls else {})}


# --- calls -----------------------------------------------------------------------------------------------------------


async def test_a_call(scripted: Daemon, renders: list[Json]) -> None:
    said, reason = await message(scripted, ask("read it", tools=[READ]))
    assert reason == "tool_calls"
    [call] = said.pop("tool_calls")
    assert call.pop("id").startswith("call_")
    assert call == {
        "type": "function",
        "function": {"name": "read", "arguments": '{"path": "a.txt", "lines": [1, 2.0]}'},
    }
    assert said == {
        "role": "assistant", "content": "I look.", "refusal": None, "reasoning_content": "Which file? a.txt.",
    }  # fmt: skip
    [rendered] = renders
    assert rendered["tools"] == [READ] and rendered["tool_choice"] == {"mode": "auto", "names": []}
    assert "parallel_tool_calls" not in rendered


async def test_only_calls_have_no_content(scripted: Daemon, renders: list[Json]) -> None:
    said, reason = await message(scripted, ask("read both", tools=[READ]))
    assert reason == "tool_calls" and said["content"] is None
    assert [call["function"]["arguments"] for call in said["tool_calls"]] == ['{"path": "a"}', '{"path": "b"}']
    assert len({call["id"] for call in said["tool_calls"]}) == 2


@pytest.mark.parametrize("text", ["read it", "read both", "ponder", "wonder", "plain", "cut", "broken"])
@pytest.mark.parametrize("fields", [{}, USAGE], ids=["", "usage"])
async def test_a_stream_says_what_a_whole_says(scripted: Daemon, renders: list[Json], text: str, fields: Json) -> None:
    body = ask(text, tools=[READ])
    said, reason = await message(scripted, body)
    events = await scripted.stream({**body, **fields})
    told, told_reason = gathered(events)
    assert told_reason == reason
    del said["refusal"]
    assert without_ids(told) == without_ids({**said, "content": said["content"] or ""})
    usages = [chunk["usage"] for chunk in events.chunks if "usage" in chunk]
    assert len(usages) == len(fields)


async def test_what_was_cut_off_is_told_as_far_as_it_came(scripted: Daemon, renders: list[Json]) -> None:
    said, reason = await message(scripted, ask("cut", tools=[READ], max_tokens=12))
    assert reason == "length"
    assert '{"path": "a.txt'.startswith(said["tool_calls"][0]["function"]["arguments"])
    said, reason = await message(scripted, ask("read it", tools=[READ], stop=["lines"]))
    assert reason == "stop" and said["tool_calls"][0]["function"]["arguments"] == '{"path": "a.txt", "'


async def test_what_was_cut_off_before_it_had_a_name_is_nothing(scripted: Daemon, renders: list[Json]) -> None:
    body = ask("cut", tools=[READ], max_tokens=8)
    said, reason = await message(scripted, body)
    told, told_reason = gathered(await scripted.stream(body))
    assert said["content"] == told["content"] == "" and reason == told_reason == "length"
    assert "tool_calls" not in said and "tool_calls" not in told


async def test_a_templates_stops_take_no_room_of_the_clients(scripted: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tuple(f"<never {n}>" for n in range(lib.LLM_TEMPLATE_STOPS_MAX - 1))
    parsed_by(monkeypatch, scripted, stops=(*own, "before"))
    most = [f"unlikely {n}" for n in range(limits.STOP_STRINGS_MAX)]
    said, reason = await message(scripted, ask("broken", tools=[READ], stop=most))
    assert (said["content"] or "", reason) == ("", "stop")


async def test_malformed_calls_are_text(scripted: Daemon, renders: list[Json]) -> None:
    said, reason = await message(scripted, ask("broken", tools=[READ]))
    assert reason == "stop" and said["content"] == 'before <call read{"path"' and "tool_calls" not in said


async def test_several_answers(scripted: Daemon, renders: list[Json], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer has its own parser and its own ids."""
    read = reader.chat_of
    monkeypatch.setattr(endpoint, "chat_of", lambda *given: msgspec.structs.replace(read(*given), n_answers=2))
    events = await scripted.stream(ask("read both", tools=[READ]))
    both = [gathered(events, index) for index in (0, 1)]
    assert [reason for _, reason in both] == ["tool_calls"] * 2
    assert without_ids(both[0][0]) == without_ids(both[1][0])
    assert len({call["id"] for said, _ in both for call in said["tool_calls"]}) == 4


# --- the first interface ---------------------------------------------------------------------------------------------


async def test_functions_are_answered_as_they_were(scripted: Daemon, renders: list[Json]) -> None:
    body = ask("read both", functions=[READ["function"]])
    said, reason = await message(scripted, body)
    assert reason == "function_call" and said["content"] is None and "tool_calls" not in said
    assert said["function_call"] == {"name": "read", "arguments": '{"path": "a"}'}
    told, told_reason = gathered(await scripted.stream(body))
    assert told_reason == reason and told["function_call"] == said["function_call"] and "tool_calls" not in told
    assert renders[0]["tools"] == [READ] and renders[0]["parallel_tool_calls"] is False


# --- what was thought ------------------------------------------------------------------------------------------------


async def test_thoughts(scripted: Daemon, renders: list[Json]) -> None:
    answer = await whole(scripted, ask("ponder"))
    said = answer["choices"][0]["message"]
    assert (said["content"], said["reasoning_content"]) == ("Yes.", "hm")
    details = answer["usage"]["completion_tokens_details"]
    assert 0 < details["reasoning_tokens"] < answer["usage"]["completion_tokens"]
    plain = await whole(scripted, ask("plain"))
    assert (
        "completion_tokens_details" not in plain["usage"] and "reasoning_content" not in plain["choices"][0]["message"]
    )


async def test_only_thoughts_have_an_empty_content(scripted: Daemon, renders: list[Json]) -> None:
    said, reason = await message(scripted, ask("wonder"))
    assert (said["content"], said["reasoning_content"], reason) == ("", "hm", "stop")


async def test_streamed_usage_has_thoughts(scripted: Daemon, renders: list[Json]) -> None:
    last = (await scripted.stream(ask("ponder", **USAGE))).chunks[-1]
    assert last["choices"] == [] and last["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0


# --- what the renderer is told ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, {}),
        ({"tools": [READ], "tool_choice": "required"}, {"tool_choice": {"mode": "required", "names": []}}),
        ({"tools": [READ], "tool_choice": {"type": "function", "function": {"name": "read"}}},
         {"tool_choice": {"mode": "required", "names": ["read"]}}),
        ({"tools": [READ], "tool_choice": "none"}, {"tool_choice": {"mode": "none", "names": []}}),
        ({"tools": [READ], "parallel_tool_calls": True}, {"parallel_tool_calls": True}),
        ({"response_format": {"type": "json_object"}}, {"constraint": {"kind": "json", "text": "", "strict": True}}),
        ({"guided_regex": "a+"}, {"constraint": {"kind": "regex", "text": "a+", "strict": True}}),
        ({"reasoning_format": "none"}, {"reasoning_apart": False}),
        ({"thinking_budget": 5}, {"thinking_tokens_max": 5}),
        ({"messages": [{"role": "user", "content": "plain"}, {"role": "assistant", "content": "Just"}],
          "continue_final_message": True}, {"continues": True}),
    ],
)  # fmt: skip
async def test_the_renderer_is_told(scripted: Daemon, renders: list[Json], fields: Json, told: Json) -> None:
    await whole(scripted, ask("plain", max_tokens=2) | fields)
    [rendered] = renders
    names = (
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "constraint",
        "reasoning_apart",
        "thinking_tokens_max",
        "continues",
    )
    tools = {"tools": [READ], "tool_choice": {"mode": "auto", "names": []}} if "tools" in fields else {}
    assert {name: rendered[name] for name in names if name in rendered} == {**tools, **told}


# --- what comes back -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "echo",
    [
        lambda said: said,
        lambda said: {"role": "assistant", "content": said["content"], "tool_calls": reserialized(said)},
        lambda said: {"role": "assistant", "content": [{"type": "text", "text": said["content"] or ""}],
                      "reasoning": said.get("reasoning_content"), "tool_calls": reserialized(said)},
    ],
    ids=["as it is", "stripped, with other spaces and order", "in parts, thoughts under another name"],
)  # fmt: skip
async def test_a_tool_loop_is_warm(scripted: Daemon, renders: list[Json], echo: Any) -> None:
    """The generated text is found by its parsed form, although the text that the client sends back differs."""
    body = ask("read it", tools=[READ], session_id="s")
    first = await whole(scripted, body)
    said = first["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "read both"}
    second = await whole(scripted, {**body, "messages": [*body["messages"], echo(said), result]})
    assert second["session"]["session_reset_reason"] == "exact_prefix"
    n_before = first["usage"]["total_tokens"]
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= n_before - 1
    assert second["choices"][0]["finish_reason"] == "tool_calls"


def reserialized(said: Json) -> list[Json]:
    return [{**call, "function": {**call["function"], "arguments": turned(call)}} for call in said["tool_calls"]]


def turned(call: Json) -> str:
    arguments = json.loads(call["function"]["arguments"])
    return json.dumps(dict(reversed(arguments.items())), separators=(",", ":"))


async def test_a_streamed_call_is_kept_before_its_end_is_told(scripted: Daemon, renders: list[Json]) -> None:
    body = ask("read both", tools=[READ], session_id="s")
    told, _ = gathered(await scripted.stream(body))
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "plain"} for call in told["tool_calls"]]
    second = await whole(scripted, {**body, "messages": [*body["messages"], told, *results]})
    assert second["session"]["session_reset_reason"] == "exact_prefix"


async def test_an_answer_of_nothing_is_not_kept(scripted: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        n_reread = 0

        def feed(self, text: str, is_final: bool, is_cut: bool = False) -> list[Diff]:
            return [Diff("text", " \n")] if is_final else []

    parsed_by(monkeypatch, scripted, Silent)
    await whole(scripted, ask("plain", session_id="s"))
    assert scripted.state.answers.n_bytes == 0


THOUGHTS_BETWEEN_CONTROL_WORDS = """\
{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<|endoftext|>{{ m.reasoning_content }}<|im_start|>{% endif %}{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@pytest.mark.parametrize("are_words", [True, False])
async def test_control_words_of_the_answer_s_form_are_a_part_of_its_text(
    serve: Serve, tmp_path: Path, are_words: bool
) -> None:
    """Other control words, such as the end of an answer, have no text in the answer."""
    file = tmp_path / "template"
    file.write_text(THOUGHTS_BETWEEN_CONTROL_WORDS)
    engine = (await serve(chat_template_file=file) if are_words else await serve()).state.engine
    prompt = await engine.render_chat(0, 0, lambda: b'{"messages":[{"role":"user","content":"hi"}]}')
    answer = "<|endoftext|>a<|im_start|>b<|im_end|>"
    tokens = await engine.tokenize(0, answer, add_special=False, parse_special=True)
    text = spelled(engine, frozenset(memoryview(prompt.preserved).cast("i")), tokens).decode()
    assert text == ("<|endoftext|>a<|im_start|>b" if are_words else "ab")


# --- what goes wrong -------------------------------------------------------------------------------------------------


class Broken:
    n_reread = 0

    def feed(self, text: str, is_final: bool, is_cut: bool = False) -> list[Diff]:
        raise RuntimeError("a defect")


async def test_a_parser_that_fails_leaves_the_text(scripted: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed_by(monkeypatch, scripted, Broken)
    said, reason = await message(scripted, ask("ponder"))
    assert (said["content"], reason) == ("<think>hm</think>Yes.", "stop")
    events = await scripted.stream(ask("ponder"))
    assert events.text == said["content"] and events.error is None


async def test_a_stream_that_tells_nothing_yet_is_no_comment(scripted: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text that a parser holds back is neither an empty event nor a sign that the stream is silent."""

    class Late(FakeParser):
        def feed(self, text: str, is_final: bool, is_cut: bool = False) -> list[Diff]:
            self._held += text
            return super().feed("", True) if is_final else []

    parsed_by(monkeypatch, scripted, Late)
    events = await scripted.stream(ask("read both", tools=[READ]))
    assert events.comments == 0 and len(gathered(events)[0]["tool_calls"]) == 2


async def test_texts_that_end_a_template_s_answers_are_stops(scripted: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed_by(monkeypatch, scripted, stops=(" text",))
    said, reason = await message(scripted, ask("plain", stop=["never"]))
    assert (said["content"], reason) == ("Just", "stop")


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"tools": {}}, "invalid_type", "tools"),
        ({"tools": [READ, 5]}, "invalid_type", "tools[1]"),
        ({"tools": [{"type": "function", "function": {}}]}, "missing_parameter", "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]}, "invalid_type",
         "tools[0].function.parameters"),
        ({"tools": [{"type": "function", "function": {"name": 5}}]}, "invalid_type", "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "f", "description": "x" * limits.TOOLS_BYTES_MAX}}]},
         "invalid_value", "tools"),
        ({"tools": [READ], "tool_choice": "some"}, "invalid_value", "tool_choice"),
        ({"tools": [READ], "tool_choice": {"type": "mcp"}}, "invalid_value", "tool_choice.type"),
        ({"tools": [READ], "tool_choice": {"type": "function", "function": {}}}, "missing_parameter",
         "tool_choice.function.name"),
        ({"tools": [READ], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}},
         "invalid_type", "tool_choice.allowed_tools.tools"),
        ({"tools": [READ], "parallel_tool_calls": "no"}, "invalid_type", "parallel_tool_calls"),
        ({"functions": [{}]}, "missing_parameter", "functions[0].name"),
        ({"functions": [{"name": "f"}], "function_call": "required"}, "invalid_value", "function_call"),
        ({"response_format": "json"}, "invalid_type", "response_format"),
        ({"response_format": {"type": "xml"}}, "invalid_value", "response_format.type"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": True}}}, "invalid_type",
         "response_format.json_schema.schema"),
        ({"guided_choice": "a"}, "invalid_type", "guided_choice"),
        ({"guided_json": 5}, "invalid_type", "guided_json"),
        ({"structured_outputs": {"choice": [5]}}, "invalid_type", "structured_outputs.choice[0]"),
        ({"grammar": ["root"]}, "invalid_type", "grammar"),
        ({"grammar": "x" * 70_000}, "invalid_value", "grammar"),
        ({"thinking": {"budget_tokens": "many"}}, "invalid_type", "thinking.budget_tokens"),
        ({"continue_final_message": "yes"}, "invalid_type", "continue_final_message"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]}, "missing_parameter",
         "messages[0].tool_calls[0].function.name"),
        ({"messages": [{"role": "assistant", "function_call": {"name": "f", "arguments": 5}}]}, "invalid_type",
         "messages[0].function_call.arguments"),
    ],
)  # fmt: skip
async def test_what_will_not_do_names_its_field(daemon: Daemon, fields: Json, code: str, param: str) -> None:
    answer = await daemon.ask("POST", "/v1/chat/completions", io.BytesIO(json.dumps(chat() | fields).encode()))
    assert (answer.status, answer.error["code"], answer.error["param"]) == (400, code, param), answer.error
    assert param in answer.error["message"]
