"""The requests that llmctl's session verbs send to a small server, and the output of these verbs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmd.ctl import __main__ as ctl
from llmd.ctl.context import EXIT_ABSENT, EXIT_NOT_FOUND, EXIT_OK, EXIT_REFUSED, EXIT_USAGE
from tests.fake_daemon import FakeDaemon
from tests.serving import Json

SESSION: Json = {"id": "b", "tokens": 1234}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    fake = FakeDaemon(tmp_path / "llmd.sock")
    yield fake
    fake.stop()


def run(daemon: FakeDaemon, *arguments: str) -> int:
    return ctl.main(["--socket", daemon.path, "sessions", *arguments])


VERBS: list[tuple[list[str], str, Json | None, str]] = [
    (["fork", "a", "b"], "/v1/sessions/a/fork", {"session_id": "b"}, "Session b forked from a with 1,234 tokens"),
    (["fork", "a", "b", "--at", "400"], "/v1/sessions/a/fork", {"session_id": "b", "at": 400}, "Session b forked"),
    (["fork", "a", "b", "--replace"], "/v1/sessions/a/fork", {"session_id": "b", "replace": True}, "Session b forked"),
    (["fork", "a", "b", "--at", "turn:3"], "/v1/sessions/a/fork", {"session_id": "b", "at": "turn:3"}, "Session b"),
    (["fork", "a", "b", "--at", "last_user", "--owner", "7"], "/v1/sessions/a/fork?owner=7",
     {"session_id": "b", "at": "last_user"}, "Session b forked"),
    (["park", "a/b"], "/v1/sessions/a%2Fb/park", None, "Session a/b parked with 1,234 tokens."),
    (["pin", "a"], "/v1/sessions/a/pin", {"pinned": True}, "Session a pinned."),
    (["pin", "a", "--off"], "/v1/sessions/a/pin", {"pinned": False}, "Session a unpinned."),
    (["rename", "a", "b"], "/v1/sessions/a/rename", {"session_id": "b"}, "Session a renamed to b."),
    (["save", "a", "label"], "/v1/sessions/a/save", {"name": "label"}, "Session a saved as label, 1,234 tokens."),
    (["load", "label"], "/v1/sessions/label/load", {"name": "label"}, "Session label loaded from label"),
    (["load", "label", "--replace"], "/v1/sessions/label/load", {"name": "label", "replace": True}, "Session label"),
    (["load", "label", "--as", "a"], "/v1/sessions/a/load", {"name": "label"}, "Session a loaded from label"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "path", "body", "said"), VERBS, ids=[" ".join(row[0]) for row in VERBS])
def test_verbs(
    daemon: FakeDaemon,
    arguments: list[str],
    path: str,
    body: Json | None,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    daemon.route(f"POST {path}", SESSION)
    assert run(daemon, *arguments) == EXIT_OK
    assert capsys.readouterr().out.startswith(said)
    assert [(asked.path, asked.body) for asked in daemon.asked] == [(path, body)]
    assert run(daemon, *arguments, "--json") == EXIT_OK
    assert json.loads(capsys.readouterr().out) == SESSION


@pytest.mark.parametrize(
    "verb", [["fork", "a", "b"], ["park", "a"], ["pin", "a"], ["save", "a", "n"], ["explain", "a"]]
)
def test_what_is_refused(daemon: FakeDaemon, verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    request = f"{'GET' if verb[0] == 'explain' else 'POST'} /v1/sessions/a/{verb[0]}"
    daemon.route(request, lambda exchange: exchange.refuse(404, "session_not_found", "There is no session 'a'."))
    assert run(daemon, *verb) == EXIT_NOT_FOUND
    daemon.route(request, lambda exchange: exchange.refuse(409, "session_busy", "A request is using the session."))
    assert run(daemon, *verb) == EXIT_REFUSED
    assert "(session_busy)" in capsys.readouterr().err


@pytest.mark.parametrize("verb", [["fork", "a"], ["rename", "a"], ["save", "a"], ["load"], ["explain"]])
def test_missing_words(daemon: FakeDaemon, verb: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        run(daemon, *verb)
    assert left.value.code == EXIT_USAGE and daemon.asked == []


def test_no_daemon(tmp_path: Path) -> None:
    assert ctl.main(["--socket", str(tmp_path / "none"), "sessions", "explain", "a"]) == EXIT_ABSENT


# --- explain ---------------------------------------------------------------------------------------------------------


def turn(**changes: object) -> Json:
    return {
        "at_ms": int(time.time() * 1000) - 120_500, "slot": 3, "reason": "checkpoint", "reason_text": "Restored.",
        "outcome": "end", "prompt_tokens": 1000, "reused_tokens": 900, "prefilled_tokens": 100, "generated_tokens": 5,
        "divergence": None,
    } | changes  # fmt: skip


def explained(daemon: FakeDaemon, *turns: Json) -> None:
    daemon.route("GET /v1/sessions/a/explain", {"id": "a", "owner": 0, "turns": list(turns)})
    assert run(daemon, "explain", "a") == EXIT_OK


def test_a_story(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    parted = {"at": 900, "before": "and\nthen ", "resident": "apples\x1b[2J", "prompt": "pears"}
    explained(daemon, turn(divergence=parted))
    assert capsys.readouterr().out.splitlines() == [
        "turn 1, 2m ago: checkpoint",
        "    Restored.",
        "    900 of 1,000 prompt tokens reused, 100 prefilled, 5 generated; end",
        "    the prompt diverges from the session at token 900",
        '      after    "and\\nthen "',
        '      session  "apples␛[2J"',
        '      prompt   "pears"',
    ]


def test_drafts_are_counted_per_source(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    counts = {"drafted_tokens": 1012, "accepted_tokens": 8, "grammar_drafted_tokens": 5, "grammar_accepted_tokens": 4}
    explained(daemon, turn(**counts))
    assert "    drafts: lookup 4 of 1,007 accepted, grammar 4 of 5 accepted" in capsys.readouterr().out.splitlines()


def test_drafts_of_a_model_are_counted_if_there_are_any(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    counts = {"drafted_tokens": 12, "accepted_tokens": 9, "model_drafted_tokens": 7, "model_accepted_tokens": 6}
    explained(daemon, turn(**counts))
    line = "    drafts: lookup 3 of 5 accepted, grammar 0 of 0 accepted, model 6 of 7 accepted"
    assert line in capsys.readouterr().out.splitlines()


def test_counts_read_at_two_moments_are_not_negative(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    counts = {"drafted_tokens": 3, "accepted_tokens": 1, "grammar_drafted_tokens": 5, "grammar_accepted_tokens": 4}
    explained(daemon, turn(**counts))
    assert "    drafts: lookup 0 of 0 accepted, grammar 4 of 5 accepted" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("longer", ["", " and more"])
def test_sides_that_read_the_same_are_told_apart(
    daemon: FakeDaemon, longer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parted = {"resident": "hello", "prompt": f"hello{longer}", "resident_tokens": [9, 10], "prompt_tokens": [11]}
    explained(daemon, turn(divergence={"at": 3, "before": "say ", **parted}))
    assert capsys.readouterr().out.splitlines()[-2:] == [
        '      session  "hello"  tokens 9 10',
        f'      prompt   "hello{longer}"  tokens 11',
    ]
    explained(daemon, turn(divergence={"at": 3, "before": "say ", **parted, "resident": "hallo"}))
    assert "tokens 9" not in capsys.readouterr().out


def test_what_is_not_known(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    explained(daemon, turn(divergence={"at": 1, "before": "", "resident": None, "prompt": "x"}))
    assert "      session  not known" in capsys.readouterr().out.splitlines()


def test_several_timelines_and_a_refusal(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    explained(daemon, turn(), turn(slot=5), turn(slot=None, reason=None, reason_text=None, outcome="refused"))
    said = capsys.readouterr().out
    assert "turn 1, 2m ago, branch in entry 3: checkpoint" in said and "branch in entry 5" in said
    assert "turn 3, 2m ago: refused" in said


def test_branches_and_their_checkpoints(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    first: Json = {"slot": 3, "tokens": 1, "parent": None, "shared_tokens": 0, "checkpoints": []}
    second = {"slot": 5, "tokens": 2000, "parent": 3, "shared_tokens": 1500, "checkpoints": [512, 1024]}
    answer = {"id": "a", "owner": 0, "turns": [turn()], "branches": [first, second]}
    daemon.route("GET /v1/sessions/a/explain", answer)
    assert run(daemon, "explain", "a") == EXIT_OK
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "branch in entry 3: 1 token",
        "branch in entry 5: 2,000 tokens, the first 1,500 as in entry 3; checkpoints after 512, 1,024",
    ]
    daemon.route("GET /v1/sessions/a/explain", answer | {"branches": [first]})
    assert run(daemon, "explain", "a") == EXIT_OK
    assert "branch" not in capsys.readouterr().out


def test_no_turn(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    explained(daemon)
    assert capsys.readouterr().out == "a: no turn since llmd started\n"


# --- what is saved ---------------------------------------------------------------------------------------------------


def test_what_is_saved_is_listed(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    one: Json = {"name": "label", "owner": 7, "owner_name": "ann", "tokens": 1234, "state_bytes": 5678, "saved_ms": 0}
    daemon.route("GET /v1/saved", {"data": [one, one | {"state_bytes": 0}]})
    daemon.route("GET /v1/saved?owner=ann", {"data": []})
    assert run(daemon, "saved", "list") == EXIT_OK
    header, row, without_state = capsys.readouterr().out.splitlines()
    assert header.split() == ["NAME", "TOKENS", "BYTES", "SAVED", "OWNER"]
    assert row.split()[:3] == ["label", "1,234", "5,678"] and row.endswith("ann")
    assert without_state.split()[:3] == ["label", "1,234", "-"]
    assert run(daemon, "saved", "list", "--owner", "ann") == EXIT_OK
    assert capsys.readouterr().out == "no saved sessions\n"


def test_what_is_saved_is_removed(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.route("DELETE /v1/saved/a%2Fb", {"name": "a/b", "deleted": True})
    assert run(daemon, "saved", "remove", "a/b") == EXIT_OK
    assert capsys.readouterr().out == "Saved session a/b removed.\n"
