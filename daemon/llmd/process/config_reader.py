"""Reads the options from the command line, the environment and the TOML file. The command line overrides the
environment, the environment overrides the TOML file, and the file overrides the defaults.
"""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from .. import __version__
from . import logs, manual
from .config_checks import ConfigError, check
from .config_table import OPTIONS, Config
from .help_text import format_sections, nearest, unrecognized
from .manual import PROGRAM
from .option import Option, PartError

USAGE_ERROR = 2

_CONFIG = next(option for option in OPTIONS if option.name == "config")
_MODEL = "positional_model"
_SYNONYMS = {"-m": "--model", "-c": "--ctx-size", "-ngl": "--gpu-layers", "-t": "--threads", "-np": "--max-sessions"}
"""Maps short options of llama.cpp's programs to the options of llmd that do the same. Used to suggest the llmd option
in an error.
"""


def load(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Config:
    """Returns the values of all options. Raises ConfigError. If `--help` or `--version` is given, prints its text and
    ends the process.
    """
    environment = os.environ if environment is None else environment
    parsed, strange = parser().parse_known_args(arguments)
    if strange:
        raise ConfigError(f"{unrecognized(strange, (option.flag for option in OPTIONS), _SYNONYMS)}{_SEE}")
    from_command_line = {name: value for name, value in vars(parsed).items() if value is not None}
    if _MODEL in from_command_line:
        if "model" in from_command_line:
            raise ConfigError(
                f"--model {from_command_line['model']} and {from_command_line[_MODEL]}: only one model can be served"
            )
        from_command_line["model"] = from_command_line[_MODEL]
    path = from_command_line.get("config") or environment.get("LLMD_CONFIG")
    from_file = _read_file(_parse(_CONFIG, path, "--config")) if path else {}
    values: dict[str, Any] = {}
    for option in OPTIONS:
        if option.name in from_command_line:
            values[option.name] = _parse(option, from_command_line[option.name], option.flag)
        elif environment.get(option.environment):
            values[option.name] = _parse(option, environment[option.environment], option.environment)
        elif option.name in from_file:
            values[option.name] = _parse(option, from_file[option.name], f"{path}: {option.name}")
    config = Config(**values)
    check(config)
    return config


def load_or_exit(arguments: Sequence[str]) -> Config:
    """Does the same as `load`, but if an option is invalid, prints the error and ends the process with status 2."""
    try:
        return load(arguments)
    except ConfigError as error:
        logs.print_fatal(f"{PROGRAM}: {error}")
        raise SystemExit(USAGE_ERROR) from None


_SEE = f"; {PROGRAM} --help lists all options"

# Environment variables of build.sh, libllm and the tests. `remarks` does not warn about them, because they can be set
# when `./build.sh serve` runs llmd.
NOT_OPTIONS = frozenset(
    f"LLMD_{name}"
    for name in """
    BACKEND PORTABLE CPU_FEATURES CUDA_ARCHITECTURES CUDA_TOOLKIT CACHE_DIR LLAMA_ARCHIVE LLAMA_SDIST JOBS
    LIBLLM_VARIANT LLAMA_LOG FUZZ_SECONDS TEST_MODELS TEST_EXACT TEST_EXACT_VARIANT TEST_KV_TYPE TEST_DEVICE BENCH_PEER
    PEER_AMX
    WHEEL_PLATFORM
    """.split()
)


def remarks(environment: Mapping[str, str]) -> list[str]:
    """Returns a warning for each environment variable LLMD_... without effect."""
    known = {option.environment for option in OPTIONS}
    strange = sorted(name for name in environment if name.startswith("LLMD_") and name not in known | NOT_OPTIONS)
    return [
        f"the environment variable {name} is ignored: llmd has no such option{nearest(name, known)}{_SEE}"
        for name in strange
    ]


def _parse(option: Option, text: str, where: str) -> Any:
    try:
        return option.kind.parse(text)
    except (ValueError, OverflowError) as error:
        wrong = error.part if isinstance(error, PartError) else text
        raise ConfigError(f"{where}: {wrong!r} is not valid; expected {option.kind.expects}") from None


def _read_file(path: Path) -> dict[str, str]:
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"--config: cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config: {path} is not valid TOML: {error}") from None
    known = {option.name for option in OPTIONS} - {"config"}
    spellings: dict[str, str] = {}
    values = {}
    for key, value in document.items():
        name = key.replace("-", "_")
        if name not in known:
            raise ConfigError(f"{path}: there is no option {key!r}{nearest(name, known)}{_SEE}")
        if name in spellings:
            raise ConfigError(f"{path}: {spellings[name]} and {key} are the same option; remove one of them")
        spellings[name] = key
        values[name] = _toml_text(path, key, value)
    return values


_TOML_KINDS: dict[type, str] = {dict: "a table", list: "a list that has values other than text"}


def _toml_text(path: Path, key: str, value: object) -> str:
    """Converts a value of the TOML file to text in the syntax of the command line. Raises ConfigError if an option
    cannot have a value of this type.
    """
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return ",".join(value)
    if isinstance(value, str | int | float):
        return str(value)
    kind = _TOML_KINDS.get(type(value), f"a {type(value).__name__}")
    raise ConfigError(f"{path}: {key} is {kind}; expected text, a number, true, false or a list of texts")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}{_SEE}")


def parser() -> argparse.ArgumentParser:
    program = _Parser(
        prog=PROGRAM,
        usage=manual.USAGE,
        description=manual.DESCRIPTION,
        epilog=_epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    groups: dict[str, Any] = {}
    for option in OPTIONS:
        if option.group not in groups:
            groups[option.group] = program.add_argument_group(option.group)
        groups[option.group].add_argument(option.flag, dest=option.name, metavar=option.metavar, help=_help(option))
    program.add_argument(_MODEL, nargs="?", metavar="MODEL", help="the same as --model MODEL")
    program.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    return program


def _epilog() -> str:
    sections = format_sections(manual.SIGNALS, manual.EXIT_STATUSES, manual.EXAMPLES), format_sections(manual.READ_ON)
    return "\n".join((manual.PRECEDENCE, sections[0], manual.REQUEST, sections[1]))


def _help(option: Option) -> str:
    default = option.default_text()
    text = option.help.replace("%", "%%")
    return f"{text} (default: {default})" if default and "(default:" not in text else text
