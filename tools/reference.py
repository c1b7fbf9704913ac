"""Writes the reference tables of README.md from the tables in the code: `python -m tools.reference`.

A table stands between <!-- name --> and <!-- /name -->. tests/test_documented.py fails when one is out of date.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from llmd.core import errors, limits
from llmd.dialects.openai import parameters
from llmd.process.config_table import OPTIONS
from llmd.process.option import Option

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
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


# Defaults that depend on who starts the daemon.
_DEFAULTS = {
    "socket": "`/run/llmd/llmd.sock` for root, else `$XDG_RUNTIME_DIR/llmd/llmd.sock`, without that variable "
    "`/tmp/llmd-UID/llmd.sock`",
    "state_dir": "`/var/lib/llmd` for root, else `~/.local/state/llmd`",
}


def option_table() -> str:
    return markdown(("option", "environment", "default", "meaning"), (_option_row(option) for option in OPTIONS))


def _option_row(option: Option) -> tuple[str, ...]:
    flag = f"`{option.flag} {option.metavar}`".replace("|", "\\|")
    shown = "" if callable(option.default) or "(default:" in option.help else option.shown_default()
    return flag, f"`{option.environment}`", _DEFAULTS.get(option.name) or (f"`{shown}`" if shown else ""), option.help


def request_parameters() -> str:
    honoured = [row for row in parameters.TABLE if row.treatment == "honoured"]
    table = markdown(
        ("honoured", "endpoint", "meaning"), ((f"`{row.name}`", " ".join(row.endpoints), row.note) for row in honoured)
    )
    accepted, refused = _names("accepted"), _names("refused")
    return f"{table}\n\n*Accepted:* {accepted}.\n\n*Refused, unless the value asks for nothing:* {refused}."


def _names(treatment: str) -> str:
    names = dict.fromkeys(row.name for row in parameters.TABLE if row.treatment == treatment)
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


def blocks() -> dict[str, str]:
    return {
        "reasons": reasons(),
        "endpoints": endpoints(),
        "options": option_table(),
        "parameters": request_parameters(),
        "limits": limit_table(),
        "errors": error_codes(),
        "metrics": metrics(),
    }


def filled(text: str) -> str:
    for name, body in blocks().items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if len(pattern.findall(text)) != 1:
            raise ValueError(f"README.md needs <!-- {name} --> and <!-- /{name} --> once")
        text = pattern.sub(lambda found, body=body: f"{found[1]}{body}\n{found[2]}", text)  # type: ignore[misc]
    return text


if __name__ == "__main__":
    README.write_text(filled(README.read_text()))
