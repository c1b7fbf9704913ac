/* session_table.js: the table of all sessions. Only the rows within the visible part exist as elements, so that sorting
 * and filtering 1,000 sessions takes as long as drawing 40 of them. */

import { ago, count, h, percent, setText, size } from "./dom.js";
import {
  bar, isRunning, isScratch, memoryBytes, memoryText, reusedPart, sessionHash, setBar, stateText,
} from "./session_texts.js";

const ROW_PX = 34; /* as in views.css */
const BEYOND = 8; /* rows that exist above and below the visible part */

/* A column: `value` is compared when the table is sorted, `text` is shown. `descends`: the first click shows the largest
 * values first. `kind` says from which width on the column is shown (views.css). */
const COLUMNS = [
  { name: "id", title: "Session", value: (s) => s.id.toLowerCase(), text: (s) => s.id },
  { name: "state", title: "State", value: (s) => (isRunning(s) ? `0${s.state}` : `1${s.state}`), text: stateText },
  { name: "tokens", title: "Tokens", descends: true, value: (s) => s.tokens, text: (s) => count(s.tokens) },
  { name: "memory", title: "Memory", kind: "mid", descends: true, value: memoryBytes, text: (s) => size(memoryBytes(s)) },
  { name: "branches", title: "Branches", kind: "low", descends: true, value: (s) => s.timelines.length,
    text: (s) => count(s.timelines.length) },
  { name: "entry", title: "Entry", kind: "lower", value: (s) => s.slot, text: (s) => String(s.slot) },
  { name: "reused", title: "Reused", descends: true, value: reusedPart },
  { name: "reason", title: "Last start", kind: "mid", value: (s) => s.last?.reason ?? "", text: (s) => s.last?.reason ?? "–" },
  { name: "requests", title: "Requests", kind: "low", descends: true, value: (s) => s.requests,
    text: (s) => count(s.requests) },
  { name: "used", title: "Last use", kind: "mid", descends: true, value: (s) => s.used_ms },
  { name: "pinned", title: "Pinned", kind: "low", descends: true, value: (s) => Number(s.pinned),
    text: (s) => (s.pinned ? "pinned" : "") },
  { name: "kept", title: "State in", kind: "lower", value: (s) => s.kept_in, text: (s) => s.kept_in },
  { name: "client", title: "Client", kind: "low", value: clientText, text: clientText },
  { name: "words", title: "Last words", kind: "mid", value: (s) => s.last_words ?? "", text: (s) => s.last_words ?? "" },
];

const AT = Object.fromEntries(COLUMNS.map((column, i) => [column.name, i]));

function clientText(session) {
  return `${session.client ?? "–"} / ${session.owner_name ?? session.owner}`;
}

const searched = new WeakMap(); /* the text of a session that the filter searches */

function includes(session, words) {
  if (words.length === 0) {
    return true;
  }
  if (!searched.has(session)) {
    searched.set(session, [session.id, session.state, session.last?.reason, clientText(session), session.last_words,
      session.pinned ? "pinned" : ""].join(" ").toLowerCase());
  }
  return words.every((word) => searched.get(session).includes(word));
}

export class SessionTable {
  total = 0; /* sessions that the filter lets pass */
  #rows = new Map(); /* by key: {element, link, cells, bar, percent, session} */
  #order = []; /* keys in the order of the table */
  #column = COLUMNS[AT.used];
  #direction = -1;
  #words = [];
  #withScratch = true;
  #selected = "";
  #active = ""; /* the key of the row that the Tab key reaches */

