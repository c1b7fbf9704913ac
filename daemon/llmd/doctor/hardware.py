"""Checks the processor, the GPUs, the memory and the model's file. libllm measures the machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..engine.machine import Device, Machine
from ..models.errors import ModelError
from ..models.finding import find_model, is_path
from ..models.names import is_hub_name
from ..process.progress import Download
from .finding import Finding, size

_INT32_MAX = 2**31 - 1
_UINT64_MAX = 2**64 - 1
_GPU_NODES = {"nvidiactl": ("an NVIDIA GPU", "cuda"), "kfd": ("an AMD GPU", "hip")}
"""Maps the device file of a GPU driver to the kind of GPU, and to the value of LLMD_BACKEND for this kind."""
_MAGIC = b"GGUF"


def processor(description: str) -> Finding:
    """Checks which features of the processor the compute kernels use. `description` is libllm's text about these
    features (llm_processor).
    """
    used, _, left_out = description.partition("; flash attention")[0].partition("; leaves out ")
    if left_out:
        return Finding(
            "processor", "slow", f"The compute kernels use {used.removeprefix('uses ')}, but not {left_out}.",
            "Build llmd on this machine: ./build.sh setup.",
        )  # fmt: skip
    return Finding("processor", "ok", f"The compute kernels use {used.removeprefix('uses ')}.")


def cores(machine: Machine, n_threads: int, n_processors: int) -> Finding:
    """Checks --threads. `n_threads` is its value, and `n_processors` is how many processors this process can use."""
    quota = "" if machine.n_allowed == _INT32_MAX else f"; its control groups have a quota of {machine.n_allowed}"
    fact = f"llmd can use {_counted(machine.n_cores, 'core')}{quota}."
    if n_threads > n_processors:
        return Finding(
            "cores",
            "slow",
            f"--threads is {n_threads}. {fact}",
            f"Set --threads to at most {machine.n_cores}, or to 0.",
        )
    return Finding("cores", "ok", fact)


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def gpus(devices: Sequence[Device], trouble: str, n_layers: int, nodes: Path = Path("/dev")) -> Finding:
    """Checks whether llmd can use the GPUs. `trouble` is libllm's reason why a build for GPUs uses the CPU, and
    `n_layers` is --gpu-layers.
    """
    found = [device for device in devices if device.is_gpu]
    if found:
        listed = "; ".join(
            f"{one.name} ({one.description}), {size(one.free_bytes)} of {size(one.total_bytes)} free" for one in found
        )
        if n_layers == 0:
            return Finding("gpu", "slow", f"--gpu-layers is 0, so llmd does not use {listed}.", "Remove --gpu-layers.")
        return Finding("gpu", "ok", f"llmd can use {listed}.")
    present = [(nodes / name, *about) for name, about in _GPU_NODES.items() if (nodes / name).exists()]
    for node, gpu, _ in present:
        if not os.access(node, os.R_OK | os.W_OK):
            return Finding(
                "gpu", "wrong", f"This machine has {gpu}, but this user has no access to {node}.",
                "Add the user to the groups video and render; with systemd, install gpu.conf (docs/systemd.md).",
            )  # fmt: skip
    if trouble:
        return Finding("gpu", "wrong", f"{trouble}.", "Install the driver and the libraries of the GPU, and try again.")
    for _, gpu, backend in present:
        return Finding(
            "gpu", "slow", f"This machine has {gpu}, but llmd is built for the CPU.",
            f"Build llmd for it: LLMD_BACKEND={backend} ./build.sh setup.",
        )  # fmt: skip
    return Finding("gpu", "ok", "llmd has found no GPU; the CPU computes everything.")


def memory(machine: Machine, devices: Sequence[Device], n_total: int, n_model: int | None) -> Finding:
    """Checks whether the model fits into the memory. `n_total` is the size of the machine's memory. `n_model` is the
    size of the model's file, or None if this size is not known.
    """
    fact = f"{size(machine.free_bytes)} of {size(n_total)} of host memory are free for llmd"
    if machine.allowed_bytes != _UINT64_MAX:
        fact += f"; the control groups allow llmd another {size(machine.allowed_bytes)}"
    n_free = machine.free_bytes + sum(one.free_bytes for one in devices if one.is_gpu)
    if n_model is not None and n_model > n_free:
        return Finding(
            "memory", "wrong", f"The model takes {size(n_model)}, but {fact}.",
            "Free memory, or serve a smaller model or a smaller quantization of this model.",
        )  # fmt: skip
    return Finding("memory", "ok", f"{fact}.")


def model(name: str, models_dir: Path | None) -> tuple[Finding, int | None]:
    """Checks --model. Also returns the size of the model's file in bytes, or None if it is not known."""
    if name.startswith("sim:"):
        return Finding("model", "ok", f"{name} is a simulated model."), None
    if is_hub_name(name) and not is_path(name):
        return Finding("model", "ok", f"llmd downloads {name} when it starts, unless it is in the cache."), None
    try:
        path = find_model(name, lambda: None, Download(), models_dir)
        with open(path, "rb") as file:
            magic, n_bytes = file.read(len(_MAGIC)), os.fstat(file.fileno()).st_size
    except ModelError as error:
        return Finding("model", "wrong", f"{name}: {error}.", _OTHER_MODEL), None
    except OSError as error:
        return Finding("model", "wrong", f"{name} cannot be read: {error.strerror}.", _OTHER_MODEL), None
    if magic != _MAGIC:
        return Finding("model", "wrong", f"{path} is not a GGUF file.", _OTHER_MODEL), None
    return Finding("model", "ok", f"{path} has {size(n_bytes)}."), n_bytes


_OTHER_MODEL = "Set --model to a GGUF file that this user can read, or to a name that llmctl models list shows."
