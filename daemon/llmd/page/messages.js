/* messages.js: shows the messages of a conversation, one below the other. */

import { h, setText } from "./dom.js";
import { MessageView } from "./message.js";

const SPOKEN_MAX = 400; /* characters of an answer that a screen reader says by itself */
const BOTTOM_PX = 40; /* so close to the bottom, the list follows the text */

export class MessageList {
  element = h("section", { class: "log", "aria-label": "Messages", tabindex: "0" });
  announcer = h("p", { class: "hidden", role: "status" }); /* a screen reader says its text */
  #actions;
  #views = new Map(); /* by message */
  #shared = "";
  #wasBusy = false;

  /* `actions`: as in message.js. */
  constructor(actions) {
    this.#actions = actions;
  }

  /* Removes all messages, before another conversation is shown. */
  clear(isBusy) {
    this.#views.clear();
    this.element.replaceChildren();
    this.#wasBusy = isBusy;
  }

  scrollToEnd() {
    this.element.scrollTop = this.element.scrollHeight;
  }

  /* Shows what has changed since the last call. `conversation` may be null. */
  render(conversation, isBusy) {
    const { element } = this;
    const isAtEnd = element.scrollTop + element.clientHeight >= element.scrollHeight - BOTTOM_PX;
    const messages = conversation?.messages ?? [];
    this.#removeOthers(new Set(messages));
    this.#update(messages, isBusy, Boolean(conversation?.settings.hides_reasoning));
    if (isAtEnd) {
      this.scrollToEnd();
    }
    const last = messages.at(-1);
    if (this.#wasBusy && !isBusy && last?.role === "assistant") {
      setText(this.announcer, `Answer: ${last.text.slice(0, SPOKEN_MAX)} ${last.note}`.trim());
    }
    this.#wasBusy = isBusy;
  }

  #removeOthers(known) {
    for (const [message, view] of this.#views) {
      if (!known.has(message)) {
        view.element.remove();
        this.#views.delete(message);
      }
    }
  }

  #update(messages, isBusy, hidesReasoning) {
    const shared = `${isBusy} ${messages.length} ${hidesReasoning}`; /* what the views of all messages depend on */
    messages.forEach((message, i) => {
      const isNew = !this.#views.has(message), isLast = i + 1 === messages.length;
      if (isNew) {
        this.#views.set(message, new MessageView(message, this.#actions));
        this.element.append(this.#views.get(message).element);
      }
      if (isNew || isLast || shared !== this.#shared) {
        this.#views.get(message).update({ isLast, isBusy, hidesReasoning });
      }
    });
    this.#shared = shared;
  }
}
