"""Stored responses are limited, and no owner sees those of another owner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llmd.answers.database import RESPONSE, Database
from llmd.core import limits
from llmd.core.generation_request import PlainMessage, PlainToolCall
from llmd.dialects.responses import store as response_store
from llmd.dialects.responses.store import ResponseStore, StoredResponse

MODEL = "0123456789abcdef" * 2
ANSWER = {"type": "message", "id": "msg", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}


def response(id: str, owner: int = 1, text: str = "", **fields: object) -> StoredResponse:
    body = json.dumps({"id": id, "output": [{**ANSWER, "id": f"msg_{id}"}]}).encode()
    return StoredResponse(id, owner, "s", body, [b'{"id":"msg_in"}'], [PlainMessage("user", text)])


def there(store: ResponseStore, owner: int, *ids: str) -> list[str]:
    return [id for id in ids if store.find(owner, id) is not None]


def test_a_response_is_found_by_its_owner_alone() -> None:
    store = ResponseStore()
    store.keep(response("r"), 2)
    found = store.find(1, "r")
    assert found is not None and found.conversation() == [PlainMessage("user"), PlainMessage("assistant", "a")]
    assert store.find(2, "r") is None and store.find(1, "msg_r") is None
    assert json.loads(store.find_item(1, "msg_r") or b"") == {**ANSWER, "id": "msg_r"}
    assert store.find_item(2, "msg_r") is None and store.find_item(1, "msg_in") is None
    assert not store.drop(2, "r") and store.find(1, "r") is found


def test_what_was_dropped_leaves_nothing() -> None:
    store = ResponseStore()
    store.keep(response("r"), 1)
    assert store.drop(1, "r") and not store.drop(1, "r")
    assert (store.n_responses, store.n_bytes, store.find_item(1, "msg_r")) == (0, 0, None)


def test_the_least_recently_used_go_first() -> None:
    store = ResponseStore(responses_max=3)
    for id in "abc":
        store.keep(response(id), 1)
    found = store.find(1, "a")
    assert found is not None
    store.use(found)
    store.keep(response("d"), 1)
    assert there(store, 1, *"abcd") == ["a", "c", "d"] and store.n_responses == 3
    assert store.find_item(1, "msg_b") is None


def test_bytes_are_bounded() -> None:
    one = response("x", text="x" * 5000).n_bytes
    store = ResponseStore(bytes_max=3 * one)
    for n in range(20):
        store.keep(response(str(n), text="x" * 5000), 1)
        assert store.n_bytes <= 3 * one
    before = store.n_responses, store.n_bytes
    assert store.n_responses in (2, 3) and store.find(1, "19") is not None
    store.keep(response("large", text="x" * 20_000), 1)
    assert store.find(1, "large") is None, "it would take all there is, and more"
    assert (store.n_responses, store.n_bytes) == before and store.find(1, "19") is not None


def test_all_that_is_held_counts() -> None:
    text = "é" * 1000
    call = PlainToolCall("f", text)
    bare = response("r")
    for message in (
        PlainMessage("user", text), PlainMessage("assistant", reasoning=text), PlainMessage("assistant", "", (call,)),
    ):  # fmt: skip
        longer = StoredResponse("r", 1, "s", bare.body, bare.input, [message])
        assert longer.n_bytes >= bare.n_bytes + 2000
    assert StoredResponse("r", 1, "s", bare.body, [b"x" * 100], []).n_bytes > 100 + limits.RESPONSE_BYTES_OVERHEAD


def test_one_owner_cannot_drive_out_the_others() -> None:
    store = ResponseStore(responses_max=12)
    for id in "ab":
        store.keep(response(id, owner=1), 2)
    for n in range(50):
        store.keep(response(str(n), owner=2), 2)
    assert there(store, 1, *"ab") == ["a", "b"] and store.n_responses <= 12


def test_where_owners_hold_too_much_together_the_greediest_gives() -> None:
    """Shares of owners can exceed the whole limit together if a key was added after responses were stored."""
    store = ResponseStore(responses_max=4)
    for n in range(3):
        store.keep(response(f"1{n}", owner=1), 1)
    for n in range(2):
        store.keep(response(f"2{n}", owner=2), 1)
    assert there(store, 1, "10", "11", "12") == ["11", "12"] and there(store, 2, "20", "21") == ["20", "21"]


def test_what_is_used_when_it_has_gone_stays_gone() -> None:
    store = ResponseStore()
    gone = response("r")
    store.keep(gone, 1)
    store.drop(1, "r")
    store.use(gone)
    store.keep(response("r"), 1)
    store.use(gone)
    assert store.n_responses == 1


@pytest.mark.parametrize("n_owners", [1, 3])
def test_owners_come_and_go(n_owners: int) -> None:
    store = ResponseStore(responses_max=30)
    for n in range(100):
        store.keep(response(str(n), owner=n % n_owners), n_owners)
    for n in range(100):
        store.drop(n % n_owners, str(n))
    assert (store.n_responses, store.n_bytes) == (0, 0)


# --- on the disk -----------------------------------------------------------------------------------------------------


def restored(path: Path, n_owners: int = 1, **bounds: int) -> ResponseStore:
    store, database = ResponseStore(**bounds), Database(path, MODEL)
    response_store.restore(store, database, n_owners)
    database.close()
    return store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "answers.sqlite3"


async def kept(path: Path, *responses: StoredResponse, n_owners: int = 1) -> ResponseStore:
    store, database = ResponseStore(), Database(path, MODEL)
    response_store.follow(store, database)
    for one in responses:
        store.keep(one, n_owners)
    await database.flushed()
    database.close()
    return store


async def test_what_is_written_is_read(path: Path) -> None:
    call = PlainToolCall("f", "{}", "c1")
    said = [PlainMessage("assistant", "é", (call,), reasoning="hm"), PlainMessage("tool", "42", tool_call_id="c1")]
    plain = [response("r", owner) for owner in (1, 2)]
    store = await kept(path, *(msgspec.structs.replace(one, session="s", before=said) for one in plain), n_owners=2)
    found = restored(path, 2)
    assert found.find(1, "r") == store.find(1, "r") and found.find(2, "r") == store.find(2, "r") is not None
    assert found.n_bytes == store.n_bytes


async def test_the_last_ones_are_kept_where_there_is_less_room(path: Path) -> None:
    await kept(path, *(response(id) for id in "abc"))
    assert there(restored(path, responses_max=2), 1, *"abc") == ["b", "c"]
    assert there(restored(path), 1, *"abc") == ["b", "c"]


async def test_what_is_dropped_is_not_there_any_more(path: Path) -> None:
    store, database = ResponseStore(), Database(path, MODEL)
    response_store.follow(store, database)
    for id in "ab":
        store.keep(response(id), 1)
    await database.flushed()
    store.drop(1, "a")
    await database.flushed()
    database.close()
    assert there(restored(path), 1, *"ab") == ["b"]


@pytest.mark.parametrize(
    "row",
    [[1], ["r", 1, "s", b"{}", [], []], ["r", 1, "s", b'{"output":[]}', [b"5"], []]],
    ids=["types", "no response", "no item"],
)
async def test_what_is_no_response_is_refused(path: Path, row: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    """The row is refused although its checksum is right, and the other rows are read."""
    await kept(path, response("good"))
    database = Database(path, MODEL)
    database.write([((RESPONSE, 1, "r", b""), row)])
    database.close()
    assert there(restored(path), 1, "r", "good") == ["good"]
    assert "ignored a stored response" in caplog.text
