/* recorder.js: makes a list of what has happened to the sessions, from the changes in the feed. */

import { count } from "./dom.js";
import { isRunning, ofTokens } from "./session_texts.js";

const KEPT = 200; /* events */

/* Makes the event "recorded" after `entries` has changed. An entry is {number, time_ms, session, text}, where the session
 * may be null. app.js makes one recorder, so that it also works while another view is shown. */
export class Recorder extends EventTarget {
  entries = []; /* the newest first */
  #known = new Map(); /* sessions by the feed's keys, as they were at the previous event */
  #last = null; /* the previous event of the feed */
  #number = 0;

  constructor(feed) {
    super();
    this.feed = feed;
    feed.addEventListener("change", (event) => this.#look(event.changed));
  }

  #look(changed) {
    const { last, problem, sessions } = this.feed;
    const before = this.#number;
    if (problem !== "") {
      return;
    }
    if (this.#last !== null && last.counters.heartbeat_total < this.#last.counters.heartbeat_total) {
      this.#add(null, "The server was started again");
    } else if (this.#last !== null) {
      for (const key of changed) {
        this.#compare(this.#known.get(key), sessions.get(key));
      }
    }
    this.#last = last;
    if (last.full) {
      this.#known = new Map(sessions);
    } else {
      for (const key of changed) {
        sessions.has(key) ? this.#known.set(key, sessions.get(key)) : this.#known.delete(key);
      }
    }
    if (this.#number !== before) {
      this.dispatchEvent(new Event("recorded"));
    }
  }

  #compare(before, session) {
    if (session === undefined) {
      if (before !== undefined) {
        this.#add(before, "was closed or forgotten");
      }
      return;
    }
    for (const branch of session.timelines) {
      const same = before?.timelines.find((one) => one.opened_ms === branch.opened_ms && one.slot === branch.slot);
      this.#compareBranch(session, same, branch);
    }
    if (session.pinned !== (before?.pinned ?? false)) {
      this.#add(session, session.pinned ? "was pinned" : "was unpinned");
    }
  }

  #compareBranch(session, before, branch) {
    const started = branch.requests - (before?.requests ?? 0);
    const wasRunning = before !== undefined && isRunning(before);
    if (started > 0 && branch.last !== null) {
      const { reason, reused_tokens, prompt_tokens } = branch.last;
      const several = started > 1 ? `started ${count(started)} requests, the last` : "started a request";
      this.#add(session, `${several} with ${reason}: ${ofTokens(reused_tokens, prompt_tokens, "reused")}`);
    }
    if (!isRunning(branch) && (started > 0 || wasRunning)) {
      const generated = branch.generated_tokens_total - (before?.generated_tokens_total ?? 0);
      this.#add(session, wasRunning ? "ended its request" : `ended its request: ${ofGenerated(generated)}`);
    }
    if (branch.state === "parked" && before !== undefined && before.state !== "parked") {
      this.#add(session, "was parked");
    }
  }

  #add(session, text) {
    this.#number += 1;
    this.entries.unshift({ number: this.#number, time_ms: this.feed.last.time_ms, session, text });
    this.entries.length = Math.min(this.entries.length, KEPT);
  }
}

function ofGenerated(n) {
  return `${count(n)} ${n === 1 ? "token" : "tokens"} generated`;
}
