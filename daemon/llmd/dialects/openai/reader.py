"""Turns the body of a request for a chat or text completion into a generation request. All functions are pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ...core import limits
from ...core.errors import check_count, check_range, invalid_type, invalid_value, quoted, required, unsupported
from ...core.generation_request import ChatPrompt, Constraint, GenerationRequest, PlainMessage, RawPrompt
from ...core.sampling import max_tokens_of, min_tokens_of
from ...core.session_key import Session
from .. import reading
from ..probabilities import likely_of, logprobs_of
from ..reading import SWITCHES, Headers, generation, one_constraint, schema_constraint, thinking_variables
from .messages import messages_of
from .tools import choice_of, is_legacy, tools_of
from .wire import request as wire
from .wire.request import ChatCompletionRequest, CompletionBase, CompletionRequest

COMPLETION_TOKENS_DEFAULT = 16
"""OpenAI's default for the maximum tokens of a text completion."""
_CHAT_LENGTHS = ("max_completion_tokens", "max_tokens", "n_predict")
_COMPLETION_LENGTHS = ("max_tokens", "n_predict")


def chat_of(body: ChatCompletionRequest, headers: Headers) -> GenerationRequest:
    """Returns the generation request. Raises an ApiError that names the invalid field."""
    return generation(
        body,
        session_of(body, headers),
        conversation_of(body),
        thinking_tokens_max=thinking_tokens_max_of(body),
        n_logprobs=_either(logprobs_of(body.logprobs, body.top_logprobs), body.n_probs),
        **_own(body, _CHAT_LENGTHS, 0),
    )


def conversation_of(body: ChatCompletionRequest) -> ChatPrompt:
    tools, messages = tools_of(body), messages_of(body.messages)
    return ChatPrompt(
        messages=messages,
        variables=variables_of(body),
        tools=tools,
        tool_choice=choice_of(body, tools),
        has_parallel_calls=False if is_legacy(body) else body.parallel_tool_calls,
        is_reasoning_apart=body.reasoning_format != "none",
        continues=_continues(body, messages),
        has_opening=body.add_generation_prompt,
        history=body.history,
    )


def _continues(body: ChatCompletionRequest, messages: Sequence[PlainMessage]) -> bool:
    """Returns whether the answer continues the last message. Raises ApiError if the request asks to continue the last
    message, but the message cannot be continued.
    """
    param = "continue_final_message"
    if not body.continue_final_message:
        return False
    if body.add_generation_prompt:
        raise invalid_value(param, "the answer continues the last message, so add_generation_prompt must not be true")
    if messages[-1].role != "assistant" or messages[-1].tool_calls:
        reason = "the last message, which the answer continues, must be the assistant's and have no tool calls"
        raise invalid_value(param, reason)
    return True


def completion_of(body: CompletionRequest, headers: Headers) -> GenerationRequest:
    """Returns the generation request. Raises an ApiError that names the invalid field."""
    prompts = prompts_of(body)
    return generation(
        body,
        session_of(body, headers),
        prompts[0],
        more_prompts=tuple(prompts[1:]),
        echoes=bool(body.echo),
        n_logprobs=logprobs_of_completion(body.logprobs, body.n_probs, echoes=bool(body.echo)),
        **_own(body, _COMPLETION_LENGTHS, COMPLETION_TOKENS_DEFAULT, len(prompts)),
    )


def _own(body: CompletionBase, lengths: tuple[str, ...], length: int, n_prompts: int = 1) -> dict[str, Any]:
    """Returns the fields of GenerationRequest that chat and text completions have in common. The maximum length of the
    answer is the first member of `lengths` that is set. If none is set, it is `length`.
    """
    candidates = ((name, getattr(body, name)) for name in lengths)
    limit = next(((name, value) for name, value in candidates if value is not None), None)
    prefill_only = limit == ("n_predict", 0)
    max_tokens = length if limit is None or prefill_only else max_tokens_of(*limit)
    is_stream = bool(body.stream)
    n_answers, n_tried = _several(body, n_prompts, is_stream)
    return {
        "max_tokens": max_tokens,
        "prefill_only": prefill_only,
        "min_tokens": min_tokens_of(body.min_tokens, max_tokens),
        "stop_tokens": body.stop_token_ids or [],
        "constraint": one_constraint(_constraints(body)),
        "n_answers": n_answers,
        "n_tried": n_tried,
        "returns_tokens": bool(body.return_tokens or body.return_token_ids),
        "returns_counts": is_stream and bool(body.timings_per_token or _has_running_usage(body)),
        "includes_stop": bool(body.include_stop_str_in_output),
    }


