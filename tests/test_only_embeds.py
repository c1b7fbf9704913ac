"""A model that only embeds: everything else is refused in each dialect's form, and what tells of it stays true."""

from __future__ import annotations

import pytest

from llmd.http.routes import ENDPOINTS
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
    """Before the body is looked at: none of it could change the answer."""
    for body in ({**MESSAGES, "session_id": "notes"}, {**MESSAGES, "stream": True}, {}):
        answer = await encoder.ask("POST", path, body)
        assert (answer.status, answer.code) == (400, "no_generation"), answer.body
        assert encoder.state.model_id.encode() in answer.body and b"/v1/embeddings" in answer.body
    assert (await encoder.ask("GET", "/v1/sessions")).json["data"] == []


async def test_there_are_no_sessions(encoder: Daemon) -> None:
    assert (await encoder.ask("GET", "/v1/sessions/notes")).code == "session_not_found"
    assert (await encoder.ask("GET", "/v1/sessions/notes/explain")).code == "session_not_found"
    for verb, body in (("fork", {"session_id": "b"}), ("park", {}), ("pin", {"pinned": True}), ("save", {"name": "x"})):
        answer = await encoder.ask("POST", f"/v1/sessions/notes/{verb}", body)
        assert answer.status >= 400 and answer.code in ("session_not_found", "no_state_dir", "missing_parameter"), verb
    assert (await encoder.ask("DELETE", "/v1/sessions/notes")).json["closed"] is True


async def test_a_prompt_that_would_be_rendered_has_no_template(encoder: Daemon) -> None:
    for path in ("/apply-template", "/v1/messages/count_tokens", "/v1/responses/input_tokens"):
        answer = await encoder.ask("POST", path, {**MESSAGES, "input": "hello"} if "resp" in path else MESSAGES)
        assert answer.status == 400, answer.body


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
