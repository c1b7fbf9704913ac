"""The servers that a measurement compares: llmd and, where it is built, llama-server. Both run as users run them, with
default options where possible.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from . import models, peer
from .daemon import Server, daemon
from .report import OURS

SLOTS = 8
"""The number of slots for named sessions that llmd has by default."""
CTX_DEFAULT = 8192
"""With llmd's default options, sessions of this many tokens fit into all slots at once. A single session can hold more
tokens.
"""
PEER = "llama-server"

Sides = dict[str, Server]


@contextmanager
def both(options: argparse.Namespace, model: str, slots: int = 0, n_ctx: int = 0) -> Iterator[Sides]:
    """Starts all servers at once, and yields them by name when all are ready.

    Each server can run `slots` streams at once, each with at most `n_ctx` tokens. These values are passed to a server
    only if they exceed the server's defaults. For each text in `options.also`, one more llama-server is started, with
    these options.
    """
    path = models.path_of(model)
    with ExitStack() as stack:
        waiting = {OURS: ours(model, slots, n_ctx)}
        if peer.directory() is not None and not path.startswith("sim:"):
            for also in ("", *options.also):
                waiting[f"{PEER} {also}".strip()] = peer.server(path, slots, n_ctx, also.split())
        yield {name: stack.enter_context(server) for name, server in waiting.items()}


def ours(model: str, slots: int = 0, n_ctx: int = 0) -> AbstractContextManager[Server]:
    """Starts llmd with the same options as `both` does, and returns it."""
    flags: dict[str, Any] = {"max_sessions": slots} if slots > SLOTS else {}
    flags |= {"ctx_size": n_ctx} if n_ctx > CTX_DEFAULT else {}
    return daemon(models.path_of(model), **flags)


def alternating(sides: Sides, turn: int) -> list[tuple[str, Server]]:
    """Returns the servers with their names. The order is reversed in every other turn, so no server is always the
    first.
    """
    order = list(sides.items())
    return order if turn % 2 == 0 else order[::-1]
