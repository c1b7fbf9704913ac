/* conversations.js: the conversations of this browser. The server keeps only the states of their sessions, not the
 * texts.
 *
 * A conversation is {id, title, used_ms, settings, messages, version, tab}. `id` is also the id of its session. `version`
 * grows with each write, and `tab` is the tab in which the last answer arrived. A message is {role, text}. An answer (role "assistant") can also have {reasoning, calls, state, note, facts}. Its state is one of
 *   "running"  the answer arrives,
 *   "done"     it is complete,
 *   "limited"  it ended at the limit of tokens,
 *   "stopped"  the user stopped it,
 *   "cut"      the page was closed, or the connection broke, before it was complete,
 *   "failed"   the server refused or could not finish it. `note` says why. */

const NAME = "llmd", STORE = "conversations";
const TITLE_MAX = 60;
const SILENT_MS = 10000; /* an answer in another tab that is not stored for so long is taken for cut */

/* crypto.randomUUID() works only over HTTPS and on this machine, getRandomValues() everywhere. */
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return `page-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

export function titleOf(text) {
  const words = text.trim().replace(/\s+/g, " ");
  return words.length <= TITLE_MAX ? words : `${words.slice(0, TITLE_MAX - 1)}…`;
}

function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/* Makes the event "change" with the id of the changed conversation in `id`, and the event "stop" if another tab wants the
 * answer that arrives here to stop.
 *
 * A message between tabs is ["changed", id], ["stop", id] or ["who"]. The last one asks the other tabs which answers
 * arrive there: they say ["changed", id] for each. */
class Conversations extends EventTarget {
  problem = ""; /* a text for the user if the browser does not store conversations */
  #all = new Map();
  #running = new Set(); /* the ids of conversations whose answer arrives in this tab */
  #channel = new BroadcastChannel("llmd-conversations");
  #database = null;
  #tab = newId();

  /* Reads the conversations. Calls after the first one wait for the same reading. */
  read() {
    this.reading ??= this.#read();
    return this.reading;
  }

  async #read() {
    try {
      const opening = indexedDB.open(NAME, 1);
      opening.onupgradeneeded = () => opening.result.createObjectStore(STORE, { keyPath: "id" });
      this.#database = await done(opening);
      for (const conversation of await done(this.#store("readonly").getAll())) {
        this.#all.set(conversation.id, cutOff(conversation));
      }
    } catch (error) {
      this.problem = `This browser does not store conversations: ${error.message}`;
    }
    const actions = {
      changed: (id) => this.#readOne(id),
      stop: (id) => this.#report("stop", id),
      who: () => this.#running.forEach((id) => this.#tell("changed", id)),
    };
    this.#channel.onmessage = ({ data: [verb, id] }) => actions[verb](id);
    this.#tell("who");
  }

  #tell(verb, id) {
    this.#channel.postMessage([verb, id]);
  }

  /* Takes over what another tab has stored. An answer that arrives there is stored every second, until it is complete or
   * the tab is closed. */
  async #readOne(id) {
    if (this.#running.has(id)) {
      return;
    }
    const stored = await done(this.#store("readonly").get(id));
    if (this.#running.has(id)) { /* an answer has begun meanwhile, and fills the copy that was here */
      return;
    }
    stored ? this.#all.set(id, stored) : this.#all.delete(id);
    this.changed(id);
    setTimeout(() => {
      if (this.#all.get(id) === stored && stored?.messages.at(-1)?.state === "running") {
        cutOff(stored);
        this.changed(id);
      }
    }, SILENT_MS);
  }

  #store(mode) {
    return this.#database.transaction(STORE, mode).objectStore(STORE);
  }

  /* Reports a change that need not be stored yet. */
  changed(id) {
    this.#report("change", id);
  }

  #report(name, id) {
    this.dispatchEvent(Object.assign(new Event(name), { id }));
  }

  /* Asks the other tabs to stop the answer of the conversation that arrives there. */
  stopElsewhere(id) {
    this.#tell("stop", id);
  }

  /* The conversations, the last used first. */
  list() {
    return [...this.#all.values()].sort((a, b) => b.used_ms - a.used_ms);
  }

  get(id) {
    return this.#all.get(id) ?? null;
  }

  add(values) {
    const id = newId();
    const conversation = { title: "", settings: {}, messages: [], ...values, id, used_ms: Date.now() };
    this.put(conversation);
    return conversation;
  }

  /* Stores a conversation, and reports the change. If another tab has changed or deleted the conversation meanwhile, takes
   * over what that tab has stored and returns false. */
  async put(conversation) {
    const { id, version: base = 0 } = conversation;
    let version = base + 1;
    conversation.version = version;
    this.#all.set(id, conversation);
    this.changed(id);
    const isStored = await this.#write(id, async (store) => {
      const stored = await done(store.get(id));
      if ((stored?.version ?? 0) !== base) {
        if (stored?.tab !== this.#tab || !this.#running.has(id)) {
          stored ? this.#all.set(id, stored) : this.#all.delete(id);
          return false;
        } /* other tabs change no messages while an answer arrives here */
        version = stored.version + 1;
        Object.assign(conversation, { title: stored.title, settings: stored.settings, version });
      }
      await done(store.put({ ...conversation, version })); /* a later call may have counted the version up already */
      return true;
    });
    if (!isStored) {
      this.changed(id);
    }
    return isStored;
  }

  remove(id) {
    this.#all.delete(id);
    this.changed(id);
    return this.#write(id, (store) => done(store.delete(id)));
  }

  /* Returns what `action` returns, or true if the browser stores nothing. */
  async #write(id, action) {
    try {
      const result = this.#database === null || await action(this.#store("readwrite"));
      this.#tell("changed", id);
      return result;
    } catch (error) {
      this.problem = `This browser could not store the conversation: ${error.message}`;
      this.changed(id);
      return true;
    }
  }

  /* Stores a conversation whose answer begins to arrive in this tab. Returns false, as put() does, if another tab was
   * faster. */
  async begin(conversation) {
    this.#running.add(conversation.id);
    const isStored = await this.put(Object.assign(conversation, { tab: this.#tab }));
    if (!isStored) {
      this.#running.delete(conversation.id);
      this.changed(conversation.id);
    }
    return isStored;
  }

  end(id) {
    this.#running.delete(id);
  }

  isRunning(id) {
    return this.#running.has(id);
  }

  /* Whether an answer of the conversation arrives in another tab. */
  isElsewhere(id) {
    return !this.#running.has(id) && this.get(id)?.messages.at(-1)?.state === "running";
  }
}

/* An answer that was arriving when the page was closed. */
function cutOff(conversation) {
  const last = conversation.messages.at(-1);
  if (last?.state === "running") {
    last.state = "cut";
    last.note = "The page was closed before the answer was complete.";
  }
  return conversation;
}

export const conversations = new Conversations();

/* --- import and export ------------------------------------------------------------------------------------------- */

const FORMAT = "llmd-conversations";

export function exported(list) {
  const conversations = list.map(({ version, tab, ...rest }) => rest);
  return JSON.stringify({ format: FORMAT, version: 1, conversations }, null, 1);
}

function fail(text) {
  throw new Error(text);
}

function textOf(value, name) {
  return typeof value === "string" ? value : fail(`${name} is not a text.`);
}

/* Returns the conversations of an exported file. Throws an error that says what is wrong with the file. */
export function imported(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    fail("The file is not JSON.");
  }
  if (file?.format !== FORMAT || !Array.isArray(file.conversations)) {
    fail("The file has no conversations of this page.");
  }
  return file.conversations.map((one, i) => importedOne(one ?? {}, `Conversation ${i + 1}`));
}

function importedOne(one, name) {
  if (!Array.isArray(one.messages)) {
    fail(`${name} has no messages.`);
  }
  const messages = one.messages.map((message, i) => importedMessage(message ?? {}, `Message ${i + 1} of ${name}`));
  const { system, temperature, top_p, max_tokens, hides_reasoning } = one.settings ?? {};
  const number = (value) => (typeof value === "number" && Number.isFinite(value) ? value : undefined);
  const settings = {
    system: typeof system === "string" ? system : "", hides_reasoning: hides_reasoning === true,
    temperature: number(temperature), top_p: number(top_p), max_tokens: number(max_tokens),
  };
  const hasId = typeof one.id === "string" && /^[!-~]{1,128}$/.test(one.id);
  return cutOff({
    id: hasId ? one.id : newId(), title: textOf(one.title ?? "", `The title of ${name}`),
    used_ms: number(one.used_ms) ?? Date.now(), settings, messages,
  });
}

function importedMessage(message, name) {
  if (message.role === "user") {
    return { role: "user", text: textOf(message.text, `The text of ${name}`) };
  }
  if (message.role !== "assistant") {
    fail(`${name} has no role "user" or "assistant".`);
  }
  const calls = (Array.isArray(message.calls) ? message.calls : []).map((call) => ({
    id: String(call?.id ?? ""), name: String(call?.name ?? ""), arguments: String(call?.arguments ?? ""),
  }));
  const states = ["running", "done", "limited", "stopped", "cut", "failed"];
  const state = states.includes(message.state) ? message.state : "done";
  const facts = message.facts && typeof message.facts === "object" ? importedFacts(message.facts) : undefined;
  return {
    role: "assistant", text: textOf(message.text ?? "", `The text of ${name}`), state, calls, facts,
    reasoning: textOf(message.reasoning ?? "", `The reasoning of ${name}`), note: String(message.note ?? ""),
  };
}

function importedFacts(facts) {
  return Object.fromEntries(Object.entries(facts).filter(([name, value]) =>
    (name.startsWith("reason") ? typeof value === "string" : Number.isFinite(value))));
}
