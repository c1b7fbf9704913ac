"""Checks before the daemon serves requests: addresses, directories, templates. Each error names its option."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llmd.__main__ import _warn_of_host_weights, main
from llmd.engine.engine import Engine
from llmd.engine.opening import EngineOptions
from llmd.process import socket_trust
from llmd.process.listen import ListenError, Listeners, open_listeners
from llmd.process.socket_trust import UntrustedSocketError, check_socket
from tests.serving import chat, config_of
from tests.test_process import Start
from tools.tiny_models import tokenizer, writer
from tools.tiny_models.catalog import RECIPES


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    starter = Start(tmp_path)
    yield starter
    starter.close()


# --- what is said ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host_bytes", "gpu_layers", "is_told"), [(2**30, -1, True), (2**30, 12, False), (0, -1, False)]
)
def test_what_a_gpu_has_no_room_for(
    caplog: pytest.LogCaptureFixture, host_bytes: int, gpu_layers: int, is_told: bool
) -> None:
    info = SimpleNamespace(host_bytes=host_bytes, model_bytes=4 * 2**30)
    state: Any = SimpleNamespace(engine=SimpleNamespace(info=info), config=SimpleNamespace(gpu_layers=gpu_layers))
    _warn_of_host_weights(state)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == is_told and all("1.0 of 4.0 GiB of weights do not fit" in line for line in said)


# --- addresses -------------------------------------------------------------------------------------------------------


def test_a_port_is_taken_while_the_model_loads(tmp_path: Path) -> None:
    """The second daemon starts before the first has loaded its model."""
    first = open_listeners(config_of(tmp_path))
    port = first.sockets[0].getsockname()[1]
    try:
        with pytest.raises(ListenError, match=rf"port {port}: Address already in use; choose another port with --port"):
            open_listeners(config_of(tmp_path, port=port, socket=tmp_path / "other.sock"))
        with socket.create_connection(("127.0.0.1", port), timeout=30):
            pass  # clients can already connect to the first daemon
    finally:
        first.close()


@pytest.fixture
def socket_in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default socket path if XDG_RUNTIME_DIR is not set, in a directory of the test instead of /tmp."""
    path = tmp_path / "llmd-user" / "llmd.sock"
    monkeypatch.setattr(socket_trust, "_socket_in_tmp", lambda: path)
    return path


def test_a_directory_in_tmp_that_the_daemon_makes_is_trusted(tmp_path: Path, socket_in_tmp: Path) -> None:
    check_socket(socket_in_tmp)
    open_listeners(config_of(tmp_path, socket=socket_in_tmp)).close()
    check_socket(socket_in_tmp)


