"""The logits of a session that reuses tokens equal those of a new one on real models: bit for bit in the exact
configuration, and within a bound in the production build.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import llmd
from tests.live.models import QUANTIZABLE, ROOT, TINY, model_path

N_HISTORY, N_HISTORY_TURNED = 150, 700
"""The second number is long enough that cells of sliding windows have been overwritten."""

# Largest difference of any logit, warm against cold, in the production build; logits reach about 9. Measured: 0.0016
# (dense), 0.0044 (window), 0.00001 (recurrent), 0.0012 (hybrid), 0.0002 (granite); 0.12 where weights are quantized,
# since they round activations again. On a device, which rounds to 16 bits between, 0.055 (window).
PRODUCTION_DIFF_MAX = 0.1 if os.environ.get("LLMD_TEST_DEVICE") else 0.05
PRODUCTION_DIFF_MAX_Q8 = 0.5

STEPS = {
    "append": {"exact_prefix"},
    "regenerate": {"equal"},
    "append to an answer": {"exact_prefix"},
    "edit": {"rewind", "checkpoint"},
    "copy": {"shared"},
    "branch of a copy": {"shared"},
    "park to memory": {"restored"},
    "park to disk": {"exact_prefix"},
    "fork": {"exact_prefix"},
    "fork at a checkpoint": {"exact_prefix"},
    "save and load": {"restored"},
    "restart": {"exact_prefix"},
}
"""Maps the name of each preparation to the reasons that the session's next request may report. A request in between
continues from that state.
"""


EXACT = os.environ.get("LLMD_TEST_EXACT_VARIANT", "exact")
"""`./build.sh test-processors` sets another processor's build."""


def measured(variant: str, name: str, n_history: int, kv_type: str = "f16") -> dict[str, Any]:
    if not (Path(llmd.__file__).parent / "_native" / variant).exists():
        pytest.skip(f"the {variant} build of the native library is missing; make it with: ./build.sh test")
    environment = {**os.environ, "LLMD_LIBLLM_VARIANT": variant, "GGML_CPU_TILED_MM": "0"}
    if variant == EXACT:
        environment.pop("LLMD_TEST_DEVICE", None)  # the exact build is only for the CPU
    arguments = [sys.executable, "-m", "tests.live.warm_logits", model_path(name), str(n_history), kv_type]
    done = subprocess.run(arguments, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    assert {step: found[step]["reason"] in reasons for step, reasons in STEPS.items()} == dict.fromkeys(STEPS, True)
    assert all(found[step]["reused"] >= 101 for step in STEPS), found
    return found


@pytest.mark.parametrize("name", TINY)
def test_to_the_bit(name: str) -> None:
    found = measured(EXACT, name, N_HISTORY)
    assert {step: found[step]["diff"] for step in STEPS if not found[step]["is_equal"]} == {}
    assert found["control"]["diff"] > 1 and found["long control"]["diff"] > 0.1, "the logits must know early tokens"


def test_to_the_bit_where_a_window_was_overwritten() -> None:
    found = measured(EXACT, "window", N_HISTORY_TURNED)
    assert {step: found[step]["diff"] for step in STEPS if not found[step]["is_equal"]} == {}
    assert found["long control"]["diff"] > 0.05


@pytest.mark.parametrize("name", TINY)
def test_within_the_bound_in_production(name: str) -> None:
    found = measured(os.environ.get("LLMD_LIBLLM_VARIANT", "native"), name, N_HISTORY)
    bound = PRODUCTION_DIFF_MAX_Q8 if name.endswith("-q8") else PRODUCTION_DIFF_MAX
    assert {step: found[step]["diff"] for step in STEPS if found[step]["diff"] > bound} == {}
    assert found["control"]["diff"] > 5 * bound and found["long control"]["diff"] > 2 * bound


@pytest.mark.parametrize("name", QUANTIZABLE)
def test_within_the_bound_with_quantized_keys(name: str) -> None:
    found = measured(os.environ.get("LLMD_LIBLLM_VARIANT", "native"), name, N_HISTORY, "q8_0")
    bound = PRODUCTION_DIFF_MAX_Q8 if name.endswith("-q8") else PRODUCTION_DIFF_MAX
    assert {step: found[step]["diff"] for step in STEPS if found[step]["diff"] > bound} == {}
    assert found["control"]["diff"] > 5 * bound and found["long control"]["diff"] > 2 * bound
