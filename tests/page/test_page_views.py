"""The views of the page that show sessions, and the parts that all views share, in a browser."""

from __future__ import annotations

import pytest

from tests.page.browser import NARROW, WIDE, Browser
from tests.page.conftest import StartDaemon

VIEWS = ("#chat", "#sessions", "#now")


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_fits_and_is_accessible(browser: Browser, start_daemon: StartDaemon, view: str) -> None:
    daemon = start_daemon()
    browser.open(daemon, view)
    browser.find("#status", "0 running")
    for scheme in ("light", "dark"):
        browser.color_scheme(scheme)
        for size in (WIDE, NARROW):
            browser.resize(size)
            assert not browser.scrolls_sideways()
            assert browser.violations() == []
