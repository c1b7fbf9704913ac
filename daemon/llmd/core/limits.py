"""All limits of the daemon. The limits of the decode thread are in include/llm.h."""

from __future__ import annotations

from dataclasses import dataclass

# Limits of a connection, in size and time (http/connection.py).
CONNECTIONS_MAX = 1024
"""Connections over TCP. Above the limit, the connection that has been idle longest is closed. If none is idle, the new
connection is refused.
"""
CONNECTIONS_PER_PEER_MAX = 256
"""Connections from one address of another machine. There is no such limit for this machine, because a proxy on it can
serve many clients.
"""
CONNECTIONS_LOCAL_MAX = 256
"""Connections over the unix socket, in addition to TCP connections, so that this user can always connect."""
CONNECTIONS_REFUSED_MAX = 64
"""Refused connections that get an answer with the reason at the same time. Further ones are closed without an answer.
"""
CONNECTION_IDLE_SPARED_S = 0.05
"""Age or idle time below which a connection is not closed to make room for another one. A burst of silent connections
can keep other clients out for at most this time.
"""
DESCRIPTORS_RESERVED = 256
"""File descriptors reserved for everything except connections, if the process has at least twice as many."""
BACKLOG = 1024
"""Connections that can wait to be accepted. Clients beyond the limit try again after a second."""
HEAD_BYTES_MAX = 64 * 1024
HEAD_LINE_BYTES_MAX = 8 * 1024
"""Longest request line, and longest header."""
HEADERS_MAX = 100
HEAD_S_MAX = 20.0
"""Maximum time for the head of a request, measured from the connection, or from the first byte of a later request."""
READ_BUFFER_BYTES = 64 * 1024
"""Bytes of a body that wait to be read. Up to twice as many are held."""
BODY_SILENCE_S_MAX = 20.0
"""Longest pause in a body."""
BODY_S_MAX = 30.0
"""Maximum time for a whole body, plus one second for each BODY_BYTES_PER_S_MIN bytes."""
BODY_BYTES_PER_S_MIN = 32 * 1024
BODIES_BYTES_IN_FLIGHT_MAX = 1024**3
"""Bytes of all bodies being received."""
BODY_JOINED_ON_LOOP_BYTES_MAX = 1024**2
"""Size above which a body is assembled in a thread."""
LINGER_S = 2.0
"""Time for which llmd reads and drops the bytes of a refused client, so that the client can read the refusal."""
CLOSE_S_MAX = 10.0
"""Time for which the client of a closing connection can read nothing before the last bytes are dropped."""
UNREAD_S_MAX = 60.0
"""Time for which a client can read nothing of an answer. Streams have --slow-reader-timeout instead."""
HALF_CLOSED_LOOK_S_MAX = 0.5
"""Interval at which llmd checks whether a half-closed client has left."""
PROBE_S = 5.0
"""Interval of the probes to a half-closed client."""

# Limits of a request's JSON. msgspec holds the interpreter lock while it decodes (json_scan.py): a body that reaches
# all of these limits at once is decoded in less than 50 ms, whatever the context.
JSON_VALUES_MAX = 65_536
JSON_VALUES_PER_TOKEN = 2
"""Additional values for each token of the context, because a prompt can be a list of token ids."""
JSON_VALUES_IN_ALL_MAX = 327_680
"""The limit for a context of 131,072 tokens. 300,000 integers take 25 ms to decode; a longer list can be sent as text.
"""
JSON_CONTAINERS_MAX = 65_536
JSON_KEYS_MAX = 65_536
JSON_MEMBERS_MAX = 4096
"""Members of one object. libllm refuses more (json_members.h), because its objects compare each name with all earlier
ones.
"""
JSON_DEPTH_MAX = 256
JSON_KEY_BYTES_MAX = 1024
JSON_NUMBER_BYTES_MAX = 128
JSON_FLOATS_MAX = 1088
"""Numbers other than integers of up to 18 digits; enough for all biases. msgspec takes up to 12 us for each of them
where a float is declared (logit_bias). Elsewhere Python reads them in 0.2 us (json_scan.py).
"""
JSON_TEXT_BYTES_MAX = 16 * 1024**2

