"""An agent's long prompt next to small chats, with default options: how long each of them waits, and the memory used.

First a prompt as long as the agent's is prefilled alone, without a session. Then the chats have their first turns. Then
the agent's prompt arrives. While it is prefilled, each chat has its second turn. These turns are spread over as much
time as the prefill of the first prompt took. Afterwards the agent continues, and each chat has a third turn.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from . import streams
from .daemon import Server
from .machine import resident_mb
from .report import Report
from .sides import alternating, both
from .streams import Request, Stream, body, prompt_of

MODELS = ("bench-long",)
CHATS, CHAT_TOKENS, TURN_TOKENS, ANSWER_TOKENS = 10, 300, 16, 32
AGENT, AGENT_TURN_TOKENS = "agent", 50

QUANTITIES = {
    "agent's prompt alone, first token": "ms",
    "agent's prompt beside chats, first token": "ms",
    "chats that came meanwhile": "",
    "chats meanwhile, first token, median": "ms",
    "chats meanwhile, first token, longest": "ms",
    "chats meanwhile, gap, longest": "ms",
    "agent's next turn, first token": "ms",
    "chats afterwards, first token, median": "ms",
    "resident memory": "MB",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prompt", type=int, default=0, metavar="N", help="tokens of the agent's prompt")


def about(options: argparse.Namespace) -> str:
    return f"{CHATS} chats of {CHAT_TOKENS} tokens, then an agent's prompt of {_prompt(options)}"


def _prompt(options: argparse.Namespace) -> int:
    return int(options.prompt or (6000 if options.short else 60_000))


def measure(report: Report, model: str, options: argparse.Namespace) -> None:
    found: dict[str, dict[str, list[float]]] = {name: {} for name in QUANTITIES}
    with both(options, model) as servers:
        for turn in range(options.repeats or 1):
            for side, server in alternating(servers, turn):
                report.progress(f"{turn + 1}: {side}")
                for name, value in zip(QUANTITIES, _turn(server, f"{turn}", _prompt(options)), strict=True):
                    found[name].setdefault(side, []).append(value)
    for name, unit in QUANTITIES.items():
        report.compare(f"{_prompt(options)} tokens beside {CHATS} chats", name, unit, found[name])


def _turn(server: Server, seed: str, n_prompt: int) -> tuple[float, ...]:
    alone = streams.complete(server.port, [body(prompt_of(n_prompt, f"{seed} alone"), 1)]).streams[0]
    names = [f"{seed} chat {number}" for number in range(CHATS)]
    for name in names:
        streams.complete(server.port, [_chat(name, 0)])
    agent = prompt_of(n_prompt, f"{seed} {AGENT}")
    every_ms = int(alone.first_ms / (CHATS + 1))
    meanwhile = [
        Request(body(agent, 1, f"{seed} {AGENT}", cache_prompt=True), 0),
        *(Request(_chat(name, 1), 1 + at, pause_ms=(at + 1) * every_ms) for at, name in enumerate(names)),
    ]
    first, *chats = streams.send(server.port, meanwhile).streams
    chats = [chat for chat in chats if chat.sent_us < first.sent_us + first.first_us]
    longer = agent + prompt_of(AGENT_TURN_TOKENS, f"{seed} {AGENT} goes on")
    second = streams.complete(server.port, [body(longer, 1, f"{seed} {AGENT}", cache_prompt=True)]).streams[0]
    after = [streams.complete(server.port, [_chat(name, 2)]).streams[0] for name in names]
    return (
        alone.first_ms,
        first.first_ms,
        len(chats),
        statistics.median(_firsts(chats)),
        max(_firsts(chats)),
        max((gap for chat in chats for gap in chat.gaps_ms), default=0.0),
        second.first_ms,
        statistics.median(_firsts(after)),
        resident_mb(server.pid),
    )


def _firsts(made: list[Stream]) -> list[float]:
    return [stream.first_ms for stream in made]


def _chat(name: str, turn: int) -> dict[str, Any]:
    prompt = prompt_of(CHAT_TOKENS, name)
    for later in range(turn):
        prompt = prompt + prompt_of(TURN_TOKENS, f"{name} {later}")
    return body(prompt, ANSWER_TOKENS, name, cache_prompt=True)
