"""The documentation is correct: its tables equal those of the code, it names everything that users can encounter, and
its links exist.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench import __main__ as bench
from llmd.core import errors, limits, session_key
from llmd.ctl import __main__ as ctl
from llmd.ctl import context
from llmd.ctl import manual as llmctl
from llmd.engine import native
from llmd.http import metrics
from llmd.http.parameters import parameters_of
from llmd.process import config_reader
from llmd.process.config_table import DEFAULT_PORT, OPTIONS
from tests.schemas import __main__ as schemas
from tools import reference
from tools.verbs import Verb, verbs

ROOT = reference.ROOT
NAMES = {name for requests in reference.DIALECTS.values() for kind in requests.values() for name in parameters_of(kind)}
BY_HAND = ["transcript"]
FOREIGN_FLAGS = {
    "--now",
    "--from",
    "--network",
    "--format",
    "--shm-size",
    "--provider",
    "--auth-type",
    "--force-reinstall",
    "--no-deps",
}
"""Options of other programs (systemctl, containers, pip, clients) that the pages mention."""
LINKING = (
    *reference.PAGES,
    ROOT / "ARCHITECTURE.md",
    ROOT / "CHANGELOG.md",
    ROOT / "tools" / "demo_model" / "README.md",
)
ADDRESSING = (
    ROOT / "README.md",
    ROOT / "build.sh",
    ROOT / "docs" / "clients.md",
    ROOT / "docs" / "http.md",
    ROOT / "daemon" / "llmd" / "process" / "manual.py",
    ROOT / "systemd" / "llmd.service",
    ROOT / "systemd" / "llmd.socket",
)


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text()


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# --- tables ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", reference.PAGES, ids=relative)
def test_tables_are_those_of_the_code(path: Path) -> None:
    assert reference.filled(path.read_text()) == path.read_text(), (
        "write them with: .venv/bin/python -m tools.reference"
    )


def test_a_stale_table_would_be_found() -> None:
    text = page("reference")
    assert reference.filled(text.replace("`LLMD_PORT`", "`LLMD_PROT`")) == text


def test_each_table_stands_in_one_page() -> None:
    found = [name for path in reference.PAGES for name in reference.names(path.read_text())]
    assert sorted(found) == sorted([*reference.blocks(), *BY_HAND])


@pytest.mark.parametrize("name", [option.name for option in OPTIONS])
def test_option_is_documented(name: str) -> None:
    option = next(option for option in OPTIONS if option.name == name)
    assert f"`{option.flag} " in page("reference") and f"`{option.environment}`" in page("reference")


@pytest.mark.parametrize("path", ADDRESSING, ids=relative)
def test_addresses_have_the_default_port(path: Path) -> None:
    assert set(re.findall(r"127\.0\.0\.1:(\d+)", path.read_text())) == {str(DEFAULT_PORT)}


@pytest.mark.parametrize("code", errors.CODES)
def test_error_is_documented(code: str) -> None:
    assert re.search(rf"^\| `{code}` \| {errors.CODES[code].status} \|", page("http"), re.MULTILINE)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_parameter_is_documented(name: str) -> None:
    assert f"`{name}`" in page("http")


def test_counters_are_documented() -> None:
    names = [counter.name for counter in native.COUNTERS] + [metric.name for metric in metrics.METRICS]
    assert [name for name in names if f"`{metrics.PREFIX}{name}`" not in page("reference")] == []


def test_the_header_is_read_whole() -> None:
    """The tables that are parsed from the text of llm_session_table.h and llm_words.h equal the tables of libllm."""
    table = reference.c_table("llm_session_table.h", "LLM_COUNTER_TABLE")
    assert [(name, text) for name, _, text in table] == [(counter.name, counter.help) for counter in native.COUNTERS]
    assert tuple(word for word, _, _ in reference.c_table("llm_words.h", "LLM_REASON_TABLE")) == native.REASON_WORDS


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REQUESTS", limits.LIVE_REQUESTS_MAX),
        ("SESSION_QUEUE", limits.SESSION_QUEUE_MAX),
        ("SCRATCH_QUEUE", limits.SCRATCH_QUEUE_MAX),
    ],
)
def test_bounds_are_those_of_the_header(name: str, value: int) -> None:
    assert re.search(rf"\bLLM_{name}_MAX = {value},", (ROOT / "include" / "llm.h").read_text())


@pytest.mark.parametrize("verb", verbs(), ids=lambda verb: verb.path)
def test_verb_is_documented(verb: Verb) -> None:
    assert f"\n| `{verb.usage}` | {verb.summary} |" in page("llmctl")


def test_the_tools_find_every_verb() -> None:
    """The help of each verb can be requested, and every word of a group is a verb or the beginning of a verb."""
    paths = [verb.path.split()[1:] for verb in verbs()]
    for path in paths:
        with pytest.raises(SystemExit) as caught:
            ctl.parser().parse_args([*path, "--help"])
        assert caught.value.code == 0
    assert {path[0] for path in paths} == {"status", "top", "logs", "sessions", "chat", "models", "version", "help"}


def test_exit_statuses_are_those_of_llmctl() -> None:
    statuses = {value for name, value in vars(context).items() if name.startswith("EXIT_")}
    assert {int(term) for term, _ in llmctl.EXIT_STATUSES.rows} == statuses


# --- what is written by hand -----------------------------------------------------------------------------------------


def test_every_source_of_a_session_id_is_documented() -> None:
    section = page("sessions").split("## Session ids")[1].split("##")[0]
    assert [name for names in session_key.HEADERS for name in names if f"`{name}`" not in section.lower()] == []


def test_every_capacity_policy_is_told() -> None:
    for word, _, _ in reference.c_table("llm_words.h", "LLM_POLICY_TABLE"):
        assert re.search(rf"^\| `{word}`( \(default\))? \|", page("sessions"), re.MULTILINE)


def test_every_measurement_is_told() -> None:
    assert re.findall(r"^\| `(\w+)` +\| ", page("benchmarks").split("## How to repeat it")[1], re.MULTILINE) == [
        *bench.NAMES
    ]


@pytest.mark.parametrize("path", reference.PAGES, ids=relative)
def test_flags_and_variables_exist(path: Path) -> None:
    parsers = [config_reader.parser(), ctl.parser(), *(verb.parser for verb in verbs())]
    parsers += [bench.parser(name, bench.scenario(name)) for name in bench.NAMES] + [schemas.arguments()]
    known = {flag for parser in parsers for action in parser._actions for flag in action.option_strings}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", path.read_text())) <= known | FOREIGN_FLAGS
    variables = set(re.findall(r"\bLLMD_[A-Z_]+\b", path.read_text()))
    assert variables <= {option.environment for option in OPTIONS} | config_reader.NOT_OPTIONS | {"LLMD_NAME"}


@pytest.mark.parametrize("path", LINKING, ids=relative)
def test_verbs_of_building_exist(path: Path) -> None:
    build = (ROOT / "build.sh").read_text()
    for verb in re.findall(r"\./build\.sh ([a-z][a-z-]*)", path.read_text()):
        assert f"\nverb_{verb.replace('-', '_')}() " in build, verb


def test_the_readme_is_short() -> None:
    assert len(reference.README.read_text().splitlines()) <= 160


# --- what points where -----------------------------------------------------------------------------------------------


def anchors(text: str) -> set[str]:
    """Returns the anchors of a page's headings, as the usual viewers make them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", LINKING, ids=relative)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        found = path.parent / name if name else path
        assert found.exists(), target
        assert not anchor or anchor in anchors(found.read_text()), target


