"""Conversations of the page in two tabs of a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium.webdriver.common.keys import Keys

from tests.page.browser import Browser
from tests.page.chat import BUTTON, FIELD, Chat, set_setting

SAYS_NOTHING = "BroadcastChannel.prototype.postMessage = () => {};"
"""Other tabs do not learn what this tab stores, as in the moment in which both tabs write."""
STORES_NOTHING = "performance.now = () => 0;"
STORES_AGAIN = "delete performance.now;"
"""An answer is stored every second. This tab's time stands still, so that another tab can write before it."""


@pytest.fixture
def tabs(endless: Chat, browser: Browser) -> Iterator[tuple[str, str]]:
    """Two tabs that show one conversation, which has one turn. The first tab is shown."""
    first = browser.driver.current_window_handle
    set_setting(browser, "Maximum tokens", "4")
    endless.ask("one")
    set_setting(browser, "Maximum tokens", "")
    id = endless.id
    browser.driver.switch_to.new_window("tab")
    second = browser.driver.current_window_handle
    browser.open(endless.served, f"#chat/{id}")
    browser.wait(lambda: len(endless.texts("assistant")) == 1)
    browser.driver.switch_to.window(first)
    yield first, second
    browser.driver.switch_to.window(second)
    browser.driver.close()
    browser.driver.switch_to.window(first)


def test_other_tabs_show_the_same_conversations(demo: Chat, browser: Browser) -> None:
    first = browser.driver.current_window_handle
    browser.driver.switch_to.new_window("tab")
    try:
        browser.open(demo.served, "#chat")
        browser.find("#status", "running")
        demo.ask("My name is Ada.")
        browser.driver.switch_to.window(first)
        browser.click(".list li a", "My name is Ada.")
        browser.wait(lambda: demo.texts("assistant") == ["Got it. Your name is Ada."])
        browser.driver.switch_to.window(browser.driver.window_handles[-1])
    finally:
        browser.driver.close()
        browser.driver.switch_to.window(first)


def test_a_setting_does_not_undo_what_another_tab_has_stored(demo: Chat, browser: Browser) -> None:
    first = browser.driver.current_window_handle
    demo.ask("My name is Ada.")
    id = demo.id
    browser.driver.switch_to.new_window("tab")
    try:
        browser.open(demo.served, f"#chat/{id}")
        browser.wait(lambda: len(demo.texts("assistant")) == 1)
        demo.ask("What is my name?")
        browser.driver.switch_to.window(first)
        browser.wait(lambda: len(demo.texts("assistant")) == 2)
        set_setting(browser, "Temperature", "0.5")
        browser.wait(lambda: demo.stored()[0]["settings"].get("temperature") == 0.5)
        assert len(demo.stored()[0]["messages"]) == 4
        browser.driver.switch_to.window(browser.driver.window_handles[-1])
    finally:
        browser.driver.close()
        browser.driver.switch_to.window(first)


def test_an_answer_in_another_tab_is_shown_and_can_be_stopped(
    endless: Chat, browser: Browser, tabs: tuple[str, str]
) -> None:
    endless.type("two")
    browser.driver.switch_to.window(tabs[1])
    browser.find(".notice", "This answer arrives in another tab.")
    endless.wait_for_text(100)
    browser.driver.refresh()
    browser.find(".notice", "This answer arrives in another tab.")
    browser.find(FIELD).send_keys("three" + Keys.ENTER)
    browser.click(BUTTON, "Stop")
    endless.settle()
    browser.find(".message:last-child .note", "Stopped.")
    answer = endless.texts("assistant")[-1]
    browser.driver.switch_to.window(tabs[0])
    endless.settle()
    assert endless.texts("assistant")[-1] == answer
    browser.find("#status", "0 running")
    browser.driver.switch_to.window(tabs[1])
    assert browser.find(FIELD).get_attribute("value") == "three"
    endless.type("")
    endless.wait_for_text(20)
    browser.driver.switch_to.window(tabs[0])
    browser.wait(lambda: endless.texts("user") == ["one", "two", "three"])


def test_of_two_questions_at_once_one_goes_back_to_the_field(
    endless: Chat, browser: Browser, tabs: tuple[str, str]
) -> None:
    set_setting(browser, "Maximum tokens", "4")
    browser.run(SAYS_NOTHING)
    endless.ask("from the first tab")
    browser.driver.switch_to.window(tabs[1])
    assert endless.texts("user") == ["one"]
    endless.type("from the second tab")
    browser.find(".notice", "Another tab has changed this conversation. Nothing was sent.")
    assert endless.texts("user") == ["one", "from the first tab"]
    assert browser.find(FIELD).get_attribute("value") == "from the second tab"
    endless.type("")
    browser.wait(lambda: endless.texts("user") == ["one", "from the first tab", "from the second tab"])
    endless.settle()
    (stored,) = endless.stored()
    texts = [one["text"] for one in stored["messages"] if one["role"] == "user"]
    assert texts == ["one", "from the first tab", "from the second tab"]


def test_a_tab_whose_answer_was_taken_over_stops_it(endless: Chat, browser: Browser, tabs: tuple[str, str]) -> None:
    browser.run(SAYS_NOTHING + STORES_NOTHING)
    endless.type("two")
    endless.wait_for_text(20)
    browser.driver.switch_to.window(tabs[1])
    browser.driver.refresh()
    browser.find(".note", "The page was closed before the answer was complete.")
    browser.click(".message:last-child button", "Regenerate")
    browser.wait(lambda: browser.find(BUTTON).text == "Stop")
    browser.driver.switch_to.window(tabs[0])
    browser.run(STORES_AGAIN)
    browser.find(".notice", "This answer arrives in another tab.")
    browser.driver.switch_to.window(tabs[1])
    browser.click(BUTTON, "Stop")
    endless.settle()
    answer = endless.texts("assistant")[-1]
    browser.driver.switch_to.window(tabs[0])
    browser.wait(lambda: endless.texts("assistant")[-1] == answer and browser.find(BUTTON, "Send"))


def test_a_title_from_another_tab_stays_during_an_answer(
    endless: Chat, browser: Browser, tabs: tuple[str, str]
) -> None:
    endless.type("two")
    browser.driver.switch_to.window(tabs[1])
    endless.wait_for_text(20)
    title = browser.find("input.title")
    title.clear()
    title.send_keys("renamed" + Keys.TAB)
    browser.driver.switch_to.window(tabs[0])
    browser.click(BUTTON, "Stop")
    endless.settle()
    browser.wait(lambda: endless.stored()[0]["messages"][-1]["state"] == "stopped")
    assert endless.stored()[0]["title"] == "renamed"
