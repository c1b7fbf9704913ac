/* feed.js: keeps a copy of the server's sessions and counters, from GET /v1/feed. */

import { ApiError, call, events } from "./api.js";
import { percent } from "./dom.js";

const AGAIN_MS = 2000; /* time until the next attempt after the feed has ended */
const PAST = 300; /* number of events that are kept for charts, one per second */

function keyOf(session) {
  return `${session.owner} ${session.id}`;
}

/* Makes the event "change" whenever something has changed, with the names of the changed and forgotten sessions in
 * `changed`. Reads the feed only while start() has been called and the tab is visible: a hidden tab costs nothing. */
export class Feed extends EventTarget {
  sessions = new Map(); /* by owner and id */
  past = []; /* {time_ms, counters}, the oldest first */
  last = null; /* the last event */
  problem = "Connecting"; /* a text for the user, or "" while the feed works */
  #abort = null;

  start() {
    document.addEventListener("visibilitychange", () => this.#look());
    window.addEventListener("key-entered", () => this.restart());
    this.#look();
  }

  restart() {
    this.#stop();
    this.#look();
  }

  #stop() {
    this.#abort?.abort();
    this.#abort = null;
  }

  #look() {
    if (document.hidden) {
      this.#stop();
    } else if (this.#abort === null) {
      this.#abort = new AbortController();
      this.#run(this.#abort.signal);
    }
  }

  async #run(signal) {
    while (!signal.aborted) {
      try {
        for await (const event of events("GET", "/v1/feed", undefined, signal)) {
          if (event.object === "feed") {
            this.#take(event);
          }
        }
        this.#fail("The server has stopped");
      } catch (error) {
        if (signal.aborted) {
          return;
        }
        const problem = await this.#explained(error);
        if (signal.aborted) {
          return;
        }
        this.#fail(problem);
        if (error.status === 401) { /* waits for a key: an attempt would ask the user for it again */
          return;
        }
      }
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }

  async #explained(error) {
    if (error instanceof ApiError && error.code === "model_loading") {
      const ready = await fetch("/ready").then((answer) => answer.json()).catch(() => ({}));
      const { download } = ready;
      return download
        ? `Downloading ${download.name}: ${percent(download.bytes, download.total_bytes)}`
        : `Loading the model: ${Math.floor((ready.loaded_per_mille ?? 0) / 10)}\u00a0%`;
    }
    return error instanceof ApiError ? error.message : "The server cannot be reached";
  }

  #fail(problem) {
    this.problem = problem;
    this.dispatchEvent(new Event("change"));
  }

  #take(event) {
    const changed = new Set(event.sessions.map(keyOf));
    if (event.full) {
      for (const key of this.sessions.keys()) {
        changed.add(key);
      }
      this.sessions.clear();
    }
    for (const session of event.sessions) {
      this.sessions.set(keyOf(session), session);
    }
    for (const session of event.forgotten) {
      this.sessions.delete(keyOf(session));
      changed.add(keyOf(session));
    }
    if (this.last !== null && event.counters.steps_total < this.last.counters.steps_total) {
      this.past = []; /* the server was started again */
    }
    this.past.push({ time_ms: event.time_ms, counters: event.counters });
    if (this.past.length > PAST) {
      this.past.shift();
    }
    this.last = event;
    this.problem = "";
    this.dispatchEvent(Object.assign(new Event("change"), { changed }));
  }
}

/* Acts on a session as llmctl does, for example act(session, "park"). */
export function act(session, verb, body = {}) {
  const path = `/v1/sessions/${encodeURIComponent(session.id)}`;
  const owner = `?owner=${session.owner}`;
  return verb === "close" ? call("DELETE", path + owner) : call("POST", `${path}/${verb}${owner}`, body);
}
