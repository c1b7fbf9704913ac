"""Sampling parameters of requests: the values that each dialect accepts, the values that reach the sampler, and
defaults, which must equal llama.cpp's.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from llmd.core.sampling import LETTERS, USUAL_SAMPLERS
from llmd.core.sampling_table import SamplingDefaults
from llmd.engine.wire import Sampling
from tests.serving import Daemon, Json
from tests.test_sampling_defaults import pushed

ROOT = Path(__file__).parents[1]
HELLO: Json = {"messages": [{"role": "user", "content": "hello"}]}
BODIES: dict[str, Json] = {
    "/v1/chat/completions": {**HELLO, "max_tokens": 1},
    "/v1/completions": {"prompt": "hello", "max_tokens": 1},
    "/v1/responses": {"input": "hello", "max_output_tokens": 1},
    "/v1/messages": {**HELLO, "max_tokens": 1},
    "/api/chat": {**HELLO, "options": {"num_predict": 1}, "stream": False},
    "/api/generate": {"prompt": "hello", "options": {"num_predict": 1}, "stream": False},
    "/completion": {"prompt": "hello", "n_predict": 1},
}
"""The smallest valid body for each endpoint."""


def with_parameters(path: str, **parameters: Any) -> Json:
    body = BODIES[path]
    return body | ({"options": body["options"] | parameters} if "options" in body else parameters)


async def sampled(daemon: Daemon, monkeypatch: pytest.MonkeyPatch, path: str, **parameters: Any) -> Sampling:
    """Returns the sampler's parameters for such a request."""
    asked = pushed(daemon, monkeypatch)
    answer = await daemon.ask("POST", path, with_parameters(path, **parameters))
    assert answer.status == 200, answer.body
    [sampling] = asked
    return sampling


@pytest.mark.parametrize("path", BODIES)
async def test_temperatures_above_two_are_taken(daemon: Daemon, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """llama.cpp has no limit on the temperature, and min_p is meant for high temperatures. The limits 2 and 1 are
    OpenAI's and Anthropic's own.
    """
    assert (await sampled(daemon, monkeypatch, path, temperature=4.5)).temperature == 4.5


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("temperature", [-0.5, 100.5, 1e300])
async def test_other_temperatures_are_refused(daemon: Daemon, path: str, temperature: float) -> None:
    answer = await daemon.ask("POST", path, with_parameters(path, temperature=temperature))
    assert answer.status == 400 and f"temperature: {temperature} is not between 0 and 100." in answer.body.decode()


# --- llama.cpp's own -------------------------------------------------------------------------------------------------

NAMES_THERE = {
    "temperature": "temp", "typical_p": "typ_p", "repeat_penalty": "penalty_repeat",
    "frequency_penalty": "penalty_freq", "presence_penalty": "penalty_present",
}  # fmt: skip
NO_PARAMETERS = {
    "seed": "drawn for each request", "n_prev": "for printing", "n_probs": "logprobs",
    "reasoning_budget_tokens": "a budget for thinking is no sampling parameter",
}  # fmt: skip
"""Members of the struct that are not sampling parameters of llmd, with the reason."""


def their_parameters() -> str:
    """Returns the members of llama.cpp's struct of sampling parameters. `./build.sh test` links llama.cpp at
    build/llama.cpp.
    """
    header = (ROOT / "build/llama.cpp/common/common.h").read_text()
    [struct] = re.findall(r"^struct common_params_sampling \{\n(.*?)^\};", header, re.MULTILINE | re.DOTALL)
    return str(struct)


def test_defaults_are_those_of_llama_cpp() -> None:
    """This test fails if a newer llama.cpp has another default, or another parameter."""
    theirs = dict(re.findall(r"^    (?:u?int32_t|float)\s+(\w+)\s+= ([^;]+);", their_parameters(), re.MULTILINE))
    ours = dataclasses.asdict(SamplingDefaults())
    assert ours.pop("samplers") == 0
    assert set(theirs) - set(NO_PARAMETERS) == {NAMES_THERE.get(name, name) for name in ours}
    for name, value in ours.items():
        assert value == float(theirs[NAMES_THERE.get(name, name)].rstrip("f")), name


def test_breakers_of_dry_are_those_of_llama_cpp() -> None:
    [breakers] = re.findall(r"dry_sequence_breakers = \{(.+?)\};", their_parameters())
    assert f"return {{{breakers}}};" in (ROOT / "libllm/text/sampling/sampler.cpp").read_text()


def test_samplers_are_those_of_llama_cpp() -> None:
    """Compares names, letters and the default order. The test fails if a newer llama.cpp has another sampler."""
    source = (ROOT / "build/llama.cpp/common/sampling.cpp").read_text()
    letters = dict(re.findall(r"case (COMMON_SAMPLER_TYPE_\w+):\s+return '(\w)';", source))
    names = dict(re.findall(r"case (COMMON_SAMPLER_TYPE_\w+):\s+return \"(\w+)\";", source))
    assert {letters[kind]: names[kind] for kind in names} == LETTERS
    [order] = re.findall(r"samplers = \{(.+?)\};", their_parameters(), re.DOTALL)
    assert [names[kind] for kind in re.findall(r"\w+", order)] == list(USUAL_SAMPLERS)
