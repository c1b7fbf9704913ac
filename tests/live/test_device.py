"""A model whose layers are on a device, in addition to the CPU. LLMD_TEST_DEVICE is part of the device's name. Covers
what the other tests here do not. Skipped on a machine without a device (conftest.py).
"""

from __future__ import annotations

from tests.live.daemon import Daemons
from tests.live.models import model_path
from tests.serving import Json
from tests.storm.engine import DEVICE

HIDDEN = {
    "CUDA_VISIBLE_DEVICES": "",
    "HIP_VISIBLE_DEVICES": "-1",
    "VK_DRIVER_FILES": "/no/such/driver.json",
    "VK_ICD_FILENAMES": "/no/such/driver.json",
}
"""Environment in which no driver finds a device."""

SMALL = {"GGML_VK_FORCE_MAX_BUFFER_SIZE": "12000000"}
"""Limit on the bytes of a buffer of Vulkan's devices."""

ASKED: Json = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "temperature": 0}


def test_the_device_is_told(daemons: Daemons, tiny: str) -> None:
    process = daemons.start(tiny)
    assert DEVICE in process.do("GET", "/v1/models")["data"][0]["meta"]["backend"]
    assert not [line for line in process.said if "runs on the CPU" in line["message"]]


def test_without_the_device_the_cpu_serves_and_the_log_says_why(daemons: Daemons) -> None:
    process = daemons.start(model_path("dense"), **HIDDEN)
    said = [line["message"] for line in process.said if line["level"] == "warning"]
    assert [text for text in said if "the model runs on the CPU alone" in text and "found no device" in text], said
    assert process.do("GET", "/v1/models")["data"][0]["meta"]["backend"] == "CPU"
    assert process.do("POST", "/v1/chat/completions", ASKED)["choices"][0]["finish_reason"] in ("stop", "length")


def test_who_wants_the_cpu_is_told_nothing(daemons: Daemons) -> None:
    process = daemons.start(model_path("dense"), "--gpu-layers", "0")
    assert not [line for line in process.said if "runs on the CPU" in line["message"]]


def test_a_pool_is_as_large_as_the_device_gives(daemons: Daemons) -> None:
    process = daemons.start(model_path("dense"), "--max-sessions", "40", **SMALL)
    served = next(line for line in process.said if line["message"].startswith("serving"))
    if served["backend"].startswith("Vulkan"):
        assert int(served["kv_memory"]) <= int(SMALL["GGML_VK_FORCE_MAX_BUFFER_SIZE"])
    assert process.do("POST", "/v1/chat/completions", ASKED)["choices"][0]["finish_reason"] in ("stop", "length")
