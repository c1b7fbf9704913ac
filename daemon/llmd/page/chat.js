/* chat.js: the view of a conversation: its messages, its settings, and the field for the next message. */

import { ApiError, call } from "./api.js";
import { answer, stop } from "./answering.js";
import { ConversationList, askToDelete, saveFile } from "./chatlist.js";
import { conversations, titleOf } from "./conversations.js";
import { counted, h, setText } from "./dom.js";
import { MessageList } from "./messages.js";
import { Settings } from "./settings.js";

const REST = 4; /* after rendering for t ms, the next rendering begins at least REST * t ms later */

const drafts = new Map(); /* the text in the field, by conversation; "" for the new one */

export class ChatView {
  #conversation = null; /* or null for a new one, which is stored with its first message */
  #settings = {}; /* of the new conversation */
  #shownSession = "";
  #nextNotice = "";
  #isScheduled = false;
  #isStale = false; /* something has changed since the last rendering */

  constructor(feed) {
    this.list = new ConversationList(feed);
    this.settings = new Settings();
    this.#build();
    this.onchange = (event) => this.#take(event.id);
    conversations.addEventListener("change", this.onchange);
  }

  hide() {
    this.#keepDraft();
    conversations.removeEventListener("change", this.onchange);
  }

  #build() {
    this.title = h("input", { class: "title", "aria-label": "Title", placeholder: "New conversation",
      onchange: () => this.#rename() });
    this.drawer = h("button", { type: "button", class: "drawer", "aria-controls": "conversations",
      onclick: () => this.#openDrawer(!this.element.classList.contains("open")) }, "Conversations");
    this.session = h("p", { class: "quiet session" });
    this.tools = h("div", { class: "buttons" },
      h("button", { type: "button", class: "small", onclick: () => this.#export() }, "Export"),
      h("button", { type: "button", class: "small", onclick: () => this.#delete() }, "Delete"));
    this.messages = new MessageList(this.#actions);
    this.notice = h("p", { class: "notice quiet", role: "status" });
    this.elsewhere = h("p", { class: "notice quiet", role: "status" });
    this.field = h("textarea", { rows: "2", "aria-label": "Message", placeholder: "Message",
      onkeydown: (event) => this.#keyed(event) });
    this.button = h("button", {}, "Send");
    this.form = h("form", { class: "composer", onsubmit: (event) => this.#submitted(event) }, this.field, this.button);
    this.element = h("div", { class: "chat", onkeydown: (event) => this.#escaped(event) },
      this.list.element,
      h("section", { class: "conversation", "aria-label": "Conversation" },
        h("div", { class: "top" }, this.drawer, this.title, this.tools), this.session, this.settings.element,
        this.messages.element, this.notice, this.elsewhere, this.messages.announcer, this.form));
  }

  async show([id]) {
    this.#openDrawer(false);
    await conversations.read();
    const conversation = id ? conversations.get(id) : null;
    setText(this.notice, id && !conversation ? `This browser has no conversation ${id}.` : this.#nextNotice);
    this.#nextNotice = "";
    this.#keepDraft();
    this.#conversation = conversation;
    this.field.value = drafts.get(conversation?.id ?? "") ?? "";
    this.#settings = {};
    this.list.render(id);
    this.title.value = conversation?.title ?? "";
    this.title.disabled = conversation === null;
    this.tools.hidden = conversation === null;
    this.settings.show(conversation?.settings ?? this.#settings, (settings) => this.#setSettings(settings));
    this.messages.clear(this.#isBusy);
    this.#render();
    this.messages.scrollToEnd();
    this.field.focus();
  }

  #keepDraft() {
    drafts.set(this.#conversation?.id ?? "", this.field.value);
  }

  update(changed) {
    this.list.updateStates(changed);
    this.#showSession();
  }

  /* Whether an answer arrives, in this tab or in another one. */
  get #isBusy() {
    const id = this.#conversation?.id;
    return conversations.isRunning(id) || conversations.isElsewhere(id);
  }

  /* --- what is shown ---------------------------------------------------------------------------------------------- */

  #take(id) {
    this.list.update(id);
    if (id === this.#conversation?.id) {
      this.#conversation = conversations.get(id) ?? this.#conversation;
      this.#schedule();
    }
  }

  /* Renders at most once per frame, and rests after a slow rendering, so that the page stays usable with long texts. */
  #schedule() {
    if (this.#isScheduled) {
      this.#isStale = true;
      return;
    }
    this.#isScheduled = true;
    requestAnimationFrame(() => {
      const start_ms = performance.now();
      this.#isStale = false;
      this.#render();
      setTimeout(() => {
        this.#isScheduled = false;
        if (this.#isStale) {
          this.#schedule();
        }
      }, REST * (performance.now() - start_ms));
    });
  }

  #render() {
    const isBusy = this.#isBusy;
    setText(this.button, isBusy ? "Stop" : "Send");
    setText(this.elsewhere, conversations.isElsewhere(this.#conversation?.id) ? "This answer arrives in another tab." : "");
    this.#showSession();
    this.messages.render(this.#conversation, isBusy);
  }

  #showSession() {
    const id = this.#conversation?.id, session = id ? this.list.sessions.get(id) : null;
    const word = id ? this.list.sessions.state(id) : "";
    const key = `${id} ${word} ${session?.tokens}`;
    if (key !== this.#shownSession) {
      this.#shownSession = key;
      const name = session
        ? h("a", { href: `#sessions/${session.owner}/${encodeURIComponent(id)}`, class: "mono" }, id)
        : h("span", { class: "mono" }, id ?? "");
      this.session.replaceChildren(...(id ? ["Session ", name, h("span", { class: `dot ${word}` }), word,
        session ? `, ${counted(session.tokens, "token")}` : ""] : []));
    }
  }

  /* --- what the user does ----------------------------------------------------------------------------------------- */

  #keyed(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      if (!this.#isBusy) {
        this.form.requestSubmit();
      }
    }
  }

  #escaped(event) {
    if (event.key !== "Escape") {
      return;
    }
    if (this.element.classList.contains("open")) {
      this.#openDrawer(false);
      this.drawer.focus();
    } else if (this.#isBusy) {
      stop(this.#conversation.id);
    }
  }

  #submitted(event) {
    event.preventDefault();
    const text = this.field.value;
    if (this.#isBusy) {
      stop(this.#conversation.id);
    } else if (text.trim() !== "") {
      this.field.value = "";
      this.#ask(text);
    }
    this.field.focus();
  }

  /* Adds a question, and asks for the answer. */
  #ask(text) {
    if (this.#conversation === null) {
      const conversation = conversations.add({ title: titleOf(text), settings: this.#settings });
      this.#conversation = conversation;
      location.hash = `#chat/${conversation.id}`;
    }
    const conversation = this.#conversation;
    conversation.title ||= titleOf(text);
    conversation.messages.push({ role: "user", text });
    this.messages.scrollToEnd();
    this.#answer(text);
  }

  /* Gets the next answer. If another tab has changed the conversation meanwhile, the text of the question goes back to the
   * field. */
  async #answer(text = "", continues = false) {
    const { id } = this.#conversation;
    if (await answer(this.#conversation, continues)) {
      return;
    }
    drafts.set(id, text);
    if (id === this.#conversation?.id) {
      this.field.value ||= text;
      setText(this.notice, "Another tab has changed this conversation. Nothing was sent.");
    }
  }

  /* What the buttons of the messages do. */
  #actions = {
    edit: (message, text) => {
      const { messages } = this.#conversation;
      if (this.#isBusy || !messages.includes(message)) {
        return;
      }
      messages.splice(messages.indexOf(message));
      this.#ask(text);
      this.field.focus();
    },
    regenerate: () => {
      if (this.#isBusy) {
        return;
      }
      this.#conversation.messages.pop();
      this.#answer();
      this.field.focus();
    },
    resume: () => {
      if (this.#isBusy) {
        return;
      }
      this.#answer("", true);
      this.field.focus();
    },
    fork: (message) => this.#fork(message),
  };

  /* Copies the conversation up to an answer, or up to before a question, whose text can then be changed. The session is
   * forked at the same point. The copy's session begins empty if that is not possible. */
  async #fork(message) {
    const { id, title, settings, messages } = this.#conversation;
    const isAnswer = message.role === "assistant";
    const kept = messages.slice(0, messages.indexOf(message) + (isAnswer ? 1 : 0));
    const copy = conversations.add({
      title: `${title} (fork)`, settings: structuredClone(settings), messages: structuredClone(kept) });
    const turn = kept.filter((one) => one.role === "user").length + 1; /* the first one that is left out */
    const at = kept.length === messages.length ? undefined : `turn:${turn}`;
    const path = `/v1/sessions/${encodeURIComponent(id)}/fork`;
    const attempt = (point) => call("POST", path, { session_id: copy.id, at: point });
    let notice;
    try { /* the server knows the points of the last turns only; a fork of all tokens is truncated by its first request */
      const fork = await attempt(at).catch((error) =>
        (error instanceof ApiError && error.code === "invalid_value" ? attempt(undefined) : Promise.reject(error)));
      notice = `This is a fork. Its session begins with ${counted(fork.tokens, "token")}.`;
    } catch (error) {
      notice = `This is a copy of the text only: ${error.message}`;
    }
    drafts.set(copy.id, isAnswer ? "" : message.text);
    this.#nextNotice = notice;
    location.hash = `#chat/${copy.id}`;
  }

  /* Changes the newest copy. Another tab may store messages at the same time. */
  async #change(fields) {
    const conversation = this.#conversation;
    if (conversation !== null && !(await conversations.put(Object.assign(conversation, fields)))) {
      const newest = conversations.get(conversation.id);
      newest && conversations.put(Object.assign(newest, fields));
    }
  }

  #setSettings(settings) {
    this.#change({ settings });
  }

  #rename() {
    this.#change({ title: this.title.value.trim() || "Untitled" });
  }

  #export() {
    saveFile(`${this.#conversation.id}.json`, [this.#conversation]);
  }

  async #delete() {
    const { id } = this.#conversation;
    if (await askToDelete(this.#conversation, this.list.sessions.get(id) !== null)) {
      stop(id); /* the answer that arrives, if any */
      location.hash = "#chat";
    }
  }

  #openDrawer(isOpen) {
    this.element.classList.toggle("open", isOpen);
    this.drawer.setAttribute("aria-expanded", isOpen);
    if (isOpen) {
      this.list.element.querySelector("a").focus();
    }
  }
}
