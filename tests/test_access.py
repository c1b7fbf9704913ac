"""API keys, owners, Host and Origin."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path

import pytest
from multidict import CIMultiDict

from llmd.app import reload_keys
from llmd.core import limits
from llmd.core.errors import ApiError
from llmd.http.access import (
    KeyFileError,
    KeyRing,
    caller_of,
    check_host,
    check_origin,
    host_name,
    keys_of,
    owner_of,
    read_keys,
    salt_of,
)
from tests.conftest import Serve
from tests.serving import Answer, Daemon, chat

ANN, BOB, ROOT = "sk-ann-1", "sk-bob-2", "sk-root-3"
OWNERS = {ANN: owner_of("ann", ANN), BOB: owner_of(None, BOB)}


def key_file(tmp_path: Path, text: str = f"{ANN} ann\n# comment\n\n{BOB}\n{ROOT} root admin # the boss\n") -> Path:
    path = tmp_path / "keys"
    path.write_text(text)
    path.chmod(0o600)
    return path


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


# --- the key file ----------------------------------------------------------------------------------------------------


def test_keys_are_read(tmp_path: Path) -> None:
    keys = read_keys(key_file(tmp_path))
    ann, bob, root = (keys.caller(f"Bearer {key}", None) for key in (ANN, BOB, ROOT))
    assert (ann.name, ann.is_admin, ann.owner) == ("ann", False, OWNERS[ANN])
    assert (bob.name, bob.is_admin) == ("key-4", False)
    assert (root.name, root.is_admin) == ("root", True)
    assert len({ann.owner, bob.owner, root.owner, 0}) == 4
    assert keys.caller(None, ANN) == ann
    assert keys.caller(f"bearer  {ANN}", "wrong") == ann


@pytest.mark.parametrize(
    ("authorization", "x_api_key"),
    [(None, None), ("", ""), ("Bearer", None), ("Bearer sk-ann", None), ("Basic sk-ann-1", None), (None, "sk-ann-12")],
)
def test_wrong_keys(tmp_path: Path, authorization: str | None, x_api_key: str | None) -> None:
    with pytest.raises(ApiError) as caught:
        read_keys(key_file(tmp_path)).caller(authorization, x_api_key)
    assert (caught.value.code, caught.value.status) == ("invalid_api_key", 401)


def names(text: str, tmp_path: Path) -> list[tuple[str, str, bool]]:
    """Returns those of some keys that are valid with this file, each with its name, and whether it is an admin's."""
    keys = read_keys(key_file(tmp_path, text))
    found = []
    for key in ("x", "x#1", "x#", "x2", "x3", "x4", "x5"):
        try:
            caller = keys.caller(f"Bearer {key}", None)
        except ApiError:
            continue
        found.append((key, caller.name, caller.is_admin))
    return found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x#1 ann admin", [("x#1", "ann", True)]),
        ("x#1 ann#b # admin", [("x#1", "ann#b", False)]),
        ("x# #1", [("x#", "key-1", False)]),
        ("x #1 admin", [("x", "key-1", False)]),
        ("x\t#1", [("x", "key-1", False)]),
        ("#x\n  # x2\n\t#x3\nx4", [("x4", "key-4", False)]),
        ("\ufeffx ann\r\nx2\tbob\tadmin \r\n\r\n", [("x", "ann", False), ("x2", "bob", True)]),
        ("x admin\nx2 admin ann\nx3 ann", [("x", "key-1", True), ("x2", "ann", True), ("x3", "ann", False)]),
        ("x ünsal", [("x", "ünsal", False)]),
        ("# \x0b \x85 \u2028 x2\nx", [("x", "key-2", False)]),
    ],
)
def test_the_form_of_a_line(tmp_path: Path, text: str, found: list[tuple[str, str, bool]]) -> None:
    assert names(text, tmp_path) == found


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "has no key; add a line"),
        ("# nothing\n", "has no key; add a line"),
        ("a b c\n", "line 1: expected KEY"),
        ("k\nk other\n", "line 2: the file has this key twice"),
        ("a\nb\0\n", "line 2: the key has characters other than printable ASCII"),
        ("a\nschlüssel\n", "line 2: the key has characters other than printable ASCII"),
        ("a\rb\n", "line 1: the key has characters other than printable ASCII"),
        ("a\u2028b\n", "line 1: the key has characters other than printable ASCII"),
        ("a b\0\n", r"line 1: the name 'b\\x00' is not"),
        (f"a {'b' * 65}\n", "line 1: the name 'bbb.*64 printable"),
        (f"{'x' * limits.KEY_FILE_BYTES_MAX}\n", "has more than 1048576 bytes"),
        ("\n".join(f"key-{n} ann" for n in range(limits.KEYS_MAX + 1)), "line 1025: the file has more than 1024 keys"),
        ("a 12\n", "line 1: the name 12 has only digits"),
        ("a local\n", "line 1: local is reserved for clients without a key"),
        ("a anybody\n", "line 1: anybody is reserved"),
        ("a n573\nb n74615\n", "line 2: n74615 and n573 have the same owner number"),
        ("a key-2\nb\n", "line 2: two owners have the name key-2. Give one of these keys"),
    ],
)
def test_bad_key_files(tmp_path: Path, text: str, part: str) -> None:
    with pytest.raises(KeyFileError, match=part):
        read_keys(key_file(tmp_path, text))


