"""Interleaved conversations: how many tokens each kind of request makes the server consume, against how many it must,
and how long its user waits for the first one.

With more conversations than places, sessions leave the model's memory between their turns. With LLAMA_SERVER naming a
llama-server binary, the same traffic goes to it, turn by turn in the same run, with as many slots as places.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

from . import models
from .conversation import Conversation, Cost
from .daemon import daemon, llama_server
from .report import Figure, Report

RATIO = 1.1
TURNS, BRANCH_AT = 6, 3
N_CTX = 4096

Costs = dict[str, list[Cost]]
# In this order: each continues what the one before left.
OPERATIONS: dict[str, Callable[[Conversation], Cost]] = {
    "regenerate": Conversation.regenerate,
    "edit last": Conversation.edit_last,
    "strip reasoning": Conversation.strip,
    f"branch at turn {BRANCH_AT}": lambda conversation: conversation.branch(BRANCH_AT),
    "append after it": lambda conversation: conversation.say("after"),
}


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    about = f"{TURNS} turns and {len(OPERATIONS)} kinds of request, {options.places} places"
    report = Report("sessions", f"{', '.join(options.model)}: {about}")
    for model in options.model:
        for n in options.conversations:
            costs = _measure(report, model, n, options)
            for server, by_kind in costs.items():
                _add(report, f"{model}, {n} conversations, {server}", by_kind, has_target=server == "llmd")
    return report.close()


def _measure(report: Report, model: str, n: int, options: argparse.Namespace) -> dict[str, Costs]:
    """The costs of every server by kind of request."""
    path, threads = models.path_of(model), options.threads or len(os.sched_getaffinity(0))
    peer = os.environ.get("LLAMA_SERVER")
    with ExitStack() as stack:
        flags = {"max_sessions": options.places, "ctx_size": N_CTX, "threads": threads}
        servers = {"llmd": stack.enter_context(daemon(path, capacity_policy="park", **flags))}
        if peer and not path.startswith("sim:"):
            servers["llama-server"] = stack.enter_context(llama_server(peer, path, options.places, N_CTX, threads))
        sampling = {"max_tokens": options.tokens, "temperature": 0, "seed": 1}
        sides = {
            name: [Conversation(server.port, f"conversation-{number}", **sampling) for number in range(n)]
            for name, server in servers.items()
        }
        costs: dict[str, Costs] = {name: {} for name in sides}
        for kind, operation in _script():
            report.progress(f"{model}, {n} conversations: {kind}")
            for number in range(n):
                for name, conversations in sides.items():
                    costs[name].setdefault(kind, []).append(operation(conversations[number]))
    return costs


def _script() -> list[tuple[str, Callable[[Conversation], Cost]]]:
    turns = [("first turn" if turn == 0 else "append", _turn(turn)) for turn in range(TURNS)]
    return [*turns, *OPERATIONS.items()]


def _turn(turn: int) -> Callable[[Conversation], Cost]:
    return lambda conversation: conversation.say(str(turn))


def _add(report: Report, case: str, costs: Costs, has_target: bool) -> None:
    for kind, made in costs.items():
        reasons = Counter(cost.reason for cost in made if cost.reason)
        why = " ".join(f"{word}:{count}" for word, count in reasons.most_common())
        report.add(
            Figure(case=case, quantity=f"{kind}: prefilled", unit=why, values=[cost.n_prefilled for cost in made])
        )
        report.add(Figure(case=case, quantity=f"{kind}: needed", unit="", values=[cost.n_needed for cost in made]))
        # What must be consumed for its logits counts as needed: a request for what is there already costs one token.
        ratio = sum(cost.n_prefilled for cost in made) / sum(max(cost.n_needed, 1) for cost in made)
        target = RATIO if has_target else None
        report.add(Figure(case=case, quantity=f"{kind}: ratio", unit="", values=[ratio], at_most=target))
        report.add(
            Figure(case=case, quantity=f"{kind}: first token", unit="ms", values=[cost.first_ms for cost in made])
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench sessions", description=__doc__)
    defaults = ["bench-small", "tiny-window", "tiny-recurrent", "tiny-hybrid-q8"]
    parser.add_argument("--model", nargs="+", default=defaults, metavar="MODEL", help=models.HELP)
    parser.add_argument("--places", type=int, default=4, metavar="N", help="named sessions in the model's memory")
    parser.add_argument("--conversations", type=int, nargs="+", default=[3, 7], metavar="K", help="at the same time")
    parser.add_argument("--tokens", type=int, default=24, metavar="N", help="tokens of an answer (%(default)s)")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="threads of the model; 0: all processors")
    return parser
