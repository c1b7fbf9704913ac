"""The parameters of chat and text completions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.calling import READ, calling
from tests.rows.case import Case, Endpoint, chunks_of, has, kind, member
from tests.serving import Answer, Json

SAMPLED: Json = {"temperature": 1.0, "seed": 7, "ignore_eos": True, "max_tokens": 60}
LONG: Json = {"max_tokens": 300}
REPEATING: Json = {"logit_bias": {"300": 50, "301": 50, "302": 50}}
"""Makes answers that contain only three words: " who", " will", " more"."""
DRY: Json = {**REPEATING, "dry_multiplier": 0.8}
XTC: Json = {"xtc_probability": 1}
MIROSTAT: Json = {"mirostat": 2}
ADAPTIVE: Json = {"samplers": ["top_k", "adaptive_p"], "top_k": 4}
DYNAMIC: Json = {"dynatemp_range": 1.0}
STREAM: Json = {"stream": True}


def variables(_: Path) -> Json:
    """Returns options with a template that writes the variables that it receives."""
    return {"chat_template_file": Path(__file__).parent / "variables.jinja"}


def scripted(said: str, **fields: Any) -> Json:
    """Returns a request for which the model's script has a reply (tests/calling.py)."""
    return {"messages": [{"role": "user", "content": said}], "ignore_eos": False, "max_tokens": 300, **fields}


def text(answer: Answer) -> str:
    choices = [choice for chunk in chunks_of(answer) for choice in chunk.get("choices", [])]
    own = [choice for choice in choices if choice["index"] == 0]
    return "".join(
        one.get("text") or (one.get("message") or one.get("delta") or {}).get("content") or "" for one in own
    )


def usage(answer: Answer) -> Json | None:
    return next((chunk["usage"] for chunk in chunks_of(answer) if "usage" in chunk), None)


TOKENS = member("usage", "completion_tokens")
PROMPT = member("usage", "prompt_tokens")
SESSION = member("session", "id")
LOGPROBS = member("choices", 0, "logprobs")

FINISH = member("choices", 0, "finish_reason")
CONTENT = member("choices", 0, "message", "content")


def n_calls(answer: Answer) -> int:
    return len(answer.json["choices"][0]["message"].get("tool_calls") or [])


