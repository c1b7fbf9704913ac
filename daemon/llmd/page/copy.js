/* copy.js: a button that copies a text. */

import { h, setText } from "./dom.js";

const SHOWN_MS = 1500;

/* `text` returns the text when the button is used. */
export function copyButton(label, text) {
  const button = h("button", { type: "button", class: "small", async onclick() {
    setText(button, (await copied(text())) ? "Copied" : "Not copied");
    setTimeout(() => setText(button, label), SHOWN_MS);
  } }, label);
  return button;
}

/* Browsers offer navigator.clipboard only over HTTPS and on this machine. The older way works elsewhere. */
async function copied(text) {
  if (navigator.clipboard) {
    return navigator.clipboard.writeText(text).then(() => true, () => false);
  }
  const area = h("textarea", { class: "hidden", "aria-hidden": "true" });
  const focused = document.activeElement;
  area.value = text;
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  focused?.focus();
  return isCopied;
}
