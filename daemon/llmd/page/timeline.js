/* timeline.js: what the sessions did in the last minutes: recorded from the feed, and drawn as one line per session. */

import { h, seconds, setText } from "./dom.js";
import { sessionHash } from "./session_texts.js";

const SPAN_MS = 300000;
const RECORDED_MAX = 200, SHOWN_MAX = 12; /* sessions */
const KINDS = [["prefill", "prefilled"], ["decode", "generated"], ["wait", "waiting"]]; /* with the class of each */

/* Records when each session waited, prefilled and decoded. The feed says so once per second. app.js makes one recorder, so
 * that it also works while another view is shown. */
export class Activity {
  lanes = new Map(); /* by the feed's keys: {session, spans: [{kind, from_ms, to_ms}, ...]} */
  #requests = new Map(); /* the requests of each session at the previous event */
  #last_ms = 0; /* the time of the previous event */

  constructor(feed) {
    feed.addEventListener("change", () => feed.problem === "" && this.#take(feed.last, feed.sessions));
  }

  #take({ full, time_ms }, sessions) {
    const from_ms = full ? time_ms : this.#last_ms; /* nothing is known about the time before a full event */
    for (const [key, session] of sessions) {
      const kind = kindOf(session) ?? (session.requests > (this.#requests.get(key) ?? 0) ? "decode" : null);
      if (kind !== null && !full) {
        this.#add(key, session, { kind, from_ms, to_ms: time_ms });
      }
    }
    this.#requests = new Map(Array.from(sessions, ([key, session]) => [key, session.requests]));
    this.#last_ms = time_ms;
    this.#forget(time_ms - SPAN_MS);
  }

  #add(key, session, span) {
    const { spans } = this.lanes.get(key) ?? { spans: [] };
    const last = spans.at(-1);
    if (last?.kind === span.kind && last.to_ms === span.from_ms) {
      last.to_ms = span.to_ms;
    } else {
      spans.push(span);
    }
    this.lanes.set(key, { session, spans });
  }

  #forget(before_ms) {
    for (const [key, { spans }] of this.lanes) {
      while (spans.length > 0 && spans[0].to_ms < before_ms) {
        spans.shift();
      }
      if (spans.length === 0 || this.lanes.size > RECORDED_MAX) {
        this.lanes.delete(key);
      }
    }
  }
}

function kindOf({ timelines }) {
  const has = (state) => timelines.some((one) => one.state === state);
  return has("prefill") ? "prefill" : has("decode") ? "decode" : timelines.some((one) => one.waiting > 0) ? "wait" : null;
}

/* Draws the sessions that were active last. */
export class Timeline {
  #activity;
  #items = new Map(); /* by key: {element, lane, text} */
  #list = h("ul");
  #empty = h("p", { class: "quiet" }, "No request in the last minutes while this tab was visible.");
  #axis = h("p", { class: "axis quiet", "aria-hidden": "true" }, h("span", {}, "5\u00a0min ago"), h("span", {}, "now"));

  constructor(activity) {
    this.#activity = activity;
    this.element = h("div", { class: "timeline" }, this.#empty, this.#list, this.#axis);
  }

  draw(now_ms) {
    const { lanes } = this.#activity;
    const shown = [...lanes.keys()].sort((a, b) => lanes.get(b).spans.at(-1).to_ms - lanes.get(a).spans.at(-1).to_ms)
      .slice(0, SHOWN_MAX);
    for (const [key, { element }] of this.#items) {
      if (!shown.includes(key)) {
        element.remove();
        this.#items.delete(key);
      }
    }
    shown.forEach((key) => this.#fill(key, lanes.get(key), now_ms));
    this.#empty.hidden = shown.length > 0;
    this.#axis.hidden = shown.length === 0;
  }

  /* Items are kept from call to call, so that a link in them keeps the focus. */
  #fill(key, { session, spans }, now_ms) {
    if (!this.#items.has(key)) {
      const lane = h("span", { class: "lane", "aria-hidden": "true" }), text = h("span", { class: "quiet" });
      const element = h("li", {}, h("a", { href: sessionHash(session) }, session.id), lane, text);
      this.#items.set(key, { element, lane, text });
      this.#list.append(element);
    }
    const { lane, text } = this.#items.get(key);
    const from_ms = now_ms - SPAN_MS;
    lane.replaceChildren(...spans.map((span) => part(span, Math.max(span.from_ms, from_ms), from_ms)));
    setText(text, KINDS.map(([kind]) => [kind, total(spans, kind)]).filter(([, ms]) => ms > 0)
      .map(([kind, ms]) => `${kind} ${seconds(ms / 1000)}`).join(", "));
  }
}

function total(spans, kind) {
  return spans.reduce((ms, span) => ms + (span.kind === kind ? span.to_ms - span.from_ms : 0), 0);
}

function part({ kind, to_ms }, from_ms, begin_ms) {
  const element = h("i", { class: KINDS.find(([name]) => name === kind)[1] });
  element.style.setProperty("left", `${(100 * (from_ms - begin_ms)) / SPAN_MS}%`);
  element.style.setProperty("width", `${(100 * (to_ms - from_ms)) / SPAN_MS}%`);
  return element;
}
