/* session_texts.js: what the views say about a session, and the small bars beside it. */

import { count, h, size } from "./dom.js";

const SYMBOLS = { prefill: "▷", decode: "▶", idle: "○", parked: "◌", torn: "✕", empty: "·" };

export function isRunning(branch) {
  return branch.state === "prefill" || branch.state === "decode";
}

/* Branches of requests that name no session have ids such as "(scratch 3)". */
export function isScratch(session) {
  return session.id.startsWith("(scratch ");
}

export function sessionHash(session) {
  return `#sessions/${session.owner}/${encodeURIComponent(session.id)}`;
}

/* The state as a symbol and a word, so that a running session can be recognized without colors. */
export function stateText(branch) {
  const waiting = branch.waiting > 0 ? `, ${count(branch.waiting)} waiting` : "";
  return `${SYMBOLS[branch.state] ?? "?"} ${branch.state}${waiting}`;
}

/* The part of all prompt tokens of a session whose state was reused, from 0 to 1, or -1 if it had no prompt. */
export function reusedPart(session) {
  const whole = session.reused_tokens_total + session.prefilled_tokens_total;
  return whole > 0 ? session.reused_tokens_total / whole : -1;
}

/* The bytes of memory of a session's state and checkpoints. */
export function memoryBytes(session) {
  return session.memory_bytes + session.checkpoint_bytes;
}

export function memoryText(session) {
  const { memory_bytes, checkpoint_bytes, disk_bytes } = session;
  return `${size(memory_bytes)} of state, ${size(checkpoint_bytes)} of checkpoints, ${size(disk_bytes)} on disk`;
}

export function ofTokens(part, whole, what) {
  return `${count(part)} of ${count(whole)} tokens ${what}`;
}

/* A bar of one part. It repeats a number that stands beside it, so screen readers skip it. */
export function bar() {
  return h("span", { class: "bar", "aria-hidden": "true" }, h("span"));
}

export function setBar(element, part) {
  element.firstChild.style.setProperty("width", `${100 * Math.min(1, Math.max(0, part))}%`);
}

/* A bar of several parts, [[class, number], ...]. */
export function stackedBar(parts, whole) {
  const element = h("span", { class: "bar stacked", "aria-hidden": "true" });
  for (const [kind, n] of parts) {
    const part = h("span", { class: kind });
    part.style.setProperty("width", `${whole > 0 ? (100 * n) / whole : 0}%`);
    element.append(part);
  }
  return element;
}
