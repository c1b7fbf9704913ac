"""Sessions after the end of a process: orderly stops, kills, full or damaged disks, and files of other models."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import threading
from asyncio import create_task, sleep, to_thread, wait_for
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from llmd.answers import stored
from llmd.app import create_app, runner_of
from llmd.dialects.responses import store as response_store
from llmd.http.access import keys_of
from llmd.http.context import OPENING
from tests.conversation import Conversation
from tests.serving import SETTLE_S, Daemon, Json, chat, config_of, serving
from tests.test_process import Process, Start

CLASSES = ("dense", "window", "recurrent", "hybrid")


def config(directory: Path, **options: Any) -> Any:
    return config_of(directory, **{"model": "sim:hybrid", **options})


def files(directory: Path, suffix: str = "llmd-session") -> list[Path]:
    return sorted((directory / "state").rglob(f"*.{suffix}"))


def models(directory: Path) -> list[str]:
    """Returns the names of the models in the subdirectories of the state directory."""
    return [path.read_text().strip() for path in (directory / "state").glob("*/model.txt")]


async def filled(directory: Path, **options: Any) -> Conversation:
    """Returns a conversation with a daemon that has stopped in order."""
    async with serving(config(directory, **options)) as daemon:
        talk = Conversation(daemon, "desk", system="a system prompt of some length, worth keeping")
        for text in ("the first question", "the second question"):
            await talk.ask(text)
    return talk


async def again(talk: Conversation, daemon: Daemon) -> Conversation:
    talk.daemon = daemon
    await talk.ask("are you still there?")
    return talk


@pytest.mark.parametrize("memory", CLASSES)
async def test_sessions_come_back_after_a_stop(tmp_path: Path, memory: str) -> None:
    talk = await filled(tmp_path, model=f"sim:{memory}")
    assert len(files(tmp_path)) == 1
    async with serving(config(tmp_path, model=f"sim:{memory}")) as daemon:
        found = (await daemon.ask("GET", "/v1/sessions/desk")).json
        assert found["state"] == "parked" and found["tokens"] > 0
        await again(talk, daemon)
    assert talk.report["session_reset_reason"] == "restored"
    assert talk.n_prefilled == talk.n_prompt - found["tokens"]


async def test_saved_sessions_outlive_the_daemon(tmp_path: Path) -> None:
    async with serving(config(tmp_path)) as daemon:
        talk = Conversation(daemon, "desk")
        await talk.ask("a question to be kept for long")
        assert (await daemon.ask("POST", "/v1/sessions/desk/save", {"name": "label"})).status == 200
        await daemon.ask("DELETE", "/v1/sessions/desk")
    async with serving(config(tmp_path)) as daemon:
        assert (await daemon.ask("GET", "/v1/sessions")).json["data"] == []
        assert (await daemon.ask("POST", "/v1/sessions/new/load", {"name": "label"})).status == 200
        then = talk.continued_as("new")
        await again(then, daemon)
        assert then.report["reused_prompt_tokens"] > 0


async def stop_amid(call: str, of: Any, options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts a daemon, and stops the daemon during a call of this function."""
    real: Callable[..., None] = getattr(of, call)
    begun, may_end = threading.Event(), threading.Event()

    def slow(*args: Any) -> None:
        begun.set()
        may_end.wait()
        real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(of, call, slow)
        app = create_app(options, keys_of(None, None))
        runner = runner_of(app)
        await runner.setup()
        assert await to_thread(begun.wait, SETTLE_S)
        stopping = create_task(runner.cleanup())
        try:
            while not app[OPENING].cancelling() and not stopping.done():  # noqa: ASYNC110
                await sleep(0)
        finally:
            may_end.set()
        await wait_for(stopping, SETTLE_S)


def rows(directory: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(next(directory.rglob("answers.sqlite3")))) as connection:
        return connection.execute("SELECT kind, name FROM row ORDER BY rowid").fetchall()


