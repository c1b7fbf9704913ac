"""The servers that are compared: llmd and, if it is built, llama-server. Both run as users run them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from . import models, peer
from .daemon import Server, daemon
from .report import OURS

SLOTS = 8
"""Number of slots for named sessions that the daemon has by default."""
CTX_DEFAULT = 8192
"""Number of tokens for which the daemon by default has room in every session at once. A single session can hold more
tokens.
"""
PEER = "llama-server"

Sides = dict[str, Server]


@contextmanager
def both(options: argparse.Namespace, model: str, slots: int = 0, n_ctx: int = 0) -> Iterator[Sides]:
    """Starts all servers at the same time, and returns the servers by name when all are ready.

    Each server can run `slots` streams at once, each with at most `n_ctx` tokens. A value is passed to a server only if
    it exceeds the server's default. `options.also` names further servers.
    """
    path = models.path_of(model)
    with ExitStack() as stack:
        waiting = {OURS: ours(model, slots, n_ctx)}
        if peer.directory() is not None and not path.startswith("sim:"):
            for also in ("", *options.also):
                waiting[f"{PEER} {also}".strip()] = peer.server(path, slots, n_ctx, also.split())
        yield {name: stack.enter_context(server) for name, server in waiting.items()}


def ours(model: str, slots: int = 0, n_ctx: int = 0) -> AbstractContextManager[Server]:
    """Returns the daemon, with the same options as in `both`."""
    flags: dict[str, str | int] = {"max_sessions": slots} if slots > SLOTS else {}
    flags |= {"ctx_size": n_ctx} if n_ctx > CTX_DEFAULT else {}
    return daemon(models.path_of(model), **flags)


def alternating(sides: Sides, turn: int) -> list[tuple[str, Server]]:
    """Returns the sides in an order that changes with each turn, so that no side is always first."""
    order = list(sides.items())
    return order if turn % 2 == 0 else order[::-1]
