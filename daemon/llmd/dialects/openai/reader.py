"""Turns the body of a request for a completion into a generation request. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ...core import limits
from ...core.errors import ApiError, check_range, shown
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
"""OpenAI's default for text completions."""
_CHAT_LENGTHS = ("max_completion_tokens", "max_tokens", "n_predict")
_COMPLETION_LENGTHS = ("max_tokens", "n_predict")


def chat_of(wanted: ChatCompletionRequest, headers: Headers) -> GenerationRequest:
    """Raises ApiError naming the field."""
    return generation(
        wanted,
        session_of(wanted, headers),
        conversation_of(wanted),
        thinking_tokens_max=thinking_tokens_max_of(wanted),
        n_logprobs=logprobs_of_chat(wanted.logprobs, wanted.top_logprobs, wanted.n_probs),
        **_own(wanted, _CHAT_LENGTHS, 0),
    )


def conversation_of(wanted: ChatCompletionRequest) -> ChatPrompt:
    tools, messages = tools_of(wanted), messages_of(wanted.messages)
    return ChatPrompt(
        messages=messages,
        variables=variables_of(wanted),
        tools=tools,
        tool_choice=choice_of(wanted, tools),
        has_parallel_calls=False if is_legacy(wanted) else wanted.parallel_tool_calls,
        is_reasoning_apart=wanted.reasoning_format != "none",
        continues=_continues(wanted, messages),
        has_opening=wanted.add_generation_prompt,
        history=wanted.history,
    )


def _continues(wanted: ChatCompletionRequest, messages: Sequence[PlainMessage]) -> bool:
    """Raises ApiError when there is nothing to continue."""
    param = "continue_final_message"
    if not wanted.continue_final_message:
        return False
    if wanted.add_generation_prompt:
        message = f"{param}: the answer goes on with a message, and add_generation_prompt asks for a new one."
        raise ApiError("invalid_value", message, param)
    if messages[-1].role != "assistant" or messages[-1].tool_calls:
        raise ApiError("invalid_value", f"{param}: the last message must be a text of the assistant.", param)
    return True


def completion_of(wanted: CompletionRequest, headers: Headers) -> GenerationRequest:
    """Raises ApiError naming the field."""
    prompts = prompts_of(wanted)
    return generation(
        wanted,
        session_of(wanted, headers),
        prompts[0],
        more_prompts=tuple(prompts[1:]),
        echoes=bool(wanted.echo),
        n_logprobs=logprobs_of_completion(wanted.logprobs, wanted.n_probs, echoes=bool(wanted.echo)),
        **_own(wanted, _COMPLETION_LENGTHS, COMPLETION_TOKENS_DEFAULT, len(prompts)),
    )


def _own(wanted: CompletionBase, lengths: tuple[str, ...], length: int, n_prompts: int = 1) -> dict[str, Any]:
    """Returns fields of GenerationRequest. The first of `lengths` that is set counts, else `length`."""
    given = ((name, getattr(wanted, name)) for name in lengths)
    limit = next(((name, value) for name, value in given if value is not None), None)
    is_mute = limit == ("n_predict", 0)
    max_tokens = length if limit is None or is_mute else max_tokens_of(*limit)
    return {
        "max_tokens": max_tokens,
        "is_mute": is_mute,
        "min_tokens": min_tokens_of(wanted.min_tokens, max_tokens),
        "stop_tokens": wanted.stop_token_ids or [],
        "constraint": constraint_of(wanted),
        **_told(wanted, n_prompts),
    }


def session_of(wanted: CompletionBase, headers: Headers) -> Session:
    return reading.session_of(headers, wanted.session_id, wanted.prompt_cache_key, wanted.metadata)


def _told(wanted: CompletionBase, n_prompts: int) -> dict[str, Any]:
    found = told_of(wanted, n_prompts, is_stream=bool(wanted.stream))
    found["returns_counts"] |= bool(wanted.stream) and _has_running_usage(wanted)
    return found


def prompts_of(wanted: CompletionRequest) -> list[RawPrompt]:
    """Returns the prompts. The client is the template here: its control words are control tokens."""
    given = _each(wanted.prompt)
    return [
        RawPrompt(
            one,
            parse_special=wanted.parse_special is not False,
            add_special=wanted.add_special_tokens is not False,
            suffix=wanted.suffix or "",
            param="prompt" if len(given) == 1 else f"prompt[{number}]",
        )
        for number, one in enumerate(given)
    ]


