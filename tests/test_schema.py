"""Requests that are generated from /openapi.json. No answer may be a server error, or have a form that the description
does not allow.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from llmd.http.endpoints.openapi import document
from llmd.http.framing import EVENTS
from llmd.routes import ENDPOINTS
from tests.serving import SETTLE_S, chat, config_of, serving

N_EXAMPLES = 10
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
SESSION = "there"
ENDING = tuple(endpoint for endpoint in ENDPOINTS if endpoint.media != EVENTS.media)
"""The endpoints whose answers end. test_feed.py tests the other one."""
SCHEMA = schemathesis.openapi.from_dict(json.loads(document(ENDING)))
OF_SESSIONS = SCHEMA.include(path_regex="/v1/sessions/{id}.*")
LENGTHS = {
    "/v1/chat/completions": "max_tokens",
    "/v1/completions": "max_tokens",
    "/v1/responses": "max_output_tokens",
    "/completion": "n_predict",
    "/infill": "n_predict",
}
"""The parameter of each endpoint that limits the length of the answer."""
BOUNDED = settings(
    max_examples=N_EXAMPLES, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


async def serve(directory: Path, address: Future[str], stopped: threading.Event) -> None:
    async with serving(config_of(directory, log_level="error")) as daemon:
        address.set_result(daemon.url)
        await asyncio.to_thread(stopped.wait)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A daemon over TCP, in a thread of its own, because schemathesis blocks. At the end, every request must have
    ended.
    """
    address: Future[str] = Future()
    stopped = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(serve(tmp_path_factory.mktemp("schema"), address, stopped))
        except BaseException as error:
            failures.append(error)
            raise

    thread = threading.Thread(target=run)
    thread.start()
    yield address.result(SETTLE_S)
    stopped.set()
    thread.join(SETTLE_S)
    assert not thread.is_alive() and failures == []


def operations(schema: Any) -> set[tuple[str, str]]:
    return {(found.ok().method.upper(), found.ok().path) for found in schema.get_all_operations()}


def test_everything_is_asked() -> None:
    all_of_them = {(endpoint.method, endpoint.path) for endpoint in ENDING}
    assert operations(SCHEMA) == all_of_them
    assert operations(OF_SESSIONS) == {one for one in all_of_them if "/sessions/{id}" in one[1]}


@SCHEMA.parametrize()
@BOUNDED
def test_answers_are_those_described(case: Any, url: str) -> None:
    name = LENGTHS.get(case.path)
    if name and isinstance(case.body, dict):
        case.body.setdefault(name, 2)
    case.call_and_validate(base_url=url, checks=CHECKS, timeout=SETTLE_S)


@OF_SESSIONS.parametrize()
@BOUNDED
def test_answers_about_a_session_that_is_there(case: Any, url: str) -> None:
    asked = requests.post(f"{url}/v1/chat/completions", json=chat(session_id=SESSION, max_tokens=1), timeout=SETTLE_S)
    assert asked.status_code == 200
    case.path_parameters = {"id": SESSION}
    case.call_and_validate(base_url=url, checks=CHECKS, timeout=SETTLE_S)
