"""OpenTelemetry traces: each request that generates is one span, with the words of its answer and of its log line."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmd import __version__
from llmd.core import limits
from llmd.engine.opening import EngineOptions, open_engine
from llmd.http.context import OPENING
from llmd.http.traces import LibraryLog
from tests.collector import ERROR, Collector, ReceivedSpan, collector
from tests.conftest import Serve
from tests.serving import SETTLE_S, Daemon, Json, chat, config_of, serving
from tests.test_process import Start

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CALLER = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
CHAT = "/v1/chat/completions"
SECRET = "swordfish"
ENDLESS = "sim:dense,length=0,step_us=500,ctx=100000"


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    with collector() as found:
        yield found


@pytest.fixture
async def traced(serve: Serve, collected: Collector) -> Daemon:
    return await serve(otel_endpoint=collected.url)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    starter = Start(tmp_path)
    yield starter
    starter.close()


def phases(collected: Collector, span: ReceivedSpan) -> list[str]:
    return [one.name for one in sorted(collected.children(span), key=lambda one: one.begin_ns)]


# --- what a span says ------------------------------------------------------------------------------------------------


async def test_a_span_has_the_words_of_the_answer_the_log_line_and_the_metrics(
    traced: Daemon, collected: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "llmd.http")
    answers = [await traced.chat(SECRET, session_id="a") for _ in range(2)]
    spans = await collected.requests(2)
    lines = [vars(record)["fields"] for record in caplog.records if record.getMessage() == "request"]
    metrics = await traced.metrics()
    for answer, span, line, reason in zip(answers, spans, lines, ("new", "equal"), strict=True):
        said, usage = span.attributes, answer["usage"]
        assert span.name == f"chat {answer['model']}" and span.status != ERROR
        assert said["llmd.reason"] == answer["session"]["session_reset_reason"] == line["reason"] == reason
        assert metrics[f"llmd_started_{reason}_total"] == 1
        assert said["gen_ai.usage.input_tokens"] == usage["prompt_tokens"] == line["prompt_tokens"]
        assert said["gen_ai.usage.output_tokens"] == usage["completion_tokens"] == line["generated_tokens"]
        reused = usage["prompt_tokens_details"]["cached_tokens"]
        assert said["gen_ai.usage.cache_read.input_tokens"] == reused == line["reused_tokens"]
        assert said["gen_ai.response.finish_reasons"] == [line["outcome"]] == ["length"]
        assert said["gen_ai.conversation.id"] == line["session"] == "a"
        assert said["llmd.request_id"] == line["request_id"]
        assert said["http.response.status_code"] == line["status"] == 200
        assert 0 < said["gen_ai.server.time_to_first_token"] <= (span.end_ns - span.begin_ns) / 1e9
        assert "error.type" not in said


async def test_a_span_has_no_text(traced: Daemon, collected: Collector) -> None:
    answer = await traced.chat(SECRET, session_id="a")
    await traced.ask("POST", CHAT, {"messages": [{"role": SECRET, "content": SECRET}]})
    await collected.requests(2)
    received = b"".join(collected.bodies)
    assert SECRET.encode() not in received
    assert answer["choices"][0]["message"]["content"].encode() not in received


async def test_each_answer_has_a_queue_a_prefill_and_a_decode(traced: Daemon, collected: Collector) -> None:
    await traced.chat(n=2)
    [span] = await collected.requests(1)
    children = collected.children(span)
    assert span.attributes["gen_ai.response.finish_reasons"] == ["length", "length"]
    for number in range(2):
        queue, prefill, decode = [one for one in children if one.attributes["llmd.answer"] == number]
        assert [one.name for one in (queue, prefill, decode)] == ["queue", "prefill", "decode"]
        assert queue.end_ns == prefill.begin_ns and prefill.end_ns == decode.begin_ns
        assert span.begin_ns <= queue.begin_ns and {one.trace for one in (queue, prefill, decode)} == {span.trace}
    assert span.attributes["gen_ai.usage.output_tokens"] == 16


async def test_answers_are_numbered_in_the_order_of_the_response(serve: Serve, collected: Collector) -> None:
    """The first answer waits for its session, so the second one ends first."""
    daemon = await serve(model=ENDLESS, session_timelines=1, otel_endpoint=collected.url)
    async with daemon.streaming(chat(session_id="a", max_tokens=90_000)):
        body = {"prompt": ["a", "b"], "max_tokens": 4, "session_id": "a"}
        answer = asyncio.create_task(daemon.ask("POST", "/v1/completions", body))
        async with asyncio.timeout(SETTLE_S):
            while daemon.counter("finished_length_total") != 1:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        await daemon.ask("POST", "/v1/sessions/a/reset")
        assert (await answer).code == "cancelled"
    [span] = [one for one in await collected.requests(2) if one.name.startswith("text_completion")]
    numbers = [(one.attributes["llmd.answer"], one.name) for one in collected.children(span)]
    assert numbers == [(0, "queue"), (1, "queue"), (1, "prefill"), (1, "decode")]
    assert span.attributes["gen_ai.response.finish_reasons"] == ["cancelled", "length"]


@pytest.mark.parametrize(
    ("path", "body", "operation"),
    [
        ("/v1/completions", {"prompt": "a"}, "text_completion"),
        ("/completion", {"prompt": "a"}, "text_completion"),
        ("/v1/messages", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 4}, "chat"),
        ("/v1/responses", {"input": "a"}, "chat"),
        ("/api/generate", {"prompt": "a"}, "text_completion"),
        ("/infill", {"input_prefix": "a", "input_suffix": "b"}, "text_completion"),
    ],
)
async def test_every_api_is_traced(serve: Serve, collected: Collector, path: str, body: Json, operation: str) -> None:
    daemon = await serve(model="sim:dense,fim=1", otel_endpoint=collected.url)
    assert (await daemon.ask("POST", path, body)).status == 200
    [span] = await collected.requests(1)
    assert span.name == f"{operation} {daemon.state.model_id}"
    assert span.attributes["gen_ai.operation.name"] == operation
    assert span.attributes["http.route"] == path
    assert phases(collected, span) == ["queue", "prefill", "decode"]


async def test_only_generating_requests_are_traced(traced: Daemon, collected: Collector) -> None:
    for path in ("/health", "/v1/models", "/metrics", "/v1/sessions"):
        await traced.ask("GET", path)
    await traced.ask("POST", "/tokenize", {"content": "a"})
    await traced.chat()
    assert len(await collected.requests(1)) == 1 and len(collected.spans) == 4


# --- the caller's trace ----------------------------------------------------------------------------------------------


async def test_the_span_belongs_to_the_trace_of_the_caller(traced: Daemon, collected: Collector) -> None:
    await traced.ask("POST", CHAT, chat(), headers=CALLER)
    await traced.ask("POST", CHAT, chat(), headers={"traceparent": "nonsense"})
    of_caller, alone = await collected.requests(2)
    assert (of_caller.trace, of_caller.parent) == (TRACE, PARENT)
    assert alone.parent == "" and alone.trace != TRACE


async def test_a_caller_that_does_not_record_its_trace_is_not_traced(traced: Daemon, collected: Collector) -> None:
    await traced.ask("POST", CHAT, chat(), headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})
    await traced.chat()
    [span] = await collected.requests(1)
    assert span.trace != TRACE


# --- requests without an answer --------------------------------------------------------------------------------------


async def test_a_refused_request(traced: Daemon, collected: Collector) -> None:
    await traced.ask("POST", CHAT, b"{", headers=CALLER)
    await traced.ask("POST", CHAT, chat("a " * 5000, session_id="a"))
    malformed, too_long = await collected.requests(2)
    assert malformed.parent == PARENT and malformed.status == too_long.status == ERROR
    assert malformed.attributes["error.type"] == "invalid_json"
    assert too_long.attributes["error.type"] == "context_length_exceeded"
    assert too_long.attributes["gen_ai.conversation.id"] == "a"
    assert [span.attributes["http.response.status_code"] for span in (malformed, too_long)] == [400, 400]
    assert collected.children(too_long) == []


async def test_a_request_without_access_is_not_traced(serve: Serve, collected: Collector, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("sk-one alice\n")
    keys.chmod(0o600)
    daemon = await serve(otel_endpoint=collected.url, api_key_file=keys)
    assert (await daemon.ask("POST", CHAT, chat())).status == 401
    assert (await daemon.ask("POST", CHAT, chat(), headers={"Authorization": "Bearer sk-one"})).status == 200
    [span] = await collected.requests(1)
    assert span.attributes["http.response.status_code"] == 200


@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_failed_request(serve: Serve, collected: Collector, is_stream: bool) -> None:
    daemon = await serve(model="sim:dense,fail_at=12", otel_endpoint=collected.url)
    answer = await daemon.ask("POST", CHAT, chat(max_tokens=100, stream=is_stream))
    assert b"step_failed" in answer.body
    [span] = await collected.requests(1)
    assert (span.status, span.attributes["error.type"]) == (ERROR, "step_failed")
    assert span.attributes["http.response.status_code"] == (200 if is_stream else 500)
    assert span.attributes["gen_ai.response.finish_reasons"] == ["failed"]


async def test_a_client_that_leaves(serve: Serve, collected: Collector) -> None:
    """The generation ends after the handler, and the span has what the generation says at its end."""
    daemon = await serve(model=ENDLESS, otel_endpoint=collected.url)
    async with daemon.streaming(chat(max_tokens=90_000)):
        pass
    [span] = await collected.requests(1)
    assert (span.status, span.attributes["error.type"]) == (ERROR, "client_gone")
    assert span.attributes["gen_ai.response.finish_reasons"] == ["client_gone"]
    assert span.attributes["gen_ai.usage.output_tokens"] > 0
    assert phases(collected, span) == ["queue", "prefill", "decode"]


async def test_a_request_before_the_model_is_loaded(
    collected: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_served = threading.Event()

    def open_later(options: EngineOptions) -> Any:
        is_served.wait()
        return open_engine(options)

    monkeypatch.setattr("llmd.engine.loader.open_engine", open_later)
    config = config_of(tmp_path, otel_endpoint=collected.url, load_wait=0.0)
    async with serving(config, is_loaded=False) as daemon:
        try:
            assert (await daemon.ask("POST", CHAT, chat())).status == 503
        finally:
            is_served.set()
            await daemon.app[OPENING]
    [span] = await collected.requests(1)
    assert (span.name, span.status, span.attributes["error.type"]) == ("chat", ERROR, "model_loading")


# --- the collector ---------------------------------------------------------------------------------------------------


async def test_the_library_reads_its_variables(
    serve: Serve, collected: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x")
    daemon = await serve(otel_endpoint=collected.url + "/")
    await daemon.chat()
    await collected.requests(1)
    assert collected.paths == {"/v1/traces"} and collected.headers["authorization"] == "Bearer x"
    assert (collected.resource["service.name"], collected.resource["service.version"]) == ("llmd", __version__)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "llmd-of-alice")
    daemon = await serve(otel_endpoint=collected.url + "/v1/traces")
    await daemon.chat()
    await collected.requests(2)
    assert collected.resource["service.name"] == "llmd-of-alice" and collected.paths == {"/v1/traces"}


def test_the_last_spans_are_sent_when_llmd_stops(start: Start, collected: Collector) -> None:
    process = start("--otel-endpoint", collected.url, OTEL_BSP_SCHEDULE_DELAY="3600000")
    assert process.ask("POST", CHAT, chat())[0] == 200
    process.popen.terminate()
    assert process.popen.wait(60) == 0
    assert len(collected.wait(1)) == 1


async def test_a_collector_that_hangs_delays_nothing(
    collected: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """llmd answers, drops the spans beyond the queue, logs one line about them, and stops while the library waits."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
    monkeypatch.setattr(limits, "TRACES_CLOSE_S", 0)
    collected.is_answering.clear()
    async with serving(config_of(tmp_path, otel_endpoint=collected.url)) as daemon:
        await daemon.chat()
        await collected.requests(1)
        for _ in range(4):
            await daemon.chat()
    assert "closing traces" in {thread.name for thread in threading.enumerate()}
    complaints = [record.getMessage() for record in caplog.records if record.getMessage().startswith("traces: ")]
    assert len(complaints) == 1 and complaints[0].startswith("traces: Queue ")


