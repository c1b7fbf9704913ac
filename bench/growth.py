"""Processor time of the daemon for a token: in a long answer, a token must not cost more than in a short one.

The cost of a token is the processor time for an answer divided by the number of its tokens. The cost is measured for
each dialect and each form of answer, such as tool calls or structured output. The event loop, the decode thread and all
other threads are measured separately. The decode thread includes the simulated model. The cost of a request itself is
spread over the tokens of its answer. So a token of a short answer costs more.
"""

from __future__ import annotations

import argparse
import json
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .daemon import Server, daemon
from .machine import thread_cpu_s
from .models import ROOT
from .report import Figure, Report

MODELS = ("sim:dense",)
LENGTHS = (3000, 30000)
GROWTH_MOST = 1.25
"""Target: the cost of a token in the second half of a long answer, divided by its cost in the first half, is at most
this.
"""
COUNTS_US = 1.0
"""If a token costs a thread fewer microseconds than this, the growth of that cost is not reported."""
THREADS = ("loop", "decode", "others")
TEMPLATE = ROOT / "tests" / "templates" / "qwen3.jinja"
"""A chat template that supports reasoning and tool calls."""
_ROOM = 2048
"""Number of tokens of the context that are reserved for the prompt."""

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Form:
    name: str
    path: str
    body: Callable[[int], Body]
    """Returns the body of a request. The argument is the approximate number of tokens of the answer."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one answer: its number of tokens, and its processor time in microseconds, by thread."""

    n_tokens: float
    us: dict[str, float]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lengths",
        type=int,
        nargs=2,
        default=LENGTHS,
        metavar="N",
        help="tokens of the short and of the long answer (%(default)s)",
    )
    parser.add_argument(
        "--step-us",
        type=int,
        default=100,
        metavar="US",
        help="time of one step of the model; 0: as fast as possible, so that an event has several tokens",
    )
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="measure only forms of answer whose names contain this"
    )


def about(options: argparse.Namespace) -> str:
    return f"what a token costs in answers of {options.lengths[0]} and {options.lengths[1]} tokens"


def measure(report: Report, model: str, options: argparse.Namespace) -> None:
    repeats = options.repeats or (1 if options.short else 3)
    short, long = options.lengths
    lengths = (short, (short + long) // 2, long)
    n_ctx = 2 * long + _ROOM
    with tempfile.TemporaryDirectory(prefix="llmd-bench-") as directory:
        script = Path(directory) / "script"
        script.write_text("".join(map(_script, lengths)))
        name = f"{model},length=0,step_us={options.step_us},ctx={n_ctx},script={script}"
        with daemon(name, ctx_size=n_ctx, chat_template_file=str(TEMPLATE), threads=1) as server:
            for form in forms():
                if options.only in form.name:
                    report.progress(form.name)
                    _compare(report, server, form, lengths, repeats)


def _compare(report: Report, server: Server, form: Form, lengths: tuple[int, int, int], repeats: int) -> None:
    _cost(server, form, lengths[0])  # not measured: the first request imports modules and allocates buffers
    turns = [[_cost(server, form, n) for n in lengths] for _ in range(repeats)]
    for thread in THREADS:
        for at in (0, 2):
            values = [turn[at].us[thread] / turn[at].n_tokens for turn in turns]
            report.add(Figure(case=form.name, quantity=f"{thread}, {lengths[at]}", unit="us a token", values=values))
        if min(values) >= COUNTS_US:
            values = [_growth(turn, thread) for turn in turns]
            report.add(
                Figure(case=form.name, quantity=f"{thread}, growth", unit="", values=values, at_most=GROWTH_MOST)
            )


def _growth(turn: list[Cost], thread: str) -> float:
    """Returns the cost of a token in the second half of a long answer, divided by its cost in the first half. The costs
    of answers of three lengths are subtracted. So costs that occur once per request cancel out.
    """
    short, middle, long = turn
    before = (middle.us[thread] - short.us[thread]) / (middle.n_tokens - short.n_tokens)
    behind = (long.us[thread] - middle.us[thread]) / (long.n_tokens - middle.n_tokens)
    return behind / before if before > 0 else 0.0


def _cost(server: Server, form: Form, n_tokens: int) -> Cost:
    before, n_before = _cpu_s(server.pid), server.metric("llmd_decode_tokens_total")
    _sent(server.port, form.path, form.body(n_tokens))
    after, n_after = _cpu_s(server.pid), server.metric("llmd_decode_tokens_total")
    if n_after - n_before < n_tokens * 0.9:
        raise SystemExit(f"{form.name}: the answer has {n_after - n_before:.0f} tokens instead of {n_tokens}")
    return Cost(n_after - n_before, {thread: (after[thread] - before[thread]) * 1e6 for thread in THREADS})


def _cpu_s(pid: int) -> dict[str, float]:
    found = dict.fromkeys(THREADS, 0.0)
    for task in Path(f"/proc/{pid}/task").iterdir():
        is_decode = (task / "comm").read_text().startswith("llm-decode")
        found["loop" if task.name == str(pid) else "decode" if is_decode else "others"] += thread_cpu_s(
            pid, int(task.name)
        )
    return found


def _sent(port: int, path: str, body: Body) -> None:
    """Sends a request and receives the whole answer. Does not parse the answer, so that the client is always faster
    than the daemon.
    """
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
        status = connection.recv(1 << 16)
        if not status.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"{path}: {status.decode(errors='replace')}")
        while connection.recv(1 << 18):
            pass


# --- requests --------------------------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "required": ["rows"],
    "properties": {"rows": {"type": "array", "items": {"type": "string"}}},
    "additionalProperties": False,
}
_ROW = " little world made some people very"
_TOKENS_OF_ROW = 8
"""Number of tokens of one row of the answer: one for each word, and those between two rows."""


