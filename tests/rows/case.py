"""Two requests that differ in one parameter, and where their answers show it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.serving import Answer, Json

Seen = Callable[[Answer], Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """Of an honoured parameter."""

    given: Json
    """With it; all else as in the body of its endpoint."""
    without: Json = field(default_factory=dict)
    """The same, if it needs more than that body."""
    before: tuple[Json, ...] = ()
    """Requests that come before each of both."""
    seen: Seen | None = None
    """Which must differ; None: what the endpoint has."""
    options: Callable[[Path], Json] = lambda _: {}
    """Of the daemon, which may use the directory."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Of a table."""

    path: str
    body: Json
    """What is always asked."""
    seen: Seen
    cases: Mapping[str, Case]
    """By the parameter's name."""
    options: Json = field(default_factory=dict)
    """Of the daemon."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """Parameters that another test shows: file::name."""
    unseen: Mapping[str, str] = field(default_factory=dict)
    """Honoured ones that cannot show, with the reason."""
    place: Callable[[str, Any], Json] = lambda name, value: {name: value}
    """Where a parameter stands in the body."""


def chunks_of(answer: Answer) -> list[Json]:
    """The events of a stream; of a whole the one that it is."""
    if answer.headers["Content-Type"] != "text/event-stream":
        return [answer.json]
    data = [line.removeprefix("data: ") for line in answer.body.decode().split("\n") if line.startswith("data: {")]
    return [json.loads(line) for line in data]


def member(*path: str | int) -> Seen:
    """Of a whole; None where it is not there."""

    def seen(answer: Answer) -> Any:
        value: Any = answer.json
        for step in path:
            if isinstance(value, dict) and step not in value:
                return None
            value = value[step]
        return value

    return seen


def has(*names: str) -> Seen:
    """Whether anything in a whole or in an event of a stream has a member of one of these names."""

    def found(value: Any) -> bool:
        if isinstance(value, dict):
            return any(value.get(name) is not None for name in names) or any(map(found, value.values()))
        return isinstance(value, list) and any(map(found, value))

    return lambda answer: found(chunks_of(answer))


def kind(answer: Answer) -> Any:
    """Of the answer's body."""
    return answer.headers["Content-Type"]
