"""Command line: python -m bench [NAME [options]]; without a name, everything with its defaults."""

from __future__ import annotations

import importlib
import os
import sys

NAMES = ("serving", "busy", "overhead", "sessions", "residents", "park", "forms", "abuse")

_USAGE = """usage: ./build.sh bench [NAME [options]]

  serving    the serving layer alone, on a simulated model: streamed tokens per CPU-second of the event loop
  busy       tokens per second of a real model, alone and beside another busy process
  overhead   one stream through HTTP against the same library without it
  sessions   interleaved conversations: tokens prefilled against tokens needed, time to first token
  residents  what idle sessions cost a running one
  park       a session's state out of the model's memory and back, against memcpy
  forms      gaps between the tokens of free streams, alone and beside one that must have a form
  abuse      the worst inputs: how long they block the event loop and a bystander, and the memory they take

Without a name all of them run. ./build.sh bench NAME --help shows the options of one. The figures are CSV on stdout, a
readable table of the same goes to stderr.
"""


def main(arguments: list[str]) -> int:
    if arguments[:1] in (["-h"], ["--help"]):
        print(_USAGE, end="")
        return 0
    if arguments and arguments[0] not in NAMES:
        print(f"no such measurement: {arguments[0]}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    # Before any OpenMP code loads in what is started from here: its default waiting measures the scheduler.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    chosen, options = (arguments[:1], arguments[1:]) if arguments else (list(NAMES), [])
    statuses = [run(name, options) for name in chosen]
    return max(statuses)


def run(name: str, options: list[str]) -> int:
    module = importlib.import_module(f"bench.{name}")
    status: int = module.main(options)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
