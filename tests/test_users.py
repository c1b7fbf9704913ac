"""Without keys, each user of this machine is an owner: which addresses need keys, and who sees which sessions."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from llmd.core import limits
from llmd.http.peer_user import PeerUsers, UnknownUserError
from tests.conftest import Serve
from tests.serving import Answer, Daemon, chat
from tests.test_connections import HEALTH, connected, read_answer, told
from tests.test_peer_user import ALICE, BOB, needs_root
from tests.test_process import Start


def test_an_address_that_other_machines_reach_needs_keys_or_consent(tmp_path: Path) -> None:
    start, keys = Start(tmp_path), tmp_path / "keys"
    keys.write_text("0123456789abcdef ann\n")
    keys.chmod(0o600)
    try:
        status, errors = start.fails("--host", "0.0.0.0")
        assert status == 2 and "Traceback" not in errors
        assert all(part in errors for part in ("http://0.0.0.0:", "--api-key-file", "--open on", "127.0.0.1"))
        for arguments in (("--open", "on"), ("--api-key-file", str(keys))):
            process = start("--host", "0.0.0.0", *arguments)
            process.popen.terminate()
            assert process.popen.wait(60) == 0
    finally:
        start.close()


# --- who sees what ---------------------------------------------------------------------------------------------------


class Users:
    """Clients of a daemon, each of which runs as another user."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self._clients: dict[int, aiohttp.ClientSession] = {}

    async def ask(self, user: int | None, method: str, path: str, body: Any = None) -> Answer:
        """Sends a request as this user. None stands for the user that the daemon runs as."""
        if user is None:
            return await self.daemon.ask(method, path, body)
        if user not in self._clients:
            connector = aiohttp.TCPConnector(socket_factory=_sockets_of(user))
            self._clients[user] = aiohttp.ClientSession(connector=connector)
        async with self._clients[user].request(method, self.daemon.url + path, json=body) as response:
            return Answer(response.status, dict(response.headers), await response.read())

    async def close(self) -> None:
        for one in self._clients.values():
            await one.close()


def _sockets_of(user: int) -> Callable[[Any], socket.socket]:
    def make(address: Any) -> socket.socket:
        made = socket.socket(*address[:3])
        made.setblocking(False)
        os.fchown(made.fileno(), user, -1)
        return made

    return make


@pytest.fixture
async def asking(serve: Serve) -> AsyncIterator[Users]:
    found = Users(await serve())
    yield found
    await found.close()


LONG = "alpha beta gamma delta " * 40


def names(answer: Answer) -> list[tuple[str, str]]:
    return sorted((session["id"], session["owner_name"]) for session in answer.json["data"])


@needs_root
async def test_users_neither_see_nor_share_sessions(asking: Users) -> None:
    for user in (ALICE, BOB):
        found = await asking.ask(user, "POST", "/v1/chat/completions", chat(LONG, session_id="same"))
        assert found.json["session"]["session_reset_reason"] == "new"
        assert found.json["session"]["reused_prompt_tokens"] == 0
    await asking.ask(ALICE, "POST", "/v1/chat/completions", chat("hi", session_id="alices"))
    assert names(await asking.ask(BOB, "GET", "/v1/sessions")) == [("same", f"uid-{BOB}")]
    assert (await asking.ask(BOB, "GET", "/v1/sessions/alices")).status == 404
    assert (await asking.ask(BOB, "GET", f"/v1/sessions/alices?owner={ALICE}")).status == 404
    assert (await asking.ask(BOB, "GET", "/v1/sessions/alices/explain")).status == 404
    assert (await asking.ask(BOB, "DELETE", "/v1/sessions/alices")).json["deleted"] is False
    slots = (await asking.ask(BOB, "GET", "/slots")).body.decode()
    assert "alices" not in slots
    assert names(await asking.ask(ALICE, "GET", "/v1/sessions")) == [
        ("alices", f"uid-{ALICE}"), ("same", f"uid-{ALICE}"),
    ]  # fmt: skip


@needs_root
async def test_responses_of_another_user_are_not_there(asking: Users) -> None:
    made = await asking.ask(ALICE, "POST", "/v1/responses", {"input": "hello", "max_output_tokens": 16})
    path = f"/v1/responses/{made.json['id']}"
    assert [(await asking.ask(user, "GET", path)).status for user in (ALICE, BOB, None)] == [200, 404, 404]


