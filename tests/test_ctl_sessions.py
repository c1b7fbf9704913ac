"""llmctl status and sessions against a small server, and resident tokens from real shared memory."""

from __future__ import annotations

import json
import os
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmd.ctl import __main__ as ctl
from llmd.ctl import resident, sessions
from llmd.ctl.client import Client, DaemonRefused
from llmd.ctl.context import EXIT_ABSENT, EXIT_NOT_FOUND, EXIT_OK, EXIT_REFUSED, Context
from llmd.engine import segment
from tests.fake_daemon import Exchange, FakeDaemon
from tests.storm.engine import serving_engine

LAST = {"reason": "exact_prefix", "reason_text": "Extends.", "prompt_tokens": 415, "reused_tokens": 412}
PLACES = {"named": 8, "named_used": 2, "scratch": 2, "parked": 3, "parked_max": 64, "policy": "park"}
STORAGE = {
    "parked_bytes": 1 << 20, "parked_bytes_max": 1 << 30, "checkpoints": 5, "checkpoint_bytes": 2 << 20,
    "checkpoint_bytes_max": 2 << 30, "disk_bytes": 3 << 20, "disk_bytes_max": 20 << 30, "disk_refuses": False,
    "state_dir": "/var/lib/llmd",
}  # fmt: skip


def session(**changes: Any) -> dict[str, Any]:
    now_ms = int(time.time() * 1000)
    return {
        "id": "desk", "owner": 0, "slot": 1, "state": "idle", "tokens": 1234, "visible_tokens": 1234,
        "context_tokens": 4096, "waiting": 0, "requests": 7, "prefilled_tokens_total": 100,
        "reused_tokens_total": 300, "generated_tokens_total": 55, "opened_ms": now_ms - 7_200_500,
        "used_ms": now_ms - 180_500, "last": {**LAST, "diverged_at": None}, "pinned": False,
        "timelines": [{"slot": 1, "state": "idle", "tokens": 1234}], "memory_bytes": 3 << 20,
        "checkpoint_bytes": 1 << 20, "disk_bytes": 2 << 20,
    } | changes  # fmt: skip


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    fake = FakeDaemon(tmp_path / "llmd.sock")
    yield fake
    fake.stop()


def run(daemon: FakeDaemon, *arguments: str) -> int:
    return ctl.main(["--socket", daemon.path, *arguments])


# --- sessions --------------------------------------------------------------------------------------------------------