def session_of(body: CompletionBase, headers: Headers) -> Session:
    return reading.session_of(headers, body.session_id, body.prompt_cache_key, body.metadata)


def prompts_of(body: CompletionRequest) -> list[RawPrompt]:
    """Returns the prompts. By default, the names of control tokens in a prompt become these tokens. No template adds
    control tokens here, so the client has to write them.
    """
    contents = _each(body.prompt)
    return [
        RawPrompt(
            content,
            parse_special=body.parse_special is not False,
            add_special=body.add_special_tokens is not False,
            suffix=body.suffix or "",
            param="prompt" if len(contents) == 1 else f"prompt[{number}]",
        )
        for number, content in enumerate(contents)
    ]


def _each(prompt: str | list[int | str | list[int]]) -> list[str | list[int]]:
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise invalid_value("prompt", "the list is empty")
    kinds = set(map(type, prompt))
    if kinds == {int}:
        return [prompt]  # type: ignore[list-item]  # all elements are numbers
    if int in kinds:
        raise invalid_type("prompt", "token ids and texts cannot be mixed in one list")
    check_count("prompt", len(prompt), limits.ANSWERS_MAX, "prompts")
    return prompt  # type: ignore[return-value]  # all elements are prompts


def written_as(body: CompletionBase, request: GenerationRequest) -> dict[str, Any]:
    """Returns the parameters of the writer."""
    options = body.stream_options or wire.StreamOptions()
    n_prompts = 1 + len(request.more_prompts)
    return {
        "n_answers": request.n_answers * n_prompts,
        "n_prompts": n_prompts,
        "include_usage": bool(options.include_usage or options.continuous_usage_stats),
        "has_running_usage": _has_running_usage(body),
        "has_timings": bool(body.timings_per_token),
    }


def _has_running_usage(body: CompletionBase) -> bool:
    options = body.stream_options
    return options is not None and bool(options.include_usage and options.continuous_usage_stats)


# --- several answers -------------------------------------------------------------------------------------------------


def _several(body: CompletionBase, n_prompts: int, is_stream: bool) -> tuple[int, int]:
    """Returns how many answers to return to each prompt, and how many answers to generate for each prompt. Of the
    generated answers, the most likely ones are returned. The second number is 0 if all generated answers are returned.
    """
    n_answers = 1 if body.n is None else check_range("n", body.n, 1, limits.ANSWERS_MAX)
    n_tried = n_answers if body.best_of is None else check_range("best_of", body.best_of, 1, limits.ANSWERS_MAX)
    if n_tried < n_answers:
        raise invalid_value("best_of", f"{n_tried} is less than n, which is {n_answers}")
    if n_tried > n_answers and is_stream:
        raise invalid_value(
            "best_of", f"{n_tried} with n {n_answers} cannot be streamed: the best answers are known only at the end"
        )
    if n_prompts * n_tried > limits.ANSWERS_MAX:
        param = "prompt" if n_tried == 1 else "best_of" if n_tried > n_answers else "n"
        raise invalid_value(
            param,
            f"{n_prompts} prompts with {n_tried} answers each are too many; at most {limits.ANSWERS_MAX} answers in "
            "total are allowed",
        )
    return n_answers, n_tried if n_tried > n_answers else 0


# --- log probabilities -----------------------------------------------------------------------------------------------


def logprobs_of_completion(logprobs: int | None, n_probs: int | None, *, echoes: bool) -> int | None:
    """Returns the number of most likely tokens to report with each token, or None if the request asks for no log
    probabilities.
    """
    if logprobs is True:
        raise invalid_type("logprobs", "expected a number of most likely tokens, got true")
    asks = logprobs is not None and logprobs is not False
    n_logprobs = _either(likely_of("logprobs", logprobs) if asks else None, n_probs)
    if n_logprobs is not None and echoes:
        raise unsupported(
            "echo", "log probabilities of the prompt are not supported; request echo or log probabilities, not both"
        )
    return n_logprobs


