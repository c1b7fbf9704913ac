"""An agent's turns: how much time llmd adds to the model's time, for a conversation of 400 messages and 60 tools.

The model is a small network with the vocabulary of a large model, so nearly all of a turn's time is the time of the
server. The conversation has 400 messages with about 60,000 tokens. The 60 tools have 112 kB. The first turn of a
session sends all messages. Each later turn, called a warm turn, sends all messages again, with a few new messages at
the end. After a text, the new message is the user's. After a tool call, the new message is the result of the tool.

"to the start" is the time from sending the request to the first event of the answer, which llmd sends when the model
begins. llama-server sends its first event with the first token. "to the first token" includes the model's time, which
is long in a first turn. The times of llmd's stages are measured in llmd (bench/turn_stages.py), and add up to the time
to the start. "others" is the rest: HTTP, threads and queues.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import peer, turn_model
from .abuse import delays, longest_ms
from .client import TIMEOUT_S, RefusedError
from .daemon import Server, daemon
from .report import OURS, Figure, Report
from .turn_conversation import Conversation

MODELS = tuple(turn_model.FAMILIES)
WARM_MS, FIRST_MS, BLOCK_MS = 15.0, 300.0, 20.0
ANSWER_TOKENS = 8
AGENTS, AGENT_TURNS = 10, 4
"""Agents that send their requests at once, and the number of warm turns of each of them."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--messages", type=int, default=400, metavar="N", help="messages of the history (%(default)s)")
    parser.add_argument("--tools", type=int, default=60, metavar="N", help="number of tools (%(default)s)")
    parser.add_argument(
        "--vocabulary",
        default="made",
        metavar="FILE",
        help="the tokens of a real vocabulary: a file with a token in base64 at the beginning of each line, the most "
        "frequent first; without a file, the vocabulary is that of the test models, and unused tokens",
    )


def about(options: argparse.Namespace) -> str:
    return f"turns of an agent with {options.messages} messages and {options.tools} tools; MODEL is a chat template"


@dataclass(slots=True)
class Turn:
    start_ms: float
    """Time from sending the request to the first event of the answer."""
    first_ms: float
    """Time from sending the request to the first token of the answer, or to the end of an answer without a token."""
    message: dict[str, Any]
    """The answer, as the client sends it back."""
    n_reused: int
    n_prefilled: int
    stages: dict[str, float] = field(default_factory=dict)


def measure(report: Report, model: str, options: argparse.Namespace) -> None:
    path = turn_model.path_of(model, options.vocabulary)
    repeats = options.repeats or (3 if options.short else 8)
    with tempfile.TemporaryDirectory(prefix="llmd-bench-") as directory:
        stages = Path(directory) / "stages"
        stages.touch()
        with _ours(path, model, stages) as server:
            _sequence(report, OURS, server, _Stages(stages), repeats, options)
            _together(report, server, options)
    if peer.directory() is not None:
        flags = ["-c", str(turn_model.N_CTX), "--jinja", "--chat-template-file", str(turn_model.template_of(model))]
        with peer.server(path, options=flags) as server:
            _sequence(report, "llama-server", server, None, repeats, options)


def _ours(path: str, family: str, stages: Path) -> Server:
    program = [sys.executable, "-m", "bench.turn_stages", str(stages)]
    template = turn_model.template_of(family)
    return daemon(
        path, program=program, ctx_size=turn_model.N_CTX, max_sessions=AGENTS + 2, chat_template_file=template
    )


class _Stages:
    """Reads the file of bench/turn_stages.py."""

    def __init__(self, path: Path) -> None:
        self._file = path.open()

    def taken(self) -> dict[str, float]:
        """Returns the milliseconds of each stage since the last call."""
        found: defaultdict[str, float] = defaultdict(float)
        for line in self._file:
            stage, ms = line.split("\t")
            found[stage] += float(ms)
        return dict(found)


# --- one session after the other -------------------------------------------------------------------------------------


def _sequence(
    report: Report, side: str, server: Server, stages: _Stages | None, repeats: int, options: argparse.Namespace
) -> None:
    """Measures the first turns of sessions, and the warm turns of one session."""
    found: defaultdict[str, list[Turn]] = defaultdict(list)

    def measured(case: str, conversation: Conversation, **parameters: Any) -> None:
        if stages is not None:
            stages.taken()
        turn = _turn(server.port, conversation, **parameters)
        turn.stages = stages.taken() if stages is not None else {}
        report.progress(
            f"{side}: {case}: {turn.start_ms:.1f} ms to the start, {turn.first_ms:.1f} to the first token, "
            f"{turn.n_reused} tokens reused, {turn.n_prefilled} prefilled"
        )
        found[case].append(turn)
        conversation.answer(turn.message)

    for number in range(2):
        conversation = Conversation(f"{side} {number}", options.messages, options.tools)
        measured("first turn" if number == 0 else "first turn, known tools", conversation)
    for _ in range(repeats):
        conversation.ask()
        measured("warm turn after a text", conversation)
        conversation.ask()
        measured("warm turn that must call", conversation, **conversation.forced())
        if conversation.results():  # a model with random weights does not always complete a call
            measured("warm turn after a call", conversation)
    for case, turns in found.items():
        _add(report, case, side, turns)


