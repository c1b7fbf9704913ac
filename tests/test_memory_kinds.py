"""Every class of memory in the pinned llama.cpp is tested with a tiny model, or llmd refuses its architectures at the
start.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.live.models import TINY

ROOT = Path(__file__).parents[1]

ORDINARY = {
    "llama_kv_cache": "dense",
    "llama_kv_cache_iswa": "window",
    "llama_memory_recurrent": "recurrent",
    "llama_memory_hybrid": "hybrid",
    "llama_memory_hybrid_iswa": "hybrid-window",
}
"""Maps each class of memory that architectures get by default to the tiny model with which the warm-equals-cold tests
run.
"""

SPECIAL = {"llama_kv_cache_dsa": "indexed", "llama_kv_cache_msa": "sparse"}
"""The same map for classes of memory that llama.cpp chooses by the name of the architecture."""


@pytest.fixture
def source() -> Path:
    """Returns the directory src of the pinned llama.cpp, which `./build.sh test` links at build/llama.cpp."""
    return ROOT / "build/llama.cpp/src"


@dataclass(frozen=True)
class Row:
    memory: str
    is_tested: bool


@pytest.fixture
def table() -> dict[str, Row]:
    """Returns libllm's table of architectures with special memory."""
    text = (ROOT / "libllm/model/llama/architecture.cpp").read_text()
    found = re.findall(r'\{"([\w-]+)", "[^"]+", "(llama_\w+)", (true|false), (?:true|false)\}', text)
    assert found
    return {architecture: Row(memory, tested == "true") for architecture, memory, tested in found}


def classes_of(source: Path) -> set[str]:
    """Returns all classes that derive from llama_memory_i, directly or not."""
    bases: dict[str, str] = {}
    for header in source.glob("*.h"):
        bases.update(re.findall(r"(?:class|struct) (\w+) (?:final )?: (?:public )?(\w+)", header.read_text()))
    found = {"llama_memory_i"}
    while more := {name for name, base in bases.items() if base in found} - found:
        found |= more
    return found - {"llama_memory_i"}


def architectures_of(source: Path) -> dict[str, str]:
    """Returns a map from LLM_ARCH_X to the architecture's name in files."""
    text = (source / "llama-arch.cpp").read_text()
    return dict(re.findall(r'\{ (LLM_ARCH_\w+), +"([^"]+)"', text))


def made_for(source: Path) -> dict[str, set[str]]:
    """Returns the classes of memory that llama_model::create_memory can make, by architecture. "" stands for all
    architectures that it does not name.
    """
    text = (source / "llama-model.cpp").read_text()
    body = re.search(r"^llama_memory_i \* llama_model::create_memory\(.*?^\}", text, re.DOTALL | re.MULTILINE)
    assert body is not None
    names = architectures_of(source)
    found: dict[str, set[str]] = {}
    for labels, branch in re.findall(
        r"((?:\s*(?:case LLM_ARCH_\w+|default):)+)(.*?)(?=\n +case |\n +default:|\Z)", body[0], re.DOTALL
    ):
        for label in re.findall(r"LLM_ARCH_\w+|default", labels):
            found.setdefault(names.get(label, ""), set()).update(re.findall(r"new (llama_\w+)\(", branch))
    # The only class in the default branch that belongs to an architecture by name.
    assert "const bool needs_mem_idx = (arch == LLM_ARCH_QWEN4EXP);" in body[0]
    found[""] -= {"llama_memory_hybrid_idx"}
    found["qwen4exp"] = {"llama_memory_hybrid_idx"}
    return found


def test_every_class_of_memory_is_known(source: Path, table: dict[str, Row]) -> None:
    assert classes_of(source) == ORDINARY.keys() | {row.memory for row in table.values()}


def test_every_served_class_is_compared_warm_and_cold() -> None:
    assert {*ORDINARY.values(), *SPECIAL.values()} <= set(TINY)


def test_architectures_without_a_name_here_get_ordinary_memory(source: Path) -> None:
    assert made_for(source)[""] == ORDINARY.keys()


def test_the_table_has_all_architectures_with_special_memory(source: Path, table: dict[str, Row]) -> None:
    special = {
        architecture: classes - ORDINARY.keys()
        for architecture, classes in made_for(source).items()
        if classes - ORDINARY.keys()
    }
    assert special == {architecture: {row.memory} for architecture, row in table.items()}
    assert {row.memory for row in table.values() if row.is_tested} == SPECIAL.keys()
