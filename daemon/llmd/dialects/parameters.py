"""Which fields of a request are honoured, accepted or refused: one table for each endpoint of a dialect, which also
writes its own documentation.

honoured   changes the answer as documented
accepted   cannot change the text of the answer; clients send it, nothing happens
refused    would change the answer and is not there: 400 `unsupported_parameter`, unless the value is neutral
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import msgspec

from ..core import limits
from ..core.errors import ApiError, shown
from ..process.logs import fields

log = logging.getLogger("llmd.http")

Treatment = Literal["honoured", "accepted", "refused"]


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    treatment: Treatment
    note: str
    hint: str = ""
    """For refused ones: what to do instead."""
    neutral: tuple[Any, ...] = ()
    """For refused ones: values, besides null, that ask for nothing."""
    bytes_max: int = limits.FIELD_BYTES_MAX
    """For honoured ones: of its JSON."""

    def is_neutral(self, value: object) -> bool:
        return value is None or any(value == v and isinstance(value, bool) == isinstance(v, bool) for v in self.neutral)


Rows = tuple[Parameter, ...]


def honoured(notes: Mapping[str, str], bytes_max: int = limits.FIELD_BYTES_MAX) -> Rows:
    return tuple(Parameter(name, "honoured", note, bytes_max=bytes_max) for name, note in notes.items())


def accepted(notes: Mapping[str, str]) -> Rows:
    return tuple(Parameter(name, "accepted", note) for name, note in notes.items())


def refused(notes: Mapping[str, tuple[str, tuple[Any, ...]]]) -> Rows:
    """What stands behind a semicolon in a note is the hint."""
    parted = ((name, note.partition("; "), neutral) for name, (note, neutral) in notes.items())
    return tuple(Parameter(name, "refused", note, hint, neutral) for name, (note, _, hint), neutral in parted)


STAYS = {"ttl": "the model stays loaded", "keep_alive": "likewise"}
"""Accepted: LM Studio's and Ollama's words for how long it does."""


class Table:
    """Of one endpoint."""

    def __init__(
        self,
        endpoint: str,
        prompt: str,
        *groups: Rows,
        within: str = "",
        inner: Table | None = None,
        ignores_unknown: bool = False,
    ) -> None:
        """`prompt`: the field that is bounded by the context, not by bytes of its own. `within`: the parameters are
        members of the field of this name. `inner`: the table of the members of one field. `ignores_unknown`: as the
        server does whose dialect it is; each such name is logged once."""
        self.endpoint = endpoint
        self._ignores_unknown = ignores_unknown
        self._within = within
        self._inner = inner
        self._path = f"{within}." if within else ""
        self.rows: Rows = tuple(row for group in groups for row in group)
        self._prompt = prompt
        self._by_name = {row.name: row for row in self.rows}

    def check(self, members: Mapping[str, msgspec.Raw]) -> None:
        """Refuses the first field that would change the answer and is not there, or is larger than it may be. What is
        null asks for nothing, whatever its name."""
        for name, raw in members.items():
            row, param = self._by_name.get(name), _param(self._path + name)
            if row is None:
                self._check_unknown(param, raw)
            elif row.treatment == "refused":
                _check_neutral(row, param, raw)
            elif row.treatment == "honoured" and len(raw) > row.bytes_max and name != self._prompt:
                message = f"{param}: {len(raw)} bytes of JSON; at most {row.bytes_max} are taken."
                raise ApiError("invalid_value", message, param)
        if self._inner is not None:
            self._inner._check_within(members)

    def _check_unknown(self, param: str, raw: msgspec.Raw) -> None:
        if self._ignores_unknown:
            _log_once(self.endpoint, param)
        elif bytes(memoryview(raw)[:5]) != b"null":
            raise ApiError("unsupported_parameter", f"{shown(param)} is not a parameter of this endpoint.", param)

    def _check_within(self, members: Mapping[str, msgspec.Raw]) -> None:
        """What is no object there is told when the whole is decoded."""
        raw = members.get(self._within)
        if raw is not None and bytes(memoryview(raw)[:1]) == b"{":
            self.check(msgspec.json.decode(raw, type=dict[str, msgspec.Raw]))


@lru_cache(limits.IGNORED_NAMES_LOGGED_MAX)
def _log_once(endpoint: str, param: str) -> None:
    """Once for each name, or again when many others have come since. The cache is what remembers."""
    log.info("parameter ignored", extra=fields(endpoint=endpoint, param=param))


def _check_neutral(row: Parameter, param: str, raw: msgspec.Raw) -> None:
    """Every neutral value is short: what is long needs no decoding."""
    if len(raw) <= limits.NEUTRAL_BYTES_MAX and row.is_neutral(msgspec.json.decode(raw)):
        return
    hint = f"; {row.hint}" if row.hint else ""
    message = f"{param}: {shown(raw)} asks for {row.note}, which this server does not support{hint}."
    raise ApiError("unsupported_parameter", message, param)


def _param(name: str) -> str:
    """A client's own name for a field, as far as it is worth repeating."""
    return name[: limits.USER_FIELD_SHOWN_CHARS_MAX]


def with_endpoints(tables: Sequence[Table]) -> list[tuple[Parameter, list[str]]]:
    """Every row once, with the endpoints that have it; those of one endpoint first."""
    endpoints: dict[int, tuple[Parameter, list[str]]] = {}
    for table in tables:
        for row in table.rows:
            endpoints.setdefault(id(row), (row, []))[1].append(table.endpoint)
    return sorted(endpoints.values(), key=lambda found: len(found[1]) > 1)
