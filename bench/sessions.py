"""Interleaved conversations: tokens that a request prefills and must prefill, and its time to first token.

The conversations take turns. If there are more conversations than slots, sessions leave the model's memory between
their turns. llama-server has the same number of slots. It gets each request right after llmd has answered the same
request.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

from . import models, peer
from .conversation import Conversation, Cost
from .daemon import daemon
from .report import OURS, Figure, Report
from .sides import PEER

MODELS = ("bench-small", "bench-hybrid", "tiny-window", "tiny-recurrent", "tiny-hybrid-q8")
RATIO = 1.05
TURNS, BRANCH_AT = 6, 3
N_CTX = 4096

Costs = dict[str, list[Cost]]
# The order matters, because each operation continues the conversation that the previous operation has left.
OPERATIONS: dict[str, Callable[[Conversation], Cost]] = {
    "regenerate": Conversation.regenerate,
    "edit last": Conversation.edit_last,
    "strip reasoning": Conversation.strip,
    f"branch at turn {BRANCH_AT}": lambda conversation: conversation.branch(BRANCH_AT),
    "append after it": lambda conversation: conversation.say("after"),
    "back to what was left": lambda conversation: conversation.back(),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--slots", type=int, default=4, metavar="N", help="named sessions in the model's memory")
    parser.add_argument(
        "--conversations", type=int, nargs="+", default=[], metavar="K", help="numbers of interleaved conversations"
    )
    parser.add_argument("--system", type=int, default=60, metavar="N", help="words of the system prompt (%(default)s)")
    parser.add_argument("--tokens", type=int, default=24, metavar="N", help="tokens of an answer (%(default)s)")


def about(options: argparse.Namespace) -> str:
    return f"{TURNS} turns and {len(OPERATIONS)} kinds of request, {options.slots} slots"


def measure(report: Report, model: str, options: argparse.Namespace) -> None:
    for n in options.conversations or ([3] if options.short else [3, 7]):
        for side, by_kind in _costs(report, model, n, options).items():
            _add(report, f"{n} conversations", side, by_kind)


def _costs(report: Report, model: str, n: int, options: argparse.Namespace) -> dict[str, Costs]:
    """Runs the conversations with all servers. Returns the costs of the requests by server and kind of request. All
    servers have the same number of slots, and the same context size for each slot.
    """
    path = models.path_of(model)
    with ExitStack() as stack:
        servers = {OURS: stack.enter_context(daemon(path, max_sessions=options.slots, ctx_size=N_CTX))}
        if peer.directory() is not None and not path.startswith("sim:"):
            servers[PEER] = stack.enter_context(
                peer.server(path, options=["-np", f"{options.slots}", "-c", f"{N_CTX * options.slots}"])
            )
        sampling = {"max_tokens": options.tokens, "temperature": 0, "seed": 1}
        sides: dict[str, list[Conversation]] = {}
        for name, server in servers.items():
            consumed: list[str] = []
            sides[name] = [
                Conversation(server.port, f"conversation-{number}", consumed, options.system, **sampling)
                for number in range(n)
            ]
        costs: dict[str, Costs] = {name: {} for name in sides}
        for kind, operation in _script():
            report.progress(f"{n} conversations: {kind}")
            for number in range(n):
                for name, conversations in sides.items():
                    costs[name].setdefault(kind, []).append(operation(conversations[number]))
    return costs


def _script() -> list[tuple[str, Callable[[Conversation], Cost]]]:
    turns = [("first turn" if turn == 0 else "append", _turn(turn)) for turn in range(TURNS)]
    return [*turns, *OPERATIONS.items()]


def _turn(turn: int) -> Callable[[Conversation], Cost]:
    return lambda conversation: conversation.say(str(turn))


def _add(report: Report, case: str, side: str, costs: Costs) -> None:
    for kind, made in costs.items():
        reasons = Counter(cost.reason for cost in made if cost.reason)
        why = " ".join(f"{word}:{count}" for word, count in reasons.most_common())
        # A request must prefill at least one token, because it needs the logits of the last prompt token.
        ratio = sum(cost.n_prefilled for cost in made) / sum(max(cost.n_needed, 1) for cost in made)
        figures: tuple[tuple[str, str, list[float]], ...] = (
            ("prefilled", why, [cost.n_prefilled for cost in made]),
            ("needed", "", [cost.n_needed for cost in made]),
            ("first token", "ms", [cost.first_ms for cost in made]),
        )
        for quantity, unit, values in figures:
            report.add(Figure(case=f"{case}, {kind}", side=side, quantity=quantity, unit=unit, values=values))
        target = RATIO if side == OURS else None
        report.add(
            Figure(
                case=f"{case}, {kind}",
                side=side,
                quantity="prefilled / needed",
                unit="",
                values=[ratio],
                at_most=target,
            )
        )
