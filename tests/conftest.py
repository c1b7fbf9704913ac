"""Fixtures of all tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.serving import Daemon, config_of, serving

Serve = Callable[..., Awaitable[Daemon]]


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """`await serve(option=value, ...)` serves a simulated model until the test ends."""
    async with AsyncExitStack() as stack:
        served: list[Daemon] = []

        async def start(**overrides: Any) -> Daemon:
            directory = tmp_path / str(len(served))
            directory.mkdir()
            daemon = await stack.enter_async_context(serving(config_of(directory, **overrides)))
            served.append(daemon)
            return daemon

        yield start


@pytest.fixture
async def daemon(serve: Serve) -> Daemon:
    """One with the default options."""
    return await serve()
