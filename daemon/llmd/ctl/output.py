"""The three standard streams as llmctl uses them: whatever they are connected to, it ends in a sentence and an exit
status. Answers go to standard output and must arrive; remarks go to standard error and may get lost."""

from __future__ import annotations

import errno
import io
import json
import os
import sys

CLOSED = "it is closed"


class StreamFailed(Exception):
    """Standard output takes nothing, or no more; or standard input gives none."""


def prepare() -> None:
    """Before anything is opened. What cannot be decoded is read as U+FFFD, what cannot be encoded is written escaped.

    A stream that was closed by the caller has no object: print() would then write errors to standard output, and the
    next socket would get its number.
    """
    is_closed = sys.stdout is None
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")
    for stream, errors in ((sys.stdin, "replace"), (sys.stdout, "backslashreplace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)
    if isinstance(sys.stdout, io.TextIOWrapper) and isinstance(sys.stdout.buffer, io.RawIOBase):
        # PYTHONUNBUFFERED: what a full pipe did not take of a write would be dropped without a word.
        sys.stdout = open(1, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, closefd=False)
    if is_closed:
        raise StreamFailed(f"standard output cannot be written: {CLOSED}")


def answer(text: str, end: str = "\n") -> None:
    """To standard output, at once. Raises StreamFailed, or BrokenPipeError when its reader has seen enough."""
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
    """From standard input, without its end. Raises EOFError; a terminal that is gone is an end, too."""
    if sys.stdin is None:
        raise StreamFailed(f"standard input cannot be read: {CLOSED}")
    if not sys.stdout.isatty():  # input() would write the prompt among the answers
        remark(prompt, end="")
        prompt = ""
    try:
        return input(prompt)
    except OSError as error:
        if error.errno == errno.EIO:
            raise EOFError from error
        raise StreamFailed(f"standard input cannot be read: {error.strerror or error}") from error


def finish() -> None:
    """Flushes what argparse has written."""
    answer("", end="")
    remark("", end="")


def as_json(raw: object) -> str:
    """On one line; in ASCII where standard output cannot carry every character."""
    carries_all = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return json.dumps(raw, ensure_ascii=not carries_all)


def remark(text: str, end: str = "\n") -> None:
    """To standard error. Whoever closed or filled it does not want to know; the exit status says enough."""
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except OSError:
        _silence(2)


def _silence(number: int) -> None:
    """Nothing more may be written, at interpreter exit either: what is still buffered would fail again."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)
