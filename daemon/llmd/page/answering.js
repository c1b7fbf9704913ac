/* answering.js: asks the server for the next answer of a conversation, and stores what arrives. An answer goes on while
 * another view is shown. */

import { ApiError, call, events } from "./api.js";
import { conversations } from "./conversations.js";

const STORE_MS = 1000; /* how often an arriving answer is stored */
const aborts = new Map(); /* by the id of the conversation */

/* The body of the request for the answer that is the last message of the conversation. */
function requestOf(conversation, continues) {
  const { system, temperature, top_p, max_tokens } = conversation.settings;
  const messages = system ? [{ role: "system", content: system }] : [];
  for (const message of conversation.messages.slice(0, continues ? undefined : -1)) {
    if (message.role === "user") {
      messages.push({ role: "user", content: message.text });
    } else if (message.text || message.calls?.length) {
      const sent = { role: "assistant", content: message.text };
      if (message.reasoning) {
        sent.reasoning_content = message.reasoning;
      }
      if (message.calls?.length) {
        sent.tool_calls = message.calls.map(({ id, name, arguments: text }) =>
          ({ id, type: "function", function: { name, arguments: text } }));
      }
      messages.push(sent);
    }
  }
  return { /* JSON leaves undefined members out, so that the model's defaults apply */
    session_id: conversation.id, messages, stream: true, stream_options: { include_usage: true }, return_progress: true,
    temperature, top_p, max_tokens, continue_final_message: continues || undefined,
  };
}

/* Adds an answer to the conversation and fills it, until it is complete, stopped or broken. If `continues` is true, the
 * last answer goes on where it was cut. Returns false, and asks nothing, if another tab has changed the conversation. */
export async function answer(conversation, continues = false) {
  const { id, messages } = conversation;
  if (!continues) {
    messages.push({ role: "assistant", text: "", reasoning: "", calls: [] });
  }
  const message = messages.at(-1);
  Object.assign(message, { state: "running", note: "", facts: undefined });
  const abort = new AbortController();
  aborts.set(id, abort);
  conversation.used_ms = Date.now();
  if (!(await conversations.begin(conversation))) {
    aborts.delete(id);
    return false;
  }
  try {
    await receive(conversation, message, requestOf(conversation, continues), abort.signal);
  } catch (error) {
    Object.assign(message, abort.signal.aborted ? { state: "stopped", note: "Stopped." } : problemOf(error, message));
  }
  delete message.progress;
  conversation.used_ms = Date.now();
  await store(conversation);
  aborts.delete(id);
  conversations.end(id);
  conversations.changed(id); /* also if the conversation has been deleted: a view may still show it */
  return true;
}

/* Stores what has arrived. Ends the answer if the conversation was deleted or another tab has taken it over. */
async function store(conversation) {
  const { id } = conversation;
  if (conversations.get(id) !== conversation || !(await conversations.put(conversation))) {
    stopHere(id);
  }
}

function stopHere(id) {
  aborts.get(id)?.abort();
}

/* Stops the answer, in whichever tab it arrives. */
export function stop(id) {
  stopHere(id);
  conversations.stopElsewhere(id);
}

conversations.addEventListener("stop", ({ id }) => stopHere(id));

function problemOf(error, { text, reasoning }) {
  if (error instanceof ApiError) {
    return { state: "failed", note: error.message };
  }
  const note = text || reasoning
    ? "The connection to the server broke before the answer was complete."
    : "The server cannot be reached, or it stopped before the answer began.";
  return { state: "cut", note };
}

async function receive(conversation, message, request, signal) {
  const sent_ms = performance.now();
  let stored_ms = sent_ms, first_ms = null, reason = null, usage = null, session = null;
  for await (const event of events("POST", "/v1/chat/completions", request, signal)) {
    if (event.comment) {
      message.progress = { text: event.comment };
    }
    if (event.prompt_progress) {
      message.progress = { done: event.prompt_progress.processed, total: event.prompt_progress.total };
    }
    for (const { delta, finish_reason } of event.choices ?? []) {
      if (take(message, delta)) {
        first_ms ??= performance.now();
        delete message.progress;
      }
      reason = finish_reason ?? reason;
    }
    usage = event.usage ?? usage;
    session = event.session ?? session;
    if (performance.now() - stored_ms >= STORE_MS) {
      stored_ms = performance.now();
      store(conversation);
    } else {
      conversations.changed(conversation.id);
    }
  }
  if (reason === null) {
    throw new TypeError("The stream has no end");
  }
  message.state = reason === "length" ? "limited" : "done";
  message.note = reason === "length" ? "The answer ended at the limit of tokens." : "";
  if (usage !== null && session !== null) {
    message.facts = {
      prompt_tokens: usage.prompt_tokens, generated_tokens: usage.completion_tokens,
      reused_tokens: session.reused_prompt_tokens, prefilled_tokens: session.prefilled_prompt_tokens,
      reason: session.session_reset_reason, reason_text: await reasonText(session, signal),
      first_token_s: first_ms === null ? null : (first_ms - sent_ms) / 1000,
    };
  }
}

/* Adds a part of the stream to the message. Returns whether the part has any text. */
function take(message, delta = {}) {
  message.text += delta.content ?? "";
  message.reasoning += delta.reasoning_content ?? "";
  for (const part of delta.tool_calls ?? []) {
    const one = (message.calls[part.index] ??= { id: "", name: "", arguments: "" });
    one.id = part.id ?? one.id;
    one.name += part.function?.name ?? "";
    one.arguments += part.function?.arguments ?? "";
  }
  return Boolean(delta.content || delta.reasoning_content || delta.tool_calls);
}

/* The sentence that explains the reason. The server has it with the session's last start. A stop leaves the sentence out,
 * because the answer is complete already. */
async function reasonText(session, signal) {
  const path = `/v1/sessions/${encodeURIComponent(session.id)}`;
  const { last } = await call("GET", path, undefined, signal).catch(() => ({}));
  return last?.reason === session.session_reset_reason ? last.reason_text : "";
}
