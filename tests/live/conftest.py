"""Fixtures of the live tests: real processes with generated GGUF files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.daemon import Daemons
from tests.live.models import TINY, model_path
from tests.storm.engine import DEVICE

collect_ignore = [] if DEVICE else ["test_device.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("live")


@pytest.fixture(params=TINY)
def tiny(request: pytest.FixtureRequest) -> str:
    """Returns the path of each generated model in turn."""
    return model_path(request.param)


@pytest.fixture
def hybrid() -> str:
    return model_path("hybrid")


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    daemons = Daemons(tmp_path)
    yield daemons
    daemons.close()
