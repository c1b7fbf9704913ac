"""The man pages and shell completions: they agree with the programs' options, and formatters accept them."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from llmd.ctl import __main__ as ctl
from llmd.ctl import manual as llmctl
from llmd.process import config_reader, manual
from llmd.process.config_table import OPTIONS
from tools.manual import __main__ as written
from tools.verbs import Verb, verbs

ROOT = Path(__file__).parents[1]
FILES = written.files()
PAGES = sorted(name for name in FILES if name.startswith("man/"))
MACROS = {"TH", "SH", "SS", "PP", "TP", "BR", "nh", "ad", "nf", "fi"}


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("share")
    written.write(directory)
    return directory


def plain(page: str) -> str:
    """Returns roughly the text that a reader sees, on one line, without fonts and escapes."""
    text = re.sub(r"\\f[BIR]", "", FILES[page]).replace(r"\-", "-").replace(r"\(aq", "'").replace(r"\(rs", "\\")
    return " ".join(text.split())


# --- man pages -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_known_macros_and_whole_lines(page: str) -> None:
    lines = FILES[page].splitlines()
    assert {line[1:].split()[0] for line in lines if line.startswith((".", "'"))} <= MACROS
    assert lines[0].startswith(".TH ") and lines[3] == '.SH "NAME"' and r" \- " in lines[4]
    literal = False
    for line in lines:
        literal = line == ".nf" or (literal and line != ".fi")
        assert line.strip() and (literal or line.startswith(".") or len(line) <= 80), line
        assert re.sub(r"\\(-|&|f[BIR]|\((aq|rs|ga|ha|ti|dq))", "", line).isascii()
        assert "\\" not in re.sub(r"\\(-|&|f[BIR]|\((aq|rs|ga|ha|ti|dq))", "", line)


@pytest.mark.parametrize("page", PAGES)
def test_formatters_have_nothing_to_say(page: str, share: Path) -> None:
    """Tests only the formatters that are installed."""
    for program in (["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"], ["mandoc", "-T", "lint"]):
        if shutil.which(program[0]):
            done = subprocess.run([*program, str(share / page)], capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr) == (0, "")
            assert "mandoc" not in done.stdout


def test_every_option_has_its_place() -> None:
    page, toml = plain("man/man1/llmd.1"), plain("man/man5/llmd.toml.5")
    for option in OPTIONS:
        about = f"{option.help[0].upper()}{option.help[1:]}."
        assert f".TP {option.flag} {option.metavar} {about}" in page
        assert option.name == "config" or f".TP {option.name} = {option.metavar} " in toml


@pytest.mark.parametrize("verb", verbs(), ids=lambda verb: verb.path)
def test_every_verb_has_its_place(verb: Verb) -> None:
    page = plain("man/man1/llmctl.1")
    assert f'.SS "{verb.usage.removeprefix("llmctl ")}" ' in page
    for action in verb.arguments:
        assert str(action.help)[1:] in page
    if verb.parser.epilog:
        assert " ".join(verb.parser.epilog.split()[-5:]) in page


def test_the_sections_are_in_help_and_page(capsys: pytest.CaptureFixture[str]) -> None:
    for program, page, sections in (
        (config_reader.parser(), "man/man1/llmd.1", (manual.SIGNALS, manual.EXIT_STATUSES, manual.EXAMPLES)),
        (ctl.parser(), "man/man1/llmctl.1", (llmctl.EXIT_STATUSES, llmctl.EXAMPLES)),
    ):
        shown = " ".join(program.format_help().split())
        for section in sections:
            for term, about in section.rows:
                assert f"{term} {about}" in shown and f".TP {term} {about}" in plain(page)


def test_the_example_of_a_file_is_one(tmp_path: Path) -> None:
    file = tmp_path / "llmd.toml"
    file.write_text(manual.TOML_EXAMPLE)
    loaded = config_reader.load(["--config", str(file)], {})
    assert (loaded.port, loaded.kv_memory, loaded.allowed_hosts) == (8001, 8 << 30, ("llm.example.org",))


def test_the_examples_of_a_command_line_are_some() -> None:
    for line, _ in manual.EXAMPLES.rows:
        program, *arguments = line.split()
        if program == "llmd" and "--config" not in arguments:  # --config would read that file
            config_reader.load(arguments, {})
    for line, _ in llmctl.EXAMPLES.rows:
        ctl.parser().parse_args(line.partition(" | ")[0].split()[1:])


def test_a_wheel_installs_all_of_it() -> None:
    """The globs in setup.cfg, which are relative to the directory in which the wheel is built, match all written
    files.
    """
    parsed = configparser.ConfigParser()
    parsed.read(ROOT / "setup.cfg")
    globs = parsed["options.data_files"].items()
    assert {place: [place] for place, _ in globs} == {place: [glob.rpartition("/")[0]] for place, glob in globs}
    for name in FILES:
        assert [glob for _, glob in globs if Path(f"share/{name}").match(glob)], name


# --- completion ------------------------------------------------------------------------------------------------------


def completed(share: Path, *words: str) -> set[str]:
    """Returns bash's completions of the last word, which may be empty."""
    script = share / "bash-completion" / "completions" / words[0]
    line = " ".join(f"'{word}'" for word in words)
    program = f"""
        source {script}
        COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}
        $(complete -p {words[0]} | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


def test_verbs_are_completed(share: Path) -> None:
    paths = {verb.path for verb in verbs()}
    assert completed(share, "llmctl", "sessions", "") == {path.split()[2] for path in paths if " sessions " in path}
    assert completed(share, "llmctl", "") == {path.split()[1] for path in paths}
    assert completed(share, "llmctl", "sessions", "saved", "l") == {"list"}
    assert completed(share, "llmctl", "sessions", "fork", "a", "b", "--a") == {"--at"}


def test_options_and_their_words_are_completed(share: Path) -> None:
    assert completed(share, "llmd", "--") >= {option.flag for option in OPTIONS}
    assert completed(share, "llmd", "--capacity-policy", "") == {"park", "evict", "refuse"}
    assert completed(share, "llmd", "--scratch-reuse", "") == {"on", "off"}
    assert completed(share, "llmd", "--model", "setu") == {"setup.cfg", "setup.py"}
    assert completed(share, "llmctl", "--socket", "ARCH") == {"ARCHITECTURE.md"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_can_read_theirs(shell: str, share: Path) -> None:
    """Tests only the shells that are installed."""
    scripts = [share / name for name in FILES if name.startswith(f"{shell}/")]
    assert len(scripts) == 2
    if shutil.which(shell):
        for script in scripts:
            subprocess.run([shell, "--no-exec" if shell == "zsh" else "--no-execute", str(script)], check=True)
