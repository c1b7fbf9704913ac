"""A value that several layers report reaches each of them, field by field (ARCHITECTURE.md, Where a value travels).

Each field that a layer leaves out is listed here, with the reason. For a new field, these tests fail in turn for each
layer that lacks it: the struct of libllm, its copy in Python, the answer over HTTP, the output of llmctl.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, Literal

import msgspec
import pytest

from llmd.core.sampling import SAMPLERS
from llmd.core.sampling_table import SAMPLING, RequestedSampling, SamplingDefaults
from llmd.ctl import explain as ctl_explain
from llmd.ctl import session_verbs as ctl_session_verbs
from llmd.ctl import sessions as ctl_sessions
from llmd.ctl import status as ctl_status
from llmd.dialects.openai.wire import ChatCompletionRequest
from llmd.dialects.sampling import spoken_in
from llmd.engine import loader
from llmd.engine.native import SAMPLER_WORDS, SessionTableView, SessionView, ffi
from llmd.engine.opening import EngineInfo, EngineOptions, SavedSession
from llmd.engine.wire import Sampling
from llmd.http.endpoints import explain, models, sessions
from llmd.http.endpoints.wire import (
    Divergence,
    ExplainedTurn,
    LastStart,
    Model,
    ModelMeta,
    Places,
    Saved,
    Session,
    Storage,
    Timeline,
)
from llmd.process.config_table import Config
from llmd.turns.divergence import DivergedTokens
from llmd.turns.log import Turn
from tests.serving import Daemon

Left = dict[str, str]
"""Maps the name of a field to the reason why a layer leaves it out."""


def test_how_to_pick_tokens() -> None:
    """Each sampling option is in requests, is checked, is read by each dialect, has a default and is sent to the
    engine.
    """
    asked = names_of(RequestedSampling)
    assert SAMPLERS == SAMPLER_WORDS[1:]
    assert {row.name for row in SAMPLING} == {name for _, name in spoken_in(ChatCompletionRequest)} == asked
    assert asked == names_of(Sampling) and asked - names_of(SamplingDefaults) == {"seed"}


class Watched:
    """Wraps an object and records which of its fields were read."""

    def __init__(self, of: Any) -> None:
        self._of, self.seen = of, set[str]()

    def __getattr__(self, name: str) -> Any:
        self.seen.add(name)
        return getattr(self._of, name)


def names_of(kind: Any) -> set[str]:
    return (
        set(kind.__struct_fields__)
        if issubclass(kind, msgspec.Struct)
        else {one.name for one in dataclasses.fields(kind)}
    )


def left_out(kind: Any, seen: set[str]) -> set[str]:
    return names_of(kind) - seen


# --- from libllm to Python -------------------------------------------------------------------------------------------

COPIES: dict[str, tuple[Any, Left]] = {
    "llm_branch_view": (SessionView, {}),
    "llm_saved": (SavedSession, {}),
    "llm_engine_options": (
        EngineOptions,
        {
            "n_batch": "steps are planned in libllm",
            "command_ring_bytes": "likewise",
            "event_ring_bytes": "likewise",
            "n_owners": "Engine.set_owners, whenever keys are read",
        },
    ),
    "llm_info": (
        EngineInfo,
        {
            "n_batch": "steps are planned in libllm",
            "n_window": "of `memory` it is a detail",
            "sampling_default": "is `sampling`, as core.sampling has it",
        },
    ),
    "llm_session_table_view": (
        SessionTableView,
        {"version": "another is not opened", "n_counters": "llm_session_table_counter knows it"},
    ),
}
OF_PYTHON = {"sampling"}


@pytest.mark.parametrize("struct", COPIES)
def test_a_struct_is_copied_whole(struct: str) -> None:
    kind, left = COPIES[struct]
    members = {name for name, _ in ffi.typeof(struct).fields}
    assert members - names_of(kind) == set(left), f"{struct} in include/ and {kind.__module__}.{kind.__name__} differ"
    assert names_of(kind) - members <= OF_PYTHON


def test_every_option_of_the_engine_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """loader.engine_options makes the options from the configuration."""
    given: dict[str, Any] = {}
    monkeypatch.setattr(loader, "EngineOptions", lambda **options: given.update(options))
    loader.engine_options(Config())
    assert left_out(EngineOptions, set(given)) == {"exact"}  # only tests and benchmarks set it


# --- from Python to the answer over HTTP -----------------------------------------------------------------------------


async def test_a_record_is_told(daemon: Daemon) -> None:
    """GET /v1/sessions reports every field of each timeline's record in the segment."""
    await daemon.chat(session_id="a")
    [view] = daemon.state.engine.session_table.sessions()
    watched: Any = Watched(view)
    sessions.sessions_of(daemon.state, [watched])
    assert left_out(SessionView, watched.seen) == {
        "generation",  # shows readers of the segment that tokens were replaced
        "id",  # shows the next daemon which file belongs to which timeline
    }


def test_a_session_tells_what_its_timelines_tell() -> None:
    assert names_of(Timeline) - names_of(Session) == set()


async def test_a_turn_is_told(daemon: Daemon) -> None:
    apart = DivergedTokens(at=1, before=b"", prompt=b"\1\0\0\0", resident=b"\2\0\0\0")
    turn: Any = Watched(Turn(at_ms=1, entry=0, reason=0, outcome="end", n_prompt=1, n_reused=0, n_prefilled=1,
                             n_generated=1, divergence=Watched(apart)))  # type: ignore[arg-type]  # fmt: skip
    explain._turn(daemon.state.engine, turn)
    assert left_out(Turn, turn.seen) == set()
    assert left_out(DivergedTokens, turn.divergence.seen) == set()


