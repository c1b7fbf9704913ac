"""Prompts equal those of llama.cpp (common_chat_templates_apply), except for what DIFFERENCES lists.

A prompt is the same if the whole conversation is rendered and if only the part after an answer with known tokens is,
except for what WHOLE and TAILS list."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import date

import pytest

from tests.real_templates.conftest import Open
from tests.real_templates.conversations import SHAPES, Shape
from tests.real_templates.driver import DriverError, Model
from tests.real_templates.templates import PROMPTS_ONLY, TEMPLATES, Template


@dataclass(frozen=True)
class Difference:
    reason: str
    templates: Collection[str]
    shapes: Collection[str]


_EVERY = (*TEMPLATES, *PROMPTS_ONLY)
_ALL = tuple(template.name for template in _EVERY)
_WITH_TOOLS = tuple(name for name, shape in SHAPES.items() if shape.tools)
_NO_TOOLS = (  # the template does not render the tools
    *("HuggingFaceTB-SmolLM3-3B", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek-ai-DeepSeek-V3.1"),
    *("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "fireworks-ai-llama-3-firefunction-v2", "google-gemma-2-2b-it"),
    *("ibm-granite-granite-3.3-2B-Instruct", "llama-cpp-rwkv-world", "microsoft-Phi-3.5-mini-instruct"),
)
_NO_CALLS = tuple(template.name for template in TEMPLATES if not template.calls)
_LLAMA = ("meta-llama-Llama-3.1-8B-Instruct", "meta-llama-Llama-3.2-3B-Instruct", "meta-llama-Llama-3.3-70B-Instruct")
_MISTRAL = ("Mistral-Small-3.2-24B-Instruct-2506", "mistralai-Mistral-Nemo-Instruct-2407")
_TAKE_ANY_ARGUMENTS = (
    *("LFM2-8B-A1B", "LFM2.5-Instruct", "meetkai-functionary-medium-v3.2"),
    "google-translategemma-4b-it",  # the template leaves out calls
)
_PARALLEL = ("parallel calls", "parallel results out of order")

DIFFERENCES = (
    Difference("llmd lists tools in the system message where a template leaves them out", _NO_TOOLS, _WITH_TOOLS),
    Difference("llmd writes calls as text where a template leaves them out", _NO_CALLS, ("tools no longer offered",)),
    Difference(
        "llama.cpp refuses: the template takes one call at a time; llmd splits them into turns", _LLAMA, _PARALLEL
    ),
    Difference(
        "llama.cpp gives the template reasoning by another name, so that it is not shown",
        ("upstage-Solar-Open-100B",),
        ("reasoning in a loop", "reasoning, text and call"),
    ),
    Difference(
        "llama.cpp continues no message, and no reasoning",
        ("upstage-Solar-Open-100B",),
        tuple(name for name, shape in SHAPES.items() if shape.continues),
    ),
    Difference(
        "llama.cpp refuses: the template wants other ids; llmd renames them", _MISTRAL, ("ids of another server",)
    ),
    Difference(
        "llama.cpp refuses: the model once wrote arguments that are not JSON; llmd shows them as they are",
        set(_ALL) - set(_TAKE_ANY_ARGUMENTS),
        ("arguments that are not JSON",),
    ),
)


def _reasons(differences: Collection[Difference], template: Template, shape: str) -> list[str]:
    return [one.reason for one in differences if template.name in one.templates and shape in one.shapes]


def _ours(model: Model, shape: Shape) -> str | None:
    """Returns libllm's prompt, or None if it refuses the request."""
    try:
        return model.render(shape.request).text
    except DriverError as error:
        assert error.status > 0, error  # the driver did not crash
        return None


def _llama_cpp_s(model: Model, shape: Shape) -> str | None:
    try:
        return model.upstream(shape.messages, **shape.inputs).prompt
    except DriverError as error:
        assert error.status > 0, error
        return None


def _both(model: Model, shape: Shape) -> tuple[str | None, str | None]:
    """Renders with libllm and with llama.cpp on the same date, because some templates print the date."""
    day = None
    while day != date.today():
        day = date.today()
        found = _ours(model, shape), _llama_cpp_s(model, shape)
    return found


