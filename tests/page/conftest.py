"""Fixtures of the tests of the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from llmd.core import limits
from llmd.process.config_table import DEMO_MODEL
from tests.page.browser import WIDE, Browser, Served, chromium, served
from tests.page.chat import Chat
from tests.serving import config_of

StartDaemon = Callable[..., Served]
ENDLESS = "sim:dense,step_us=5000,length=0,ctx=65536"
"""Answers of 65,536 tokens take longer than a test may. So they end only when the test ends them."""
SLOW_PREFILL = "sim:dense,batch=1,step_us=250000,length=0"
"""Prefills 4 tokens per second, and reports each of them. The prefill of a long prompt ends when the test ends it."""


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("browser")) as driver:
        yield driver


@pytest.fixture
def start_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StartDaemon]:
    """`start_daemon(option=value, ...)` serves a simulated model until the test ends."""
    monkeypatch.setattr(limits, "FEED_INTERVAL_S", 0.05)
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(served(config_of(tmp_path, **options)))


@pytest.fixture
def browser(driver: Any, start_daemon: StartDaemon) -> Iterator[Browser]:
    """A wide tab in light colors. At the end, checks that the console has no errors and no warnings. A test that
    provokes some takes them with `complaints()`. The tab leaves the page before the daemon stops.
    """
    tab = Browser(driver)
    tab.resize(WIDE)
    tab.color_scheme("light")
    yield tab
    complaints = tab.complaints()
    driver.get("about:blank")
    assert complaints == []


@pytest.fixture
def demo(browser: Browser, start_daemon: StartDaemon) -> Chat:
    return Chat(browser, start_daemon(model=str(DEMO_MODEL)))


@pytest.fixture
def endless(browser: Browser, start_daemon: StartDaemon) -> Chat:
    """A model whose answers end only when they are stopped, or at the limit of tokens."""
    return Chat(browser, start_daemon(model=ENDLESS))