def test_the_only_pictures_are_two_small_ones_of_the_readme() -> None:
    """Each version of a picture stays in the history of the repository."""
    shown = re.findall(r"!\[[^\]]+\]\((docs/images/[^)]+\.png)\)", reference.README.read_text())
    kinds = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".mp4", ".pdf")
    folders = [ROOT / name for name in (*SOURCES, "tests", "tools", "packaging")]
    pictures = [path for folder in folders for path in folder.rglob("*") if path.suffix.lower() in kinds]
    assert len(shown) == 2 and sorted(shown) == sorted(map(relative, pictures))
    assert all(path.stat().st_size < 150_000 for path in pictures)


def test_each_page_can_be_reached() -> None:
    readme = reference.README.read_text()
    assert [
        relative(path) for path in reference.PAGES if path != reference.README and relative(path) not in readme
    ] == []


SOURCES = (
    "bench",
    "cmake",
    "daemon",
    "docs",
    "include",
    "libllm",
    "systemd",
    "tests",
    "tools",
    "build.sh",
    "setup.cfg",
)
TEXTS = (".py", ".c", ".cpp", ".h", ".sh", ".cfg", ".md", ".service", ".socket", ".conf")


def test_pages_that_sources_name_exist() -> None:
    """Names of pages in comments, units, help texts and messages."""
    found = [
        path for name in SOURCES for path in ((ROOT / name).rglob("*") if (ROOT / name).is_dir() else [ROOT / name])
    ]
    for path in (*found, *LINKING):
        if path.suffix in TEXTS:
            for mentioned in re.findall(r"(?<![\w/])docs/\w+\.md\b", path.read_text()):
                assert (ROOT / mentioned).exists(), f"{relative(path)}: {mentioned}"


