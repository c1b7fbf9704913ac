"""One agent's tool loop with one daemon, and the number of tokens that each turn prefills."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.clients.agents import Agent
from tests.clients.installing import with_programs
from tests.clients.readme import Lines, lines_of

TEMPLATE = Path(__file__).parents[1] / "templates" / "qwen3.jinja"
"""A template of models that reason and write calls in tags."""
PROMPT = "Please do the job, begin-here, and tell me when it is done."
LAST_WORD = "The job is done."
STEPS = (("begin-here", "echo one-$((20+1))"), ("one-21", "echo two-$((30+4))"), ("two-34", "echo three-$((50+6))"))
"""Text in the prompt, and the command that the model then runs. No command contains its own output."""
END = "three-56"
PROMPT_AGAIN = "Now do it once more, begin-again, and tell me when it is done."
LAST_WORD_AGAIN = "It is done once more."
STEPS_AGAIN = (("begin-again", "echo more-$((60+7))"),)
END_AGAIN = "more-67"
BESIDE = 32
"""Tokens that a turn may prefill in addition to its new ones."""
AGENT_S_MAX = 240
START_S_MAX = 60


@dataclass(frozen=True, slots=True)
class Turn:
    n_prompt: int
    n_reused: int
    n_generated: int
    n_new: int
    """Tokens since the end of the last answer. In a first turn, all tokens."""
    reason: str

    @property
    def n_prefilled(self) -> int:
        return self.n_prompt - self.n_reused


@dataclass(frozen=True, slots=True)
class Verdict:
    turns: list[Turn]
    faults: list[str]


def run(agent: Agent, programs: Sequence[Path], directory: Path, n_ctx: int) -> Verdict:
    home, work = directory / "home", directory / "home" / "work"
    work.mkdir(parents=True)
    script = directory / "script"
    script.write_text(script_of(agent))
    log = directory / "llmd.log"
    with daemon(script, directory, log, n_ctx) as url:
        lines = lines_of(agent.row, url, n_ctx) if agent.row else Lines()
        for path, contents in lines.files.items():
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_text(contents)
        environment = {**lines.environment, **agent.environment(url)}
        ended = [_agent_ran(agent, agent.arguments, PROMPT, programs, home, url, environment)]
        if agent.again and ended[0][0] == 0:
            ended.append(_agent_ran(agent, agent.again, PROMPT_AGAIN, programs, home, url, environment))
    turns = turns_of(log)
    return Verdict(turns, list(_faults(agent, ended, turns)))


def script_of(agent: Agent) -> str:
    """Returns the script of the simulated model."""
    entries = []
    for steps, end, last_word in ((STEPS, END, LAST_WORD), (STEPS_AGAIN, END_AGAIN, LAST_WORD_AGAIN)):
        for n, (seen, command) in enumerate(steps, start=1):
            entries.append(f"? {seen}\n<think>\nThis is step {n}.\n</think>\n\n{agent.says(command)}\n")
        entries.append(f"? {end}\n<think>\nNothing is left.\n</think>\n\n{last_word}\n")
    return "".join(entries)


@contextmanager
def daemon(script: Path, directory: Path, log: Path, n_ctx: int) -> Iterator[str]:
    """Runs a daemon and yields its address."""
    model = f"sim:hybrid,ctx={n_ctx},script={script}"
    options = ("--ctx-size", str(n_ctx), "--chat-template-file", str(TEMPLATE), "--log-format", "json")
    where = ("--port", "0", "--socket", str(directory / "llmd.sock"), "--state-dir", str(directory / "state"))
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "llmd", "--model", model, *where, *options], stdout=output, stderr=output
        )
    try:
        yield _address(process, log)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(START_S_MAX)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + START_S_MAX
    while process.poll() is None and time.monotonic() < until:
        for line in _lines(log):
            if line["message"] == "serving":
                return str(next(address for address in line["addresses"].split() if address.startswith("http")))
        time.sleep(0.1)
    raise RuntimeError(f"llmd did not start: {log.read_text()[-2000:]}")


def _lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]


def _agent_ran(
    agent: Agent,
    arguments: Sequence[str],
    prompt: str,
    programs: Sequence[Path],
    home: Path,
    url: str,
    environment: Mapping[str, str],
) -> tuple[int, str]:
    """Runs an agent. `programs` are the directories of programs, the agent's own first. Returns its exit status (-1 if
    it did not end) and its output.
    """
    known = with_programs(*programs)
    plain = {name: known[name] for name in ("PATH", "LANG", "TERM", "TMPDIR") if name in known}
    stands_for = {"PROMPT": prompt, "URL": url}
    program = shutil.which(agent.program, path=known["PATH"])
    assert program is not None, f"there is no program {agent.program}"
    try:
        done = subprocess.run(
            [program, *(stands_for.get(argument, argument) for argument in arguments)],
            cwd=home / "work",
            env={**plain, "HOME": str(home), "NODE_PATH": str(programs[0].parent), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=AGENT_S_MAX,
        )
        return done.returncode, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as error:
        return -1, (error.stdout or b"").decode(errors="replace")


def turns_of(log: Path) -> list[Turn]:
    """Returns the turns of the loop itself, without other short requests (a title, a summary)."""
    asked = [line for line in _lines(log) if line["message"] == "request" and "prompt_tokens" in line]
    longest = max((line["prompt_tokens"] for line in asked), default=0)
    turns: list[Turn] = []
    for line in asked:
        n_prompt, n_reused = line["prompt_tokens"], line.get("reused_tokens", 0)
        if 2 * n_prompt > longest:
            before = turns[-1].n_prompt + turns[-1].n_generated if turns else 0
            turns.append(
                Turn(n_prompt, n_reused, line.get("generated_tokens", 0), n_prompt - before, line["reason"] or "none")
            )
    return turns


def _faults(agent: Agent, ended: Sequence[tuple[int, str]], turns: list[Turn]) -> Iterator[str]:
    """Yields what went wrong, given the exit status and the output of each run."""
    for (status, output), last_word in zip(ended, (LAST_WORD, LAST_WORD_AGAIN), strict=False):
        tail = output[-1500:]
        if status != 0:
            yield f"it ended with status {status}: {tail}" if status != -1 else f"it did not end: {tail}"
        elif last_word not in output:
            yield f"it did not show the last answer: {tail}"
    n_turns = len(STEPS) + 1 + (len(STEPS_AGAIN) + 1 if agent.again else 0)
    if len(turns) < n_turns:
        yield f"{len(turns)} turns instead of {n_turns}"
    for number, turn in enumerate(turns[1:], start=2):
        if agent.n_kept is not None:
            if turn.n_reused < agent.n_kept:
                yield f"turn {number} reused {turn.n_reused} tokens, of the {agent.n_kept} that it keeps"
        elif turn.n_prefilled > turn.n_new + BESIDE:
            yield f"turn {number} prefilled {turn.n_prefilled} tokens, of which {turn.n_new} are new"
