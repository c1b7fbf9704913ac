"""The parameters of OpenAI's responses."""

from __future__ import annotations

from tests.calling import READ, calling
from tests.rows.case import Case, Endpoint, has, kind, member
from tests.rows.openai import SAMPLING, variables
from tests.serving import Answer, Json

TOOL: Json = {"type": "function", **READ["function"]}
SCHEMA: Json = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
FORM: Json = {"type": "json_schema", "name": "form", "schema": SCHEMA}
WRITTEN = member("usage", "output_tokens")
SESSION = member("session", "id")


def text(answer: Answer) -> str:
    parts = [part for item in answer.json["output"] for part in item.get("content") or []]
    return "".join(part.get("text") or "" for part in parts)


def calls(answer: Answer) -> int:
    return len([item for item in answer.json["output"] if item["type"] == "function_call"])


def scripted(said: str, **fields: object) -> Json:
    return {"input": said, "ignore_eos": False, "max_output_tokens": 300, **fields}


SAMPLERS = ("temperature", "top_p", "top_k", "min_p", "seed")
LONG: Json = {"max_output_tokens": 300}
RESPONSES: dict[str, Case] = {name: SAMPLING[name] for name in SAMPLERS} | {
    "presence_penalty": Case(given={"presence_penalty": 2}, without=LONG),
    "frequency_penalty": Case(given={"frequency_penalty": 2}, without=LONG),
    "repeat_penalty": Case(given={"repeat_penalty": 2}, without=LONG),
    "input": Case(given={"input": "good morning"}),
    "instructions": Case(given={"instructions": "be brief"}),
    "tools": Case(given={"tools": [TOOL]}, without=scripted("two files"), seen=calls, options=calling),
    "tool_choice": Case(
        given={"tool_choice": "none"}, without=scripted("two files", tools=[TOOL]), seen=calls, options=calling
    ),
    "parallel_tool_calls": Case(
        given={"parallel_tool_calls": False},
        without=scripted("two files", tools=[TOOL]),
        seen=calls,
        options=calling,
    ),
    "text": Case(given={"text": {"format": FORM}}, without={"ignore_eos": False}),
    "reasoning": Case(given={"reasoning": {"effort": "low"}}, options=variables),
    "include": Case(
        given={"include": ["message.output_text.logprobs"]}, seen=lambda answer: b'"logprob":' in answer.body
    ),
    "top_logprobs": Case(
        given={"top_logprobs": 2},
        without={"include": ["message.output_text.logprobs"]},
        seen=lambda answer: answer.body.count(b'"logprob":'),
    ),
    "max_output_tokens": Case(given={"max_output_tokens": 3}, seen=WRITTEN),
    "stream": Case(given={"stream": True}, seen=kind),
    "return_progress": Case(given={"return_progress": True}, without={"stream": True}, seen=has("prompt_progress")),
    "session_id": Case(given={"session_id": "s"}, seen=SESSION),
    "prompt_cache_key": Case(given={"prompt_cache_key": "s"}, seen=SESSION),
    "metadata": Case(given={"metadata": {"session_id": "s"}}, seen=SESSION),
    "stop": Case(given={"stop": ["e"]}),
    "ignore_eos": Case(given={"ignore_eos": True}, without={"ignore_eos": False, **LONG}, seen=WRITTEN),
    "cache_prompt": Case(
        given={"cache_prompt": False},
        without={"session_id": "s"},
        before=({"session_id": "s"},),
        seen=member("session", "reused_prompt_tokens"),
    ),
    "enable_thinking": Case(given={"enable_thinking": False}, options=variables),
    "chat_template_kwargs": Case(given={"chat_template_kwargs": {"mood": "grim"}}, options=variables),
}

ENDPOINTS: dict[str, Endpoint] = {
    "responses": Endpoint(
        path="/v1/responses",
        body={"input": "hello", "temperature": 1.0, "seed": 7, "ignore_eos": True, "max_output_tokens": 60},
        seen=text,
        cases=RESPONSES,
        unseen={
            "model": "whatever a client calls it, this daemon's model answers",
            "speculate": "drafts never change an answer: tests/test_pipeline.py::test_a_request_can_do_without_drafts",
        },
        elsewhere={
            "previous_response_id": "tests/test_responses.py::test_a_conversation_goes_on_by_the_previous_response",
            "store": "tests/test_responses.py::test_what_is_not_stored_is_not_found",
            "truncation": "tests/test_responses.py::test_truncation_leaves_out_the_beginning",
            "history": "tests/test_answers.py::test_without_the_history_a_turn_costs_more",
        },
    ),
}
