"""Fixtures of all tests."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import uvloop

from llmd.http import connections
from llmd.http.connection import Connection
from tests.local_hub import LocalHub, local_hub
from tests.serving import Daemon, config_of, serving

Serve = Callable[..., Awaitable[Daemon]]

# Tests see no model of this user and no network. Tests about models set these variables for their own processes.
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HOME": "/nonexistent/huggingface", "OLLAMA_MODELS": "/nonexistent/ollama"}


_OURS = ("test_connections", "test_half_close")
LoopFactories = dict[str, Callable[[], asyncio.AbstractEventLoop]]


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> LoopFactories:
    """Tests of connections run on uvloop, too, which is the daemon's event loop, because uvloop handles the end of a
    connection differently.
    """
    factories: LoopFactories = {"asyncio": asyncio.new_event_loop}
    return factories | {"uvloop": uvloop.new_event_loop} if item.path.stem in _OURS else factories


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
    """A daemon with the default options."""
    return await serve()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    """All connections, in the order in which they were made. The sweep is disabled, so that only the test calls
    `overdue`.
    """
    monkeypatch.setattr(connections, "_SWEEP_S", 1e9)
    real, found = Connection.connection_made, []

    def note(connection: Connection, transport: asyncio.BaseTransport) -> None:
        found.append(connection)
        real(connection, transport)

    monkeypatch.setattr(Connection, "connection_made", note)
    return found


@pytest.fixture
def hub() -> Iterator[LocalHub]:
    """A hub on this machine, without repositories."""
    with local_hub() as hub:
        yield hub


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The content of a small GGUF model, 5 MiB."""
    from tools.tiny_models import tokenizer, writer
    from tools.tiny_models.catalog import RECIPES

    path = tmp_path_factory.mktemp("model") / "model.gguf"
    words = tokenizer.build()
    writer.write(path, "model", RECIPES["tiny-dense"].plan(words), words, False)
    return path.read_bytes()