# Limits of a request's members.
FIELD_BYTES_MAX = 65_536
"""Bytes of JSON of one field other than the prompt."""
NEUTRAL_BYTES_MAX = 256
"""Bytes of JSON up to which a refused parameter is decoded. Values without effect are short."""
IGNORED_NAMES_LOGGED_MAX = 256
"""Names of ignored parameters that llmd remembers as logged."""
TOKENIZE_BYTES_MAX = 4 * 1024**2
DETOKENIZE_TOKENS_MAX = 65_536
"""Maximum number of token ids, or the context's size if that is larger."""
EMBEDDING_TEXTS_MAX = 2048
MESSAGES_MAX = 16_384
STOP_STRINGS_MAX = 16
STOP_STRING_BYTES_MAX = 256
LOGIT_BIASES_MAX = 1024
STOP_TOKENS_MAX = 128
DRY_BREAKERS_MAX = 16
CONSTRAINT_BYTES_MAX = 512 * 1024
"""Size of a compiled constraint."""
TOOLS_MAX = 256
TOOLS_BYTES_MAX = 1024**2
"""Bytes of JSON of all tools of a request."""
TOOL_NAME_CHARS_MAX = 128
TOOL_SCHEMA_DEPTH_MAX = 64
"""Levels of objects and lists in the parameters of a tool."""
THINKING_TOKENS_MAX = 0x7FFF_FFFF
"""The largest budget of reasoning that a request can set."""
ANSWERS_MAX = 16
"""Answers of one request, to all its prompts, including those of best_of that are dropped."""
LIKELIEST_MAX = 20
"""Most likely tokens reported with each generated token. libllm reports no more (llm.h)."""
LOG_PROBABILITIES_MAX = 262_144
"""Log probabilities of a request that is not streamed, of all its answers and most likely tokens. The limit shortens
the answers.
"""
MARKS_MAX = 4
"""Positions marked by the client (cache_control) at which checkpoints are taken. If there are more, the last ones
count.
"""
MARK_NEAR_TOKENS = 8
"""Distance in tokens below which a mark next to another one is ignored."""
TEMPLATE_VARIABLES_MAX = 64
"""Members of chat_template_kwargs. libllm refuses more (chat_request.cpp)."""
AGENT_CONTEXT_TOKENS = 32_768
"""Context that coding agents need. They begin with up to 17,000 tokens, and need as many for the conversation."""
SESSION_ID_CHARS_MAX = 128
USER_ID_CHARS_MAX = 4096
"""Length up to which metadata.user_id is searched for a session's id (core/session_key.py)."""
ARGUMENTS_DEPTH_MAX = 128
"""Levels of a tool call's arguments that are compared as values. libllm renders no more (chat_request.cpp)."""
ARGUMENTS_VALUES_MAX = 16_384
ARGUMENTS_FLOATS_MAX = 512
"""Floats in a tool call's arguments. Arguments with more values or floats than these limits are compared as text."""
UINT32_MAX = 0xFFFF_FFFF
"""The largest owner number or token count that the engine accepts."""
USER_FIELD_SHOWN_CHARS_MAX = 120
"""Characters of a value that an error message quotes."""

# Limits of access (access.py).
KEY_FILE_BYTES_MAX = 1024**2
KEYS_MAX = 1024
"""Keys in the key file. The key of a request is compared with each of them, even after a match."""
OWNER_NAME_CHARS_MAX = 64
KEY_CHARS_MIN_ADVISED = 16
"""Length below which a key is accepted with a warning."""

