"""The database of answers: written rows survive a kill, damaged or foreign rows are refused, and sessions continue."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import stat
import threading
from array import array
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from llmd.answers import database as answers_database
from llmd.answers import stored
from llmd.answers.database import ANSWER, Database, Key
from llmd.answers.memory import Answer, AnswerMemory
from llmd.core import limits
from tests.conversation import digests_of
from tests.serving import Daemon, Json, config_of, serving
from tests.test_process import Start

MODEL, OTHER_MODEL = "0123456789abcdef" * 2, "fedcba9876543210" * 2
N_VOCAB = 100
OWNER = 2**63 - 1
QUESTION: Json = {"role": "user", "content": "What about the river?"}


def tokens(*numbers: int) -> bytes:
    return array("i", numbers).tobytes()


def digest(number: int) -> bytes:
    return digests_of([{"role": "assistant", "content": str(number)}])[0]


def fill(memory: AnswerMemory) -> AnswerMemory:
    for number in range(3):
        memory.keep(OWNER, "a", digest(number), Answer(tokens(number, N_VOCAB - 1), "" if number else " the réste"))
    memory.keep(0, "b", digest(7), Answer(tokens(), ""))
    memory.choose(0, "c", "template")
    memory.keep(0, "", digest(8), Answer(tokens(8), ""))
    return memory


def followed(path: Path) -> tuple[AnswerMemory, Database]:
    memory, database = AnswerMemory(), Database(path, MODEL)
    stored.follow(memory, database)
    return memory, database


def contents(memory: AnswerMemory) -> dict[str, Any]:
    names = dict.fromkeys(name for _, name, _ in memory.keys())
    return {name: memory.saved(OWNER, name) or memory.saved(0, name) for name in names}


def restored(path: Path, **bounds: int) -> AnswerMemory:
    memory, database = AnswerMemory(**bounds), Database(path, MODEL)
    stored.restore(memory, database, N_VOCAB)
    database.close()
    return memory


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / answers_database.FILE_NAME


async def filled(path: Path) -> AnswerMemory:
    memory, database = followed(path)
    fill(memory)
    await database.flushed()
    database.close()
    return memory


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def copied(path: Path, directory: Path) -> Path:
    """Copies the database and its log file, and returns the path of the copy."""
    directory.mkdir()
    for file in path.parent.glob(f"{path.name}*"):
        shutil.copy(file, directory)
    return directory / path.name


def all_bytes(directory: Path) -> bytes:
    return b"".join(file.read_bytes() for file in directory.iterdir())


def damage(path: Path, data: bytes, at: int, flip: int) -> None:
    for file in path.parent.iterdir():
        file.unlink()
    path.write_bytes(data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :])


# --- round trip ------------------------------------------------------------------------------------------------------


async def test_what_is_written_is_read(path: Path) -> None:
    written = await filled(path)
    assert mode_of(path) == 0o600
    found = restored(path)
    assert contents(found) == contents(written)
    assert list(contents(found)) == ["a", "b", "c"], "in order of use, scratch left out"
    assert found.mode(0, "c") == "template"
    scratch_bytes = len(tokens(8)) + limits.ANSWER_BYTES_OVERHEAD
    assert found.n_bytes == written.n_bytes - scratch_bytes


async def test_what_was_written_survives_without_an_orderly_end(path: Path, tmp_path: Path) -> None:
    """A kill leaves the files in the state that they have while the database is open."""
    memory, database = followed(path)
    fill(memory)
    await database.flushed()
    left = copied(path, tmp_path / "left")
    database.close()
    assert contents(restored(left)) == contents(memory)


async def test_whatever_becomes_of_a_session_is_followed(path: Path) -> None:
    memory, database = followed(path)
    fill(memory)
    memory.copy(OWNER, "a", "copy")
    memory.rename(OWNER, "a", "new")
    memory.keep(OWNER, "new", digest(9), Answer(tokens(9), "", since=digest(2)))
    memory.keep(OWNER, "new", digest(2), Answer(tokens(5), ""))  # the answers after it take over its tokens
    memory.forget(0, "b")
    memory.choose(0, "c", "resident")
    memory.choose(OWNER, "copy", "template")
    await database.flushed()
    memory.forget(0, "c")
    memory.keep(OWNER, "copy", digest(10), Answer(tokens(10), ""))
    await database.flushed()
    database.close()
    assert set(contents(memory)) == {"copy", "new"}
    assert contents(restored(path)) == contents(memory)


async def test_what_is_forgotten_is_nowhere_on_the_disk(path: Path, tmp_path: Path) -> None:
    memory, database = followed(path)
    fill(memory)
    memory.keep(0, "secret", digest(11), Answer(tokens(11), "the words of the answer"))
    await database.flushed()

    assert b"words of the answer" in all_bytes(tmp_path)
    memory.forget(0, "secret")
    await database.flushed()
    assert b"words of the answer" not in all_bytes(tmp_path)
    database.close()


async def test_rows_that_change_while_others_are_written_are_written_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, database = followed(path)
    n_rows: list[int] = []
    real = Database.write

    def count(self: Database, rows: list[tuple[Key, bytes | None]]) -> None:
        n_rows.append(len(rows))
        real(self, rows)

    monkeypatch.setattr(Database, "write", count)
    for number in range(50):
        memory.keep(0, "s", digest(number % 5), Answer(tokens(number), ""))
    await database.flushed()
    assert n_rows == [5]
    database.close()


async def test_the_event_loop_does_not_open_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    real = answers_database._open_database

    def opened(path: Path) -> sqlite3.Connection:
        threads.append(threading.current_thread())
        return real(path)

    monkeypatch.setattr(answers_database, "_open_database", opened)
    async with serving(config(tmp_path)):
        pass
    assert threads and threading.current_thread() not in threads


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
async def test_no_flipped_byte_is_believed(path: Path, flip: int) -> None:
    """A row is either read as it was written, or refused. A flip of an unused byte loses no row."""
    written = await filled(path)
    data = all_bytes(path.parent)
    n_whole = 0
    for at in range(0, len(data), 61):
        damage(path, data, at, flip)
        found = restored(path)
        assert set(found.keys()) <= set(written.keys())
        assert all(found.find(*key) == written.find(*key) for key in found.keys())
        n_whole += len(found.keys()) == len(written.keys())
    assert n_whole


async def test_a_flipped_byte_of_a_row_costs_that_row_alone(path: Path) -> None:
    written = await filled(path)
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT owner, name, part, body FROM row WHERE name != ''").fetchall()
    data = all_bytes(path.parent)
    assert {(owner, name, part) for owner, name, part, _ in rows} == set(written.keys())
    for *key, body in rows:
        for at in range(data.index(body), data.index(body) + len(body)):
            damage(path, data, at, 0x01)
            assert set(restored(path).keys()) == set(written.keys()) - {tuple(key)}


@pytest.mark.parametrize(
    ("key", "body", "why"),
    [
        (digest(1), Answer(tokens(N_VOCAB), ""), "a token that the model does not have"),
        (digest(1), Answer(tokens(3, -1), ""), "a token that the model does not have"),
        (digest(1), Answer(b"\0\0\0", ""), "ends inside a token"),
        (b"short", Answer(tokens(1), ""), "a digest has 5 bytes, not 16"),
        (digest(1), [1], "Expected"),
        (b"", "sideways", "Invalid enum"),
    ],
)
def test_what_no_daemon_writes_is_refused(
    path: Path, caplog: pytest.LogCaptureFixture, key: bytes, body: Any, why: str
) -> None:
    """The row is refused although its checksum is right, and is deleted."""
    database = Database(path, MODEL)
    database.write([((ANSWER, 0, "s", key), body)])
    database.close()
    assert restored(path).keys() == []
    record = next(record for record in caplog.records if "ignored stored answers" in record.message)
    assert why in record.__dict__["fields"]["reason"]
    caplog.clear()
    assert restored(path).keys() == []
    assert not caplog.records


async def test_rows_of_another_model_are_not_read(path: Path) -> None:
    await filled(path)
    database = Database(path, OTHER_MODEL)
    assert list(database.rows(ANSWER)) == []
    database.close()


def other_version(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=3")


def another_s(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (x)")


def garbage(path: Path) -> None:
    path.write_bytes(b"no database" * 5000)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 4096)


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (other_version, "its version is 3"),
        (another_s, "it is not a database of llmd"),
        (garbage, "not a database"),
        (cut, "malformed"),
        (a_pipe, "not a regular file"),
    ],
)
async def test_refused_files_are_set_aside(
    path: Path, caplog: pytest.LogCaptureFixture, make: Callable[[Path], None], why: str
) -> None:
    await filled(path)
    make(path)
    assert restored(path).keys() == []
    assert files(path.parent) == ["answers.refused", path.name]
    record = next(record for record in caplog.records if "began a new one" in record.message)
    assert why in record.__dict__["fields"]["reason"]


async def test_a_directory_that_is_not_there_costs_a_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory, database = followed(tmp_path / "missing" / "answers.sqlite3")
    fill(memory)
    await database.flushed()
    assert "cannot open the database" in caplog.text
    database.close()


async def test_a_full_disk_costs_a_line_and_what_did_not_fit_is_tried_again(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory, database = followed(path)
    database._connection.execute("PRAGMA max_page_count=5")
    large = Answer(tokens(*range(20)) * 2000, "")
    memory.keep(0, "s", digest(1), large)
    await database.flushed()
    record = next(record for record in caplog.records if "cannot write answers" in record.message)
    assert "full" in record.__dict__["fields"]["reason"]
    database._connection.execute("PRAGMA max_page_count=1000000")
    memory.keep(0, "s", digest(2), Answer(tokens(2), ""))
    await database.flushed()
    database.close()
    assert restored(path).find(0, "s", digest(1)) == large


async def test_a_disk_that_refuses_rows_is_tried_again_at_times(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon tries again after a delay, or when a request waits for the rows. It must not try again with each
    change, because each attempt writes all waiting rows.
    """
    caplog.set_level("INFO", "llmd.history")
    memory, database = followed(path)
    tried: list[int] = []

    def refuse(self: Database, rows: list[tuple[Key, object]]) -> None:
        tried.append(len(rows))
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patches:
        patches.setattr(Database, "write", refuse)
        await database.flushed()
        for number in range(20):
            memory.keep(0, "s", digest(number), Answer(tokens(number), ""))
            await asyncio.to_thread(list)
        assert tried == [1]
        await database.flushed()
        assert tried == [1, 20]
        patches.setattr(limits, "DATABASE_RETRY_S", 0.0)
        await database.flushed()
    while "can write answers to the database again" not in caplog.text:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert caplog.text.count("cannot write answers") == 1
    database.close()
    assert contents(restored(path)) == contents(memory)


