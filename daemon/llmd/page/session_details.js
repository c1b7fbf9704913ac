/* session_details.js: one session: facts, actions, branches, and why its last turns reused what they did. */

import { call, sessionPath } from "./api.js";
import { act } from "./feed.js";
import { conversations } from "./conversations.js";
import { ask } from "./dialogs.js";
import { ago, count, counted, h, percent, setText } from "./dom.js";
import { SessionBranches } from "./session_branches.js";
import { isRunning, isScratch, memoryText, ofTokens, sessionHash, stackedBar, stateText } from "./session_texts.js";

export class SessionDetails {
  #key = "";
  #asked = 0; /* the number of the last request for the turns */
  #missed = 0; /* the updates in which the feed did not have the session */
  #requests = ""; /* the requests that the shown turns are from */

  constructor(feed) {
    this.feed = feed;
    this.title = h("h2", { tabindex: "-1" });
    this.actions = h("div", { class: "buttons" });
    this.result = h("p", { role: "alert" });
    this.facts = h("dl", { class: "facts" });
    this.branches = new SessionBranches();
    this.turns = h("ol", { class: "turns" });
    this.element = h("section", { class: "session-details", "aria-label": "Details of the session" },
      h("p", { class: "back" }, h("a", { href: "#sessions" }, "All sessions")), this.title, this.actions, this.result,
      this.facts, h("h3", {}, "Branches"), this.branches.element, h("h3", {}, "Last turns"), this.turns);
  }

  get session() {
    return this.feed.sessions.get(this.#key);
  }

  show(owner, id) {
    const key = id === undefined ? "" : `${owner} ${id}`;
    if (key === this.#key) {
      return;
    }
    this.#key = key;
    this.#requests = "";
    this.#missed = 0;
    this.#asked += 1;
    this.title.textContent = id ?? "";
    for (const part of [this.actions, this.result, this.facts, this.turns]) {
      part.replaceChildren();
    }
    this.branches.clear();
    this.update(new Set([key]));
    if (key !== "") {
      this.title.focus();
    }
  }

  update(changed) {
    if (this.#key === "" || !changed.has(this.#key) && this.#requests !== "") {
      return;
    }
    const { session } = this;
    if (session === undefined) {
      this.#miss();
      return;
    }
    if (this.#missed > 1) {
      this.#say("", false);
    }
    this.#missed = 0;
    this.#showActions(session);
    this.#showFacts(session);
    this.branches.update(session);
    const requests = session.timelines.map((one) => `${one.opened_ms} ${one.requests} ${isRunning(one)}`).join();
    if (requests !== this.#requests) {
      this.#requests = requests;
      this.#explain(session);
    }
  }

  /* A session that was just made or renamed is missing until the next event of the feed. */
  #miss() {
    this.#requests = "";
    this.actions.replaceChildren();
    if (this.feed.last !== null) {
      this.#missed += 1;
    }
    if (this.#missed > 1) {
      this.#say("This session is not open. It was closed or renamed, or exists only on disk.", true);
    }
  }

