"""The chat of the page in a browser: conversations, answers, reload, forks, import and export."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from llmd.ctl import conversation_export
from llmd.process.config_table import DEMO_MODEL
from tests.page.browser import NARROW, WIDE, Browser
from tests.page.chat import BUTTON, FIELD, Chat, set_setting
from tests.page.conftest import SLOW_PREFILL, StartDaemon

TEMPLATES = Path(__file__).parents[1] / "templates"

# --- turns ------------------------------------------------------------------------------------------------------------


def test_two_turns_reuse_the_session_and_say_so(demo: Chat, browser: Browser) -> None:
    demo.ask("My name is Ada.")
    assert "0 of 15 prompt tokens reused (new), 15 prefilled" in demo.facts()
    answer = demo.ask("What is my name?")
    assert "Ada" in answer.text
    assert "25 of 40 prompt tokens reused (exact_prefix), 15 prefilled, 8 generated, first token after" in demo.facts()
    assert demo.served.get(f"/v1/sessions/{demo.id}")["tokens"] == 47
    browser.find(".session", "idle, 47 tokens")
    browser.find(".list li", "My name is Ada.")
    assert browser.find(".list .dot.idle").is_displayed()
    assert browser.run("return document.activeElement.matches(arguments[0])", FIELD)
    assert "Answer: Your name is Ada." in browser.run(
        "return document.querySelector('p.hidden[role=status]').textContent"
    )


def test_a_word_for_the_reason_has_a_sentence_for_mouse_keyboard_and_screen_reader(
    demo: Chat, browser: Browser
) -> None:
    demo.ask("My name is Ada.")
    word = browser.find(".word", "new")
    assert word.get_attribute("title") == "The session had no tokens."
    described = browser.run(
        "return document.getElementById(arguments[0].getAttribute('aria-describedby')).textContent", word
    )
    assert described == "The session had no tokens."
    browser.run("arguments[0].focus()", word)
    browser.press(Keys.ENTER)
    assert browser.find(".sentence").text == "The session had no tokens."
    assert word.get_attribute("aria-expanded") == "true"


def test_settings_reach_the_request(demo: Chat, browser: Browser) -> None:
    set_setting(browser, "Maximum tokens", "3")
    set_setting(browser, "System prompt", "My name is Ada.")
    demo.ask("What is my name?")
    assert ", 3 generated" in demo.facts()
    browser.find(".note", "The answer ended at the limit of tokens.")
    set_setting(browser, "Maximum tokens", "")
    browser.click(".message:last-child button", "Regenerate")
    demo.settle()
    browser.wait(lambda: ", 3 generated" not in demo.facts())
    settings = demo.stored()[0]["settings"]
    assert settings["system"] == "My name is Ada." and settings.get("max_tokens") is None
    set_setting(browser, "Temperature", "101")
    demo.type("Again")
    browser.find(".message:last-child .note", "temperature")  # the server says what is wrong, in place
    assert any("400" in complaint for complaint in browser.complaints())


def test_reasoning_is_closed_and_can_be_hidden(browser: Browser, start_daemon: StartDaemon, tmp_path: Path) -> None:
    script = tmp_path / "script.txt"
    script.write_text("? ponder\n<think>\nOne, two.\n</think>\n\nThree.\n")
    options = {"model": f"sim:dense,script={script}", "chat_template_file": TEMPLATES / "qwen3.jinja"}
    chat = Chat(browser, start_daemon(**options))
    chat.ask("ponder")
    assert chat.texts("assistant") == ["Three."]
    assert not browser.run("return document.querySelector('.reasoning').open")
    browser.click(".reasoning summary")
    assert browser.find(".reasoning .text").text.strip() == "One, two."
    browser.click(".settings summary")
    browser.click(".settings .check input")
    browser.wait(
        lambda: (
            not browser.find(".message.assistant").text.startswith("Reasoning")
            and not any(one.is_displayed() for one in browser.all(".reasoning"))
        )
    )


def test_the_prefill_shows_how_far_it_is(browser: Browser, start_daemon: StartDaemon) -> None:
    chat = Chat(browser, start_daemon(model=SLOW_PREFILL))
    browser.run("arguments[0].value = 'word '.repeat(600)", browser.find(FIELD))
    chat.type("end")
    text = browser.find(".message:last-child .progress", "Prefilling:").text
    done, total = (int(word.replace(",", "")) for word in text.split() if word[0].isdigit())
    assert 0 <= done <= total and total > 600
    assert browser.find(".message:last-child progress").get_attribute("max") == str(total)
    browser.click(BUTTON, "Stop")
    chat.settle()
    browser.find(".note", "Stopped.")


# --- stop, edit, regenerate, fork -------------------------------------------------------------------------------------


EVENTS = """
const done = arguments[0], real = window.fetch;
const lines = [": Loading the model: 43 %", ": keep-alive", "", "data: {}", "", "data: [DONE]", "", ""];
window.fetch = async () => new Response(lines.join("\\n"));
(async () => {
  const { events } = await import("/page/api.js");
  const found = [];
  for await (const event of events("GET", "/")) {
    found.push(event);
  }
  window.fetch = real;
  done(found);
})();
"""


def test_a_comment_that_keeps_the_connection_alive_is_no_progress(demo: Chat, browser: Browser) -> None:
    found = browser.driver.execute_async_script(EVENTS)
    assert found == [{"comment": "Loading the model: 43 %"}, {}]


@pytest.mark.parametrize("way", ["button", "escape"])
def test_an_answer_can_be_stopped_and_continued(endless: Chat, browser: Browser, way: str) -> None:
    endless.type("hello")
    endless.wait_for_text(20)
    if way == "button":
        browser.click(BUTTON, "Stop")
    else:
        browser.press(Keys.ESCAPE)
    endless.settle()
    browser.find(".note", "Stopped.")
    before = endless.texts("assistant")[-1]
    browser.wait(lambda: endless.served.get(f"/v1/sessions/{endless.id}")["state"] == "idle")
    browser.click(".message:last-child button", "Continue")
    endless.wait_for_text(len(before) + 20)
    browser.press(Keys.ESCAPE)
    endless.settle()
    assert endless.texts("assistant")[-1].startswith(before)


def test_a_stop_ends_the_wait_for_the_sentence_of_the_reason(demo: Chat, browser: Browser) -> None:
    browser.run("""
