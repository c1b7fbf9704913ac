"""The chat view of the page, as tests use it."""

from __future__ import annotations

from typing import Any

from selenium.webdriver.common.keys import Keys

from tests.page.browser import Browser, Served

FIELD, BUTTON = ".composer textarea", ".composer button"

STORED = """
const done = arguments[0], opening = indexedDB.open("llmd", 1);
opening.onsuccess = () => {
  const all = opening.result.transaction("conversations").objectStore("conversations").getAll();
  all.onsuccess = () => { opening.result.close(); done(all.result); };
};
"""


class Chat:
    """The chat view, as a user uses it."""

    def __init__(self, browser: Browser, served: Served) -> None:
        self.browser, self.served = browser, served
        browser.open(served, "#chat")
        browser.find("#status", "running")
        browser.wait(lambda: not browser.find(".top .title").is_enabled())  # the conversations have been read

    def type(self, text: str) -> None:
        self.browser.find(FIELD).send_keys(text + Keys.ENTER)

    def settle(self) -> Any:
        """Waits until no answer arrives, and returns the last one."""
        self.browser.wait(lambda: self.browser.find(BUTTON).text == "Send")
        return self.last

    def ask(self, text: str) -> Any:
        n = len(self.texts("user"))
        self.type(text)
        self.browser.wait(lambda: len(self.texts("user")) == len(self.texts("assistant")) == n + 1)
        return self.settle()

    @property
    def last(self) -> Any:
        return self.browser.find(".message.assistant:last-child")

    def texts(self, role: str) -> list[str]:
        part = ".text" if role == "user" else ".markdown"
        return self.browser.texts(f".message.{role} > {part}")

    def facts(self) -> str:
        text = self.browser.find(".message:last-child .facts").text
        assert isinstance(text, str)
        return text

    def wait_for_text(self, n: int) -> None:
        self.browser.wait(lambda: len(self.texts("assistant")[-1]) > n)

    @property
    def id(self) -> str:
        self.browser.wait(lambda: "#chat/" in self.browser.driver.current_url)
        return str(self.browser.driver.current_url.partition("#chat/")[2])

    def stored(self) -> list[dict[str, Any]]:
        found = self.browser.driver.execute_async_script(STORED)
        assert isinstance(found, list)
        return found


def set_setting(browser: Browser, label: str, value: str) -> None:
    if not browser.run("return document.querySelector('.settings').open"):
        browser.click(".settings summary")
    field = browser.find(".settings label", label).find_element("css selector", "input, textarea")
    field.clear()
    field.send_keys(value + Keys.TAB)
