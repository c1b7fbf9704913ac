"""The file of answers: what goes in comes out, anything else is refused, and sessions go on after a restart."""

from __future__ import annotations

import os
import stat
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llmd.answers import file as answers_file
from llmd.answers.file import RefusedError, decode, encode, take, write
from llmd.answers.memory import Answer, AnswerMemory, StoredAnswer, StoredSession
from llmd.core import limits
from tests.conversation import digests_of
from tests.serving import Daemon, Json, config_of, serving

MODEL, OTHER_MODEL = "0123456789abcdef" * 2, "fedcba9876543210" * 2
N_VOCAB = 100
OWNER = 2**63 - 1
QUESTION: Json = {"role": "user", "content": "What about the river?"}
WARNED = "was refused and set aside"


def tokens(*numbers: int) -> bytes:
    return array("i", numbers).tobytes()


def digest(number: int) -> bytes:
    return digests_of([{"role": "assistant", "content": str(number)}])[0]


def filled() -> AnswerMemory:
    memory = AnswerMemory()
    for number in range(3):
        memory.keep(OWNER, "a", digest(number), Answer(tokens(number, N_VOCAB - 1), "" if number else " the réste"))
    memory.keep(0, "b", digest(7), Answer(tokens(), ""))
    memory.choose(0, "c", "template")
    memory.keep(0, "", digest(8), Answer(tokens(8), ""))
    return memory


def session(*answers: StoredAnswer, name: str = "s") -> StoredSession:
    return StoredSession(0, name, None, list(answers))


def taken(path: Path) -> AnswerMemory:
    memory = AnswerMemory()
    take(path, memory, MODEL, N_VOCAB)
    return memory


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = answers_file.path_of(tmp_path, MODEL)
    found.parent.mkdir()
    return found


# --- round trip ------------------------------------------------------------------------------------------------------


def test_what_is_written_is_read(path: Path) -> None:
    written = filled()
    write(path, written, MODEL)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = taken(path)
    assert found.stored() == written.stored()
    assert [one.name for one in found.stored()] == ["a", "b", "c"], "in order of use, scratch left out"
    assert found.mode(0, "c") == "template"
    scratch_bytes = len(tokens(8)) + limits.ANSWER_BYTES_OVERHEAD
    assert found.n_bytes == written.n_bytes - scratch_bytes


def test_what_was_read_is_gone_from_the_disk(path: Path) -> None:
    write(path, filled(), MODEL)
    taken(path)
    assert list(path.parent.iterdir()) == []
    assert taken(path).stored() == []


def test_nothing_to_write_leaves_no_file(path: Path) -> None:
    write(path, filled(), MODEL)
    write(path, AnswerMemory(), MODEL)
    assert list(path.parent.iterdir()) == []


def test_what_a_crash_left_half_written_is_in_nobodys_way(path: Path) -> None:
    path.with_suffix(".partial").write_bytes(b"half")
    write(path, filled(), MODEL)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert taken(path).stored() == filled().stored()


# --- refusals --------------------------------------------------------------------------------------------------------


def test_every_truncation_is_refused() -> None:
    data = encode(filled().stored(), MODEL)
    for n in range(len(data)):
        with pytest.raises(RefusedError):
            decode(data[:n], MODEL, N_VOCAB)


@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_every_flipped_byte_is_refused(flip: int) -> None:
    data = encode(filled().stored(), MODEL)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= flip
        with pytest.raises(RefusedError):
            decode(bytes(damaged), MODEL, N_VOCAB)


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        ([session(StoredAnswer(digest(1), tokens(N_VOCAB), ""))], "a token that the model does not have"),
        ([session(StoredAnswer(digest(1), tokens(3, -1), ""))], "a token that the model does not have"),
        ([session(StoredAnswer(digest(1), b"\0\0\0", ""))], "ends inside a token"),
        ([session(StoredAnswer(b"short", tokens(1), ""))], "length >= 16"),
        ([session(name="")], "name is not one"),
        ([session(name="x" * (limits.SESSION_ID_CHARS_MAX + 1))], "name is not one"),
        ([session()] * (limits.ANSWER_SESSIONS_MAX + 1), f"length <= {limits.ANSWER_SESSIONS_MAX}"),
        (
            [session(*[StoredAnswer(digest(1), b"", "")] * (limits.ANSWERS_PER_SESSION_MAX + 1))],
            f"length <= {limits.ANSWERS_PER_SESSION_MAX}",
        ),
    ],
)
def test_what_no_daemon_writes_is_refused(stored: list[StoredSession], why: str) -> None:
    """Though the checksum is right."""
    with pytest.raises(RefusedError, match=why):
        decode(encode(stored, MODEL), MODEL, N_VOCAB)


def other_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(answers_file, "_VERSION", 3)
        write(path, filled(), MODEL)


def other_model(path: Path, _: pytest.MonkeyPatch) -> None:
    write(path, filled(), OTHER_MODEL)


def garbage(path: Path, _: pytest.MonkeyPatch) -> None:
    path.write_bytes(msgspec.msgpack.encode(["no answers"] * 50))


def too_large(path: Path, _: pytest.MonkeyPatch) -> None:
    write(path, filled(), MODEL)
    os.truncate(path, limits.ANSWER_FILE_BYTES_MAX + 1)