async def test_the_bounds_hold_while_restoring(path: Path) -> None:
    await filled(path)
    found = restored(path, bytes_max=2 * limits.ANSWER_BYTES_OVERHEAD + 10, answers_max=2)
    assert found.n_bytes <= 2 * limits.ANSWER_BYTES_OVERHEAD + 10
    again = restored(path)
    assert again.keys() == found.keys(), "what did not fit is not on the disk any more"


# --- a daemon --------------------------------------------------------------------------------------------------------


async def turn(daemon: Daemon, messages: list[Json], name: str = "desk") -> Json:
    """Asks another question, appends the greedy answer to the messages, and returns the report and the usage."""
    messages.append(QUESTION)
    answer = await daemon.chat(messages=messages, session_id=name, temperature=0, max_tokens=40)
    messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
    return {**answer["session"], **answer["usage"]}


def needed(before: Json, after: Json) -> int:
    """Returns the number of tokens of the later prompt that were not resident after the earlier turn. The last
    generated token of a turn is never resident.
    """
    return int(after["prompt_tokens"] - (before["prompt_tokens"] + before["completion_tokens"] - 1))


def config(directory: Path, **options: Any) -> Any:
    return config_of(directory, **{"model": "sim:hybrid", **options})


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.rglob("answers*"))