def _add(report: Report, case: str, side: str, turns: list[Turn]) -> None:
    is_first = case.startswith("first")
    starts, firsts = [turn.start_ms for turn in turns], [turn.first_ms for turn in turns]
    ours = side == OURS
    start_most = FIRST_MS if ours and is_first else None
    first_most = WARM_MS if ours and not is_first else None
    report.add(Figure(case=case, side=side, quantity="to the start", unit="ms", values=starts, at_most=start_most))
    report.add(
        Figure(case=case, side=side, quantity="to the first token", unit="ms", values=firsts, at_most=first_most)
    )
    n_prefilled = [turn.n_prefilled for turn in turns]
    report.add(Figure(case=case, side=side, quantity="prefilled", unit="", values=n_prefilled))
    if not ours:
        return
    for stage in dict.fromkeys(stage for turn in turns for stage in turn.stages):
        values = [turn.stages.get(stage, 0.0) for turn in turns]
        report.add(Figure(case=case, quantity=f"  {stage}", unit="ms", values=values))
    rest = [turn.start_ms - sum(turn.stages.values()) for turn in turns]
    report.add(Figure(case=case, quantity="  others", unit="ms", values=rest))


# --- agents at once --------------------------------------------------------------------------------------------------


def _together(report: Report, server: Server, options: argparse.Namespace) -> None:
    """Measures for how long ten agents block the event loop with their warm turns."""
    agents = [Conversation(f"agent {number}", options.messages, options.tools) for number in range(AGENTS)]
    for agent in agents:
        agent.answer(_turn(server.port, agent).message)
    before = delays(server)
    turns: list[Turn] = []

    def run(agent: Conversation) -> None:
        for _ in range(AGENT_TURNS):
            agent.ask()
            turn = _turn(server.port, agent)
            agent.answer(turn.message)
            turns.append(turn)
            report.progress(f"{agent.session}: {turn.start_ms:.1f} ms to the start, {turn.n_prefilled} prefilled")

    with ThreadPoolExecutor(AGENTS) as threads:
        list(threads.map(run, agents))  # raises what a thread has raised
    after = delays(server)
    case = f"{AGENTS} agents at once"
    report.add(Figure(case=case, quantity="warm turn", unit="ms", values=[turn.first_ms for turn in turns]))
    for kind, quantity in (("lag", "loop blocked"), ("work", "of that at work")):
        at_most = BLOCK_MS if kind == "work" else None
        values = [longest_ms(before[kind], after[kind])]
        report.add(Figure(case=case, quantity=quantity, unit="ms", values=values, at_most=at_most))


# --- one turn --------------------------------------------------------------------------------------------------------


def _turn(port: int, conversation: Conversation, **parameters: Any) -> Turn:
    body = json.dumps(
        {
            "messages": conversation.messages,
            "tools": conversation.tools,
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": ANSWER_TOKENS,
            "temperature": 0,
            "session_id": conversation.session,
            "chat_template_kwargs": {"enable_thinking": False},
            **parameters,
        }
    ).encode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    with closing(connection):
        connection.connect()
        started_s = time.perf_counter()
        connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise RefusedError(f"{answer.status}: {answer.read().decode(errors='replace')}")
        events = [
            (json.loads(line[6:]), (time.perf_counter() - started_s) * 1e3)
            for line in answer
            if line.startswith(b"data: {")
        ]
    return _turn_of(events)


def _turn_of(events: list[tuple[dict[str, Any], float]]) -> Turn:
    text, reasoning, first_ms = "", "", 0.0
    calls: list[dict[str, Any]] = []
    last: dict[str, Any] = {}
    for event, ms in events:
        if "error" in event:
            raise RefusedError(str(event["error"]))
        last |= {name: event[name] for name in ("usage", "session", "timings") if event.get(name)}
        for choice in event.get("choices") or []:
            delta = choice["delta"]
            if first_ms == 0.0 and (set(delta) - {"role"} or choice["finish_reason"]) and delta.get("content") != "":
                first_ms = ms
            text += delta.get("content") or ""
            reasoning += delta.get("reasoning_content") or ""
            for piece in delta.get("tool_calls") or []:
                if piece["index"] == len(calls):
                    calls.append({"id": piece["id"], "type": "function", "function": {"name": "", "arguments": ""}})
                for name, part in piece["function"].items():
                    calls[piece["index"]]["function"][name] += part or ""
    message: dict[str, Any] = {"role": "assistant", "content": re.sub(r"[\ud800-\udfff]", "", text)}
    message |= {"reasoning_content": reasoning} if reasoning else {}
    session, timings = last.get("session", {}), last.get("timings", {})
    n_prompt = last["usage"]["prompt_tokens"]
    n_prefilled = session.get("prefilled_prompt_tokens", timings.get("prompt_n", n_prompt))
    message = {**message, "tool_calls": calls} if calls else message
    return Turn(events[0][1], first_ms or events[-1][1], message, n_prompt - n_prefilled, n_prefilled)
