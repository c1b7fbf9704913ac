"""A day on a workstation: 10,000 sessions on a simulated model, without the pauses between turns.

Over the day, sessions of one to eight turns are opened. A few sessions are in use at any moment. Most sessions are
never used again after their turns, and some are used again hours later. The order of the turns is that of a day, but
without the idle time.
"""

from __future__ import annotations

import argparse
import random
import statistics
from dataclasses import dataclass

from . import streams
from .daemon import Server, daemon
from .machine import process_cpu_s, resident_mb
from .report import Figure, Report
from .streams import Request, Run, body

MODELS = ("sim:dense", "sim:hybrid")
USERS = 8
"""Number of users who work at the same time: agents, editors and chats."""
TURNS_MAX, TURN_TOKENS_MAX, ANSWER_TOKENS_MAX = 8, 400, 60
COMES_BACK = 0.1
"""Fraction of the sessions whose last turn comes later in the day."""
BATCHES = 20
PARKED_MAX = 1024
"""The daemon's --max-parked. If there are more sessions, the daemon forgets those that were used least recently."""
# Token ids that are ordinary text in every simulated model.
TEXT_TOKENS = range(97, 123)


@dataclass(frozen=True, slots=True)
class Turn:
    session: int
    prompt: list[int]
    n_tokens: int


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sessions", type=int, default=0, metavar="N", help="number of sessions in the day")


def about(options: argparse.Namespace) -> str:
    return f"{_sessions(options)} sessions in a day, {USERS} in use at any moment"


def _sessions(options: argparse.Namespace) -> int:
    return int(options.sessions or (500 if options.short else 10_000))


def plan(n_sessions: int, seed: str) -> list[list[Turn]]:
    """Returns, for each user, the turns of the day in order. A session belongs to one user. A prompt begins with the
    session's previous prompt, as prompts of clients do.
    """
    chance = random.Random(seed)
    by_user: list[list[Turn]] = [[] for _ in range(USERS)]
    later: list[tuple[int, Turn]] = []
    for session in range(n_sessions):
        *made, last = _turns(chance, session)
        comes_back_at = chance.randint(session, n_sessions) if chance.random() < COMES_BACK else session
        by_user[session % USERS] += made
        later.append((comes_back_at, last))
        for _, turn in [one for one in later if one[0] <= session]:
            by_user[turn.session % USERS].append(turn)
        later = [one for one in later if one[0] > session]
    for _, turn in later:
        by_user[turn.session % USERS].append(turn)
    return by_user


def _turns(chance: random.Random, session: int) -> list[Turn]:
    prompt: list[int] = []
    turns = []
    for _ in range(chance.randint(1, TURNS_MAX)):
        prompt = prompt + chance.choices(TEXT_TOKENS, k=chance.randint(8, TURN_TOKENS_MAX))
        turns.append(Turn(session, prompt, chance.randint(1, ANSWER_TOKENS_MAX)))
    return turns


def measure(report: Report, model: str, options: argparse.Namespace) -> None:
    n_sessions = _sessions(options)
    by_user = plan(n_sessions, model)
    n_batches = min(BATCHES, n_sessions)
    with daemon(f"{model},length=0", max_parked=min(n_sessions, PARKED_MAX)) as server:
        empty_mb, before_s = resident_mb(server.pid), process_cpu_s(server.pid)
        runs: list[Run] = []
        for number in range(n_batches):
            report.progress(f"{number + 1} of {n_batches} parts of the day")
            runs.append(streams.send(server.port, [*_part(by_user, number, n_batches)]))
        _add(report, server, runs, [turn for turns in by_user for turn in turns], empty_mb, before_s)


def _part(by_user: list[list[Turn]], number: int, n_parts: int) -> list[Request]:
    return [
        Request(body(turn.prompt, turn.n_tokens, f"session {turn.session}"), user)
        for user, turns in enumerate(by_user)
        for turn in turns[number * len(turns) // n_parts : (number + 1) * len(turns) // n_parts]
    ]


def _add(report: Report, server: Server, runs: list[Run], turns: list[Turn], empty_mb: float, before_s: float) -> None:
    n_sessions = len({turn.session for turn in turns})
    first_ms = [stream.first_ms for run in runs for stream in run.streams]
    whole_s = sum(run.whole_s for run in runs)
    cpu_s = process_cpu_s(server.pid) - before_s
    last = resident_mb(server.pid)
    figures: tuple[tuple[str, str, list[float]], ...] = (
        ("answers", "", [len(first_ms)]),
        ("answers per second", "", [len(run.streams) / run.whole_s for run in runs]),
        ("first token, median", "ms", [statistics.median(first_ms)]),
        ("first token, 99 % within", "ms", [statistics.quantiles(first_ms, n=100)[-1]]),
        ("first token, longest", "ms", [max(first_ms)]),
        ("processor time of an answer", "ms", [cpu_s / len(first_ms) * 1e3]),
        ("whole day", "s", [whole_s]),
        ("memory of a session", "kB", [(last - empty_mb) / n_sessions * 1e3]),
        ("sessions open at the end", "", [server.metric("llmd_sessions_named")]),
        ("parked states lost", "", [server.metric("llmd_parked_dropped_total")]),
    )
    for quantity, unit, values in figures:
        report.add(Figure(case=f"{n_sessions} sessions", quantity=quantity, unit=unit, values=values))
