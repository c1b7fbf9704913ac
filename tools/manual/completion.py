"""Completions of bash, zsh and fish for llmd and llmctl, made by shtab from the programs' own parsers."""

from __future__ import annotations

import argparse
from typing import Any

import shtab

from llmd.ctl import __main__ as ctl
from llmd.process import config_reader
from llmd.process.config_table import OPTIONS
from tools.verbs import verbs

# Names of values in --help that are paths, with the completion that a shell offers for them.
_PATHS: dict[str, Any] = {"PATH": shtab.FILE, "FILE": shtab.FILE, "DIR": shtab.DIRECTORY, "MODEL": shtab.FILE}

# Paths below share/ in which each shell looks for completions. {} stands for the name of the program.
_PLACES = {
    "bash": "bash-completion/completions/{}",
    "zsh": "zsh/site-functions/_{}",
    "fish": "fish/vendor_completions.d/{}.fish",
}


def scripts() -> dict[str, str]:
    """Returns the scripts, by their paths below share/."""
    programs = {"llmd": _llmd(), "llmctl": _llmctl()}
    return {
        place.format(name): shtab.complete(parser, shell)
        for name, parser in programs.items()
        for shell, place in _PLACES.items()
    }


def _llmd() -> argparse.ArgumentParser:
    parser = config_reader.parser()
    options = {option.name: option for option in OPTIONS}
    for action in parser._actions:
        if option := options.get(action.dest):
            action.choices = option.kind.words or None
            action.help = option.help.replace("%", "%%")  # without defaults, which depend on the user who runs this
    _offer_paths(parser)
    return parser


def _llmctl() -> argparse.ArgumentParser:
    parser = ctl.parser()
    _offer_paths(parser)
    for verb in verbs(parser):
        _offer_paths(verb.parser)
    return parser


def _offer_paths(parser: argparse.ArgumentParser) -> None:
    for action in parser._actions:
        if action.metavar in _PATHS:
            action.complete = _PATHS[action.metavar]  # type: ignore[attr-defined]