async def test_a_collector_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
    monkeypatch.setattr(limits, "TRACES_CLOSE_S", 60)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")  # seconds for which the library tries again
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        async with serving(config_of(tmp_path, otel_endpoint=endpoint)) as daemon:
            for _ in range(20):
                await daemon.chat()
    complaints = [record.getMessage() for record in caplog.records if record.getMessage().startswith("traces: ")]
    assert len(complaints) == 1 and "export" in complaints[0]


def test_messages_of_the_library_are_held_back(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    handler = LibraryLog(lambda: now)
    record = logging.LogRecord("opentelemetry.sdk", logging.WARNING, __file__, 1, "queue %s", ("full",), None)
    for _ in range(100):
        handler.handle(record)
    now = limits.TRACES_COMPLAINT_S
    handler.handle(record)
    first, second = caplog.records
    assert first.getMessage() == second.getMessage() == "traces: queue full"
    assert (vars(first)["fields"], vars(second)["fields"]) == ({}, {"messages_held_back": 99})


# --- the option ------------------------------------------------------------------------------------------------------


def test_without_the_option_the_library_is_not_loaded() -> None:
    program = (
        "import sys, llmd.__main__, llmd.app; print(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_option_without_the_library(start: Start, tmp_path: Path) -> None:
    package = tmp_path / "without" / "opentelemetry"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    path = f"{package.parent}:{os.environ.get('PYTHONPATH', '')}".rstrip(":")
    status, errors = start.fails("--otel-endpoint", "http://127.0.0.1:9", PYTHONPATH=path)
    assert status == 1
    assert "--otel-endpoint needs the Python package opentelemetry-exporter-otlp-proto-http" in errors


def test_a_variable_that_the_library_refuses(start: Start) -> None:
    status, errors = start.fails("--otel-endpoint", "http://127.0.0.1:9", OTEL_BSP_MAX_QUEUE_SIZE="0")
    assert status == 2 and "OTEL_" in errors and "max_queue_size" in errors
