"""Sessions saved under a name: lists, permission to remove, the limit on their number, and their answers."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmd.answers.database import SAVED, Database, Key
from llmd.answers.memory import Answer, StoredSession
from llmd.answers.stored import SavedAnswers
from llmd.engine import native
from llmd.engine.wire import Reply
from tests.conversation import Conversation, digests_of
from tests.serving import SETTLE_S, Daemon, Json, config_of, serving

FINGERPRINT = "0123456789abcdef" * 2
N_VOCAB = 100


async def saved(daemon: Daemon, query: str = "", **kwargs: Any) -> list[Json]:
    answer = await daemon.ask("GET", f"/v1/saved{query}", **kwargs)
    assert answer.status == 200, answer.body
    return list(answer.json["data"])


async def save(daemon: Daemon, session: str, label: str) -> None:
    answer = await daemon.ask("POST", f"/v1/sessions/{session}/save", {"name": label})
    assert answer.status == 200, answer.body


async def test_list_and_remove(tmp_path: Path) -> None:
    async with serving(config_of(tmp_path, model="sim:hybrid")) as daemon:
        assert await saved(daemon) == []
        await Conversation(daemon, "a").ask("what is to be kept")
        await save(daemon, "a", "first")
        await save(daemon, "a", "second")
        await save(daemon, "a", "first")
        found = await saved(daemon)
        assert sorted(one["name"] for one in found) == ["first", "second"]
        assert all(one["tokens"] > 0 and one["state_bytes"] > 0 and one["saved_ms"] > 0 for one in found)
        assert (await daemon.ask("DELETE", "/v1/saved/first")).json["deleted"] is True
        gone = await daemon.ask("DELETE", "/v1/saved/first")
        assert (gone.status, gone.error["code"]) == (404, "snapshot_not_found")
        assert (await daemon.ask("POST", "/v1/sessions/new/load", {"name": "first"})).status == 404
        assert [one["name"] for one in await saved(daemon)] == ["second"]
    assert len(list((tmp_path / "state").rglob("saved/*"))) == 2  # session, state


async def test_a_client_that_goes_while_it_removes_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(config_of(tmp_path, model="sim:hybrid")) as daemon:
        await Conversation(daemon, "a").ask("what is to be kept")
        await save(daemon, "a", "label")
        ask, removed, may_end = daemon.state.engine.ask, asyncio.Event(), asyncio.Event()

        async def ask_slowly(*fields: Any) -> Reply:
            reply = await ask(*fields)
            removed.set()
            await may_end.wait()
            return reply

        monkeypatch.setattr(daemon.state.engine, "ask", ask_slowly)
        asking = asyncio.create_task(daemon.ask("DELETE", "/v1/saved/label"))
        async with asyncio.timeout(SETTLE_S):
            await removed.wait()
        asking.cancel()
        await asyncio.wait([asking])
        for _ in range(10):  # then the daemon knows that it has gone
            assert (await daemon.ask("GET", "/health")).status == 200
        may_end.set()
        async with asyncio.timeout(SETTLE_S):
            while list((tmp_path / "state").rglob("saved/*")):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_what_cannot_be_removed_keeps_its_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(config_of(tmp_path, model="sim:hybrid")) as daemon:
        await Conversation(daemon, "a").ask("what is to be kept")
        await save(daemon, "a", "label")

        async def failing(*_: object) -> Reply:
            return Reply(0, native.Status.IO, 0, 0, errno.ENOSPC)

        monkeypatch.setattr(daemon.state.engine, "ask", failing)
        error = (await daemon.ask("DELETE", "/v1/saved/label")).error
        assert error["code"] == "io_error"
        assert "No space left on device" in error["message"]
        assert daemon.state.loaded.saved_answers is not None
        assert daemon.state.loaded.saved_answers.read(0, "label") is not None


async def left_in(daemon: Daemon, method: str, path: str, begun: asyncio.Event) -> None:
    """Sends a request, and resets its connection once it has begun."""
    with socket.create_connection(("127.0.0.1", int(daemon.url.rpartition(":")[2]))) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        body = '{"name":"label"}'
        client.sendall(
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        await begun.wait()


async def test_a_client_that_goes_while_it_saves_or_loads_leaves_nothing_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the session would be loaded without the tokens of its answers."""
    async with serving(config_of(tmp_path, model="sim:hybrid")) as daemon:
        engine, talk = daemon.state.engine, Conversation(daemon, "a")
        await talk.ask("what is to be kept")
        begun, may_end = asyncio.Event(), asyncio.Event()

        ask = engine.ask

        async def ask_slowly(*fields: Any) -> Reply:
            reply = await ask(*fields)
            begun.set()
            await may_end.wait()
            return reply

        def is_there(path: str) -> bool:
            if path.endswith("load"):
                return daemon.state.answers.past(0, "b", digests_of(talk.messages)) is not None
            return (
                daemon.state.loaded.saved_answers is not None
                and daemon.state.loaded.saved_answers.read(0, "label") is not None
            )

        monkeypatch.setattr(engine, "ask", ask_slowly)
        for path in ("/v1/sessions/a/save", "/v1/sessions/b/load"):
            begun.clear()
            may_end.clear()
            async with asyncio.timeout(SETTLE_S):
                await left_in(daemon, "POST", path, begun)
            for _ in range(10):  # then the daemon knows that it has gone
                assert (await daemon.ask("GET", "/health")).status == 200
            may_end.set()
            async with asyncio.timeout(SETTLE_S):
                while not is_there(path):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1/sessions/a/save"), ("POST", "/v1/sessions/b/load"), ("DELETE", "/v1/saved/label")],
)
async def test_what_fails_after_its_client_has_gone_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, method: str, path: str
) -> None:
    async with serving(config_of(tmp_path, model="sim:hybrid")) as daemon:
        await Conversation(daemon, "a").ask("what is to be kept")
        begun, may_end, has_failed = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def fail_slowly(*_: Any) -> Reply:
            begun.set()
            await may_end.wait()
            has_failed.set()
            raise sqlite3.OperationalError("disk I/O error")

        monkeypatch.setattr(daemon.state.engine, "ask", fail_slowly)
        async with asyncio.timeout(SETTLE_S):
            await left_in(daemon, method, path, begun)
        for _ in range(10):  # then the daemon knows that it has gone
            assert (await daemon.ask("GET", "/health")).status == 200
        may_end.set()
        async with asyncio.timeout(SETTLE_S):
            await has_failed.wait()
        gc.collect()  # logs a task whose error was not retrieved
        await asyncio.sleep(0)
        [record] = [
            record for record in caplog.records if record.exc_info and "disk I/O error" in str(record.exc_info[1])
        ]
    assert (record.name, record.getMessage()) == (
        "llmd.http",
        "a command on a session failed after its client had disconnected",
    )


