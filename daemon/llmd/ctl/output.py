"""The three standard streams of llmctl. If one of them fails, llmctl ends with a sentence and an exit status.

Answers go to standard output, where a failure is an error. Remarks go to standard error and can get lost.
"""

from __future__ import annotations

import errno
import io
import json
import os
import sys

CLOSED = "it is closed"


class StreamFailed(Exception):
    """Standard output cannot be written, or standard input cannot be read."""


def prepare() -> None:
    """Prepares the standard streams before anything is opened. Undecodable bytes are read as U+FFFD, and characters
    that cannot be encoded are written escaped.

    If the caller has closed a stream, Python has no object for it: print() would write errors to standard output, and
    the next socket would get the number of the stream.
    """
    is_closed = sys.stdout is None
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")
    for stream, errors in ((sys.stdin, "replace"), (sys.stdout, "backslashreplace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)
    if isinstance(sys.stdout, io.TextIOWrapper) and isinstance(sys.stdout.buffer, io.RawIOBase):
        # With PYTHONUNBUFFERED, the part of a write that does not fit into a full pipe would silently be dropped.
        sys.stdout = open(1, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, closefd=False)
    if is_closed:
        raise StreamFailed(f"standard output cannot be written: {CLOSED}")


def answer(text: str, end: str = "\n") -> None:
    """Writes to standard output and flushes. Raises StreamFailed, or BrokenPipeError if the reader has closed
    the pipe."""
    try:
        sys.stdout.write(text + end)
        sys.stdout.flush()
    except BrokenPipeError:
        _silence(1)
        raise
    except OSError as error:
        _silence(1)
        raise StreamFailed(f"standard output cannot be written: {error.strerror or error}") from error


def line(prompt: str) -> str:
    """Reads a line from standard input, without the line end. Raises EOFError at the end of input, or if the terminal
    is lost.
    """
    if sys.stdin is None:
        raise StreamFailed(f"standard input cannot be read: {CLOSED}")
    if not sys.stdout.isatty():  # input() would write the prompt to standard output
        remark(prompt, end="")
        prompt = ""
    try:
        return input(prompt)
    except OSError as error:
        if error.errno == errno.EIO:
            raise EOFError from error
        raise StreamFailed(f"standard input cannot be read: {error.strerror or error}") from error


def finish() -> None:
    """Flushes the output of argparse."""
    answer("", end="")
    remark("", end="")


def as_json(raw: object) -> str:
    """Returns JSON on one line. It is ASCII unless standard output can encode every character."""
    carries_all = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return json.dumps(raw, ensure_ascii=not carries_all)


def remark(text: str, end: str = "\n") -> None:
    """Writes to standard error. If that fails, the remark is lost, but the exit status still tells the result."""
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except OSError:
        _silence(2)


def _silence(number: int) -> None:
    """Redirects the descriptor to /dev/null, because buffered output would fail again when the interpreter exits."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)