def n_answers(directory: Path) -> int:
    with closing(sqlite3.connect(next(directory.rglob("answers.sqlite3")))) as connection:
        return int(connection.execute("SELECT count(*) FROM row WHERE kind = 'answer'").fetchone()[0])


@pytest.mark.parametrize("memory", ["dense", "window", "recurrent", "hybrid"])
async def test_a_restored_session_consumes_only_what_is_added(tmp_path: Path, memory: str) -> None:
    messages: list[Json] = []
    reports: list[Json] = []
    for n_turns in (2, 2, 1):
        async with serving(config(tmp_path, model=f"sim:{memory}")) as daemon:
            reports += [await turn(daemon, messages) for _ in range(n_turns)]
        assert files(tmp_path) == ["answers.sqlite3"]
    reasons = [report["session_reset_reason"] for report in reports]
    assert reasons == ["new", "exact_prefix", "restored", "exact_prefix", "restored"]
    for before, after in zip(reports, reports[1:], strict=False):
        assert after["prefilled_prompt_tokens"] == needed(before, after)


async def test_without_the_database_it_costs_more(tmp_path: Path) -> None:
    """Otherwise the test above would prove nothing. The simulated model generates tokens that its encoder would not
    make from the same text.
    """
    messages: list[Json] = []
    async with serving(config(tmp_path)) as daemon:
        await turn(daemon, messages)
        before = await turn(daemon, messages)
    next((tmp_path / "state").rglob("answers.sqlite3")).unlink()
    async with serving(config(tmp_path)) as daemon:
        after = await turn(daemon, messages)
    assert after["session_reset_reason"] != "restored"
    assert after["prefilled_prompt_tokens"] > needed(before, after)