SAMPLING: dict[str, Case] = {
    "temperature": Case(given={"temperature": 0}),
    "top_p": Case(given={"top_p": 0.1}),
    "top_k": Case(given={"top_k": 1}),
    "min_p": Case(given={"min_p": 1}),
    "seed": Case(given={"seed": 8}),
    "presence_penalty": Case(given={"presence_penalty": 2}, without=LONG),
    "frequency_penalty": Case(given={"frequency_penalty": 2}, without=LONG),
    "repeat_penalty": Case(given={"repeat_penalty": 2}, without=LONG),
    "repetition_penalty": Case(given={"repetition_penalty": 2}, without=LONG),
    "repeat_last_n": Case(given={"repeat_last_n": 0}, without={**LONG, "repeat_penalty": 2}),
    "typical_p": Case(given={"typical_p": 0.05}),
    "typ_p": Case(given={"typ_p": 0.05}),
    "top_n_sigma": Case(given={"top_n_sigma": 0.01}),
    "dynatemp_range": Case(given={"dynatemp_range": 1}, without={"temperature": 1.5}),
    "dynatemp_exponent": Case(given={"dynatemp_exponent": 8}, without=DYNAMIC),
    "xtc_probability": Case(given={"xtc_probability": 1}),
    "xtc_threshold": Case(given={"xtc_threshold": 0.5}, without=XTC),
    "dry_multiplier": Case(given={"dry_multiplier": 0.8}, without=REPEATING),
    "dry_base": Case(given={"dry_base": 4}, without=DRY),
    "dry_allowed_length": Case(given={"dry_allowed_length": 20}, without=DRY),
    "dry_penalty_last_n": Case(given={"dry_penalty_last_n": 0}, without=DRY),
    "dry_sequence_breakers": Case(given={"dry_sequence_breakers": [" who"]}, without=DRY),
    "mirostat": Case(given={"mirostat": 2}),
    "mirostat_tau": Case(given={"mirostat_tau": 0.01}, without=MIROSTAT),
    "mirostat_eta": Case(given={"mirostat_eta": 1}, without={**MIROSTAT, "mirostat_tau": 1}),
    "adaptive_target": Case(given={"adaptive_target": 0.3}, without=ADAPTIVE),
    "adaptive_decay": Case(given={"adaptive_decay": 0}, without={**ADAPTIVE, "adaptive_target": 0.3}),
    "min_keep": Case(given={"min_keep": 40}, without={"top_p": 0.01, "temperature": 2}),
    "samplers": Case(given={"samplers": ["temperature"]}, without={"top_k": 1, "temperature": 2}),
    "logit_bias": Case(given={"logit_bias": {"300": 100}}),
}
FREE: Json = {"ignore_eos": False}
SCHEMA: Json = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
GRAMMAR = 'root ::= "yes" | "no"'
FORMS: dict[str, Case] = {
    "response_format": Case(given={"response_format": {"type": "json_object"}}, without=FREE),
    "json_schema": Case(given={"json_schema": SCHEMA}, without=FREE),
    "grammar": Case(given={"grammar": GRAMMAR}, without=FREE),
    "structured_outputs": Case(given={"structured_outputs": {"choice": ["yes", "no"]}}, without=FREE),
    "guided_json": Case(given={"guided_json": SCHEMA}, without=FREE),
    "guided_regex": Case(given={"guided_regex": "[a-c]{3}"}, without=FREE),
    "guided_choice": Case(given={"guided_choice": ["yes", "no"]}, without=FREE),
    "guided_grammar": Case(given={"guided_grammar": GRAMMAR}, without=FREE),
}
BOTH: dict[str, Case] = (
    SAMPLING
    | FORMS
    | {
        "stream": Case(given=STREAM, seen=kind),
        "stream_options": Case(given={"stream_options": {"include_usage": True}}, without=STREAM, seen=usage),
        "n": Case(given={"n": 2}, seen=lambda answer: len(answer.json["choices"])),
        "best_of": Case(given={"best_of": 3}, seen=TOKENS),
        "n_probs": Case(given={"n_probs": 2}, seen=LOGPROBS),
        "return_token_ids": Case(given={"return_token_ids": True}, seen=has("token_ids")),
        "return_tokens": Case(given={"return_tokens": True}, seen=has("token_ids")),
        "return_progress": Case(given={"return_progress": True}, without=STREAM, seen=has("prompt_progress")),
        "timings_per_token": Case(given={"timings_per_token": True}, seen=has("timings")),
        "include_stop_str_in_output": Case(given={"include_stop_str_in_output": True}, without={"stop": "e"}),
        "session_id": Case(given={"session_id": "s"}, seen=SESSION),
        "prompt_cache_key": Case(given={"prompt_cache_key": "s"}, seen=SESSION),
        "metadata": Case(given={"metadata": {"session_id": "s"}}, seen=SESSION),
        "max_tokens": Case(given={"max_tokens": 3}, seen=TOKENS),
        "n_predict": Case(given={"n_predict": 3}, without={"max_tokens": None}, seen=TOKENS),
        "stop": Case(given={"stop": ["e"]}),
        "stop_token_ids": Case(given={"stop_token_ids": [300]}, without=REPEATING, seen=TOKENS),
        "min_tokens": Case(given={"min_tokens": 250}, without={"ignore_eos": False, **LONG}, seen=TOKENS),
        "ignore_eos": Case(given={"ignore_eos": True}, without={"ignore_eos": False, **LONG}, seen=TOKENS),
        "cache_prompt": Case(
            given={"cache_prompt": False},
            without={"session_id": "s"},
            before=({"session_id": "s"},),
            seen=member("session", "reused_prompt_tokens"),
        ),
    }
)
CHAT: dict[str, Case] = BOTH | {
    "messages": Case(given={"messages": [{"role": "user", "content": "good morning"}]}),
    "max_completion_tokens": Case(given={"max_completion_tokens": 3}, seen=TOKENS),
    "logprobs": Case(given={"logprobs": True}, seen=LOGPROBS),
    "top_logprobs": Case(given={"top_logprobs": 2}, without={"logprobs": True}, seen=LOGPROBS),
    "chat_template_kwargs": Case(given={"chat_template_kwargs": {"mood": "grim"}}, options=variables),
    "enable_thinking": Case(given={"enable_thinking": False}, options=variables),
    "reasoning_effort": Case(given={"reasoning_effort": "high"}, options=variables),
    "thinking": Case(given={"thinking": {"type": "disabled"}}, options=variables),
    "reasoning": Case(given={"reasoning": {"effort": "low"}}, options=variables),
    "reasoning_format": Case(
        given={"reasoning_format": "none"}, without=scripted("ponder"), seen=CONTENT, options=calling
    ),
    "thinking_budget_tokens": Case(
        given={"thinking_budget_tokens": 0}, without=scripted("ponder"), seen=TOKENS, options=calling
    ),
    "thinking_budget": Case(given={"thinking_budget": 0}, without=scripted("ponder"), seen=TOKENS, options=calling),
    "tools": Case(given={"tools": [READ]}, without=scripted("two files"), seen=FINISH, options=calling),
    "tool_choice": Case(
        given={"tool_choice": "none"}, without=scripted("two files", tools=[READ]), seen=FINISH, options=calling
    ),
    "parallel_tool_calls": Case(
        given={"parallel_tool_calls": False},
        without=scripted("two files", tools=[READ]),
        seen=n_calls,
        options=calling,
    ),
    "functions": Case(
        given={"functions": [READ["function"]]}, without=scripted("two files"), seen=FINISH, options=calling
    ),
    "function_call": Case(
        given={"function_call": "none"},
        without=scripted("two files", functions=[READ["function"]]),
        seen=FINISH,
        options=calling,
    ),
    "continue_final_message": Case(
        given={"continue_final_message": True},
        without={"messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "well"}]},
        seen=PROMPT,
    ),
    "add_generation_prompt": Case(given={"add_generation_prompt": False}, seen=PROMPT),
}
COMPLETIONS: dict[str, Case] = BOTH | {
    "prompt": Case(given={"prompt": "good morning"}),
    "logprobs": Case(given={"logprobs": 2}, seen=LOGPROBS),
    "suffix": Case(given={"suffix": "the end"}, options=lambda _: {"model": "sim:dense,fim=1"}),
    "echo": Case(given={"echo": True}),
    "parse_special": Case(given={"parse_special": False}, without={"prompt": "<|im_end|>"}, seen=PROMPT),
}
UNSEEN = {"model": "whatever a client calls it, this daemon's model answers"}
NO_DRAFTS = {"speculate": "drafts never change an answer: tests/test_pipeline.py::test_a_request_can_do_without_drafts"}


def structured(name: str, value: Any) -> Json:
    return {"structured_outputs": {name: value}}


ENDPOINTS: dict[str, Endpoint] = {
    "chat": Endpoint(
        path="/v1/chat/completions",
        body={"messages": [{"role": "user", "content": "hello"}], **SAMPLED},
        seen=text,
        cases=CHAT,
        unseen=UNSEEN | NO_DRAFTS,
        elsewhere={"history": "tests/test_answers.py::test_without_the_history_a_turn_costs_more"},
    ),
    "completions": Endpoint(
        path="/v1/completions",
        body={"prompt": "once upon a time", **SAMPLED},
        seen=text,
        cases=COMPLETIONS,
        unseen=UNSEEN | NO_DRAFTS,
        elsewhere={"add_special_tokens": "tests/test_completions.py::test_tokens_around_a_text"},
    ),
    "structured_outputs": Endpoint(
        path="/v1/chat/completions",
        body={"messages": [{"role": "user", "content": "hello"}], **SAMPLED},
        seen=text,
        cases={
            name: Case(given=structured(name, value), without=FREE)
            for name, value in {
                "json": SCHEMA,
                "json_object": True,
                "regex": "[a-c]{3}",
                "choice": ["yes", "no"],
                "grammar": GRAMMAR,
            }.items()
        },
        place=structured,
    ),
    "embeddings": Endpoint(
        path="/v1/embeddings",
        body={"input": "hello"},
        seen=member("data"),
        cases={
            "input": Case(given={"input": "good morning"}),
            "encoding_format": Case(given={"encoding_format": "base64"}),
            "dimensions": Case(given={"dimensions": 3}),
        },
        options={"model": "sim:dense,embed=16"},
        unseen=UNSEEN,
    ),
}