@pytest.mark.parametrize("of", [stored, response_store])
async def test_a_stop_while_answers_are_read_loses_none(
    tmp_path: Path, of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = config(tmp_path)
    async with serving(options) as daemon:
        await Conversation(daemon, "desk").ask("the first question")
        assert (await daemon.ask("POST", "/v1/responses", {"input": "to be stored"})).status == 200
    kept = rows(tmp_path)
    assert {kind for kind, _ in kept} == {"answer", "response"}
    await stop_amid("restore", of, options, monkeypatch)
    assert rows(tmp_path) == kept


CAPACITY = {"max_sessions": 3, "scratch_sessions": 1, "ctx_size": 2048, "session_timelines": 2}


async def test_other_options_keep_sessions_and_labels(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After a start with more or fewer slots, or a longer context, even the saved states can be used."""
    async with serving(config(tmp_path)) as daemon:
        talk = Conversation(daemon, "desk")
        await talk.ask("a question to be kept for long")
        assert (await daemon.ask("POST", "/v1/sessions/desk/save", {"name": "label"})).status == 200
    async with serving(config(tmp_path, **CAPACITY)) as daemon:
        await again(talk, daemon)
        assert talk.report["session_reset_reason"] == "restored"
        assert [one["name"] for one in (await daemon.ask("GET", "/v1/saved")).json["data"]] == ["label"]
        assert (await daemon.ask("POST", "/v1/sessions/new/load", {"name": "label"})).status == 200
    assert "memory layout" not in caplog.text


async def test_another_memory_layout_keeps_tokens_and_pins(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    talk = await filled(tmp_path)
    async with serving(config(tmp_path)) as daemon:
        held = (await daemon.ask("POST", "/v1/sessions/desk/pin", {"pinned": True})).json["tokens"]
    async with serving(config(tmp_path, model="sim:hybrid,layout=1")) as daemon:
        found = (await daemon.ask("GET", "/v1/sessions/desk")).json
        assert (found["tokens"], found["pinned"]) == (held, True)
        await again(talk, daemon)
        assert talk.report["session_reset_reason"] == "torn"
    assert "1 session was saved under another memory layout" in caplog.text
    assert "its tokens are kept and prefilled at its next use" in caplog.text


async def test_each_model_has_a_directory_that_names_it(tmp_path: Path) -> None:
    await filled(tmp_path, model="sim:dense")
    async with serving(config(tmp_path)):
        pass
    assert sorted(models(tmp_path)) == ["sim-dense", "sim-hybrid"]


async def test_more_sessions_than_entries(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After a restart all sessions exist, whatever the number of entries, except closed sessions."""
    options = {"capacity_policy": "refuse", "max_sessions": 1}
    async with serving(config(tmp_path)) as daemon:
        for name in ("desk", "lamp", "sofa"):
            await Conversation(daemon, name).ask(f"a question about the {name}")
        assert (await daemon.ask("POST", "/v1/sessions/desk/pin", {"pinned": True})).status == 200
    async with serving(config(tmp_path, **options)) as daemon:
        listed = (await daemon.ask("GET", "/v1/sessions")).json
        assert {one["id"]: one["pinned"] for one in listed["data"]} == {"desk": True, "lamp": False, "sofa": False}
        assert listed["places"]["dormant"] == 0
        for is_there in (True, False):
            assert (await daemon.ask("DELETE", "/v1/sessions/lamp")).json["deleted"] is is_there
        assert (await daemon.ask("DELETE", "/v1/sessions/desk")).status == 200
        await daemon.chat(session_id="sofa")
    assert "got no entry" not in caplog.text
    async with serving(config(tmp_path)) as daemon:
        assert [one["id"] for one in (await daemon.ask("GET", "/v1/sessions")).json["data"]] == ["sofa"]


async def test_what_is_too_long_for_the_context_waits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    talk = await filled(tmp_path)
    async with serving(config(tmp_path, ctx_size=32)) as daemon:
        listed = (await daemon.ask("GET", "/v1/sessions")).json
        assert listed["data"] == [] and listed["places"]["dormant"] == 1
    assert 'session "desk" got no entry (it has more tokens than --ctx-size holds)' in caplog.text
    async with serving(config(tmp_path)) as daemon:
        await again(talk, daemon)
        assert talk.report["session_reset_reason"] == "restored"


VERBS_WITHOUT_ENTRY: dict[str, Json] = {
    "pin": {"pinned": True}, "save": {"name": "label"}, "fork": {"session_id": "new", "replace": True},
    "rename": {"session_id": "new"}, "park": {}, "reset": {},
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS_WITHOUT_ENTRY)
async def test_a_session_without_an_entry_obeys_each_verb(tmp_path: Path, verb: str) -> None:
    """A fork needs an entry of its own. If no entry is free, the fork is refused, and no session is lost."""
    async with serving(config(tmp_path)) as daemon:
        for name in ("lamp", "sofa", "desk"):
            await Conversation(daemon, name).ask(f"a question about the {name}")
    async with serving(config(tmp_path, capacity_policy="refuse", max_sessions=2)) as daemon:
        body = VERBS_WITHOUT_ENTRY[verb]
        nobody = await daemon.ask("POST", f"/v1/sessions/nobody/{verb}", body or None)
        assert nobody.status == (200 if verb == "reset" else 404)
        if verb == "fork":
            refused = await daemon.ask("POST", f"/v1/sessions/lamp/{verb}", body)
            assert refused.error["code"] == "capacity_exhausted"
            for name in ("desk", "sofa"):
                assert (await daemon.ask("DELETE", f"/v1/sessions/{name}")).status == 200
        answer = await daemon.ask("POST", f"/v1/sessions/lamp/{verb}", body or None)
        assert answer.status == 200
        assert (answer.json["tokens"] == 0) == (verb == "reset")
        assert verb != "pin" or answer.json["pinned"]


async def test_closed_sessions_do_not_come_back(tmp_path: Path) -> None:
    await filled(tmp_path)
    async with serving(config(tmp_path)) as daemon:
        assert (await daemon.ask("DELETE", "/v1/sessions/desk")).status == 200
    assert files(tmp_path) == []
    async with serving(config(tmp_path)) as daemon:
        assert (await daemon.ask("GET", "/v1/sessions")).json["data"] == []


@pytest.mark.parametrize("where", ["head", "end", "short", "garbage"])
async def test_damaged_files_are_set_aside(tmp_path: Path, where: str, caplog: pytest.LogCaptureFixture) -> None:
    talk = await filled(tmp_path)
    path = files(tmp_path)[0]
    data = bytearray(path.read_bytes())
    if where in ("head", "end"):
        data[20 if where == "head" else -40] ^= 0xFF
    damaged = {"short": bytes(data[:60]), "garbage": b"no session " * 50}
    path.write_bytes(damaged.get(where, bytes(data)))
    async with serving(config(tmp_path)) as daemon:
        await again(talk, daemon)
        assert talk.n_prefilled > 0
    assert len(files(tmp_path, "refused")) == 1
    assert "was refused and set aside" in caplog.text


async def test_files_of_another_model_are_not_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file of another model was copied into this model's directory."""
    await filled(tmp_path, model="sim:dense")
    foreign = files(tmp_path)[0]
    talk = await filled(tmp_path)
    own = next(path for path in files(tmp_path) if path.parent != foreign.parent)
    shutil.copy(foreign, own)
    async with serving(config(tmp_path)) as daemon:
        await again(talk, daemon)
    assert "was refused and set aside" in caplog.text
    assert foreign.exists(), "the other model's own are left alone"


async def test_a_disk_that_takes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """If the state directory is removed while the daemon runs, the daemon logs that, serves further requests, and stops
    in order.
    """
    async with serving(config(tmp_path)) as daemon:
        talk = Conversation(daemon, "desk")
        await talk.ask("a question")
        shutil.rmtree(tmp_path / "state")
        for verb, body in (("save", {"name": "label"}), ("pin", {"pinned": True})):
            answer = await daemon.ask("POST", f"/v1/sessions/desk/{verb}", body)
            assert answer.status == 500 and answer.error["code"] == "io_error", verb
        assert (await daemon.ask("GET", "/v1/sessions/desk")).json["pinned"] is False
        await again(talk, daemon)
        assert talk.report["session_reset_reason"] == "exact_prefix"
    assert "cannot be written" in caplog.text


async def test_one_directory_one_daemon(tmp_path: Path) -> None:
    from llmd.engine.opening import EngineError

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving(config(tmp_path)))
        with pytest.raises(EngineError, match="give each its own --state-dir"):
            await stack.enter_async_context(serving(config(tmp_path, socket=tmp_path / "other.sock")))


# --- as a process ----------------------------------------------------------------------------------------------------


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    starter = Start(tmp_path)
    yield starter
    starter.close()


def ask(process: Process, text: str) -> Json:
    messages = [{"role": "user", "content": text}]
    status, answer = process.ask("POST", "/v1/chat/completions", chat(messages=messages, session_id="desk"))
    assert status == 200, json.dumps(answer)
    session = answer["session"]
    assert isinstance(session, dict)
    return session


def test_killed_then_stopped(start: Start) -> None:
    """The session was not used between the kill and the stop. It still exists, and is still pinned."""
    first = start("--model", "sim:hybrid")
    ask(first, "a question before the crash")
    held = first.ask("POST", "/v1/sessions/desk/pin", {"pinned": True})[1]["tokens"]
    first.popen.send_signal(signal.SIGKILL)
    first.popen.wait()
    second = start("--model", "sim:hybrid")
    second.popen.terminate()
    assert second.popen.wait() == 0
    third = start("--model", "sim:hybrid")
    assert not any("was killed" in line["message"] for line in third.log)
    found = third.ask("GET", "/v1/sessions/desk")[1]
    assert (found["tokens"], found["pinned"]) == (held, True)


def test_a_killed_daemon(start: Start) -> None:
    """The session table outlives the killed daemon. The session still exists, its tokens are prefilled once, and are
    reused from then on.
    """
    first = start("--model", "sim:hybrid")
    ask(first, "a question before the crash")
    held = first.ask("GET", "/v1/sessions/desk")[1]["tokens"]
    first.popen.send_signal(signal.SIGKILL)
    first.popen.wait()
    second = start("--model", "sim:hybrid")
    [line] = [line for line in second.log if line["message"].startswith("the previous daemon was killed")]
    assert line["level"] == "warning"
    found = second.ask("GET", "/v1/sessions/desk")[1]
    assert (found["state"], found["tokens"]) == ("parked", held)
    assert ask(second, "a question before the crash")["session_reset_reason"] == "torn"
    assert ask(second, "a question before the crash")["prefilled_prompt_tokens"] == 0


def test_a_daemon_killed_after_its_sessions_went_on(start: Start) -> None:
    """The session's file has fewer tokens than the session table. The restored session has all tokens, and only the
    tokens after those of the file are prefilled again.
    """
    first = start("--model", "sim:hybrid")
    messages: list[Json] = [{"role": "user", "content": "a question before the stop"}]
    _, answer = first.ask("POST", "/v1/chat/completions", chat(messages=messages, session_id="desk", temperature=0))
    first.popen.terminate()
    assert first.popen.wait() == 0
    second = start("--model", "sim:hybrid")
    in_file = second.ask("GET", "/v1/sessions/desk")[1]["tokens"]
    messages += [answer["choices"][0]["message"], {"role": "user", "content": "and one more before the crash"}]
    assert (
        second.ask("POST", "/v1/chat/completions", chat(messages=messages, session_id="desk", temperature=0))[0] == 200
    )
    held = second.ask("GET", "/v1/sessions/desk")[1]["tokens"]
    second.popen.send_signal(signal.SIGKILL)
    second.popen.wait()
    third = start("--model", "sim:hybrid")
    assert third.ask("GET", "/v1/sessions/desk")[1]["tokens"] == held > in_file
    _, answer = third.ask("POST", "/v1/chat/completions", chat(messages=messages, session_id="desk", temperature=0))
    assert answer["session"]["session_reset_reason"] in ("restored", "checkpoint")
    assert 0 < answer["session"]["reused_prompt_tokens"] <= in_file


def test_a_stopped_daemon(start: Start) -> None:
    first = start("--model", "sim:hybrid")
    ask(first, "a question before the stop")
    first.popen.terminate()
    assert first.popen.wait() == 0
    second = start("--model", "sim:hybrid")
    assert ask(second, "a question before the stop")["reused_prompt_tokens"] > 0
