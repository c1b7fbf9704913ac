"""Play the evaluation through a running daemon and print the table of scores.

    python -m tools.demo_model.evaluate --model llmd-demo.gguf       (starts llmd on a free port)
    python -m tools.demo_model.evaluate --url http://127.0.0.1:15563

Every turn sends the whole history, with the model's own earlier answers in it. A recall counts when the answer holds the
value that was told, a question for something unknown when the answer says that it was not told; `exact` rows count the
same answers only when they are right to the letter. Everything else has to be exact, but for a story (two sentences about
the right thing) and a tool call (name and arguments). Tools stand in the system message, in the words of the chat
template, so that the model is measured and not the daemon's reading of its calls.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.demo_model import scenarios
from tools.demo_model.chat import tools_text
from tools.demo_model.scenarios import Scenario, Step

TOKENS_MAX = 200
READY_SECONDS_MAX = 60.0


@dataclass(slots=True)
class Tally:
    """Counts of right answers and of all answers per kind, and the failures."""

    right: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    total: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    failures: list[str] = field(default_factory=list)

    def count(self, tag: str, ok: bool) -> None:
        self.total[tag] += 1
        self.right[tag] += ok


class Client:
    """The few calls of llmd's HTTP interface that the evaluation needs."""

    def __init__(self, url: str, temperature: float | None) -> None:
        self.url = url.rstrip("/")
        self.temperature = temperature

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=300) as response:
                text = response.read()
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path}: {error.status}: {error.read().decode()}") from error
        return dict(json.loads(text)) if text else {}

    def chat(self, session: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """Returns the first choice of a chat completion."""
        body: dict[str, Any] = {"messages": messages, "session_id": session, "max_tokens": TOKENS_MAX, "seed": 1}
        if self.temperature is not None:
            body["temperature"] = self.temperature
        return dict(self.post("/v1/chat/completions", body)["choices"][0])

    def reset(self, session: str) -> None:
        self.post(f"/v1/sessions/{session}/reset", {})

    def close(self, session: str) -> None:
        request = urllib.request.Request(f"{self.url}/v1/sessions/{session}", method="DELETE")
        with urllib.request.urlopen(request, timeout=60) as response:
            response.read()


def call_in(text: str) -> Any:
    """Returns name and arguments of the only tool call in an answer."""
    found = re.fullmatch(r"<tool_call>\n(.+)\n</tool_call>", text)
    try:
        call = json.loads(found[1]) if found else {}
        return call["name"], call["arguments"]
    except (ValueError, KeyError, TypeError):
        return None


def value_of(answer: str) -> str:
    """Returns the value in the right answer to a question for a fact."""
    told = re.fullmatch(
        r"(?:Your .+? is called|Your .+? (?:is|are)|You live in|You come from|You are|The .+? is) (.+)\.", answer
    )
    return told[1].removesuffix(" years old") if told else answer


def bare(tag: str) -> str:
    """Returns a tag without the prefix that says whose phrasing it is."""
    return tag.removeprefix(scenarios.PLAIN).removeprefix(scenarios.STRANGE)


def says(step: Step, content: str) -> bool:
    """Returns whether an answer has the known value, or says that no value is known."""
    missing = "haven't told me" in content
    if bare(step.tag).startswith("unknown"):
        return missing
    return not missing and re.search(rf"(?<!\w){re.escape(value_of(step.expected))}(?!\w)", content) is not None


def is_right(step: Step, message: dict[str, Any]) -> bool:
    """Returns whether an answer is right for its step."""
    content = (message.get("content") or "").strip()
    if bare(step.tag).startswith(("recall", "unknown")):
        return says(step, content)
    if step.tag == "tool_call":
        return bool(call_in(content) == call_in(step.expected))
    if step.tag == scenarios.STORY:
        subject = re.split(r"story about (?:an? |the )?", step.content)[-1].rstrip("?., ").removesuffix(", please")
        return content.count(".") == 2 and subject in content
    if step.tag == scenarios.ACKNOWLEDGED:
        return bool(content)
    return content == step.expected.strip()


def asked_of(step: Step) -> dict[str, Any]:
    """Returns the message that a step sends. Results of tools are written as the chat template writes them."""
    if step.role != "tool":
        return {"role": "user", "content": step.content}
    return {"role": "user", "content": f"<tool_response>\n{step.content}\n</tool_response>"}


def play(client: Client, name: str, scenario: Scenario) -> list[tuple[Step, dict[str, Any]]]:
    """Plays all steps of a scenario and returns each with the model's choice."""
    histories: dict[int, list[dict[str, Any]]] = defaultdict(list)
    results: list[tuple[Step, dict[str, Any]]] = []
    for step in scenario.steps:
        session = f"{name}-{step.place}"
        history = histories[step.place]
        if step.reset:
            client.reset(session)
            history.clear()
        if scenario.tools and not history:
            history.append({"role": "system", "content": tools_text(scenario.tools)})
        history.append(asked_of(step))
        choice = client.chat(session, history)
        history.append({"role": "assistant", "content": choice["message"].get("content") or ""})
        results.append((step, choice))
    for place in histories:
        client.close(f"{name}-{place}")
    return results


def evaluate(client: Client, seed: int, count: int, parallel: int) -> Tally:
    """Plays all scenarios, several at a time."""
    tally = Tally()
    plays = list(scenarios.everything(seed, count))
    names = (f"evaluation-{time.time_ns()}-{number}" for number in itertools.count())
    with ThreadPoolExecutor(parallel) as threads:
        for results in threads.map(play, itertools.repeat(client), names, plays):
            for step, choice in results:
                ok = is_right(step, choice["message"])
                tally.count(step.tag, ok)
                for prefix in ("recall", "unknown"):
                    if step.tag.startswith(prefix):
                        text = (choice["message"].get("content") or "").strip()
                        tally.count(f"exact {prefix}", text == step.expected)
                tally.count("ends its turn", choice["finish_reason"] == "stop")
                if not ok:
                    message = choice["message"]
                    got = message.get("content")
                    tally.failures.append(f"{step.tag}: {step.content!r}: wanted {step.expected!r}, got {got!r}")
    return tally


def print_table(tallies: dict[str, Tally]) -> None:
    """Returns a table with one row per kind and one column per temperature."""
    kinds = list(dict.fromkeys(kind for tally in tallies.values() for kind in tally.total))
    kinds.remove(scenarios.ACKNOWLEDGED)
    print(f"| {'kind':<32} | n | " + " | ".join(tallies) + " |")
    print("|---|---|" + "---|" * len(tallies))
    for kind in kinds:
        cells = [f"{100 * tally.right[kind] / tally.total[kind]:.1f} %" for tally in tallies.values()]
        total = max(tally.total[kind] for tally in tallies.values())
        print(f"| {kind:<32} | {total} | " + " | ".join(cells) + " |")
    for prefix in ("recall", "unknown"):
        cells = [f"{100 * share(tally, prefix):.1f} %" for tally in tallies.values()]
        print(f"| {'all ' + prefix:<32} | {whole(tally_of(tallies), prefix)} | " + " | ".join(cells) + " |")


def tally_of(tallies: dict[str, Tally]) -> Tally:
    return next(iter(tallies.values()))


def whole(tally: Tally, prefix: str) -> int:
    return sum(total for kind, total in tally.total.items() if kind.startswith(prefix))


def share(tally: Tally, prefix: str) -> float:
    return sum(right for kind, right in tally.right.items() if kind.startswith(prefix)) / whole(tally, prefix)


@contextmanager
def daemon(model: Path, sessions: int) -> Iterator[str]:
    """Runs llmd on a free port until the evaluation is done."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = shutil.which("llmd", path=str(Path(sys.executable).parent)) or shutil.which("llmd")
    if program is None:
        sys.exit("llmd is not installed: run ./build.sh setup, or give --url")
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="llmd-evaluate-") as place:
        command = [program, "--model", str(model), "--port", str(port), "--max-sessions", str(sessions)]
        command += ["--socket", f"{place}/llmd.sock", "--state-dir", place, "--log-level", "warning"]
        process = subprocess.Popen(command)
        try:
            wait_ready(url, process)
            yield url
        finally:
            process.terminate()
            process.wait()


def wait_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/ready", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    sys.exit("llmd did not become ready")


def run(url: str, options: argparse.Namespace) -> int:
    tallies: dict[str, Tally] = {}
    for temperature in options.temperature:
        label = "default" if temperature < 0 else f"temperature {temperature:g}"
        client = Client(url, None if temperature < 0 else temperature)
        tallies[label] = evaluate(client, options.seed, options.count, options.parallel)
    print_table(tallies)
    if options.failures:
        for label, tally in tallies.items():
            print(f"\n{label}:")
            print("\n".join(tally.failures[: options.failures]))
    first = tally_of(tallies)
    return 0 if share(first, "recall") >= 0.95 and share(first, "unknown") >= 0.98 else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="a running daemon")
    parser.add_argument("--model", type=Path, help="serve this file for the evaluation")
    parser.add_argument("--count", type=int, default=40, help="scenarios of each main kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parallel", type=int, default=2, help="scenarios at a time")
    parser.add_argument("--temperature", type=float, nargs="+", default=[0.0], help="-1 means the model's default")
    parser.add_argument("--failures", type=int, default=0, help="how many wrong answers to show")
    options = parser.parse_args()
    if options.url:
        return run(options.url, options)
    if options.model is None:
        parser.error("give --url or --model")
    with daemon(options.model, max(8, 4 * options.parallel)) as url:
        return run(url, options)


if __name__ == "__main__":
    sys.exit(main())
