"""Coding agents as their users install them, each in a tool loop with llmd: ``python -m tests.clients [NAME...]``.

A simulated hybrid model with a script reasons, calls the agent's shell three times, and ends. For each turn, the tokens
of the prompt, the resident tokens and the prefilled tokens are printed. A turn fails if it prefills more than what is
new since the last turn and a few other tokens. The agents come from npm and the Python package index, in pinned
versions, and are kept in a cache. They run in a temporary home directory.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from tests.clients.agents import AGENTS
from tests.clients.installing import installed
from tests.clients.loop import Verdict, run

_HEAD = f"{'client':19} {'context':>7} {'turn':>4} {'prompt':>7} {'reused':>7} {'prefilled':>9} {'new':>6}  reason"


def main() -> int:
    parser = argparse.ArgumentParser(prog="./build.sh test-clients", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", nargs="*", help=f"of {', '.join(AGENTS)}; none: all of them")
    parser.add_argument("--ctx-size", type=int, metavar="N", help="tokens of the context, instead of each client's own")
    parser.add_argument("--keep", action="store_true", help="leave each client's home and llmd's log in the directory")
    wanted = parser.parse_args()
    names = wanted.name or list(AGENTS)
    if unknown := sorted(set(names) - set(AGENTS)):
        parser.error(f"there is no client {', '.join(unknown)}; there are {', '.join(AGENTS)}")
    cache = Path(os.environ.get("LLMD_CACHE_DIR") or Path.home() / ".cache" / "llmd") / "clients"
    directory = Path(tempfile.mkdtemp(prefix="llmd-clients-"))
    print(_HEAD, flush=True)
    sizes = [wanted.ctx_size] if wanted.ctx_size else []
    tries = [(name, n_ctx) for name in names for n_ctx in sizes or AGENTS[name].contexts]
    verdicts = [_tried(name, n_ctx, cache, directory / f"{name}-{n_ctx}") for name, n_ctx in tries]
    if wanted.keep:
        print(f"test-clients: kept in {directory}")
    else:
        shutil.rmtree(directory, ignore_errors=True)
    n_failed = sum(bool(verdict.faults) for verdict in verdicts)
    print(f"test-clients: {len(verdicts) - n_failed} of {len(verdicts)} loops passed")
    return 1 if n_failed else 0


def _tried(name: str, n_ctx: int, cache: Path, directory: Path) -> Verdict:
    agent = AGENTS[name]
    verdict = run(agent, installed(agent.source, cache), directory, n_ctx)
    for number, turn in enumerate(verdict.turns, start=1):
        print(
            f"{name:19} {n_ctx:7} {number:4} {turn.n_prompt:7} {turn.n_reused:7} {turn.n_prefilled:9} {turn.n_new:6}"
            f"  {turn.reason}"
        )
    for fault in verdict.faults:
        print(f"{name:19} {n_ctx:7} FAILED: {fault}")
    sys.stdout.flush()
    return verdict


if __name__ == "__main__":
    sys.exit(main())