@pytest.mark.parametrize("template", _EVERY, ids=lambda template: template.name)
def test_prompts_are_llama_cpp_s(template: Template, opened: Open) -> None:
    model = opened(template)
    for name, shape in SHAPES.items():
        ours, llama_cpp_s = _both(model, shape)
        reasons = _reasons(DIFFERENCES, template, name)
        if reasons:
            assert ours is not None, (name, reasons)
            assert ours != llama_cpp_s, f"{name}: no difference any more: {reasons}"
        else:
            assert ours == llama_cpp_s, name


# --- after an answer whose tokens are known --------------------------------------------------------------------------

_WITH_CALLS = tuple(name for name, shape in SHAPES.items() if any("tool_calls" in one for one in shape.messages))
_GPT_OSS, _COMMAND_R = "openai-gpt-oss-120b", "CohereForAI-c4ai-command-r-plus-tool_use"
_MOVE_SYSTEM = (
    *("Bielik-11B-v3.0-Instruct", "HuggingFaceTB-SmolLM3-3B", "MiniMax-M1", "MiniMax-M2", "MiniMax-M3", "Reka-Edge"),
    *(
        "NVIDIA-Nemotron-Nano-v2",
        "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
        "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
    ),
    *("deepseek-ai-DeepSeek-V3.1", "deepseek-ai-DeepSeek-V3.2", "deepseek-ai-DeepSeek-V4"),
    *("deepseek-ai-DeepSeek-V4-Flash-0731", "llama-cpp-deepseek-r1", "llama-cpp-rwkv-world", _GPT_OSS, "tencent-Hy3"),
    *("llm-jp-llm-jp-4.1-8b-thinking", "upstage-Solar-Open-100B"),
)

# For these, the whole conversation is rendered, and prefilled again from the first difference to the session's tokens.
WHOLE = (
    Difference("the template moves what the system says later to the front", _MOVE_SYSTEM, ("system in the middle",)),
    Difference("calls that are split into turns have results between them", _LLAMA, _PARALLEL),
    Difference("the template writes only the first of several calls", (_GPT_OSS,), _PARALLEL),
    Difference("blanks that the template writes into arguments look like a message's", (_COMMAND_R,), _WITH_CALLS),
)

# For these, the text after the answer differs from the text after it in the whole conversation.
TAILS = (
    Difference("the template writes the system's text again in the last turn; the model has read it", _MISTRAL, SHAPES),
    Difference("the template forgets marks of turns after a call", ("Bielik-11B-v3.0-Instruct",), _WITH_CALLS),
    Difference(
        "the template writes the text of an answer with calls after their results",
        ("google-gemma-4-31B-it", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B"),
        _WITH_CALLS,
    ),
)


def _after(model: Model, shape: Shape) -> Iterator[tuple[bool, bool]]:
    """Yields, for each answer, whether the prompt continues after it, and whether it does so as in the whole
    conversation.
    """
    whole = _ours(model, shape)
    if whole is None or shape.continues:
        return
    for place, message in enumerate(shape.messages[:-1]):
        if message["role"] == "assistant":
            prompt = model.render({**shape.request, "after": {"message": place}})
            yield prompt.is_after, whole.endswith(prompt.text)


@pytest.mark.parametrize("template", _EVERY, ids=lambda template: template.name)
def test_prompts_go_on_after_an_answer(template: Template, opened: Open) -> None:
    model = opened(template)
    for name, shape in SHAPES.items():
        found = list(_after(model, shape))
        assert all(is_after for is_after, _ in found) or _reasons(WHOLE, template, name), name
        assert all(is_same for _, is_same in found) or _reasons(TAILS, template, name), name


@pytest.mark.parametrize("difference", (*WHOLE, *TAILS), ids=lambda difference: difference.reason)
def test_what_does_not_go_on_is_still_so(difference: Difference, opened: Open) -> None:
    column = 0 if difference in WHOLE else 1
    for template in _EVERY:
        if template.name in difference.templates:
            found = [one[column] for name in difference.shapes for one in _after(opened(template), SHAPES[name])]
            assert not all(found), f"{template.name}: no difference any more: {difference.reason}"
