"""/health, /ready, /openapi.json, /v1/models, /props, and addresses that do not exist."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path

import pytest

from llmd import __version__
from llmd.core import limits
from llmd.core.errors import CODES
from llmd.http.framing import EVENTS
from llmd.process.progress import Heartbeat
from llmd.routes import ENDPOINTS
from tests.conftest import Serve
from tests.serving import SETTLE_S, Daemon, Json


async def test_live(daemon: Daemon) -> None:
    answer = await daemon.ask("GET", "/live")
    assert answer.json == {"status": "ok", "version": __version__, "pid": os.getpid()}


@pytest.mark.parametrize("path", ["/health", "/v1/health"])
async def test_health_is_that_of_llama_server(daemon: Daemon, path: str) -> None:
    answer = await daemon.ask("GET", path)
    assert (answer.status, answer.json) == (200, {"status": "ok"})


async def test_ready(daemon: Daemon) -> None:
    answer = await daemon.ask("GET", "/ready")
    assert answer.status == 200 and answer.json["status"] == "ready"


async def test_not_ready_when_the_decode_thread_is_stuck(daemon: Daemon) -> None:
    times = iter([0.0, 0.0, limits.STALLED_AFTER_S])
    assert daemon.state.loaded_model is not None
    daemon.state.loaded_model.heartbeat = Heartbeat(lambda: (7, True), lambda: next(times))
    assert (await daemon.ask("GET", "/ready")).status == 200
    answer = await daemon.ask("GET", "/ready")
    assert answer.status == 503 and answer.json["status"] == "stalled"
    assert answer.json["seconds_without_progress"] == limits.STALLED_AFTER_S


def test_heartbeat() -> None:
    now, beats = 0.0, (1, True)
    heartbeat = Heartbeat(lambda: beats, lambda: now)
    assert heartbeat.stalled_for_s() == 0
    now = 5.0
    assert heartbeat.stalled_for_s() == 5
    beats = (2, True)
    assert heartbeat.stalled_for_s() == 0
    now, beats = 100.0, (2, False)  # waiting for work counts as progress
    assert heartbeat.stalled_for_s() == 0
    now, beats = 101.0, (2, True)
    assert heartbeat.stalled_for_s() == 1


async def test_models_and_props(daemon: Daemon) -> None:
    [model] = (await daemon.ask("GET", "/models")).json["data"]
    assert model["id"] == daemon.state.model_id
    assert model["meta"]["n_ctx"] == model["max_model_len"] == daemon.state.engine.info.n_ctx
    props = (await daemon.ask("GET", "/props")).json
    assert props["default_generation_settings"]["n_ctx"] == model["max_model_len"]


@pytest.mark.parametrize("name", ["whatever-a-request-calls-it", "Qwen/Qwen3-8B", "Qwen%2FQwen3-8B", "a/b/c/"])
async def test_the_model_under_any_name(daemon: Daemon, name: str) -> None:
    """Names are sent unescaped in the request line, because clients do not escape slashes."""
    [model] = (await daemon.ask("GET", "/models")).json["data"]
    for path in (f"/v1/models/{name}", f"/models/{name}"):
        reader, writer = await asyncio.open_unix_connection(str(daemon.config.socket))
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        async with asyncio.timeout(SETTLE_S):
            head, _, told = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        assert head.startswith(b"HTTP/1.1 200 ") and json.loads(told) == model


async def test_unknown_addresses(daemon: Daemon) -> None:
    answer = await daemon.ask("GET", "/v2/nothing")
    assert answer.status == 404 and answer.error["code"] == "not_found"
    answer = await daemon.ask("GET", "/v1/chat/completions")
    assert answer.status == 405 and answer.error["code"] == "method_not_allowed"
    assert answer.headers["Content-Type"].startswith("application/json")


@pytest.mark.parametrize("path", ["/live", "/health", "/ready", "/v1/models", "/metrics", "/openapi.json"])
async def test_head(daemon: Daemon, path: str) -> None:
    got, headed = [await daemon.ask(method, path) for method in ("GET", "HEAD")]
    assert headed.status == got.status == 200 and headed.body == b""
    assert headed.headers["Content-Type"] == got.headers["Content-Type"] and int(headed.headers["Content-Length"]) > 0


async def test_options_and_what_is_allowed(serve: Serve, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    keys.chmod(0o600)
    daemon = await serve(api_key_file=keys)
    key = {"Authorization": "Bearer secret"}
    for path, allow in (("/health", "GET, HEAD, OPTIONS"), ("/v1/sessions/x", "DELETE, GET, HEAD, OPTIONS"),
                        ("/v1/chat/completions", "OPTIONS, POST")):  # fmt: skip
        asked = await daemon.ask("OPTIONS", path)  # monitors have no key
        assert asked.status == 204 and asked.headers["Allow"] == allow
        refused = await daemon.ask("PATCH", path, headers=key)
        assert refused.status == 405 and refused.headers["Allow"] == allow
        assert refused.error["code"] == "method_not_allowed"
    assert (await daemon.ask("OPTIONS", "/nothing")).error["code"] == "not_found"
    assert (await daemon.ask("OPTIONS", "/health", headers={"Host": "evil.example"})).status == 403


# --- the description -------------------------------------------------------------------------------------------------


@pytest.fixture
async def description(daemon: Daemon) -> Json:
    return (await daemon.ask("GET", "/openapi.json")).json


def test_every_reference_leads_somewhere(description: Json) -> None:
    def references(node: object) -> list[str]:
        if isinstance(node, dict):
            own = [node["$ref"]] if "$ref" in node else []
            return own + [ref for value in node.values() for ref in references(value)]
        return [ref for value in node for ref in references(value)] if isinstance(node, list) else []

    found = references(description)
    assert len(found) > 20
    for reference in found:
        prefix, _, name = reference.rpartition("/")
        assert prefix == "#/components/schemas" and name in description["components"]["schemas"]


def test_every_endpoint_is_described(description: Json) -> None:
    described = {(method.upper(), path) for path, methods in description["paths"].items() for method in methods}
    assert described == {(endpoint.method, endpoint.path) for endpoint in ENDPOINTS}
    operations = [op for methods in description["paths"].values() for op in methods.values()]
    assert len({op["operationId"] for op in operations}) == len(operations)
    for path, methods in description["paths"].items():
        for operation in methods.values():
            named = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}
            assert named == set(re.findall(r"{(\w+)}", path))
            assert operation["summary"] and "200" in operation["responses"]


async def test_every_described_address_answers(daemon: Daemon) -> None:
    for endpoint in ENDPOINTS:
        for path in endpoint.spellings:
            method = "HEAD" if endpoint.media == EVENTS.media else endpoint.method  # such a stream has no end
            id = "app.js" if "/page/" in path else "x"  # a file that does not exist gets the 404 of unknown paths
            answer = await daemon.ask(method, path.replace("{id}", id))
            assert answer.status != 405 and (answer.status != 404 or answer.error["code"] != "not_found")


def test_every_refusal_is_described_where_it_can_be_met(description: Json) -> None:
    for endpoint in ENDPOINTS:
        responses = description["paths"][endpoint.path][endpoint.method.lower()]["responses"]
        told = {(int(status), code) for status, told in responses.items() for code in codes_in(told["description"])}
        wanted = {(endpoint.envelope.status(CODES[code].status), code) for code in endpoint.codes}
        assert told == {(status, code) for status, code in wanted if endpoint.unready is None or status != 503}
        assert "200" in responses and "default" not in responses
    assert {code for endpoint in ENDPOINTS for code in endpoint.codes} == set(CODES)


def codes_in(text: str) -> list[str]:
    return text.removeprefix("The code is one of: ").split(", ") if text.startswith("The code is one of: ") else []


def test_limits_are_described(description: Json) -> None:
    found = {limit["name"]: limit for limit in description["x-limits"]}
    assert len(found) == len(limits.TABLE) and found["stop"]["most"] == limits.STOP_STRINGS_MAX
    assert {limit["code"] for limit in found.values()} <= set(CODES)
    chat_request = description["components"]["schemas"]["ChatCompletionRequest"]["properties"]
    assert chat_request["messages"]["maxItems"] == limits.MESSAGES_MAX
    assert chat_request["stop"]["maxItems"] == limits.STOP_STRINGS_MAX
    assert chat_request["logit_bias"]["maxProperties"] == limits.LOGIT_BIASES_MAX
    assert chat_request["session_id"]["maxLength"] == limits.SESSION_ID_CHARS_MAX
