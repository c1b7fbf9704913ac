"""API keys, owners, Host and Origin."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmd.access import KeyFileError, check_host, check_origin, host_name, owner_of, read_keys
from llmd.errors import ApiError
from tests.conftest import Serve
from tests.serving import Daemon, chat

ANN, BOB, ROOT = "sk-ann-1", "sk-bob-2", "sk-root-3"


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
    assert (ann.name, ann.is_admin, ann.owner) == ("ann", False, owner_of(ANN))
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


@pytest.mark.parametrize(
    ("text", "part"),
    [("", "holds no key"), ("# nothing\n", "holds no key"), ("a b c\n", "line 1"), ("k\nk other\n", "line 2")],
)
def test_bad_key_files(tmp_path: Path, text: str, part: str) -> None:
    with pytest.raises(KeyFileError, match=part):
        read_keys(key_file(tmp_path, text))


def test_a_key_file_must_be_private(tmp_path: Path) -> None:
    path = key_file(tmp_path)
    path.chmod(0o644)
    with pytest.raises(KeyFileError, match="chmod 600"):
        read_keys(path)
    with pytest.raises(KeyFileError, match="cannot read"):
        read_keys(tmp_path / "none")


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
    for path in ("/health", "/ready", "/v1/health", "/openapi.json"):
        assert (await locked.ask("GET", path)).status == 200


async def test_sessions_of_different_keys_never_meet(locked: Daemon) -> None:
    for key in (ANN, BOB):
        answer = await locked.ask("POST", "/v1/chat/completions", chat("hi", session_id="same"), headers=bearer(key))
        assert answer.json["session"]["session_reset_reason"] == "new"
    for key in (ANN, BOB):
        data = (await locked.ask("GET", "/v1/sessions", headers=bearer(key))).json["data"]
        assert [(session["id"], session["owner"]) for session in data] == [("same", owner_of(key))]
    await locked.ask("POST", "/v1/chat/completions", chat("hi", session_id="only-bob"), headers=bearer(BOB))
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/reset")):
        answer = await locked.ask(method, f"/v1/sessions/only-bob{path}", headers=bearer(ANN))
        assert answer.status == 404 and answer.error["code"] == "session_not_found"


async def test_an_admin_sees_all_and_must_name_the_owner(locked: Daemon) -> None:
    for key in (ANN, BOB):
        await locked.ask("POST", "/v1/chat/completions", chat("hi", session_id="same"), headers=bearer(key))
    answer = await locked.ask("GET", "/v1/sessions/same", headers=bearer(ROOT))
    assert answer.status == 409 and answer.error["code"] == "ambiguous_session"
    assert str(owner_of(ANN)) in answer.error["message"]
    path = f"/v1/sessions/same?owner={owner_of(ANN)}"
    assert (await locked.ask("DELETE", path, headers=bearer(ROOT))).status == 200
    assert (await locked.ask("GET", "/v1/sessions/same", headers=bearer(ROOT))).json["owner"] == owner_of(BOB)
    assert (await locked.ask("GET", "/v1/sessions/same?owner=x", headers=bearer(ROOT))).status == 400


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
    assert "1 of other API keys" in answer.error["message"]


# --- browsers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "name"),
    [("a:80", "a"), ("[::1]:80", "::1"), ("A.b.", "a.b"), ("127.0.0.1", "127.0.0.1"), (" x ", "x"), ("", "")],
)
def test_host_name(host: str, name: str) -> None:
    assert host_name(host) == name


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "app.localhost", "127.0.0.1:1", "[::1]:9", "10.0.0.7"])
def test_own_hosts(host: str) -> None:
    check_host(host, ())


@pytest.mark.parametrize("host", [None, "", "evil.example", "localhost.evil.example", "127.0.0.1.nip.io:8000"])
def test_foreign_hosts(host: str | None) -> None:
    with pytest.raises(ApiError) as caught:
        check_host(host, ("other.example",))
    assert (caught.value.code, caught.value.status) == ("forbidden_host", 403)
    check_host(host, ("*",))


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