  #say(text, isProblem) {
    setText(this.result, text);
    this.result.classList.toggle("problem", isProblem);
  }

  /* The buttons are made once, so that they keep the focus. Only the text of the one for the pin changes. */
  #showActions(session) {
    if (this.actions.firstChild === null && !isScratch(session)) {
      const button = (text, go) => h("button", { type: "button", onclick: go }, text);
      this.pin = button("", () => this.#act("pin", { pinned: !this.session.pinned },
        this.session.pinned ? "Unpinned." : "Pinned."));
      const chat = h("a", { class: "button", href: `#chat/${encodeURIComponent(session.id)}`, hidden: true }, "Open in chat");
      conversations.read().then(() => { chat.hidden = !conversations.get(session.id); }); /* the texts may be elsewhere */
      this.actions.append(chat,
        button("Fork", () => this.#fork()), button("Park", () => this.#act("park", {}, "Parked.")), this.pin,
        button("Rename", () => this.#rename()), button("Save", () => this.#save()),
        button("Reset", () => this.#confirm("reset", "Its tokens and states are removed. The session stays.", "Session reset.")),
        button("Close", () => this.#confirm("close", "The session and its states are removed.", "Session closed.")));
    }
    if (this.pin) {
      this.pin.textContent = session.pinned ? "Unpin" : "Pin";
    }
  }

  /* Returns whether the action succeeded. */
  async #act(verb, body, success) {
    const key = this.#key;
    this.#say("", false);
    try {
      await act(this.session ?? this.#missing(), verb, body);
    } catch (error) {
      if (this.#key === key) {
        this.#say(error.message, true);
      }
      return false;
    }
    if (this.#key === key) {
      this.#say(success, false);
      if (this.session && verb !== "close" && verb !== "rename") {
        this.#explain(this.session);
      }
    }
    return true;
  }

  #missing() {
    throw new Error("This session is no longer open.");
  }

  async #fork() {
    const { session } = this;
    const id = await ask({ title: `Fork ${session.id}`, verb: "Fork", label: "Id of the new session" });
    if (id && await this.#act("fork", { session_id: id }, "Forked to ")) {
      this.result.append(h("a", { href: sessionHash({ owner: session.owner, id }) }, id), ".");
    }
  }

  async #rename() {
    const { session } = this;
    const id = await ask({ title: `Rename ${session.id}`, verb: "Rename", label: "New id" });
    if (id && await this.#act("rename", { session_id: id }, `Renamed to ${id}.`)) {
      location.hash = sessionHash({ owner: session.owner, id });
    }
  }

  async #save() {
    const name = await ask({ title: `Save ${this.session.id}`, verb: "Save", label: "Name of the saved session" });
    if (name) {
      await this.#act("save", { name }, `Saved as ${name}.`);
    }
  }

  async #confirm(verb, text, success) {
    const name = verb[0].toUpperCase() + verb.slice(1);
    if (await ask({ title: `${name} ${this.session.id}?`, text, verb: name }) !== null) {
      await this.#act(verb, {}, success);
    }
  }

  #showFacts(session) {
    const prompts = session.reused_tokens_total + session.prefilled_tokens_total;
    const facts = [
      ["State", stateText(session)],
      ["Tokens", `${count(session.tokens)} in ${counted(session.timelines.length, "branch", "branches")}`],
      ["Memory", memoryText(session)],
      ["Reused", prompts === 0 ? "–" : `${count(session.reused_tokens_total)} of ${counted(prompts, "prompt token")} reused `
        + `(${percent(session.reused_tokens_total, prompts)})`],
      ["Generated", counted(session.generated_tokens_total, "token")],
      ["Requests", count(session.requests)],
      ["Last start", session.last ? `${session.last.reason}: ${session.last.reason_text}` : "–"],
      ["Client", session.client ?? "not known"],
      ["Owner", session.owner_name ?? String(session.owner)],
      ["Opened", new Date(session.opened_ms).toLocaleString("en-US")],
      ["Last use", new Date(session.used_ms).toLocaleString("en-US")],
      ["Last words", session.last_words ?? "not known"],
    ];
    this.facts.replaceChildren(...facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
  }

  async #explain(session) {
    this.#asked += 1;
    const number = this.#asked;
    let shown, explained = [];
    try {
      const { turns, branches } = await call("GET", sessionPath(session, "/explain"));
      explained = branches;
      shown = turns.length > 0 ? turns.reverse().map((turn) => this.#turn(turn))
        : [h("li", { class: "quiet" }, "No turn since llmd started.")];
    } catch (error) {
      shown = [h("li", { class: "problem" }, error.message)];
    }
    if (number === this.#asked) {
      this.turns.replaceChildren(...shown);
      this.branches.explain(explained);
      this.session && this.branches.update(this.session);
    }
  }

  #turn(turn) {
    const { prompt_tokens, reused_tokens, prefilled_tokens, generated_tokens } = turn;
    const parts = [["reused", reused_tokens], ["prefilled", prefilled_tokens], ["generated", generated_tokens]];
    return h("li", {},
      h("p", {}, h("strong", {}, turn.reason ?? turn.outcome), ` ${turn.reason_text ?? "The request ended before it started."}`),
      stackedBar(parts, reused_tokens + prefilled_tokens + generated_tokens),
      h("p", { class: "legend" }, h("span", { class: "reused" }, ofTokens(reused_tokens, prompt_tokens, "reused")), ", ",
        h("span", { class: "prefilled" }, `${count(prefilled_tokens)} prefilled`), ", ",
        h("span", { class: "generated" }, `${count(generated_tokens)} generated`),
        `; ended with ${turn.outcome}, ${ago(turn.at_ms, this.feed.last?.time_ms ?? Date.now())}`),
      turn.divergence ? this.#divergence(turn.divergence) : null);
  }

  #divergence(point) {
    const text = (value, tokens) => h("pre", {}, `${value}\n`, h("span", { class: "quiet" }, `tokens ${tokens.join(" ")}`));
    const resident = point.resident === null ? h("pre", { class: "quiet" }, "not known")
      : text(point.resident, point.resident_tokens ?? []);
    return h("div", { class: "divergence" },
      h("p", {}, `The prompt differs from the session after ${counted(point.at, "token")}, after “`, h("code", {}, point.before), "”:"),
      h("div", {}, h("h4", {}, "Session"), resident),
      h("div", {}, h("h4", {}, "Prompt"), text(point.prompt, point.prompt_tokens)));
  }
}