FACTS_LEFT: Left = {
    "n_cells": "is in GET /v1/feed, which has no end",
    "token_bytes_max": "bounds what a prompt may have in text",
    "has_chat_template": "without one every chat request is refused, and the log says it at the start",
    "n_pins_max": "the refusal of a pin beyond it",
}


async def test_a_fact_of_the_model_is_told(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """GET /v1/models, /props, /metrics or /v1/sessions reports each fact of the model."""
    watched: Any = Watched(daemon.state.engine.info)
    monkeypatch.setattr(daemon.state.engine, "info", watched)
    for path in ("/v1/models", "/props", "/metrics", "/v1/sessions"):
        assert (await daemon.ask("GET", path)).status == 200
    assert left_out(EngineInfo, watched.seen) == set(FACTS_LEFT)


def test_facts_are_called_as_they_are_told() -> None:
    assert set(models._FACTS) <= names_of(ModelMeta)
    assert {models._FACTS.get(name, name) for name in names_of(ModelMeta)} <= names_of(EngineInfo)


async def test_what_is_saved_is_told(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    watched: Any = Watched(SavedSession(0, "desk", 1, 1, 1))
    monkeypatch.setattr(daemon.state.engine, "saved", lambda: [watched])
    assert [one["name"] for one in (await daemon.ask("GET", "/v1/saved")).json["data"]] == ["desk"]
    assert left_out(SavedSession, watched.seen) == set()


# --- from the answer to what llmctl prints ---------------------------------------------------------------------------


class Answered(dict[str, Any]):
    """An object of an answer that records which of its fields were read, such as "Session.state"."""

    def __init__(self, kind: Any, seen: set[str], fields: dict[str, Any]) -> None:
        super().__init__(fields)
        self._kind, self._seen = kind, seen

    def get(self, name: str, default: Any = None) -> Any:
        self._seen.add(f"{self._kind.__name__}.{name}")
        return super().get(name, default)

    def __getitem__(self, name: str) -> Any:
        return self.get(name)


def answered(kind: Any, seen: set[str]) -> Any:
    """Returns a value of this type in which nothing is missing, empty or zero."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return answered(next(part for part in parts if part is not types.NoneType), seen)
    if origin is Literal:
        return parts[0]
    if origin is dict:
        return {}
    if origin is list:
        return [answered(parts[0], seen), answered(parts[0], seen)]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        return Answered(kind, seen, {name: answered(hints[name], seen) for name in kind.__struct_fields__})
    return {str: "prefill", int: 7, bool: True, float: 1.5}[kind]


def printed(seen: set[str], kind: Any) -> set[str]:
    return {name.partition(".")[2] for name in seen if name.startswith(f"{kind.__name__}.")}


SESSION_LEFT: Left = {
    "object": "the same for each",
    "slot": "of several timelines each is shown with its own",
    "visible_tokens": "for who looks closer: --json",
}
TIMELINE_LEFT: Left = {
    "visible_tokens": "for who looks closer: --json",
    "waiting": "the session's is shown",
    "prefilled_tokens_total": "likewise",
    "reused_tokens_total": "likewise",
    "generated_tokens_total": "likewise",
    "memory_bytes": "the table shows the sum of the session's branches",
    "checkpoint_bytes": "the table shows the sum of the session's branches",
    "disk_bytes": "the table shows the sum of the session's branches",
    "opened_ms": "likewise",
}


def test_a_session_is_printed() -> None:
    seen: set[str] = set()
    one = answered(Session, seen)
    ctl_sessions.details(one)
    ctl_sessions.details(Answered(Session, seen, one | {"timelines": []}))  # the tokens of a single session
    assert left_out(Session, printed(seen, Session)) == set(SESSION_LEFT)
    assert left_out(Timeline, printed(seen, Timeline)) == set(TIMELINE_LEFT)
    assert left_out(LastStart, printed(seen, LastStart)) == set()


def test_places_and_storage_are_printed() -> None:
    seen: set[str] = set()
    health = {"version": "1", "pid": 1}
    raw = {"health": health, "ready": {}, "places": answered(Places, seen), "storage": answered(Storage, seen)}
    ctl_status.overview({**raw, "model": {}}, {})
    assert left_out(Places, printed(seen, Places)) == {"scratch", "parked_max"}  # options of the server
    assert left_out(Storage, printed(seen, Storage)) == set()


def test_a_model_is_printed() -> None:
    seen: set[str] = set()
    ctl_status.model(answered(Model, seen))
    assert left_out(ModelMeta, printed(seen, ModelMeta)) == set()
    # max_model_len is meta.n_ctx, size is meta.size, and only a loaded model is printed
    assert left_out(Model, printed(seen, Model)) == {"object", "created", "owned_by", "max_model_len", "size", "loaded"}


def test_a_turn_is_printed() -> None:
    seen: set[str] = set()
    ctl_explain.paragraph(1, answered(ExplainedTurn, seen), has_several_branches=True)
    assert left_out(ExplainedTurn, printed(seen, ExplainedTurn)) == set()
    assert left_out(Divergence, printed(seen, Divergence)) == set()


def test_what_is_saved_is_printed() -> None:
    seen: set[str] = set()
    ctl_session_verbs.saved_overview({"data": [answered(Saved, seen)]})
    assert left_out(Saved, printed(seen, Saved)) == {"object", "owner"}  # its name is shown
