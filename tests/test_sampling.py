"""Sampling parameters of requests: which values each dialect takes, and how they reach the sampler."""

from __future__ import annotations

from typing import Any

import pytest

from llmd.engine.wire import Sampling
from tests.serving import Daemon, Json
from tests.test_sampling_defaults import pushed

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
"""The least that each endpoint answers."""


def with_parameters(path: str, **parameters: Any) -> Json:
    body = BODIES[path]
    return body | ({"options": body["options"] | parameters} if "options" in body else parameters)


async def sampled(daemon: Daemon, monkeypatch: pytest.MonkeyPatch, path: str, **parameters: Any) -> Sampling:
    """What the sampler is asked to do for such a request."""
    asked = pushed(daemon, monkeypatch)
    answer = await daemon.ask("POST", path, with_parameters(path, **parameters))
    assert answer.status == 200, answer.body
    [sampling] = asked
    return sampling


@pytest.mark.parametrize("path", BODIES)
async def test_temperatures_above_two_are_taken(daemon: Daemon, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """llama.cpp has no limit; min_p goes with such temperatures. OpenAI's 2 and Anthropic's 1 are limits of theirs."""
    assert (await sampled(daemon, monkeypatch, path, temperature=4.5)).temperature == 4.5


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("temperature", [-0.5, 100.5, 1e300])
async def test_other_temperatures_are_refused(daemon: Daemon, path: str, temperature: float) -> None:
    answer = await daemon.ask("POST", path, with_parameters(path, temperature=temperature))
    assert answer.status == 400 and f"temperature: {temperature} is not between 0 and 100." in answer.body.decode()
