/* app.js: starts the page. The part of the address after # chooses the view: #chat/ID, #sessions/OWNER/ID or #now. */

import { hasKey, setKey } from "./api.js";
import { setText } from "./dom.js";
import { Feed } from "./feed.js";
import { ChatView } from "./chat.js";
import { NowView } from "./now.js";
import { Recorder } from "./recorder.js";
import { SessionsView } from "./sessions.js";
import { Activity } from "./timeline.js";

const feed = new Feed();
const recorder = new Recorder(feed);
const activity = new Activity(feed);
const main = document.getElementById("main");
const views = { chat: ChatView, sessions: SessionsView, now: NowView };
let shown = null; /* {name, view} */

/* A view has an element, show(parts) for the rest of the address, and may have hide() and update(changed). */
function route() {
  const [wanted, ...parts] = location.hash.slice(1).split("/").map(decoded);
  const name = Object.hasOwn(views, wanted) ? wanted : "chat";
  if (shown?.name !== name) {
    shown?.view.hide?.();
    shown = { name, view: new views[name](feed, recorder, activity) };
    main.replaceChildren(shown.view.element);
    for (const link of document.querySelectorAll("nav a")) {
      const isHere = link.hash === `#${name}`;
      isHere ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
    }
  }
  shown.view.show(parts);
}

/* A part of the address that is not encoded correctly stays as it is. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function askForKey() {
  const dialog = document.getElementById("key-dialog");
  if (!dialog.open) {
    document.getElementById("key-value").value = "";
    dialog.showModal();
  }
}

document.getElementById("key").addEventListener("click", askForKey);
document.getElementById("key-dialog").addEventListener("close", (event) => {
  if (event.target.returnValue === "use") {
    setKey(document.getElementById("key-value").value.trim());
    window.dispatchEvent(new Event("key-entered"));
  }
});
window.addEventListener("key-needed", askForKey);
window.addEventListener("hashchange", route);
feed.addEventListener("change", (event) => {
  const counters = feed.last?.counters;
  const early = counters?.requests_waiting_for_prefill;
  const why = early ? ` (${early} for another request's prefill of the same head)` : "";
  setText(document.getElementById("status"), feed.problem
    || `${counters.requests_running} running, ${counters.requests_waiting} waiting${why}`);
  document.getElementById("status").classList.toggle("problem", feed.problem !== "");
  document.getElementById("key").classList.toggle("set", hasKey());
  shown?.view.update?.(event.changed ?? new Set());
});
route();
feed.start();
