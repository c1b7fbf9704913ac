"""New sessions behind a head that an open session has, or that they all start with together: first token, memory.

A head is what many prompts of an agent have in common, its system prompt and its tools. The first session prefills the
head. A turn that goes on in this session prefills as many new tokens as each of the other sessions, so the difference
of their times to first token is the cost of sharing the head.

Then a new session with another head starts alone, and as many sessions with a third head start together. Together, they
should prefill the head once. The time until the last of them has its first token is compared with the session that
starts alone.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from . import client, models
from .conversation import words
from .daemon import Server, daemon
from .machine import resident_mb
from .report import Figure, Report, ratios_of

MODELS = ("bench-dense", "bench-hybrid")
EXTRA_MS_AT_MOST = 20.0
"""Target: a session that shares a head needs at most this much longer than a session that goes on."""
MEMORY_AT_MOST = 0.02
"""Target: the memory of a session that shares a head, divided by the memory of the session that has the head."""
PREFILLED_AT_MOST = 1.25
"""Target: the tokens that all sessions prefill that start together, divided by those of a session that starts alone."""
LAST_AT_MOST = 1.5
"""Target: the time to first token of the last session, divided by that of a session that starts alone."""
SESSIONS = 10
N_TOKENS, USER_WORDS = 2, 20


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--head", type=int, default=0, metavar="N", help="words of the head (9000, with --short 1500)")


def about(options: argparse.Namespace) -> str:
    return f"{SESSIONS} sessions begin with the same {_n_words(options)} words"


def _n_words(options: argparse.Namespace) -> int:
    return int(options.head or (1500 if options.short else 9000))


def measure(report: Report, model: str, options: argparse.Namespace) -> None:
    path = models.path_of(model)
    found = [_of_one(report, path, repeat, _n_words(options)) for repeat in range(options.repeats or 1)]
    on = [answer for one in found for answer in one.on]
    new = [answer for one in found for answer in one.new]
    extra_ms = [shared.first_ms - own.first_ms for shared, own in zip(new, on, strict=True)]
    case = "shares the head"
    report.add(Figure(case="goes on", quantity="first token", unit="ms", values=[answer.first_ms for answer in on]))
    report.add(Figure(case=case, quantity="first token", unit="ms", values=[answer.first_ms for answer in new]))
    report.add(
        Figure(case=case, quantity="prefilled", unit="tokens", values=[float(answer.n_prefilled) for answer in new])
    )
    report.add(Figure(case=case, quantity="longer than goes on", unit="ms", values=extra_ms, at_most=EXTRA_MS_AT_MOST))
    shares = [one.memory_share for one in found]
    report.add(Figure(case=case, quantity="memory / that of the first", unit="", values=shares, at_most=MEMORY_AT_MOST))
    _add_together(report, [one.alone for one in found], [one.together for one in found])


def _add_together(report: Report, alone: list[client.Answer], together: list[list[client.Answer]]) -> None:
    first_ms = [answer.first_ms for answer in alone]
    last_ms = [max(answer.first_ms for answer in answers) for answers in together]
    one = [float(answer.n_prefilled) for answer in alone]
    all_of_them = [float(sum(answer.n_prefilled for answer in answers)) for answers in together]
    case, case_alone = "start together", "starts alone"
    report.add(Figure(case=case_alone, quantity="first token", unit="ms", values=first_ms))
    report.add(Figure(case=case_alone, quantity="prefilled", unit="tokens", values=one))
    report.add(Figure(case=case, quantity="first token of the last", unit="ms", values=last_ms))
    report.add(Figure(case=case, quantity="prefilled by all", unit="tokens", values=all_of_them))
    prefilled, last = ratios_of(all_of_them, one), ratios_of(last_ms, first_ms)
    report.add(Figure(case=case, quantity="prefilled / alone", unit="", values=prefilled, at_most=PREFILLED_AT_MOST))
    report.add(Figure(case=case, quantity="last first token / alone", unit="", values=last, at_most=LAST_AT_MOST))


@dataclass(frozen=True, slots=True)
class _Found:
    on: list[client.Answer]
    """Answers of the first session."""
    new: list[client.Answer]
    """First answers of the sessions that share its head."""
    memory_share: float
    """Memory of one of these sessions, divided by that of the first session."""
    alone: client.Answer
    """First answer of a session with another head."""
    together: list[client.Answer]
    """First answers of sessions that start together with a third head."""


def _of_one(report: Report, path: str, repeat: int, n_words: int) -> _Found:
    on, new, memory_share = _behind_an_open_session(report, path, repeat, n_words)
    with daemon(path, max_sessions=SESSIONS) as server:
        report.progress(f"{repeat + 1}: a session that starts alone")
        alone = _ask(server, "alone", [_head(f"{repeat} alone", n_words), _user(f"{repeat} alone")])
        client.ask(server.port, "DELETE", "/v1/sessions/alone")
        report.progress(f"{repeat + 1}: {SESSIONS} sessions that start together")
        head = _head(f"{repeat} together", n_words)
        with ThreadPoolExecutor(SESSIONS) as threads:
            together = threads.map(
                lambda number: _ask(server, f"together-{number}", [head, _user(f"{repeat} together {number}")]),
                range(SESSIONS),
            )
        return _Found(on, new, memory_share, alone, list(together))


def _behind_an_open_session(
    report: Report, path: str, repeat: int, n_words: int
) -> tuple[list[client.Answer], list[client.Answer], float]:
    on, new, new_mb = [], [], 0.0
    with daemon(path, max_sessions=SESSIONS + 1) as server:
        head = [_head(f"{repeat}", n_words)]
        report.progress(f"{repeat + 1}: the first session")
        before_mb = resident_mb(server.pid)
        said = [*head, _user(f"{repeat} first")]
        answer = _ask(server, "first", said)
        head_mb = resident_mb(server.pid) - before_mb
        for number in range(SESSIONS):
            report.progress(f"{repeat + 1}: session {number + 1} of {SESSIONS}")
            said += [{"role": "assistant", "content": answer.text}, _user(f"{repeat} on {number}")]
            answer = _ask(server, "first", said)
            on.append(answer)
            before_new_mb = resident_mb(server.pid)
            new.append(_ask(server, f"new-{number}", [*head, _user(f"{repeat} new {number}")]))
            new_mb += resident_mb(server.pid) - before_new_mb
        return on, new, new_mb / SESSIONS / head_mb


def _ask(server: Server, session: str, messages: client.Messages) -> client.Answer:
    return client.chat(server.port, messages, session_id=session, max_tokens=N_TOKENS, temperature=0, seed=1)


def _head(seed: str, n_words: int) -> dict[str, str]:
    return {"role": "system", "content": words(f"head {seed}", n_words)}


def _user(seed: str) -> dict[str, str]:
    return {"role": "user", "content": words(seed, USER_WORDS)}
