/* sessions.js: the view of all sessions, with the details of one. */

import { counted, h, setText } from "./dom.js";
import { SessionDetails } from "./session_details.js";
import { SessionTable } from "./session_table.js";

export class SessionsView {
  constructor(feed) {
    this.feed = feed;
    this.table = new SessionTable(feed);
    this.details = new SessionDetails(feed);
    this.filter = h("input", { type: "search", oninput: () => this.#filter() });
    this.scratch = h("input", { type: "checkbox", checked: true, onchange: () => this.#filter() });
    this.total = h("span", { class: "quiet", role: "status" });
    const tools = h("div", { class: "tools" },
      h("label", {}, "Filter ", this.filter),
      h("label", { title: "Branches of requests that name no session" }, this.scratch, " Scratch branches"), this.total);
    const list = h("section", { class: "session-list", "aria-label": "All sessions" }, tools, this.table.element);
    this.element = h("div", { class: "sessions" }, list, this.details.element);
  }

  /* parts: the owner and the id of the session in the address. */
  show([owner, id]) {
    this.element.classList.toggle("with-details", id !== undefined);
    this.table.select(id === undefined ? "" : `${owner} ${id}`);
    this.details.show(owner, id);
    this.update(new Set());
  }

  hide() {
    this.details.show(undefined, undefined);
  }

  update(changed) {
    this.table.update();
    this.#count();
    this.details.update(changed);
  }

  #filter() {
    this.table.filter(this.filter.value, this.scratch.checked);
    this.#count();
  }

  #count() {
    const all = this.feed.sessions.size;
    setText(this.total, this.table.total === all ? counted(all, "session") : `${this.table.total} of ${counted(all, "session")}`);
  }
}