def _each(prompt: str | list[int | str | list[int]]) -> list[str | list[int]]:
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise ApiError("invalid_value", "prompt: the list is empty.", "prompt")
    kinds = set(map(type, prompt))
    if kinds == {int}:
        return [prompt]  # type: ignore[list-item]  # all of it, as we have just seen
    if int in kinds:
        raise ApiError("invalid_type", "prompt: token ids beside texts or lists of token ids.", "prompt")
    if len(prompt) > limits.ANSWERS_MAX:
        message = f"prompt: {len(prompt)} prompts; at most {limits.ANSWERS_MAX} are answered."
        raise ApiError("invalid_value", message, "prompt")
    return prompt  # type: ignore[return-value]  # likewise


def written_as(wanted: CompletionBase, request: GenerationRequest) -> dict[str, Any]:
    """Fields of the writers."""
    options = wanted.stream_options
    has_usage = options is not None and bool(options.include_usage or options.continuous_usage_stats)
    return writing_of(wanted, request, has_usage=has_usage, has_running_usage=_has_running_usage(wanted))


def _has_running_usage(wanted: CompletionBase) -> bool:
    options = wanted.stream_options
    return options is not None and bool(options.include_usage and options.continuous_usage_stats)


# --- several answers, log probabilities -------------------------------------------------------------------------------


def told_of(wanted: CompletionBase, n_prompts: int, *, is_stream: bool) -> dict[str, Any]:
    """Fields of GenerationRequest, but for log probabilities. Raises ApiError naming the client's."""
    n_answers, n_tried = _several(wanted, n_prompts, is_stream)
    return {
        "n_answers": n_answers,
        "n_tried": n_tried,
        "returns_tokens": bool(wanted.return_tokens or wanted.return_token_ids),
        "returns_progress": is_stream and bool(wanted.return_progress),
        "returns_counts": is_stream and bool(wanted.timings_per_token),
        "includes_stop": bool(wanted.include_stop_str_in_output),
    }


def writing_of(
    wanted: CompletionBase, request: GenerationRequest, *, has_usage: bool, has_running_usage: bool
) -> dict[str, Any]:
    """Fields of the writers."""
    n_prompts = 1 + len(request.more_prompts)
    return {
        "n_answers": request.n_answers * n_prompts,
        "n_prompts": n_prompts,
        "include_usage": has_usage,
        "has_running_usage": has_running_usage,
        "has_timings": bool(wanted.timings_per_token),
    }


# --- several answers -------------------------------------------------------------------------------------------------


def _several(wanted: CompletionBase, n_prompts: int, is_stream: bool) -> tuple[int, int]:
    """Returns how many answers are returned to each prompt, and how many are generated for that; 0: no more."""
    n_answers = 1 if wanted.n is None else check_range("n", wanted.n, 1, limits.ANSWERS_MAX)
    n_tried = n_answers if wanted.best_of is None else check_range("best_of", wanted.best_of, 1, limits.ANSWERS_MAX)
    if n_tried < n_answers:
        raise ApiError("invalid_value", f"best_of: {n_tried} is less than n, which is {n_answers}.", "best_of")
    if n_tried > n_answers and is_stream:
        message = f"best_of: {n_tried} with n {n_answers} cannot be streamed: the best are known only at the end."
        raise ApiError("invalid_value", message, "best_of")
    if n_prompts * n_tried > limits.ANSWERS_MAX:
        param = "prompt" if n_tried == 1 else "best_of" if n_tried > n_answers else "n"
        message = f"{param}: {n_prompts} prompts with {n_tried} answers each; at most {limits.ANSWERS_MAX} are given."
        raise ApiError("invalid_value", message, param)
    return n_answers, n_tried if n_tried > n_answers else 0


# --- log probabilities -----------------------------------------------------------------------------------------------


def logprobs_of_chat(logprobs: bool | None, top_logprobs: int | None, n_probs: int | None) -> int | None:
    """Returns how many of the most likely tokens are reported with each token; None: no log probabilities."""
    return _either(logprobs_of(logprobs, top_logprobs), n_probs)


def logprobs_of_completion(logprobs: int | None, n_probs: int | None, *, echoes: bool) -> int | None:
    if logprobs is True:
        raise ApiError("invalid_type", "logprobs: expected a number of most likely tokens, got true.", "logprobs")
    asks = logprobs is not None and logprobs is not False
    found = _either(likely_of("logprobs", logprobs) if asks else None, n_probs)
    if found is not None and echoes:
        message = "echo with log probabilities: those of the prompt's tokens are not supported."
        raise ApiError("unsupported_parameter", message, "echo")
    return found


