"""A browser that tests use as a user would, and the daemon whose page it shows."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from llmd.process.config_table import Config
from tests.page.axe import axe
from tests.serving import SETTLE_S, Daemon, Json, serving

WIDE, NARROW = (1280, 800), (390, 844)

TEXTS = """
const shown = [...document.querySelectorAll(arguments[0])].filter((one) => one.checkVisibility());
return shown.map((one) => one.innerText.trim());
"""


class Served:
    """A daemon in a thread of its own, because a browser's driver blocks the thread of the test."""

    def __init__(self, daemon: Daemon, loop: asyncio.AbstractEventLoop) -> None:
        self.daemon = daemon
        self.url = daemon.url
        self.loop = loop

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Starts a coroutine in the daemon's event loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.start(coroutine).result(SETTLE_S)

    def chat(self, text: str = "hello", **fields: Any) -> Json:
        answer = self.run(self.daemon.chat(text, **fields))
        assert isinstance(answer, dict)
        return answer

    def get(self, path: str) -> Json:
        answer = self.run(self.daemon.ask("GET", path))
        assert answer.status == 200, answer.body
        found = answer.json
        assert isinstance(found, dict)
        return found


@contextmanager
def served(config: Config) -> Iterator[Served]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="daemon")
    thread.start()

    def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(2 * SETTLE_S)

    stack = AsyncExitStack()
    try:
        yield Served(run(stack.enter_async_context(serving(config))), loop)
    finally:
        try:
            run(stack.aclose())
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


@contextmanager
def chromium(directory: Path) -> Iterator[Any]:
    options = ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={directory}",
    ):
        options.add_argument(argument)
    driver = Chrome(options=options, service=ChromeService("/usr/bin/chromedriver"))
    try:
        yield driver
    finally:
        driver.quit()


class Browser:
    """One tab of a browser. Every wait ends with an error after SETTLE_S."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, served: Served, view: str = "") -> None:
        """Opens a view, such as "#now". The page is loaded again, unless it is shown already."""
        self.driver.get(f"{served.url}/{view}")

    def wait(self, is_met: Callable[[], Any]) -> Any:
        """Returns the first true value of `is_met`. Elements that the page replaces meanwhile are looked up again."""
        replaced = [StaleElementReferenceException]
        return WebDriverWait(self.driver, SETTLE_S, 0.02, ignored_exceptions=replaced).until(lambda _: is_met())

    def all(self, css: str) -> list[Any]:
        found = self.driver.find_elements(By.CSS_SELECTOR, css)
        assert isinstance(found, list)
        return found

    def find(self, css: str, text: str = "") -> Any:
        """Returns the first shown element that has the text."""
        return self.wait(lambda: next((one for one in self.all(css) if one.is_displayed() and text in one.text), None))

    def texts(self, css: str) -> list[str]:
        """Returns the texts of all shown elements. They are read at once, so the page does not change in between."""
        found = self.run(TEXTS, css)
        assert isinstance(found, list)
        return found

    def click(self, css: str, text: str = "") -> None:
        """Clicks the first shown element that has the text. If the page replaces it just before the click, clicks the
        new one: the driver does not click an element that is gone.
        """
        self.wait(lambda: self.find(css, text).click() is None)

    def press(self, *keys: str) -> None:
        ActionChains(self.driver).send_keys(*keys).perform()

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def resize(self, size: tuple[int, int]) -> None:
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def color_scheme(self, scheme: str) -> None:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def complaints(self) -> list[str]:
        """Returns and forgets the console's warnings and errors, such as violations of the policy."""
        logged = self.driver.get_log("browser")
        return [entry["message"] for entry in logged if entry["level"] in ("WARNING", "SEVERE")]

    def scrolls_sideways(self) -> bool:
        return bool(self.run("return document.scrollingElement.scrollWidth > innerWidth"))

    def violations(self) -> list[str]:
        """Returns which of axe's rules the view breaks, with the elements."""
        self.run(axe().read_text())
        broken = self.driver.execute_async_script("axe.run().then((found) => arguments[0](found.violations))")
        return [f"{rule['id']}: {node['html']} {node['failureSummary']}" for rule in broken for node in rule["nodes"]]
