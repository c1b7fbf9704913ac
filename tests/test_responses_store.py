"""What is stored of responses is bounded, and each owner's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from llmd.answers import file
from llmd.core import limits
from llmd.core.asked import PlainMessage, PlainToolCall
from llmd.dialects.responses import store_file
from llmd.dialects.responses.store import ResponseStore, StoredResponse

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
    """Their shares do not add up to what there is: a key may have come since."""
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


def stored(path: Path, store: ResponseStore) -> bytes:
    store_file.write(path, store)
    return path.read_bytes()


def taken(path: Path, n_owners: int = 1, **bounds: int) -> ResponseStore:
    store = ResponseStore(**bounds)
    store_file.take(path, store, n_owners)
    return store


def test_what_is_written_is_read_once(tmp_path: Path) -> None:
    path, store = tmp_path / "responses.msgpack", ResponseStore()
    call = PlainToolCall("f", "{}", "c1")
    said = [PlainMessage("assistant", "é", (call,), reasoning="hm"), PlainMessage("tool", "42", tool_call_id="c1")]
    for owner in (1, 2):
        plain = response("r", owner)
        store.keep(StoredResponse("r", owner, "s", plain.body, plain.input, said), 2)
    assert len(stored(path, store)) <= store.n_bytes
    found = taken(path, 2)
    assert found.find(1, "r") == store.find(1, "r") and found.find(2, "r") == store.find(2, "r") is not None
    assert found.n_bytes == store.n_bytes and not path.exists()
    assert taken(path).n_responses == 0


def test_the_last_used_are_kept_where_there_is_less_room(tmp_path: Path) -> None:
    path, store = tmp_path / "responses.msgpack", ResponseStore()
    for id in "abc":
        store.keep(response(id), 1)
    stored(path, store)
    assert there(taken(path, responses_max=2), 1, *"abc") == ["b", "c"]


def test_an_empty_store_leaves_no_file(tmp_path: Path) -> None:
    path, store = tmp_path / "responses.msgpack", ResponseStore()
    store.keep(response("r"), 1)
    stored(path, store)
    store_file.write(path, ResponseStore())
    assert not path.exists()
    store_file.write(path, ResponseStore())


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data[:-1] + b"x",
        lambda data: b"llmd-ans" + data[8:],
        lambda data: file.sealed(b"llmd-rsp", 9, data[44:]),
        lambda data: file.sealed(b"llmd-rsp", 1, b"\x91\x01"),
        lambda data: file.sealed(b"llmd-rsp", 1, msgspec.msgpack.encode([["r", 1, "s", b"{}", [], []]])),
        lambda data: file.sealed(b"llmd-rsp", 1, msgspec.msgpack.encode([["r", 1, "s", b'{"output":[]}', [b"5"], []]])),
    ],
    ids=["empty", "cut", "changed", "another's", "version", "types", "no response", "no item"],
)
def test_what_is_not_as_it_should_be_is_set_aside(
    tmp_path: Path, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    path, store = tmp_path / "responses.msgpack", ResponseStore()
    store.keep(response("r"), 1)
    path.write_bytes(damage(stored(path, store)))
    assert taken(path).n_responses == 0
    assert [found.name for found in tmp_path.iterdir()] == ["responses.refused"]
    assert "refused and set aside" in caplog.text


def test_a_disk_that_takes_nothing_costs_the_responses_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, store = tmp_path / "nowhere" / "responses.msgpack", ResponseStore()
    store.keep(response("r"), 1)
    store_file.write(path, store)
    (tmp_path / "directory").mkdir()
    assert taken(tmp_path / "directory").n_responses == 0
    assert "cannot be written" in caplog.text
