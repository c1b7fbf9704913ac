"""llmctl logs: the unit and the place of the log, with a /proc of the test's own, and journalctl as a script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmd.ctl import __main__ as ctl
from llmd.ctl import logs
from llmd.ctl.context import EXIT_ABSENT, EXIT_OK, EXIT_REFUSED, EXIT_USAGE
from llmd.ctl.logs import Unit
from tests.fake_daemon import FakeDaemon

PID = 4711
SERVICE = "0::/system.slice/llmd.service\n"
SESSION = "0::/user.slice/user-1000.slice/session-2.scope\n"


class Process:
    """The directory of a process in /proc."""

    def __init__(self, root: Path, *, groups: str = SERVICE, stderr: str | None = "socket:[5]") -> None:
        self.path = root / str(PID)
        (self.path / "fd").mkdir(parents=True)
        (self.path / "cmdline").write_bytes(b"/opt/llmd/bin/python\0/opt/llmd/bin/llmd\0")
        (self.path / "cgroup").write_text(groups)
        if stderr is not None:
            (self.path / "fd" / "2").symlink_to(stderr)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    fake = FakeDaemon(tmp_path / "llmd.sock")
    fake.route("GET /live", {"status": "ok", "version": "0", "pid": PID})
    yield fake
    fake.stop()


class Executed(Exception):
    pass


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The command that llmctl executes. /proc is empty, and the system runs systemd."""
    found: list[str] = []

    def execute(_: str, command: list[str]) -> None:
        found.extend(command)
        raise Executed

    monkeypatch.setattr(os, "execvp", execute)
    monkeypatch.setattr(logs, "PROC", tmp_path / "proc")
    monkeypatch.setattr(logs, "SYSTEMD", tmp_path)
    return found


def run(socket_path: str, *arguments: str) -> int:
    try:
        return ctl.main(["--socket", socket_path, "logs", *arguments])
    except Executed:
        return EXIT_OK


# --- in the journal --------------------------------------------------------------------------------------------------


def test_the_log_of_a_service_is_in_the_journal(daemon: FakeDaemon, executed: list[str], tmp_path: Path) -> None:
    Process(tmp_path / "proc")
    assert run(daemon.path) == EXIT_OK
    assert executed == ["journalctl", "--no-pager", "--unit=llmd.service", "--lines=100"]


@pytest.mark.parametrize(
    ("arguments", "added"),
    [
        (["-f"], ["--lines=100", "--follow"]),
        (["-n", "7", "--follow"], ["--lines=7", "--follow"]),
        (["--lines", "all"], ["--lines=all"]),
        (["--json"], ["--lines=100", "--output=json"]),
    ],
)
def test_options_are_passed_on(
    daemon: FakeDaemon, executed: list[str], tmp_path: Path, arguments: list[str], added: list[str]
) -> None:
    Process(tmp_path / "proc")
    run(daemon.path, *arguments)
    assert executed[3:] == added


@pytest.mark.parametrize("number", ["-1", "many", "", "٣"])
def test_a_wrong_number_of_lines(daemon: FakeDaemon, number: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(daemon.path, f"--lines={number}")
    assert ended.value.code == EXIT_USAGE and "must be a number or all" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("groups", "option"),
    [
        ("0::/system.slice/system-llmd.slice/llmd@qwen.service\n", "--unit=llmd@qwen.service"),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/llmd.service\n", "--user-unit=llmd.service"),
        ("8:pids:/x.service\n1:name=systemd:/system.slice/llmd.service\n0::/\n", "--unit=llmd.service"),
    ],
)
def test_the_unit_is_the_one_of_the_process(
    daemon: FakeDaemon, executed: list[str], tmp_path: Path, groups: str, option: str
) -> None:
    Process(tmp_path / "proc", groups=groups)
    run(daemon.path)
    assert executed[2] == option


@pytest.mark.parametrize("groups", ["", "\n", "0::/\n", "garbage", "::", SESSION, "8:pids:/x.service\n"])
def test_what_is_no_service(groups: str) -> None:
    assert logs.unit_of_groups(groups) is None


def test_a_member_of_the_group_may_not_see_standard_error(
    daemon: FakeDaemon, executed: list[str], tmp_path: Path
) -> None:
    Process(tmp_path / "proc", stderr=None)
    run(daemon.path)
    assert executed[2] == "--unit=llmd.service"


