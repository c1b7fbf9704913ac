"""Parts of answers as responses and events, without a model: reasoning, calls, and several items."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from llmd.core.errors import ApiError
from llmd.core.generation_request import PlainMessage, PlainToolCall
from llmd.core.parts import (
    Details,
    End,
    EndReason,
    Failed,
    GeneratedToken,
    Part,
    PromptTokens,
    ReasoningPart,
    SessionReport,
    TextPart,
    TokenProbability,
    ToolCallPiece,
    UsedTokens,
)
from llmd.dialects.custom_tools import CustomInput
from llmd.dialects.responses.items import items_of, messages_of
from llmd.dialects.responses.reader import response_of
from llmd.dialects.responses.store import ResponseStore
from llmd.dialects.responses.wire import ResponseRequest
from llmd.dialects.responses.writer import ResponseWriter
from tests.responses import MESSAGE_NAMES as MESSAGE
from tests.responses import deltas, events_of, names
from tests.serving import Daemon, Json

REPORT = SessionReport("s", 3, 4, "new", 0.5, 1.5, 2.5)
USAGE = {
    "input_tokens": 7, "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
    "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 12,
}  # fmt: skip
TOOLS: list[Json] = [
    {"type": "custom", "name": "patch"},
    {"type": "namespace", "name": "files", "tools": [{"type": "function", "name": "read"}]},
]
OPENED = ["created", "in_progress"]
CALL = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"]
CUSTOM = ["output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done", "output_item.done"]
SUMMARY = [
    "output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta", "reasoning_summary_text.done",
    "reasoning_summary_part.done", "output_item.done",
]  # fmt: skip
RAW = [
    "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done",
    "output_item.done",
]  # fmt: skip


def end(reason: EndReason = "end") -> End:
    return End(0, reason, UsedTokens(7, 3, 5, 2), REPORT)


def writer_of(daemon: Daemon, **fields: Any) -> ResponseWriter:
    wanted = msgspec.json.decode(json.dumps({"input": "x", "tools": TOOLS, **fields}), type=ResponseRequest)
    return ResponseWriter(daemon.state, parsed=response_of(wanted, [], ResponseStore(), 0), keep=None)


def written(writer: ResponseWriter, *parts: Part) -> list[Json]:
    return events_of(writer.opening() + b"".join(writer.events([part]) for part in parts) + writer.ending())


def piece(call: int, arguments: str, name: str | None = None, id: str | None = None) -> ToolCallPiece:
    return ToolCallPiece(0, call, arguments, id, name)


EVERYTHING: tuple[Part, ...] = (
    ReasoningPart(0, "let me "), ReasoningPart(0, "see"), TextPart(0, 'I "read"'), TextPart(0, " é\n"),
    piece(0, "", "files__read", "call_1"), piece(0, '{"path":'), piece(0, '"a.txt"}'),
    piece(1, '{"input": "one\\nt', "patch", "call_2"), piece(1, 'wo\\u00e9"}'),
    piece(2, '{"x":1}', "invented", "call_3"), end(),
)  # fmt: skip


async def test_every_item_has_its_events_in_their_order(daemon: Daemon) -> None:
    events = written(writer_of(daemon, reasoning={"summary": "auto"}), *EVERYTHING)
    assert names(events) == [*OPENED, *SUMMARY, *MESSAGE, *CALL, *CUSTOM, *CALL, "completed"]
    response = events[-1]["response"]
    added = [event for event in events if event["type"] == "response.output_item.added"]
    done = [event for event in events if event["type"] == "response.output_item.done"]
    assert [event["output_index"] for event in added] == [event["output_index"] for event in done] == [0, 1, 2, 3, 4]
    assert [event["item"]["id"] for event in added] == [item["id"] for item in response["output"]]
    assert [event["item"] for event in done] == response["output"]
    assert {item["status"] for item in response["output"]} == {"completed"}
    assert {event["item"]["status"] for event in added} == {"in_progress"}
    for event in events[3:-1]:
        if "item_id" in event:
            assert event["item_id"] == response["output"][event["output_index"]]["id"]


async def test_what_the_items_say(daemon: Daemon) -> None:
    events = written(writer_of(daemon, reasoning={"summary": "auto"}), *EVERYTHING)
    response = events[-1]["response"]
    reasoning, message, read, patch, invented = response["output"]
    assert reasoning["summary"] == [{"type": "summary_text", "text": "let me see"}] and "content" not in reasoning
    assert message["content"] == [{"type": "output_text", "text": 'I "read" é\n', "annotations": [], "logprobs": []}]
    assert (read["name"], read["namespace"], read["call_id"], read["arguments"]) == (
        "read", "files", "call_1", '{"path":"a.txt"}',
    )  # fmt: skip
    assert (patch["type"], patch["name"], patch["call_id"], patch["input"]) == (
        "custom_tool_call", "patch", "call_2", "one\ntwoé",
    )  # fmt: skip
    assert invented["type"] == "function_call" and invented["call_id"] == "call_3"
    assert "namespace" not in invented and "namespace" not in patch
    told = [deltas(events, item["id"]) for item in response["output"]]
    assert told == ["let me see", 'I "read" é\n', '{"path":"a.txt"}', "one\ntwoé", '{"x":1}']
    assert (response["status"], response["usage"], response["session"]["id"]) == ("completed", USAGE, "s")
    assert response["model"] == daemon.state.model_id and response["completed_at"] >= response["created_at"]
    assert "session" not in events[0]["response"] and events[0]["response"]["status"] == "in_progress"


async def test_a_whole_is_what_the_events_end_with(daemon: Daemon) -> None:
    whole = json.loads(writer_of(daemon).complete(EVERYTHING))
    ended = written(writer_of(daemon), *EVERYTHING)[-1]["response"]

    def without_ids(response: Json) -> Json:
        items = [{**item, "id": "", "call_id": ""} for item in response["output"]]
        return {**response, "output": items, "id": "", "created_at": 0, "completed_at": 0}

    assert without_ids(whole) == without_ids(ended)


async def test_reasoning_without_a_summary_is_told_as_it_is(daemon: Daemon) -> None:
    events = written(writer_of(daemon), ReasoningPart(0, "hm"), TextPart(0, "a"), end())
    assert names(events) == [*OPENED, *RAW, *MESSAGE, "completed"]
    item = events[-1]["response"]["output"][0]
    assert (item["summary"], item["content"]) == ([], [{"type": "reasoning_text", "text": "hm"}])
    assert "encrypted_content" not in item


@pytest.mark.parametrize("summary", [None, "auto"])
async def test_an_answer_sent_back_is_the_message_that_was_generated(daemon: Daemon, summary: str | None) -> None:
    """A client may leave out all members of a reasoning item except encrypted_content."""
    fields: Json = {"include": ["reasoning.encrypted_content"], "reasoning": {"summary": summary}}
    output = written(writer_of(daemon, **fields), *EVERYTHING[:-2], end())[-1]["response"]["output"]
    calls = (
        PlainToolCall("files__read", '{"path":"a.txt"}', "call_1"),
        PlainToolCall("patch", '{"input":"one\\ntwoé"}', "call_2"),
    )
    expected = [PlainMessage("assistant", 'I "read" é\n', calls, reasoning="let me see")]
    for echo in (output, [{name: value for name, value in item.items() if name not in ("content", "summary")}
                          if item["type"] == "reasoning" else item for item in output]):  # fmt: skip
        raw = [msgspec.Raw(json.dumps(item).encode()) for item in echo]
        assert messages_of(items_of(raw, lambda id: None)) == expected


async def test_an_answer_that_was_cut(daemon: Daemon) -> None:
    events = written(writer_of(daemon), TextPart(0, "a"), end("length"))
    assert names(events) == [*OPENED, *MESSAGE, "incomplete"]
    response = events[-1]["response"]
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert [item["status"] for item in response["output"]] == ["incomplete"] and response["completed_at"] is None


async def test_a_call_that_a_stop_cut_is_incomplete(daemon: Daemon) -> None:
    cut = msgspec.structs.replace(end("stop"), has_broken_call=True)
    events = written(writer_of(daemon), piece(0, '{"a": "x', "f"), cut)
    assert [item["status"] for item in events[-1]["response"]["output"]] == ["incomplete"]


async def test_an_answer_of_nothing_is_an_empty_message(daemon: Daemon) -> None:
    events = written(writer_of(daemon), end("stop"))
    assert names(events) == [*OPENED, *[name for name in MESSAGE if not name.endswith("delta")], "completed"]
    assert [item["content"][0]["text"] for item in events[-1]["response"]["output"]] == [""]


async def test_a_failure_in_the_middle(daemon: Daemon) -> None:
    events = written(writer_of(daemon), TextPart(0, "a"), Failed(0, ApiError("step_failed", param="input")))
    assert names(events) == [*OPENED, *MESSAGE, "error", "failed"]
    error, failed = events[-2:]
    assert (error["code"], error["param"], error["message"]) == (
        "step_failed", "input", ApiError("step_failed").message,
    )  # fmt: skip
    assert failed["response"]["error"] == {"code": "step_failed", "message": error["message"]}
    assert failed["response"]["status"] == "failed" and failed["response"]["output"][0]["status"] == "incomplete"


async def test_text_after_a_call_is_another_item(daemon: Daemon) -> None:
    events = written(writer_of(daemon), TextPart(0, "a"), piece(0, "{}", "f"), TextPart(0, "b"), end())
    assert names(events) == [*OPENED, *MESSAGE, *CALL, *MESSAGE, "completed"]


async def test_log_probabilities_come_with_their_text(daemon: Daemon) -> None:
    token, other = TokenProbability(5, b"a", -0.5), TokenProbability(6, b"\xc3", -1.5)
    details = Details([GeneratedToken(5, b"a", -0.5, [token, other])])
    parts: list[Part] = [TextPart(0, "a", details), TextPart(0, "b"), end()]
    writer = writer_of(daemon)
    events = events_of(writer.opening() + writer.events(parts))
    told = {
        "token": "a", "bytes": [97], "logprob": -0.5,
        "top_logprobs": [{"token": "a", "bytes": [97], "logprob": -0.5},
                         {"token": "\ufffd", "bytes": [195], "logprob": -1.5}],
    }  # fmt: skip
    assert [event["logprobs"] for event in events if event["type"].endswith("text.delta")] == [[told], []]
    assert events[-1]["response"]["output"][0]["content"][0]["logprobs"] == [told]


def _of(*tokens: bytes) -> Details:
    return Details([GeneratedToken(5, token, -0.5, []) for token in tokens])


async def test_log_probabilities_of_text_that_is_held_back_come_with_it(daemon: Daemon) -> None:
    """Log probabilities of blanks, and of the possible beginning of a marker, are reported with the text of the next
    token. Log probabilities of reasoning and of its end are not reported.
    """
    writer = writer_of(daemon)
    steps: list[list[Part]] = [
        [ReasoningPart(0, "so", _of(b"so"))],
        [TextPart(0, "", _of(b"\n"))],
        [TextPart(0, "", _of(b"</think>"))],
        [TextPart(0, "", _of(b"\n\n"))],
        [TextPart(0, "a", _of(b"a"))],
        [TextPart(0, "", _of(b"\n"))],
        [TextPart(0, "", _of(b" \xc3"))],
        [TextPart(0, "\n \u00e9", _of(b"\xa9"))],
        [TextPart(0, "b", _of(b" b"))],
        [ReasoningPart(0, "so"), TextPart(0, "c", _of(b"so", b"</think>", b"c"))],
        [end()],
    ]
    written = writer.opening() + b"".join(map(writer.events, steps))
    events = events_of(written)
    deltas = [event["logprobs"] for event in events if event["type"].endswith("output_text.delta")]
    assert [[bytes(token["bytes"]) for token in told] for told in deltas] == [
        [b"a"], [b"\n", b" \xc3", b"\xa9"], [b" b"], [b"c"],
    ]  # fmt: skip
    told = events[-1]["response"]["output"][1]["content"][0]["logprobs"]
    assert [bytes(token["bytes"]) for token in told] == [b"a", b"\n", b" \xc3", b"\xa9", b" b"]


async def test_what_nobody_can_ask_for_is_not_written(daemon: Daemon) -> None:
    with pytest.raises(TypeError, match="PromptTokens"):
        writer_of(daemon).events([PromptTokens(0, [1])])


# --- the text of a custom tool ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ['*** Begin "Patch"\n+é😀\\n\t end', "", "plain", "\\", '"'])
@pytest.mark.parametrize("is_ascii", [True, False])
@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_the_text_comes_out_of_its_json_piece_by_piece(text: str, is_ascii: bool, step: int) -> None:
    arguments, reading = json.dumps({"input": text}, ensure_ascii=is_ascii), CustomInput()
    told = [reading.more(arguments[at : at + step]) for at in range(0, len(arguments), step)]
    assert "".join(told) == text and reading.finish() == ("", text)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"x":1}', '{"x":1}'),
        ("no JSON", "no JSON"),
        ("", ""),
        ('{"input": "cut o', "cut o"),
        ('{"input": "as it\nis"}', "as it\nis"),
        ('{"input":5}', '{"input":5}'),
        ('{"input":"half \\ud83d","y":2}', "half \ufffd"),
        ('{"input":"half \\ud83d', "half "),
        ('{"y":1,"input":"z"}', "z"),
        (" " * 300 + '{"input":"z"}', "z"),
        ('"a text"', "a text"),
        ('{"input":"a","input":"b"}', "a"),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_arguments_of_another_form_are_told_all_the_same(arguments: str, text: str) -> None:
    reading = CustomInput()
    told = "".join(map(reading.more, arguments))
    rest, whole = reading.finish()
    assert told + rest == whole == text


CUT = ' {\n"input" : '


@pytest.mark.parametrize("is_ascii", [True, False])
@pytest.mark.parametrize("text", ['+é😀 "b"\n', ""])
async def test_a_text_that_was_cut_off_is_what_there_is_of_it(daemon: Daemon, text: str, is_ascii: bool) -> None:
    arguments, found = CUT + json.dumps(text, ensure_ascii=is_ascii), []
    for n in range(len(arguments) + 1):
        parts: list[Part] = [piece(0, "", "patch", "call_1"), piece(0, arguments[:n]), end("length")]
        events = written(writer_of(daemon), *parts)
        [item] = events[-1]["response"]["output"]
        [whole] = json.loads(writer_of(daemon).complete(parts))["output"]
        assert item["status"] == "incomplete" and whole["input"] == item["input"] == deltas(events, item["id"])
        found.append(item["input"])
    assert set(found) == {text[:n] for n in range(len(text) + 1)} and found == sorted(found)
    assert found[: len(CUT) + 2] == [""] * (len(CUT) + 2)