def test_an_owner_is_the_name_and_without_one_the_key(tmp_path: Path) -> None:
    def owners(text: str, *keys: str) -> list[int]:
        ring = read_keys(key_file(tmp_path, text))
        return [ring.caller(f"Bearer {key}", None).owner for key in keys]

    [before] = owners("old ann\n", "old")
    assert owners("new ann admin\nold ann\n", "new", "old") == [before, before]
    [other, bare] = owners("old bob\nnew\n", "old", "new")
    assert len({before, other, bare, 0}) == 4
    assert owners("# moved\nold bob\n\nnew\n", "new") == [bare]
    assert 0 not in {owner_of(None, str(n)) for n in range(1000)}


def test_the_number_of_a_key_without_a_name_tells_nothing_about_the_key(tmp_path: Path) -> None:
    """Without the salt, the number would be the beginning of the key's SHA-256, with which a guessed key could be
    checked.
    """
    salt = salt_of(tmp_path)
    assert (tmp_path / "key-salt").stat().st_mode & 0o777 == 0o600 and len(salt) == 32
    assert salt_of(tmp_path) == salt and [path.name for path in tmp_path.iterdir()] == ["key-salt"]
    (tmp_path / "other").mkdir()
    salts = [salt, salt_of(tmp_path / "other"), salt_of(None), b""]
    (tmp_path / "key-salt").write_bytes(b"")
    assert len(salt_of(tmp_path)) == 32, "a crash before the salt was written leaves no salt"
    assert salt_of(None) == salts[2], "the same when keys are read again"
    path = key_file(tmp_path, "short\nlong ann\n")
    rings = [read_keys(path, partial(bytes, one)) for one in salts]
    assert len({ring.owner_by_name("key-1") for ring in rings}) == 4
    assert len({ring.owner_by_name("ann") for ring in rings}) == 1
    (tmp_path / "key-salt").write_bytes(b"short")
    with pytest.raises(KeyFileError, match="key-salt is damaged"):
        salt_of(tmp_path)
    with pytest.raises(KeyFileError, match="cannot create or read"):
        salt_of(tmp_path / "nowhere")


def test_only_a_key_without_a_name_needs_the_salt(tmp_path: Path) -> None:
    path = key_file(tmp_path, "long ann\nother bob\n")
    assert keys_of(path, tmp_path / "nowhere").n_owners == 2
    with pytest.raises(KeyFileError, match="key-salt"):
        keys_of(key_file(tmp_path, "long ann\nbare\n"), tmp_path / "nowhere")