async def test_a_damaged_file_costs_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    messages: list[Json] = []
    async with serving(config(tmp_path)) as daemon:
        before = await turn(daemon, messages)
    cut(next((tmp_path / "state").rglob("answers.sqlite3")))
    async with serving(config(tmp_path)) as daemon:
        after = await turn(daemon, messages)
        assert after["prefilled_prompt_tokens"] > needed(before, after), "its answer was tokenized again"
    assert "began a new one" in caplog.text
    assert files(tmp_path) == ["answers.refused", "answers.sqlite3"]


async def test_closed_sessions_leave_no_answers(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as daemon:
        await turn(daemon, [])
        assert (await daemon.ask("DELETE", "/v1/sessions/desk")).status == 200
    assert n_answers(tmp_path) == 0


async def test_nothing_is_written_without_a_state_directory(tmp_path: Path) -> None:
    async with serving(config(tmp_path, state_dir=None)) as daemon:
        await turn(daemon, [])
    assert files(tmp_path) == []


async def test_loading_forgets_the_answers_of_what_was_replaced(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as daemon:
        messages: list[Json] = []
        await turn(daemon, messages)
        assert (await daemon.ask("POST", "/v1/sessions/desk/save", {"name": "label"})).status == 200
        other: list[Json] = [{"role": "system", "content": "Be brief."}]
        await turn(daemon, other, "other")
        assert daemon.state.answers.past(0, "other", digests_of(other)) is not None
        assert (await daemon.ask("POST", "/v1/sessions/other/load", {"name": "label", "replace": True})).status == 200
        assert daemon.state.answers.past(0, "other", digests_of(other)) is None
        assert daemon.state.answers.past(0, "desk", digests_of(messages)) is not None


def test_a_killed_daemon_leaves_its_answers_and_responses(tmp_path: Path) -> None:
    """Answers and responses must be written while the daemon serves, and not only at an orderly stop."""
    start, messages = Start(tmp_path), [QUESTION]
    try:
        process = start("--model", "sim:hybrid")
        body = {"messages": messages, "session_id": "desk", "temperature": 0, "max_tokens": 40}
        _, first = process.ask("POST", "/v1/chat/completions", body)
        messages += [first["choices"][0]["message"], QUESTION]
        _, response = process.ask("POST", "/v1/responses", {"input": "to be stored"})
        # `save` is answered only when all rows are written. Other requests do not wait until their rows are written.
        assert process.ask("POST", "/v1/sessions/desk/save", {"name": "label"})[0] == 200
        process.popen.kill()
        process.popen.wait(60)
        process = start("--model", "sim:hybrid")
        assert process.ask("GET", f"/v1/responses/{response['id']}")[0] == 200
        _, second = process.ask("POST", "/v1/chat/completions", {**body, "messages": messages})
        assert second["session"]["history"] == "resident"
    finally:
        start.close()
