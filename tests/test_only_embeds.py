"""A model that can only compute embeddings: all other requests are refused in each dialect's form, and facts about the
model are right.
"""

from __future__ import annotations

import json

import pytest

from llmd.routes import ENDPOINTS
from tests.conftest import Serve
from tests.serving import Daemon, Json

MESSAGES: Json = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}


@pytest.fixture
async def encoder(serve: Serve) -> Daemon:
    return await serve(model="sim:none,embed=16", ctx_size=64)


async def test_embeddings_work_in_every_dialect(encoder: Daemon) -> None:
    made = (await encoder.ask("POST", "/v1/embeddings", {"input": ["a", "b"]})).json
    first, second = [one["embedding"] for one in made["data"]]
    assert (await encoder.ask("POST", "/api/embed", {"input": ["a", "b"]})).json["embeddings"] == [first, second]
    assert (await encoder.ask("POST", "/api/embeddings", {"prompt": "b"})).json == {"embedding": second}
    async with encoder.http.post(encoder.url + "/embedding", json={"content": "a"}) as response:
        assert await response.json() == [{"index": 0, "embedding": [first]}]


@pytest.mark.parametrize("path", [row.path for row in ENDPOINTS if row.generates])
async def test_nothing_is_generated(encoder: Daemon, path: str) -> None:
    """The request is refused before its body is received, because no body could change the answer."""
    for body in ({**MESSAGES, "session_id": "notes"}, {**MESSAGES, "stream": True}, {}):
        answer = await encoder.ask("POST", path, body)
        assert (answer.status, answer.code) == (400, "no_generation"), answer.body
        assert encoder.state.model_id.encode() in answer.body and b"/v1/embeddings" in answer.body
    assert (await encoder.ask("GET", "/v1/sessions")).json["data"] == []


async def test_there_is_room_for_no_session(encoder: Daemon) -> None:
    places = (await encoder.ask("GET", "/v1/sessions")).json["places"]
    assert {name: value for name, value in places.items() if name != "policy"} == dict.fromkeys(
        ("named", "named_used", "scratch", "parked", "parked_max", "dormant"), 0
    )
    assert (await encoder.ask("GET", "/props")).json["total_slots"] == 0
    assert json.loads((await encoder.ask("GET", "/slots")).body) == []
    assert (await encoder.metrics())["llmd_session_places"] == 0


@pytest.mark.parametrize(
    ("method", "verb", "body", "code"),
    [
        ("GET", "", None, "session_not_found"),
        ("GET", "/explain", None, "session_not_found"),
        ("POST", "/fork", {"session_id": "b"}, "session_not_found"),
        ("POST", "/park", None, "session_not_found"),
        ("POST", "/pin", {"pinned": True}, "session_not_found"),
        ("POST", "/rename", {"session_id": "b"}, "session_not_found"),
        ("POST", "/save", {"name": "x"}, "session_not_found"),
        ("POST", "/load", {"name": "x"}, "snapshot_not_found"),
    ],
)
async def test_a_session_is_never_there(encoder: Daemon, method: str, verb: str, body: Json | None, code: str) -> None:
    answer = await encoder.ask(method, f"/v1/sessions/notes{verb}", body)
    assert (answer.status, answer.code) == (404, code), answer.body


async def test_there_is_nothing_to_close_or_reset(encoder: Daemon) -> None:
    closed = (await encoder.ask("DELETE", "/v1/sessions/notes")).json
    assert (closed["deleted"], closed["closed"]) == (False, True)
    reset = (await encoder.ask("POST", "/v1/sessions/notes/reset")).json
    assert (reset["existed"], reset["reset"], reset["slot"]) == (False, True, -1)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/apply-template", MESSAGES),
        ("/v1/messages/count_tokens", MESSAGES),
        ("/v1/responses/input_tokens", {"input": "hello"}),
    ],
)
async def test_a_prompt_that_would_be_rendered_has_no_template(encoder: Daemon, path: str, body: Json) -> None:
    answer = await encoder.ask("POST", path, body)
    assert (answer.status, answer.code) == (400, "template_failed"), answer.body


async def test_what_tells_of_the_model_says_so(encoder: Daemon) -> None:
    [model] = (await encoder.ask("GET", "/v1/models")).json["data"]
    meta = model["meta"]
    assert (meta["memory"], meta["n_embedding"], meta["n_embedding_tokens"]) == ("none", 16, 64)
    assert model["max_model_len"] == meta["n_ctx"] == 64
    shown = (await encoder.ask("POST", "/api/show", {"model": "any"})).json
    assert shown["capabilities"] == ["embedding"] and shown["template"] == ""
    for path in ("/health", "/ready", "/props", "/api/ps", "/api/tags", "/api/version"):
        assert (await encoder.ask("GET", path)).status == 200, path
    metrics = await encoder.metrics()
    assert metrics["llmd_kv_cells_used"] == 0