def test_a_salt_that_exists_is_only_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The salt may have been restored from a backup, on a file system that is mounted read-only."""
    salt = salt_of(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("os.open", refuse)
    assert salt_of(tmp_path) == salt


def test_the_salt_needs_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems, such as exFAT, have no hard links."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", refuse)
    assert len(salt_of(tmp_path)) == 32


def test_names_and_numbers_of_owners(tmp_path: Path) -> None:
    keys = read_keys(key_file(tmp_path))
    assert keys.n_owners == 3 and len(keys) == 3
    assert keys.name_of(OWNERS[ANN]) == "ann" and keys.owner_by_name("ann") == OWNERS[ANN]
    assert keys.name_of(OWNERS[BOB]) == "key-4" and keys.owner_by_name("key-4") == OWNERS[BOB]
    assert keys.name_of(0) == "local" and keys.owner_by_name("local") == 0
    assert keys.name_of(1) is None and keys.owner_by_name("x") is None
    assert KeyRing().n_owners == 1 and KeyRing().name_of(0) == "local"


def test_without_keys_users_are_owners() -> None:
    ring, own = KeyRing(), os.geteuid()
    nobody_known = caller_of(None)
    callers = [caller_of(user) for user in (own, 1000 + own, 2000 + own, None)]
    assert not any(caller.is_admin for caller in callers)
    assert len({caller.owner for caller in callers}) == 4 and callers[0].owner == 0
    for caller in callers:
        assert ring.name_of(caller.owner) == caller.name and ring.owner_by_name(caller.name) == caller.owner
    assert caller_of(2**32 - 1) == caller_of(2**32 - 2) == nobody_known
    for name in ("uid-", "uid-x", "uid--1", "uid-١", "uid-" + "9" * 5000, "alice"):
        assert ring.owner_by_name(name) is None


def test_root_is_an_owner_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root's user id, 0, is the owner number of the unix socket. Proxies run as root, and their clients must not get
    the sessions of that owner.
    """
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    root, own, other = caller_of(0), caller_of(1000), caller_of(1001)
    assert len({root.owner, own.owner, other.owner, caller_of(None).owner}) == 4
    assert (root.name, KeyRing().owner_by_name("uid-0"), KeyRing().name_of(root.owner)) == (
        "uid-0",
        root.owner,
        "uid-0",
    )
    assert KeyRing().owner_by_name("uid-1000") == own.owner == 0


def test_short_keys_are_named(tmp_path: Path) -> None:
    assert read_keys(key_file(tmp_path, f"{'k' * 15} ann\n{'k' * 16} bob\nk\n")).guessable() == ["ann", "key-3"]


def test_a_key_file_must_be_private(tmp_path: Path) -> None:
    path = key_file(tmp_path)
    tmp_path.chmod(0o755)
    read_keys(path)
    path.chmod(0o640)
    read_keys(path)
    path.chmod(0o644)
    with pytest.raises(KeyFileError, match=r"has mode 0644: other users have access; use: chmod 640 "):
        read_keys(path)
    with pytest.raises(KeyFileError, match="cannot read .*none: No such file"):
        read_keys(tmp_path / "none")


def test_a_key_file_is_a_file(tmp_path: Path) -> None:
    """A link to a file is allowed, because containers use such links. A pipe is refused, because reading it would
    wait.
    """
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "link").symlink_to(key_file(tmp_path))
    descriptors = os.listdir("/proc/self/fd")
    for name in ("pipe", "."):
        with pytest.raises(KeyFileError, match="not a regular file|Is a directory"):
            read_keys(tmp_path / name)
    assert len(os.listdir("/proc/self/fd")) == len(descriptors)  # each SIGHUP reads the file
    assert len(read_keys(tmp_path / "link")) == 3
    (tmp_path / "keys").write_bytes(b"a\nb\xff\n")
    with pytest.raises(KeyFileError, match="line 2 is not valid UTF-8"):
        read_keys(tmp_path / "keys")


# --- keys over HTTP --------------------------------------------------------------------------------------------------


