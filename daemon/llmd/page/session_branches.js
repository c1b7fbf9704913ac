/* session_branches.js: the branches of a session as a tree, each with a bar of its tokens and marks at its checkpoints. */

import { count, counted, h } from "./dom.js";
import { isRunning, ofTokens, stateText } from "./session_texts.js";

const PLACES = { slot: "in a slot", memory: "in host memory", disk: "on disk", none: "without a state" };
const LISTED_MAX = 12; /* checkpoints that the text lists */

export class SessionBranches {
  element = h("ul", { class: "branches" });
  #explained = new Map(); /* by entry: what the server has explained about the branch */

  clear() {
    this.#explained.clear();
    this.element.replaceChildren();
  }

  /* Takes the branches of an answer of /v1/sessions/ID/explain. */
  explain(branches) {
    this.#explained = new Map(branches.map((one) => [one.slot, one]));
  }

  update(session) {
    const longest = Math.max(1, ...session.timelines.map((one) => one.tokens));
    const entries = new Set(session.timelines.map((one) => one.slot));
    const children = new Map(); /* by the entry of the parent, or null */
    for (const branch of session.timelines) {
      const parent = this.#explained.get(branch.slot)?.parent ?? null;
      const key = entries.has(parent) ? parent : null;
      children.set(key, [...(children.get(key) ?? []), branch]);
    }
    const items = (key) => (children.get(key) ?? []).map((branch) => {
      const item = this.#item(branch, longest, session.context_tokens);
      if (children.has(branch.slot)) {
        item.append(h("ul", {}, items(branch.slot)));
      }
      return item;
    });
    this.element.replaceChildren(...items(null));
  }

  #item(branch, longest, context) {
    const { parent = null, shared_tokens = 0, checkpoints = [] } = this.#explained.get(branch.slot) ?? {};
    const shown = checkpoints.filter((k) => k <= branch.tokens);
    const origin = parent === null ? "" : `, the first ${count(shared_tokens)} as in entry ${parent}`;
    return h("li", { class: isRunning(branch) ? "running" : "" },
      h("p", {}, h("strong", {}, stateText(branch)), ` ${PLACES[branch.kept_in] ?? ""}, entry ${branch.slot}: `,
        ofTokens(branch.tokens, context, "of the context used"), origin),
      bar(branch.tokens, Math.min(shared_tokens, branch.tokens), shown, longest),
      shown.length > 0 ? h("p", { class: "quiet" }, textOf(shown)) : null);
  }
}

/* The text below a bar repeats the marks, so screen readers skip the bar. */
function bar(tokens, shared, checkpoints, longest) {
  const place = (element, name, n) => {
    element.style.setProperty(name, `${(100 * n) / longest}%`);
    return element;
  };
  return h("span", { class: "bar stacked", "aria-hidden": "true" },
    place(h("span", { class: "shared" }), "width", shared),
    place(h("span", { class: "own" }), "width", tokens - shared),
    checkpoints.map((k) => place(h("i"), "left", k)));
}

function textOf(checkpoints) {
  const listed = checkpoints.slice(-LISTED_MAX).map(count).join(", ");
  const left_out = checkpoints.length - LISTED_MAX;
  return `${counted(checkpoints.length, "checkpoint")}: after ${listed} tokens${left_out > 0 ? `, and ${count(left_out)} earlier` : ""}`;
}