def _either(found: int | None, n_probs: int | None) -> int | None:
    """`n_probs` is llama.cpp's name."""
    likely = likely_of("n_probs", n_probs)
    return max(found or 0, likely) if likely else found


# --- constraints ------------------------------------------------------------------------------------------------------


def constraint_of(wanted: wire.CompletionBase) -> Constraint | None:
    return one_constraint(_constraints(wanted))


def _constraints(wanted: wire.CompletionBase) -> Iterator[Constraint]:
    yield from _response_format(wanted.response_format)
    if wanted.json_schema:  # {} was said to ask for nothing
        yield _schema("json_schema", wanted.json_schema)
    if wanted.grammar:
        yield Constraint("grammar", wanted.grammar, "grammar")
    outputs = wanted.structured_outputs or wire.StructuredOutputs()
    if outputs.json_object:
        yield Constraint("json", "", "structured_outputs.json_object")
    if outputs.json is not None:
        yield _schema("structured_outputs.json", outputs.json)
    yield from _texts("structured_outputs.", outputs.grammar, outputs.regex, outputs.choice)
    if wanted.guided_json is not None:
        yield _schema("guided_json", wanted.guided_json)
    yield from _texts("guided_", wanted.guided_grammar, wanted.guided_regex, wanted.guided_choice)


def _texts(prefix: str, grammar: str | None, regex: str | None, choice: list[str] | None) -> Iterator[Constraint]:
    """Empty ones ask for nothing."""
    if grammar:
        yield Constraint("grammar", grammar, f"{prefix}grammar")
    if regex:
        yield Constraint("regex", regex, f"{prefix}regex")
    if choice:
        yield Constraint("choice", msgspec.json.encode(choice).decode(), f"{prefix}choice")


def _response_format(wanted: wire.ResponseFormat | None) -> Iterator[Constraint]:
    if wanted is None or wanted.type == "text":
        return
    if wanted.schema is not None and (wanted.type == "json_object" or wanted.json_schema is None):
        yield _schema("response_format.schema", wanted.schema)
    elif wanted.type == "json_schema":
        param = "response_format.json_schema"
        if wanted.json_schema is None:
            raise ApiError("missing_parameter", f"{param} is missing.", param)
        if wanted.json_schema.schema is None:
            raise ApiError("missing_parameter", f"{param}.schema is missing.", f"{param}.schema")
        yield _schema(f"{param}.schema", wanted.json_schema.schema, is_strict=bool(wanted.json_schema.strict))
    else:
        yield Constraint("json", "", "response_format")


def _schema(param: str, schema: str | dict[str, Any], is_strict: bool = True) -> Constraint:
    """vLLM takes a schema as JSON in a text, too."""
    if not isinstance(schema, str):
        return schema_constraint(param, schema, is_strict)
    try:
        msgspec.json.decode(schema)
    except (msgspec.DecodeError, RecursionError):
        raise ApiError("invalid_value", f"{param}: {shown(schema)} is not valid JSON.", param) from None
    return Constraint("json_schema", schema, param)


# --- reasoning --------------------------------------------------------------------------------------------------------


def variables_of(wanted: wire.ChatCompletionRequest) -> dict[str, Any]:
    """Returns the template's variables; of several members that disagree the plainest wins."""
    thinking, reasoning = wanted.thinking or wire.Thinking(), wanted.reasoning or wire.Reasoning()
    effort = wanted.reasoning_effort if wanted.reasoning_effort is not None else reasoning.effort
    wishes = wanted.enable_thinking, SWITCHES.get(thinking.type or ""), reasoning.enabled
    return {**thinking_variables(effort, *wishes), **(wanted.chat_template_kwargs or {})}


def thinking_tokens_max_of(wanted: wire.ChatCompletionRequest) -> int | None:
    """Returns the first budget that is set; -1 asks for no limit. Raises ApiError naming the field."""
    thinking, reasoning = wanted.thinking or wire.Thinking(), wanted.reasoning or wire.Reasoning()
    given = (
        ("thinking_budget_tokens", wanted.thinking_budget_tokens),
        ("thinking_budget", wanted.thinking_budget),
        ("thinking.budget_tokens", thinking.budget_tokens),
        ("reasoning.max_tokens", reasoning.max_tokens),
    )
    for param, value in given:
        if value is not None:
            check_range(param, value, -1, limits.THINKING_TOKENS_MAX)
    budget = next((value for _, value in given if value is not None), -1)
    return None if budget == -1 else budget
