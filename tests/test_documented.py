"""README.md tells the truth: its tables are those of the code, and what can be met is named in it."""

from __future__ import annotations

import argparse
import re

import pytest

from llmd.core import errors
from llmd.ctl import __main__ as ctl
from llmd.ctl import context
from llmd.dialects.openai import parameters
from llmd.engine import native
from llmd.http import metrics
from llmd.process.config_table import OPTIONS
from tools import reference

README = reference.README.read_text()
EXIT_STATUSES = sorted(value for name, value in vars(context).items() if name.startswith("EXIT_"))


def test_tables_are_those_of_the_code() -> None:
    assert reference.filled(README) == README, "write them with: .venv/bin/python -m tools.reference"


def test_a_stale_table_would_be_found() -> None:
    assert reference.filled(README.replace("`LLMD_PORT`", "`LLMD_PROT`")) == README


@pytest.mark.parametrize("name", [option.name for option in OPTIONS])
def test_option_is_documented(name: str) -> None:
    option = next(option for option in OPTIONS if option.name == name)
    assert f"`{option.flag} " in README and f"`{option.environment}`" in README


@pytest.mark.parametrize("code", errors.CODES)
def test_error_is_documented(code: str) -> None:
    assert re.search(rf"^\| `{code}` \| {errors.CODES[code].status} \|", README, re.MULTILINE)


@pytest.mark.parametrize("name", sorted({row.name for row in parameters.TABLE}))
def test_parameter_is_documented(name: str) -> None:
    assert f"`{name}`" in README


def test_counters_are_documented() -> None:
    names = [counter.name for counter in native.COUNTERS] + [metric.name for metric in metrics.METRICS]
    assert [name for name in names if f"`{metrics.PREFIX}{name}`" not in README] == []


def test_the_header_is_read_whole() -> None:
    """The tables come from llm_page.h and llm_words.h as text; libllm has the same ones."""
    table = reference.c_table("llm_page.h", "LLM_COUNTER_TABLE")
    assert [(name, text) for name, _, text in table] == [(counter.name, counter.help) for counter in native.COUNTERS]
    assert tuple(word for word, _, _ in reference.c_table("llm_words.h", "LLM_REASON_TABLE")) == native.REASON_WORDS


def verbs(parser: argparse.ArgumentParser, prefix: str) -> list[str]:
    """Every verb path, leaves only: "llmctl sessions list"."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        return [prefix]
    return [path for group in groups for name, sub in group.choices.items() for path in verbs(sub, f"{prefix} {name}")]


@pytest.mark.parametrize("verb", verbs(ctl.parser(), "llmctl"))
def test_verb_is_documented(verb: str) -> None:
    assert re.search(rf"^{verb}\b", README, re.MULTILINE), f"{verb} has no line in the llmctl section"


@pytest.mark.parametrize("status", [status for status in EXIT_STATUSES if status < 128])
def test_exit_status_is_documented(status: int) -> None:
    sentence = README.split("Exit status: ")[1].split(".\n")[0]
    assert re.search(rf"\b{status} \w", sentence)


FAMILIES = ("ctl", "dialects", "endpoints", "llama", "sim")
"""Folders whose files are one of a kind each: what kind is said of the folder."""


def modules() -> list[str]:
    c = (reference.ROOT / "libllm").rglob("*.c*")
    python = (reference.ROOT / "daemon" / "llmd").rglob("*.py")
    told = {path.stem for path in (*c, *python) if not set(path.parts) & set(FAMILIES)}
    return sorted({*FAMILIES, *told} - {"__init__"})


@pytest.mark.parametrize("name", modules())
def test_module_has_a_place_in_the_architecture(name: str) -> None:
    """By its own name, or by the name of its family ("engine*")."""
    named = set(re.findall(r"`(?:\w+/)*(\w+\*?)(?:/|\.h)?`", (reference.ROOT / "ARCHITECTURE.md").read_text()))
    families = tuple(word.removesuffix("*") for word in named if word.endswith("*"))
    assert name in named or name.startswith(families)


def test_the_architecture_is_one_page() -> None:
    assert len((reference.ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= 140
