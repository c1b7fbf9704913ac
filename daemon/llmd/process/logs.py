"""Log lines on standard error, as text for people or as JSON for programs. A log line has a message and fields
(NAME=VALUE). Writing a line must neither block nor stop the daemon.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import select
import sys
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from ..core import limits

_PLAIN = re.compile(r"[\w.:/@%+,*\[\]-]+")
STDERR = 2
"""The file descriptor of standard error."""


def configure(level: str, form: str) -> None:
    is_journal = writes_to_journal()
    formatter = JsonFormatter() if form == "json" else TextFormatter(has_stamp=not is_journal)
    handler = Sink(STDERR)
    handler.setFormatter(JournalFormatter(formatter) if is_journal else formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("llmd").setLevel(level.upper())


def print_fatal(text: str) -> None:
    """Prints to standard error why the daemon cannot start. If systemd's journal reads standard error, the line begins
    with the priority of an error.
    """
    line = f"<{_PRIORITIES[logging.ERROR]}>{text}" if writes_to_journal() else text
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def writes_to_journal(environment: Mapping[str, str] = os.environ) -> bool:
    """Returns whether standard error is connected to systemd's journal. See JOURNAL_STREAM in systemd.exec(5)."""
    try:
        found = os.fstat(STDERR)
    except OSError:
        return False
    return environment.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


class Sink(logging.Handler):
    """Writes log lines to a descriptor. If a line cannot be written within LOG_PATIENCE_MS, the line is dropped and
    counted. Causes are a stopped reader, a full disk or a closed terminal. The next line that can be written is
    preceded by the number of dropped lines.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._writable = select.poll()
        self._writable.register(descriptor, select.POLLOUT)
        self._lost = 0
        self._is_torn = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception as error:
            line = f"a log line could not be formatted: {record.msg!r}: {error!r}"
        if self._lost and self._write(self.format(_loss(self._lost))):
            self._lost = 0
        if self._lost or not self._write(line):
            self._lost += 1

    def _write(self, line: str) -> bool:
        data = ("\n" if self._is_torn else "").encode() + line.encode("utf-8", "backslashreplace") + b"\n"
        left = memoryview(data)
        try:
            while left and self._writable.poll(0 if self._lost else limits.LOG_PATIENCE_MS):
                left = left[os.write(self._descriptor, left[: select.PIPE_BUF]) :]
        except OSError:
            pass  # EPIPE, ENOSPC, EIO or EAGAIN: the line is lost, but the next line is tried
        if len(left) < len(data):
            self._is_torn = len(left) > 0
        return not left


def _loss(n: int) -> logging.LogRecord:
    record = logging.LogRecord("llmd", logging.WARNING, __file__, 0, "log lines were lost", (), None)
    vars(record).update(fields(lines=n))
    return record


def fields(**values: Any) -> dict[str, dict[str, Any]]:
    """Returns the argument `extra` of a log call, which adds these fields to the log line. None values are left out."""
    return {"fields": {name: value for name, value in values.items() if value is not None}}


def _stamp(created: float) -> str:
    milliseconds = int(created * 1000) % 1000
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(created)) + f".{milliseconds:03d}Z"


class TextFormatter(logging.Formatter):
    def __init__(self, has_stamp: bool = True) -> None:
        super().__init__()
        self._has_stamp = has_stamp

    def format(self, record: logging.LogRecord) -> str:
        parts = [_stamp(record.created)] if self._has_stamp else []
        parts += [f"{record.levelname.lower():<7}", record.getMessage()]
        parts += [f"{name}={_value(value)}" for name, value in getattr(record, "fields", {}).items()]
        line = " ".join(parts)
        return line + "\n" + self.formatException(record.exc_info) if record.exc_info else line


def _value(value: object) -> str:
    """Returns the value of a field as text on one line. Line ends and control characters are escaped."""
    text = str(value)
    if _PLAIN.fullmatch(text):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": _stamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(document, enc_hook=str).decode()


_PRIORITIES = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}
"""The priority of syslog(3) for each log level."""


class JournalFormatter(logging.Formatter):
    """Begins each line with its priority, as systemd's journal expects it. See sd-daemon(3)."""

    def __init__(self, lines: logging.Formatter) -> None:
        super().__init__()
        self._lines = lines

    def format(self, record: logging.LogRecord) -> str:
        prefix = f"<{_PRIORITIES.get(record.levelno, 6)}>"
        return "\n".join(prefix + line for line in self._lines.format(record).split("\n"))
