"""Writes the reference tables of docs/ from the tables in the code. Run: `python -m tools.reference`.

In a page, a table is between the marks <!-- name --> and <!-- /name -->. tests/test_documented.py fails if a table is
out of date.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from llmd.core import errors, limits
from llmd.core.sampling_table import SAMPLING, SamplingParameter
from llmd.ctl import manual as llmctl
from llmd.dialects.anthropic import wire as anthropic
from llmd.dialects.llamacpp import wire as llamacpp
from llmd.dialects.ollama import wire as ollama
from llmd.dialects.openai import wire as openai
from llmd.dialects.responses import wire as responses
from llmd.dialects.sampling import OF_ANTHROPIC, OF_OLLAMA, OF_RESPONSES
from llmd.http.parameters import Parameter, parameters_of
from llmd.process import manual as daemon
from llmd.process.config_table import OPTIONS
from llmd.process.help_text import Section
from llmd.process.option import Option
from tools import verbs
from tools.manual import pages

Requests = Mapping[str, type[Any]]
DIALECTS: dict[str, Requests] = {
    "parameters": openai.REQUESTS,
    "responses parameters": responses.REQUESTS,
    "messages parameters": anthropic.REQUESTS,
    "ollama parameters": ollama.REQUESTS,
    "llama.cpp parameters": llamacpp.REQUESTS,
}
"""Types of requests, by the name of the block in which their parameters are listed."""
ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = (README, *sorted((ROOT / "docs").glob("*.md")))
INCLUDE = ROOT / "include"

_C_ROW = re.compile(r'X\(\w+,\s*(?:\d+,\s*)?"(\w+)",\s*(?:\'(\w)\',\s*)?"([^"]+)"\)')


def c_table(header: str, name: str) -> list[tuple[str, str, str]]:
    """Returns the word, kind and sentence of each row of an X-macro table in the public headers."""
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


def with_endpoints(requests: Requests) -> list[tuple[Parameter, list[str]]]:
    """Returns every parameter of a dialect once, with the endpoints that have the parameter. Parameters of one endpoint
    come first.
    """
    found: dict[tuple[str, ...], tuple[Parameter, list[str]]] = {}
    for endpoint, kind in requests.items():
        for one in parameters_of(kind).values():
            found.setdefault((one.name, one.treatment, one.note), (one, []))[1].append(endpoint)
    return sorted(found.values(), key=lambda row: len(row[1]) > 1)


def request_parameters(requests: Requests) -> str:
    """Returns the parameters of a dialect except sampling parameters, as a table. A row has the first sentence of a
    long note, and a list after the table has the rest of the note.
    """
    rows = [
        (one, endpoints)
        for one, endpoints in with_endpoints(requests)
        if one.treatment == "supported" and one.name not in _SAMPLING_NAMES
    ]
    table = markdown(
        ("parameter", "endpoint", "meaning"),
        ((f"`{one.name}`", " ".join(endpoints), _sentences(one)[0]) for one, endpoints in rows),
    )
    more = [
        f"- `{one.name}` ({', '.join(endpoints)}): {_sentences(one)[1]}"
        for one, endpoints in rows
        if _sentences(one)[1]
    ]
    accepted, refused = _names(requests, "accepted"), _names(requests, "refused")
    parts = [table, "\n".join(more), f"*Accepted without effect:* {accepted}." if accepted else ""]
    parts.append(f"*Refused, unless the value changes nothing:* {refused}." if refused else "")
    return "\n\n".join(filter(None, parts))


_CELL_CHARS_MAX = 130


def _sentences(parameter: Parameter) -> tuple[str, str]:
    """Returns the note in two parts. A note that is too long for a cell is split after its first sentence."""
    if len(parameter.note) <= _CELL_CHARS_MAX:
        return parameter.note, ""
    first, _, rest = parameter.note.partition(". ")
    return f"{first.removesuffix('.')}.", rest


def _names(requests: Requests, treatment: str) -> str:
    """Returns the names of parameters with this treatment, except parameters that another endpoint supports."""
    rows = [one for one, _ in with_endpoints(requests)]
    supported = {one.name for one in rows if one.treatment == "supported"}
    names = dict.fromkeys(one.name for one in rows if one.treatment == treatment and one.name not in supported)
    return ", ".join(f"`{name}`" for name in names)


_SAMPLING_ROWS = tuple(row for row in SAMPLING if row.note)
"""The rows of parameters that are numbers. The row `samplers` is left out: it has no note here, because in requests
this parameter is a list of names with a note of its own.
"""
_SAMPLING_NAMES = {row.spoken or row.name for row in _SAMPLING_ROWS}


def sampling_table() -> str:
    return markdown(("parameter", "range", "default", "APIs", "meaning"), map(_sampling_row, _SAMPLING_ROWS))


def _sampling_row(row: SamplingParameter) -> tuple[str, ...]:
    others = (("Ollama", OF_OLLAMA), ("responses", OF_RESPONSES), ("messages", OF_ANTHROPIC))
    dialects = ["completions", "llama.cpp", *(dialect for dialect, names in others if row.name in names)]
    is_every = all(row.name in names for _, names in others)
    told = f"{row.low:g} or more" if row.high > limits.UINT32_MAX // 512 else f"{row.low:g} to {row.high:g}"
    default = "" if row.default is None else f"{row.default:g}"
    return (
        f"`{row.spoken or row.name}`",
        "an integer" if row.default is None else told,
        default,
        "all" if is_every else ", ".join(dialects),
        row.note,
    )


def error_codes() -> str:
    rows = ((f"`{code}`", str(kind.status), kind.text) for code, kind in errors.CODES.items())
    return markdown(("code", "status", "meaning"), rows)


def limit_table() -> str:
    rows = ((f"`{row.name}`", str(row.most), row.unit, row.bounds, f"`{row.code}`") for row in limits.TABLE)
    return markdown(("limit", "maximum", "unit", "what is limited", "error"), rows)


def metrics() -> str:
    from llmd.http import metrics as loop  # loads libllm

    rows = [
        (name, {"c": "counter", "t": "counter", "g": "gauge"}[kind], text)
        for name, kind, text in c_table("llm_session_table.h", "LLM_COUNTER_TABLE")
    ]
    rows += [(metric.name, metric.kind, metric.help) for metric in loop.METRICS]
    return markdown(
        ("metric", "kind", "meaning"), ((f"`{loop.PREFIX}{name}`", kind, text) for name, kind, text in rows)
    )


def endpoints() -> str:
    from llmd.routes import ENDPOINTS  # loads libllm

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
        "sampling": sampling_table(),
        **{name: request_parameters(requests) for name, requests in DIALECTS.items()},
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
    """Returns the names of all blocks in a page, including blocks that are written by hand."""
    return [found[2] for found in _BLOCK.finditer(text)]


def filled(text: str) -> str:
    """Returns the page with its tables replaced by the current tables."""
    bodies = blocks()
    return _BLOCK.sub(
        lambda found: f"{found[1]}{bodies[found[2]]}\n{found[4]}" if found[2] in bodies else found[0], text
    )


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text()))
