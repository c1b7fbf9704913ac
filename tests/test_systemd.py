"""The systemd units: their settings, what systemd reports about them, and the options that they name, which must
exist.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from llmd import app
from llmd.core import limits
from llmd.http.context import State
from llmd.process import config_reader
from llmd.process.config_table import OPTIONS, Config
from llmd.process.progress import Loading
from tests.conftest import Serve

SYSTEMD = Path(__file__).parents[1] / "systemd"
UNITS = ("llmd.service", "llmd@.service")
INSTALLED = "/opt/llmd/bin/llmd"
EXPOSURE_MAX = 3.0

Directives = dict[str, list[str]]

HARDENING = {
    "Type": "notify",
    "ExecReload": "/bin/kill -HUP $MAINPID",
    "UMask": "0077",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "DevicePolicy": "closed",
    "ProtectProc": "invisible",
    "ProtectKernelLogs": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectControlGroups": "yes",
    "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "RestrictNamespaces": "yes",
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "MemoryDenyWriteExecute": "yes",
    "LockPersonality": "yes",
    "Restart": "on-failure",
}


def directives(text: str) -> Directives:
    found: Directives = {}
    for line in text.splitlines():
        if "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def unit(name: str) -> Directives:
    return directives((SYSTEMD / name).read_text())


def environment(name: str) -> dict[str, str]:
    return dict(entry.split("=", 1) for entry in unit(name)["Environment"])


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units as they are installed, with a program that exists on this machine."""
    for name in UNITS:
        text = (SYSTEMD / name).read_text()
        assert INSTALLED in text
        instance = name.replace("@", "@demo")
        (tmp_path / instance).write_text(text.replace(INSTALLED, "/bin/true"))
    shutil.copy(SYSTEMD / "llmd.socket", tmp_path)
    return tmp_path


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not here")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def exposure(path: Path) -> float:
    result = analyze("security", "--offline=true", str(path))
    overall = re.search(r"Overall exposure level for \S+: ([0-9.]+)", result.stdout)
    assert overall, result.stdout + result.stderr
    return float(overall[1])


@pytest.mark.parametrize("name", UNITS)
def test_hardening_is_there(name: str) -> None:
    found = unit(name)
    assert {key: found.get(key) for key in HARDENING} == {key: [value] for key, value in HARDENING.items()}
    assert found["SystemCallFilter"] == ["@system-service", "~@privileged"]
    assert int(found["WatchdogSec"][0].removesuffix("s")) >= 30, "a slow machine's longest step must fit"


@pytest.mark.parametrize("name", UNITS)
def test_no_debugger_is_started(name: str) -> None:
    assert environment(name)["GGML_NO_BACKTRACE"] == "1"


@pytest.mark.parametrize(("name", "place"), [("llmd.service", "llmd"), ("llmd@.service", "llmd/%i")])
def test_places_agree(name: str, place: str) -> None:
    found = unit(name)
    assert found["RuntimeDirectory"] == found["StateDirectory"] == [place]
    assert environment(name)["LLMD_SOCKET"] == f"/run/{place}/llmd.sock"
    assert environment(name)["LLMD_STATE_DIR"] == f"/var/lib/{place}"


def test_stopping_the_plain_unit_leaves_the_instances_their_sockets() -> None:
    assert unit("llmd.service")["RuntimeDirectoryPreserve"] == ["yes"]


def test_instances_differ_only_in_their_places() -> None:
    plain, instance = unit("llmd.service"), unit("llmd@.service")
    different = {key for key in plain.keys() | instance.keys() if plain.get(key) != instance.get(key)}
    assert different == {
        "Description",
        "AssertPathExists",
        "ExecStart",
        "EnvironmentFile",
        "Environment",
        "StateDirectory",
        "RuntimeDirectory",
        "RuntimeDirectoryPreserve",
    }


def test_the_user_is_the_one_that_is_made() -> None:
    made = (SYSTEMD / "llmd.sysusers.conf").read_text().splitlines()[-1].split()
    assert made[:2] == ["u", "llmd"]
    assert all(unit(name)["User"] == unit(name)["Group"] == ["llmd"] for name in UNITS)


def test_the_socket_unit_opens_what_the_service_would() -> None:
    sockets = unit("llmd.socket")
    assert sockets["ListenStream"] == [environment("llmd.service")["LLMD_SOCKET"], f"127.0.0.1:{Config().port}"]
    assert sockets["SocketUser"] == sockets["SocketGroup"] == unit("llmd.service")["User"]


@pytest.mark.parametrize("name", UNITS)
def test_units_name_options_that_exist(name: str) -> None:
    known = {option.environment for option in OPTIONS}
    assert {variable for variable in environment(name) if variable.startswith("LLMD_")} <= known
    flags = set(re.findall(r"--[a-z-]+", unit(name)["ExecStart"][0]))
    assert flags <= {option.flag for option in OPTIONS}


