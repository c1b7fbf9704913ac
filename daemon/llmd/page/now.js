/* now.js: the view of what the server does now. */

import { Chart } from "./chart.js";
import { count, counted, h, percent, seconds, setText, size } from "./dom.js";
import { isRunning, sessionHash, stateText } from "./session_texts.js";
import { Timeline } from "./timeline.js";

const RECENT_MS = 10000; /* time over which steps are averaged */

function table(title) {
  const body = h("tbody");
  return { body, element: h("table", {}, h("caption", {}, title), body) };
}

export class NowView {
  constructor(feed, recorder, activity) {
    this.feed = feed;
    this.recorder = recorder;
    this.running = h("ul", { class: "running-list" });
    this.idle = h("p", { class: "quiet" }, "No request runs.");
    this.items = new Map(); /* of the list: {element, text, progress} */
    this.chart = new Chart("Tokens per second", [["prefilled", "Prefilled"], ["generated", "Generated"]], "tokens/s");
    this.steps = h("p");
    this.budgets = h("div", { class: "budgets" });
    this.refusal = h("p", { class: "problem" });
    this.started = table("Starts by reason");
    this.ended = table("Ends by outcome");
    this.timeline = new Timeline(activity);
    this.log = h("ol", { class: "events" });
    this.empty = h("p", { class: "quiet" }, "Nothing yet. Events are recorded while this tab is visible.");
    const card = (title, ...parts) => h("section", {}, h("h2", {}, title), ...parts);
    this.element = h("div", { class: "now", role: "region", "aria-label": "Now", tabindex: "0" }, card("Running", this.idle, this.running), card("Speed", this.chart.element, this.steps),
      card("Memory", this.budgets, this.refusal),
      card("Timeline", this.timeline.element),
      card("Requests since the start", h("div", { class: "counts" }, this.started.element, this.ended.element)),
      card("Events", this.empty, this.log));
    this.record = () => this.#showLog();
  }

  show() {
    this.recorder.addEventListener("recorded", this.record);
    this.#showLog();
    this.update();
  }

  hide() {
    this.recorder.removeEventListener("recorded", this.record);
  }

  update() {
    const { last, past } = this.feed;
    if (last === null) {
      return;
    }
    this.#showRunning(last);
    this.#showSpeed(past);
    this.timeline.draw(last.time_ms);
    this.#showBudgets(last);
    this.#showCounts(this.started, "started_", last.counters);
    this.#showCounts(this.ended, "finished_", last.counters);
  }