@needs_root
async def test_the_daemon_s_own_user_and_the_unix_socket(asking: Users) -> None:
    """llmctl lists sessions that curl made, and the other way round. llmctl also sees sessions of other users."""
    daemon = asking.daemon
    await asking.ask(None, "POST", "/v1/chat/completions", chat("hi", session_id="curl"))
    await daemon.ask("POST", "/v1/chat/completions", chat("hi", session_id="llmctl"), local=True)
    await asking.ask(ALICE, "POST", "/v1/chat/completions", chat("hi", session_id="alices"))
    own = [("curl", "local"), ("llmctl", "local")]
    assert names(await asking.ask(None, "GET", "/v1/sessions")) == own
    assert names(await daemon.ask("GET", "/v1/sessions", local=True)) == [("alices", f"uid-{ALICE}"), *own]
    shown = await daemon.ask("GET", f"/v1/sessions/alices?owner=uid-{ALICE}", local=True)
    assert shown.json["owner"] == ALICE
    assert (await asking.ask(None, "DELETE", "/v1/sessions/alices")).json["deleted"] is False
    assert (await daemon.ask("DELETE", "/v1/sessions/alices", local=True)).json["deleted"] is True


@needs_root
async def test_one_user_has_everything_until_another_one_works(asking: Users) -> None:
    """A user who sends no body, such as a monitor, gets no share of the limits."""
    state = asking.daemon.state
    await asking.ask(None, "POST", "/v1/chat/completions", chat())
    for path in ("/metrics", "/v1/sessions"):
        assert (await asking.ask(ALICE, "GET", path)).status == 200
    await asking.daemon.ask("POST", "/v1/chat/completions", chat(), local=True)
    assert state.n_owners == state.admission.n_owners == 1
    for _ in range(2):
        await asking.ask(ALICE, "POST", "/v1/chat/completions", chat())
        assert state.n_owners == state.admission.n_owners == 2


@needs_root
async def test_the_kernel_is_asked_once_for_each_connection(asking: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = PeerUsers.user_of

    def note(self: PeerUsers, connection: socket.socket) -> int | None:
        asked.append(connection)
        return real(self, connection)

    monkeypatch.setattr(PeerUsers, "user_of", note)
    for _ in range(3):
        assert (await asking.ask(ALICE, "GET", "/v1/models")).status == 200
    await asking.daemon.ask("GET", "/v1/models", local=True)
    assert len(asked) == 1


@needs_root
async def test_connections_whose_user_is_not_known_are_one_owner(
    asking: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PeerUsers, "user_of", lambda *_: None)
    for user in (ALICE, BOB):
        await asking.ask(user, "POST", "/v1/chat/completions", chat(f"I am {user}", session_id="same"))
    monkeypatch.undo()
    assert names(await asking.daemon.ask("GET", "/v1/sessions", local=True)) == [("same", "anybody")]
    assert names(await asking.ask(None, "GET", "/v1/sessions")) == []


async def test_a_connection_whose_user_may_be_of_this_machine_is_refused(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    def miss(_: PeerUsers, connection: socket.socket) -> int | None:
        raise UnknownUserError

    daemon = await serve()
    with monkeypatch.context() as patched:
        patched.setattr(PeerUsers, "user_of", miss)
        refused = await daemon.ask("POST", "/v1/chat/completions", chat("hi", session_id="mine"))
        assert refused.status == 503 and refused.error["code"] == "unknown_user"
        assert refused.headers["Retry-After"] == str(limits.RETRY_AFTER_S)
        assert (await daemon.ask("GET", "/v1/sessions", local=True)).json["data"] == []
    assert (await daemon.ask("GET", "/health")).status == 200


async def test_a_refused_connection_closes_no_other(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool is full, and an idle connection could be closed to make room."""

    def miss(_: PeerUsers, connection: socket.socket) -> int | None:
        raise UnknownUserError

    monkeypatch.setattr(limits, "CONNECTIONS_MAX", 1)
    monkeypatch.setattr(limits, "CONNECTIONS_LOCAL_MAX", 1)
    monkeypatch.setattr(limits, "CONNECTION_IDLE_SPARED_S", 0.0)
    daemon = await serve()
    async with connected(daemon) as (reader, writer):
        with monkeypatch.context() as patched:
            patched.setattr(PeerUsers, "user_of", miss)
            assert (await told(daemon, HEALTH)).error["code"] == "unknown_user"
        writer.write(HEALTH)
        assert (await read_answer(reader)).status == 200


async def test_sessions_from_before_are_the_own_user_s(serve: Serve) -> None:
    """In older versions, all sessions that were made without a key belonged to owner 0."""
    daemon = await serve()
    await daemon.chat(session_id="a")
    for is_local in (False, True):
        assert (await daemon.ask("GET", "/v1/sessions/a", local=is_local)).json["owner"] == 0