@pytest.mark.parametrize("whose", ["another user's", "open to all", "a link", "a file"])
def test_a_directory_in_tmp_of_somebody_else_is_refused(
    tmp_path: Path, socket_in_tmp: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    directory = socket_in_tmp.parent
    if whose == "a link":
        (tmp_path / "real").mkdir(mode=0o700)
        directory.symlink_to(tmp_path / "real")
    elif whose == "a file":
        directory.touch()
    else:
        directory.mkdir(mode=0o700)
    if whose == "open to all":
        directory.chmod(0o777)
    if whose == "another user's":
        monkeypatch.setattr(os, "geteuid", lambda: directory.stat().st_uid + 1)
    with pytest.raises(UntrustedSocketError, match=r"llmd-user is not a directory that only this user.*--socket"):
        check_socket(socket_in_tmp)
    with pytest.raises(ListenError, match="--socket"):
        open_listeners(config_of(tmp_path, socket=socket_in_tmp))
    assert whose == "a file" or list(directory.iterdir()) == []


def test_a_directory_that_somebody_chose_is_theirs_to_judge(tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    check_socket(tmp_path / "llmd.sock")


@pytest.mark.parametrize("host", ["256.0.0.1", "a" * 64, "a..b", "\udcff"])
def test_a_host_that_is_no_address(tmp_path: Path, host: str) -> None:
    with pytest.raises(ListenError, match="--host: .* is not a valid address: "):
        open_listeners(config_of(tmp_path, host=host))


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("llmd.process.listen.fcntl.flock", flock)
    with pytest.raises(ListenError, match=r"cannot lock .*llmd\.sock\.lock: No locks available"):
        open_listeners(config_of(tmp_path))


# --- the unix socket -------------------------------------------------------------------------------------------------


def opened(path: Path) -> Listeners:
    return open_listeners(config_of(path.parent, socket=path))


@pytest.mark.parametrize("mask", [0, 0o077, 0o027])
def test_socket_lock_and_directories_are_for_their_user_only(tmp_path: Path, mask: int) -> None:
    """The mode never depends on the umask, which cannot be changed for one thread only."""
    path = tmp_path / "a" / "b" / "llmd.sock"
    before = os.umask(mask)
    try:
        listeners = opened(path)
        assert os.umask(mask) == mask
    finally:
        os.umask(before)
    places = {path: 0o600, path.with_name("llmd.sock.lock"): 0o600, path.parent: 0o700, path.parents[1]: 0o700}
    assert {place: stat.S_IMODE(place.lstat().st_mode) for place in places} == places
    listeners.close()
    assert not path.exists()


def test_the_socket_is_never_open_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket's file has its final mode from its first moment on."""
    modes: list[int] = []

    class Watched(socket.socket):
        def bind(self, address: Any) -> None:
            super().bind(address)
            if self.family == socket.AF_UNIX:
                modes.append(stat.S_IMODE(os.stat(address).st_mode))

    monkeypatch.setattr(socket, "socket", Watched)
    before = os.umask(0)
    try:
        opened(tmp_path / "llmd.sock").close()
    finally:
        os.umask(before)
    assert modes == [0o600]


def test_a_dead_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "llmd.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    opened(path).close()
    assert not path.exists()


def _in_the_way(path: Path, what: str) -> None:
    if what == "file":
        path.write_text("dear diary")
    elif what == "directory":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "link to a file":
        path.with_name("diary").write_text("dear diary")
        path.symlink_to(path.with_name("diary"))
    else:
        path.symlink_to(path.with_name("nothing"))


KINDS = ("directory", "pipe", "link to a file", "link to nothing")


@pytest.mark.parametrize(
    ("what", "suffix"), [("file", ""), *((what, suffix) for what in KINDS for suffix in ("", ".lock"))]
)
def test_what_is_in_the_way_stays_and_is_named(tmp_path: Path, what: str, suffix: str) -> None:
    path = tmp_path / "llmd.sock"
    _in_the_way(Path(f"{path}{suffix}"), what)
    before = {place: place.lstat() for place in tmp_path.iterdir()}
    with pytest.raises(ListenError, match=rf"llmd\.sock{suffix}.* with --socket"):
        opened(path)
    after = {place: place.lstat() for place in tmp_path.iterdir() if place in before}
    assert {place: found.st_ino for place, found in after.items()} == {p: found.st_ino for p, found in before.items()}
    assert not (tmp_path / "nothing").exists()
    assert what != "link to a file" or (tmp_path / "diary").read_text() == "dear diary"


def test_a_socket_that_somebody_listens_on_stays(tmp_path: Path) -> None:
    """The socket has no lock of llmd, because systemd or another program opened it. A full queue does not prove that no
    program listens.
    """
    path = tmp_path / "llmd.sock"
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(str(path))
        theirs.listen(0)
        for _ in range(3):
            with pytest.raises(ListenError, match="another program listens on"):
                opened(path)
    path.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as theirs:
        theirs.bind(str(path))
        with pytest.raises(ListenError, match="another program listens on"):
            opened(path)


@pytest.mark.parametrize("suffix", ["", ".lock"])
def test_what_another_user_put_there_is_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """Another user who owns the lock file could keep the daemon from starting. Another user who owns the socket could
    impersonate the daemon.
    """
    path = tmp_path / "llmd.sock"
    opened(path).close()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    foreign, real = Path(f"{path}{suffix}").lstat().st_ino, os.geteuid()
    monkeypatch.setattr("llmd.process.listen.os.fstat", lambda fd: _owned(os.stat(fd), foreign, real + 1))
    monkeypatch.setattr(
        "llmd.process.listen.os.lstat", lambda p: _owned(os.stat(p, follow_symlinks=False), foreign, real + 1)
    )
    with pytest.raises(ListenError, match=rf"llmd\.sock{suffix} belongs to another user \(uid {real + 1}\)"):
        opened(path)
    assert path.exists()


def _owned(found: os.stat_result, inode: int, uid: int) -> os.stat_result:
    return os.stat_result([*found[:4], uid if found.st_ino == inode else found.st_uid, *found[5:]])


NOBODY_UID = 65534


def as_nobody(act: Callable[[], object]) -> int:
    """Calls `act` as another user, in a child process. Returns 0, or the number of the error."""
    child = os.fork()
    if child == 0:
        status = 255
        try:
            os.setgroups([])
            os.setgid(NOBODY_UID)
            os.setuid(NOBODY_UID)
            act()
            status = 0
        except OSError as error:
            status = error.errno or 255
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_can_neither_connect_nor_stand_in(tmp_path: Path) -> None:
    """The parent directories are open, so that only the directory and files of llmd keep other users out."""
    shared = Path(tempfile.mkdtemp(dir="/tmp"))
    shared.chmod(0o1777)
    path = shared / "own" / "llmd.sock"
    listeners = open_listeners(config_of(tmp_path, socket=path))
    try:
        listeners.sockets[1].listen()
        for mode in (0o700, 0o755):  # with 0o755, only the modes of the files protect
            path.parent.chmod(mode)
            with socket.socket(socket.AF_UNIX) as client:
                assert as_nobody(lambda: client.connect(str(path))) == errno.EACCES
            assert as_nobody(lambda: os.open(f"{path}.lock", os.O_RDONLY)) == errno.EACCES
            assert as_nobody(path.unlink) == errno.EACCES
            assert as_nobody(lambda: path.rename(path.with_name("other"))) == errno.EACCES
        squatted = shared / "squatted.sock"
        assert as_nobody(lambda: os.close(os.open(f"{squatted}.lock", os.O_CREAT | os.O_RDWR, 0o666))) == 0
        with pytest.raises(ListenError, match=r"squatted\.sock"):
            open_listeners(config_of(tmp_path, socket=squatted))
        assert as_nobody(lambda: socket.socket(socket.AF_UNIX).bind(str(shared / "dead.sock"))) == 0
        with pytest.raises(ListenError, match=r"dead\.sock belongs to another user \(uid 65534\)"):
            open_listeners(config_of(tmp_path, socket=shared / "dead.sock"))
        assert (shared / "dead.sock").exists()
    finally:
        listeners.close()
        shutil.rmtree(shared)


def test_only_our_own_socket_goes_with_us(tmp_path: Path) -> None:
    path = tmp_path / "llmd.sock"
    listeners = opened(path)
    path.unlink()
    with socket.socket(socket.AF_UNIX) as successor:
        successor.bind(str(path))
        listeners.close()
        assert path.exists()


def test_a_path_that_is_too_long_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ListenError, match="more than 107 bytes"):
        opened(tmp_path / "deeper" / ("x" * 100))
    assert list(tmp_path.iterdir()) == []


def test_a_directory_in_which_anybody_may_replace_the_socket(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for mode, warnings in ((0o1777, 0), (0o700, 0), (0o777, 1)):
        caplog.clear()
        tmp_path.chmod(mode)
        opened(tmp_path / "llmd.sock").close()
        assert len([record for record in caplog.records if "every user" in record.getMessage()]) == warnings


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(ListenError, match=r"cannot create the unix socket .*: /proc/nothing: .*--socket"):
        open_listeners(config_of(tmp_path, socket=Path("/proc/nothing/llmd.sock")))


# --- who can reach it ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "is_public"),
    [("127.0.0.1", False), ("127.0.0.2", False), ("::1", False), ("localhost", False), ("0.0.0.0", True), ("::", True)],
)
def test_which_addresses_other_machines_can_reach(tmp_path: Path, host: str, is_public: bool) -> None:
    listeners = open_listeners(config_of(tmp_path, host=host))
    try:
        assert listeners.public_addresses() == (listeners.addresses()[:1] if is_public else [])
    finally:
        listeners.close()


def test_passed_sockets_are_judged_by_their_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration names a loopback address, but systemd passes a socket for another address."""
    passed = [socket.create_server(("0.0.0.0", 0)), socket.create_server(("127.0.0.1", 0))]
    monkeypatch.setattr("llmd.process.systemd.listen_sockets", lambda: passed)
    listeners = open_listeners(config_of(tmp_path))
    assert listeners.public_addresses() == [f"http://0.0.0.0:{passed[0].getsockname()[1]}"]
    listeners.close()


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_passed_sockets_must_listen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: socket.SocketKind) -> None:
    with socket.socket(socket.AF_INET, kind) as passed:
        monkeypatch.setattr("llmd.process.systemd.listen_sockets", lambda: [passed])
        with pytest.raises(ListenError, match="LISTEN_FDS"):
            open_listeners(config_of(tmp_path))


def test_passed_sockets_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmd.process.systemd.LISTEN_FDS_START", 100_000)
    monkeypatch.setenv("LISTEN_FDS", "1000000000")
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    with pytest.raises(ListenError, match="LISTEN_FDS: cannot use a socket of systemd"):
        open_listeners(config_of(tmp_path))


# --- chat templates --------------------------------------------------------------------------------------------------


def model_with_template(directory: Path, template: str) -> str:
    words = dataclasses.replace(tokenizer.build(), chat_template=template)
    path = directory / "model.gguf"
    writer.write(path, "model", RECIPES["tiny-dense"].plan(words), words, False)
    return str(path)


@pytest.mark.parametrize(
    ("template", "why"),
    [
        (b"{% if %}", "cannot be read: Unexpected token"),
        (b"", "it is empty"),
        (b"\xff", "invalid start byte at byte 0; the file must be UTF-8 text"),
    ],
)
def test_a_template_that_cannot_be_used_is_a_usage_error(
    start: Start, tmp_path: Path, template: bytes, why: str
) -> None:
    path = tmp_path / "chat.jinja"
    path.write_bytes(template)
    status, errors = start.fails("--chat-template-file", str(path))
    last = errors.strip().splitlines()[-1]
    assert status == 2 and last.startswith("llmd: --chat-template-file") and why in last


def test_a_template_that_is_not_there_is_named_without_numbers(start: Start, tmp_path: Path) -> None:
    missing = tmp_path / "none.jinja"
    for path, why in ((missing, "No such file or directory"), (tmp_path, "Is a directory")):
        status, errors = start.fails("--chat-template-file", str(path))
        assert status == 2 and errors.splitlines()[-1] == f"llmd: --chat-template-file: cannot read {path}: {why}"


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{% if %}", "cannot be read: Unexpected token"),
        ("", "has no chat template; give one with --chat-template-file"),
        ("{% for i in range(10000000) %}{% endfor %}", "it may loop for ever"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "calls itself too deeply"),
        ("{{ 'x' * 100000000000 }}", "it may loop for ever"),
    ],
)
async def test_a_model_without_a_usable_template_is_served_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, template: str, why: str
) -> None:
    model = model_with_template(tmp_path, template)
    engine = await Engine.open(EngineOptions(model=model, n_ctx=64))
    await engine.close()
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1 and warnings[0].startswith("chat requests will be refused: ") and why in warnings[0]


async def test_a_template_of_ones_own_helps_a_model_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = model_with_template(tmp_path, "{% if %}")
    own = "{% for message in messages %}{{ message.content }}{% endfor %}"
    engine = await Engine.open(EngineOptions(model=model, n_ctx=64, chat_template=own))
    await engine.close()
    assert "chat requests" not in caplog.text


# --- models that cannot be served ------------------------------------------------------------------------------------


def refusal(start: Start, model: str) -> str:
    """Starts a daemon that must fail in time, and returns the last line, which must be a sentence."""
    status, errors = start.fails("--model", model)
    last = errors.strip().splitlines()[-1]
    assert status == 1 and last.startswith("llmd: ") and "Traceback" not in errors
    return last


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("llama3:8b", "llmd OWNER/NAME downloads a model"),
        ("none.gguf", "there is no such file"),
        ("https://example.org/model.gguf", "download the file first"),
    ],
)
def test_what_other_programs_take_is_explained(start: Start, name: str, advice: str) -> None:
    assert advice in refusal(start, name)


def test_a_file_that_is_not_there_ends_the_start_before_it_tells_an_address(start: Start, tmp_path: Path) -> None:
    status, errors = start.fails("--model", str(tmp_path / "none.gguf"))
    assert status == 1 and "No such file or directory" in errors and "listening" not in errors


def test_a_directory_is_no_model(start: Start, tmp_path: Path) -> None:
    model = model_with_template(tmp_path, tokenizer.build().chat_template)
    assert f"name a file in it, such as {model}" in refusal(start, str(tmp_path))


def test_broken_models_end_the_start_with_a_sentence(start: Start, tmp_path: Path) -> None:
    good = Path(model_with_template(tmp_path, tokenizer.build().chat_template)).read_bytes()
    broken = tmp_path / "broken.gguf"
    merges = good.index(b"tokenizer.ggml.merges")
    for content, why in (
        (good[:-1000], "it was cut off"),
        (good[:merges], "it was cut off, or is damaged"),
        (good[:8] + b"\xff" * 16 + good[24:], "it claims 18446744073709551615 tensors"),
        (good.replace(b"tokenizer.ggml.tokens", b"tokenizer.ggml.tokenz", 1), "cannot find tokenizer vocab"),
        (good.replace(b"gpt2", b"none", 1), "it has no vocabulary"),
        (b"", "it is empty"),
    ):
        broken.write_bytes(content)
        assert why in refusal(start, str(broken))


# --- models that are served all the same -----------------------------------------------------------------------------


def test_a_template_that_loops_costs_one_request(start: Start, tmp_path: Path) -> None:
    """The template loops only for a message that the check at the start does not use."""
    loop = "{% if messages[0].content == 'go' %}{% for i in range(10000000) %}{% endfor %}{% endif %}"
    process = start(
        "--model", model_with_template(tmp_path, loop + tokenizer.build().chat_template), "--ctx-size", "64"
    )
    status, answer = process.ask("POST", "/v1/chat/completions", chat("go", max_tokens=1))
    assert status == 400 and answer["error"]["code"] == "template_failed"
    assert "it may loop for ever" in answer["error"]["message"]
    assert process.ask("POST", "/v1/chat/completions", chat("hello", max_tokens=1))[0] == 200


def test_a_vocabulary_without_an_end_is_ended_by_the_context(start: Start, tmp_path: Path) -> None:
    path = Path(model_with_template(tmp_path, tokenizer.build().chat_template))
    content = path.read_bytes()
    for key in (b"bos", b"eos", b"eot", b"padding"):
        at = content.index(b"tokenizer.ggml." + key + b"_token_id") + len(key) + 24
        assert content[at : at + 4] == b"\x04\0\0\0"
        content = content[: at + 4] + b"\xf0\xff\xff\xff" + content[at + 8 :]
    for word in (b"<|im_end|>", b"<|endoftext|>"):
        content = content.replace(word, word.replace(b"e", b"X"))
    path.write_bytes(content)
    process = start("--model", str(path), "--ctx-size", "64")
    status, answer = process.ask("POST", "/v1/chat/completions", chat("hello"))
    assert status == 200 and answer["choices"][0]["finish_reason"] in ("length", "stop")


# --- who is to blame -------------------------------------------------------------------------------------------------


def test_a_state_directory_that_cannot_be_written_ends_the_start_before_the_model_loads(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The test replaces os.access, because root can write to every directory."""
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path / "state")
    monkeypatch.setattr("llmd.process.logs.configure", lambda *_: None)
    monkeypatch.setattr("sys.argv", start.arguments()[2:])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    assert capsys.readouterr().err == f"llmd: --state-dir: this user cannot write to {tmp_path / 'state'}; " + OTHER
    assert not (tmp_path / "run").exists(), "nothing else was begun"


