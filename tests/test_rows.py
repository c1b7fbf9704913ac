"""Each parameter of each dialect does what its table says: a supported parameter changes the request, an accepted
parameter changes nothing, and a refused parameter is refused unless its value is neutral.
"""

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
from llmd.http import body
from llmd.http.parameters import Parameter, parameters_of
from tests.conftest import Serve
from tests.rows.case import Endpoint
from tests.serving import Answer, Daemon, Json

ROOT = Path(__file__).parents[1]
LOUD: tuple[Any, ...] = ({"asks": "for something"}, ["something"], "something", True, 3, -7.5)
"""Values of every kind. At least one of them would have an effect for any parameter."""


def requests() -> Iterator[tuple[str, Endpoint | None, type[Any]]]:
    """Yields the request types of every dialect, each with the endpoint that shows the effect of its parameters."""
    for folder in pkgutil.iter_modules(dialects.__path__):
        if folder.ispkg:
            found = importlib.import_module(f"llmd.dialects.{folder.name}.wire").REQUESTS
            has_rows = importlib.util.find_spec(f"tests.rows.{folder.name}")
            shown = importlib.import_module(f"tests.rows.{folder.name}").ENDPOINTS if has_rows else {}
            yield from ((f"{folder.name}-{name}", shown.get(name), kind) for name, kind in found.items())


REQUESTS = list(requests())
ALL = [(name, endpoint, kind) for name, endpoint, kind in REQUESTS if endpoint is not None]
NAMES = [name for name, _, _ in ALL]


def rows(treatment: str) -> list[Any]:
    return [
        pytest.param(endpoint, row, id=f"{name}-{row.name}")
        for name, endpoint, kind in ALL
        for row in parameters_of(kind).values()
        if row.treatment == treatment
    ]


async def asked(daemon: Daemon, endpoint: Endpoint, fields: Json) -> Answer:
    return await daemon.ask("POST", endpoint.path, {**endpoint.body, **fields})


async def answered(daemon: Daemon, endpoint: Endpoint, fields: Json) -> Answer:
    answer = await asked(daemon, endpoint, fields)
    assert answer.status == 200, answer.body
    return answer


def test_every_request_is_shown() -> None:
    """tests/rows/ has a module for each dialect, with the name of the dialect's folder."""
    assert [name for name, endpoint, _ in REQUESTS if endpoint is None] == []


@pytest.mark.parametrize("kind", [one[2] for one in ALL], ids=NAMES)
def test_every_member_is_documented(kind: type[Any]) -> None:
    assert [name for name in kind.__struct_fields__ if name not in parameters_of(kind)] == []
    assert [one.name for one in parameters_of(kind).values() if one.treatment != "accepted" and not one.note] == []


# --- supported --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("endpoint", "kind"), [one[1:] for one in ALL], ids=NAMES)
def test_every_supported_one_is_shown_once(endpoint: Endpoint, kind: type[Any]) -> None:
    shown = [*endpoint.cases, *endpoint.elsewhere, *endpoint.unseen]
    assert sorted(shown) == sorted(row.name for row in parameters_of(kind).values() if row.treatment == "supported")


@pytest.mark.parametrize(("endpoint", "row"), rows("supported"))
async def test_a_supported_one_changes_something(
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


@pytest.mark.parametrize(("endpoint", "kind"), [one[1:] for one in ALL], ids=NAMES)
async def test_an_accepted_one_changes_nothing(serve: Serve, endpoint: Endpoint, kind: type[Any]) -> None:
    daemon = await serve(**endpoint.options)
    plain = endpoint.seen(await answered(daemon, endpoint, {}))
    for row in parameters_of(kind).values():
        if row.treatment == "accepted":
            for value in LOUD:
                assert endpoint.seen(await answered(daemon, endpoint, endpoint.place(row.name, value))) == plain, row


# --- refused ---------------------------------------------------------------------------------------------------------


def refusal(kind: type[Any], request: Json) -> ApiError | None:
    try:
        body.typed(msgspec.json.encode(request), kind)
    except ApiError as error:
        return error
    return None


@pytest.mark.parametrize(("endpoint", "kind"), [one[1:] for one in ALL], ids=NAMES)
async def test_a_refused_one_is_refused(serve: Serve, endpoint: Endpoint, kind: type[Any]) -> None:
    daemon = await serve(**endpoint.options)
    for row in parameters_of(kind).values():
        if row.treatment == "refused":
            for value in LOUD:
                if not row.is_neutral(value):
                    error = refusal(kind, {**endpoint.body, row.name: value})
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