const real = window.fetch;
window.fetch = (path, options) => options.method !== "GET" || !path.startsWith("/v1/sessions/") ? real(path, options)
  : new Promise((_, reject) => options.signal?.addEventListener("abort", () => reject(options.signal.reason)));
""")
    demo.type("My name is Ada.")
    browser.wait(lambda: demo.texts("assistant") == ["Got it. Your name is Ada."])
    browser.click(BUTTON, "Stop")
    demo.settle()
    assert "15 prefilled" in demo.facts() and browser.all(".note:not([hidden])") == []


def test_an_answer_that_reached_the_limit_is_continued_from_its_state(demo: Chat, browser: Browser) -> None:
    set_setting(browser, "Maximum tokens", "8")
    assert demo.ask("My name is Ada.").text.startswith("Answer\nGot it. Your name is Ad\n")
    set_setting(browser, "Maximum tokens", "")
    browser.click(".message:last-child button", "Continue")
    browser.wait(lambda: demo.texts("assistant") == ["Got it. Your name is Ada."])
    demo.settle()
    assert "(exact_prefix), 1 prefilled" in demo.facts()


def test_an_edit_cuts_the_conversation_there(demo: Chat, browser: Browser) -> None:
    demo.ask("My name is Ada.")
    demo.ask("What is my name?")
    browser.click(".message.user button", "Edit")
    area = browser.find(".edit textarea")
    area.clear()
    area.send_keys("My name is Bob.")
    browser.click(".edit button", "Send again")
    browser.wait(lambda: demo.texts("user") == ["My name is Bob."])
    demo.settle()
    assert len(demo.texts("assistant")) == 1
    answer = demo.ask("What is my name?")
    assert "Bob" in answer.text


def test_regenerate_replaces_the_last_answer(demo: Chat, browser: Browser) -> None:
    demo.ask("My name is Ada.")
    browser.click(".message:last-child button", "Regenerate")
    demo.settle()
    browser.wait(lambda: "(rewind)" in demo.facts() or "(equal)" in demo.facts())
    assert len(demo.texts("user")) == len(demo.texts("assistant")) == 1


def test_a_fork_has_the_messages_and_the_tokens_before_it(demo: Chat, browser: Browser) -> None:
    demo.ask("My name is Ada.")
    demo.ask("What is my name?")
    first = demo.id
    browser.click(".message.user:nth-child(3) button", "Fork")
    browser.find(".notice", "This is a fork. Its session begins with")
    assert demo.id != first
    assert demo.texts("user") == ["My name is Ada."]
    assert browser.find(FIELD).get_attribute("value") == "What is my name?"
    browser.find(FIELD).clear()
    assert "Ada" in demo.ask("What is my name again?").text
    assert not demo.facts().startswith("0 of")
    assert demo.served.get(f"/v1/sessions/{first}")["requests"] == 2  # the fork left it alone
    demo.served.run(demo.served.daemon.ask("DELETE", f"/v1/sessions/{demo.id}"))
    browser.find(".session", "gone")
    browser.click(".message:last-child button", "Fork")
    browser.find(".notice", "This is a copy of the text only")
    assert len(demo.texts("assistant")) == 2
    assert any("404" in complaint for complaint in browser.complaints())


# --- reload, errors ---------------------------------------------------------------------------------------------------


def test_a_reload_in_the_middle_keeps_what_has_arrived(endless: Chat, browser: Browser) -> None:
    endless.type("hello")
    browser.wait(lambda: endless.stored() and endless.stored()[0]["messages"][-1]["text"])
    browser.driver.refresh()
    browser.find(".message:last-child .note", "The page was closed before the answer was complete.")
    text = endless.texts("assistant")[-1]
    assert text != ""
    browser.click(".message:last-child button", "Continue")
    endless.wait_for_text(len(text) + 20)
    browser.press(Keys.ESCAPE)
    endless.settle()
    assert endless.texts("assistant")[-1].startswith(text)


def test_an_answer_goes_on_while_another_view_is_shown(endless: Chat, browser: Browser) -> None:
    endless.type("hello")
    endless.wait_for_text(5)
    n = len(endless.texts("assistant")[-1])
    address = endless.id
    browser.click("nav a", "Now")
    browser.wait(lambda: not browser.all(".chat"))
    browser.click("nav a", "Chat")
    browser.click(f".list a[href='#chat/{address}']")
    endless.wait_for_text(n + 50)
    browser.click(BUTTON, "Stop")
    endless.settle()


def test_a_session_that_is_closed_in_the_middle_leaves_a_note(endless: Chat, browser: Browser) -> None:
    endless.type("hello")
    endless.wait_for_text(20)
    endless.served.run(endless.served.daemon.ask("DELETE", f"/v1/sessions/{endless.id}"))
    endless.settle()
    assert browser.find(".message:last-child .note").text != ""
    browser.find(".message:last-child button", "Continue")


def test_a_server_that_cannot_be_reached_leaves_a_note(demo: Chat, browser: Browser) -> None:
    browser.driver.execute_cdp_cmd("Network.enable", {})
    conditions = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    browser.driver.execute_cdp_cmd("Network.emulateNetworkConditions", conditions)
    try:
        demo.type("My name is Ada.")
        browser.find(".message:last-child .note", "The server cannot be reached")
    finally:
        browser.driver.execute_cdp_cmd("Network.emulateNetworkConditions", {**conditions, "offline": False})
        browser.driver.execute_cdp_cmd("Network.disable", {})
    browser.click(".message:last-child button", "Regenerate")
    browser.wait(lambda: demo.texts("assistant") == ["Got it. Your name is Ada."])
    assert browser.complaints() != []


def test_a_key_is_asked_for(browser: Browser, start_daemon: StartDaemon, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("Kq8vR2pXw1 ada\n")
    keys.chmod(0o600)
    served = start_daemon(model=str(DEMO_MODEL), api_key_file=keys)
    browser.open(served, "#chat")
    browser.find("#key-value").send_keys("Kq8vR2pXw1" + Keys.ENTER)
    browser.find("#status", "running")
    chat = Chat(browser, served)
    assert "Ada" in chat.ask("My name is Ada.").text
    assert any("401" in complaint for complaint in browser.complaints())
    browser.run("sessionStorage.clear()")


# --- the list ---------------------------------------------------------------------------------------------------------


def test_a_new_conversation_has_nothing_to_export(demo: Chat, browser: Browser) -> None:
    assert [one.text for one in browser.all(".top button") if one.is_displayed()] == []
    demo.ask("My name is Ada.")
    assert [one.text for one in browser.all(".top button") if one.is_displayed()] == ["Export", "Delete"]


def test_conversations_are_renamed_and_deleted(demo: Chat, browser: Browser) -> None:
    demo.ask("My name is Ada.")
    session = demo.id
    title = browser.find(".title[aria-label=Title]")
    title.clear()
    title.send_keys("Names" + Keys.ENTER)
    browser.find(".list li", "Names")
    browser.click(".list a", "New")
    browser.wait(lambda: demo.texts("user") == [])
    browser.click(".list li a", "Names")
    browser.wait(lambda: demo.texts("user") == ["My name is Ada."])
    browser.find(".session", "idle")
    browser.click(".top button", "Delete")
    browser.click("dialog button", "Delete and close the session")
    browser.wait(lambda: browser.all(".list li") == [] and demo.stored() == [])
    assert demo.served.run(demo.served.daemon.ask("GET", f"/v1/sessions/{session}")).status == 404


def test_an_answer_whose_conversation_is_deleted_stops_and_is_not_stored(endless: Chat, browser: Browser) -> None:
    endless.type("hello")
    browser.wait(lambda: endless.stored() and endless.stored()[0]["messages"][-1]["text"])
    browser.run("""
