"""The branches of a session in GET /v1/sessions/{id}/explain: parents, common tokens and checkpoints."""

from __future__ import annotations

import pytest

from tests.conftest import Serve
from tests.serving import Daemon


async def test_a_branch_that_begins_with_another_token_has_no_parent(daemon: Daemon) -> None:
    for text in ("alpha " * 100, "beta " * 100):
        await daemon.ask("POST", "/v1/completions", {"prompt": text, "session_id": "s", "max_tokens": 1})
    branches = (await daemon.ask("GET", "/v1/sessions/s/explain")).json["branches"]
    assert [(one["parent"], one["shared_tokens"]) for one in branches] == [(None, 0), (None, 0)]


@pytest.mark.parametrize("model", ["sim:dense", "sim:hybrid"])
async def test_the_branches_are_explained_with_their_checkpoints(serve: Serve, model: str) -> None:
    daemon = await serve(model=model)
    for text in ("alpha " * 400, "beta " * 300):
        messages = [{"role": "system", "content": "system " * 100}, {"role": "user", "content": text}]
        await daemon.chat(session_id="s", messages=messages)
    story = (await daemon.ask("GET", "/v1/sessions/s/explain")).json
    tokens = {one["slot"]: one["tokens"] for one in (await daemon.ask("GET", "/v1/sessions/s")).json["timelines"]}
    first, second = story["branches"]
    assert {one["slot"]: one["tokens"] for one in story["branches"]} == tokens
    assert (first["parent"], first["shared_tokens"], second["parent"]) == (None, 0, first["slot"])
    n_head = second["shared_tokens"]
    assert 100 < n_head < 250
    for one in (first, second):
        assert one["checkpoints"] == sorted(one["checkpoints"])
        assert not one["checkpoints"] or one["checkpoints"][-1] <= one["tokens"]
        if model == "sim:hybrid":
            assert any(n_head - 16 <= k <= n_head for k in one["checkpoints"]) and len(one["checkpoints"]) > 1
    other = (await daemon.ask("GET", "/v1/sessions")).json["data"][0]["owner"] + 1
    own = daemon.state.engine.session_table.tokens(first["slot"])
    assert own is not None and daemon.state.engine.checkpoints(other, own.tobytes()) == []
