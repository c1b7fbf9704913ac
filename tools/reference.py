"""Writes the reference tables of docs/ from the tables in the code: `python -m tools.reference`.

A table stands between <!-- name --> and <!-- /name -->, in one page. tests/test_documented.py fails when one is out of
date.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from llmd.core import errors, limits
from llmd.core.section import Section
from llmd.ctl import manual as llmctl
from llmd.dialects.anthropic import parameters as anthropic
from llmd.dialects.llamacpp import parameters as llamacpp
from llmd.dialects.ollama import parameters as ollama
from llmd.dialects.openai import parameters as openai
from llmd.dialects.parameters import Table, with_endpoints
from llmd.dialects.responses import parameters as responses
from llmd.process import manual as daemon
from llmd.process.config_table import OPTIONS
from llmd.process.option import Option
from tools import verbs
from tools.manual import pages

DIALECTS = {
    "parameters": openai.TABLES,
    "responses parameters": responses.TABLES,
    "messages parameters": anthropic.TABLES,
    "ollama parameters": ollama.TABLES,
    "llama.cpp parameters": llamacpp.TABLES,
}
"""Their tables of parameters, by the name of the block that shows them."""
TABLES = [table for tables in DIALECTS.values() for table in tables]
ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = (README, *sorted((ROOT / "docs").glob("*.md")))
INCLUDE = ROOT / "include"

_C_ROW = re.compile(r'X\(\w+,\s*(?:\d+,\s*)?"(\w+)",\s*(?:\'(\w)\',\s*)?"([^"]+)"\)')


def c_table(header: str, name: str) -> list[tuple[str, str, str]]:
    """(word, kind, sentence) of each row of an X-macro table in the public headers."""
    text = (INCLUDE / header).read_text()
    body = text.split(f"#define {name}(X)")[1].split("\n\n")[0]
    return [(row[1], row[2] or "", row[3]) for row in _C_ROW.finditer(body)]


def markdown(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def reasons() -> str:
    rows = c_table("llm_words.h", "LLM_REASON_TABLE")
    return markdown(("`session_reset_reason`", "meaning"), ((f"`{word}`", text) for word, _, text in rows))


_PATH = re.compile(r"([/~$][^\s,]+)")


def option_table() -> str:
    return markdown(("option", "environment", "default", "meaning"), (_option_row(option) for option in OPTIONS))


def _option_row(option: Option) -> tuple[str, ...]:
    flag = f"`{option.flag} {option.metavar}`".replace("|", "\\|")
    default = pages.default(option)
    shown = _PATH.sub(r"`\1`", default) if " " in default else f"`{default}`" if default else ""
    return flag, f"`{option.environment}`", shown, option.help


def request_parameters(tables: Sequence[Table]) -> str:
    """Of one dialect."""
    honoured = [found for found in with_endpoints(tables) if found[0].treatment == "honoured"]
    table = markdown(
        ("honoured", "endpoint", "meaning"),
        ((f"`{row.name}`", " ".join(endpoints), row.note) for row, endpoints in honoured),
    )
    accepted, refused = _names(tables, "accepted"), _names(tables, "refused")
    told = f"{table}\n\n*Accepted:* {accepted}."
    return f"{told}\n\n*Refused, unless the value asks for nothing:* {refused}." if refused else told


def _names(tables: Sequence[Table], treatment: str) -> str:
    """Without those that another endpoint honours."""
    rows = [row for row, _ in with_endpoints(tables)]
    honoured = {row.name for row in rows if row.treatment == "honoured"}
    names = dict.fromkeys(row.name for row in rows if row.treatment == treatment and row.name not in honoured)
    return ", ".join(f"`{name}`" for name in names)


def error_codes() -> str:
    rows = ((f"`{code}`", str(kind.status), kind.text) for code, kind in errors.CODES.items())
    return markdown(("code", "status", "meaning"), rows)


def limit_table() -> str:
    rows = ((f"`{row.name}`", str(row.most), row.unit, row.bounds, f"`{row.code}`") for row in limits.TABLE)
    return markdown(("limit", "most", "of", "bounds", "refused with"), rows)


def metrics() -> str:
    from llmd.http import metrics as loop  # loads libllm

    rows = [
        (name, {"c": "counter", "t": "counter", "g": "gauge"}[kind], text)
        for name, kind, text in c_table("llm_page.h", "LLM_COUNTER_TABLE")
    ]
    rows += [(metric.name, metric.kind, metric.help) for metric in loop.METRICS]
    return markdown(
        ("metric", "kind", "meaning"), ((f"`{loop.PREFIX}{name}`", kind, text) for name, kind, text in rows)
    )


def endpoints() -> str:
    from llmd.http.routes import ENDPOINTS  # loads libllm

    return markdown(("endpoint", "what"), ((f"`{row.method} {row.path}`", row.summary) for row in ENDPOINTS))


def verb_table() -> str:
    rows = ((f"`{verb.usage}`".replace("|", "\\|"), verb.summary) for verb in verbs.verbs())
    return markdown(("verb", "what"), rows)


def listed(section: Section, what: str) -> str:
    return markdown((what, "meaning"), ((f"`{term}`", about) for term, about in section.rows))


def blocks() -> dict[str, str]:
    return {
        "reasons": reasons(),
        "endpoints": endpoints(),
        "options": option_table(),
        **{name: request_parameters(tables) for name, tables in DIALECTS.items()},
        "limits": limit_table(),
        "errors": error_codes(),
        "metrics": metrics(),
        "verbs": verb_table(),
        "environment": listed(daemon.ENVIRONMENT, "variable"),
        "files": listed(daemon.FILES, "path"),
        "signals": listed(daemon.SIGNALS, "signal"),
        "exit statuses": listed(daemon.EXIT_STATUSES, "status"),
        "llmctl exit statuses": listed(llmctl.EXIT_STATUSES, "status"),
    }


_BLOCK = re.compile(r"(<!-- ([\w. ]+) -->\n)(.*?)(<!-- /\2 -->)", re.DOTALL)


def names(text: str) -> list[str]:
    """Of the blocks in a page, those that are written by hand included."""
    return [found[2] for found in _BLOCK.finditer(text)]


def filled(text: str) -> str:
    """A page with its tables as the code has them now."""
    bodies = blocks()
    return _BLOCK.sub(
        lambda found: f"{found[1]}{bodies[found[2]]}\n{found[4]}" if found[2] in bodies else found[0], text
    )


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text()))
