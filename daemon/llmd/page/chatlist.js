/* chatlist.js: the list of the conversations of this browser, with the states of their sessions. */

import { call } from "./api.js";
import { conversations, exported, imported, newId } from "./conversations.js";
import { h, setText } from "./dom.js";

/* The sessions of the server by id, kept up to date from the feed. Ids of this page are random, so that two owners never
 * have the same. */
class SessionsById {
  #feed;
  #all = new Map();
  #awaited = new Map(); /* ids of used sessions, with the number of events after which the feed must have them */

  constructor(feed) {
    this.#feed = feed;
    this.take(feed.sessions.keys());
  }

  await(id) {
    this.#awaited.set(id, 2);
  }

  take(keys) {
    for (const [id, n] of this.#awaited) {
      n > 1 ? this.#awaited.set(id, n - 1) : this.#awaited.delete(id);
    }
    for (const key of keys) {
      const session = this.#feed.sessions.get(key);
      session ? this.#all.set(session.id, session) : this.#all.delete(key.slice(key.indexOf(" ") + 1));
    }
  }

  get(id) {
    return this.#all.get(id) ?? null;
  }

  /* The word for the state of a session, or "" if the server has not said it yet. */
  state(id) {
    const isUnknown = this.#feed.last === null || this.#awaited.has(id) || conversations.isRunning(id);
    return this.get(id)?.state ?? (isUnknown ? "" : "gone");
  }
}

export class ConversationList {
  #rows = new Map(); /* by the id of the conversation: {link, title, dot, state} */
  #currentId = null;
  #isScheduled = false;
  #list = h("ul");
  #problem = h("p", { class: "problem", role: "alert" });

  constructor(feed) {
    this.sessions = new SessionsById(feed);
    const file = h("input", { type: "file", accept: "application/json,.json", class: "hidden", tabindex: "-1",
      "aria-label": "File to import", onchange: () => this.#import(file) });
    this.element = h("aside", { class: "list", "aria-label": "Conversations", id: "conversations" },
      h("div", { class: "buttons" },
        h("a", { class: "button", href: "#chat" }, "New"),
        h("button", { type: "button", onclick: () => file.click() }, "Import"),
        h("button", { type: "button", onclick: () => saveFile("llmd-conversations.json", conversations.list()) },
          "Export all"), file),
      this.#problem, this.#list);
  }

  /* Shows all conversations. */
  render(currentId) {
    this.#currentId = currentId;
    setText(this.#problem, conversations.problem);
    this.#rows.clear();
    this.#list.replaceChildren(...conversations.list().map((one) => h("li", {}, this.#row(one, one.id === currentId))));
  }

  #row({ id, title }, isCurrent) {
    const row = { title: h("span", { class: "title" }, title || "Untitled"), dot: h("span"), state: h("span") };
    row.link = h("a", { href: `#chat/${encodeURIComponent(id)}`, "aria-current": isCurrent && "page" }, row.title,
      h("span", { class: "quiet meta" }, row.dot, row.state, h("span", { class: "mono id" }, id)));
    this.#rows.set(id, row);
    this.#showState(id);
    return row.link;
  }

  /* Shows a change of one conversation. After many changes, such as an import, the list is rendered once. */
  update(id) {
    this.sessions.await(id);
    setText(this.#problem, conversations.problem);
    const row = this.#rows.get(id), conversation = conversations.get(id);
    if (row && conversation) {
      setText(row.title, conversation.title || "Untitled");
    }
    if (Boolean(row) !== Boolean(conversation) && !this.#isScheduled) {
      this.#isScheduled = true;
      requestAnimationFrame(() => {
        this.#isScheduled = false;
        this.render(this.#currentId);
      });
    }
  }

  updateStates(changed) {
    this.sessions.take(changed);
    for (const id of this.#rows.keys()) {
      this.#showState(id);
    }
  }

  #showState(id) {
    const { dot, state } = this.#rows.get(id), word = this.sessions.state(id);
    setText(state, word);
    dot.className = `dot ${word}`;
  }

  async #import(file) {
    const text = await file.files[0]?.text();
    file.value = ""; /* so that the same file can be chosen again */
    if (text === undefined) {
      return;
    }
    try {
      for (const one of imported(text)) { /* never in place of a conversation that is here */
        conversations.put(conversations.get(one.id) ? { ...one, id: newId() } : one);
      }
      setText(this.#problem, "");
    } catch (error) {
      setText(this.#problem, `Nothing was imported. ${error.message}`);
    }
  }
}

export function saveFile(name, list) {
  const address = URL.createObjectURL(new Blob([exported(list)], { type: "application/json" }));
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
}

/* Asks whether to delete a conversation, and does so. Returns whether it was deleted. */
export function askToDelete({ id, title }, hasSession) {
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-labelledby": "delete-title" }, h("form", { method: "dialog" },
      h("h2", { id: "delete-title" }, "Delete the conversation"),
      h("p", {}, `"${title || "Untitled"}" is stored only in this browser. You cannot undo this.`),
      h("div", { class: "buttons" },
        hasSession && h("button", { value: "close" }, "Delete and close the session"),
        h("button", { value: "delete" }, hasSession ? "Delete, keep the session" : "Delete"),
        h("button", { value: "cancel", autofocus: true }, "Cancel"))));
    dialog.addEventListener("close", async () => {
      dialog.remove();
      const isDeleted = dialog.returnValue === "close" || dialog.returnValue === "delete";
      if (dialog.returnValue === "close") {
        await call("DELETE", `/v1/sessions/${encodeURIComponent(id)}`).catch(() => {});
      }
      if (isDeleted) {
        await conversations.remove(id);
      }
      resolve(isDeleted);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
