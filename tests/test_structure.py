"""The structure of the source: imports go in one direction, each foreign library is used by few modules only, and files
and functions are short.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "daemon" / "llmd"
LIBLLM = ROOT / "libllm"

# A layer may import the layers after it, and never the layers before it.
LAYERS = (
    "__main__",
    "doctor",
    "app",
    "routes",
    "dialects",
    "http",
    "pipeline",
    "session_follower",
    "answers",
    "turns",
    "engine.generation",
    "engine.engine",
    "engine",
    "engine.native",
    "models",
    "process",
    "core",
)
BANNED_WORDS = {"manager", "util", "utils", "helper", "helpers", "misc", "common"}
# For each of the three parts of the branch table (libllm/sessions/branch_table.h), the files that may use its members.
TABLE_PARTS = {
    "slots": {"branch_table", "table_keep", "table_expected", "table_copy", "table_publish", "table_memory"},
    "shelf": {"table_parked", "table_disk", "table_files", "table_saved", "table_stored", "table_stop"},
    "naming": {"table_pin", "table_change", "table_removal"},
}
C_FILE_LINES_MAX, C_FUNCTION_LINES_MAX = 600, 60
PYTHON_FILE_LINES_MAX, PYTHON_FUNCTION_LINES_MAX = 400, 40
TEST_SLACK = 1.5  # tests list cases

# Maps "path" or "path:function" to the reason why it may be longer.
LONGER_FOR_A_REASON: dict[str, str] = {}


def python_sources() -> list[Path]:
    return sorted(path for folder in ("daemon", "tests", "tools", "bench") for path in (ROOT / folder).rglob("*.py"))


def c_sources() -> list[Path]:
    folders = ("include", "libllm", "tests", "bench", "cmake")
    return sorted(
        path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".c", ".h", ".cpp")
    )


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# --- Python ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Import:
    importer: str  # "llmd.http.answer"
    imported: str  # "llmd.generation", "aiohttp.web"
    lazy: bool  # inside a function
    typing: bool  # under TYPE_CHECKING


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> Iterator[Import]:
    importer = module_name(path)
    package = importer if path.name == "__init__.py" else importer.rpartition(".")[0]

    def walk(node: ast.AST, lazy: bool, typing: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from (Import(importer, alias.name, lazy, typing) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = package.split(".")[: len(package.split(".")) - child.level + 1] if child.level else []
                source = ".".join([*base, *([child.module] if child.module else [])])
                yield from (Import(importer, resolved(source, alias.name), lazy, typing) for alias in child.names)
            else:
                is_typing = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
                inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
                yield from walk(child, lazy or inside, typing or is_typing)

    yield from walk(ast.parse(path.read_text()), False, False)


def resolved(source: str, name: str) -> str:
    """`from llmd import config` imports the module llmd.config; `from llmd.config import Options` the same one."""
    place = PACKAGE.parent.joinpath(*source.split("."), name)
    return f"{source}.{name}" if place.with_suffix(".py").exists() or place.is_dir() else source


def all_imports() -> list[Import]:
    return [found for path in sorted(PACKAGE.rglob("*.py")) for found in imports_of(path)]


def layer(module: str) -> int | None:
    named = [name for name in LAYERS if f"{module}.".startswith(f"llmd.{name}.")]
    return LAYERS.index(max(named, key=len)) if named else None


def test_the_walker_sees_imports() -> None:
    found = {(one.importer, one.imported) for one in all_imports()}
    assert ("llmd.ctl.__main__", "llmd.ctl.client") in found
    assert ("llmd.engine.native", "importlib.util") in found


def test_layers_import_downwards() -> None:
    wrong = [
        one
        for one in all_imports()
        if (importer := layer(one.importer)) is not None
        and (imported := layer(one.imported)) is not None
        and imported < importer
    ]
    assert wrong == []


def knows_who_serves(one: Import) -> bool:
    """Returns whether this import is from a module outside the layers, and imports a module that serves requests."""
    imported = layer(one.imported)
    return layer(one.importer) is None and imported is not None and imported < LAYERS.index("engine")


def test_what_stands_beside_the_layers_knows_none_that_serves() -> None:
    """llmctl may import the engine's modules, for libllm's words."""
    assert [one for one in all_imports() if knows_who_serves(one)] == []
    for number, name in enumerate(LAYERS):
        found = knows_who_serves(Import("llmd.ctl.x", f"llmd.{name}", False, False))
        assert found == (number < LAYERS.index("engine"))


def test_every_folder_has_a_place() -> None:
    """Only modules of llmctl belong to no layer."""
    beside = {one.importer.split(".")[1] for one in all_imports() if layer(one.importer) is None}
    assert beside == {"ctl"}


def foreign_dialect(one: Import) -> bool:
    importer, imported = one.importer.split("."), one.imported.split(".")
    both = importer[1:2] == imported[1:2] == ["dialects"]
    return both and (PACKAGE / "dialects" / imported[2]).is_dir() and importer[2] != imported[2]


def test_a_dialect_knows_no_other() -> None:
    assert [one for one in all_imports() if foreign_dialect(one)] == []
    assert foreign_dialect(Import("llmd.dialects.other.chat", "llmd.dialects.openai.wire", False, False))
    assert not foreign_dialect(Import("llmd.dialects.other.chat", "llmd.dialects.parameters", False, False))


def test_no_module_imports_itself_through_others() -> None:
    graph: dict[str, set[str]] = {}
    for one in all_imports():
        if one.imported.startswith("llmd.") and not one.lazy and not one.typing:
            graph.setdefault(one.importer, set()).add(one.imported)

    def cycle_from(module: str, path: tuple[str, ...]) -> tuple[str, ...]:
        if module in path:
            return (*path[path.index(module) :], module)
        return next((found for child in graph.get(module, ()) if (found := cycle_from(child, (*path, module)))), ())

    assert [cycle for module in sorted(graph) if (cycle := cycle_from(module, ()))] == []


# Maps an import name to the only modules and packages that may use it.
DOORS = {
    "aiohttp": ("llmd.http.", "llmd.routes.", "llmd.dialects.", "llmd.app.", "llmd.__main__."),
    "uvloop": ("llmd.app.", "llmd.__main__."),
    "cffi": ("llmd.engine._native_build.",),
    "prometheus_client": ("llmd.http.metrics.",),
    "huggingface_hub": ("llmd.models.hub.", "llmd.models.hub_cache."),
    "opentelemetry": ("llmd.http.traces.",),
}


@pytest.mark.parametrize("name", DOORS)
def test_foreign_packages_have_one_door(name: str) -> None:
    users = {one.importer for one in all_imports() if one.imported.split(".")[0] == name}
    assert {user for user in users if not f"{user}.".startswith(DOORS[name])} == set()


def test_the_extension_module_has_one_door() -> None:
    users = {relative(path) for path in PACKAGE.rglob("*.py") if "_libllm" in path.read_text()}
    assert users == {"daemon/llmd/engine/native.py", "daemon/llmd/engine/_native_build.py"}


TYPES_ONLY = re.compile(r"llmd\.(\w+\.)*(health_)?wire(\.\w+)?|llmd\.core\.(asked|parts)")


def test_types_do_no_io() -> None:
    allowed = {"__future__", "collections", "dataclasses", "enum", "msgspec", "typing", "llmd", "json", "re"}
    used = {one.imported.split(".")[0] for one in all_imports() if TYPES_ONLY.fullmatch(one.importer)}
    assert "msgspec" in used <= allowed


def test_llmctl_knows_only_its_client() -> None:
    """llmctl may use socket_trust (the path of the socket, and trust in it), help_text (--help and suggestions),
    session_key (valid ids) and sampling_table (names and ranges of parameters). It imports libllm only when a verb
    needs it. Only the verbs about models use `models`.
    """
    ours = [one for one in all_imports() if one.importer.startswith("llmd.ctl") and one.imported.startswith("llmd")]
    outside = {one for one in ours if one.imported != "llmd" and not one.imported.startswith("llmd.ctl")}
    about_models = {one for one in outside if one.importer == "llmd.ctl.models"}
    assert {one.imported for one in outside - about_models} <= {
        "llmd.models.errors",
        "llmd.process.socket_trust",
        "llmd.process.help_text",
        "llmd.core.session_key",
        "llmd.core.sampling_table",
        "llmd.engine.native",
        "llmd.engine.segment",
    }
    assert {one.imported for one in about_models if not one.imported.startswith("llmd.models")} == {
        "llmd.engine.machine",
        "llmd.process.progress",
    }
    loading = {"llmd.engine.machine", "llmd.engine.native"}
    assert {one.importer for one in outside if one.imported in loading and not one.lazy} == set()


def test_llmctl_starts_light() -> None:
    heavy = (
        "aiohttp",
        "uvloop",
        "prometheus_client",
        "asyncio",
        "cffi",
        "_libllm",
        "llmd.engine.machine",
        "llmd.engine.native",
        "llmd.engine.engine",
        "huggingface_hub",
    )
    program = f"import sys, llmd.ctl.__main__; print([name for name in {heavy!r} if name in sys.modules])"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=PACKAGE.parent
    )
    assert loaded.stdout.strip() == "[]"


# --- C ---------------------------------------------------------------------------------------------------------------

FOREIGN_HEADER = re.compile(r'^\s*#\s*include\s*[<"]((?:llama|ggml|gguf|common/|nlohmann/)[^>"]*)[>"]', re.MULTILINE)
OWN_HEADER = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
LLAMA_DOORS = re.compile(
    r"(model/llama/\w+|text/(template|chat|answer|sampling|constraint)/\w+|text/schema/references)\.(cpp|h)"
)
PURE = sorted(path.stem for path in (LIBLLM / "policy").glob("*.c"))

# A folder may include itself and the folders after it. policy works on plain values, so all other folders may use it.
C_LAYERS = ("engine", "sessions", "states", "boundary", "text", "model", "machine", "policy")
TEXT_LAYERS = ("chat", "answer", "sampling", "constraint", "schema", "grammar", "template")
FOLDER_FILES_MAX = 30


def test_llama_has_few_doors() -> None:
    users = {
        path.relative_to(LIBLLM).as_posix()
        for path in LIBLLM.rglob("*")
        if path.is_file() and FOREIGN_HEADER.search(path.read_text())
    }
    assert {name for name in users if not LLAMA_DOORS.fullmatch(name)} == set()


def test_headers_of_doors_show_nothing_foreign() -> None:
    """A file that includes model.h, sampler.h or chat.h must not get llama.cpp's headers."""
    doors = "model/model.h", "text/sampling/sampler.h", "text/chat/chat.h"
    assert {name: FOREIGN_HEADER.findall((LIBLLM / name).read_text()) for name in doors} == {name: [] for name in doors}


