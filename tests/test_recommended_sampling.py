"""By default a model is sampled as its file recommends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import pytest

from llmd.core.sampling import sampler_order
from llmd.core.sampling_table import RequestedSampling, SamplingDefaults
from llmd.engine.engine import Engine
from llmd.engine.opening import EngineOptions
from llmd.pipeline.work import sampling_of
from tools.tiny_models.__main__ import make
from tools.tiny_models.catalog import TINY

STATED = {
    "temp": 0.25,
    "top_k": 7,
    "top_p": 0.5,
    "min_p": 0.125,
    "xtc_probability": 0.75,
    "xtc_threshold": 0.0625,
    "penalty_last_n": 33,
    "penalty_repeat": 1.5,
    "mirostat": 2,
    "mirostat_tau": 3.5,
    "mirostat_eta": 0.375,
    "sequence": "Temp;top-k;nonsense;nucleus;typ;minp;top_n_sigma;XTC",
}


async def test_it_is_taken_from_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = gguf.GGUFWriter.write_header_to_file

    def with_recommendation(self: Any, *arguments: Any) -> None:
        for name, value in STATED.items():
            add = {float: self.add_float32, int: self.add_int32, str: self.add_string}[type(value)]
            add(f"general.sampling.{name}", value)
        plain(self, *arguments)

    monkeypatch.setattr(gguf.GGUFWriter, "write_header_to_file", with_recommendation)
    path = make(TINY[0], tmp_path)
    engine = await Engine.open(EngineOptions(model=str(path), n_ctx=256))
    recommended = engine.info.sampling
    await engine.close()
    assert recommended == SamplingDefaults(
        temperature=0.25, top_k=7, top_p=0.5, min_p=0.125, xtc_probability=0.75, xtc_threshold=0.0625, mirostat=2,
        penalty_last_n=33, repeat_penalty=1.5, mirostat_tau=3.5, mirostat_eta=0.375,
        samplers=sampler_order("", ["temperature", "top_k", "top_p", "typ_p", "min_p", "top_n_sigma", "xtc"]),
    )  # fmt: skip
    sent = sampling_of(RequestedSampling(mirostat=0, samplers=4), recommended, 256)
    assert (sent.mirostat, sent.samplers, sent.temperature, sent.dry_penalty_last_n) == (0, 4, 0.25, 64)
    whole = sampling_of(RequestedSampling(penalty_last_n=-1, dry_penalty_last_n=-1), recommended, 256)
    assert (whole.penalty_last_n, whole.dry_penalty_last_n) == (256, 256)