OTHER = "choose another directory, or --state-dir none to keep sessions in memory only\n"


def test_a_state_directory_that_is_a_file_is_said_to_be_one(start: Start, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    for path in (tmp_path / "state", tmp_path / "state" / "deeper"):
        status, errors = start.fails("--state-dir", str(path))
        why = f"{tmp_path / 'state'} exists and is not a directory"
        assert (status, errors) == (1, f"llmd: --state-dir: cannot create {path}: {why}; {OTHER}")


def test_a_variable_that_is_no_option_is_logged(start: Start, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")  # so that it ends at once
    _, errors = start.fails(LLMD_PROT="8001")
    line = json.loads(errors.splitlines()[0])
    assert (line["level"], line["message"].split(" is ")[0]) == ("warning", "the environment variable LLMD_PROT")


def test_what_is_probably_not_meant_is_logged(start: Start, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")  # so that it ends at once
    _, errors = start.fails("--threads", "1024")
    line = json.loads(errors.splitlines()[0])
    assert (line["level"], line["message"].split(":")[0]) == ("warning", "--threads 1024")


def test_a_user_without_a_home_has_no_directory_called_tilde(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    clean = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_STATE_HOME")}
    program = "import os, sys; os.geteuid = lambda: 1; sys.argv[0] = 'llmd'\n" + NOBODY
    shown = subprocess.run(
        [sys.executable, "-c", program, "--socket", "s"], capture_output=True, text=True, env=clean, check=False
    )
    assert (shown.returncode, shown.stderr) == (2, f"llmd: --state-dir: this user has no home directory; {OTHER}")
    assert list(tmp_path.iterdir()) == []


NOBODY = """
import pwd
def nobody(uid): raise KeyError(uid)
pwd.getpwuid = nobody
from llmd.__main__ import main
main()
"""


def test_a_state_directory_in_use_is_not_blamed_on_the_model(start: Start, tmp_path: Path) -> None:
    start()
    status, errors = start.fails("--socket", str(tmp_path / "other" / "llmd.sock"))
    last = errors.strip().splitlines()[-1]
    assert status == 1 and last.startswith("llmd: --state-dir: state directory ") and "--model" not in last


def test_a_context_beyond_the_model_is_blamed_on_its_option(start: Start, tmp_path: Path) -> None:
    model = model_with_template(tmp_path, tokenizer.build().chat_template)
    status, errors = start.fails("--model", model, "--ctx-size", "100000")
    last = errors.strip().splitlines()[-1]
    assert status == 1 and last.startswith("llmd: --ctx-size is 100000, but this model") and "--model" not in last