@pytest.fixture
async def locked(serve: Serve, tmp_path: Path) -> Daemon:
    return await serve(api_key_file=key_file(tmp_path))


async def test_a_key_is_needed(locked: Daemon) -> None:
    for path in ("/v1/models", "/metrics", "/v1/sessions", "/props"):
        answer = await locked.ask("GET", path)
        assert answer.status == 401 and answer.error["code"] == "invalid_api_key"
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert (await locked.ask("GET", path, headers=bearer(ANN))).status == 200
    assert (await locked.ask("POST", "/v1/chat/completions", chat())).status == 401


async def test_probes_need_no_key(locked: Daemon) -> None:
    for path in ("/live", "/health", "/ready", "/v1/health", "/openapi.json"):
        assert (await locked.ask("GET", path)).status == 200


async def test_sessions_of_different_keys_never_meet(locked: Daemon) -> None:
    for key in (ANN, BOB):
        answer = await locked.ask("POST", "/v1/chat/completions", chat("hi", session_id="same"), headers=bearer(key))
        assert answer.json["session"]["session_reset_reason"] == "new"
    for key, name in ((ANN, "ann"), (BOB, "key-4")):
        data = (await locked.ask("GET", "/v1/sessions", headers=bearer(key))).json["data"]
        owner = locked.state.keys.owner_by_name(name)
        assert [(session["id"], session["owner"]) for session in data] == [("same", owner)]
    await locked.ask("POST", "/v1/chat/completions", chat("hi", session_id="only-bob"), headers=bearer(BOB))
    answer = await locked.ask("GET", "/v1/sessions/only-bob", headers=bearer(ANN))
    assert answer.status == 404 and answer.error["code"] == "session_not_found"
    for method, path, was_there in (("DELETE", "", "deleted"), ("POST", "/reset", "existed")):
        answer = await locked.ask(method, f"/v1/sessions/only-bob{path}", headers=bearer(ANN))
        assert answer.json[was_there] is False
    kept = await locked.ask("GET", "/v1/sessions/only-bob", headers=bearer(BOB))
    assert kept.json["tokens"] > 0


async def test_an_admin_sees_all_and_must_name_the_owner(locked: Daemon) -> None:
    for key in (ANN, BOB):
        await locked.ask("POST", "/v1/chat/completions", chat("hi", session_id="same"), headers=bearer(key))
    answer = await locked.ask("GET", "/v1/sessions/same", headers=bearer(ROOT))
    assert answer.status == 409 and answer.error["code"] == "ambiguous_session"
    message = answer.error["message"]
    assert "ann" in message and "key-4" in message and "?owner=NAME" in message and "--owner NAME" in message
    found = (await locked.ask("GET", "/v1/sessions/same?owner=key-4", headers=bearer(ROOT))).json
    bob = locked.state.keys.owner_by_name("key-4")
    assert (found["owner"], found["owner_name"]) == (bob, "key-4")
    path = f"/v1/sessions/same?owner={OWNERS[ANN]}"
    assert (await locked.ask("GET", "/v1/sessions/same?owner=ann", headers=bearer(ROOT))).json["owner"] == OWNERS[ANN]
    assert (await locked.ask("DELETE", path, headers=bearer(ROOT))).status == 200
    assert (await locked.ask("GET", "/v1/sessions/same", headers=bearer(ROOT))).json["owner"] == bob
    refused = await locked.ask("GET", "/v1/sessions/same?owner=x", headers=bearer(ROOT))
    assert refused.status == 400 and "'x' is neither an owner's name nor a number" in refused.error["message"]


async def test_names_of_owners_are_for_those_who_may_know_them(locked: Daemon) -> None:
    await locked.ask("POST", "/v1/chat/completions", chat("hi", session_id="a"), headers=bearer(ANN))
    answers = [await locked.ask("GET", f"/v1/sessions/a?owner={name}", headers=bearer(BOB)) for name in ("ann", "x")]
    assert [answer.status for answer in answers] == [400, 400]
    assert answers[0].error["message"] == answers[1].error["message"].replace("'x'", "'ann'")
    assert (await locked.ask("GET", "/v1/sessions/a?owner=ann", headers=bearer(ANN))).json["owner_name"] == "ann"


