"""A draft model (--draft-model): its guesses are counted for each source, and an unfit model is named at the start."""

from __future__ import annotations

from typing import Any

import pytest

from llmd.engine.loader import DaemonEngineLoader
from llmd.engine.opening import EngineError
from tests.conftest import Serve
from tests.serving import config_of

SLOW = "sim:dense,length=0,step_us=2000"
"""A model whose steps take longer than those of its draft model."""


async def answered(serve: Serve, **options: Any) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Returns the session of an answer, the explanation of its turn, and the metrics."""
    daemon = await serve(model=SLOW, **options)
    answer = await daemon.chat(session_id="a", max_tokens=64)
    explained = await daemon.ask("GET", "/v1/sessions/a/explain")
    metrics = await daemon.ask("GET", "/metrics")
    return answer["session"], explained.json["turns"][-1], metrics.body.decode()


async def test_its_guesses_are_counted(serve: Serve) -> None:
    session, turn, metrics = await answered(serve, draft_model="sim:dense,length=0")
    drafted, accepted = session["model_drafted_tokens"], session["model_accepted_tokens"]
    assert session["drafted_tokens"] >= drafted > 0 and session["accepted_tokens"] >= accepted > 0
    assert (turn["model_drafted_tokens"], turn["model_accepted_tokens"]) == (drafted, accepted)
    assert f"llmd_model_drafted_tokens_total {drafted}.0\n" in metrics
    assert f"llmd_model_accepted_tokens_total {accepted}.0\n" in metrics


async def test_it_is_not_opened_without_drafts(serve: Serve) -> None:
    session, turn, _ = await answered(serve, draft_model="/nowhere.gguf", speculate="off")
    assert "drafted_tokens" not in session and turn["model_drafted_tokens"] == 0


@pytest.mark.parametrize(
    ("draft_model", "cause"),
    [
        ("sim:none,embed=8", "generates no text"),
        ("/nowhere.gguf", "/nowhere.gguf"),
        ("no-such-model", "no model"),
    ],
)
async def test_an_unfit_one_is_named(tmp_path: Any, draft_model: str, cause: str) -> None:
    loader = DaemonEngineLoader(config_of(tmp_path, draft_model=draft_model))
    with pytest.raises(EngineError, match=cause) as refused:
        await loader.pointer()
    assert refused.value.field == "draft_model" and not str(refused.value).startswith("draft model")
