"""The pure functions of the measurements, and the client that receives the streams."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench import day, kept, machine, peer, streams
from bench.__main__ import NAMES, parser, scenario, usage
from bench.arrival import gaps_from
from bench.daemon import clean_environment
from bench.edit import rewriting
from bench.many import traffic
from bench.report import OURS, RATIO, Figure, Report, ratios_of
from bench.streams import ROOT, Request, Run, body
from tools.tiny_models import copying, tokenizer

# --- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_measurement_has_a_short_size_and_says_what_it_does(name: str) -> None:
    module = scenario(name)
    options = parser(name, module).parse_args(["--short", "--repeats", "2"])
    assert (options.short, options.repeats, options.model) == (True, 2, [*module.MODELS])
    assert module.about(options)
    assert f"  {name:<10} {module.__doc__.splitlines()[0]}\n" in usage()


def test_a_server_starts_in_the_environment_of_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOMP_SPINCOUNT", "1000")
    monkeypatch.setenv("LLMD_MODEL", "sim:dense")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("LLMD_LIBLLM_VARIANT", "native-avx2")
    names = ("GOMP_SPINCOUNT", "LLMD_MODEL", "OMP_NUM_THREADS", "LLMD_LIBLLM_VARIANT")
    environment = clean_environment()
    assert {name for name in names if name in environment} == {"OMP_NUM_THREADS", "LLMD_LIBLLM_VARIANT"}


# --- an edited file --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 1000, 3000])
def test_the_file_of_a_prompt_begins_at_the_distance_that_the_model_copies_from(first: int) -> None:
    made = rewriting(first)
    words = copying.vocabulary()
    begin = len(made.prompt) - 1 - copying.DISTANCE
    file = made.prompt[begin : begin + len(made.answer)]
    assert sorted(file) == sorted(words.encode(copying.FILE_PATH.read_text()))
    replaced = copying.edits(words)
    assert made.answer == [replaced.get(token, token) for token in file]
    assert words.types[made.prompt[-1]] == tokenizer.TOKEN_NORMAL  # a special token looks elsewhere


# --- the peer --------------------------------------------------------------------------------------------------------


def test_a_peer_that_is_not_built_is_advised(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(peer.DIRECTORY_VARIABLE, str(tmp_path))
    assert peer.directory() is None
    with pytest.raises(SystemExit, match=r"\./build\.sh peer"):
        peer.server("model.gguf")
    (tmp_path / "llama-server").touch()
    assert peer.directory() == tmp_path


def test_what_llama_bench_says_is_read() -> None:
    said = """[{"n_prompt": 520, "n_gen": 0, "n_depth": 0, "samples_ts": [160.5, 161.0], "avg_ts": 160.7},
              {"n_prompt": 0, "n_gen": 32, "n_depth": 520, "samples_ts": [16.3]}]"""
    assert peer.read_engine(json.loads(said)) == [
        peer.EngineRate(520, 0, 0, (160.5, 161.0)),
        peer.EngineRate(0, 32, 520, (16.3,)),
    ]


# --- the machine -----------------------------------------------------------------------------------------------------


def test_processors_of_one_name_are_told_apart() -> None:
    def cpuinfo(model: int, flags: str) -> str:
        named = "vendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC\ncpu family\t: 25\n"
        one = f"{named}model\t\t: {model}\nflags\t: {flags}\n"
        return f"{one}\n{one}"

    assert machine.processor(cpuinfo(17, "avx2 avx512f avx512_vnni")) == (
        "AMD EPYC (family 25, model 17; AVX-512 VNNI)"
    )
    assert machine.processor(cpuinfo(1, "avx avx2")) == "AMD EPYC (family 25, model 1; AVX2)"
    assert machine.processor("processor\t: 0\nFeatures\t: asimd\n") == "unknown processor"
    assert re.search(r" processors(, built for \w+)?$", machine.describe())


def test_a_build_for_fewer_instructions_is_named_in_the_report() -> None:
    def told(**settings: str) -> list[str]:
        program = "from bench import machine; print(machine.describe()); print(machine.PROGRAMS)"
        inherited = {name: value for name, value in os.environ.items() if name != "LLMD_CPU_FEATURES"}
        command = [sys.executable, "-c", program]
        done = subprocess.run(
            command, env={**inherited, **settings}, cwd=ROOT, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    plain, few = told(), told(LLMD_CPU_FEATURES="avx2")
    assert few[0] == f"{plain[0]}, built for avx2"
    assert (plain[1], few[1]) == (str(ROOT / "build/native/bench"), str(ROOT / "build/native-avx2/bench"))


# --- statistics ------------------------------------------------------------------------------------------------------


def test_ratios_are_of_turns_or_else_of_medians() -> None:
    assert ratios_of([2.0, 3.0], [1.0, 6.0]) == [2.0, 0.5]
    assert ratios_of([2.0, 3.0, 4.0], [1.0, 6.0]) == [3.0 / 3.5]
    assert ratios_of([2.0], []) == []


def test_a_target_is_for_the_median() -> None:
    def figure(at_least: float | None = None, at_most: float | None = None) -> Figure:
        return Figure(case="c", quantity="q", unit="", values=[1.0, 2.0, 9.0], at_least=at_least, at_most=at_most)

    assert (figure().met, figure(at_least=2.0).met, figure(at_most=1.9).met) == ("", "yes", "no")
    assert figure(at_most=1.9).target == "<= 1.9"


def test_a_stream_is_read_from_what_the_client_prints() -> None:
    run = streams.read("200,4,900,0,1000,5000,1000 2000 4000 4500\n200,3,800,2500,500,4500,500 900 4400\ncpu_us,1500\n")
    assert [stream.arrivals_us for stream in run.streams] == [
        (1000, 2000, 4000),
        (500, 900),
    ]  # the last says why it ended
    assert run.streams[0].decode_rate(5) == 1000.0
    assert (run.whole_s, run.streaming_s, run.client_cpu_s) == (0.007, 0.006, 0.0015)
    assert run.gaps_ms == [1.0, 2.0, 0.4]
    assert gaps_from(run.streams[0], 2.0) == [2.0]


def test_a_request_that_was_left_before_its_answer_is_read() -> None:
    [stream] = streams.read("0,0,0,10,0,1000,\ncpu_us,0\n").streams
    assert (stream.n_text_events, stream.first_us) == (0, 0)


# --- the client ------------------------------------------------------------------------------------------------------


async def answered(requests: list[Request]) -> tuple[Run, list[list[str]]]:
    """Runs the client against a server whose streams have three pieces. A stream of a request that the client must
    cancel stops after the first piece. Returns the run and the server's events.
    """
    seen: list[list[str]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        asked = json.loads(await reader.readexactly(length))
        seen.append(["sent", asked["prompt"]])
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for number in range(3):
            writer.write(b'data: {"text": "x"}\n\n')
            await writer.drain()
            if number == 0 and asked["prompt"].startswith("hangs"):
                await reader.read()
                break
        else:
            writer.write(b'data: {"text": "", "finish_reason": "length"}\n\ndata: [DONE]\n\n')
        seen.append(["over", asked["prompt"]])
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        return await asyncio.to_thread(streams.send, port, requests), seen


async def test_a_user_sends_one_request_after_the_other() -> None:
    run, seen = await answered([Request({"prompt": f"{number}"}, user=0, pause_ms=5 * number) for number in range(3)])
    assert seen == [[what, f"{number}"] for number in range(3) for what in ("sent", "over")]
    assert [stream.n_text_events for stream in run.streams] == [3, 3, 3]
    sent = [stream.sent_us for stream in run.streams]
    assert [later - sooner >= 5000 * n for n, (sooner, later) in enumerate(zip(sent, sent[1:], strict=False), 1)] == [
        True,
        True,
    ]


async def test_the_client_hangs_up_and_goes_on() -> None:
    run, seen = await answered([Request({"prompt": "hangs"}, 0, cancel_ms=20), Request({"prompt": "next"}, 0)])
    assert ["over", "hangs"] in seen and ["over", "next"] in seen
    assert run.streams[0].last_us >= 20_000
    assert run.streams[1].n_text_events == 3


def test_a_completion_without_a_session_reuses_nothing() -> None:
    assert body([1], 2)["cache_prompt"] is False
    assert "cache_prompt" not in body([1], 2, "a name")
    assert body([1], 2, "a name")["session_id"] == "a-name"


# --- traffic ---------------------------------------------------------------------------------------------------------


def test_traffic_is_the_same_for_every_server() -> None:
    assert traffic(3, 4) == traffic(3, 4)
    assert [request.user for request in traffic(3, 2)] == [0, 1, 2, 0, 1, 2]


def test_a_day_has_every_turn_of_a_session_in_order_and_some_come_back() -> None:
    by_user = day.plan(400, "seed")
    turns = [turn for turns in by_user for turn in turns]
    assert {turn.session for turn in turns} == set(range(400))
    n_left = 0
    for user in by_user:
        for session in {turn.session for turn in user}:
            own = [turn for turn in user if turn.session == session]
            assert all(a.prompt == b.prompt[: len(a.prompt)] for a, b in zip(own, own[1:], strict=False))
            at = [number for number, turn in enumerate(user) if turn.session == session]
            n_left += at[-1] - at[0] >= len(at)
    assert 10 <= n_left <= 80


# --- figures kept in the repository ----------------------------------------------------------------------------------


def report(model: str, decode: list[float]) -> Report:
    made = Report("single", model, "about")
    made.compare("64 tokens", "decode", "tokens/s", {OURS: decode, "llama-server": [10.0, 10.0]}, at_least=1.0)
    return made


def test_a_report_says_what_missed_its_target(capsys: pytest.CaptureFixture[str]) -> None:
    report("bench-small", [8.0, 9.0]).close()
    printed = capsys.readouterr()
    assert "decode / llama-server's" in printed.err and "target >= 1: no" in printed.err
    assert "single,bench-small,64 tokens,llmd,decode,tokens/s,8.5,8,9,2,," in printed.out


def test_kept_figures_replace_those_of_the_same_model(tmp_path: Path) -> None:
    path = tmp_path / "zen9.csv"
    report("bench-small", [1.0]).close(path)
    report("bench-dense", [2.0]).close(path)
    report("bench-small", [8.0, 9.0]).close(path)
    rows = kept.read(path)
    assert [row["model"] for row in rows] == ["bench-dense"] * 3 + ["bench-small"] * 3
    ratio = rows[-1]
    assert (ratio["side"], ratio["median"], ratio["least"], ratio["most"]) == (RATIO, "0.85", "0.8", "0.9")
    assert path.read_text().startswith(f"# {machine.describe()}\n")
    assert ratio["measured"] == machine.today()


@pytest.mark.parametrize("path", sorted(kept.RESULTS.glob("*.csv")), ids=lambda path: path.stem)
def test_every_kept_file_can_be_read(path: Path) -> None:
    rows = kept.read(path)
    assert rows
    assert all([*row] == [*kept.COLUMNS] and float(row["repeats"]) >= 1 and row["measured"] for row in rows)
