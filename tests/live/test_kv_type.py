"""Quantized keys and values (--kv-type): a state of another type is never used, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmd.engine.native import KV_TYPE_WORDS, GenerateFlag, Status
from llmd.engine.opening import EngineError, EngineOptions, open_engine
from llmd.engine.wire import Load, Park, Save
from tests.live.daemon import Daemons
from tests.live.models import model_path
from tests.storm.engine import Engine, Places, serving_engine

F16, Q8_0 = map(KV_TYPE_WORDS.index, ("f16", "q8_0"))
HISTORY = [100 + 7 * i % 400 for i in range(120)]
SUFFIX = [31, 47, 53]


def places(state_dir: Path, kv_type: int) -> Places:
    """Parked states go to disk."""
    return Places(n_ctx=512, parked_bytes=1, timelines=1, state_dir=state_dir, kv_type=kv_type)


def continued(engine: Engine, session: str, held: list[int]) -> tuple[int, str]:
    """Continues the session and returns how many tokens were reused, and why. The answer must equal one without
    reuse.
    """
    answer = engine.say(session, held + SUFFIX, 8, flags=GenerateFlag.IGNORE_END)
    assert answer.is_whole and answer.started is not None
    cold = engine.say("", held + SUFFIX, 8, flags=GenerateFlag.COLD | GenerateFlag.IGNORE_END)
    assert answer.text == cold.text
    return answer.started.n_reused, answer.reason


@pytest.mark.parametrize("name", ["dense", "window", "hybrid"])
def test_a_state_of_another_type_is_prefilled_again(name: str, tmp_path: Path) -> None:
    model = model_path(name)
    with serving_engine(model, places(tmp_path, F16)) as engine:
        assert engine.say("a", HISTORY, 6, flags=GenerateFlag.IGNORE_END).is_whole
        [held] = engine.resident("a")
        assert engine.do(Save, "a", "kept").status == Status.OK
    with serving_engine(model, places(tmp_path, Q8_0)) as engine:
        assert ["--kv-type" in text and "1 session was saved" in text for text in engine.complaints()] == [True]
        assert engine.resident("a") == [held]
        assert engine.do(Load, "b", "kept").status == Status.OK
        assert engine.resident("b") == [held]
        assert continued(engine, "b", held) == (0, "torn")
        n_reused, reason = continued(engine, "a", held)
        assert (n_reused >= len(held), reason) in ((True, "shared"), (True, "checkpoint"), (False, "torn"))
    with serving_engine(model, places(tmp_path, F16)) as engine:
        assert engine.do(Load, "c", "kept").status == Status.OK
        assert continued(engine, "c", held) == (len(held), "restored")


@pytest.mark.parametrize("name", ["dense", "window", "hybrid"])
def test_a_state_of_the_same_type_is_used(name: str, tmp_path: Path) -> None:
    model = model_path(name)
    with serving_engine(model, places(tmp_path, Q8_0)) as engine:
        assert engine.say("a", HISTORY, 6, flags=GenerateFlag.IGNORE_END).is_whole
        assert engine.do(Park, "a").status == Status.OK
        [held] = engine.resident("a")
        assert continued(engine, "a", held) == (len(held), "restored")
        [held] = engine.resident("a")
    with serving_engine(model, places(tmp_path, Q8_0)) as engine:
        assert engine.complaints() == []
        assert continued(engine, "a", held) == (len(held), "restored")


def test_a_daemon_reports_the_type(daemons: Daemons) -> None:
    facts = {}
    for kv_type in ("f16", "q8_0"):
        daemon = daemons.start(model_path("dense"), "--kv-type", kv_type)
        facts[kv_type] = daemon.do("GET", "/v1/models")["data"][0]["meta"]
        assert daemon.do("GET", "/props")["kv_type"] == kv_type
        assert daemon.chat([{"role": "user", "content": "hello"}])["usage"]["completion_tokens"] == 12
        daemon.stop()
    assert [facts[kv_type]["kv_type"] for kv_type in facts] == ["f16", "q8_0"]
    assert 64 * facts["q8_0"]["kv_token_bytes"] == 34 * facts["f16"]["kv_token_bytes"]


def test_a_model_that_cannot_be_quantized_is_refused() -> None:
    with pytest.raises(
        EngineError, match="kv_type is q8_0, but this model has no KV cache; set --kv-type f16"
    ) as error:
        open_engine(EngineOptions(model=model_path("recurrent"), kv_type="q8_0", n_gpu_layers=0))
    assert error.value.field == "kv_type"
