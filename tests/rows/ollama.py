"""The parameters of Ollama's API."""

from __future__ import annotations

from typing import Any

from tests.calling import READ, calling
from tests.rows.case import Case, Endpoint, has, kind, member
from tests.rows.openai import SAMPLING, variables
from tests.serving import Answer, Json

BASE: Json = {"temperature": 1.0, "seed": 7, "num_predict": 60}
WRITTEN = member("eval_count")
UNSEEN = {"model": "whatever a client calls it, this daemon's model answers"}
NO_DRAFTS = {"speculate": "drafts never change an answer: tests/test_pipeline.py::test_a_request_can_do_without_drafts"}


def optional(fields: Json) -> Json:
    """Renames the fields of a completion to Ollama's names, and puts them into `options`."""
    renamed = {"num_predict" if name == "max_tokens" else name: value for name, value in fields.items()}
    return {"options": {**BASE, **renamed}}


def option(name: str, value: Any) -> Json:
    return optional({name: value})


def text(answer: Answer) -> str:
    return str(answer.json["message"]["content"])


BOTH: dict[str, Case] = {
    "stream": Case(given={"stream": True}, seen=kind),
    "return_progress": Case(given={"return_progress": True}, without={"stream": True}, seen=has("prompt_progress")),
    "format": Case(given={"format": "json"}),
    "options": Case(given={"options": {**BASE, "temperature": 0}}),
    "logprobs": Case(given={"logprobs": True}, seen=member("logprobs")),
    "top_logprobs": Case(given={"top_logprobs": 2}, without={"logprobs": True}, seen=member("logprobs")),
    "think": Case(given={"think": False}, options=variables),
}
SILENT: Json = {"messages": []}
CHAT: dict[str, Case] = BOTH | {
    "messages": Case(given={"messages": [{"role": "user", "content": "good morning"}]}),
    "tools": Case(given={"tools": [READ]}, seen=member("prompt_eval_count"), options=calling),
    "keep_alive": Case(given={"keep_alive": 0}, without=SILENT, seen=member("done_reason")),
}
GENERATE: dict[str, Case] = BOTH | {
    "prompt": Case(given={"prompt": "good morning"}),
    "system": Case(given={"system": "be brief"}),
    "suffix": Case(given={"suffix": "the end"}, options=lambda _: {"model": "sim:dense,fim=1"}),
    "raw": Case(given={"raw": True}),
    "keep_alive": Case(given={"keep_alive": 0}, without={"prompt": ""}, seen=member("done_reason")),
}
_OPTIONS = (
    "temperature", "top_k", "top_p", "min_p", "seed", "repeat_penalty", "presence_penalty", "frequency_penalty",
    "typical_p", "mirostat", "mirostat_tau", "mirostat_eta",
)  # fmt: skip
LONG: Json = {"num_predict": 300, "repeat_penalty": 2.0}
OPTIONS: dict[str, Case] = {
    name: Case(
        given=optional({**SAMPLING[name].without, **SAMPLING[name].given}), without=optional(SAMPLING[name].without)
    )
    for name in _OPTIONS
} | {
    "num_predict": Case(given=option("num_predict", 3), seen=WRITTEN),
    "stop": Case(given=option("stop", ["e"])),
    "repeat_last_n": Case(given=optional({**LONG, "repeat_last_n": 1}), without=optional(LONG)),
}
HELLO: Json = {"model": "any", "messages": [{"role": "user", "content": "hello"}], "stream": False, "options": BASE}
EMBEDS: Json = {"model": "sim:dense,embed=16"}

ENDPOINTS: dict[str, Endpoint] = {
    "chat": Endpoint(
        path="/api/chat",
        body=HELLO,
        seen=text,
        cases=CHAT,
        unseen=UNSEEN | NO_DRAFTS,
        elsewhere={"truncate": "tests/test_ollama.py::test_a_conversation_that_does_not_fit_is_cut"},
    ),
    "generate": Endpoint(
        path="/api/generate",
        body={"model": "any", "prompt": "hello", "stream": False, "options": BASE},
        seen=member("response"),
        cases=GENERATE,
        unseen=UNSEEN | NO_DRAFTS,
    ),
    "options": Endpoint(path="/api/chat", body=HELLO, seen=text, cases=OPTIONS, place=option),
    "embed": Endpoint(
        path="/api/embed",
        body={"model": "any", "input": "hello"},
        seen=member("embeddings"),
        cases={"input": Case(given={"input": "good morning"}), "dimensions": Case(given={"dimensions": 3})},
        options=EMBEDS,
        unseen=UNSEEN,
        elsewhere={"truncate": "tests/test_embeddings.py::test_what_is_too_long_is_cut_only_where_that_is_asked"},
    ),
    "embeddings": Endpoint(
        path="/api/embeddings",
        body={"model": "any", "prompt": "hello"},
        seen=member("embedding"),
        cases={"prompt": Case(given={"prompt": "good morning"})},
        options=EMBEDS,
        unseen=UNSEEN,
    ),
}
