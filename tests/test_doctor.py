"""llmd doctor: each finding on a machine that the test makes up, and the command itself."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import socket
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from llmd.doctor import hardware, places, process_limits, report, services
from llmd.doctor.finding import Finding, Verdict
from llmd.engine import machine as measuring
from llmd.engine.machine import Device, Machine
from tests.serving import config_of

GIB = 2**30
FREE = Machine(free_bytes=8 * GIB, allowed_bytes=2**64 - 1, n_cores=4, n_allowed=2**31 - 1)
GPU = Device("CUDA0", "NVIDIA H100", 70 * GIB, 80 * GIB, True)
CPU = Device("CPU", "a processor", 0, 0, False)


def check(found: Finding, verdict: Verdict, *words: str) -> None:
    """Checks the verdict, and that each of the words is in the fact or in the advice."""
    assert found.verdict == verdict, found
    assert found.fact.endswith(".") and (verdict == "ok") == (not found.advice)
    assert not found.advice or found.advice.endswith(".")
    for word in words:
        assert word in f"{found.fact} {found.advice}", found


# --- the machine -----------------------------------------------------------------------------------------------------


def test_memory_for_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (measuring.memory_for_model(with_gpu=False) or 0) > 0
    monkeypatch.setattr(measuring, "devices", lambda: [CPU, GPU])
    for n_host, without, with_gpu in ((8 * GIB, 8 * GIB, 78 * GIB), (0, None, None)):
        monkeypatch.setattr(measuring, "this_machine", lambda n=n_host: replace(FREE, free_bytes=n))
        assert measuring.memory_for_model(with_gpu=False) == without
        assert measuring.memory_for_model(with_gpu=True) == with_gpu


def test_processor() -> None:
    check(hardware.processor("uses AVX2 FMA; flash attention off"), "ok", "use AVX2 FMA.")
    left = "uses AVX2; leaves out AVX512: built for another, ./build.sh setup on this machine builds for it"
    check(hardware.processor(f"{left}; flash attention on"), "slow", "use AVX2, but not AVX512", "./build.sh setup")


def test_cores() -> None:
    check(hardware.cores(FREE, 0, 4), "ok", "llmd can use 4 cores.")
    limited = Machine(GIB, GIB, n_cores=1, n_allowed=2)
    check(hardware.cores(limited, 2, 2), "ok", "1 core; its control groups have a quota of 2.")
    check(hardware.cores(limited, 8, 2), "slow", "--threads is 8", "at most 1")


def test_gpus(tmp_path: Path) -> None:
    none = tmp_path / "none"
    check(hardware.gpus([CPU], "", -1, none), "ok", "no GPU")
    check(hardware.gpus([CPU, GPU], "", -1, none), "ok", "CUDA0 (NVIDIA H100), 70.0 GiB of 80.0 GiB free")
    check(hardware.gpus([CPU, GPU], "", 0, none), "slow", "--gpu-layers is 0", "CUDA0")
    check(hardware.gpus([CPU], "libllm is built for CUDA, which has found no device", -1, none), "wrong", "no device")
    (tmp_path / "kfd").touch()
    check(hardware.gpus([CPU], "", -1, tmp_path), "slow", "an AMD GPU", "LLMD_BACKEND=hip")


def test_a_gpu_without_access(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidiactl").touch()
    monkeypatch.setattr(os, "access", lambda *_: False)
    check(hardware.gpus([CPU], "no device", -1, tmp_path), "wrong", "an NVIDIA GPU", "nvidiactl", "groups video")


def test_memory() -> None:
    check(hardware.memory(FREE, [CPU], 16 * GIB, None), "ok", "8.0 GiB of 16.0 GiB of host memory are free")
    check(hardware.memory(FREE, [CPU], 16 * GIB, 8 * GIB), "ok")
    check(hardware.memory(FREE, [CPU], 16 * GIB, 9 * GIB), "wrong", "The model takes 9.0 GiB", "smaller model")
    check(hardware.memory(FREE, [CPU, GPU], 16 * GIB, 70 * GIB), "ok")
    limited = Machine(GIB, GIB // 2, 1, 1)
    check(hardware.memory(limited, [CPU], 16 * GIB, None), "ok", "the control groups allow llmd another 512 MiB.")


def test_model(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.gguf", tmp_path / "bad.gguf"
    good.write_bytes(b"GGUF" + bytes(2**20 - 4))
    bad.write_bytes(b"PK")
    for name, n_bytes in ((str(good), 2**20), ("sim:dense", None), ("Qwen/Qwen3-8B-GGUF", None)):
        found, n = hardware.model(name, None)
        check(found, "ok", name)
        assert n == n_bytes
    for name in (str(bad), str(tmp_path / "absent.gguf"), "no-such-name-of-a-model"):
        found, n = hardware.model(name, None)
        check(found, "wrong", Path(name).name)
        assert n is None


def test_libllm_measures() -> None:
    machine, devices = measuring.this_machine(), measuring.devices()
    assert 0 < machine.free_bytes <= machine.allowed_bytes and 0 < machine.n_cores <= machine.n_allowed
    assert any(not one.is_gpu and one.name == "CPU" and one.description for one in devices)


# --- limits ----------------------------------------------------------------------------------------------------------


def test_open_files() -> None:
    check(process_limits.open_files(65536), "ok", "65536")
    check(process_limits.open_files(resource.RLIM_INFINITY), "ok", "any number of")
    check(process_limits.open_files(1024), "slow", "1024", "LimitNOFILE=")


def test_locked_memory() -> None:
    check(process_limits.locked_memory(64 * 1024), "ok", "64 KiB")
    check(process_limits.locked_memory(resource.RLIM_INFINITY), "ok", "no limit")


def test_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(process_limits.shared_memory(tmp_path, 1), "ok", str(tmp_path))
    check(process_limits.shared_memory(tmp_path, 2**62), "wrong", "the session table needs", "--shm-size")
    check(process_limits.shared_memory(tmp_path / "absent", 1), "wrong", "cannot write", "tmpfs")
    config = config_of(tmp_path, ctx_size=1000, max_sessions=2, scratch_sessions=1, max_parked=7)
    assert process_limits.session_table_bytes(config) == 10 * 1000 * 4


# --- places ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which this process listens, without answering."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_a_free_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number = listener.getsockname()[1]
    check(places.port("127.0.0.1", number), "ok", f"Port {number}")
    check(places.port("127.0.0.1", 0), "ok", "free port")


def test_a_taken_port(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_ANSWER_S_MAX", 0.05)
    name = Path("/proc/self/comm").read_text().strip()
    check(places.port("127.0.0.1", taken), "wrong", f"({name}, pid {os.getpid()})", "--port")


def test_a_port_of_a_hidden_process(taken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_ANSWER_S_MAX", 0.05)
    check(places.port("127.0.0.1", taken, tmp_path), "wrong", f"Another program listens on port {taken}.")


@pytest.mark.parametrize(
    ("body", "verdict"), [({"status": "ok", "version": "1.2", "pid": 3}, "ok"), ({"status": "ok"}, "wrong")]
)
def test_a_port_of_llmd(body: dict[str, Any], verdict: Verdict) -> None:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.handle_request)
        thread.start()
        check(places.port("127.0.0.1", server.server_port), verdict, *(["llmd 1.2"] if verdict == "ok" else []))
        thread.join()


def test_an_address_of_another_machine() -> None:
    check(places.port("192.0.2.1", 15563), "wrong", "192.0.2.1", "--host")
    check(places.port("no host", 15563), "wrong", "no host", "--host")


def test_unix_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "llmd.sock"
    check(places.unix_socket(path), "ok", "is free")
    check(places.unix_socket(tmp_path / ("x" * 108)), "wrong", "107 bytes", "--socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        check(places.unix_socket(tmp_path / "s"), "ok", "is free")  # a killed daemon has left it
        listener.listen()
        check(places.unix_socket(tmp_path / "s"), "ok", "listens")
    (tmp_path / "file").touch()
    check(places.unix_socket(tmp_path / "file"), "wrong", "not a socket", "--socket")
    monkeypatch.setattr(os, "access", lambda *_: False)
    check(places.unix_socket(path), "wrong", f"{tmp_path} is not writable")


def test_access(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("secret-secret-secret ann\n")
    keys.chmod(0o600)
    check(places.access("0.0.0.0", keys, False), "ok", "1 keys")
    keys.chmod(0o644)
    check(places.access("0.0.0.0", keys, False), "wrong", str(keys), "--api-key-file")
    check(places.access("127.0.0.1", None, False), "ok", "Every user of this machine")
    check(places.access("0.0.0.0", None, True), "ok", "Every machine")
    check(places.access("0.0.0.0", None, False), "wrong", "no API keys", "--open on")


def test_state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(places.state_directory(None), "ok", "in memory only")
    monkeypatch.setattr(places, "_DISK_BYTES_MIN", 0)
    check(places.state_directory(tmp_path / "a" / "b"), "ok", str(tmp_path), "free")
    monkeypatch.setattr(places, "_DISK_BYTES_MIN", 2**62)
    check(places.state_directory(tmp_path), "slow", "free", "--state-dir")
    (tmp_path / "file").touch()
    check(places.state_directory(tmp_path / "file"), "wrong", "cannot write", "--state-dir")


# --- the kernel and systemd ------------------------------------------------------------------------------------------


def test_users() -> None:
    check(services.users(True, False), "ok")
    check(services.users(False, True), "ok", "API keys")
    check(services.users(False, False), "wrong", "tcp_diag", "--api-key-file")


LOADED = {"LoadState": "loaded", "ActiveState": "active", "SubState": "running", "Result": "success"}


def test_unit() -> None:
    check(services.unit(lambda: None), "ok", "does not run systemd")
    check(services.unit(lambda: {"LoadState": "not-found"}), "ok", "not installed")
    check(services.unit(lambda: LOADED), "ok", "llmd.service is active (running).")
    failed = {**LOADED, "ActiveState": "failed", "Result": "exit-code"}
    check(services.unit(lambda: failed), "wrong", "failed (exit-code)", "journalctl -u llmd")
    check(services.unit(lambda: {**LOADED, "PrivateUsers": "yes"}), "wrong", "PrivateUsers=yes")


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def findings(monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    """The findings of the command. The test adds them."""
    found: list[Finding] = []
    monkeypatch.setattr(report, "checked", lambda config: iter(found))
    monkeypatch.setattr("logging.disable", lambda: None)
    return found


def test_what_is_printed(findings: list[Finding], capsys: pytest.CaptureFixture[str]) -> None:
    findings.append(Finding("cores", "ok", "llmd can use 4 cores."))
    assert report.main([]) == 0
    assert capsys.readouterr().out == "ok     cores          llmd can use 4 cores.\n\nEverything is ok.\n"
    findings.append(Finding("gpu", "slow", "No.", "Build."))
    assert report.main([]) == 0
    out = capsys.readouterr().out
    assert "slow   gpu            No.\n                      Build.\n" in out and "0 wrong, 1 slow." in out
    findings.append(Finding("port", "wrong", "Taken.", "Stop it."))
    assert report.main(["--json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["is_ok"] is False
    assert shown["findings"][2] == {
        "subject": "port", "verdict": "wrong", "fact": "Taken.", "advice": "Stop it."
    }  # fmt: skip


def test_a_reader_that_leaves(findings: list[Finding], capfd: pytest.CaptureFixture[str]) -> None:
    """The output goes to a pipe that nobody reads, as in `llmd doctor | true`."""
    findings.append(Finding("port", "wrong", "Taken.", "Stop it."))
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as closed, contextlib.redirect_stdout(closed):
        assert report.main([]) == 1
    assert capfd.readouterr().err == ""


def test_an_option_that_is_none(findings: list[Finding], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        report.main(["--prot", "1"])
    assert exit.value.code == 2 and "did you mean --port?" in capsys.readouterr().err


def test_all_checks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = list(report.checked(config_of(tmp_path)))
    subjects = [one.subject for one in found]
    assert subjects == [
        "libllm", "model", "processor", "cores", "gpu", "memory", "open files", "locked memory", "shared memory",
        "state", "port", "socket", "access", "users", "systemd",
    ]  # fmt: skip
    assert all(re.fullmatch(r"[^\n]+\.", one.fact) for one in found)
