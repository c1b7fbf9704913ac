"""llmctl against a real daemon: a process that serves the simulated model."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from llmd.ctl.context import EXIT_ABSENT, EXIT_NOT_FOUND, EXIT_OK, EXIT_REFUSED

START_DEADLINE_S = 60.0


@dataclass
class Daemon:
    process: subprocess.Popen[bytes]
    socket_path: str

    def llmctl(self, *arguments: str, lines: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "llmd.ctl", "--socket", self.socket_path, *arguments]
        return subprocess.run(command, input=lines, capture_output=True, text=True, check=False, timeout=60)

    def chat(self, session: str, *lines: str) -> subprocess.CompletedProcess[str]:
        typed = "".join(f"{line}\n" for line in lines)
        return self.llmctl("chat", "--session", session, "--max-tokens", "12", "--temperature", "0", lines=typed)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("ctl")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(folder / "notify"))
        notified.settimeout(START_DEADLINE_S)
        process = start(folder, "--max-sessions", "3", "--capacity-policy", "refuse")
        while b"READY=1" not in notified.recv(4096):
            pass
    yield Daemon(process, str(folder / "llmd.sock"))
    process.send_signal(signal.SIGCONT)
    process.terminate()
    assert process.wait(START_DEADLINE_S) == 0


def start(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "llmd", "--model", "sim:dense", "--port", "0", *options]
    places = ["--socket", str(folder / "llmd.sock"), "--state-dir", str(folder / "state")]
    environment = os.environ | {"NOTIFY_SOCKET": str(folder / "notify")}
    return subprocess.Popen([*command, *places], env=environment, stderr=subprocess.DEVNULL)


@pytest.fixture(autouse=True)
def empty(daemon: Daemon) -> Iterator[None]:
    yield
    daemon.process.send_signal(signal.SIGCONT)
    for session in json.loads(daemon.llmctl("sessions", "list", "--json").stdout)["data"]:
        assert daemon.llmctl("sessions", "close", session["id"]).returncode == EXIT_OK


def test_status(daemon: Daemon) -> None:
    daemon.chat("work", "hello")
    done = daemon.llmctl("status")
    assert (done.returncode, done.stderr) == (EXIT_OK, "")
    assert f"pid {daemon.process.pid}, ready" in done.stdout
    assert "1 of 3 slots used; when full: refuse" in done.stdout
    assert re.search(r"starts +\d+ new", done.stdout)


def test_versions_agree(daemon: Daemon) -> None:
    done = daemon.llmctl("version")
    assert (done.returncode, done.stderr) == (EXIT_OK, "")
    ours, theirs = done.stdout.splitlines()
    assert ours.split()[1] == theirs.split()[1]


def test_models(daemon: Daemon) -> None:
    assert "simulated dense model" in daemon.llmctl("models").stdout


def test_chat_reports_what_was_reused(daemon: Daemon) -> None:
    done = daemon.chat("work", "hello", "and again")
    first, second = done.stderr.splitlines()
    assert re.fullmatch(r"\[\d+ new tokens, 0 reused \(new\), \d+ generated(, ended by the length limit)?\]", first)
    reused = re.search(r", (\d+) reused \((exact_prefix|rewind)\)", second)
    assert reused and int(reused[1]) > 0


def test_a_session_from_first_word_to_close(daemon: Daemon) -> None:
    daemon.chat("work", "hello")
    assert re.search(r"^work +idle +\d+", daemon.llmctl("sessions", "list").stdout, re.MULTILINE)
    assert "last start  new: 0 of" in daemon.llmctl("sessions", "show", "work").stdout
    assert daemon.llmctl("sessions", "reset", "work").stdout == "Session work reset.\n"
    assert json.loads(daemon.llmctl("sessions", "show", "work", "--json").stdout)["tokens"] == 0
    assert daemon.llmctl("sessions", "close", "work").stdout == "Session work closed.\n"
    assert daemon.llmctl("sessions", "close", "work").returncode == EXIT_NOT_FOUND


@pytest.mark.parametrize("name", ["a/b", "100%", "a?b#c", "..", "%2e"])
def test_any_id_can_be_addressed(daemon: Daemon, name: str) -> None:
    daemon.chat(name, "hello")
    shown = json.loads(daemon.llmctl("sessions", "show", name, "--json").stdout)
    assert (shown["id"], shown["requests"]) == (name, 1)


def test_a_full_house_is_a_refusal(daemon: Daemon) -> None:
    for name in ("a", "b", "c"):
        assert daemon.chat(name, "hello").returncode == EXIT_OK
    done = daemon.chat("d", "hello")
    assert done.returncode == EXIT_REFUSED
    assert "capacity_exhausted" in done.stderr


def test_tokens_are_those_the_daemon_counts(daemon: Daemon) -> None:
    daemon.chat("work", "hello")
    shown = json.loads(daemon.llmctl("sessions", "show", "work", "--json").stdout)
    resident = json.loads(daemon.llmctl("sessions", "show", "work", "--tokens", "--json").stdout)
    assert len(resident["tokens"]) == shown["tokens"] > 0
    assert (resident["pid"], resident["slot"]) == (daemon.process.pid, shown["slot"])


def test_a_stopped_daemon_answers_nothing_but_its_tokens(daemon: Daemon) -> None:
    daemon.chat("work", "hello")
    before = daemon.llmctl("sessions", "show", "work", "--tokens").stdout
    daemon.process.send_signal(signal.SIGSTOP)
    silent = daemon.llmctl("--timeout", "0.3", "status")
    assert silent.returncode == EXIT_ABSENT
    assert "did not answer in time" in silent.stderr
    done = daemon.llmctl("sessions", "show", "work", "--tokens")
    assert (done.returncode, done.stdout) == (EXIT_OK, before)


def test_logs(daemon: Daemon) -> None:
    done = daemon.llmctl("logs")
    assert (done.returncode, done.stderr) == (EXIT_OK, "")
    assert done.stdout.startswith(f"llmd (pid {daemon.process.pid}) discards its log: its standard error is /dev/null.")


def test_undo_reuses_exactly_the_tokens_before_the_question(daemon: Daemon) -> None:
    before = daemon.chat("work", "hello", "and you?", "/undo", "and they?", "/explain")
    first, second, removed, third = before.stderr.splitlines()
    n_reused = json.loads(daemon.llmctl("sessions", "explain", "work", "--json").stdout)["turns"][-1]["reused_tokens"]
    assert removed == "[removed: and you?]"
    assert f"{n_reused} reused (rewind)" in third and f" {n_reused} of " in before.stdout
    assert n_reused >= int(second.split(" new tokens, ")[1].split()[0]) > 0
    assert "0 reused" in first


def test_retry_prefills_nothing(daemon: Daemon) -> None:
    done = daemon.chat("work", "hello", "/retry")
    assert "[0 new tokens, " in done.stderr.splitlines()[1]


def test_a_fork_in_a_chat_continues_warm(daemon: Daemon, tmp_path: Path) -> None:
    file = tmp_path / "saved.json"
    done = daemon.chat("work", "hello", "/fork try", "and you?", f"/save {file}", "/session work", "and they?")
    notes = done.stderr.splitlines()
    assert notes[1] == "[session try, after 1 turn]"
    assert "reused (exact_prefix)" in notes[2] and ", 0 reused" not in notes[5]
    assert json.loads(file.read_text())["conversations"][0]["id"] == "try"
    assert "reused (exact_prefix)" in daemon.chat("try", "once more").stderr