async def test_another_key_of_the_same_name_finds_the_sessions(serve: Serve, tmp_path: Path) -> None:
    keys = key_file(tmp_path, f"{ANN} ann\n")
    daemon = await serve(api_key_file=keys)
    await daemon.ask("POST", "/v1/chat/completions", chat("hi", session_id="a"), headers=bearer(ANN))
    keys.write_text(f"{BOB} ann\n{ROOT} root admin\n")
    reload_keys(daemon.state)
    assert (await daemon.ask("GET", "/v1/sessions/a", headers=bearer(ANN))).status == 401
    assert (await daemon.ask("GET", "/v1/sessions/a", headers=bearer(BOB))).json["owner_name"] == "ann"
    keys.write_text(f"{ROOT} root admin\n")
    reload_keys(daemon.state)
    found = (await daemon.ask("GET", "/v1/sessions/a", headers=bearer(ROOT))).json
    assert (found["owner"], found["owner_name"]) == (OWNERS[ANN], None)


async def test_the_unix_socket_is_admin(locked: Daemon) -> None:
    await locked.ask("POST", "/v1/chat/completions", chat("hi", session_id="a"), headers=bearer(ANN))
    assert [s["id"] for s in (await locked.ask("GET", "/v1/sessions", local=True)).json["data"]] == ["a"]
    assert (await locked.ask("DELETE", "/v1/sessions/a", local=True)).status == 200
    assert (await locked.ask("POST", "/v1/chat/completions", chat(), local=True)).status == 200


async def test_holders_of_other_keys_are_only_counted(serve: Serve, tmp_path: Path) -> None:
    daemon = await serve(api_key_file=key_file(tmp_path), max_sessions=2, capacity_policy="refuse")
    for key, name in ((ANN, "anns"), (BOB, "bobs")):
        await daemon.ask("POST", "/v1/chat/completions", chat(session_id=name), headers=bearer(key))
    answer = await daemon.ask("POST", "/v1/chat/completions", chat(session_id="third"), headers=bearer(ANN))
    assert answer.status == 429
    assert "anns" in answer.error["message"] and "bobs" not in answer.error["message"]
    assert "1 of other owners" in answer.error["message"]


async def test_one_key_leaves_entries_and_pins_to_others(serve: Serve, tmp_path: Path) -> None:
    """One of three owners gets at most 6 of 8 entries, and at most 4 of 6 pins."""
    daemon = await serve(api_key_file=key_file(tmp_path), max_sessions=8, capacity_policy="refuse")

    async def say(key: str, name: str) -> Answer:
        body = chat(f"talk of {name}", session_id=name)
        return await daemon.ask("POST", "/v1/chat/completions", body, headers=bearer(key))

    async def pin(key: str, name: str) -> Answer:
        return await daemon.ask("POST", f"/v1/sessions/{name}/pin", {"pinned": True}, headers=bearer(key))

    assert [(await say(ANN, f"s{number}")).status for number in range(6)] == [200] * 6
    answer = await say(ANN, "more")
    assert answer.status == 429 and answer.error["code"] == "capacity_exhausted"
    assert "8 session entries, which is 6," in answer.error["message"] and "s0" in answer.error["message"]
    assert [(await pin(ANN, f"s{number}")).status for number in range(4)] == [200] * 4
    answer = await pin(ANN, "s4")
    assert answer.status == 429 and answer.error["code"] == "pins_exhausted"
    assert "6" in answer.error["message"] and "4" in answer.error["message"]
    for name in ("bobs", "other"):
        assert (await say(BOB, name)).status == 200 and (await pin(BOB, name)).status == 200


