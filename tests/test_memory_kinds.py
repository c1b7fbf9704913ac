"""Every class of memory in the pinned llama.cpp has a tiny model here, or its architectures are refused at start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.tiny_models.catalog import RECIPES

ROOT = Path(__file__).parents[1]

PROVEN = {
    "llama_kv_cache": "tiny-dense",
    "llama_kv_cache_iswa": "tiny-window",
    "llama_memory_recurrent": "tiny-recurrent",
    "llama_memory_hybrid": "tiny-hybrid",
}
"""Class of memory → the tiny model that warm-equals-cold tests run on."""

BY_FACTS = {"llama_memory_hybrid_iswa"}
"""Made of two proven ones, for a hybrid whose file names a sliding window; no architecture always has it."""


@pytest.fixture
def source() -> Path:
    """Return the pinned llama.cpp's src, which `./build.sh test` links at build/llama.cpp."""
    return ROOT / "build/llama.cpp/src"


@pytest.fixture
def refused() -> dict[str, str]:
    """Return the architectures that libllm refuses, each with its class of memory."""
    text = (ROOT / "libllm/model/llama/architecture.cpp").read_text()
    found = dict(re.findall(r'\{"([\w-]+)", "[^"]+", "(llama_\w+)"\}', text))
    assert found
    return found


def classes_of(source: Path) -> set[str]:
    """Return llama_memory_i's descendants, which may derive from each other."""
    bases: dict[str, str] = {}
    for header in source.glob("*.h"):
        bases.update(re.findall(r"(?:class|struct) (\w+) (?:final )?: (?:public )?(\w+)", header.read_text()))
    found = {"llama_memory_i"}
    while more := {name for name, base in bases.items() if base in found} - found:
        found |= more
    return found - {"llama_memory_i"}


def architectures_of(source: Path) -> dict[str, str]:
    """Return LLM_ARCH_X → the architecture's name in files."""
    text = (source / "llama-arch.cpp").read_text()
    return dict(re.findall(r'\{ (LLM_ARCH_\w+), +"([^"]+)"', text))


def made_for(source: Path) -> dict[str, set[str]]:
    """Return what llama_model::create_memory makes: architecture, or "" for all others, → classes of memory."""
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


def test_every_class_of_memory_is_known(source: Path, refused: dict[str, str]) -> None:
    assert classes_of(source) == PROVEN.keys() | BY_FACTS | set(refused.values())


def test_every_proven_class_has_a_tiny_model() -> None:
    assert set(PROVEN.values()) <= RECIPES.keys()


def test_what_all_other_architectures_get_is_proven(source: Path) -> None:
    assert made_for(source)[""] == PROVEN.keys() | BY_FACTS


def test_refused_are_the_architectures_with_another_class(source: Path, refused: dict[str, str]) -> None:
    unproven = {
        architecture: classes - PROVEN.keys() - BY_FACTS
        for architecture, classes in made_for(source).items()
        if classes - PROVEN.keys() - BY_FACTS
    }
    assert unproven == {architecture: {memory} for architecture, memory in refused.items()}
