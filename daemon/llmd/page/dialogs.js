/* dialogs.js: asks the user for a text or for a confirmation. */

import { h } from "./dom.js";

/* Asks for a text, or, without `label`, only whether to go on. `verb` is on the button. Returns a promise of the text
 * ("" without label), or of null if the user cancels or shows another view or session. */
export function ask({ title, text, verb, label }) {
  const input = label ? h("input", { required: true, maxlength: 128, autocomplete: "off", spellcheck: "false" }) : null;
  const dialog = h("dialog", { "aria-labelledby": "ask-title" },
    h("form", { method: "dialog" },
      h("h2", { id: "ask-title" }, title),
      text ? h("p", {}, text) : null,
      input ? h("label", {}, `${label} `, input) : null,
      h("p", { class: "buttons" },
        h("button", { value: "yes" }, verb),
        h("button", { type: "button", onclick: () => dialog.close("") }, "Cancel"))));
  const cancel = () => dialog.close(""); /* the question is about what was shown before the address changed */
  window.addEventListener("hashchange", cancel);
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      window.removeEventListener("hashchange", cancel);
      dialog.remove();
      resolve(dialog.returnValue === "yes" ? (input?.value.trim() ?? "") : null);
    });
  });
}
