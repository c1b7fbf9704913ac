"""llmctl against a small server on a unix socket: verbs, options before and after the verb, exit statuses, and
advice.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import llmd
from llmd.ctl import __main__ as ctl
from llmd.ctl import advice, text
from llmd.ctl.client import Client, DaemonAbsent, DaemonRefused, samples
from llmd.ctl.context import EXIT_ABSENT, EXIT_NOT_FOUND, EXIT_OK, EXIT_PIPE_CLOSED, EXIT_REFUSED, EXIT_USAGE
from tests.fake_daemon import FakeDaemon

MODELS = {"object": "list", "data": [{"id": "tiny", "object": "model", "meta": {"n_ctx": 4096, "arch": "llama"}}]}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    fake = FakeDaemon(tmp_path / "llmd.sock")
    fake.route("GET /v1/models", MODELS)
    yield fake
    fake.stop()


@pytest.fixture(autouse=True)
def no_daemon_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LLMD_SOCKET", raising=False)
    monkeypatch.setattr(advice, "SOCKET_PATTERNS", (str(tmp_path / "run" / "*.sock"),))


# --- options and exit statuses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["before", "after", "environment"])
def test_socket_is_found(
    daemon: FakeDaemon, place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    option = ["--socket", daemon.path]
    if place == "environment":
        monkeypatch.setenv("LLMD_SOCKET", daemon.path)
        option = []
    arguments = ["models", *option] if place == "after" else [*option, "models"]
    assert ctl.main(arguments) == EXIT_OK
    assert "tiny" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--json", "models"], ["models", "--json"]])
def test_json_is_the_daemons_own(daemon: FakeDaemon, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert ctl.main(["--socket", daemon.path, *arguments]) == EXIT_OK
    assert json.loads(capsys.readouterr().out) == MODELS


def test_timeout_is_accepted_in_both_places(daemon: FakeDaemon) -> None:
    assert ctl.main(["--socket", daemon.path, "--timeout", "5", "models"]) == EXIT_OK
    assert ctl.main(["models", "--socket", daemon.path, "--timeout", "5"]) == EXIT_OK


@pytest.mark.parametrize(
    "arguments",
    [[], ["nonsense"], ["--timeout", "0", "models"], ["models", "--nonsense"], ["sessions", "show"]],
)
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        ctl.main(arguments)
    assert exit.value.code == EXIT_USAGE
    assert "usage: llmctl" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "program", "said"),
    [
        (["--sockte", "x", "status"], "llmctl", "--sockte (did you mean --socket?)"),
        (["--sockte=x", "status"], "llmctl", "--sockte (did you mean --socket?)"),
        (["--json", "--timeout", "5", "--sockte", "x", "status"], "llmctl", "--sockte (did you mean --socket?)"),
        (["--jsno", "status"], "llmctl", "--jsno (did you mean --json?)"),
        (["status", "--jsno"], "llmctl status", "--jsno (did you mean --json?)"),
        (["chat", "--temprature", "1"], "llmctl chat", "--temprature (did you mean --temperature?)"),
        (["sessions", "fork", "a", "b", "--replcae"], "llmctl sessions fork", "--replcae (did you mean --replace?)"),
        (["status", "--zzz"], "llmctl status", "--zzz"),
    ],
)
def test_an_option_that_is_none_gets_the_nearest(
    arguments: list[str], program: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit:
        ctl.main(arguments)
    assert exit.value.code == EXIT_USAGE
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"{program}: error: there is no option {said}; {program} --help lists all options"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--socket", "x", "nonsense", "--max-tokens", "3"],
            "there is no verb nonsense; llmctl --help lists all verbs",
        ),
        (["sesions"], "there is no verb sesions (did you mean sessions?); llmctl --help lists all verbs"),
        (
            ["sessions", "lisst"],
            "there is no verb lisst (did you mean list?); llmctl sessions --help lists all verbs",
        ),
        (["serve"], "llmctl does not start llmd: run llmd MODEL, or systemctl start llmd"),
        (
            ["stop"],
            "llmctl does not stop llmd: press Ctrl-C in its terminal, or run systemctl stop llmd; to end a session",
        ),
        (["run", "llama3"], "the model that llmd serves; to serve another model, run llmd llama3"),
        (["sessions", "ps"], "there is no verb ps; llmctl sessions --help lists all verbs"),
        (["--sock", "x", "--timeout", "0", "status"], "argument --timeout: must be above 0"),
        (["status", "more"], "unrecognized arguments: more"),
        (["sessions", "fork", "--at", "end", "a"], "the following arguments are required: NEW"),
    ],
)
def test_other_mistakes_are_told_as_such(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        ctl.main(arguments)
    assert said in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("alias", "words"),
    [
        ("ps", "sessions list"),
        ("--socket x --json ps", "--socket x --json sessions list"),
        ("--timeout=3 ps --json", "--timeout=3 sessions list --json"),
        ("run", "chat"),
        ("run --session a", "chat --session a"),
        ("ls", "models list"),
        ("list", "models list"),
        ("show qwen", "models show qwen"),
        ("pull a/b", "models pull a/b"),
        ("rm qwen", "models remove qwen"),
        ("sessions list", "sessions list"),
        ("chat --system ps", "chat --system ps"),
        ("", ""),
    ],
)
def test_verbs_of_other_programs_work(alias: str, words: str) -> None:
    assert ctl.without_aliases(alias.split(), ctl.parser()) == words.split()


def test_every_alias_is_a_verb() -> None:
    for words in ctl.ALIASES.values():
        parser = ctl.parser()
        with pytest.raises(SystemExit) as exit:
            parser.parse_args([*words, "--help"])
        assert exit.value.code == EXIT_OK


def test_help_of_an_alias_is_that_of_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        ctl.main(["help", "ps"])
    assert "llmctl sessions list" in capsys.readouterr().out


def test_an_id_may_look_like_an_option(daemon: FakeDaemon) -> None:
    daemon.route("POST /v1/sessions/--desk/reset", {"id": "--desk", "reset": True, "existed": True})
    assert ctl.main(["--socket", daemon.path, "sessions", "reset", "--", "--desk"]) == EXIT_OK


def test_help_is_given_beside_an_option_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        ctl.main(["--jsno", "--help"])
    assert exit.value.code == EXIT_OK and "verbs:" in capsys.readouterr().out


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        ctl.main(["--help"])
    assert exit.value.code == EXIT_OK
    shown = capsys.readouterr().out
    assert "llmctl chat --session work" in shown and "exit status:" in shown


def test_version_without_a_daemon_still_tells_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ctl.main(["--socket", str(tmp_path / "none"), "version"]) == EXIT_ABSENT
    assert capsys.readouterr().out == f"llmctl  {llmd.__version__}\n"


def test_refusals_say_what_the_daemon_said(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.route(
        "GET /v1/models", lambda exchange: exchange.refuse(503, "overloaded", "Too much.", {"retry-after": "1"})
    )
    assert ctl.main(["--socket", daemon.path, "models"]) == EXIT_REFUSED
    assert capsys.readouterr().err == "llmctl: Too much. (overloaded); try again in 1 s\n"


def test_refusals_as_json(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.route("GET /v1/models", lambda exchange: exchange.refuse(404, "not_found", "There is nothing."))
    assert ctl.main(["--socket", daemon.path, "--json", "models"]) == EXIT_NOT_FOUND
    assert json.loads(capsys.readouterr().err) == {"error": {"code": "not_found", "message": "There is nothing."}}


def test_an_error_that_is_not_json_is_shown_as_it_is(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.route("GET /v1/models", lambda exchange: exchange.answer("bad gateway", 502))
    assert ctl.main(["--socket", daemon.path, "models"]) == EXIT_REFUSED
    assert capsys.readouterr().err == "llmctl: bad gateway\n"


def test_a_closed_pipe_is_no_error(daemon: FakeDaemon) -> None:
    big = {"object": "list", "data": [{"id": "x" * 100, "n": n} for n in range(20_000)]}
    daemon.route("GET /v1/models", big)
    command = [sys.executable, "-m", "llmd.ctl", "--socket", daemon.path, "models", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == EXIT_PIPE_CLOSED


# --- no daemon -------------------------------------------------------------------------------------------------------


def test_a_missing_socket_gives_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = tmp_path / "run" / "llmd.sock"
    elsewhere.parent.mkdir()
    elsewhere.touch()
    assert ctl.main(["--socket", str(tmp_path / "none"), "models"]) == EXIT_ABSENT
    said = capsys.readouterr().err
    for expected in (
        "none does not exist",
        "systemctl status llmd",
        "./build.sh serve",
        "LLMD_SOCKET",
        str(elsewhere),
    ):
        assert expected in said


def test_a_socket_nobody_listens_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "dead.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
    assert ctl.main(["--socket", path, "models"]) == EXIT_ABSENT
    assert "no program listens on it" in capsys.readouterr().err


def test_a_daemon_that_still_loads_its_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "starting.sock")
    with socket.socket(socket.AF_UNIX) as listener, open(f"{path}.lock", "w") as lock:
        listener.bind(path)
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert ctl.main(["--socket", path, "status"]) == EXIT_ABSENT
    assert "is starting" in capsys.readouterr().err


def test_what_is_no_socket(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ctl.main(["--socket", str(tmp_path), "models"]) == EXIT_ABSENT
    assert "is not a socket" in capsys.readouterr().err
    assert ctl.main(["--socket", f"/tmp/{'x' * 120}", "models"]) == EXIT_ABSENT
    assert ": AF_UNIX path too long" in capsys.readouterr().err


def test_a_fallback_socket_in_somebody_elses_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = tmp_path / "llmd-1000"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setattr(llmd.process.socket_trust, "_socket_in_tmp", lambda: shared / "llmd.sock")
    assert ctl.main(["--socket", str(shared / "llmd.sock"), "status"]) == EXIT_ABSENT
    assert "only this user can write" in capsys.readouterr().err


def test_a_daemon_that_does_not_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "busy.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        assert ctl.main(["--socket", path, "--timeout", "0.1", "models"]) == EXIT_ABSENT
    said = capsys.readouterr().err
    assert "did not answer in time" in said and "--tokens" in said


@pytest.mark.parametrize("body", ["<html>", "[1]", ""])
def test_something_else_that_answers(daemon: FakeDaemon, body: str, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.route("GET /v1/models", body)
    assert ctl.main(["--socket", daemon.path, "models"]) == EXIT_ABSENT
    assert "is not llmd" in capsys.readouterr().err


def test_absence_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ctl.main(["--socket", str(tmp_path / "none"), "--json", "models"]) == EXIT_ABSENT
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "daemon_missing"


@pytest.mark.parametrize("reason", [*advice.SENTENCES])
def test_every_absence_has_advice(reason: str, tmp_path: Path) -> None:
    sentence, *help = advice.advice(DaemonAbsent(str(tmp_path / "s"), reason)).splitlines()
    assert str(tmp_path / "s") in sentence and help


def test_a_forbidden_socket(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: socket.socket, address: str) -> None:
        raise PermissionError(13, "Permission denied", address)

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert ctl.main(["--socket", daemon.path, "models"]) == EXIT_ABSENT
    assert "this user has no permission to use" in capsys.readouterr().err


def test_forbidden_advice_shows_the_permissions(daemon: FakeDaemon) -> None:
    os.chmod(daemon.path, 0o700)
    assert "srwx------" in advice.advice(DaemonAbsent(daemon.path, "forbidden"))


# --- the client ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "path"), [("a/b", "a%2Fb"), ("100%", "100%25"), ("a?b#c", "a%3Fb%23c"), ("x~y", "x~y")]
)
def test_session_names_are_quoted(daemon: FakeDaemon, name: str, path: str) -> None:
    daemon.route(f"GET /v1/sessions/{path}", {"id": name})
    assert Client(daemon.path, 5).session(name) == {"id": name}


def test_not_found_keeps_status_and_code(daemon: FakeDaemon) -> None:
    with pytest.raises(DaemonRefused) as refused:
        Client(daemon.path, 5).session("nobody")
    assert (refused.value.status, refused.value.code) == (404, "not_found")


def test_samples_of_metrics() -> None:
    found = samples('# HELP a b\nllmd_steps_total 12\nllmd_requests_total{outcome="end"} 3\nnonsense x\n')
    assert found == {"llmd_steps_total": 12.0, 'llmd_requests_total{outcome="end"}': 3.0}


# --- text ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0s"), (59.9, "59s"), (60, "1m"), (200, "3m 20s"), (7260, "2h 1m"), (3600 * 25, "1d 1h")]
)
def test_duration(seconds: float, shown: str) -> None:
    assert text.duration(seconds) == shown


@pytest.mark.parametrize(
    ("then", "now", "shown"),
    [(0, 100, "-"), (100, 100.5, "now"), (101, 100, "now"), (10, 210, "3m ago"), (1, 7200, "1h ago")],
)
def test_age(then: float, now: float, shown: str) -> None:
    assert text.age(then, now) == shown


@pytest.mark.parametrize(("n_bytes", "shown"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB")])
def test_size(n_bytes: int, shown: str) -> None:
    assert text.size(n_bytes) == shown


def test_table_aligns() -> None:
    assert (
        text.table(["ID", "TOKENS>"], [["a", "7"], ["longer", "1,234"]])
        == "ID      TOKENS\na            7\nlonger   1,234"
    )


def test_printable_shows_what_a_terminal_would_obey() -> None:
    assert text.printable("a\x1b[2J\x07\x7f\x9b\n\té") == "a\u241b[2J\u2407\u2421\ufffd\n\té"


def test_no_colour_off_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    terminal: Any = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert text.dim("x", terminal) == "\033[2mx\033[0m"
    assert text.dim("x") == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert text.dim("x", terminal) == "x"