async def test_pinned_sessions_of_one_key_lock_nobody_out(serve: Serve, tmp_path: Path) -> None:
    daemon = await serve(api_key_file=key_file(tmp_path), max_sessions=2, max_parked=2, capacity_policy="park")
    n_pinned = 0
    for number in range(4):
        name = f"s{number}"
        body = chat(f"talk {number}", session_id=name)
        await daemon.ask("POST", "/v1/chat/completions", body, headers=bearer(ANN))
        pin = await daemon.ask("POST", f"/v1/sessions/{name}/pin", {"pinned": True}, headers=bearer(ANN))
        n_pinned += pin.status == 200
    assert n_pinned == 2  # 3 of 4 entries can be pinned, but not all by one owner
    answer = await daemon.ask("POST", "/v1/chat/completions", chat(session_id="bobs"), headers=bearer(BOB))
    assert answer.status == 200


# --- whose request it was --------------------------------------------------------------------------------------------


def request_lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [vars(record)["fields"] for record in caplog.records if record.getMessage() == "request"]


async def test_the_log_says_where_a_refused_request_came_from(locked: Daemon, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "llmd")
    await locked.ask("GET", "/v1/models")
    await locked.ask("GET", "/v1/models", headers={"Host": "evil.example"})
    await locked.ask("GET", "/v1/models", headers=bearer(ANN))
    [no_key, no_host] = request_lines(caplog)
    assert (no_key["status"], no_key["error"]) == (401, "invalid_api_key")
    assert (no_host["status"], no_host["error"]) == (403, "forbidden_host")
    for line in (no_key, no_host):
        host, _, port = str(line["client"]).rpartition(":")
        assert host == "127.0.0.1" and 0 < int(port) < 65536


async def test_the_log_says_what_a_prompt_that_does_not_fit_asked_for(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """Some clients do not show this error, so that a user can find it only in the log."""
    daemon = await serve(ctx_size=512)
    caplog.set_level("INFO", "llmd")
    await daemon.refused(chat(" the of" * 1000, session_id="s"))
    await daemon.refused(chat("x" * 500_000, session_id="s"))
    await daemon.refused(chat(temperature=101))
    by_tokens, by_bytes, by_value = request_lines(caplog)
    for line in (by_tokens, by_bytes):
        assert (line["error"], line["param"]) == ("context_length_exceeded", "messages")
        assert (line["session"], line["identity"], line["context_tokens"]) == ("s", "session_id", 512)
    assert isinstance(by_tokens["requested_tokens"], int) and by_tokens["requested_tokens"] > 512
    assert isinstance(by_bytes["requested_tokens"], int) and by_bytes["requested_tokens"] > 512
    assert (by_value["error"], by_value["param"]) == ("invalid_value", "temperature")


async def test_the_number_of_a_request_is_in_its_answer_and_in_its_line(
    locked: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "llmd")
    own = {"X-Request-Id": "4711/a"}
    given = [{}, own, {"X-Request-Id": "no number"}, {"X-Request-Id": "a" * 129}, {"Anthropic-Version": "2023-06-01"}]
    answers = [await locked.ask("POST", "/v1/chat/completions", chat(), headers=one, local=True) for one in given]
    answers.append(await locked.ask("GET", "/v1/models"))  # refused: no key
    heads = [CIMultiDict(answer.headers) for answer in answers]
    numbers = [head["X-Request-Id"] for head in heads]
    assert [line["request_id"] for line in request_lines(caplog)] == numbers
    assert [number == "4711/a" for number in numbers] == [False, True, False, False, False, False]
    assert all(number == "4711/a" or re.fullmatch("req_[0-9a-f]{24}", number) for number in numbers)
    assert len(set(numbers)) == len(numbers)
    assert [head.get("Request-Id") for head in heads] == [None, None, None, None, numbers[4], None]


async def test_the_log_says_which_process_used_the_unix_socket(
    locked: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "llmd")
    await locked.ask("POST", "/v1/chat/completions", chat(), local=True)
    [line] = request_lines(caplog)
    assert (line["client"], line["caller"], line["uid"]) == ("unix", "local", os.geteuid())
    assert "pid" in line


# --- browsers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "name"),
    [("a:80", "a"), ("[::1]:80", "::1"), ("A.b.", "a.b"), ("127.0.0.1", "127.0.0.1"), (" x ", "x"), ("", "")],
)
def test_host_name(host: str, name: str) -> None:
    assert host_name(host) == name


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "localhost:8000", "app.localhost", "127.0.0.1:1", "[::1]:9", "10.0.0.7",
        "host.docker.internal:8000", "Gateway.Docker.Internal", "host.containers.internal.",
    ],
)  # fmt: skip
def test_own_hosts(host: str) -> None:
    check_host(host, ())


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.nip.io:8000",
        "docker.internal",
        "x.host.docker.internal",
        "host.docker.internal.example",
    ],
)
def test_foreign_hosts(host: str | None) -> None:
    with pytest.raises(ApiError) as caught:
        check_host(host, ("other.example",))
    assert (caught.value.code, caught.value.status) == ("forbidden_host", 403)
    check_host(host, ("*",))


