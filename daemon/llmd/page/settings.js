/* settings.js: the settings of a conversation. What is empty is not sent, so that the model's default applies. */

import { h } from "./dom.js";

const NUMBERS = [
  ["temperature", "Temperature", { min: "0", max: "100", step: "any" }],
  ["top_p", "Top p", { min: "0", max: "1", step: "any" }],
  ["max_tokens", "Maximum tokens", { min: "1", step: "1" }],
];

export class Settings {
  #settings = {};
  #changed = () => {};
  #system = h("textarea", { rows: "3", placeholder: "none" });
  #shows = h("input", { type: "checkbox" });
  #numbers = NUMBERS.map(([name, label, limits]) =>
    ({ name, label, input: h("input", { type: "number", placeholder: "default", ...limits }) }));

  constructor() {
    this.element = h("details", { class: "settings" }, h("summary", {}, "Settings"),
      h("form", { onsubmit: (event) => event.preventDefault(), onchange: () => this.#read() },
        h("label", { class: "wide" }, "System prompt", this.#system),
        this.#numbers.map(({ label, input }) => h("label", {}, label, input)),
        h("label", { class: "check" }, this.#shows, "Show reasoning")));
  }

  /* `changed` is called with `settings` after each change of them. */
  show(settings, changed) {
    this.#settings = settings;
    this.#changed = changed;
    this.#system.value = settings.system ?? "";
    this.#shows.checked = !settings.hides_reasoning;
    for (const { name, input } of this.#numbers) {
      input.value = settings[name] ?? "";
    }
  }

  #read() {
    this.#settings.system = this.#system.value;
    this.#settings.hides_reasoning = !this.#shows.checked;
    for (const { name, input } of this.#numbers) {
      this.#settings[name] = input.value === "" ? undefined : Number(input.value);
    }
    this.#changed(this.#settings);
  }
}
