"""What every verb gets: the daemon to talk to and how to answer."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from llmd.ctl.client import Client, Json

EXIT_OK = 0
EXIT_REFUSED = 1
EXIT_USAGE = 2  # argparse's own
EXIT_ABSENT = 3
EXIT_NOT_FOUND = 4
EXIT_INTERRUPTED = 130  # as a shell reports SIGINT
EXIT_PIPE_CLOSED = 141  # as a shell reports SIGPIPE

Verbs: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


@dataclass(frozen=True)
class Context:
    client: Client
    options: argparse.Namespace
    json: bool

    def say(self, raw: Json, text: Callable[[], str]) -> None:
        """The answer itself with --json, its rendering for people otherwise."""
        print(json.dumps(raw, ensure_ascii=False) if self.json else text())

    def warn(self, text: str) -> None:
        print(f"llmctl: {text}", file=sys.stderr)


Run = Callable[[Context], int]