@pytest.mark.parametrize("allowed", ["MyHost", "myhost.", "MYHOST:8000", " myhost "])
@pytest.mark.parametrize("host", ["myhost", "MyHost:8000", "MYHOST."])
def test_case_and_port_of_an_allowed_host_do_not_matter(allowed: str, host: str) -> None:
    check_host(host, ("other", allowed))


@pytest.mark.parametrize("host", ["", None, ":80"])
def test_no_name_is_nobodys(host: str | None) -> None:
    with pytest.raises(ApiError):
        check_host(host, ("::1",))


@pytest.mark.parametrize("allowed", ["http://localhost:3000/", "HTTP://LocalHost:3000", " http://localhost:3000"])
def test_case_and_slash_of_an_allowed_origin_do_not_matter(allowed: str) -> None:
    assert check_origin("http://localhost:3000", "localhost:8000", (allowed,)) is True
    with pytest.raises(ApiError):
        check_origin("http://localhost:30", "localhost:8000", (allowed,))


def test_origins() -> None:
    assert check_origin(None, "localhost:8000", ()) is False
    assert check_origin("http://localhost:8000", "localhost:8000", ()) is False
    assert check_origin("http://localhost:3000", "localhost:8000", ("http://localhost:3000",)) is True
    assert check_origin("https://any.example", "localhost:8000", ("*",)) is True
    for origin in ("null", "http://localhost:3000", "https://evil.example", ""):
        with pytest.raises(ApiError) as caught:
            check_origin(origin, "localhost:8000", ())
        assert caught.value.code == "forbidden_origin"


async def test_a_rebound_name_is_refused(daemon: Daemon) -> None:
    answer = await daemon.ask("GET", "/v1/models", headers={"Host": "evil.example"})
    assert answer.status == 403 and answer.error["code"] == "forbidden_host"
    assert (await daemon.ask("GET", "/v1/models", headers={"Host": "evil.example"}, local=True)).status == 200


async def test_pages_of_other_sites_are_refused(daemon: Daemon) -> None:
    answer = await daemon.ask("POST", "/v1/chat/completions", chat(), headers={"Origin": "https://evil.example"})
    assert answer.status == 403 and answer.error["code"] == "forbidden_origin"
    assert "Access-Control-Allow-Origin" not in answer.headers


async def test_allowed_pages_get_cors_headers(serve: Serve) -> None:
    page = "http://localhost:3000"
    daemon = await serve(allowed_origins=(page,))
    answer = await daemon.ask("POST", "/v1/chat/completions", chat(stream=True), headers={"Origin": page})
    assert answer.status == 200 and answer.headers["Access-Control-Allow-Origin"] == page
    preflight = {"Origin": page, "Access-Control-Request-Method": "POST"}
    answer = await daemon.ask("OPTIONS", "/v1/chat/completions", headers=preflight)
    assert answer.status == 204 and "POST" in answer.headers["Access-Control-Allow-Methods"]
    refused = await daemon.ask("OPTIONS", "/v1/chat/completions", headers={**preflight, "Origin": "http://x"})
    assert refused.status == 403