@pytest.mark.parametrize("name", UNITS)
def test_stopping_takes_no_longer_than_systemd_waits(name: str) -> None:
    assert Config().shutdown_timeout + limits.STOP_GRACE_S < int(unit(name)["TimeoutStopSec"][0].removesuffix("s"))
    assert unit(name)["RestartPreventExitStatus"] == [str(config_reader.USAGE_ERROR)]


def test_devices_are_opened_only_by_the_drop_in() -> None:
    assert all("DeviceAllow" not in unit(name) for name in UNITS)
    drop_in = unit("gpu.conf")
    assert drop_in["PrivateDevices"] == ["no"]
    assert "char-nvidia* rw" in drop_in["DeviceAllow"]
    assert "char-drm rw" in drop_in["DeviceAllow"]


@pytest.mark.parametrize("name", ["llmd.service", "llmd@demo.service", "llmd.socket"])
def test_systemd_finds_nothing_to_say(installed: Path, name: str) -> None:
    result = analyze("verify", "--recursive-errors=no", str(installed / name))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_systemd_would_say_something(installed: Path) -> None:
    broken = installed / "llmd.service"
    broken.write_text(broken.read_text().replace("NoNewPrivileges=yes", "NoNewPrivilege=yes"))
    assert "NoNewPrivilege" in analyze("verify", "--recursive-errors=no", str(broken)).stderr


@pytest.mark.parametrize("name", ["llmd.service", "llmd@demo.service"])
def test_exposure_is_low(installed: Path, name: str) -> None:
    assert exposure(installed / name) < EXPOSURE_MAX


def test_exposure_is_low_with_a_gpu(installed: Path) -> None:
    closed = exposure(installed / "llmd.service")
    drop_ins = installed / "llmd.service.d"
    drop_ins.mkdir()
    shutil.copy(SYSTEMD / "gpu.conf", drop_ins)
    assert analyze("verify", "--recursive-errors=no", str(installed / "llmd.service")).stderr == ""
    assert closed < exposure(installed / "llmd.service") < EXPOSURE_MAX


# --- what it hears ---------------------------------------------------------------------------------------------------


class Heard(list[str]):
    """Collects notifications for systemd, until there are `n`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, n: int) -> None:
        super().__init__()
        self.all = asyncio.Event()

        def notify(*lines: str) -> bool:
            self.append(" ".join(lines))
            if len(self) >= n:
                self.all.set()
            return True

        monkeypatch.setattr("llmd.process.systemd.notify", notify)


async def test_a_stop_gets_more_time_as_long_as_it_gets_on(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = iter([(0, 0), (2, 0), (2, 0), (2, 1)])

    def now() -> dict[str, int]:
        saved, others = next(counters)
        return {"sessions_saved_total": saved, "sessions_named": 3, "others": others}

    state = cast(State, SimpleNamespace(engine=SimpleNamespace(session_table=SimpleNamespace(counters=now))))
    monkeypatch.setattr(limits, "SAVE_PROGRESS_S", 0.0)
    heard = Heard(monkeypatch, 4)
    saving = asyncio.create_task(app.tell_saving(state))
    await asyncio.wait_for(heard.all.wait(), 60)
    saving.cancel()
    assert heard == [
        "STATUS=Saving sessions: 0 of 3 EXTEND_TIMEOUT_USEC=60000000",
        "STATUS=Saving sessions: 2 of 3 EXTEND_TIMEOUT_USEC=60000000",
        "STATUS=Saving sessions: 2 of 3",
        "STATUS=Saving sessions: 2 of 3 EXTEND_TIMEOUT_USEC=60000000",
    ]


async def test_a_start_gets_more_time_as_long_as_it_gets_on(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = iter([0, 431, 431, 1000])
    state = SimpleNamespace(loaded_model=None, loading=Loading(lambda: next(loaded)), config=Config(model="/m/x.gguf"))
    monkeypatch.setattr(limits, "LOAD_PROGRESS_S", 0.0)
    heard = Heard(monkeypatch, 4)
    opening = asyncio.create_task(heard.all.wait())
    await asyncio.wait_for(app.tell_systemd(cast(State, state), cast("asyncio.Task[None]", opening)), 60)
    assert heard == [
        "STATUS=Loading x.gguf: 0 % EXTEND_TIMEOUT_USEC=120000000",
        "STATUS=Loading x.gguf: 43 % EXTEND_TIMEOUT_USEC=120000000",
        "STATUS=Loading x.gguf: 43 %",
        "STATUS=Loading x.gguf: 100 % EXTEND_TIMEOUT_USEC=120000000",
    ]


async def test_a_stopping_daemon_asks_for_the_time_that_it_may_take(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = await serve(shutdown_timeout=300.0)
    heard = Heard(monkeypatch, 1)
    await app.stop_serving(daemon.state)
    assert heard == ["STOPPING=1 STATUS=Waiting for 0 requests EXTEND_TIMEOUT_USEC=365000000"]
    await app.save(daemon.state)
    assert heard[1] == "STATUS=Saving sessions: 0 of 0 EXTEND_TIMEOUT_USEC=60000000"
