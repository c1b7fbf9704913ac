"""Sampling of a request that sets no parameter: the model's recommendation is reported and applied."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gguf
import pytest

from llmd.core.sampling import SAMPLERS, USUAL_SAMPLERS, sampler_names, sampler_order
from llmd.core.sampling_table import SamplingDefaults
from llmd.engine.wire import Generate, Sampling
from tests.conftest import Serve
from tests.serving import Daemon, Json, chat
from tools.tiny_models.__main__ import make
from tools.tiny_models.catalog import RECIPES

RECOMMENDED = {"temperature": 0.25, "top_p": 0.5, "top_k": 7, "min_p": 0.125, "repeat_penalty": 1.25}
KEYS = {"temperature": "temp", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p", "repeat_penalty": "penalty_repeat"}
"""Names of the parameters in the model's metadata."""
WITHOUT_SAMPLING = {"n_predict": -1, "stream": False}
"""Members of /props that are not sampling parameters."""


@pytest.fixture
def recommending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model whose file recommends sampling parameters."""
    add_name = gguf.GGUFWriter.add_name

    def add(writer: gguf.GGUFWriter, name: str) -> None:
        add_name(writer, name)
        for field, value in RECOMMENDED.items():
            key = f"general.sampling.{KEYS[field]}"
            writer.add_int32(key, value) if isinstance(value, int) else writer.add_float32(key, value)

    monkeypatch.setattr(gguf.GGUFWriter, "add_name", add)
    return make(RECIPES["tiny-dense"], tmp_path)


async def defaults_told(daemon: Daemon) -> Json:
    told: Json = (await daemon.ask("GET", "/props")).json["default_generation_settings"]["params"]
    return told


def pushed(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> list[Sampling]:
    """Returns a list to which the sampling parameters of each request are added."""
    found: list[Sampling] = []
    generate = daemon.state.engine.generate

    def noted(listener: Any, command: Generate, after: int) -> int:
        found.append(command.sampling)
        return generate(listener, command, after)

    monkeypatch.setattr(daemon.state.engine, "generate", noted)
    return found


async def test_a_model_that_recommends(serve: Serve, recommending: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = await serve(model=str(recommending), ctx_size=512)
    expected = {**dataclasses.asdict(SamplingDefaults()), **RECOMMENDED, "samplers": list(USUAL_SAMPLERS)}
    (model,) = (await daemon.ask("GET", "/v1/models")).json["data"]
    assert model["meta"]["sampling"] == expected
    assert await defaults_told(daemon) == {**expected, **WITHOUT_SAMPLING}
    asked = pushed(daemon, monkeypatch)
    await daemon.chat(max_tokens=1)
    await daemon.chat(max_tokens=1, temperature=0, top_k=-1)
    await daemon.ask("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1})
    for sampling, own in zip(asked, ({}, {"temperature": 0, "top_k": 0}, {}), strict=True):
        assert {name: getattr(sampling, name) for name in RECOMMENDED} == {**RECOMMENDED, **own}


async def test_a_model_that_does_not(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = dataclasses.asdict(SamplingDefaults()) | {"top_k": 0}  # which the simulated model recommends
    assert await defaults_told(daemon) == {**usual, **WITHOUT_SAMPLING, "samplers": list(USUAL_SAMPLERS)}
    asked = pushed(daemon, monkeypatch)
    plain = await daemon.chat(seed=1)
    explicit = await daemon.ask("POST", "/v1/chat/completions", chat(seed=1, temperature=0.8, top_p=0.95, top_k=0))
    assert plain["choices"] == explicit.json["choices"] and asked[0] == asked[1]


@pytest.mark.parametrize("names", [["temperature"], list(SAMPLERS), ["min_p", "top_k", "top_k"], []])
def test_the_order_of_samplers_there_and_back(names: list[str]) -> None:
    assert sampler_names(sampler_order("samplers", names)) == names
