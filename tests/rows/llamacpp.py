"""The parameters of llama.cpp's completions, infill and embeddings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.rows.case import Case, Endpoint, has, kind, member
from tests.rows.openai import GRAMMAR, SAMPLING, SCHEMA
from tests.serving import Json

WRITTEN = member("tokens_predicted")
READ = member("tokens_evaluated")


def renamed(fields: Json) -> Json:
    """Renames the fields of a completion to this dialect's names."""
    return {"n_predict" if name == "max_tokens" else name: value for name, value in fields.items()}


def of(cases: dict[str, Case], *left_out: str) -> dict[str, Case]:
    return {
        name: replace(case, given=renamed(case.given), without=renamed(case.without))
        for name, case in cases.items()
        if name not in left_out
    }


NAMED: dict[str, Any] = {"session_id": "s"}
BOTH: dict[str, Case] = of(SAMPLING, "repetition_penalty", "typ_p") | {
    "stream": Case(given={"stream": True}, seen=kind),
    "session_id": Case(given=NAMED, seen=lambda answer: answer.headers.get("X-LLM-Session-Id")),
    "n_predict": Case(given={"n_predict": 3}, seen=WRITTEN),
    "stop": Case(given={"stop": ["e"]}),
    "ignore_eos": Case(given={"ignore_eos": True}, without={"ignore_eos": False, "n_predict": 300}, seen=WRITTEN),
    "cache_prompt": Case(
        given={"cache_prompt": False}, without=NAMED, before=(NAMED,), seen=member("timings", "prompt_n")
    ),
    "grammar": Case(given={"grammar": GRAMMAR}, without={"ignore_eos": False}),
    "json_schema": Case(given={"json_schema": SCHEMA}, without={"ignore_eos": False}),
    "n_probs": Case(given={"n_probs": 2}, seen=member("completion_probabilities")),
    "return_progress": Case(given={"return_progress": True}, without={"stream": True}, seen=has("prompt_progress")),
    "return_tokens": Case(given={"return_tokens": True}, seen=member("tokens")),
    "response_fields": Case(given={"response_fields": ["content"]}, seen=lambda answer: sorted(answer.json)),
}
COMPLETION: dict[str, Case] = BOTH | {"prompt": Case(given={"prompt": "good morning"})}
INFILL: dict[str, Case] = BOTH | {
    "input_prefix": Case(given={"input_prefix": "once upon a time"}),
    "input_suffix": Case(given={"input_suffix": "the end"}),
    "input_extra": Case(given={"input_extra": [{"text": "y = 1", "filename": "a.py"}]}),
    "prompt": Case(given={"prompt": "good morning"}),
}
SAMPLED: Json = {"temperature": 1.0, "seed": 7, "ignore_eos": True, "n_predict": 60}
UNSEEN = {"model": "whatever a client calls it, this daemon's model answers"}
NO_DRAFTS = {"speculate": "drafts never change an answer: tests/test_pipeline.py::test_a_request_can_do_without_drafts"}

ENDPOINTS: dict[str, Endpoint] = {
    "completion": Endpoint(
        path="/completion",
        body={"prompt": "once upon a time", **SAMPLED},
        seen=member("content"),
        cases=COMPLETION,
        unseen=UNSEEN | NO_DRAFTS,
    ),
    "infill": Endpoint(
        path="/infill",
        body={"input_prefix": "def f(x):\n", "input_suffix": "\n    return y\n", **SAMPLED},
        seen=member("content"),
        cases=INFILL,
        unseen=UNSEEN | NO_DRAFTS,
        options={"model": "sim:dense,fim=1"},
    ),
    "embedding": Endpoint(
        path="/embedding",
        body={"content": "hello"},
        seen=lambda answer: answer.body,
        cases={
            "content": Case(given={"content": "good morning"}),
            "input": Case(given={"input": "good morning", "content": None}),
        },
        options={"model": "sim:dense,embed=16"},
    ),
}