# Limits of what the daemon holds for a client.
PENDING_TEXT_CHARS_MAX = 65_536
"""Characters of undelivered text of one stream. Above the limit the generation is paused until the client has read."""
LIVE_REQUESTS_MAX = 256
SESSION_QUEUE_MAX = 8
SCRATCH_QUEUE_MAX = 192
HOLDERS_SHOWN = 8
"""Session names in the error that says that all entries are taken."""
DIVERGENCE_TOKENS_SHOWN = 12
"""Prompt tokens shown on each side of the point at which prompt and session diverged."""

# Stored responses (dialects/responses/store.py).
RESPONSES_MAX = 4096
"""Stored responses of all owners. Each owner has a share of this number, and of the bytes."""
RESPONSE_BYTES_MAX = 128 * 1024**2
RESPONSE_BYTES_OVERHEAD = 1024
"""Bytes counted for each response in addition to its texts."""
RESPONSE_MESSAGE_BYTES = 256
"""Bytes counted for each message and each call of the response's conversation, in addition to their texts."""
RESPONSE_REFERRED_BYTES_MAX = 4 * 1024**2
"""Bytes of all items to which one request refers, because a short reference can stand for a long answer, and can be
repeated.
"""
RESPONSE_ITEMS_SHOWN_MAX = 100
RESPONSE_ITEMS_SHOWN = 20
"""Input items in one answer, unless the request sets another limit."""

# Records of past turns (turns/).
TURNS_PER_SESSION_MAX = 16
TURN_SESSIONS_MAX = 1024
SHARED_TOKENS_SHOWN_MIN = 64
"""Tokens below which a copy from another session is reported as new by `explain`, if they are less than a tenth of the
prompt.
"""
DIVERGENCE_PREFILLED_MIN = 256
"""Prefilled tokens from which a turn is reported with the point at which it diverged from its session's branches."""
CLIENT_CHARS_MAX = 32
"""Longest program name that is kept from a User-Agent."""
LAST_WORDS_CHARS_MAX = 40
"""Characters of the last user message that session listings show."""
DIVERGENCE_TOKENS_KEPT = 16
"""Tokens kept on each side of the point where prompt and session diverged in a turn."""
USER_BOUNDARIES_MAX = 4
"""User messages, counted from the last one, whose beginnings libllm finds in a prompt (chat.cpp)."""

# Answers kept with their tokens (answers/memory.py).
ANSWER_BYTES_MAX = 64 * 1024**2
ANSWER_BYTES_OVERHEAD = 256
"""Bytes counted for each answer in addition to its tokens and text."""
ANSWERS_PER_SESSION_MAX = 4096
ANSWER_SESSIONS_MAX = 4096
ANSWER_TOKENS_LEFT_OUT_MAX = STOP_STRING_BYTES_MAX + 8
"""Tokens at the end of an answer whose text can be missing, because of a stop string or an incomplete character."""

# Times.
RETRY_AFTER_S = 1
"""Seconds in Retry-After of answers with status 429 and 503."""
LOAD_RETRY_AFTER_S_MAX = 30
"""Largest Retry-After while the model loads, estimated from the part that is loaded. Clients wait up to a minute."""
COMPLAINT_POLL_S = 1.0
"""Interval at which the daemon asks the engine for problems with files of sessions."""
COMMAND_RETRY_S = 0.005
"""Delay before a command that found the ring full is pushed again."""
DATABASE_RETRY_S = 10.0
"""Delay before rows that the disk refused are written again."""
STALLED_AFTER_S = 30.0
"""Time without a finished step after which the daemon is not ready."""
STOP_GRACE_S = 5.0
"""Time that cancelled requests have to deliver their last event when the daemon stops."""
KEEPALIVE_CONNECTION_S = 75.0
LOOP_CLOCK_S = 0.01
"""Period of the timer that measures the event loop. Shorter blocks are not detected."""
NOTIFY_PATIENCE_S = 0.02
"""Time for which a notification waits for a service manager whose queue is full."""
LOG_PATIENCE_MS = 5
"""Time for which a log line waits for the reader of standard error."""
LOAD_PROGRESS_S = 5.0
LOAD_PATIENCE_S = 120.0
"""Time by which llmd extends systemd's timeout each time that more of the model has been read."""
SAVE_PROGRESS_S = 1.0
SAVE_PATIENCE_S = 60.0
"""Time by which llmd extends systemd's timeout each time that a stopping daemon has saved more."""

