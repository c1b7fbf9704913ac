"""Each parameter of each dialect does what its table says: an honoured one changes something, an accepted one nothing,
and a refused one is refused unless it asks for nothing."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llmd import dialects
from llmd.core.errors import ApiError
from llmd.dialects.parameters import Parameter, Table
from tests.conftest import Serve
from tests.rows.case import Endpoint
from tests.serving import Answer, Daemon, Json

ROOT = Path(__file__).parents[1]
LOUD: tuple[Any, ...] = ({"asks": "for something"}, ["something"], "something", True, 3, -7.5)
"""Values of every kind, one of which any parameter would have to heed."""


def tables() -> Iterator[tuple[str, Endpoint | None, Table]]:
    """Of every folder of dialects/ that has any, and what shows them."""
    for folder in pkgutil.iter_modules(dialects.__path__):
        if folder.ispkg and importlib.util.find_spec(f"llmd.dialects.{folder.name}.parameters"):
            found = importlib.import_module(f"llmd.dialects.{folder.name}.parameters").TABLES
            has_rows = importlib.util.find_spec(f"tests.rows.{folder.name}")
            shown = importlib.import_module(f"tests.rows.{folder.name}").ENDPOINTS if has_rows else {}
            yield from ((folder.name, shown.get(table.endpoint), table) for table in found)


TABLES = list(tables())
ALL = [(dialect, endpoint, table) for dialect, endpoint, table in TABLES if endpoint is not None]
NAMES = [f"{dialect}-{table.endpoint}" for dialect, _, table in ALL]


def rows(treatment: str) -> list[Any]:
    return [
        pytest.param(endpoint, row, id=f"{dialect}-{table.endpoint}-{row.name}")
        for dialect, endpoint, table in ALL
        for row in table.rows
        if row.treatment == treatment
    ]


async def asked(daemon: Daemon, endpoint: Endpoint, fields: Json) -> Answer:
    return await daemon.ask("POST", endpoint.path, {**endpoint.body, **fields})


async def answered(daemon: Daemon, endpoint: Endpoint, fields: Json) -> Answer:
    answer = await asked(daemon, endpoint, fields)
    assert answer.status == 200, answer.body
    return answer


def test_every_table_is_shown() -> None:
    """In tests/rows/, by the name of its dialect's folder."""
    assert [f"{dialect}: {table.endpoint}" for dialect, endpoint, table in TABLES if endpoint is None] == []


# --- honoured --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("endpoint", "table"), [one[1:] for one in ALL], ids=NAMES)
def test_every_honoured_one_is_shown_once(endpoint: Endpoint, table: Table) -> None:
    shown = [*endpoint.cases, *endpoint.elsewhere, *endpoint.unseen]
    assert sorted(shown) == sorted(row.name for row in table.rows if row.treatment == "honoured")


@pytest.mark.parametrize(("endpoint", "row"), rows("honoured"))
async def test_an_honoured_one_changes_something(
    serve: Serve, endpoint: Endpoint, row: Parameter, tmp_path: Path
) -> None:
    if row.name in endpoint.elsewhere:
        path, _, test = endpoint.elsewhere[row.name].partition("::")
        assert f"def {test}(" in (ROOT / path).read_text()
        return
    if row.name in endpoint.unseen:
        return
    case = endpoint.cases[row.name]
    seen = []
    for fields in (case.without, case.without, {**case.without, **case.given}):
        daemon = await serve(**{**endpoint.options, **case.options(tmp_path)})
        for before in case.before:
            await answered(daemon, endpoint, before)
        seen.append((case.seen or endpoint.seen)(await answered(daemon, endpoint, fields)))
    assert seen[0] == seen[1], "it differs without the parameter"
    assert seen[0] != seen[2]


# --- accepted --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("endpoint", "table"), [one[1:] for one in ALL], ids=NAMES)
async def test_an_accepted_one_changes_nothing(serve: Serve, endpoint: Endpoint, table: Table) -> None:
    daemon = await serve(**endpoint.options)
    plain = endpoint.seen(await answered(daemon, endpoint, {}))
    for row in table.rows:
        if row.treatment == "accepted":
            for value in LOUD:
                assert endpoint.seen(await answered(daemon, endpoint, endpoint.place(row.name, value))) == plain, row


# --- refused ---------------------------------------------------------------------------------------------------------


def refusal(table: Table, name: str, value: Any) -> ApiError | None:
    try:
        table.check({name: msgspec.Raw(msgspec.json.encode(value))})
    except ApiError as error:
        return error
    return None


@pytest.mark.parametrize(("endpoint", "table"), [one[1:] for one in ALL], ids=NAMES)
async def test_a_refused_one_is_refused(serve: Serve, endpoint: Endpoint, table: Table) -> None:
    daemon = await serve(**endpoint.options)
    for row in table.rows:
        if row.treatment == "refused":
            for value in LOUD:
                if not row.is_neutral(value):
                    error = refusal(table, row.name, value)
                    assert error is not None and row.name in error.message
                    assert (error.status, error.code) == (400, "unsupported_parameter")
                    assert (error.param or "").rpartition(".")[2] == row.name
            answer = await asked(daemon, endpoint, endpoint.place(row.name, LOUD[0]))
            assert answer.status == 400 and row.name in answer.body.decode()


@pytest.mark.parametrize(("endpoint", "row"), rows("refused"))
async def test_a_refused_one_may_ask_for_nothing(serve: Serve, endpoint: Endpoint, row: Parameter) -> None:
    daemon = await serve(**endpoint.options)
    plain = endpoint.seen(await answered(daemon, endpoint, {}))
    for value in (None, *row.neutral):
        assert endpoint.seen(await answered(daemon, endpoint, endpoint.place(row.name, value))) == plain
