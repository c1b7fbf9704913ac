/* api.js: calls the API of this server, with the API key that the user entered. */

const KEY = "llmd.key";
const KEEP_ALIVE = ": keep-alive";

export class ApiError extends Error {
  constructor(status, error) {
    super(error.message || `The server answered with status ${status}.`);
    this.status = status;
    this.code = error.code || "";
  }
}

export function hasKey() {
  return Boolean(sessionStorage.getItem(KEY));
}

/* The key is kept in this tab. It is never stored on disk by the page. */
export function setKey(key) {
  if (key) {
    sessionStorage.setItem(KEY, key);
  } else {
    sessionStorage.removeItem(KEY);
  }
}

/* Sends a request and returns the response. Throws ApiError for an error status, and TypeError if the server cannot be
 * reached. An answer with status 401 also makes the event "key-needed" on window, so that the page asks for a key. */
export async function fetched(method, path, body, signal) {
  const headers = {};
  const key = sessionStorage.getItem(KEY);
  if (key) {
    headers["Authorization"] = `Bearer ${key}`;
  }
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
  }
  const response = await fetch(path, {
    method, headers, signal, cache: "no-store", body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (!response.ok) {
    const answer = await response.json().catch(() => ({}));
    if (response.status === 401) {
      window.dispatchEvent(new Event("key-needed"));
    }
    throw new ApiError(response.status, answer.error || {});
  }
  return response;
}

/* Sends a request and returns the JSON of the answer. */
export async function call(method, path, body, signal) {
  return (await fetched(method, path, body, signal)).json();
}

/* Sends a request whose answer is a stream of server-sent events. Yields the JSON of each event. Ends at [DONE] and at the
 * end of the stream. Comments, with which llmd reports progress, are yielded as {comment: text}. Comments that only keep
 * the connection alive are skipped. Throws ApiError also for an event that is an error. */
export async function* events(method, path, body, signal) {
  const response = await fetched(method, path, body, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) {
      return;
    }
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line === KEEP_ALIVE) {
        continue;
      }
      if (line.startsWith(": ")) {
        yield { comment: line.slice(2) };
      } else if (line === "data: [DONE]") {
        return;
      } else if (line.startsWith("data: ")) {
        const event = JSON.parse(line.slice(6));
        if (event.error) {
          throw new ApiError(response.status, event.error);
        }
        yield event;
      }
    }
  }
}

/* The path of a session, or of something below it. Only administrators see sessions of other owners. */
export function sessionPath(session, below = "") {
  return `/v1/sessions/${encodeURIComponent(session.id)}${below}?owner=${session.owner}`;
}