def _either(n_logprobs: int | None, n_probs: int | None) -> int | None:
    """Returns the number of most likely tokens to report. A request can set it with OpenAI's parameter and with
    llama.cpp's (`n_probs`). The larger number counts.
    """
    likely = likely_of("n_probs", n_probs)
    return max(n_logprobs or 0, likely) if likely else n_logprobs


# --- constraints -----------------------------------------------------------------------------------------------------


def _constraints(body: wire.CompletionBase) -> Iterator[Constraint]:
    yield from _response_format(body.response_format)
    if body.json_schema:  # docs/http.md says that {} has no effect
        yield _schema("json_schema", body.json_schema)
    if body.grammar:
        yield Constraint("grammar", body.grammar, "grammar")
    outputs = body.structured_outputs or wire.StructuredOutputs()
    if outputs.json_object:
        yield Constraint("json", "", "structured_outputs.json_object")
    if outputs.json is not None:
        yield _schema("structured_outputs.json", outputs.json)
    yield from _texts("structured_outputs.", outputs.grammar, outputs.regex, outputs.choice)
    if body.guided_json is not None:
        yield _schema("guided_json", body.guided_json)
    yield from _texts("guided_", body.guided_grammar, body.guided_regex, body.guided_choice)


def _texts(prefix: str, grammar: str | None, regex: str | None, choice: list[str] | None) -> Iterator[Constraint]:
    """Yields a constraint for each of the three arguments that is not empty."""
    if grammar:
        yield Constraint("grammar", grammar, f"{prefix}grammar")
    if regex:
        yield Constraint("regex", regex, f"{prefix}regex")
    if choice:
        yield Constraint("choice", msgspec.json.encode(choice).decode(), f"{prefix}choice")


def _response_format(response_format: wire.ResponseFormat | None) -> Iterator[Constraint]:
    if response_format is None or response_format.type == "text":
        return
    if response_format.schema is not None and (
        response_format.type == "json_object" or response_format.json_schema is None
    ):
        yield _schema("response_format.schema", response_format.schema)
    elif response_format.type == "json_schema":
        param = "response_format.json_schema"
        named = required(param, response_format.json_schema)
        yield _schema(f"{param}.schema", required(f"{param}.schema", named.schema), is_strict=bool(named.strict))
    else:
        yield Constraint("json", "", "response_format")


def _schema(param: str, schema: str | dict[str, Any], is_strict: bool = True) -> Constraint:
    """Returns the constraint for a schema. As in vLLM, the schema can also be a text that contains JSON."""
    if not isinstance(schema, str):
        return schema_constraint(param, schema, is_strict)
    try:
        msgspec.json.decode(schema)
    except (msgspec.DecodeError, RecursionError):
        raise invalid_value(param, f"{quoted(schema)} is not valid JSON") from None
    return Constraint("json_schema", schema, param)


# --- reasoning -------------------------------------------------------------------------------------------------------


def variables_of(body: wire.ChatCompletionRequest) -> dict[str, Any]:
    """Returns the template's variables. If several members set the same variable, the first one of these counts:
    chat_template_kwargs, enable_thinking, `thinking`, `reasoning`, the effort.
    """
    thinking, reasoning = body.thinking or wire.Thinking(), body.reasoning or wire.Reasoning()
    effort = body.reasoning_effort if body.reasoning_effort is not None else reasoning.effort
    wishes = body.enable_thinking, SWITCHES.get(thinking.type or ""), reasoning.enabled
    return {**thinking_variables(effort, *wishes), **(body.chat_template_kwargs or {})}


def thinking_tokens_max_of(body: wire.ChatCompletionRequest) -> int | None:
    """Returns the maximum number of reasoning tokens. Several members of a request can set it. The first one that is
    set counts. Returns None if none is set, or if the value is -1, which means no limit. Raises an ApiError that names
    the invalid field.
    """
    thinking, reasoning = body.thinking or wire.Thinking(), body.reasoning or wire.Reasoning()
    budgets = (
        ("thinking_budget_tokens", body.thinking_budget_tokens),
        ("thinking_budget", body.thinking_budget),
        ("thinking.budget_tokens", thinking.budget_tokens),
        ("reasoning.max_tokens", reasoning.max_tokens),
    )
    for param, value in budgets:
        if value is not None:
            check_range(param, value, -1, limits.THINKING_TOKENS_MAX)
    budget = next((value for _, value in budgets if value is not None), -1)
    return None if budget == -1 else budget