def _script(n: int) -> str:
    """Returns the part of the simulated model's script for answers of about `n` tokens. The script has the answers of
    the model to the messages that `_chat_body` sends.
    """
    words = " little world" * (n // 2)
    rows = ",".join([f'"{_ROW}"'] * (n // _TOKENS_OF_ROW + 1))
    form = f'{{"rows":[{rows}]}}'
    call = f'<tool_call>\n{{"name": "keep", "arguments": {form}}}\n</tool_call>'
    return f"? call-{n}.\n{call}\n? form-{n}.\n{form}\n? think-{n}.\n<think>\n{words}\n</think>\n\nDone.\n"


def _chat_body(topic: str, **more: Any) -> Callable[[int], Body]:
    def body(n: int) -> Body:
        return {"messages": [{"role": "user", "content": f"{topic}-{n}."}], **more}

    return body


def _plain(limit: str, prompt: str, **more: Any) -> Callable[[int], Body]:
    """Returns a function that makes the body of a request with a plain text as its answer. `limit` is the dialect's
    name for the maximum number of tokens. `prompt` is the dialect's name for the prompt.
    """

    def body(n: int) -> Body:
        asked: Body = {prompt: [{"role": "user", "content": "hello"}] if prompt == "messages" else "hello", **more}
        place = asked
        *objects, last = limit.split(".")
        for name in objects:
            place = asked[name] = dict(asked.get(name, {}))
        place[last] = n
        return asked

    return body


def _both(name: str, path: str, body: Callable[[int], Body]) -> Iterator[Form]:
    for is_stream in (True, False):

        def one(n: int, is_stream: bool = is_stream) -> Body:
            return {**body(n), "stream": is_stream}

        yield Form(f"{name}, {'streamed' if is_stream else 'whole'}", path, one)


def forms() -> Iterator[Form]:
    yield from _openai()
    yield from _responses()
    yield from _anthropic()
    yield from _ollama()
    yield from _llamacpp()


_PARAMETERS = {"type": "object", "properties": {"rows": {"type": "array", "items": {"type": "string"}}}}
_TOOL = {"type": "function", "function": {"name": "keep", "description": "", "parameters": _PARAMETERS}}
_STOPS = ["zebra", " little world made zebras", "\n\n\n\nzebra", " the of and zebra"]
"""Stop strings that never occur in the answer, although their beginnings do."""


def _openai() -> Iterator[Form]:
    chat = "/v1/chat/completions"
    yield from _both("chat", chat, _plain("max_tokens", "messages"))
    yield from _both("chat, stops", chat, _plain("max_tokens", "messages", stop=_STOPS))
    yield from _both("chat, n=2", chat, _plain("max_tokens", "messages", n=2))
    yield from _both("chat, logprobs", chat, _plain("max_tokens", "messages", logprobs=True, top_logprobs=2))
    yield from _both("chat, penalties", chat, _plain("max_tokens", "messages", presence_penalty=0.5))
    yield from _both("chat, call", chat, _chat_body("call", tools=[_TOOL]))
    yield from _both("chat, thoughts", chat, _chat_body("think"))
    form = {"type": "json_schema", "json_schema": {"name": "rows", "schema": SCHEMA, "strict": True}}
    yield from _both("chat, schema", chat, _chat_body("form", response_format=form))
    yield from _both("completions", "/v1/completions", _plain("max_tokens", "prompt"))
    yield from _both("completions, logprobs", "/v1/completions", _plain("max_tokens", "prompt", logprobs=2))


def _responses() -> Iterator[Form]:
    path, tool = "/v1/responses", {"type": "function", "name": "keep", "parameters": _PARAMETERS}

    def input_body(topic: str, **more: Any) -> Callable[[int], Body]:
        return lambda n: {"input": f"{topic}-{n}.", **more}

    yield from _both("responses", path, _plain("max_output_tokens", "input"))
    yield from _both("responses, call", path, input_body("call", tools=[tool]))
    yield from _both("responses, thoughts", path, input_body("think"))
    probable = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    yield from _both("responses, logprobs", path, _plain("max_output_tokens", "input", **probable))


def _anthropic() -> Iterator[Form]:
    path, most = "/v1/messages", 2 * max(LENGTHS)
    tool = {"name": "keep", "description": "", "input_schema": _PARAMETERS}
    thinking = {"type": "enabled", "budget_tokens": most - 1}
    yield from _both("messages", path, _plain("max_tokens", "messages"))
    yield from _both("messages, call", path, _chat_body("call", max_tokens=most, tools=[tool]))
    yield from _both("messages, thoughts", path, _chat_body("think", max_tokens=most, thinking=thinking))


def _ollama() -> Iterator[Form]:
    chat, model = "/api/chat", {"model": "x"}
    yield from _both("ollama chat", chat, _plain("options.num_predict", "messages", **model))
    yield from _both("ollama chat, call", chat, _chat_body("call", tools=[_TOOL], **model))
    yield from _both("ollama chat, thoughts", chat, _chat_body("think", think=True, **model))
    yield from _both("ollama chat, schema", chat, _chat_body("form", format=SCHEMA, **model))
    yield from _both("ollama generate", "/api/generate", _plain("options.num_predict", "prompt", **model))


def _llamacpp() -> Iterator[Form]:
    yield from _both("llama.cpp", "/completion", _plain("n_predict", "prompt"))
    told = {"n_probs": 2, "return_tokens": True}
    yield from _both("llama.cpp, n_probs and tokens", "/completion", _plain("n_predict", "prompt", **told))