def includes_upwards(root: Path, layers: tuple[str, ...]) -> list[str]:
    """Returns the includes of files in `root` that name an earlier layer than the file's own. A layer is a folder of
    `root`. Paths begin below libllm.
    """
    prefix = "".join(f"{part}/" for part in root.relative_to(LIBLLM).parts)
    return [
        f"{relative(path)} includes {included}"
        for path in root.rglob("*.[ch]*")
        for included in OWN_HEADER.findall(path.read_text())
        if "/" in included and included.startswith(prefix)
        if layers.index(included.removeprefix(prefix).split("/")[0]) < layers.index(path.relative_to(root).parts[0])
    ]


def test_c_folders_include_downwards() -> None:
    assert includes_upwards(LIBLLM, C_LAYERS) == []
    assert includes_upwards(LIBLLM / "text", TEXT_LAYERS) == []
    assert includes_upwards(LIBLLM / "text", TEXT_LAYERS[::-1]) != []


@pytest.mark.parametrize("root", [LIBLLM, PACKAGE])
def test_a_folder_has_few_sources(root: Path) -> None:
    sources = Counter(path.parent for path in root.rglob("*") if path.suffix in (".c", ".h", ".cpp", ".py"))
    assert {relative(folder): n for folder, n in sources.items() if n > FOLDER_FILES_MAX} == {}


