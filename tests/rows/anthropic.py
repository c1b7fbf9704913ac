"""The parameters of Anthropic's messages."""

from __future__ import annotations

from tests.calling import READ, calling
from tests.rows.case import Case, Endpoint, has, kind, member
from tests.rows.openai import variables
from tests.serving import Answer, Json

HELLO: Json = {"messages": [{"role": "user", "content": "hello"}]}
TOOL: Json = {"name": "read", "description": "Reads a file", "input_schema": READ["function"]["parameters"]}
SCHEMA: Json = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
FORM: Json = {"type": "json_schema", "schema": SCHEMA}


def text(answer: Answer) -> str:
    return "".join(block.get("text") or "" for block in answer.json["content"])


def session(answer: Answer) -> str | None:
    return answer.headers.get("X-LLM-Session-Id")


def scripted(said: str, **fields: object) -> Json:
    return {"messages": [{"role": "user", "content": said}], "max_tokens": 300, **fields}


WRITTEN = member("usage", "output_tokens")
REASON = member("stop_reason")

COUNTED: dict[str, Case] = {
    "messages": Case(given={"messages": [{"role": "user", "content": "good morning to you"}]}),
    "system": Case(given={"system": "be brief"}),
    "tools": Case(given={"tools": [TOOL]}, options=calling),
    "thinking": Case(given={"thinking": {"type": "disabled"}}, options=calling),
    "output_config": Case(given={"output_config": {"effort": "high"}}, options=variables),
}
MESSAGES: dict[str, Case] = {
    "messages": Case(given={"messages": [{"role": "user", "content": "good morning"}]}),
    "system": Case(given={"system": "be brief"}),
    "tools": Case(given={"tools": [TOOL]}, without=scripted("two files"), seen=REASON, options=calling),
    "tool_choice": Case(
        given={"tool_choice": {"type": "none"}},
        without=scripted("two files", tools=[TOOL]),
        seen=REASON,
        options=calling,
    ),
    "thinking": Case(given={"thinking": {"type": "disabled"}}, options=variables),
    "output_config": Case(given={"output_config": {"effort": "high"}}, options=variables),
    "output_format": Case(given={"output_format": FORM}),
    "metadata": Case(given={"metadata": {"user_id": '{"session_id": "s"}'}}, seen=session),
    "session_id": Case(given={"session_id": "s"}, seen=session),
    "max_tokens": Case(given={"max_tokens": 3}, seen=WRITTEN),
    "stream": Case(given={"stream": True}, seen=kind),
    "return_progress": Case(given={"return_progress": True}, without={"stream": True}, seen=has("prompt_progress")),
    "stop_sequences": Case(given={"stop_sequences": ["e"]}),
    "temperature": Case(given={"temperature": 2}),
}

UNSEEN = {"model": "whatever a client calls it, this daemon's model answers"}
NO_SEED = "tests/test_messages_reader.py::test_lengths_and_stops"

ENDPOINTS: dict[str, Endpoint] = {
    "messages": Endpoint(
        path="/v1/messages",
        body={"model": "m", "max_tokens": 60, "temperature": 0, **HELLO},
        seen=text,
        cases=MESSAGES,
        unseen=UNSEEN
        | {"speculate": "drafts never change an answer: tests/test_pipeline.py::test_a_request_can_do_without_drafts"},
        elsewhere={"top_p": NO_SEED, "top_k": NO_SEED},
    ),
    "count_tokens": Endpoint(
        path="/v1/messages/count_tokens",
        body={"model": "m", **HELLO},
        seen=member("input_tokens"),
        cases=COUNTED,
        unseen=UNSEEN
        | {
            "tool_choice": "the prompt does not tell of it, but for the tools that are left",
            "output_format": "the prompt does not tell the model of it",
            "metadata": "nothing is answered in a session",
            "session_id": "likewise",
        },
    ),
}