def test_list(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    fresh = session(id="other", state="empty", tokens=0, requests=0, reused_tokens_total=0, prefilled_tokens_total=0)
    fresh |= {"memory_bytes": 0, "checkpoint_bytes": 0}
    fresh["timelines"] = [{"slot": 2, "state": "empty", "tokens": 0}]
    daemon.route("GET /v1/sessions", {"data": [session(), fresh | {"last": None}], "places": PLACES})
    assert run(daemon, "sessions", "list") == EXIT_OK
    assert capsys.readouterr().out.splitlines() == [
        "ID     STATE  TOKENS  BRANCHES   MEMORY  REUSED  REQUESTS  LAST START    USED    PINNED",
        "desk   idle    1,234         1  4.0 MiB    75 %         7  exact_prefix  3m ago  -",
        "other  empty       0         1      0 B       -         0  -             3m ago  -",
        "2 of 8 slots used, 3 parked; when full: park",
    ]


def test_what_is_being_read_counts(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    """A session that has reused 100 tokens, and still has to prefill 20,000, must not be shown as reusing
    everything.
    """
    last = {**LAST, "prompt_tokens": 20_100, "reused_tokens": 100, "diverged_at": None}
    reading = [{"slot": 1, "state": "prefill", "tokens": 500, "last": last}, {"slot": 2, "state": "idle", "tokens": 9}]
    totals = {"prefilled_tokens_total": 400, "reused_tokens_total": 100}
    busy = session(state="prefill", last=last, timelines=reading, **totals)
    daemon.route("GET /v1/sessions", {"data": [busy], "places": PLACES})
    run(daemon, "sessions", "list")
    assert " 0 % " in capsys.readouterr().out.splitlines()[1]
    daemon.route("GET /v1/sessions/desk", busy)
    run(daemon, "sessions", "show", "desk")
    assert "prefill     500 of 20,100 prompt tokens, 2 %\n" in capsys.readouterr().out
    daemon.route("GET /v1/sessions/desk", session())
    run(daemon, "sessions", "show", "desk")
    assert "prefill  " not in capsys.readouterr().out


def test_list_shows_owners_when_there_are_several(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    named = session(owner=78, owner_name="ann")
    daemon.route("GET /v1/sessions", {"data": [session(owner=77), session(), named], "places": PLACES})
    run(daemon, "sessions", "list")
    *lines, _ = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines] == ["OWNER", "77", "0", "ann"]


def test_list_of_nothing(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.route("GET /v1/sessions", {"data": [], "places": PLACES | {"named_used": 0, "parked": 0}})
    run(daemon, "sessions", "list")
    assert capsys.readouterr().out == "no sessions\n0 of 8 slots used; when full: park\n"


def test_list_is_what_sessions_alone_means(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.route("GET /v1/sessions", {"data": [session()], "places": PLACES})
    assert run(daemon, "sessions") == EXIT_OK
    assert capsys.readouterr().out.splitlines()[1].startswith("desk ")


def test_list_names_clients_and_what_has_no_name(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    branches = [{"slot": n, "state": "idle", "tokens": 30_000 + n} for n in range(3)]
    named = session(client="claude-cli", tokens=90_003, context_tokens=40_960, timelines=branches)
    scratch = session(id="(scratch 9)", client="qwen-code")
    daemon.route("GET /v1/sessions", {"data": [named], "scratch": [scratch], "places": PLACES})
    run(daemon, "sessions", "list")
    header, first, second, _ = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in (header, first, second)] == ["CLIENT", "claude-cli", "qwen-code"]
    assert first.split()[2] == "30,002", "not the 90,003 of all its branches, more than the context holds"
    assert second.startswith("(scratch 9) ")


def test_list_shows_what_was_said_last(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    listed = [session(last_words="Rename the\x1b parser"), session(id="other")]
    daemon.route("GET /v1/sessions", {"data": listed, "places": PLACES})
    run(daemon, "sessions", "list")
    header, first, second, _ = capsys.readouterr().out.splitlines()
    assert header.endswith("LAST WORDS") and "Rename the" in first and "\x1b" not in first
    assert second.split()[-1] == "-"


@pytest.mark.parametrize("given", ["ses_de93", "scratch", "(scr"])
def test_the_beginning_of_an_id_will_do(daemon: FakeDaemon, given: str, capsys: pytest.CaptureFixture[str]) -> None:
    listed = {"data": [session(id="ses_de93b1"), session()], "scratch": [session(id="(scratch 9)")]}
    daemon.route("GET /v1/sessions", listed | {"places": PLACES})
    path = "ses_de93b1" if given.startswith("ses") else "%28scratch%209%29"
    for missing in (given, given.replace("(", "%28")):
        daemon.route(f"GET /v1/sessions/{missing}/explain", _nobody)
    daemon.route(f"GET /v1/sessions/{path}/explain", {"id": "found", "owner": 0, "turns": []})
    assert run(daemon, "sessions", "explain", given) == EXIT_OK
    assert capsys.readouterr().out == "found: no turn since llmd started\n"


def test_a_beginning_of_several_ids_names_none(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.route("GET /v1/sessions", {"data": [session(id="ab1"), session(id="ab2")], "places": PLACES})
    daemon.route("POST /v1/sessions/ab/park", _nobody)
    assert run(daemon, "sessions", "park", "ab") == EXIT_NOT_FOUND
    assert "several ids begin with these characters: ab1, ab2." in capsys.readouterr().err


def test_what_destroys_wants_the_whole_id(daemon: FakeDaemon) -> None:
    daemon.route("GET /v1/sessions", {"data": [session(id="ab1")], "places": PLACES})
    daemon.route("DELETE /v1/sessions/ab", {"id": "ab", "deleted": False})
    assert run(daemon, "sessions", "close", "ab") == EXIT_NOT_FOUND
    assert [(one.method, one.path) for one in daemon.asked] == [("DELETE", "/v1/sessions/ab")]


def test_a_fork_beyond_the_end_says_how_much_there_is(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.route("POST /v1/sessions/desk/fork", session(id="try", tokens=23))
    run(daemon, "sessions", "fork", "desk", "try", "--at", "99999")
    assert capsys.readouterr().out == "Session try forked from desk with 23 tokens, all of its tokens.\n"


def _nobody(exchange: Exchange) -> None:
    exchange.refuse(404, "session_not_found", "There is no session.")


def test_show(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.route("GET /v1/sessions/desk", session(last={**LAST, "diverged_at": 9}))
    assert run(daemon, "sessions", "show", "desk") == EXIT_OK
    shown = dict(
        line.split(maxsplit=1) for line in capsys.readouterr().out.replace("last start", "last_start").splitlines()
    )
    assert (shown["tokens"], shown["opened"]) == ("1,234 of 4,096", "2h ago")
    expected = "exact_prefix: 412 of 415 prompt tokens reused, diverged at token 9 (Extends.)"
    assert shown["last_start"] == expected
    for place, words in (("memory", "in host memory"), ("disk", "on disk"), ("none", "without a state")):
        daemon.route("GET /v1/sessions/desk", session(state="parked", kept_in=place))
        assert run(daemon, "sessions", "show", "desk") == EXIT_OK
        assert f"parked {words}\n" in capsys.readouterr().out


def test_nobody_is_exit_status_4(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.route(
        "GET /v1/sessions/x", lambda exchange: exchange.refuse(404, "session_not_found", "There is no session.")
    )
    daemon.route("GET /v1/sessions", {"data": [session()], "places": PLACES})
    assert run(daemon, "sessions", "show", "x") == EXIT_NOT_FOUND
    assert "session_not_found" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("verb", "request_line", "said"),
    [("reset", "POST /v1/sessions/desk/reset", "reset."), ("close", "DELETE /v1/sessions/desk", "closed.")],
)
def test_reset_and_close(
    daemon: FakeDaemon, verb: str, request_line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.route(request_line, {"id": "desk"})
    assert run(daemon, "sessions", verb, "desk") == EXIT_OK
    assert capsys.readouterr().out == f"Session desk {said}\n"
    assert [f"{one.method} {one.path}" for one in daemon.asked] == [request_line]


@pytest.mark.parametrize(
    ("verb", "request_line", "was_there"),
    [("reset", "POST /v1/sessions/desk/reset", "existed"), ("close", "DELETE /v1/sessions/desk", "deleted")],
)
def test_a_session_that_was_not_there_is_told(
    daemon: FakeDaemon, verb: str, request_line: str, was_there: str, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.route(request_line, {"id": "desk", was_there: False})
    assert run(daemon, "sessions", verb, "desk") == EXIT_NOT_FOUND
    assert capsys.readouterr().out == "Session desk did not exist.\n"


def test_an_owner_can_be_named(daemon: FakeDaemon) -> None:
    daemon.route("DELETE /v1/sessions/desk?owner=7", {"id": "desk"})
    assert run(daemon, "sessions", "close", "desk", "--owner", "7") == EXIT_OK
    daemon.route("DELETE /v1/sessions/desk?owner=a%26b", {"id": "desk"})
    assert run(daemon, "sessions", "close", "desk", "--owner", "a&b") == EXIT_OK


@pytest.mark.parametrize("before", [True, False])
def test_options_stand_anywhere(daemon: FakeDaemon, before: bool, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.route("GET /v1/sessions", {"data": [], "places": PLACES})
    arguments = ["sessions", "--json", "list"] if before else ["sessions", "list", "--json"]
    assert run(daemon, *arguments) == EXIT_OK
    assert json.loads(capsys.readouterr().out) == {"data": [], "places": PLACES}


# --- status ----------------------------------------------------------------------------------------------------------

METRICS = """\
# HELP llmd_steps_total Model steps run.
llmd_steps_total 10
llmd_step_seconds_total 0.055
llmd_time_to_first_token_seconds_bucket{le="+Inf"} 4.0
llmd_time_to_first_token_seconds_count 4.0
llmd_time_to_first_token_seconds_sum 1.0
llmd_prefill_tokens_total 100
llmd_reused_tokens_total 300
llmd_decode_tokens_total 55
llmd_drafted_tokens_total 12
llmd_accepted_tokens_total 7
llmd_grammar_drafted_tokens_total 3
llmd_grammar_accepted_tokens_total 2
llmd_finished_end_total 5
llmd_finished_cancelled_total 1
llmd_finished_failed_total 0
llmd_started_exact_prefix_total 6
llmd_requests_running 2
llmd_model_bytes 1048576
llmd_kv_cells_used 1234
llmd_state_bytes 4194304
llmd_state_used_bytes 1048576
"""


def serve_status(daemon: FakeDaemon, ready: dict[str, Any], status: int = 200, version: str = "0.1.0") -> None:
    daemon.route("GET /live", {"status": "ok", "version": version, "pid": 42})
    daemon.route("GET /ready", lambda exchange: exchange.answer(ready, status))
    daemon.route("GET /v1/sessions", {"data": [], "places": PLACES, "storage": STORAGE})
    daemon.route("GET /metrics", METRICS)
    meta = {"kv_type": "q8_0", "kv_token_bytes": 3264}
    daemon.route("GET /v1/models", {"data": [{"id": "other", "loaded": False}, {"id": "tiny", "meta": meta}]})


def test_status(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    serve_status(daemon, {"status": "ready", "model": "tiny"})
    assert run(daemon, "status") == EXIT_OK
    assert capsys.readouterr().out.splitlines() == [
        "llmd         0.1.0, pid 42, ready",
        "model        tiny",
        "sessions     2 of 8 slots used, 3 parked; when full: park",
        "requests     2 running, 0 waiting; 5 end, 1 cancelled",
        "starts       6 exact_prefix",
        "prompts      100 tokens prefilled, 300 reused",
        "answers      55 tokens",
        "drafts       lookup 5 of 9 accepted, grammar 2 of 3 accepted",
        "first token  250.0 ms each",
        "next token   none yet",
        "steps        10, 5.5 ms each",
        "memory       weights 1.0 MiB, state 1.0 MiB of 4.0 MiB used (1,234 tokens), process 0 B",
        "KV cache     q8_0, 3,264 bytes per token",
        "checkpoints  5, 2.0 MiB of 2.0 GiB",
        "parked       3 branches, 1.0 MiB of 1.0 GiB",
        "disk         3.0 MiB of 20 GiB",
        "state        /var/lib/llmd",
    ]


def test_status_says_how_many_wait_for_the_prefill_of_another(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    serve_status(daemon, {"status": "ready", "model": "tiny"})
    daemon.route("GET /metrics", METRICS + "llmd_requests_waiting 4\nllmd_requests_waiting_for_prefill 3\n")
    run(daemon, "status")
    line = "\nrequests     2 running, 4 waiting (3 for another request's prefill of the same head); "
    assert line in capsys.readouterr().out


def test_one_is_no_plural(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    serve_status(daemon, {"status": "ready", "model": "tiny"})
    daemon.route("GET /v1/sessions", {"data": [], "places": {**PLACES, "parked": 1}, "storage": STORAGE})
    run(daemon, "status")
    assert "\nparked       1 branch, 1.0 MiB of 1.0 GiB\n" in capsys.readouterr().out
    daemon.route("POST /v1/sessions/desk/park", {"id": "desk", "tokens": 1})
    run(daemon, "sessions", "park", "desk")
    assert capsys.readouterr().out == "Session desk parked with 1 token.\n"


def test_status_of_a_disk_that_refuses_states(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    serve_status(daemon, {"status": "ready", "model": "tiny"})
    storage = {**STORAGE, "disk_refuses": True}
    daemon.route("GET /v1/sessions", {"data": [], "places": PLACES, "storage": storage})
    assert run(daemon, "status") == EXIT_OK
    disk = "3.0 MiB of 20 GiB; the disk is full or fails: parked states that do not fit into memory are dropped"
    said = f"disk         {disk}"
    assert said in capsys.readouterr().out.splitlines()


def test_status_of_a_daemon_that_is_not_ready(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    serve_status(daemon, {"status": "stalled", "model": "tiny", "seconds_without_progress": 65.0}, 503)
    assert run(daemon, "status") == EXIT_REFUSED
    assert "stalled (one step has been running for 1m 5s)" in capsys.readouterr().out


def test_status_as_json(daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]) -> None:
    serve_status(daemon, {"status": "ready", "model": "tiny"})
    run(daemon, "status", "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["metrics"]["steps_total"] == 10 and found["ready"]["status"] == "ready" and found["places"] == PLACES
    assert found["model"]["kv_type"] == "q8_0"


@pytest.mark.parametrize("verb", ["status", "version"])
def test_another_version_is_a_warning(daemon: FakeDaemon, verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    serve_status(daemon, {"status": "ready", "model": "tiny"}, version="9.9.9")
    assert run(daemon, verb) == EXIT_OK
    said = capsys.readouterr()
    assert "9.9.9" in said.out and "warning: llmctl has version 0.1.0, but llmd has version 9.9.9" in said.err


# --- resident tokens -------------------------------------------------------------------------------------------------

TOKENS = [index % 200 + 5 for index in range(40)]


@pytest.fixture
def unserved(tmp_path: Path) -> Iterator[str]:
    """The socket path of an engine without a daemon. --tokens must work although no event loop answers."""
    path = str(tmp_path / "unserved.sock")
    name = segment.new_name(path)
    segment.write(path, name)
    with serving_engine("sim:dense", n_sessions=4, n_ctx=512, table_name=name) as engine:
        assert engine.say("desk", TOKENS, 1).is_whole
        yield path


def test_tokens_need_no_daemon_to_answer(unserved: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ctl.main(["--socket", unserved, "sessions", "show", "desk", "--tokens"]) == EXIT_OK
    head, *lines = capsys.readouterr().out.splitlines()
    assert head == "desk: idle, 40 tokens"
    assert [int(line.split()[0]) for line in lines] == [0, 12, 24, 36]
    assert [int(token) for line in lines for token in line.split()[1:]] == TOKENS


def test_tokens_as_json(unserved: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ctl.main(["--socket", unserved, "sessions", "show", "desk", "--tokens", "--json"]) == EXIT_OK
    found = json.loads(capsys.readouterr().out)
    assert (found["tokens"], found["state"], found["reason"], found["pid"]) == (TOKENS, "idle", "new", os.getpid())


def test_tokens_of_nobody(unserved: str) -> None:
    assert ctl.main(["--socket", unserved, "sessions", "show", "nobody", "--tokens"]) == EXIT_NOT_FOUND
    assert ctl.main(["--socket", unserved, "sessions", "show", "desk", "--tokens", "--owner", "3"]) == EXIT_NOT_FOUND


def test_only_a_name_needs_the_daemon(daemon: FakeDaemon) -> None:
    daemon.route("GET /v1/sessions/desk?owner=ann", session(owner=3))
    client = Client(daemon.path, 60)

    def number(owner: str | None) -> int | None:
        return sessions.owner_number(Context(client, Namespace(id="desk", owner=owner), False))

    assert [number(owner) for owner in (None, "7", "ann")] == [None, 7, 3]
    with pytest.raises(DaemonRefused):
        number("bob")


def test_tokens_without_a_segment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ctl.main(["--socket", str(tmp_path / "none"), "sessions", "show", "desk", "--tokens"]) == EXIT_ABSENT
    err = capsys.readouterr().err
    assert "session table" in err and "does not exist" in err


def test_tokens_of_a_daemon_that_died(
    unserved: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resident.Resident, "is_daemon_alive", False)
    assert ctl.main(["--socket", unserved, "sessions", "show", "desk", "--tokens"]) == EXIT_OK
    assert f"llmd (pid {os.getpid()}) has ended" in capsys.readouterr().err