@pytest.mark.parametrize("name", PURE)
def test_decisions_are_pure(name: str) -> None:
    """Decisions depend only on values, and use no model, shared memory, ring or clock."""
    text = "".join((LIBLLM / "policy" / name).with_suffix(suffix).read_text() for suffix in (".c", ".h"))
    own = set(OWN_HEADER.findall(text)) - {"llm.h", "llm_words.h"}
    assert {header for header in own if not header.startswith("policy/")} == set()
    assert not re.search(r"\b(clock_gettime|gettimeofday|time|rand|fopen|open|read|write|printf|getenv)\s*\(", text)


def test_the_public_headers_include_no_private_one() -> None:
    for path in (ROOT / "include").glob("*.h"):
        assert set(OWN_HEADER.findall(path.read_text())) <= {"llm.h", "llm_words.h"}


# --- names and sizes -------------------------------------------------------------------------------------------------


def test_names_say_something() -> None:
    named = [path for path in [*python_sources(), *c_sources()] if BANNED_WORDS & set(re.split(r"[_.-]", path.stem))]
    folders = {parent for path in [*python_sources(), *c_sources()] for parent in path.relative_to(ROOT).parents}
    assert named == []
    assert {folder for folder in folders if BANNED_WORDS & set(re.split(r"[_.-]", folder.name))} == set()