# Threads that render and tokenize.
TEXT_THREADS = 3
"""Number of text threads. One of them takes short work only."""
TEXT_SHORT_BYTES = 16_384
"""Bytes up to which work is short. Bodies up to this size are decoded on the event loop, which takes a few
milliseconds, whatever they contain.
"""
PARSED_ON_LOOP_CHARS_MAX = 2048
"""Characters of an answer, including those that are parsed again, up to which the event loop parses. More are parsed in
a text thread.
"""
TEXT_JOBS_MAX = 256
TEXT_JOBS_BYTES_MAX = 256 * 1024**2


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that a client can reach."""

    name: str
    most: int | str
    """A number, or the option or fact that sets it."""
    unit: str
    bounds: str
    code: str
    """Code of the error (errors.py)."""


TABLE = (
    Limit("connections", CONNECTIONS_MAX, "connections", "TCP connections of all clients", "too_many_connections"),
    Limit("connections.peer", CONNECTIONS_PER_PEER_MAX, "connections",
          "TCP connections from one address of another machine", "too_many_connections"),
    Limit("connections.unix", CONNECTIONS_LOCAL_MAX, "connections", "connections to the unix socket",
          "too_many_connections"),
    Limit("head", HEAD_BYTES_MAX, "bytes", "the request line and headers of a request", "headers_too_large"),
    Limit("head.line", HEAD_LINE_BYTES_MAX, "bytes", "the request line, and each header", "headers_too_large"),
    Limit("head.headers", HEADERS_MAX, "headers", "the request line and headers of a request", "headers_too_large"),
    Limit("head.time", f"{HEAD_S_MAX:g}", "seconds", "the time until the headers of a request have arrived",
          "request_timeout"),
    Limit("body.silence", f"{BODY_SILENCE_S_MAX:g}", "seconds", "a pause while a body arrives", "request_timeout"),
    Limit("body.time", f"{BODY_S_MAX:g}, and one more for each {BODY_BYTES_PER_S_MIN} bytes", "seconds",
          "the time until a body has arrived", "request_timeout"),
    Limit("bodies", BODIES_BYTES_IN_FLIGHT_MAX, "bytes", "all bodies that are arriving; each owner has a share",
          "overloaded"),
    Limit("body", "--body-limit", "bytes", "a body", "request_too_large"),
    Limit("body.values",
          f"{JSON_VALUES_MAX} + {JSON_VALUES_PER_TOKEN} for each token of the context, at most "
          f"{JSON_VALUES_IN_ALL_MAX}", "values", "the JSON of a body", "request_too_large"),
    Limit("body.containers", JSON_CONTAINERS_MAX, "objects and lists", "the JSON of a body", "request_too_large"),
    Limit("body.names", JSON_KEYS_MAX, "names in objects", "the JSON of a body", "request_too_large"),
    Limit("body.floats", JSON_FLOATS_MAX, "numbers other than integers of up to 18 digits", "the JSON of a body",
          "request_too_large"),
    Limit("body.texts", JSON_TEXT_BYTES_MAX, "bytes in all texts", "the JSON of a body", "request_too_large"),
    Limit("body.depth", JSON_DEPTH_MAX, "levels", "the JSON of a body", "invalid_json"),
    Limit("body.name", JSON_KEY_BYTES_MAX, "bytes", "a name in the JSON of a body", "invalid_json"),
    Limit("body.number", JSON_NUMBER_BYTES_MAX, "bytes", "a number in the JSON of a body", "invalid_json"),
    Limit("messages", MESSAGES_MAX, "messages", "a conversation", "invalid_value"),
    Limit("messages.text", "the context x the longest token", "bytes", "the text of all messages",
          "context_length_exceeded"),
    Limit("prompt", "--ctx-size", "tokens", "a prompt together with its answer", "context_length_exceeded"),
    Limit("prompt.text", "the context x the longest token", "bytes", "a prompt that is a text",
          "context_length_exceeded"),
    Limit("tools", TOOLS_MAX, "tools", "the tools or functions of a request", "invalid_value"),
    Limit("tools.bytes", TOOLS_BYTES_MAX, "bytes of JSON", "the tools or functions of a request", "invalid_value"),
    Limit("tools.name", TOOL_NAME_CHARS_MAX, "characters", "the name of a tool", "invalid_value"),
    Limit("tools.depth", TOOL_SCHEMA_DEPTH_MAX, "levels", "the parameters of a tool", "invalid_value"),
    Limit("tools.members", JSON_MEMBERS_MAX, "members", "an object in tools, chat_template_kwargs or a schema",
          "invalid_value"),
    Limit("responses", RESPONSES_MAX, "responses",
          "stored responses; each owner has a share; llmd removes the least recently used", "response_not_found"),
    Limit("responses.bytes", RESPONSE_BYTES_MAX, "bytes",
          "all stored responses; each owner has a share; llmd removes the least recently used", "response_not_found"),
    Limit("responses.referred", RESPONSE_REFERRED_BYTES_MAX, "bytes", "all stored items that a request refers to",
          "request_too_large"),
    Limit("chat_template_kwargs", TEMPLATE_VARIABLES_MAX, "members", "chat_template_kwargs", "invalid_value"),
    Limit("field", FIELD_BYTES_MAX, "bytes of JSON", "any other supported field of a request", "invalid_value"),
    Limit("stop", STOP_STRINGS_MAX, "texts", "stop", "invalid_value"),
    Limit("stop.text", STOP_STRING_BYTES_MAX, "bytes", "each text of stop", "invalid_value"),
    Limit("logit_bias", LOGIT_BIASES_MAX, "tokens", "logit_bias", "invalid_value"),
    Limit("answers", ANSWERS_MAX, "answers", "n, or best_of, times the prompts of a completion", "invalid_value"),
    Limit("top_logprobs", LIKELIEST_MAX, "tokens", "top_logprobs, logprobs of a completion, n_probs", "invalid_value"),
    Limit("session_id", SESSION_ID_CHARS_MAX, "characters", "a session id", "invalid_session_id"),
    Limit("name", SESSION_ID_CHARS_MAX, "characters", "the name of a saved session", "invalid_value"),
    Limit("content", TOKENIZE_BYTES_MAX, "bytes", "a text to tokenize", "invalid_value"),
    Limit("tokens", f"{DETOKENIZE_TOKENS_MAX}, or the context if it is larger", "token ids", "a list to detokenize",
          "invalid_value"),
    Limit("embeddings", EMBEDDING_TEXTS_MAX, "texts", "a request for embeddings", "invalid_value"),
    Limit("embeddings.text", "meta.n_embedding_tokens of GET /v1/models", "tokens", "a text to embed",
          "context_length_exceeded"),
    Limit("time", "--request-timeout", "seconds", "the time from the arrival of a request to its end",
          "deadline_exceeded"),
    Limit("requests", LIVE_REQUESTS_MAX, "requests", "running and waiting requests", "overloaded"),
    Limit("requests.session", SESSION_QUEUE_MAX, "requests", "the queue of one session", "queue_full"),
    Limit("requests.scratch", SCRATCH_QUEUE_MAX, "requests",
          "the queue of requests that name no session; each owner has a share", "queue_full"),
    Limit("texts", TEXT_JOBS_MAX, "jobs", "the queue of texts to render or tokenize; each owner has a share",
          "overloaded"),
    Limit("texts.bytes", TEXT_JOBS_BYTES_MAX, "bytes",
          "the queue of texts to render or tokenize; each owner has a share", "overloaded"),
)  # fmt: skip
"""The limits that docs/limits.md and /openapi.json show."""
