"""The verbs of llmctl, taken from its parser, for the reference, the man page and the tests."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from llmd.ctl import __main__ as ctl
from llmd.ctl.manual import PROGRAM

# Options of the whole program, which every verb has.
SHARED = ("help", "version", *(action.dest for action in ctl.shared_options(defaults=True)._actions))


@dataclass(frozen=True, slots=True)
class Verb:
    path: str
    """ "llmctl sessions fork" """
    summary: str
    parser: argparse.ArgumentParser

    @property
    def arguments(self) -> list[argparse.Action]:
        """The arguments of the verb except those that every verb has. Words come first, then options."""
        own = [
            action
            for action in self.parser._actions
            if action.dest not in SHARED and not isinstance(action, argparse._SubParsersAction)
        ]
        return sorted(own, key=lambda action: bool(action.option_strings))

    @property
    def usage(self) -> str:
        return " ".join((self.path, *map(spelling, self.arguments)))


def spelling(action: argparse.Action) -> str:
    """Returns the argument as a usage line shows it, such as "ID", "[VERB ...]" or "[--at POINT]"."""
    if not action.option_strings:
        return f"[{action.metavar} ...]" if action.nargs == "*" else str(action.metavar)
    return f"[{flag(action)}]"


def flag(action: argparse.Action) -> str:
    """Returns the longest spelling of an option, followed by the name of its value."""
    longest = max(action.option_strings, key=len)
    return longest if action.nargs == 0 else f"{longest} {action.metavar}"


def verbs(parser: argparse.ArgumentParser | None = None, path: str = PROGRAM) -> list[Verb]:
    """Returns the verbs in the order of --help, without groups of verbs that do nothing by themselves."""
    found = []
    for group in (parser or ctl.parser())._actions:
        if isinstance(group, argparse._SubParsersAction):
            for row in group._choices_actions:
                sub, name = group.choices[row.dest], f"{path} {row.dest}"
                if sub.get_default("run") is not None or "words" in {action.dest for action in sub._actions}:
                    found.append(Verb(name, row.help or "", sub))
                found += verbs(sub, name)
    return found