def test_no_two_classes_have_one_name() -> None:
    places: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(module_name(path))
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}


def n_lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def python_functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def c_functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yields the functions of a C file. In formatted code, a definition begins in the first column, and its closing
    brace is in the first column.
    """
    start, name = 0, ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        opening = re.match(r"[A-Za-z_].*?([A-Za-z_]\w*)\(", line)
        if opening and not line.rstrip().endswith(";"):
            start, name = number, opening[1]
        elif line.startswith("}") and name:
            yield name, number - start + 1
            name = ""
        elif line.rstrip().endswith(";") and not line.startswith((" ", "\t", "}")):
            name = ""


def too_long(paths: list[Path], file_lines_max: int, function_lines_max: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for path in paths:
        slack = TEST_SLACK if relative(path).startswith("tests/") else 1
        functions = python_functions(path) if path.suffix == ".py" else c_functions(path)
        found |= {relative(path): n for n in [n_lines(path)] if n > file_lines_max * slack}
        found |= {f"{relative(path)}:{name}": n for name, n in functions if n > function_lines_max * slack}
    return {key: n for key, n in found.items() if key not in LONGER_FOR_A_REASON}


def test_python_fits_a_head() -> None:
    assert too_long(python_sources(), PYTHON_FILE_LINES_MAX, PYTHON_FUNCTION_LINES_MAX) == {}


def test_c_fits_a_head() -> None:
    assert too_long(c_sources(), C_FILE_LINES_MAX, C_FUNCTION_LINES_MAX) == {}


def test_c_functions_are_found(tmp_path: Path) -> None:
    source = tmp_path / "one.c"
    source.write_text("static int f(int a)\n{\n    return a;\n}\n\nvoid g(int a,\n       int b) {\n    a = b;\n}\n")
    assert list(c_functions(source)) == [("f", 4), ("g", 4)]


def test_exceptions_are_still_needed() -> None:
    for key in LONGER_FOR_A_REASON:
        assert (ROOT / key.split(":")[0]).exists(), f"{key} is gone"


@pytest.mark.parametrize("part", TABLE_PARTS)
def test_only_its_own_files_touch_a_part_of_the_branch_table(part: str) -> None:
    touches = re.compile(rf"(->|\.){part}\.\w")
    touching = {path.stem for path in LIBLLM.rglob("*.c") if touches.search(path.read_text())}
    assert touching and touching <= TABLE_PARTS[part]