def a_pipe(path: Path, _: pytest.MonkeyPatch) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (other_version, "version 3, not 2"),
        (other_model, "another model"),
        (garbage, "it holds something else"),
        (too_large, f"the limit is {limits.ANSWER_FILE_BYTES_MAX}"),
        (a_pipe, "no regular file"),
    ],
)
def test_refused_files_are_set_aside(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    make: Callable[[Path, pytest.MonkeyPatch], None],
    why: str,
) -> None:
    make(path, monkeypatch)
    assert taken(path).stored() == []
    assert [entry.name for entry in path.parent.iterdir()] == ["answers.refused"]
    record = next(record for record in caplog.records if WARNED in record.message)
    assert why in record.__dict__["fields"]["reason"]


def test_a_disk_that_takes_nothing_costs_a_line_in_the_log(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(path.parent / "missing" / path.name, filled(), MODEL)
    assert "cannot be written" in caplog.text


def test_a_full_disk_leaves_what_was_there(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, filled(), MODEL)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    write(path, filled(), MODEL)
    assert "cannot be written" in caplog.text
    assert [entry.read_bytes() for entry in path.parent.iterdir()] == [before]


# --- bounds ----------------------------------------------------------------------------------------------------------


def test_the_bounds_hold_while_loading(path: Path) -> None:
    write(path, filled(), MODEL)
    found = AnswerMemory(bytes_max=2 * limits.ANSWER_BYTES_OVERHEAD + 10, answers_max=2)
    take(path, found, MODEL, N_VOCAB)
    assert found.n_bytes <= 2 * limits.ANSWER_BYTES_OVERHEAD + 10
    kept = {one.name: len(one.answers) for one in found.stored()}
    assert kept == {"a": 1, "b": 1, "c": 0}, "the least recently used went"


def test_the_fullest_file_is_within_its_bound() -> None:
    """Long names, and texts that take more bytes than characters."""
    bytes_max, n_sessions = 400_000, 8
    memory = AnswerMemory(bytes_max=bytes_max)
    for number in range(1000):
        name = f"{number % n_sessions}" * limits.SESSION_ID_CHARS_MAX
        memory.keep(OWNER, name, digest(number), Answer(b"", "\U0001f30a" * 1000))
    session_bytes = (limits.ANSWER_FILE_BYTES_MAX - limits.ANSWER_BYTES_MAX) // limits.ANSWER_SESSIONS_MAX
    n_bytes = len(encode(memory.stored(), MODEL))
    assert 0.9 * bytes_max < n_bytes < bytes_max + n_sessions * session_bytes


# --- a daemon --------------------------------------------------------------------------------------------------------


async def turn(daemon: Daemon, messages: list[Json], name: str = "desk") -> Json:
    """One more question, answered greedily, and the answer echoed."""
    messages.append(QUESTION)
    answer = await daemon.chat(messages=messages, session_id=name, temperature=0, max_tokens=40)
    messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
    return {**answer["session"], **answer["usage"]}


def needed(before: Json, after: Json) -> int:
    """Tokens of the later prompt that were not resident after the earlier turn, whose last token never is."""
    return int(after["prompt_tokens"] - (before["prompt_tokens"] + before["completion_tokens"] - 1))


def config(directory: Path, **options: Any) -> Any:
    return config_of(directory, **{"model": "sim:hybrid", **options})


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.rglob("answers*"))


@pytest.mark.parametrize("memory", ["dense", "window", "recurrent", "hybrid"])
async def test_a_restored_session_consumes_only_what_is_added(tmp_path: Path, memory: str) -> None:
    messages: list[Json] = []
    reports: list[Json] = []
    for n_turns in (2, 2, 1):  # a file that was read is written again
        async with serving(config(tmp_path, model=f"sim:{memory}")) as daemon:
            assert files(tmp_path) == []
            reports += [await turn(daemon, messages) for _ in range(n_turns)]
        assert files(tmp_path) == ["answers.msgpack"]
    reasons = [report["session_reset_reason"] for report in reports]
    assert reasons == ["new", "exact_prefix", "restored", "exact_prefix", "restored"]
    for before, after in zip(reports, reports[1:], strict=False):
        assert after["prefilled_prompt_tokens"] == needed(before, after)


async def test_without_the_file_it_costs_more(tmp_path: Path) -> None:
    """Or else the test above proves nothing: the simulated model does not write as its encoder reads."""
    messages: list[Json] = []
    async with serving(config(tmp_path)) as daemon:
        await turn(daemon, messages)
        before = await turn(daemon, messages)
    next((tmp_path / "state").rglob("answers.msgpack")).unlink()
    async with serving(config(tmp_path)) as daemon:
        after = await turn(daemon, messages)
    assert after["session_reset_reason"] != "restored"
    assert after["prefilled_prompt_tokens"] > needed(before, after)


async def test_a_damaged_file_costs_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    messages: list[Json] = []
    async with serving(config(tmp_path)) as daemon:
        before = await turn(daemon, messages)
    path = next((tmp_path / "state").rglob("answers.msgpack"))
    path.write_bytes(path.read_bytes()[:-1])
    async with serving(config(tmp_path)) as daemon:
        after = await turn(daemon, messages)
        assert after["prefilled_prompt_tokens"] > needed(before, after), "its answer was tokenized again"
    assert WARNED in caplog.text
    assert files(tmp_path) == ["answers.msgpack", "answers.refused"]


async def test_closed_sessions_leave_no_answers(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as daemon:
        await turn(daemon, [])
        assert (await daemon.ask("DELETE", "/v1/sessions/desk")).status == 200
    assert files(tmp_path) == []


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
        assert (await daemon.ask("POST", "/v1/sessions/other/load", {"name": "label"})).status == 200
        assert daemon.state.answers.past(0, "other", digests_of(other)) is None
        assert daemon.state.answers.past(0, "desk", digests_of(messages)) is not None
