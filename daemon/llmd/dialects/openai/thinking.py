"""Reads the members about thinking, for the template and for the engine. Pure."""

from __future__ import annotations

from typing import Any

from ...core import limits
from ...core.errors import check_range
from ..reading import SWITCHES, thinking_variables
from .wire import request as wire


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
