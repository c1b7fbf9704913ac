"""Reads and writes the three standard streams of llmctl. If standard input or output fails, llmctl prints why and ends
with EXIT_STREAM.

Answers are written to standard output. Remarks, such as errors, are written to standard error. If standard error fails,
the remark is lost.
"""

from __future__ import annotations

import errno
import io
import json
import os
import sys

CLOSED = "it is closed"


class StreamFailed(Exception):
    """Raised if standard output cannot be written, or standard input cannot be read."""


def prepare() -> None:
    """Prepares the standard streams. Must be called before any file or socket is opened. Afterwards, undecodable bytes
    are read as U+FFFD, and unencodable characters are written as escapes.

    The program that starts llmctl may have closed a standard stream. sys.stdin, sys.stdout or sys.stderr is then None.
    Without this function, print() would write remarks to standard output, and the next socket would get the descriptor
    of the closed stream.
    """
    is_closed = sys.stdout is None
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # /dev/null gets the lowest free descriptor: `number`
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")
    for stream, errors in ((sys.stdin, "replace"), (sys.stdout, "backslashreplace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)
    if isinstance(sys.stdout, io.TextIOWrapper) and isinstance(sys.stdout.buffer, io.RawIOBase):
        # With PYTHONUNBUFFERED, sys.stdout has no buffer, and would silently drop the part of a text that does not fit
        # into the pipe.
        sys.stdout = open(1, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, closefd=False)
    if is_closed:
        raise StreamFailed(f"standard output cannot be written: {CLOSED}")


def answer(text: str, end: str = "\n") -> None:
    """Writes text to standard output and flushes. Raises BrokenPipeError if the reader of the output has closed the
    pipe. Raises StreamFailed if writing fails for another reason.
    """
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
    """Returns the next line of standard input, without the line end. Raises EOFError at the end of input, or if the
    terminal was closed.
    """
    if sys.stdin is None:
        raise StreamFailed(f"standard input cannot be read: {CLOSED}")
    if not sys.stdout.isatty():  # input() would write the prompt to standard output, between the answers
        remark(prompt, end="")
        prompt = ""
    try:
        return input(prompt)
    except OSError as error:
        if error.errno == errno.EIO:
            raise EOFError from error
        raise StreamFailed(f"standard input cannot be read: {error.strerror or error}") from error


def finish() -> None:
    """Flushes what argparse has printed. Raises an error if flushing fails."""
    answer("", end="")
    remark("", end="")


def as_json(raw: object) -> str:
    """Returns JSON on one line. Escapes characters that are not ASCII, unless standard output is UTF-8."""
    carries_all = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return json.dumps(raw, ensure_ascii=not carries_all)


def remark(text: str, end: str = "\n") -> None:
    """Writes a remark to standard error. If writing fails, only the remark is lost, and llmctl still ends with the
    right exit status.
    """
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except OSError:
        _silence(2)


def _silence(number: int) -> None:
    """Redirects a descriptor to /dev/null. Otherwise writing the output that is still buffered would fail again when
    the interpreter exits.
    """
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)