# --- the architecture ------------------------------------------------------------------------------------------------


INDEX_COLUMNS_MAX = 140
ENTRY = re.compile(r"^- `([\w.]+)`: (.*(?:\n  .*)*)", re.MULTILINE)


def index_of_files() -> dict[str, list[tuple[str, str]]]:
    """Returns for each folder in the index of ARCHITECTURE.md the names of its modules, with their subjects."""
    index = (ROOT / "ARCHITECTURE.md").read_text().split("## Files\n")[1].split("\n## ")[0]
    return {
        folder: [(name, " ".join(subject.split())) for name, subject in re.findall(ENTRY, text)]
        for folder, text in re.findall(r"^### `([\w/]+)/`\n(.*?)(?=^### |\Z)", index, re.MULTILINE | re.DOTALL)
    }


def modules() -> dict[str, list[str]]:
    """Returns for each folder with sources the names that the index should have. A header alone keeps its ending."""
    sources = [path for folder in ("include", "libllm", "daemon/llmd") for path in (ROOT / folder).rglob("*.*")]
    found: dict[str, set[str]] = {}
    for path in sources:
        is_alone = path.suffix == ".h" and not (path.with_suffix(".c").exists() or path.with_suffix(".cpp").exists())
        if path.suffix in (".c", ".cpp", ".h", ".py") and path.stem != "__init__":
            found.setdefault(relative(path.parent), set()).add(path.name if is_alone else path.stem)
    return {folder: sorted(names) for folder, names in found.items()}


@pytest.mark.parametrize("folder", modules())
def test_the_index_has_each_module_once(folder: str) -> None:
    assert sorted(name for name, _ in index_of_files()[folder]) == modules()[folder]


def test_the_index_has_no_folder_that_is_gone() -> None:
    assert index_of_files().keys() == modules().keys()


def test_the_index_says_what_each_module_decides() -> None:
    entries = [(folder, name, subject) for folder, found in index_of_files().items() for name, subject in found]
    assert [entry for entry in entries if len(entry[2].split()) < 5] == []


def test_the_index_fits_a_terminal() -> None:
    index = (ROOT / "ARCHITECTURE.md").read_text().split("## Files\n")[1].split("\n## ")[0]
    assert [line for line in index.splitlines() if len(line) > INDEX_COLUMNS_MAX] == []


def test_the_architecture_is_short() -> None:
    """The part before the index of files is meant to be read from beginning to end."""
    assert len((ROOT / "ARCHITECTURE.md").read_text().split("## Files")[0].splitlines()) <= 150


def test_the_glossary_is_short() -> None:
    """Every private word costs each reader time, so 20 are the limit."""
    glossary = (ROOT / "ARCHITECTURE.md").read_text().split("## Glossary")[1].split("##")[0]
    words = re.findall(r"^\| ([a-z][a-z ]*) \|", glossary, re.MULTILINE)[1:]  # without the head of the table
    assert len(words) == len(set(words)) <= 20
