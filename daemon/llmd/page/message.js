/* message.js: shows one message of a conversation. */

import { copyButton } from "./copy.js";
import { count, h, seconds, setText } from "./dom.js";
import { Markdown } from "./markdown.js";

let n_reasons = 0;

function button(label, onclick) {
  return h("button", { type: "button", class: "small", onclick }, label);
}

/* `actions` has functions of a message: edit(message, text), regenerate(), resume() and fork(message). */
export class MessageView {
  #message;
  #actions;
  #shownFacts = null;

  constructor(message, actions) {
    this.#message = message;
    this.#actions = actions;
    const isUser = message.role === "user";
    this.element = h("article", { class: `message ${message.role}` }, h("h2", {}, isUser ? "You" : "Answer"));
    isUser ? this.#buildQuestion() : this.#buildAnswer();
  }

  /* Shows what has arrived since the last call. */
  update({ isLast, isBusy, hidesReasoning }) {
    for (const one of this.buttons.querySelectorAll("button:not(.always)")) {
      one.disabled = isBusy;
    }
    if (this.#message.role === "assistant") {
      this.#updateAnswer(isLast, isBusy, hidesReasoning);
    }
  }

  /* --- a question ------------------------------------------------------------------------------------------------ */

  #buildQuestion() {
    this.text = h("div", { class: "text" }, this.#message.text);
    this.buttons = h("div", { class: "buttons" },
      this.#copy(), button("Edit", () => this.#edit()), button("Fork", () => this.#actions.fork(this.#message)));
    this.element.append(this.text, this.buttons);
  }

  #edit() {
    const area = h("textarea", { rows: "4", "aria-label": "Text of the message" });
    area.value = this.#message.text;
    const end = () => {
      form.replaceWith(this.text, this.buttons);
      this.buttons.querySelectorAll("button")[1].focus();
    };
    const form = h("form", { class: "edit", onsubmit: (event) => {
      event.preventDefault();
      if (area.value.trim() !== "") {
        this.#actions.edit(this.#message, area.value);
      }
    }, onkeydown: (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        end();
      }
    } }, area, h("p", { class: "quiet" }, "Sending removes the messages after this one."),
      h("div", { class: "buttons" },
        h("button", {}, "Send again"), h("button", { type: "button", onclick: end }, "Cancel")));
    this.buttons.remove();
    this.text.replaceWith(form);
    area.focus();
  }

  #copy() {
    const copy = copyButton("Copy", () => this.#message.text);
    copy.classList.add("always");
    return copy;
  }

  /* --- an answer ------------------------------------------------------------------------------------------------- */

  #buildAnswer() {
    this.reasoning = h("div", { class: "text" });
    this.thinking = h("details", { class: "reasoning" }, h("summary", {}, "Reasoning"), this.reasoning);
    this.markdown = new Markdown();
    this.calls = h("div", { class: "calls" });
    this.bar = h("progress", { "aria-label": "Prefill" });
    this.waiting = h("span");
    this.progress = h("p", { class: "quiet progress" }, this.bar, this.waiting);
    this.note = h("p", { class: "note" });
    this.facts = h("p", { class: "quiet facts" });
    this.resume = button("Continue", () => this.#actions.resume());
    this.again = button("Regenerate", () => this.#actions.regenerate());
    this.buttons = h("div", { class: "buttons" },
      this.#copy(), this.resume, this.again, button("Fork", () => this.#actions.fork(this.#message)));
    this.element.append(
      this.thinking, this.markdown.element, this.calls, this.progress, this.note, this.facts, this.buttons);
  }

  #updateAnswer(isLast, isBusy, hidesReasoning) {
    const { text, reasoning = "", calls = [], state, note = "", facts, progress } = this.#message;
    const isRunning = state === "running";
    this.thinking.hidden = hidesReasoning || reasoning === "";
    setText(this.reasoning, reasoning);
    this.markdown.update(text, !isRunning);
    this.#updateCalls(calls);
    this.#updateProgress(isRunning, text !== "" || reasoning !== "" || calls.length > 0, progress);
    this.note.hidden = note === "";
    setText(this.note, note);
    this.note.classList.toggle("problem", state === "failed" || state === "cut");
    this.#updateFacts(facts);
    this.buttons.hidden = isRunning;
    this.resume.hidden = !isLast || state === "done" || text === "" || calls.length > 0; /* only text can be continued */
    this.again.hidden = !isLast;
    this.element.setAttribute("aria-busy", isRunning);
  }

  #updateCalls(calls) {
    calls.forEach((call, i) => {
      const shown = this.calls.children[i] ?? this.calls.appendChild(
        h("div", { class: "call" }, h("p", {}, "Tool call ", h("code")), h("pre", { tabindex: "0" })));
      setText(shown.querySelector("code"), call.name);
      setText(shown.querySelector("pre"), formatted(call.arguments));
    });
  }

  #updateProgress(isRunning, hasText, progress) {
    this.progress.hidden = !isRunning || (hasText && !progress);
    const { done, total, text } = progress ?? {};
    this.bar.hidden = !total;
    if (total) {
      this.bar.max = total;
      this.bar.value = done;
    }
    setText(this.waiting, text ?? (total ? `Prefilling: ${count(done)} of ${count(total)} tokens` : "Waiting"));
  }

  #updateFacts(facts) {
    this.facts.hidden = !facts;
    if (facts === this.#shownFacts) {
      return;
    }
    this.#shownFacts = facts;
    this.facts.replaceChildren();
    if (!facts) {
      return;
    }
    const first = facts.first_token_s == null ? "" : `, first token after ${seconds(facts.first_token_s)}`;
    const [word, sentence] = reasonOf(facts);
    this.facts.append(`${count(facts.reused_tokens)} of ${count(facts.prompt_tokens)} prompt tokens reused (`, word,
      `), ${count(facts.prefilled_tokens)} prefilled, ${count(facts.generated_tokens)} generated${first}`, sentence);
  }
}

/* The word for the reason. A button shows its sentence, for those who cannot point at the word with a mouse. */
function reasonOf({ reason, reason_text }) {
  if (!reason_text) {
    return [reason, ""];
  }
  const id = `reason-${(n_reasons += 1)}`;
  const sentence = h("span", { class: "sentence", id, hidden: true }, reason_text);
  const word = h("button", { type: "button", class: "word", title: reason_text, "aria-describedby": id,
    "aria-expanded": "false", onclick() {
      sentence.hidden = !sentence.hidden;
      word.setAttribute("aria-expanded", !sentence.hidden);
    } }, reason);
  return [word, sentence];
}

function formatted(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text; /* the arguments are not complete yet */
  }
}
