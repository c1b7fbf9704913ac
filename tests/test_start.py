"""What is found out before the daemon serves: addresses, directories, templates. Each complaint names its option."""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmd import options
from llmd.__main__ import main
from llmd.engine import Engine
from llmd.engine_open import EngineOptions
from llmd.listen import ListenError, open_listeners
from llmd.options import UntrustedSocketError, check_socket
from tests.serving import config_of
from tests.test_process import Start
from tools.tiny_models import tokenizer, writer
from tools.tiny_models.catalog import RECIPES


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    starter = Start(tmp_path)
    yield starter
    starter.close()


# --- addresses -------------------------------------------------------------------------------------------------------


def test_a_port_is_taken_while_the_model_loads(tmp_path: Path) -> None:
    """The second daemon comes before the first has a model to serve."""
    first = open_listeners(config_of(tmp_path))
    port = first.sockets[0].getsockname()[1]
    try:
        with pytest.raises(ListenError, match=rf"port {port}: Address already in use; choose another with --port"):
            open_listeners(config_of(tmp_path, port=port, socket=tmp_path / "other.sock"))
        with socket.create_connection(("127.0.0.1", port), timeout=30):
            pass  # clients wait for the first
    finally:
        first.close()


@pytest.fixture
def socket_in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default without XDG_RUNTIME_DIR, in a /tmp of the test's own."""
    path = tmp_path / "llmd-user" / "llmd.sock"
    monkeypatch.setattr(options, "_socket_in_tmp", lambda: path)
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


# --- chat templates --------------------------------------------------------------------------------------------------


def model_with_template(directory: Path, template: str) -> str:
    words = dataclasses.replace(tokenizer.build(), chat_template=template)
    path = directory / "model.gguf"
    writer.write(path, "model", RECIPES["tiny-dense"].plan(words), words, False)
    return str(path)


@pytest.mark.parametrize(
    ("template", "why"),
    [(b"{% if %}", "cannot be read: Unexpected token"), (b"", "it is empty"), (b"\xff", "'utf-8' codec can't decode")],
)
def test_a_template_that_cannot_be_used_is_a_usage_error(
    start: Start, tmp_path: Path, template: bytes, why: str
) -> None:
    path = tmp_path / "chat.jinja"
    path.write_bytes(template)
    status, errors = start.fails("--chat-template-file", str(path))
    last = errors.strip().splitlines()[-1]
    assert status == 2 and last.startswith("llmd: --chat-template-file") and why in last


@pytest.mark.parametrize(
    ("template", "why"), [("{% if %}", "cannot be read: Unexpected token"), ("", "has no chat template")]
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


# --- who is to blame -------------------------------------------------------------------------------------------------


def test_a_state_directory_that_cannot_be_written_ends_the_start_before_the_model_loads(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Asked of the system, and not tried: root may write anywhere."""
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path / "state")
    monkeypatch.setattr("llmd.logs.configure", lambda *_: None)
    monkeypatch.setattr("sys.argv", start.arguments()[2:])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    assert capsys.readouterr().err == f"llmd: --state-dir: {tmp_path / 'state'} cannot be written to by this user\n"
    assert not (tmp_path / "run").exists(), "nothing else was begun"


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
