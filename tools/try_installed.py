"""Tries an installed llmd as a user would: starts it with its embedded model, chats by curl and by llmctl, stops it and
continues the chat after a second start. Prints how long the starts and the first token took.

    python tools/try_installed.py --llmd /opt/llmd/bin/llmd --llmctl /opt/llmd/bin/llmctl --folder /tmp/new

A program can be several words, such as "chroot /tmp/root llmd". The folder is the one that the program sees.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMED, ASKED, ANSWER = "My name is Ada.", "What is my name?", "Ada"
SESSION = "try"


class TrialError(Exception):
    """The installed program did something else than it should."""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Installed:
    """The programs, and where the daemon listens and keeps its state."""

    def __init__(self, llmd: str, llmctl: str, folder: str, seconds: float) -> None:
        self.llmd, self.llmctl = shlex.split(llmd), shlex.split(llmctl)
        self.port, self.seconds = free_port(), seconds
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "LLMD_PORT": str(self.port),
            "LLMD_SOCKET": f"{folder}/llmd.sock",
            "LLMD_STATE_DIR": f"{folder}/state",
        }

    @contextmanager
    def running(self) -> Iterator[float]:
        """Starts llmd, yields the time of the start when it is ready, and stops it with the signal of systemd."""
        began = time.monotonic()
        daemon = subprocess.Popen(self.llmd, env=self.environment, start_new_session=True)
        try:
            self.wait_until_ready(daemon)
            yield began
            daemon.send_signal(signal.SIGTERM)
            status = daemon.wait(self.seconds)
            if status != 0:
                raise TrialError(f"llmd ended with status {status} after SIGTERM")
        finally:
            if daemon.poll() is None:
                daemon.kill()
                daemon.wait()

    def wait_until_ready(self, daemon: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self.seconds
        while time.monotonic() < deadline:
            if daemon.poll() is not None:
                raise TrialError(f"llmd ended with status {daemon.returncode} before it was ready")
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.seconds)
                connection.request("GET", "/ready")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.02)
        raise TrialError(f"llmd was not ready after {self.seconds:.0f} s")

    def run(self, program: list[str], said: str = "") -> str:
        done = subprocess.run(
            program, input=said, env=self.environment, capture_output=True, text=True, timeout=self.seconds
        )
        if done.returncode != 0:
            raise TrialError(f"{program[0]} ended with status {done.returncode}: {done.stderr or done.stdout}")
        return done.stdout

    def curl(self, *said: str) -> tuple[str, dict[str, Any]]:
        """Returns the answer to a conversation and the facts about its session."""
        url, header = f"http://127.0.0.1:{self.port}/v1/chat/completions", "content-type: application/json"
        answer = self.run(["curl", "-sS", "--fail-with-body", url, "-H", header, "-d", json.dumps(body(*said))])
        fields = json.loads(answer)
        return fields["choices"][0]["message"]["content"], fields["session"]

    def time_of_first_token(self, *said: str) -> float:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.seconds)
        request = json.dumps(body(*said) | {"stream": True})
        connection.request("POST", "/v1/chat/completions", request, {"content-type": "application/json"})
        for line in connection.getresponse():
            if not line.startswith(b"data: {"):
                continue
            choices = json.loads(line.removeprefix(b"data: "))["choices"]
            if choices and choices[0]["delta"].get("content"):
                return time.monotonic()
        raise TrialError("the streamed answer has no text")


def body(*said: str) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(said)]
    return {"messages": messages, "session_id": SESSION, "max_tokens": 32, "temperature": 0}


def expect(condition: object, otherwise: str) -> None:
    if not condition:
        raise TrialError(otherwise)


def first_start(installed: Installed, backend: str) -> str:
    with installed.running() as began:
        ready = time.monotonic()
        print(f"first start: ready after {ready - began:.1f} s")
        first, _ = installed.curl(NAMED)
        second, facts = installed.curl(NAMED, first, ASKED)
        expect(ANSWER in second, f"the model has forgotten the name: {second!r}")
        expect(facts["reused_prompt_tokens"] > 0, f"the second turn reused no token: {facts}")
        status = installed.run([*installed.llmctl, "status"])
        expect("ready" in status, f"llmctl status says: {status}")
        model = installed.run([*installed.llmctl, "models"])
        expect(backend in model, f"llmctl models says: {model}")
        chat = installed.run([*installed.llmctl, "chat"], f"{NAMED}\n{ASKED}\n")
        expect(chat.count(ANSWER) >= 2, f"llmctl chat says: {chat}")
        return first


def second_start(installed: Installed, first: str) -> None:
    with installed.running() as began:
        ready = time.monotonic()
        token = installed.time_of_first_token(NAMED, first, ASKED)
        print(f"second start: ready after {ready - began:.1f} s, first token after {token - began:.1f} s")
        _, facts = installed.curl(NAMED, first, ASKED)
        expect(facts["reused_prompt_tokens"] > 0, f"the session is lost after a restart: {facts}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llmd", required=True, help="the daemon's program")
    parser.add_argument("--llmctl", required=True, help="the program of llmctl")
    parser.add_argument("--folder", required=True, help="an empty folder for the state and the socket")
    parser.add_argument("--seconds", type=float, default=60, help="longest time for a start, an answer and a stop")
    parser.add_argument("--backend", default="", help="part of the name of the device that must compute")
    options = parser.parse_args()
    installed = Installed(options.llmd, options.llmctl, options.folder, options.seconds)
    try:
        second_start(installed, first_start(installed, options.backend))
    except TrialError as error:
        sys.exit(f"error: {error}")
    print("llmd chats by curl and llmctl, stops, and continues its session after a restart")


if __name__ == "__main__":
    main()
