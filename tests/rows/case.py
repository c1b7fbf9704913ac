"""Two requests that differ in one parameter, and the part of their answers that must differ."""

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
    """A test case for a parameter that llmd implements."""

    given: Json
    """The fields with the parameter. The others are those of the endpoint's body."""
    without: Json = field(default_factory=dict)
    """Fields for the request without the parameter, if it needs more than the endpoint's body."""
    before: tuple[Json, ...] = ()
    """Requests that are sent before each of the two."""
    seen: Seen | None = None
    """Returns the part of an answer that must differ. None stands for the endpoint's function."""
    options: Callable[[Path], Json] = lambda _: {}
    """Returns the daemon's options, which may use the directory."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """An endpoint and the cases for the parameters in its table."""

    path: str
    body: Json
    """The fields of every request."""
    seen: Seen
    cases: Mapping[str, Case]
    """The cases by name of the parameter."""
    options: Json = field(default_factory=dict)
    """Options of the daemon."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """Parameters that another test covers, with its name: file::name."""
    unseen: Mapping[str, str] = field(default_factory=dict)
    """Parameters that are implemented but cannot change an answer, with the reason."""
    place: Callable[[str, Any], Json] = lambda name, value: {name: value}
    """Returns the fields of the body that contain the parameter."""


def chunks_of(answer: Answer) -> list[Json]:
    """Returns the events of a stream, or the only object of an answer that is not streamed."""
    if answer.headers["Content-Type"] == "application/x-ndjson":
        return [json.loads(line) for line in answer.body.splitlines() if line.strip()]
    if answer.headers["Content-Type"] != "text/event-stream":
        return [answer.json]
    data = [line.removeprefix("data: ") for line in answer.body.decode().split("\n") if line.startswith("data: {")]
    return [json.loads(line) for line in data]


def member(*path: str | int) -> Seen:
    """Returns a function that finds a member of an answer that is not streamed, or None if there is none."""

    def seen(answer: Answer) -> Any:
        value: Any = answer.json
        for step in path:
            if isinstance(value, dict) and step not in value:
                return None
            value = value[step]
        return value

    return seen


def has(*names: str) -> Seen:
    """Returns a function that tests whether any object in an answer or in an event of a stream has a member with one of
    these names.
    """

    def found(value: Any) -> bool:
        if isinstance(value, dict):
            return any(value.get(name) is not None for name in names) or any(map(found, value.values()))
        return isinstance(value, list) and any(map(found, value))

    return lambda answer: found(chunks_of(answer))


def kind(answer: Answer) -> Any:
    """Returns the type of the answer's body."""
    return answer.headers["Content-Type"]
