"""Lists of models over HTTP, and downloads with Ollama's API: who sees and may do what."""

from __future__ import annotations

import fcntl
import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from llmd.ctl.client import _UnixConnection
from tests.local_hub import LocalHub
from tests.serving import Json
from tests.test_models_hub import MIB
from tests.test_process import Process, Start


@pytest.fixture
def process(tmp_path: Path, hub: LocalHub, model: bytes) -> Iterator[Process]:
    """A daemon with a simulated model, and a folder with one other model."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "Tiny-Q8_0.gguf").write_bytes(model)
    (tmp_path / "models" / "broken.gguf").write_bytes(b"GGUF")
    start = Start(tmp_path)
    environment = {"HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "hf"), "HF_ENDPOINT": hub.url}
    yield start("--models-dir", str(tmp_path / "models"), **environment)
    start.close()


@contextmanager
def local(process: Process, method: str, path: str, body: Json | None = None) -> Iterator[http.client.HTTPResponse]:
    """Sends a request over the unix socket, whose callers are administrators."""
    connection = _UnixConnection(str(process.socket), 100)
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None)
        response = connection.getresponse()
        with response:
            yield response
    finally:
        connection.close()


def answer(process: Process, method: str, path: str, body: Json | None = None, status: int = 200) -> Any:
    with local(process, method, path, body) as response:
        assert response.status == status
        return json.loads(response.read())


def pulled(process: Process, name: str) -> list[Json]:
    with local(process, "POST", "/api/pull", {"model": name}) as response:
        assert response.status == 200 and response.headers["Content-Type"] == "application/x-ndjson"
        return [json.loads(line) for line in response.read().splitlines()]


def test_administrators_see_the_other_models(process: Process, model: bytes) -> None:
    [served] = process.ask("GET", "/v1/models")[1]["data"]
    assert served["loaded"] is True and served["size"] == served["meta"]["size"]
    listed = answer(process, "GET", "/v1/models")["data"]
    assert [one["id"] for one in listed] == [served["id"], "Tiny-Q8_0"]  # the served model is the first
    assert {**listed[1], "created": 0} == {
        "id": "Tiny-Q8_0",
        "object": "model",
        "created": 0,
        "owned_by": "llmd",
        "max_model_len": 4096,
        "meta": None,
        "size": len(model),
        "loaded": False,
    }
    assert len(process.ask("GET", "/api/tags")[1]["models"]) == 1
    tagged = answer(process, "GET", "/api/tags")["models"]
    assert [one["name"] for one in tagged] == [served["id"], "Tiny-Q8_0"]
    assert tagged[1]["details"]["quantization_level"] == "Q8_0" and tagged[1]["details"]["family"] == "qwen3"
    assert len(answer(process, "GET", "/api/ps")["models"]) == 1
    shown = answer(process, "POST", "/api/show", {"model": "Tiny-Q8_0"})
    assert shown["model_info"]["qwen3.context_length"] == 4096 and shown["capabilities"] == ["completion"]
    assert process.ask("POST", "/api/show", {"model": "Tiny-Q8_0"})[1]["details"]["family"] == "sim"


def test_a_download_with_the_api_of_ollama(process: Process, hub: LocalHub, model: bytes) -> None:
    hub.add("ann/tiny", {"t-Q4_K_M.gguf": model})
    refused, error = process.ask("POST", "/api/pull", {"model": "hf.co/ann/tiny"})
    assert (refused, error["code"]) == (403, "admin_required") and hub.requests == []
    first, *progress, checking, writing, done = pulled(process, "hf.co/ann/tiny")
    assert [one["status"] for one in (first, checking, writing, done)] == [
        "pulling manifest",
        "verifying sha256 digest",
        "writing manifest",
        "success",
    ]
    digest = hub.repositories["ann/tiny"].sha256("t-Q4_K_M.gguf")
    assert {(one["status"], one["digest"], one["total"]) for one in progress} == {
        (f"pulling {digest[:12]}", f"sha256:{digest}", len(model))
    }
    completed = [one.get("completed", 0) for one in progress]
    assert completed == sorted(completed) and completed[-1] == len(model)
    tagged = answer(process, "GET", "/api/tags")["models"][-1]
    assert (tagged["name"], tagged["digest"], tagged["size"]) == ("ann/tiny:Q4_K_M", digest, len(model))
    again = answer(process, "POST", "/api/pull", {"name": "ann/tiny:Q4_K_M", "stream": False, "insecure": True})
    assert again == {"status": "success"} and len(hub.downloads) == 1


def test_a_download_that_fails(process: Process, hub: LocalHub) -> None:
    sentence = "has no such repository: check the spelling, or set HF_TOKEN if it is private."
    *_, last = pulled(process, "no/thing")
    assert last["code"] == "model_unavailable" and last["error"].endswith(sentence)
    error = answer(process, "POST", "/api/pull", {"model": "no/thing", "stream": False}, 502)
    assert error["error"].endswith(sentence)
    for body, code in (({}, "missing_parameter"), ({"model": "llama3"}, "invalid_value")):
        assert answer(process, "POST", "/api/pull", body, 400)["code"] == code
    assert process.ask("GET", "/health")[0] == 200


def test_a_client_that_leaves_ends_its_download(process: Process, hub: LocalHub, model: bytes, tmp_path: Path) -> None:
    hub.add("ann/tiny", {"t-Q4_K_M.gguf": model})
    hub.breaks_after, hub.gate = [2 * MIB], threading.Event()
    with local(process, "POST", "/api/pull", {"model": "ann/tiny"}) as response:
        while json.loads(response.readline()).get("completed", 0) < MIB:
            pass
    process.wait_for("request")  # the handler has ended
    hub.gate.set()
    partial = next((tmp_path / "hf").rglob("*.incomplete"))
    with partial.open("rb") as content:
        fcntl.flock(content, fcntl.LOCK_EX)  # the thread that downloads holds this lock until it ends
    assert MIB <= partial.stat().st_size < len(model)
    assert pulled(process, "ann/tiny")[-1] == {"status": "success"}
    assert not partial.exists()


def test_a_request_never_downloads(process: Process, hub: LocalHub) -> None:
    body = {"model": "ann/tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
    assert process.ask("POST", "/v1/chat/completions", body)[0] == 200
    assert process.ask("POST", "/api/chat", {**body, "stream": False, "options": {"num_predict": 2}})[0] == 200
    assert hub.requests == []
