"""The servers that are compared: the daemon and, if it is built, llama-server, both as their users run them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from . import models, peer
from .daemon import Server, daemon
from .report import OURS

SLOTS = 8
"""Slots of the daemon for named sessions by default."""
CTX_DEFAULT = 8192
"""Tokens that the daemon has room for in each session by default; a single session can hold more."""
PEER = "llama-server"

Sides = dict[str, Server]


@contextmanager
def both(options: argparse.Namespace, model: str, slots: int = 0, n_ctx: int = 0) -> Iterator[Sides]:
    """Starts all servers at the same time and returns them by name when they are ready.

    They serve `slots` streams at once, each of at most `n_ctx` tokens. Only values above a server's default are passed
    to it. `options.also` names further servers.
    """
    path = models.path_of(model)
    with ExitStack() as stack:
        waiting = {OURS: ours(model, slots, n_ctx)}
        if peer.directory() is not None and not path.startswith("sim:"):
            for also in ("", *options.also):
                waiting[f"{PEER} {also}".strip()] = peer.server(path, slots, n_ctx, also.split())
        yield {name: stack.enter_context(server) for name, server in waiting.items()}


def ours(model: str, slots: int = 0, n_ctx: int = 0) -> AbstractContextManager[Server]:
    """Returns only the daemon of `both`."""
    flags: dict[str, str | int] = {"max_sessions": slots} if slots > SLOTS else {}
    flags |= {"ctx_size": n_ctx} if n_ctx > CTX_DEFAULT else {}
    return daemon(models.path_of(model), **flags)


def alternating(sides: Sides, turn: int) -> list[tuple[str, Server]]:
    """Returns the sides in an order that changes from turn to turn, so that no side always goes first."""
    order = list(sides.items())
    return order if turn % 2 == 0 else order[::-1]
