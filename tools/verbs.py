"""The verbs of llmctl, read from its parser: the reference, the man page and the tests use them."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from llmd.ctl import __main__ as ctl
from llmd.ctl.manual import PROGRAM

# Of the program, and not of one verb.
SHARED = ("help", "version", *(action.dest for action in ctl.shared_options(defaults=True)._actions))


@dataclass(frozen=True, slots=True)
class Verb:
    path: str
    """ "llmctl sessions fork" """
    summary: str
    parser: argparse.ArgumentParser

    @property
    def arguments(self) -> list[argparse.Action]:
        """Returns the arguments of a verb without those of all verbs: words first, then options."""
        own = [action for action in self.parser._actions if action.dest not in SHARED]
        return sorted(own, key=lambda action: bool(action.option_strings))

    @property
    def usage(self) -> str:
        return " ".join((self.path, *map(spelling, self.arguments)))


def spelling(action: argparse.Action) -> str:
    """Returns the spelling in a usage line: "ID", "[VERB ...]", "[--at POINT]"."""
    if not action.option_strings:
        return f"[{action.metavar} ...]" if action.nargs == "*" else str(action.metavar)
    return f"[{flag(action)}]"


def flag(action: argparse.Action) -> str:
    """The longest spelling of an option, and what follows it."""
    longest = max(action.option_strings, key=len)
    return longest if action.nargs == 0 else f"{longest} {action.metavar}"


def verbs(parser: argparse.ArgumentParser | None = None, path: str = PROGRAM) -> list[Verb]:
    """Leaves only, in the order of --help."""
    found = []
    for group in (parser or ctl.parser())._actions:
        if isinstance(group, argparse._SubParsersAction):
            for row in group._choices_actions:
                sub, name = group.choices[row.dest], f"{path} {row.dest}"
                found += verbs(sub, name) or [Verb(name, row.help or "", sub)]
    return found
