"""The views of the page that show sessions, and the parts that all views share, in a browser."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from llmd.ctl.text import size as size_text
from tests.page.browser import NARROW, WIDE, Browser, Served
from tests.page.conftest import ENDLESS, SLOW_PREFILL, StartDaemon
from tests.serving import chat

PARTS_OF_MEMORY = ("memory", "checkpoint", "disk")
VIEWS = ("#chat", "#sessions", "#sessions/0/chat-3", "#now")


def converse(daemon: Served, n_sessions: int = 10) -> None:
    """Makes sessions chat-0, chat-1, ... The last words of each name its number."""
    for number in range(n_sessions):
        daemon.chat(f"hello number {number}", session_id=f"chat-{number}")


def ids(browser: Browser) -> list[str]:
    return browser.texts(".session-table tbody a")


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_fits_and_is_accessible(browser: Browser, start_daemon: StartDaemon, view: str) -> None:
    daemon = start_daemon()
    converse(daemon)
    daemon.chat("something else, which differs", session_id="chat-3")
    browser.open(daemon, view)
    browser.find("#status", "0 running")
    for scheme in ("light", "dark"):
        browser.color_scheme(scheme)
        for size in (WIDE, NARROW, (360, 640)):
            browser.resize(size)
            assert not browser.scrolls_sideways()
            assert browser.violations() == []


@pytest.mark.parametrize("view", ["#%E0%A4", "#toString", "#sessions/%"])
def test_any_address_opens_a_view(browser: Browser, start_daemon: StartDaemon, view: str) -> None:
    browser.open(start_daemon(), view)
    browser.find("nav a[aria-current]")


# --- sessions --------------------------------------------------------------------------------------------------------


def test_the_table_follows_the_sessions(browser: Browser, start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    converse(daemon)
    browser.open(daemon, "#sessions")
    browser.wait(lambda: ids(browser) == [f"chat-{number}" for number in range(9, -1, -1)])
    daemon.chat(session_id="new")
    daemon.chat()
    browser.wait(lambda: "new" in ids(browser) and len(ids(browser)) == 12)
    browser.click("label", "Scratch")
    assert len(ids(browser)) == 11 and "11 of 12 sessions" in browser.find(".tools").text
    daemon.run(daemon.daemon.ask("DELETE", "/v1/sessions/new"))
    browser.wait(lambda: "new" not in ids(browser))


def test_the_table_is_sorted_and_filtered(browser: Browser, start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    converse(daemon)
    browser.open(daemon, "#sessions")
    browser.wait(lambda: len(ids(browser)) == 10)
    for direction in ("ascending", "descending"):
        browser.click("th.id button")
        assert browser.find("th.id").get_attribute("aria-sort") == direction
        assert ids(browser) == sorted(ids(browser), reverse=direction == "descending")
    assert len(browser.all("th[aria-sort]")) == 1
    browser.find(".tools input").send_keys("NUMBER 7")
    browser.wait(lambda: ids(browser) == ["chat-7"])


def test_a_column_has_the_memory_of_each_session(browser: Browser, start_daemon: StartDaemon) -> None:
    daemon = start_daemon(model="sim:hybrid", max_sessions=2)
    for number, n_words in enumerate((300, 100, 500, 200)):  # more sessions than slots, so some are parked
        daemon.chat("word " * n_words, session_id=f"chat-{number}")
    sessions = {one["id"]: one for one in daemon.get("/v1/sessions")["data"]}
    taken = {id: one["memory_bytes"] + one["checkpoint_bytes"] for id, one in sessions.items()}
    assert len(set(taken.values())) == 4 and {one["state"] for one in sessions.values()} == {"idle", "parked"}
    browser.open(daemon, "#sessions")
    browser.wait(lambda: len(ids(browser)) == 4)
    for direction in ("descending", "ascending"):
        browser.click("th.memory button")
        assert browser.find("th.memory").get_attribute("aria-sort") == direction
        assert ids(browser) == sorted(taken, key=taken.__getitem__, reverse=direction == "descending")
        shown = [cell.replace("\u00a0", " ") for cell in browser.texts("td.memory")]
        assert shown == [size_text(taken[id]) for id in ids(browser)]
    browser.click(".session-table tbody a", "chat-2")
    state, checkpoints, disk = (size_text(sessions["chat-2"][f"{part}_bytes"]) for part in PARTS_OF_MEMORY)
    parts = f"{state} of state, {checkpoints} of checkpoints, {disk} on disk"
    browser.wait(lambda: parts in browser.find(".facts").text.replace("\u00a0", " "))


def test_only_changed_rows_of_a_thousand_are_updated(browser: Browser, start_daemon: StartDaemon) -> None:
    """Rows outside of the visible part do not exist, and an unchanged row is not touched."""
    daemon = start_daemon()
    browser.open(daemon, "#sessions")
    browser.find("#status", "0 running")
    found = browser.driver.execute_async_script(A_THOUSAND)
    assert found["rows"] < 60 and found["rowcount"] == "1001"
    assert found["changed"] == ["id-0002"]
    assert found["last"] == "id-0999"


A_THOUSAND = """
const done = arguments[0];
(async () => {
  const { SessionTable } = await import("/page/session_table.js");
  const session = (i, tokens) => ({ id: `id-${String(i).padStart(4, "0")}`, owner: 0, owner_name: "local",
    client: "test", state: "idle", waiting: 0, slot: i, tokens, requests: 1, used_ms: 1e12 - i, pinned: false,
    timelines: [], memory_bytes: 0, checkpoint_bytes: 0, disk_bytes: 0, last: null, last_words: "words",
    reused_tokens_total: 1, prefilled_tokens_total: 1 });
  const feed = { sessions: new Map(), last: { time_ms: 1e12 } };
  for (let i = 0; i < 1000; i += 1) {
    feed.sessions.set(`0 id-${i}`, session(i, i));
  }
  const table = new SessionTable(feed);
  document.querySelector(".session-list").replaceChildren(table.element);
  table.update();
  const seen = new MutationObserver(() => {});
  seen.observe(table.body, { childList: true, characterData: true, subtree: true });
  feed.sessions.set("0 id-2", session(2, 5000));
  feed.sessions.set("0 id-900", session(900, 5000));
  table.update();
  const changed = seen.takeRecords().map((one) => one.target.closest("tr").querySelector("a").textContent);
  const rows = table.body.rows.length;
  table.element.scrollTop = 1e6;
  table.element.dispatchEvent(new Event("scroll"));
  const rowcount = table.table.getAttribute("aria-rowcount");
  done({ changed, rows, rowcount, last: table.body.lastChild.querySelector("a").textContent });
})();
"""


def test_the_keyboard_opens_a_session_and_presses_a_button(browser: Browser, start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    converse(daemon)
    browser.open(daemon, "#sessions")
    browser.wait(lambda: len(ids(browser)) == 10)
    browser.run("document.querySelector('th:last-child button').focus()")
    browser.press(Keys.TAB, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER)
    browser.find("h2", "chat-7")
    browser.press(Keys.TAB, Keys.TAB, Keys.TAB, Keys.ENTER)
    browser.find("[role=alert]", "Pinned.")
    browser.find(".session-details button", "Unpin")
    assert daemon.get("/v1/sessions/chat-7")["pinned"]


def test_the_details_say_why_tokens_were_not_reused(browser: Browser, start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    history = [{"role": "user", "content": "My name is Ada."}, {"role": "assistant", "content": "Hello."}]
    daemon.chat(session_id="a", messages=history[:1])
    daemon.chat(session_id="a", messages=[*history, {"role": "user", "content": "Who am I?"}])
    turn = daemon.get("/v1/sessions/a/explain")["turns"][-1]
    browser.open(daemon, "#sessions/0/a")
    shown = browser.find(".turns li").text
    assert turn["reason"] in shown and turn["reason_text"] in shown
    assert f"{turn['reused_tokens']} of {turn['prompt_tokens']} tokens reused" in shown
    assert f"{turn['prefilled_tokens']} prefilled" in shown and f"{turn['generated_tokens']} generated" in shown
    session, prompt = browser.all(".divergence pre")
    point = turn["divergence"]
    assert point["resident"].split()[0] in session.text and point["prompt"].split()[0] in prompt.text
    daemon.chat(session_id="a", messages=history[:1])
    browser.wait(lambda: len(browser.all(".turns > li")) == 3)


def test_the_branches_are_a_tree_with_marks_at_the_checkpoints(browser: Browser, start_daemon: StartDaemon) -> None:
    daemon = start_daemon(model="sim:hybrid")
    for text in ("alpha " * 400, "beta " * 300):
        messages = [{"role": "system", "content": "system " * 100}, {"role": "user", "content": text}]
        daemon.chat(session_id="a", messages=messages)
    first, second = daemon.get("/v1/sessions/a/explain")["branches"]
    browser.open(daemon, "#sessions/0/a")
    child = browser.find(".branches li li")
    assert f"in a slot, entry {second['slot']}" in child.text
    assert f"the first {second['shared_tokens']} as in entry {first['slot']}" in child.text
    marks = browser.all(".branches li li i")
    assert len(marks) == len(second["checkpoints"]) > 1
    assert f"{len(marks)} checkpoints: after {', '.join(f'{k:,}' for k in second['checkpoints'])} tokens" in child.text
    left = [float(mark.value_of_css_property("left").removesuffix("px")) for mark in marks]
    width = child.find_element("css selector", ".bar").size["width"] - 2  # without the border
    for k, x in zip(second["checkpoints"], left, strict=True):
        assert abs(x - width * k / first["tokens"]) < 1
    daemon.run(daemon.daemon.ask("POST", "/v1/sessions/a/park", {}))
    browser.find(".branches li li", "in host memory")
    assert browser.violations() == []


def test_the_buttons_do_what_llmctl_does(browser: Browser, start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    converse(daemon, 2)
    browser.open(daemon, "#sessions/0/chat-1")
    browser.click(".session-details button", "Park")
    browser.find("[role=alert]", "Parked.")
    browser.find(".facts", "parked")
    browser.click(".session-details button", "Rename")
    browser.find("dialog input").send_keys("chat-0", Keys.ENTER)
    assert "chat-0" in browser.find("[role=alert].problem").text
    browser.complaints()  # the refusal
    browser.click(".session-details button", "Rename")
    browser.find("dialog input").send_keys("renamed", Keys.ENTER)
    browser.find("h2", "renamed")
    browser.click(".session-details button", "Fork")
    browser.find("dialog input").send_keys("a/b?c#d", Keys.ENTER)
    browser.click("[role=alert] a", "a/b?c#d")
    browser.find("h2", "a/b?c#d")
    browser.click(".session-details button", "Save")
    browser.find("dialog input").send_keys("keep", Keys.ENTER)
    browser.find("[role=alert]", "Saved as keep.")
    browser.click(".session-details button", "Reset")
    browser.click("dialog button", "Reset")
    browser.find("[role=alert]", "Session reset.")
    browser.find(".facts", "0 in 1 branch")
    browser.click(".session-details button", "Close")
    browser.click("dialog button", "Cancel")
    browser.click(".session-details button", "Close")
    browser.click("dialog button", "Close")
    browser.find("[role=alert]", "This session is not open.")
    assert {one["id"] for one in daemon.get("/v1/sessions")["data"]} == {"chat-0", "renamed"}


def test_a_question_ends_when_another_session_is_shown(browser: Browser, start_daemon: StartDaemon) -> None:
    """Otherwise the answer to a question about one session would close another one."""
    daemon = start_daemon()
    converse(daemon, 2)
    for name in ("chat-0", "chat-1"):
        browser.open(daemon, f"#sessions/0/{name}")
        browser.find(".session-details h2", name)
    browser.click(".session-details button", "Close")
    browser.find("dialog h2", "Close chat-1?")
    browser.driver.back()
    browser.find(".session-details h2", "chat-0")
    browser.wait(lambda: browser.all("dialog[open]") == [])
    assert {one["id"] for one in daemon.get("/v1/sessions")["data"]} == {"chat-0", "chat-1"}


def test_a_conversation_of_this_browser_can_be_opened(browser: Browser, start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    browser.open(daemon, "#chat")
    browser.find("#status", "0 running")
    browser.click("main textarea")
    browser.press("hello", Keys.ENTER)
    browser.wait(lambda: daemon.get("/v1/sessions")["data"])
    session = daemon.get("/v1/sessions")["data"][0]["id"]
    browser.click("nav a", "Sessions")
    browser.click(".session-table a", session)
    browser.click(".session-details a", "Open in chat")
    browser.find("main textarea")
    assert browser.run("return location.hash") == f"#chat/{session}"


def test_details_replace_the_table_on_a_narrow_screen(browser: Browser, start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    converse(daemon, 2)
    browser.resize(NARROW)
    browser.open(daemon, "#sessions")
    browser.click(".session-table tbody td.state")
    browser.find("h2", "chat-1")
    assert not browser.all(".session-table")[0].is_displayed()
    browser.click(".back a")
    browser.find(".session-table")


# --- now -------------------------------------------------------------------------------------------------------------


def test_what_runs_is_shown_with_its_progress(browser: Browser, start_daemon: StartDaemon) -> None:
    daemon = start_daemon(model=SLOW_PREFILL)
    browser.open(daemon, "#now")
    body = json.dumps({"messages": [{"role": "user", "content": "word " * 600}], "session_id": "a"}).encode()
    request = daemon.start(daemon.daemon.ask("POST", "/v1/chat/completions", body))
    browser.find(".running-list li", "prompt tokens")
    assert int(browser.find(".running-list progress").get_attribute("max")) > 600
    assert "1 of 8 for named sessions" in browser.find(".budgets").text
    meters = {one.get_attribute("aria-label"): float(one.get_attribute("max")) for one in browser.all("meter")}
    info = daemon.daemon.state.engine.info
    assert (meters["Model state"], meters["KV tokens"]) == (info.state_bytes, info.n_cells)
    browser.find(".now p", "steps per second")
    browser.find(".now p", "A step prefills 1.0 tokens and generates 0.0, on average.")
    browser.wait(lambda: " " in browser.find(".chart polyline.prefilled").get_attribute("points"))
    daemon.run(daemon.daemon.ask("DELETE", "/v1/sessions/a"))
    request.result()
    browser.find(".now", "No request runs.")


def test_what_waits_says_why_and_the_timeline_shows_who_did_what(browser: Browser, start_daemon: StartDaemon) -> None:
    daemon = start_daemon(model=ENDLESS, max_sessions=1)
    browser.open(daemon, "#now")
    browser.find(".timeline", "No request in the last minutes")
    ask = functools.partial(daemon.daemon.ask, "POST", "/v1/chat/completions")
    requests = [daemon.start(ask(chat(session_id=id, max_tokens=60_000))) for id in ("a", "b")]
    browser.find(".running-list li", "waits for a slot")
    browser.find(".running-list li", "per token")
    browser.find(".timeline li", "decode")
    browser.find(".timeline li", "wait")
    assert browser.all(".timeline .generated") and browser.all(".timeline .waiting")
    for id in ("a", "b"):
        daemon.run(daemon.daemon.ask("DELETE", f"/v1/sessions/{id}"))
    for request in requests:
        request.result()
    browser.find(".now", "No request runs.")
    assert browser.violations() == [] and not browser.scrolls_sideways()


def test_events_are_recorded_while_another_view_is_shown(browser: Browser, start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    browser.open(daemon, "#sessions")
    browser.find("#status", "0 running")
    daemon.chat(session_id="a")
    browser.wait(lambda: ids(browser) == ["a"])
    browser.click("nav a", "Now")
    tokens = daemon.get("/v1/sessions/a")["last"]["prompt_tokens"]
    browser.find(".events", f"a started a request with new: 0 of {tokens} tokens reused")
    browser.find(".events", "a ended its request")
    daemon.run(daemon.daemon.ask("POST", "/v1/sessions/a/park", {}))
    browser.find(".events li:first-child", "a was parked")
    daemon.run(daemon.daemon.ask("DELETE", "/v1/sessions/a"))
    browser.find(".events li:first-child", "a was closed or forgotten")
    counts = dict(row.rsplit("\t", 1) for row in browser.texts(".counts tr"))
    assert counts["new"] == "1" and counts["length"] == "1" and counts["stop"] == "0"


def test_events_are_bounded_and_survive_a_restart_of_the_server(browser: Browser, start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    browser.open(daemon, "#now")
    browser.find("#status", "0 running")
    entries = browser.driver.execute_async_script(TWO_RUNS)
    assert len(entries) == 200
    assert entries[:2] == ["was pinned", "The server was started again"]
    assert set(entries[2:]) == {
        "started a request with equal: 4 of 5 tokens reused",
        "ended its request: 1 token generated",
    }


TWO_RUNS = """
const done = arguments[0];
(async () => {
  const { Recorder } = await import("/page/recorder.js");
  const feed = Object.assign(new EventTarget(), { sessions: new Map(), problem: "", last: null });
  const recorder = new Recorder(feed);
  const event = (heartbeat_total, requests, pinned, full) => {
    const branch = { slot: 0, opened_ms: 1, state: "idle", requests, generated_tokens_total: requests,
      last: { reason: "equal", reused_tokens: 4, prompt_tokens: 5 } };
    feed.sessions.set("0 a", { id: "a", owner: 0, pinned, timelines: [branch] });
    feed.last = { time_ms: 1, full, counters: { heartbeat_total } };
    feed.dispatchEvent(Object.assign(new Event("change"), { changed: new Set(["0 a"]) }));
  };
  event(1000, 1, false, true);
  for (let i = 2; i < 300; i += 1) {
    event(1000 + i, i, false, false);
  }
  event(5, 2, false, true);
  event(6, 2, true, false);
  done(recorder.entries.map((entry) => entry.text));
})();
"""


# --- texts -----------------------------------------------------------------------------------------------------------


def test_a_line_does_not_break_between_a_number_and_its_unit(browser: Browser, start_daemon: StartDaemon) -> None:
    browser.open(start_daemon(), "#now")
    texts = browser.driver.execute_async_script("""
const done = arguments[0];
import("/page/dom.js").then(({ ago, percent, seconds, size }) =>
  done([percent(1, 3), size(5000), seconds(0.5), seconds(5), seconds(500), ago(0, 90000).replace(" ago", "")]));
""")
    assert texts == [text.replace(" ", "\u00a0") for text in ("33 %", "4.9 KiB", "500 ms", "5.0 s", "8 min", "1 min")]


# --- keys ------------------------------------------------------------------------------------------------------------


def test_the_page_asks_for_a_key(browser: Browser, start_daemon: StartDaemon, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("key-of-ada-and-more ada\n")
    keys.chmod(0o600)
    daemon = start_daemon(api_key_file=keys)
    browser.open(daemon, "#now")
    browser.find("#key-value").send_keys("key-of-nobody", Keys.ENTER)
    browser.wait(lambda: browser.find("#key-value").get_attribute("value") == "")
    assert "problem" in browser.find("#status").get_attribute("class")
    browser.find("#key-value").send_keys("key-of-ada-and-more", Keys.ENTER)
    browser.find("#status", "0 running")
    assert browser.all("#key-dialog[open]") == []
    assert all("401" in complaint for complaint in browser.complaints())
