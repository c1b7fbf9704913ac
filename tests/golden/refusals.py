"""Fields that a completion refuses: each beside a request that would be answered."""

from __future__ import annotations

from typing import Any

_USER = {"role": "user", "content": "x"}

_EITHER: tuple[dict[str, Any], ...] = (
    {"temperature": 2.5},
    {"top_p": 1.1},
    {"min_p": -0.1},
    {"presence_penalty": 3},
    {"frequency_penalty": -3},
    {"repeat_penalty": 0},
    {"repetition_penalty": 9},
    {"repeat_last_n": -2},
    {"top_k": -2},
    {"max_tokens": 0},
    {"n_predict": -7, "max_tokens": None},
    {"stop": ["x"] * 17},
    {"stop": "x" * 257},
    {"stop": [1]},
    {"logit_bias": {"99999999": 1}},
    {"logit_bias": {"5": 101}},
    {"logit_bias": {"x": 1}},
    {"seed": 1 << 64},
    {"seed": 0.5},
    {"temperature": "hot"},
    {"stream": "yes"},
    {"stream_options": 1},
    {"session_id": 7},
    {"session_id": "has space"},
    {"temprature": 1},
    {"n": 2},
    {"best_of": 2},
    {"logprobs": True},
    {"mirostat": 2},
    {"min_tokens": 1},
    {"stop_token_ids": [1]},
    {"echo": True},
    {"user_": "x" * 300},
    {"metadata": "x" * 70_000},
)

CHAT_REFUSALS: tuple[dict[str, Any], ...] = (
    *_EITHER,
    {"messages": []},
    {"messages": "hello"},
    {"messages": [{"role": "assistant", "content": ""}]},
    {"messages": [{"role": "robot", "content": "x"}]},
    {"messages": [{"role": "user", "content": None}]},
    {"messages": [{"role": "user", "content": 5}]},
    {"messages": [{"content": "x"}]},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
    {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
    {"messages": [_USER, {"role": "assistant", "tool_calls": [{}]}]},
    {"max_completion_tokens": -7},
    {"tool_choice": "required"},
    {"top_logprobs": 3},
    {"continue_final_message": True},
    {"thinking": {"type": "sometimes"}},
    {"history": "all"},
    {"parse_special": True},
    {"chat_template_kwargs": []},
    {"chat_template_kwargs": {str(n): n for n in range(65)}},
)

COMPLETION_REFUSALS: tuple[dict[str, Any], ...] = (
    *_EITHER,
    {"prompt": ["a", "b"]},
    {"prompt": [[1], [2]]},
    {"prompt": []},
    {"prompt": ""},
    {"prompt": [-1]},
    {"prompt": [1 << 40]},
    {"prompt": 5},
    {"prompt": [1.5]},
    {"suffix": "end"},
    {"messages": [_USER]},
    {"parse_special": "yes"},
)