async def test_owners_see_their_own(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("first-key first\nsecond-key second\nboss-key boss admin\n")
    keys.chmod(0o600)
    first, second, boss = ({"Authorization": f"Bearer {name}-key"} for name in ("first", "second", "boss"))
    async with serving(config_of(tmp_path, model="sim:hybrid", api_key_file=keys)) as daemon:
        body: Json = {"messages": [{"role": "user", "content": "hello"}], "session_id": "a", "max_tokens": 4}
        assert (await daemon.ask("POST", "/v1/chat/completions", body, headers=first)).status == 200
        assert (await daemon.ask("POST", "/v1/sessions/a/save", {"name": "mine"}, headers=first)).status == 200
        owner = (await saved(daemon, headers=first))[0]["owner"]
        assert await saved(daemon, headers=second) == []
        assert (await daemon.ask("DELETE", "/v1/saved/mine", headers=second)).status == 404
        assert (await daemon.ask("DELETE", f"/v1/saved/mine?owner={owner}", headers=second)).status == 403
        assert len(await saved(daemon, headers=boss)) == 1 and await saved(daemon, "?owner=0", headers=boss) == []
        assert (await daemon.ask("DELETE", f"/v1/saved/mine?owner={owner}", headers=boss)).status == 200


async def test_no_more_than_may_be(tmp_path: Path) -> None:
    async with serving(config_of(tmp_path, model="sim:hybrid")) as daemon:
        await Conversation(daemon, "a").ask("hello")
        for number in range(native.SAVED_PER_OWNER_MAX):
            await save(daemon, "a", f"label-{number}")
        refused = await daemon.ask("POST", "/v1/sessions/a/save", {"name": "one-more"})
        assert (refused.status, refused.error["code"]) == (429, "saved_full")
        assert str(native.SAVED_PER_OWNER_MAX) in refused.error["message"]
        await save(daemon, "a", "label-0")


async def test_answers_come_along(tmp_path: Path) -> None:
    async with serving(config_of(tmp_path, model="sim:hybrid")) as daemon:
        talk = Conversation(daemon, "a")
        await talk.ask("what is to be kept")
        await save(daemon, "a", "label")
        await daemon.ask("DELETE", "/v1/sessions/a")
    async with serving(config_of(tmp_path, model="sim:hybrid")) as daemon:
        assert (await daemon.ask("POST", "/v1/sessions/b/load", {"name": "label"})).status == 200
        assert daemon.state.answers.past(0, "b", digests_of(talk.messages)) is not None
        talk.daemon, talk.session = daemon, "b"
        await talk.ask("and then?")
        assert talk.report["session_reset_reason"] == "restored"


async def test_a_session_is_only_replaced_when_that_is_asked_for(tmp_path: Path) -> None:
    """`load` needs "replace": true, as `fork` does."""
    async with serving(config_of(tmp_path, model="sim:hybrid")) as daemon:
        await Conversation(daemon, "a").ask("what is to be kept")
        await save(daemon, "a", "label")
        await Conversation(daemon, "b").ask("what is not to be lost")
        before = (await daemon.ask("GET", "/v1/sessions/b")).json
        refused = await daemon.ask("POST", "/v1/sessions/b/load", {"name": "label"})
        assert (refused.status, refused.error["code"]) == (409, "session_exists")
        assert "--replace" in refused.error["message"]
        assert (await daemon.ask("GET", "/v1/sessions/b")).json["tokens"] == before["tokens"]
        loaded = await daemon.ask("POST", "/v1/sessions/b/load", {"name": "label", "replace": True})
        assert loaded.status == 200
        assert loaded.json["tokens"] == (await daemon.ask("GET", "/v1/sessions/a")).json["tokens"]


async def test_a_database_that_cannot_be_read_costs_the_answers_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(self: Database, key: Key) -> bytes | None:
        raise sqlite3.OperationalError("disk I/O error")

    async with serving(config_of(tmp_path, model="sim:hybrid")) as daemon:
        await Conversation(daemon, "a").ask("what is to be kept")
        await save(daemon, "a", "label")
        monkeypatch.setattr(Database, "row", refuse)
        assert (await daemon.ask("POST", "/v1/sessions/b/load", {"name": "label"})).status == 200
    assert "ignored the stored answers of a saved session" in caplog.text


# --- the files -------------------------------------------------------------------------------------------------------


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    found = Database(tmp_path / "answers.sqlite3", FINGERPRINT)
    yield found
    found.close()


def saved_session(token: int = 1) -> StoredSession:
    return StoredSession("resident", {b"d" * 16: Answer(token.to_bytes(4, "little"), "rest")})


async def test_what_is_written_is_read(database: Database) -> None:
    answers = SavedAnswers(database, N_VOCAB)
    await answers.write(7, "label", saved_session())
    assert answers.read(7, "label") == saved_session()
    assert answers.read(8, "label") is None and answers.read(7, "other") is None
    await answers.write(7, "label", None)
    assert answers.read(7, "label") is None


async def test_what_no_daemon_saves_is_refused(database: Database) -> None:
    answers = SavedAnswers(database, N_VOCAB)
    await answers.write(7, "label", saved_session(token=N_VOCAB))
    assert answers.read(7, "label") is None
    database.write([((SAVED, 7, "label", b""), "nonsense")])
    assert answers.read(7, "label") is None


async def test_a_sweep_leaves_what_has_a_label(database: Database) -> None:
    answers = SavedAnswers(database, N_VOCAB)
    for label in ("kept", "gone"):
        await answers.write(7, label, saved_session())
    answers.sweep([(7, "kept")])
    assert answers.read(7, "kept") is not None and answers.read(7, "gone") is None
