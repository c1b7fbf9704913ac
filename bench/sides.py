"""The servers that are compared: the daemon with its defaults, and llama-server with its defaults, if it is built."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from . import models, peer
from .daemon import Server, daemon
from .report import OURS

SLOTS = 8
"""Slots for named sessions that the daemon has by default."""
CTX_DEFAULT = 8192
"""Tokens per session for which the daemon has room by default if all slots are in use; one alone may have more."""
PEER = "llama-server"

Sides = dict[str, Server]


@contextmanager
def both(options: argparse.Namespace, model: str, slots: int = 0, n_ctx: int = 0) -> Iterator[Sides]:
    """Returns the servers by name, ready, at the same time. `slots` streams at once, each of at most `n_ctx` tokens:
    options are set only where a server's defaults are smaller. `options.also` adds further rows."""
    path = models.path_of(model)
    with ExitStack() as stack:
        waiting = {OURS: ours(model, slots, n_ctx)}
        if peer.directory() is not None and not path.startswith("sim:"):
            for also in ("", *options.also):
                waiting[f"{PEER} {also}".strip()] = peer.server(path, slots, n_ctx, also.split())
        yield {name: stack.enter_context(server) for name, server in waiting.items()}


def ours(model: str, slots: int = 0, n_ctx: int = 0) -> AbstractContextManager[Server]:
    """Returns the daemon of `both`, alone."""
    flags: dict[str, str | int] = {"max_sessions": slots} if slots > SLOTS else {}
    flags |= {"ctx_size": n_ctx} if n_ctx > CTX_DEFAULT else {}
    return daemon(models.path_of(model), **flags)


def alternating(sides: Sides, turn: int) -> list[tuple[str, Server]]:
    """Yields the servers in an order that changes from turn to turn, so that going first does not count."""
    order = list(sides.items())
    return order if turn % 2 == 0 else order[::-1]