  /* Items are kept from update to update, so that a link in them keeps the focus. */
  #showRunning(last) {
    const known = this.items;
    this.items = new Map();
    for (const session of this.feed.sessions.values()) {
      for (const branch of session.timelines) {
        if (isRunning(branch) || branch.waiting > 0) {
          const key = `${session.owner} ${session.id} ${branch.slot}`;
          const item = known.get(key) ?? this.#item(session);
          this.items.set(key, item);
          this.#fill(item, branch, last);
        }
      }
    }
    for (const [key, item] of known) {
      if (!this.items.has(key)) {
        item.element.remove();
      }
    }
    this.idle.hidden = this.items.size > 0;
  }

  #item(session) {
    const progress = h("progress", { "aria-label": `Prefill of ${session.id}` });
    const text = h("span");
    const element = h("li", {}, h("a", { href: sessionHash(session) }, session.id), " ", text, progress);
    this.running.append(element);
    return { element, text, progress, before: null };
  }

  #fill(item, branch, { places, time_ms }) {
    const { text, progress } = item;
    const whole = branch.last?.prompt_tokens ?? 0;
    const done = Math.min(branch.tokens, whole);
    const isPrefill = branch.state === "prefill" && whole > 0;
    progress.hidden = !isPrefill;
    Object.assign(progress, { max: Math.max(1, whole), value: done });
    const tokens = isPrefill ? `${count(done)} of ${counted(whole, "prompt token")} (${percent(done, whole)})`
      : counted(branch.tokens, "token");
    setText(text, `${stateText(branch)}, ${tokens}${isRunning(branch) ? gapText(item, branch, time_ms) : `: ${waitText(branch, places)}`}`);
  }

  #showSpeed(past) {
    const rates = (name) => past.slice(1).map((one, i) => {
      const time_ms = one.time_ms - past[i].time_ms;
      return time_ms > 0 ? (1000 * (one.counters[name] - past[i].counters[name])) / time_ms : 0;
    });
    const minutes = Math.max(1, Math.round((past.at(-1).time_ms - past[0].time_ms) / 60000));
    this.chart.draw([rates("prefill_tokens_total"), rates("decode_tokens_total")],
      minutes === 1 ? "The last minute" : `The last ${minutes} minutes`);
    const now = past.at(-1);
    const then = past.find((one) => one.time_ms >= now.time_ms - RECENT_MS);
    const since = (name) => now.counters[name] - then.counters[name];
    const steps = since("steps_total"), us = since("step_seconds_total");
    const perStep = (name) => (since(name) / steps).toFixed(1);
    const s = Math.max(1, now.time_ms - then.time_ms) / 1000;
    setText(this.steps, steps > 0 ? `${(steps / s).toFixed(1)} steps per second, ${seconds(us / steps / 1e6)} per step. `
      + `A step prefills ${perStep("prefill_tokens_total")} tokens and generates ${perStep("decode_tokens_total")}, on average.`
      : `No step in the last ${counted(Math.max(1, Math.round(s)), "second")}`);
  }

  #showBudgets({ counters, memory, places, storage }) {
    const inMemory = counters.parked_memory_bytes + counters.in_flight_bytes;
    const rows = [
      ["Slots", places.named_used, places.named, `${places.named_used} of ${places.named} for named sessions`],
      ["Model state", memory.state_bytes, memory.state_bytes_max,
        `${size(memory.state_bytes)} of ${size(memory.state_bytes_max)}`],
      ["KV tokens", memory.kv_tokens, memory.kv_tokens_max ?? 0,
        count(memory.kv_tokens) + (memory.kv_tokens_max === null ? "" : ` of ${count(memory.kv_tokens_max)}`)],
      ["Parked", places.parked, places.parked_max, `${count(places.parked)} of ${counted(places.parked_max, "branch", "branches")}`],
      ["Parked in memory", inMemory, storage.parked_bytes_max, `${size(inMemory)} of ${size(storage.parked_bytes_max)}`],
      ["Disk", storage.disk_bytes, storage.disk_bytes_max,
        storage.disk_bytes_max > 0 ? `${size(storage.disk_bytes)} of ${size(storage.disk_bytes_max)}` : "not used"],
      ["Checkpoints", storage.checkpoint_bytes, storage.checkpoint_bytes_max,
        `${count(storage.checkpoints)}, ${size(storage.checkpoint_bytes)} of ${size(storage.checkpoint_bytes_max)}`],
    ];
    rows.forEach(([name, part, whole, text], i) => {
      const row = this.budgets.children[i] ?? this.#budget(name, whole > 0);
      setText(row.lastChild, text);
      if (whole > 0) {
        Object.assign(row.querySelector("meter"), { max: whole, value: part });
      }
    });
    setText(this.refusal, storage.disk_refuses ? "llmd writes no states to disk, because a write has failed." : "");
  }

  #budget(name, hasMeter) {
    const row = h("div", {}, h("span", {}, name), hasMeter ? h("meter", { "aria-label": name }) : h("span"), h("span"));
    this.budgets.append(row);
    return row;
  }

  #showCounts({ body }, prefix, counters) {
    const names = Object.keys(counters).filter((name) => name.startsWith(prefix));
    names.forEach((name, i) => {
      const row = body.rows[i] ?? body.appendChild(
        h("tr", {}, h("th", { scope: "row" }, name.slice(prefix.length).replace(/_total$/, "")), h("td")));
      setText(row.lastChild, count(counters[name]));
    });
  }

  /* Adds the new entries on top, and removes those that the recorder no longer has. */
  #showLog() {
    const { entries } = this.recorder;
    const newest = Number(this.log.firstChild?.dataset.number ?? 0);
    const items = entries.filter((entry) => entry.number > newest).map((entry) => {
      const { session, text } = entry;
      const item = h("li", {}, h("time", {}, new Date(entry.time_ms).toLocaleTimeString("en-GB")), " ",
        session ? h("a", { href: sessionHash(session) }, session.id) : null, ` ${text}`);
      item.dataset.number = entry.number;
      return item;
    });
    this.log.prepend(...items);
    while (this.log.children.length > entries.length) {
      this.log.lastChild.remove();
    }
    this.empty.hidden = entries.length > 0;
  }
}

/* How long each token took since the previous event of the feed, for a branch that decodes. */
function gapText(item, { state, tokens: n }, time_ms) {
  const { before } = item;
  item.before = state === "decode" ? { n, time_ms } : null;
  return before !== null && n > before.n ? `, ${seconds((time_ms - before.time_ms) / (n - before.n) / 1000)} per token` : "";
}

/* Why the requests of a branch wait that does not run. */
function waitText({ kept_in }, { named, named_used }) {
  if (named_used >= named) {
    return "waits for a slot";
  }
  return kept_in === "disk" ? "waits for its state from disk" : "waits for memory, or for other requests of its owner";
}
