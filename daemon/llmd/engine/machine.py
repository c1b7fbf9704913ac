"""Facts about this machine, as libllm measures them."""

from __future__ import annotations

from dataclasses import dataclass

from .native import copied, ffi, lib

_DEVICES_MAX = 64


@dataclass(frozen=True, slots=True)
class Machine:
    """Measurements of this machine by libllm. The fields are those of llm_machine (llm.h)."""

    free_bytes: int
    allowed_bytes: int
    n_cores: int
    n_allowed: int


@dataclass(frozen=True, slots=True)
class Device:
    """A device on which libllm can compute. The fields are those of llm_device (llm.h)."""

    name: str
    description: str
    free_bytes: int
    total_bytes: int
    is_gpu: bool


def this_machine() -> Machine:
    out = ffi.new("llm_machine *")
    lib.llm_machine_measure(out)
    return copied(out, Machine)


def devices() -> list[Device]:
    out = ffi.new("llm_device[]", _DEVICES_MAX)
    return [copied(out[i], Device) for i in range(min(lib.llm_devices(out, _DEVICES_MAX), _DEVICES_MAX))]


def memory_for_model(with_gpu: bool) -> int | None:
    """Returns the bytes of memory that are free for a model, or None if unknown. With `with_gpu`, this includes the
    memory of the GPUs that libllm can use. libllm checks the size again when it opens the model.
    """
    n_host = this_machine().free_bytes
    n_gpu = sum(one.free_bytes for one in devices() if one.is_gpu) if with_gpu else 0
    return n_host + n_gpu if n_host else None
