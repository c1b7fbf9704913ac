"""Sends one of the worst inputs that a client can send, for bench/abuse.py.

Usage: python -m bench.inputs NAME PORT BODY_LIMIT TIMES

This program runs in a separate process. So the time for preparing the input is not measured. The program prints "ready"
when the input is prepared. After it has read a line from standard input, it sends the input TIMES times.
"""

from __future__ import annotations

import json
import resource
import socket
import sys
import time
import zlib
from collections.abc import Callable, Mapping

Send = Callable[[int], None]

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MB = 1_000_000
HELD_S = 3.0
"""Seconds for which this program keeps a connection open on which it sends nothing, or little."""
TIMEOUT_S = 120.0


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)


def exchange(port: int, data: bytes) -> None:
    """Sends the data over a new connection, closes the sending direction, and receives until the server closes the
    connection. It is no error if the server closes the connection before all data are sent.
    """
    with connect(port) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
        except OSError:
            pass


def head(path: str, length: int, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {length}", "Connection: close", *headers]
    return "\r\n".join([*lines, "\r\n"]).encode()


def body(data: bytes, path: str = CHAT, *headers: str) -> Send:
    whole = head(path, len(data), *headers) + data
    return lambda port: exchange(port, whole)


def fields(values: Mapping[str, object], path: str = CHAT) -> Send:
    messages = {"messages": [{"role": "user", "content": "hi"}]} if path == CHAT else {"prompt": "hi"}
    return body(json.dumps({**messages, "max_tokens": 1, **values}).encode(), path)


def content(text: bytes) -> Send:
    """Makes a chat request with one message. `text` is the content of the message as a JSON string, without the
    quotes.
    """
    return body(b'{"max_tokens":1,"messages":[{"role":"user","content":"' + text + b'"}]}')


def padded(limit: int, filler: bytes) -> Send:
    """Makes a chat request whose body has exactly `limit` bytes: its message repeats `filler`."""
    start, end = b'{"max_tokens":1,"messages":[{"role":"user","content":"', b'"}]}'
    return body(start + filler * ((limit - len(start) - len(end)) // len(filler)) + end)


def bomb() -> Send:
    """Makes a chat request whose compressed body has some hundred kilobytes, and would decompress to 300 MB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = b"".join(packer.compress(bytes(MB)) for _ in range(300)) + packer.flush()
    return body(packed, CHAT, "Content-Encoding: gzip")


SLOW_FLOAT = b"1.7976931348623157e308"
INTEGERS = (
    "max_tokens", "max_completion_tokens", "n_predict", "n", "seed", "top_k", "min_tokens", "min_keep", "mirostat",
    "repeat_last_n", "dry_allowed_length", "dry_penalty_last_n", "thinking_budget", "thinking_budget_tokens",
    "n_probs", "top_logprobs",
)  # fmt: skip


def combined(n_floats: int, n_objects: int) -> Send:
    """Makes a chat request that takes long to decode. The request combines slow floats, many objects, and integers that
    are written as floats.
    """
    values = [SLOW_FLOAT] * n_floats + [b'{"k%d":"v%d"}' % (n, n) for n in range(n_objects)]
    call = b'{"function":{"name":"f","arguments":{"a":[%b]}}}' % b",".join(values)
    messages = b'{"role":"user","content":"hi"},{"role":"assistant","tool_calls":[%b]}' % call
    return body(b'{"messages":[%b]%b}' % (messages, as_floats()))


def as_floats() -> bytes:
    """Returns JSON members whose declared type is integer. Each value is written as a float, because such a value is
    decoded separately.
    """
    return b"".join(b',"%b":1.0' % name.encode() for name in INTEGERS)


def variables(n_floats: int) -> Send:
    """Makes a chat request with floats that are slow to parse. The request is valid nevertheless, because variables of
    the template can have any values.
    """
    floats = b",".join([SLOW_FLOAT] * n_floats)
    head = b'{"messages":[{"role":"user","content":"hi"}],"logprobs":true,"chat_template_kwargs":{"a":[%b]}' % floats
    return body(head + as_floats() + b"}")


def unknown(n: int) -> Send:
    """Makes a request of Ollama's API with `n` unknown members. llmd ignores these members and logs their names."""
    return body(
        json.dumps({"messages": [], **{f"k{n}": 1.5 if n < 1000 else n for n in range(n)}}).encode(), "/api/chat"
    )


def biased(n_ids: int, n_biases: int) -> Send:
    """Makes a completion request whose prompt consists of token ids. Some ids are written as floats. The logit biases
    are slow to parse.
    """
    ids = b",".join([b"1.0"] * 60 + [b"100000"] * n_ids)
    biases = b",".join(b'"%d":%b' % (n, SLOW_FLOAT) for n in range(n_biases))
    return body(b'{"max_tokens":1.0,"prompt":[%b],"logit_bias":{%b}}' % (ids, biases), COMPLETIONS)


def calls(n: int) -> Send:
    """Makes a chat request with `n` past tool calls. llmd compares such calls with the calls that the model has
    generated. The arguments of each call have the largest number of floats that llmd still decodes for this comparison.
    """
    function = {"name": "f", "arguments": f"[{','.join([SLOW_FLOAT.decode()] * 500)}]"}
    call = {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": function}]}
    return fields({"messages": [{"role": "user", "content": "hi"}, *[call] * n, {"role": "user", "content": "hi"}]})


def items(n: int, item: Mapping[str, object]) -> Send:
    return body(json.dumps({"input": [item] * n, "max_output_tokens": 1}).encode(), "/v1/responses")


# --- inputs of several connections -----------------------------------------------------------------------------------


def held(n: int, data: bytes, drip: bytes = b"") -> Send:
    """Opens `n` connections at once. Each sends `data` and then, every 0.1 s, `drip`. If `drip` is empty, sends nothing
    more.
    """

    def send(port: int) -> None:
        connections = []
        for _ in range(n):
            try:
                connections.append(connect(port))
                connections[-1].sendall(data)
            except OSError:
                pass
        until = time.monotonic() + HELD_S
        while time.monotonic() < until:
            time.sleep(0.1)
            for connection in connections if drip else ():
                try:
                    connection.sendall(drip)
                except OSError:
                    pass
        for connection in connections:
            connection.close()

    return send


def many(n: int, data: bytes) -> Send:
    """Opens `n` connections, one after the other, and sends `data` on each."""

    def send(port: int) -> None:
        for _ in range(n):
            exchange(port, data)

    return send


def get(path: str = "/health", *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *headers, "\r\n"]).encode()


def unread(port: int) -> None:
    """Sends requests with long answers over one connection, and never reads an answer."""
    with connect(port) as connection:
        connection.settimeout(HELD_S)
        try:
            while True:
                connection.sendall(get("/openapi.json") * 100)
        except OSError:
            pass


def left(n: int) -> Send:
    """Sends `n` chat requests at the same time, each over a new connection, and disconnects before the answers."""
    data = json.dumps({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1000, "ignore_eos": True})
    whole = head(CHAT, len(data)) + data.encode()

    def send(port: int) -> None:
        connections = [connect(port) for _ in range(n)]
        for connection in connections:
            connection.sendall(whole)
        for connection in connections:
            connection.close()

    return send


INPUTS: dict[str, Callable[[int], Send]] = {
    "nothing": lambda _: lambda _: time.sleep(HELD_S),
    "arrays, 8 MB deep": lambda _: body(b'{"messages":' + b"[" * (8 * MB)),
    "objects, 8 MB deep": lambda _: body(b'{"metadata":' + b'{"a":' * (8 * MB // 5)),
    "a string of 8 MB": lambda _: content(b"a" * (8 * MB)),
    "a string of 8 MB, escaped": lambda _: content(b"\\n" * (4 * MB)),
    "spaces, 8 MB": lambda _: content(b" " * (8 * MB)),
    "emoji, 8 MB": lambda _: content("\N{GRINNING FACE}".encode() * (2 * MB)),
    "digits, 8 MB": lambda _: content(b"1" * (8 * MB)),
    "numbers after a DEL, 1 MB": lambda _: content(b"\\u007f " + " ".join(map(str, range(150_000))).encode()),
    "invalid UTF-8, 8 MB": lambda _: content(b"\xff" * (8 * MB)),
    "lone surrogates, 8 MB": lambda _: content(b"\\ud800" * (8 * MB // 6)),
    "300,000 messages": lambda _: fields({"messages": [{"role": "user", "content": "x"}] * 300_000}),
    "16,000 messages": lambda _: fields({"messages": [{"role": "user", "content": "x"}] * 16_000}),
    "16,000 system messages, 16 MB": lambda _: fields(
        {"messages": [{"role": "system", "content": "x" * 980}] * 16_000}
    ),
    "500,000 stop strings": lambda _: fields({"stop": ["x"] * 500_000}),
    "500,000 unknown fields": lambda _: fields({f"k{n}": n for n in range(500_000)}),
    "500,000 keys in metadata": lambda _: fields({"metadata": {f"k{n}": n for n in range(500_000)}}),
    "500,000 logit biases": lambda _: fields({"logit_bias": {str(n): 1 for n in range(500_000)}}),
    "a key of 8 MB": lambda _: fields({"k" * (8 * MB): 1}),
    "a wrong value of 8 MB": lambda _: fields({"temperature": ["x" * 70] * (8 * MB // 75)}),
    "an integer of 8 MB": lambda _: body(b'{"seed":' + b"9" * (8 * MB) + b"}"),
    "a fraction of 8 MB": lambda _: body(b'{"temperature":0.' + b"9" * (8 * MB) + b"}"),
    "4,000,000 token ids": lambda _: fields({"prompt": [1] * 4_000_000}, COMPLETIONS),
    "a prompt of 1.6 MB": lambda _: fields({"prompt": "word " * 320_000}, COMPLETIONS),
    "1.6 MB to tokenize": lambda _: body(json.dumps({"content": "word " * 320_000}).encode(), "/tokenize"),
    "4,000,000 ids to detokenize": lambda _: body(json.dumps({"tokens": [1] * 4_000_000}).encode(), "/detokenize"),
    "25 kB of floats that are slow to parse, and integers written as floats": lambda _: combined(1070, 0),
    "slow floats, with as many values, objects and names as allowed": lambda _: combined(1070, 30_000),
    "slow floats and such integers in variables of the template": lambda _: variables(1070),
    "60,000 fields that Ollama does not know": lambda _: unknown(60_000),
    "1,020 logit biases that are slow to parse": lambda _: biased(1, 1020),
    "1,020 slow logit biases, with as many token ids as allowed": lambda _: biased(80_000, 1020),
    "many floats in the arguments of 64 calls": lambda _: calls(64),
    "31,000 token ids, some written as floats": lambda _: fields({"prompt": [1.0] * 16 + [1] * 31_000}, COMPLETIONS),
    "2,000 token ids, all written as floats": lambda _: fields({"prompt": [1.0] * 2000}, COMPLETIONS),
    "2,200 short items": lambda _: items(2200, {"role": "user", "content": "x"}),
    "4,900 items of no known type": lambda _: items(4900, {"type": "x"}),
    "16,000 items": lambda _: items(16_000, {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"}),
    "a body as large as allowed, one string": lambda limit: padded(limit, b"a"),
    "a body as large as allowed, many values": lambda limit: body(
        b'{"messages":[' + b"1," * ((limit - 16) // 2) + b"1]}"
    ),
    "a body one byte larger than allowed": lambda limit: body(b" " * (limit + 1)),
    "a gzip bomb of 300 MB": lambda _: bomb(),
    "10,000 headers": lambda _: many(20, get("/health", *["X-A: b"] * 10_000)),
    "a header of 1 MB": lambda _: many(20, get("/health", "X-A: " + "b" * MB)),
    "1,000 requests that are not HTTP": lambda _: many(1000, b"no HTTP\r\n\r\n"),
    "20,000 pipelined requests": lambda _: many(1, get() * 20_000),
    "answers that nobody reads": lambda _: unread,
    "200 clients that leave": lambda _: left(200),
    "500 slow request heads": lambda _: held(500, b"GET /health HT", b"T"),
    "500 slow bodies": lambda _: held(500, head(CHAT, 100_000), b" "),
    "1,000 silent connections": lambda _: held(1000, b""),
    "5,000 connections": lambda _: held(5000, b""),
    "5,000 connections, one request on each": lambda _: held(5000, get()),
}


def main(name: str, port: int, limit: int, times: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    send = INPUTS[name](limit)
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(times):
        send(port)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
