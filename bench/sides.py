"""Who is compared: the daemon as its users run it, and llama-server as its users run it, where it is built."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from . import models, peer
from .daemon import Server, daemon
from .report import OURS

SLOTS = 8
"""Named sessions that the daemon has when it is not told."""
CTX_DEFAULT = 8192
"""Tokens of a session that it has room for in each of them when it is not told; one alone may hold more."""
PEER = "llama-server"

Sides = dict[str, Server]


@contextmanager
def both(options: argparse.Namespace, model: str, slots: int = 0, n_ctx: int = 0) -> Iterator[Sides]:
    """The servers by name, ready, at the same time. `slots` streams at once, each of at most `n_ctx` tokens: what is
    more than a server's default is asked for, everything else is left to it. `options.also` names further rows."""
    path = models.path_of(model)
    with ExitStack() as stack:
        waiting = {OURS: ours(model, slots, n_ctx)}
        if peer.directory() is not None and not path.startswith("sim:"):
            for also in ("", *options.also):
                waiting[f"{PEER} {also}".strip()] = peer.server(path, slots, n_ctx, also.split())
        yield {name: stack.enter_context(server) for name, server in waiting.items()}


def ours(model: str, slots: int = 0, n_ctx: int = 0) -> AbstractContextManager[Server]:
    """The daemon of `both`, alone."""
    flags: dict[str, str | int] = {"max_sessions": slots} if slots > SLOTS else {}
    flags |= {"ctx_size": n_ctx} if n_ctx > CTX_DEFAULT else {}
    return daemon(models.path_of(model), **flags)


def alternating(sides: Sides, turn: int) -> list[tuple[str, Server]]:
    """In an order that changes from turn to turn, so that who goes first does not count."""
    order = list(sides.items())
    return order if turn % 2 == 0 else order[::-1]
