"""From the body of a completion to what is asked. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core import limits
from ...core.asked import Asked, ChatPrompt, PlainMessage, RawPrompt
from ...core.errors import ApiError
from ...core.sampling import max_tokens_of, min_tokens_of
from ...core.session_key import Session
from .. import reading
from ..reading import Headers, generation
from .messages import messages_of
from .structure import constraint_of
from .telling import logprobs_of_chat, logprobs_of_completion, told_of, writing_of
from .thinking import thinking_tokens_max_of, variables_of
from .tools import choice_of, is_legacy, tools_of
from .wire.request import ChatCompletionRequest, CompletionRequest, GenerationRequest

COMPLETION_TOKENS_DEFAULT = 16
"""OpenAI's default for text completions."""
_CHAT_LENGTHS = ("max_completion_tokens", "max_tokens", "n_predict")
_COMPLETION_LENGTHS = ("max_tokens", "n_predict")


def chat_of(wanted: ChatCompletionRequest, headers: Headers) -> Asked:
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


def completion_of(wanted: CompletionRequest, headers: Headers) -> Asked:
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


def _own(wanted: GenerationRequest, lengths: tuple[str, ...], length: int, n_prompts: int = 1) -> dict[str, Any]:
    """Returns fields of Asked. The first of `lengths` that is set counts, else `length`."""
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


def session_of(wanted: GenerationRequest, headers: Headers) -> Session:
    return reading.session_of(headers, wanted.session_id, wanted.prompt_cache_key, wanted.metadata)


def _told(wanted: GenerationRequest, n_prompts: int) -> dict[str, Any]:
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


def written_as(wanted: GenerationRequest, asked: Asked) -> dict[str, Any]:
    """Fields of the writers."""
    options = wanted.stream_options
    has_usage = options is not None and bool(options.include_usage or options.continuous_usage_stats)
    return writing_of(wanted, asked, has_usage=has_usage, has_running_usage=_has_running_usage(wanted))


def _has_running_usage(wanted: GenerationRequest) -> bool:
    options = wanted.stream_options
    return options is not None and bool(options.include_usage and options.continuous_usage_stats)