  constructor(feed) {
    this.feed = feed;
    this.body = h("tbody");
    this.heads = COLUMNS.map((column) => h("th", { class: `${column.name} ${column.kind ?? ""}`, scope: "col" },
      h("button", { type: "button", onclick: () => this.#sort(column) }, column.title)));
    this.table = h("table", {}, h("caption", { class: "hidden" }, "Sessions"), h("thead", {}, h("tr", {}, this.heads)), this.body);
    this.space = h("div", {}, this.table);
    this.element = h("div", { class: "session-table" }, this.space);
    this.element.addEventListener("scroll", () => this.#draw(), { passive: true });
    this.body.addEventListener("click", (event) => this.#click(event));
    this.body.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.#draw()).observe(this.element);
  }

  filter(text, withScratch) {
    this.#words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.#withScratch = withScratch;
    this.element.scrollTop = 0;
    this.update();
  }

  select(key) {
    this.#selected = key;
    this.#draw();
  }

  update() {
    const { value } = this.#column, rows = [];
    for (const [key, session] of this.feed.sessions) {
      if ((this.#withScratch || !isScratch(session)) && includes(session, this.#words)) {
        rows.push([value(session), key]);
      }
    }
    const down = this.#direction;
    rows.sort(([a, x], [b, y]) => (a < b ? -down : a > b ? down : x < y ? -1 : 1));
    this.#order = rows.map(([, key]) => key);
    this.total = rows.length;
    this.#draw();
  }

  #sort(column) {
    this.#direction = this.#column === column ? -this.#direction : column.descends ? -1 : 1;
    this.#column = column;
    this.element.scrollTop = 0;
    this.update();
  }

  #draw() {
    const focused = [...this.#rows].find(([, row]) => row.link === document.activeElement)?.[0];
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW_PX) - BEYOND);
    const shown = this.#order.slice(first, first + Math.ceil(this.element.clientHeight / ROW_PX) + 2 * BEYOND);
    const kept = new Set(shown);
    for (const [key, row] of this.#rows) {
      if (!kept.has(key)) {
        row.element.remove();
        this.#rows.delete(key);
      }
    }
    if (!kept.has(this.#active)) {
      this.#active = shown[0] ?? "";
    }
    let next = this.body.firstChild;
    shown.forEach((key, i) => {
      const row = this.#rows.get(key) ?? this.#make(key);
      this.#fill(row, key, first + i);
      if (row.element === next) {
        next = next.nextSibling;
      } else {
        this.body.insertBefore(row.element, next);
      }
    });
    this.#heads();
    this.space.style.setProperty("padding-top", `${first * ROW_PX}px`);
    this.space.style.setProperty("padding-bottom", `${(this.#order.length - first - shown.length) * ROW_PX}px`);
    if (focused !== undefined && document.activeElement === document.body) { /* a row that moves loses the focus */
      (this.#rows.get(focused)?.link ?? this.#rows.get(this.#active)?.link)?.focus({ preventScroll: true });
    }
  }

  #heads() {
    this.table.setAttribute("aria-rowcount", this.#order.length + 1);
    COLUMNS.forEach((column, i) => {
      if (column === this.#column) {
        this.heads[i].setAttribute("aria-sort", this.#direction > 0 ? "ascending" : "descending");
      } else {
        this.heads[i].removeAttribute("aria-sort");
      }
    });
  }

  #make(key) {
    const link = h("a", { href: sessionHash(this.feed.sessions.get(key)) });
    const row = { link, bar: bar(), percent: h("span"), session: null };
    row.cells = COLUMNS.map((column) => h("td", { class: `${column.name} ${column.kind ?? ""}` }));
    row.cells[0].append(link);
    row.cells[AT.reused].append(row.bar, " ", row.percent);
    row.element = h("tr", {}, row.cells);
    row.element.dataset.key = key;
    this.#rows.set(key, row);
    return row;
  }

  #fill(row, key, i) {
    const session = this.feed.sessions.get(key);
    row.element.setAttribute("aria-rowindex", i + 2);
    row.link.tabIndex = key === this.#active ? 0 : -1;
    row.element.classList.toggle("selected", key === this.#selected);
    key === this.#selected ? row.link.setAttribute("aria-current", "true") : row.link.removeAttribute("aria-current");
    setText(row.cells[AT.used], ago(session.used_ms, this.feed.last?.time_ms ?? session.used_ms));
    if (row.session === session) {
      return;
    }
    row.session = session;
    setText(row.link, session.id);
    COLUMNS.forEach((column, j) => {
      if (column.text && j > 0) {
        setText(row.cells[j], column.text(session));
      }
    });
    row.cells[AT.state].title = stateText(session); /* the column is too narrow for "waiting" */
    row.cells[AT.reason].title = session.last?.reason_text ?? "";
    row.cells[AT.memory].title = memoryText(session);
    row.element.classList.toggle("running", isRunning(session));
    setBar(row.bar, reusedPart(session));
    setText(row.percent, percent(session.reused_tokens_total, session.reused_tokens_total + session.prefilled_tokens_total));
  }

  #click(event) {
    const row = event.target.closest("tr");
    if (row && event.target.tagName !== "A" && !getSelection().toString()) {
      this.#rows.get(row.dataset.key).link.click();
    }
  }

  /* The table is one stop of the Tab key. Within it, the arrow keys go from row to row. */
  #key(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / ROW_PX) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (!(event.key in steps)) {
      return;
    }
    event.preventDefault();
    const at = this.#order.indexOf(this.#active) + steps[event.key];
    const i = Math.max(0, Math.min(this.#order.length - 1, at));
    const top = i * ROW_PX, height = this.element.clientHeight - 2 * ROW_PX; /* without the head of the table */
    this.#active = this.#order[i];
    this.element.scrollTop = Math.min(top, Math.max(this.element.scrollTop, top - height));
    this.#draw();
    this.#rows.get(this.#active)?.link.focus({ preventScroll: true });
  }
}
