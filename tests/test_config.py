"""The option table, and the code that uses it."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from llmd.engine.opening import gpu_remark
from llmd.process import config_checks, config_reader, config_table, socket_trust
from llmd.process.config_checks import ConfigError
from llmd.process.config_reader import load
from llmd.process.config_table import OPTIONS, Config
from llmd.process.option import Option

GOOD: dict[str, tuple[str, object]] = {
    "model": ("sim:hybrid", "sim:hybrid"),
    "model_id": ("my model", "my model"),
    "chat_template_file": ("/tmp/t.jinja", Path("/tmp/t.jinja")),
    "models_dir": ("/srv/models", Path("/srv/models")),
    "host": ("::1", "::1"),
    "port": ("0", 0),
    "socket": ("/tmp/s.sock", Path("/tmp/s.sock")),
    "config": ("", None),
    "state_dir": ("/tmp/state", Path("/tmp/state")),
    "body_limit": ("1.5M", 1_572_864),
    "shutdown_timeout": ("0", 0.0),
    "load_wait": ("0", 0.0),
    "ctx_size": ("16k", 16384),
    "max_sessions": ("200", 200),
    "scratch_sessions": ("3", 3),
    "scratch_reuse": ("off", False),
    "history": ("template", "template"),
    "capacity_policy": ("refuse", "refuse"),
    "session_timelines": ("1", 1),
    "max_parked": ("1000", 1000),
    "park_memory": ("4G", 4 << 30),
    "park_disk": ("20G", 20 << 30),
    "checkpoint_memory": ("512M", 512 << 20),
    "checkpoint_every": ("64", 64),
    "session_idle_time": ("3600", 3600),
    "threads": ("4", 4),
    "gpu_layers": ("12", 12),
    "kv_memory": ("2GiB", 2 << 30),
    "kv_type": ("q8_0", "q8_0"),
    "oversize": ("allow", "allow"),
    "gap_target_ms": ("50", 50),
    "speculate": ("off", "off"),
    "draft_model": ("sim:dense", "sim:dense"),
    "api_key_file": ("/tmp/keys", Path("/tmp/keys")),
    "open": ("on", True),
    "allowed_hosts": ("a.example, b.example", ("a.example", "b.example")),
    "allowed_origins": ("http://localhost:3000", ("http://localhost:3000",)),
    "keepalive_interval": ("0.5", 0.5),
    "slow_reader_timeout": ("5", 5.0),
    "request_timeout": ("60", 60.0),
    "log_format": ("json", "json"),
    "log_level": ("debug", "debug"),
    "otel_endpoint": ("https://[::1]:4318/tenant", "https://[::1]:4318/tenant"),
}
BAD: dict[str, tuple[str, ...]] = {
    "port": ("-1", "65536", "http", "", "8e3"),
    "max_sessions": ("0", "256", "many"),
    "capacity_policy": ("parks", "Evict"),
    "session_timelines": ("0", "17"),
    "max_parked": ("0", "1025"),
    "session_idle_time": ("-1", "1.5"),
    "kv_memory": ("-1", "2X", "1.5.G", "M"),
    "body_limit": ("10", "5G"),
    "ctx_size": ("-1", "99999999"),
    "scratch_reuse": ("maybe",),
    "history": ("", "echo"),
    "keepalive_interval": ("0", "nan", "inf", "x"),
    "log_format": ("xml",),
    "otel_endpoint": ("localhost:4318", "http://", "grpc://a:4317", "http://a b", "http://a/?x=1", "a.example"),
    "gpu_layers": ("-2",),
    "kv_type": ("", "Q8_0", "q4_0", "f32", "bf16"),
    "oversize": ("", "yes"),
    "allowed_origins": (
        "localhost", "localhost:3000", "http://localhost:*", "http://*.example", "http://a.example/app",
        "http://a.example:80", "https://a.example:443/", "http://ü.example", "http://", "http://me@a.example",
    ),
    "model": ("a\nb",),
}  # fmt: skip
SETTABLE = [option for option in OPTIONS if option.name != "config"]


def names(option: Option) -> str:
    return option.name


def test_every_option_is_tried_here() -> None:
    assert {option.name for option in OPTIONS} == set(GOOD)


@pytest.mark.parametrize("option", SETTABLE, ids=names)
def test_flag_environment_and_file_agree(option: Option, tmp_path: Path) -> None:
    text, value = GOOD[option.name]
    file = tmp_path / "llmd.toml"
    file.write_text(f"{option.name} = {text!r}\n")
    assert getattr(load([option.flag, text], {}), option.name) == value
    assert getattr(load([f"{option.flag}={text}"], {}), option.name) == value
    assert getattr(load([], {option.environment: text}), option.name) == value
    assert getattr(load(["--config", str(file)], {}), option.name) == value
    assert getattr(load([], {"LLMD_CONFIG": str(file)}), option.name) == value


def test_flags_win_over_environment_over_file(tmp_path: Path) -> None:
    file = tmp_path / "llmd.toml"
    file.write_text("port = 1\nctx-size = 11\nthreads = 21\n")
    environment = {"LLMD_PORT": "2", "LLMD_CTX_SIZE": "12", "LLMD_CONFIG": str(file)}
    loaded = load(["--port", "3"], environment)
    assert (loaded.port, loaded.ctx_size, loaded.threads, loaded.max_sessions) == (3, 12, 21, 8)


def test_toml_has_its_own_types(tmp_path: Path) -> None:
    file = tmp_path / "llmd.toml"
    file.write_text('scratch_reuse = false\nallowed_hosts = ["a", "b"]\nshutdown_timeout = 1.5\nport = 0\n')
    loaded = load(["--config", str(file)], {})
    assert (loaded.scratch_reuse, loaded.allowed_hosts, loaded.shutdown_timeout) == (False, ("a", "b"), 1.5)


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in BAD.items() for text in texts])
def test_bad_values_name_option_value_and_range(name: str, text: str) -> None:
    option = next(option for option in OPTIONS if option.name == name)
    with pytest.raises(ConfigError) as caught:
        load([f"{option.flag}={text}"], {})
    assert str(caught.value) == f"{option.flag}: {text!r} is not valid; expected {option.kind.expects}"


def test_of_several_origins_the_wrong_one_is_named() -> None:
    """Otherwise the origin would never match, and no message would say why."""
    with pytest.raises(ConfigError, match=r"^LLMD_ALLOWED_ORIGINS: 'http://localhost:\*' is not valid; expected "):
        load([], {"LLMD_ALLOWED_ORIGINS": "http://a.example, http://localhost:*"})
    good = ("https://a.example/", "http://[::1]:3000", "vscode-webview://0f-1a", "app://obsidian.md", "null", "file://")
    assert load(["--allowed-origins", ",".join(good)], {}).allowed_origins == good
    assert load(["--allowed-origins", "*"], {}).allowed_origins == ("*",)


def test_bad_values_in_environment_and_file_say_where(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^LLMD_PORT: 'x'"):
        load([], {"LLMD_PORT": "x"})
    file = tmp_path / "llmd.toml"
    for text, part in (
        ("port = 70000", "port: '70000'"),
        ("prot = 1", "no option 'prot'"),
        ("port = {}", "port is a table; expected text, a number, true, false or a list of texts"),
        ("port = [1, 2]", "port is a list that has values other than text; expected text, .* or a list of texts"),
        ("allowed-hosts = [['a']]", "allowed-hosts is a list that has values other than text; expected"),
        ("allowed_hosts = ['a', 1]", "allowed_hosts is a list that has values other than text; expected"),
        ("port = 2026-01-01", "port is a date; expected"),
        ("ctx_size = 1\nctx-size = 2", "ctx_size and ctx-size are the same option"),
        ("port", "not valid TOML"),
        ("config = 'x'", "no option 'config'"),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError, match=part):
            load(["--config", str(file)], {})
    with pytest.raises(ConfigError, match="cannot read"):
        load(["--config", str(tmp_path / "none")], {})


def test_a_home_that_is_not_there() -> None:
    for flag in ("--socket", "--state-dir", "--config", "--api-key-file"):
        with pytest.raises(ConfigError, match=f"^{flag}: '~no-such-user/x' is not valid; expected a path"):
            load([flag, "~no-such-user/x"], {})


def test_slots_are_limited_together() -> None:
    with pytest.raises(ConfigError, match="limit, 256"):
        load(["--max-sessions", "255", "--scratch-sessions", "2"], {})


@pytest.mark.parametrize("arguments", [["--nonsense"], ["--port"], ["stray", "words"], ["--ctx", "1"]])
def test_a_usage_error_is_one_sentence_and_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        config_reader.load_or_exit(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("llmd: ")


def test_help_teaches_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        load(["--help"], {})
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    flat = " ".join(shown.split())
    for option in OPTIONS:
        assert f"{option.flag} {option.metavar}" in flat
        assert " ".join(option.help.split()[:4]) in flat
    assert "curl -N" in shown and "llmctl" in shown and "LLMD_CTX_SIZE" in shown


def test_a_name_that_is_none_gets_the_nearest(tmp_path: Path) -> None:
    see = "; llmd --help lists all options"
    file = tmp_path / "llmd.toml"
    file.write_text("ctx_sise = 1")
    for arguments, message in (
        (["--prot", "8001"], f"there is no option --prot (did you mean --port?){see}"),
        (["--max-session=8"], f"there is no option --max-session (did you mean --max-sessions?){see}"),
        (["--zzz"], f"there is no option --zzz{see}"),
        (["--n-gpu-layers", "9"], f"there is no option --n-gpu-layers (did you mean --gpu-layers?){see}"),
        (["-m", "a.gguf"], f"there is no option -m (did you mean --model?){see}"),
        (["-c", "4096"], f"there is no option -c (did you mean --ctx-size?){see}"),
        (["a.gguf", "-ngl", "99"], f"there is no option -ngl (did you mean --gpu-layers?){see}"),
        (["-t", "4"], f"there is no option -t (did you mean --threads?){see}"),
        (["-np=4"], f"there is no option -np (did you mean --max-sessions?){see}"),
        (["--config", str(file)], f"{file}: there is no option 'ctx_sise' (did you mean ctx_size?){see}"),
    ):
        with pytest.raises(ConfigError) as caught:
            load(arguments, {})
        assert str(caught.value) == message


def test_a_variable_that_is_no_option_is_remarked_on() -> None:
    environment = dict.fromkeys(["LLMD_PROT", "LLMD_PORT", "LLMD_JOBS", "PORT", "LLMD_ZZZ", "llmd_port"], "1")
    assert config_reader.remarks(environment) == [
        "the environment variable LLMD_PROT is ignored: llmd has no such option (did you mean LLMD_PORT?); "
        "llmd --help lists all options",
        "the environment variable LLMD_ZZZ is ignored: llmd has no such option; llmd --help lists all options",
    ]


def test_more_threads_than_processors_are_remarked_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_checks, "n_processors", lambda: 2)
    assert config_checks.remarks(load(["--threads", "2"], {})) == config_checks.remarks(load([], {})) == []
    (remark,) = config_checks.remarks(load(["--threads", "3"], {}))
    assert remark.startswith("--threads 3: this process may use only 2 processors; ")


def test_layers_on_a_gpu_that_is_not_there_are_remarked_on() -> None:
    assert gpu_remark(3, "CPU", "") == "--gpu-layers 3 has no effect: libllm was built for the CPU only"
    assert "found no device" in gpu_remark(3, "CPU", "found no device") == gpu_remark(-1, "CPU", "found no device")
    for n_layers, backend, trouble in ((-1, "CPU", ""), (0, "CPU", "x"), (3, "CUDA0 (a card)", ""), (3, "sim", "")):
        assert gpu_remark(n_layers, backend, trouble) == ""


@pytest.mark.parametrize(
    ("group", "quotas", "n"),
    [
        ("/a/b", {}, 8),
        ("/a/b", {"a/b": "max 100000"}, 8),
        ("/a/b", {"a/b": "350000 100000"}, 4),
        ("/a/b", {"a/b": "max 100000", "a": "150000 100000", ".": "800000 100000"}, 2),
        ("/a/b", {"a/b": "5000 100000"}, 1),
        ("/a/b", {"a/b": "9000000 100000"}, 8),
        ("/../b", {"../b": "100000 100000", ".": "300000 100000"}, 3),
        ("", {".": "300000 100000"}, 3),
    ],
)
def test_processors_are_those_of_affinity_and_quotas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str, quotas: dict[str, str], n: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(8)))
    mount, own = tmp_path / "mount", tmp_path / "cgroup"
    for place, quota in quotas.items():
        (mount / place).mkdir(parents=True, exist_ok=True)
        (mount / place / "cpu.max").write_text(f"{quota}\n")
    if group:
        own.write_text(f"1:cpu:/elsewhere\n0::{group}\n")
    assert config_checks.n_processors(mount, own) == n


def test_what_building_reads_is_not_remarked_on() -> None:
    build = (Path(__file__).parents[1] / "build.sh").read_text()
    read = set(re.findall(r"\bLLMD_[A-Z_]+", build)) - {"LLMD_"}
    assert len(read) > 5 and config_reader.remarks(dict.fromkeys(read, "1")) == []


@pytest.mark.parametrize("option", SETTABLE, ids=names)
def test_defaults_are_valid_as_text(option: Option) -> None:
    default: Any = option.default() if callable(option.default) else option.default
    if default in (None, (), ""):
        return
    assert option.kind.parse(option.default_text()) == default


def test_the_table_is_the_type() -> None:
    assert [option.name for option in OPTIONS] == [field.name for field in dataclasses.fields(Config)]


def test_default_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert socket_trust.default_socket() == tmp_path / "llmd" / "llmd.sock"
    assert config_table.default_state_dir() == tmp_path / "llmd"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert socket_trust.default_socket() == Path("/tmp/llmd-1000/llmd.sock")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert socket_trust.default_socket() == Path("/run/llmd/llmd.sock")
    assert config_table.default_state_dir() == Path("/var/lib/llmd")


@pytest.mark.parametrize("text", ["none", ""])
def test_no_state_directory(text: str) -> None:
    assert load(["--state-dir", text], {}).state_dir is None


# --- the model -------------------------------------------------------------------------------------------------------


def test_a_model_needs_no_flag() -> None:
    assert load(["models/a.gguf", "--port", "0"], {}).model == "models/a.gguf"
    assert load(["--port", "0", "a.gguf"], {"LLMD_MODEL": "b.gguf"}).model == "a.gguf"


def test_two_models_are_one_too_many() -> None:
    with pytest.raises(ConfigError, match=r"--model a\.gguf and b\.gguf: only one model"):
        load(["--model", "a.gguf", "b.gguf"], {})
    with pytest.raises(ConfigError, match=r"unrecognized arguments: b\.gguf"):
        load(["a.gguf", "b.gguf"], {})


def test_home_is_found_wherever_a_model_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    file = tmp_path / "llmd.toml"
    file.write_text('model = "~/a.gguf"')
    assert load(["--config", str(file)], {}).model == "/home/ann/a.gguf"
    assert load([], {"LLMD_MODEL": "~/a.gguf"}).model == "/home/ann/a.gguf"
    assert load(["--model=~/a.gguf"], {}).model == "/home/ann/a.gguf"
    assert load(["sim:dense,seed=~"], {}).model == "sim:dense,seed=~"
