"""`llmd OWNER/NAME` as a process, with a hub on this machine."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmd.models.display import DownloadDisplay, bar
from llmd.process.progress import Download, Loading
from tests.local_hub import LocalHub
from tests.serving import Json, chat
from tests.test_models_hub import MIB
from tests.test_process import Process, Start


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    start = Start(tmp_path)
    yield start
    start.close()


def environment(hub: LocalHub, tmp_path: Path) -> dict[str, str]:
    return {"HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "hf"), "HF_ENDPOINT": hub.url, "HOME": str(tmp_path)}


def downloading(start: Start, hub: LocalHub, tmp_path: Path) -> tuple[Process, Json]:
    """Starts a daemon whose download waits for the hub's gate after 3 MiB. Returns its readiness then."""
    hub.breaks_after, hub.gate = [3 * MIB], threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    popen = start.popen("--model", "ann/tiny", "--port", str(port), **environment(hub, tmp_path))
    process = Process(popen, [], port, tmp_path / "run" / "llmd.sock")
    process.wait_for("listening")
    waiting = threading.Event()
    for _ in range(6000):
        status, ready = process.ask("GET", "/ready")
        if ready["download"] is not None and ready["download"]["bytes"] >= 2 * MIB:
            assert status == 503
            return process, ready
        waiting.wait(0.01)
    raise AssertionError("the download did not begin")


def test_the_daemon_answers_while_it_downloads(start: Start, hub: LocalHub, model: bytes, tmp_path: Path) -> None:
    hub.add("ann/tiny", {"t-Q4_K_M.gguf": model})
    process, ready = downloading(start, hub, tmp_path)
    assert (ready["status"], ready["model"], ready["loaded_per_mille"]) == ("loading", "ann/tiny", 0)
    assert ready["download"]["name"] == "ann/tiny" and ready["download"]["total_bytes"] == len(model)
    assert process.ask("GET", "/v1/models")[0] == 503
    assert hub.gate is not None
    hub.gate.set()
    assert process.wait_for("serving")["model"] == "model"
    assert process.ask("POST", "/v1/chat/completions", chat())[0] == 200
    assert process.ask("GET", "/ready")[1]["download"] is None
    said = [line["message"] for line in process.log]
    assert "downloading ann/tiny: 0 % of 5 MiB" in said and "downloading ann/tiny: 100 % of 5 MiB" in said


def test_an_interrupted_start_is_resumed(start: Start, hub: LocalHub, model: bytes, tmp_path: Path) -> None:
    hub.add("ann/tiny", {"t-Q4_K_M.gguf": model})
    process, _ = downloading(start, hub, tmp_path)
    process.popen.send_signal(signal.SIGINT)
    assert process.popen.wait(timeout=60) == 0
    hub.requests.clear()
    again = start("--model", "hf.co/ann/tiny", **environment(hub, tmp_path))
    assert again.ask("POST", "/v1/chat/completions", chat())[0] == 200
    assert [one.range for one in hub.downloads] == [f"bytes={2 * MIB}-"] or hub.downloads[
        0
    ].range == f"bytes={3 * MIB}-"


def test_an_error_names_the_option_and_the_name(start: Start, hub: LocalHub, tmp_path: Path) -> None:
    status, errors = start.fails("--model", "ann/none", **environment(hub, tmp_path))
    where = hub.url.removeprefix("http://")
    assert status == 1 and errors.splitlines()[-1] == (
        f"llmd: --model ann/none: {where} has no such repository: check the spelling, or set HF_TOKEN if it is private"
    )


def test_a_path_wins(
    start: Start, hub: LocalHub, model: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ann").mkdir()
    (tmp_path / "ann" / "tiny").write_bytes(model)
    monkeypatch.chdir(tmp_path)
    start("--model", "ann/tiny", **environment(hub, tmp_path))
    assert hub.requests == []


# --- progress ---------------------------------------------------------------------------------------------------------


def test_sparse_lines_without_a_terminal() -> None:
    said: list[str] = []
    download = Download(DownloadDisplay(said.append, has_bar=False))
    download.begin("a/b", 1000)
    for _ in range(100):
        download.add(10)
    download.end()
    assert [line.split(": ")[1] for line in said] == [f"{percent} % of 1 MiB" for percent in range(0, 101, 10)]
    download.begin("c/d", 1000)  # a display can show several downloads
    assert said[-1] == "downloading c/d: 0 % of 1 MiB"


def test_a_bar_in_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    download = Download(DownloadDisplay(lambda _: None, has_bar=True))
    download.begin("a/b", 4 << 30)
    download.add(2 << 30)
    download.add(2 << 30)
    download.end()
    shown = capsys.readouterr().err
    assert shown.endswith("a/b 100 % [########################] 4.0 GiB of 4.0 GiB\n") and "\r\033[K" in shown
    download.n_bytes = 3 << 30
    assert bar(download, 200.0) == "a/b  75 % [##################      ] 3.0 GiB of 4.0 GiB, 3 min left"
    assert bar(download, 20.0).endswith(", 20 s left")
    download.is_checking = True
    assert bar(download, None).endswith(", checking")


def test_what_systemd_and_clients_are_told() -> None:
    download = Download()
    loading = Loading(lambda: 500, clock=iter([0.0, 2.0, 4.0]).__next__, download=download)
    download.begin("a/b", 1000)
    download.add(250)
    assert loading.progress("m.gguf") == (750, "Downloading a/b: 25 %") and loading.retry_after_s() == 30
    download.end()
    assert loading.progress("m.gguf") == (750, "Loading m.gguf: 50 %") and loading.retry_after_s() == 2
