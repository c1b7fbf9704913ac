"""Unknown paths, unsupported methods and invalid request targets get the right status, and an error in our form."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Serve
from tests.serving import Daemon, chat
from tests.test_access import key_file
from tests.test_connections import connected, post, read_answer

REFUSED = {
    "GET /nothing": (404, "not_found"),
    "GET //health": (404, "not_found"),
    "GET /%zz": (404, "not_found"),
    "GET /health//": (404, "not_found"),
    "DELETE /health/": (405, "method_not_allowed"),
    "GET /v1/sessions/nobody/": (404, "session_not_found"),
    "POST /v1/v1/chat/completions": (404, "not_found"),
    "TRACE /": (405, "method_not_allowed"),
    "CONNECT localhost:443": (404, "not_found"),
    "OPTIONS /nothing": (404, "not_found"),
    "DELETE /health": (405, "method_not_allowed"),
    "GET /v1/chat/completions": (405, "method_not_allowed"),
    "GET *": (400, "invalid_http"),
    "GET nothing": (400, "invalid_http"),
    "GET http://[": (400, "invalid_http"),
    "GET /\xff\xfe": (400, "invalid_http"),
    "FOO /health": (400, "invalid_http"),
    f"GET /health?{'x' * 9000}": (431, "headers_too_large"),
    "GET /v1/sessions/%ff%fe": (404, "session_not_found"),
    "GET /v1/sessions/%": (404, "session_not_found"),
    "GET /v1/sessions/%0d%0a": (400, "invalid_session_id"),
    "GET /v1/sessions/a%2Fb": (404, "session_not_found"),
    "GET /v1/saved?owner=%ff": (400, "invalid_value"),
    "GET /v1/saved?owner=%zz&owner=1": (400, "invalid_value"),
}


def request(line: str) -> bytes:
    return f"{line} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode("latin-1")


@pytest.mark.parametrize(("line", "expected"), REFUSED.items(), ids=[line[:40] for line in REFUSED])
async def test_refused(daemon: Daemon, line: str, expected: tuple[int, str]) -> None:
    async with connected(daemon) as (reader, writer):
        writer.write(request(line))
        answer = await read_answer(reader)
        assert (answer.status, answer.error["code"]) == expected
        assert ("allow" in answer.headers) == (answer.status == 405)
        assert (answer.headers.get("connection") == "close") == (expected[1] in ("invalid_http", "headers_too_large"))


@pytest.mark.parametrize(
    ("path", "allowed"), [("*", "DELETE, GET, HEAD, OPTIONS, POST"), ("/health", "GET, HEAD, OPTIONS")]
)
async def test_options(daemon: Daemon, path: str, allowed: str) -> None:
    async with connected(daemon) as (reader, writer):
        writer.write(request(f"OPTIONS {path}"))
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    assert head.startswith("HTTP/1.1 204 ") and f"Allow: {allowed}\r\n" in head


@pytest.mark.parametrize(("path", "status"), [("/health", 200), ("/nothing", 404), ("/v1/chat/completions", 405)])
async def test_head_has_no_body(daemon: Daemon, path: str, status: int) -> None:
    """A body would be taken for the next answer."""
    async with connected(daemon) as (reader, writer):
        for _ in range(2):
            writer.write(request(f"HEAD {path}"))
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            assert head.startswith(f"HTTP/1.1 {status} ") and "Content-Length: " in head


async def test_a_long_query_is_no_hindrance(daemon: Daemon) -> None:
    async with connected(daemon) as (reader, writer):
        writer.write(request(f"GET /v1/sessions?{'x' * 7000}"))
        assert (await read_answer(reader)).status == 200


async def test_a_slash_behind_an_address_is_no_other(serve: Serve, tmp_path: Path) -> None:
    daemon = await serve(api_key_file=key_file(tmp_path, "secret-key-of-ann ann"))
    key = {"Authorization": "Bearer secret-key-of-ann"}
    for path in ("/health/", "/v1/health/", "/v1/"):
        assert (await daemon.ask("GET", path)).status == 200, "it needs no key either"
    assert (await daemon.ask("GET", "/v1/models/", headers=key)).json["object"] == "list"
    assert (await daemon.ask("POST", "/v1/chat/completions/", chat(session_id="a"), headers=key)).status == 200
    assert (await daemon.ask("GET", "/v1/sessions/a/", headers=key)).json["id"] == "a"
    answer = await daemon.ask("POST", "/v1/messages/", {}, headers=key)
    assert (answer.status, answer.json["type"]) == (400, "error")
    shown = (await daemon.ask("GET", "/metrics", headers=key)).body.decode()
    assert 'endpoint="/health/"' not in shown and 'endpoint="/health"' in shown


@pytest.mark.parametrize("path", ["/v1/v1/messages", "/v1/v1/v1/messages/count_tokens", "/v1/v1/chat/completions"])
async def test_a_prefix_that_came_twice_is_told(daemon: Daemon, path: str) -> None:
    answer = await daemon.ask("POST", path, chat())
    assert answer.status == 404 and answer.error["code"] == "not_found"
    assert "Remove /v1 from the client's base URL" in answer.error["message"]
    assert ("type" in answer.json) == ("messages" in path), "in the dialect's own form"


@pytest.mark.parametrize("length", ["99999999999", "9" * 30])
async def test_a_body_that_is_too_large_is_not_asked_for(daemon: Daemon, length: str) -> None:
    async with connected(daemon) as (reader, writer):
        writer.write(
            post(b"", "Expect: 100-continue").replace(b"Content-Length: 0", f"Content-Length: {length}".encode())
        )
        answer = await read_answer(reader)
    assert answer.error["code"] in ("request_too_large", "invalid_http")