const { conversations } = await import("/page/conversations.js");
window.conversations = conversations;
window.n_stored = 0;
const put = conversations.put.bind(conversations);
conversations.put = (one) => { window.n_stored += 1; return put(one); };
await conversations.remove(conversations.list()[0].id);
""")
    endless.settle()
    assert browser.run("return window.n_stored") == 0
    assert endless.stored() == []


def test_each_conversation_has_a_draft_of_its_own(demo: Chat, browser: Browser) -> None:
    demo.ask("My name is Ada.")
    browser.find(FIELD).send_keys("not sent yet")
    browser.click(".list a", "New")
    browser.wait(lambda: demo.texts("user") == [])
    assert browser.find(FIELD).get_attribute("value") == ""
    browser.click("nav a", "Now")
    browser.wait(lambda: not browser.all(".chat"))
    browser.click("nav a", "Chat")
    browser.click(".list li a", "My name is Ada.")
    browser.wait(lambda: browser.find(FIELD).get_attribute("value") == "not sent yet")


def test_export_and_import_are_a_round_trip(demo: Chat, browser: Browser, tmp_path: Path) -> None:
    downloads = {"behavior": "allow", "downloadPath": str(tmp_path)}
    browser.driver.execute_cdp_cmd("Browser.setDownloadBehavior", downloads)
    demo.ask("My name is Ada.")
    before = demo.stored()
    browser.click(".list button", "Export all")
    file = tmp_path / "llmd-conversations.json"
    browser.wait(file.exists)
    browser.click(".top button", "Delete")
    browser.click("dialog button", "Delete, keep the session")
    browser.wait(lambda: browser.all(".list li") == [])
    chooser = browser.all(".list input[type=file]")[0]
    chooser.send_keys(str(file))
    browser.find(".list li", "My name is Ada.")
    after = demo.stored()
    assert [one["id"] for one in after] == [one["id"] for one in before]
    assert after[0]["messages"][1]["text"] == before[0]["messages"][1]["text"]
    assert after[0]["messages"][1]["facts"] == before[0]["messages"][1]["facts"]
    browser.click(".list li a", "My name is Ada.")
    assert "Ada" in demo.ask("What is my name?").text
    assert "(exact_prefix)" in demo.facts()  # the session was still there
    chooser.send_keys(str(file))
    browser.wait(lambda: len(browser.all(".list li")) == 2)  # an import replaces nothing
    broken = tmp_path / "broken.json"
    for text in (
        "{",
        "[]",
        json.dumps({"format": "llmd-conversations", "conversations": [{"messages": [{"role": "x"}]}]}),
    ):
        broken.write_text(text)
        chooser.send_keys(str(broken))
        browser.find(".list .problem", "Nothing was imported.")
    assert len(browser.all(".list li")) == 2


def test_a_conversation_that_llmctl_has_saved_can_be_imported(demo: Chat, browser: Browser, tmp_path: Path) -> None:
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "My name is Ada."},
        {"role": "assistant", "content": "Got it. Your name is Ada."},
    ]
    conversation_export.write(tmp_path / "ada.json", "ada", messages, {"temperature": 0.5, "top_k": 7})
    browser.all(".list input[type=file]")[0].send_keys(str(tmp_path / "ada.json"))
    browser.click(".list li a", "My name is Ada.")
    browser.wait(lambda: demo.texts("assistant") == ["Got it. Your name is Ada."])
    [stored] = demo.stored()
    assert (stored["id"], stored["settings"]["system"], stored["settings"]["temperature"]) == ("ada", "Be kind.", 0.5)


def test_tool_calls_of_an_imported_conversation_are_shown(demo: Chat, browser: Browser, tmp_path: Path) -> None:
    call = {"id": "a", "name": "get_weather", "arguments": '{"city":"Rome"}'}
    messages = [{"role": "user", "text": "Weather?"}, {"role": "assistant", "text": "", "calls": [call]}]
    file = tmp_path / "calls.json"
    conversation = {"id": "calls", "title": "Calls", "messages": messages}
    file.write_text(json.dumps({"format": "llmd-conversations", "version": 1, "conversations": [conversation]}))
    browser.all(".list input[type=file]")[0].send_keys(str(file))
    browser.click(".list li a", "Calls")
    assert browser.find(".call p").text == "Tool call get_weather"
    assert json.loads(browser.find(".call pre").text) == {"city": "Rome"}


# --- how it looks, and how it is used without a mouse -----------------------------------------------------------------


def test_the_view_of_a_conversation_fits_and_is_accessible(demo: Chat, browser: Browser) -> None:
    demo.ask("My name is Ada.")
    demo.ask("What can you do?")
    browser.click(".settings summary")
    for scheme in ("light", "dark"):
        browser.color_scheme(scheme)
        for size in (WIDE, NARROW):
            browser.resize(size)
            assert not browser.scrolls_sideways()
            assert browser.violations() == []


def test_on_a_narrow_screen_the_list_is_a_drawer(demo: Chat, browser: Browser) -> None:
    demo.ask("My name is Ada.")
    browser.resize(NARROW)
    assert not browser.all(".list")[0].is_displayed()
    browser.click("button", "Conversations")
    browser.find(".list li", "My name is Ada.")
    browser.press(Keys.ESCAPE)
    browser.wait(lambda: not browser.all(".list")[0].is_displayed())
    assert browser.run("return document.activeElement.textContent") == "Conversations"
    browser.press(Keys.ENTER)
    browser.click(".list a", "New")
    browser.wait(lambda: not browser.all(".list")[0].is_displayed() and demo.texts("user") == [])


def test_the_keyboard_is_enough(demo: Chat, browser: Browser) -> None:
    def press(keys: str) -> None:
        """Presses keys where the focus is. Modifiers are held until the end."""
        browser.driver.switch_to.active_element.send_keys(keys)

    press("My name is")
    press(Keys.SHIFT + Keys.ENTER)
    press("Ada." + Keys.ENTER)
    browser.wait(lambda: len(demo.texts("assistant")) == 1)
    demo.settle()
    assert demo.texts("user") == ["My name is\nAda."]
    backwards = ["Fork", "Regenerate", "Copy", "new", "Fork", "Edit"]  # from the field to the button of the question
    for name in backwards:
        press(Keys.SHIFT + Keys.TAB)
        assert browser.run("return document.activeElement.textContent") == name
    press(Keys.ENTER)
    browser.find(".edit textarea")
    press(Keys.ESCAPE)
    assert browser.run("return document.activeElement.textContent") == "Edit"