def test_no_journalctl(
    daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Process(tmp_path / "proc")
    monkeypatch.setattr(logs, "PROC", tmp_path / "proc")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(daemon.path) == EXIT_REFUSED
    assert "journalctl cannot be run: No such file or directory" in capsys.readouterr().err


def test_journalctl_takes_the_place_of_llmctl(tmp_path: Path, daemon: FakeDaemon) -> None:
    Process(tmp_path / "proc")
    script = tmp_path / "journalctl"
    script.write_text('#!/bin/sh\necho "$@"\nexit 7\n')
    script.chmod(0o755)
    program = f"import pathlib; from llmd.ctl import logs, __main__ as ctl; logs.PROC = pathlib.Path({str(tmp_path)!r})"
    program += f" / 'proc'; ctl.main(['--socket', {daemon.path!r}, 'logs', '-f'])"
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout == "--no-pager --unit=llmd.service --lines=100 --follow\n"


# --- elsewhere -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [SERVICE, SESSION])
@pytest.mark.parametrize(
    ("stderr", "said"),
    [
        ("/dev/pts/3", "llmd (pid 4711) writes its log to the terminal /dev/pts/3."),
        ("/tmp/llmd log", "llmd (pid 4711) writes its log to the file /tmp/llmd log. To follow it: tail -f '/tmp/llmd"),
        ("/dev/null", "llmd (pid 4711) discards its log"),
        ("pipe:[9]", "writes its log to standard error; the program that has started llmd reads it"),
        ("/tmp/\x1b[31m", "writes its log to the file /tmp/\u241b[31m."),
    ],
)
def test_a_log_that_is_elsewhere(
    daemon: FakeDaemon,
    executed: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    groups: str,
    stderr: str,
    said: str,
) -> None:
    Process(tmp_path / "proc", groups=groups, stderr=stderr)
    assert run(daemon.path) == EXIT_OK
    assert said in capsys.readouterr().out and executed == []


def test_a_process_whose_standard_error_is_hidden(
    daemon: FakeDaemon, executed: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Process(tmp_path / "proc", groups=SESSION, stderr=None)
    assert run(daemon.path) == EXIT_OK
    assert "this user may not see where that leads" in capsys.readouterr().out


def test_the_pid_of_a_container_is_another_process_here(
    daemon: FakeDaemon, executed: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (Process(tmp_path / "proc").path / "cmdline").write_bytes(b"/sbin/init\0")
    assert run(daemon.path) == EXIT_OK
    assert "podman logs NAME or docker logs NAME" in capsys.readouterr().out
    daemon.route("GET /live", {"status": "ok", "pid": "x"})
    assert run(daemon.path) == EXIT_OK
    assert "podman logs NAME" in capsys.readouterr().out and executed == []


def test_json_has_the_place(
    daemon: FakeDaemon, executed: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Process(tmp_path / "proc", groups=SESSION, stderr="/tmp/log")
    run(daemon.path, "--json")
    assert json.loads(capsys.readouterr().out) == {"pid": PID, "log": "/tmp/log"}


# --- no daemon answers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("/run/llmd/llmd.sock", Unit("llmd.service", False)),
        ("/run/llmd/qwen/llmd.sock", Unit("llmd@qwen.service", False)),
        ("/run/user/1000/llmd/llmd.sock", Unit("llmd.service", True)),
        ("/tmp/llmd-1000/llmd.sock", None),
        ("/run/llmd/a/b/llmd.sock", None),
    ],
)
def test_the_socket_tells_the_unit_of_a_daemon_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, unit: Unit | None
) -> None:
    monkeypatch.setattr(logs, "SYSTEMD", tmp_path)
    monkeypatch.setattr(logs, "is_loaded", lambda _: True)
    assert logs.unit_of_socket(path) == unit
    monkeypatch.setattr(logs, "is_loaded", lambda _: False)
    assert logs.unit_of_socket(path) is None
    monkeypatch.setattr(logs, "is_loaded", lambda _: True)
    monkeypatch.setattr(logs, "SYSTEMD", tmp_path / "none")
    assert logs.unit_of_socket(path) is None


def test_the_log_of_a_daemon_that_has_ended(
    executed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "none.sock")
    assert run(missing) == EXIT_ABSENT
    said = capsys.readouterr().out
    assert said.startswith(f"{missing} does not exist, and no systemd unit has this socket. llmd writes its log to")
    monkeypatch.setattr(logs, "unit_of_socket", lambda _: Unit("llmd.service", False))
    assert run(missing) == EXIT_OK
    assert executed[2] == "--unit=llmd.service"


@pytest.mark.parametrize(("answer", "is_loaded"), [("loaded", True), ("not-found", False), ("masked", False)])
def test_a_unit_is_there_if_systemd_has_loaded_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, is_loaded: bool
) -> None:
    script = tmp_path / "systemctl"
    script.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\necho LoadState={answer}\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert logs.is_loaded(Unit("llmd@q.service", False)) == is_loaded
    assert logs.is_loaded(Unit("llmd.service", True)) == is_loaded
    assert (tmp_path / "asked").read_text().splitlines() == [
        "show --property=LoadState llmd@q.service",
        "--user show --property=LoadState llmd.service",
    ]


def test_no_systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not logs.is_loaded(Unit("llmd.service", False))
