"""Log lines for people (text) or machines (json): a message and fields, on standard error."""

from __future__ import annotations

import logging
import re
import sys
import time
from typing import Any

import msgspec

_PLAIN = re.compile(r"[\w.:/@%+,*-]+")


def configure(level: str, form: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("llmd").setLevel(level.upper())


def fields(**values: Any) -> dict[str, dict[str, Any]]:
    """The `extra` of a log call; what is None is left out."""
    return {"fields": {name: value for name, value in values.items() if value is not None}}


def _stamp(created: float) -> str:
    milliseconds = int(created * 1000) % 1000
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(created)) + f".{milliseconds:03d}Z"


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        parts = [_stamp(record.created), f"{record.levelname.lower():<7}", record.getMessage()]
        parts += [f"{name}={_value(value)}" for name, value in getattr(record, "fields", {}).items()]
        line = " ".join(parts)
        return line + "\n" + self.formatException(record.exc_info) if record.exc_info else line


def _value(value: object) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else msgspec.json.encode(text).decode()


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
