"""All limits of the daemon. The limits of the decode thread are in include/llm.h."""

from __future__ import annotations

from dataclasses import dataclass

# Limits of a connection, in size and time (http/connection.py).
CONNECTIONS_MAX = 1024
"""Maximum number of connections over TCP. If a client connects when the limit is reached, llmd closes the connection
that has been idle longest. If no connection is idle, the new connection is refused.
"""
CONNECTIONS_PER_PEER_MAX = 256
"""Maximum number of connections from one address of another machine. Connections from this machine have no such limit,
because a proxy on this machine can serve many clients.
"""
CONNECTIONS_LOCAL_MAX = 256
"""Maximum number of connections over the unix socket. They have a limit of their own, so that administrators can still
connect when TCP clients have used up all TCP connections.
"""
CONNECTIONS_REFUSED_MAX = 64
"""Maximum number of refused connections that stay open until the client has received the reason of the refusal. Further
refused connections are closed without an answer.
"""
CONNECTION_IDLE_SPARED_S = 0.05
"""A connection that has been idle for less than this time is not closed in favor of a new connection. For this time, a
client that opens many connections at once and sends nothing can keep other clients out.
"""
DESCRIPTORS_RESERVED = 256
"""Number of file descriptors that are reserved for other uses than connections, if the process can have at least twice
this number.
"""
BACKLOG = 1024
"""Maximum number of connections that wait to be accepted. If more clients connect, their kernels try again after a
second.
"""
HEAD_BYTES_MAX = 64 * 1024
HEAD_LINE_BYTES_MAX = 8 * 1024
"""Maximum length of the request line, and of each header."""
HEADERS_MAX = 100
HEAD_S_MAX = 20.0
"""Maximum time for the request line and headers of a request to arrive. For the first request of a connection, the time
begins when the connection is opened. For a later request, it begins with the request's first byte.
"""
READ_BUFFER_BYTES = 64 * 1024
"""Maximum number of bytes of a body that have arrived and wait for the handler. At this number, llmd stops receiving
until the handler has read some bytes. Up to twice this number of bytes can be in memory.
"""
BODY_SILENCE_S_MAX = 20.0
"""Longest pause while the body of a request arrives."""
BODY_S_MAX = 30.0
"""Maximum time until a whole body has arrived. Each BODY_BYTES_PER_S_MIN bytes that have arrived add one second."""
BODY_BYTES_PER_S_MIN = 32 * 1024
BODIES_BYTES_IN_FLIGHT_MAX = 1024**3
"""Maximum total bytes of all bodies that are being received."""
BODY_JOINED_ON_LOOP_BYTES_MAX = 1024**2
"""If a body has more bytes than this, its chunks are joined in a text thread."""
LINGER_S = 2.0
"""Time for which llmd receives and drops what a refused client still sends. If llmd closed the connection at once, the
client could lose the answer with the refusal.
"""
CLOSE_S_MAX = 10.0
"""Maximum time for the client to read the last bytes of a connection that llmd closes. Bytes that are not sent by then
are lost.
"""
UNREAD_S_MAX = 60.0
"""Time after which a connection whose client reads nothing of an answer is closed. For streams, --slow-reader-timeout
applies instead.
"""
HALF_CLOSED_LOOK_S_MAX = 0.5
"""Longest interval between two checks whether a client that has closed its sending direction still reads its answer."""
PROBE_S = 5.0
"""Interval of probes to a client that has closed its sending direction. A probe shows whether the client still exists
(http/connection.py).
"""
FEEDS_MAX = 64
"""Maximum number of open streams of GET /v1/feed."""
FEED_INTERVAL_S = 1.0
"""Interval of the events of GET /v1/feed."""
FEED_FORGOTTEN_MAX = 4096
"""Number of forgotten sessions that are kept for feeds. A feed that is further behind gets all sessions again."""

# Limits of a request's JSON. They exist because msgspec holds the interpreter lock while it decodes (json_scan.py). A
# body that reaches all of these limits at once is decoded in less than 50 ms, whatever the size of the context.
JSON_VALUES_MAX = 65_536
JSON_VALUES_PER_TOKEN = 2
"""Additional values for each token of the context, because a prompt can be a list of token ids."""
JSON_VALUES_IN_ALL_MAX = 327_680
"""Maximum number of values, however large the context is. A context of 131,072 tokens reaches this limit. 300,000
integers take 25 ms to decode. A client can send a longer prompt as text instead of token ids.
"""
JSON_CONTAINERS_MAX = 65_536
JSON_KEYS_MAX = 65_536
JSON_MEMBERS_MAX = 4096
"""Maximum members of one object. libllm has the same limit (json_size.h), because it compares each name in an object
with all earlier names.
"""
JSON_DEPTH_MAX = 256
JSON_KEY_BYTES_MAX = 1024
JSON_NUMBER_BYTES_MAX = 128
JSON_FLOATS_MAX = 1088
"""Maximum number of floats and integers with more than 18 digits, counted together. The limit is enough for the values
of logit_bias. msgspec needs up to 12 us for a float of a member that is declared as float, such as logit_bias. Python
decodes the other floats in 0.2 us each (json_scan.py).
"""
JSON_TEXT_BYTES_MAX = 16 * 1024**2

# Limits of a request's members.
FIELD_BYTES_MAX = 65_536
"""Maximum bytes of JSON in one field. Fields such as the prompt have limits of their own."""
NEUTRAL_BYTES_MAX = 256
"""An unsupported parameter is accepted if its value would have no effect. Values with more bytes of JSON than this are
not decoded for this check, because all values without effect are short.
"""
IGNORED_NAMES_LOGGED_MAX = 256
"""Number of ignored parameters whose names llmd remembers, in order to log each name once."""
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
"""Maximum bytes of the constraint in the command GENERATE. libllm has the same limit (llm.h)."""
TOOLS_MAX = 256
TOOLS_BYTES_MAX = 1024**2
"""Maximum bytes of JSON of all tools of a request."""
TOOL_NAME_CHARS_MAX = 128
TOOL_SCHEMA_DEPTH_MAX = 64
"""Maximum nesting depth of objects and lists in the parameters of a tool."""
THINKING_TOKENS_MAX = 0x7FFF_FFFF
"""The largest number of reasoning tokens that a request can set as a limit."""
ANSWERS_MAX = 16
"""Maximum number of answers generated for one request. This is the total for all prompts of the request, and includes
the answers that best_of drops.
"""
LIKELIEST_MAX = 20
"""Maximum number of most likely tokens that are reported with each generated token. libllm has the same limit (llm.h).
"""
LOG_PROBABILITIES_MAX = 262_144
"""Maximum number of log probabilities in all answers of a request that is not streamed, including those of the most
likely tokens. llmd limits the length of the answers accordingly.
"""
MARKS_MAX = 4
"""Maximum number of marks of a prompt. A mark is a position that the client marked with cache_control. Checkpoints are
taken at marks. If a prompt has more marks, the last ones count.
"""
MARK_NEAR_TOKENS = 8
"""A mark is ignored if another mark, a boundary between messages or the prompt's beginning is at most this number of
tokens away.
"""
TEMPLATE_VARIABLES_MAX = 64
"""Maximum members of chat_template_kwargs. libllm has the same limit (chat_request.cpp)."""
AGENT_CONTEXT_TOKENS = 32_768
"""Context size in tokens that coding agents need. Their system prompts and tools have up to 17,000 tokens, and their
conversations need about as many.
"""
SESSION_ID_CHARS_MAX = 128
USER_ID_CHARS_MAX = 4096
"""A metadata.user_id with more characters is not searched for a session id (core/session_key.py)."""
ARGUMENTS_DEPTH_MAX = 128
"""Maximum nesting depth of a tool call's arguments. Deeper arguments are compared as text. libllm does not parse them
as JSON either (chat_history.cpp).
"""
ARGUMENTS_VALUES_MAX = 16_384
ARGUMENTS_FLOATS_MAX = 512
"""Maximum number of floats in the arguments of a tool call. Arguments that exceed one of the limits ARGUMENTS_* are
compared as text.
"""
UINT32_MAX = 0xFFFF_FFFF
"""The largest owner number or token count that the engine accepts."""
USER_FIELD_SHOWN_CHARS_MAX = 120
"""Maximum characters of a value that an error message quotes."""

# Limits of access (access.py).
KEY_FILE_BYTES_MAX = 1024**2
KEYS_MAX = 1024
"""Maximum number of keys in the key file. The limit exists because each request's key is compared with every key of the
file, even after a match.
"""
OWNER_NAME_CHARS_MAX = 64
KEY_CHARS_MIN_ADVISED = 16
"""Length below which a key is accepted with a warning."""

# Limits of what the daemon holds for a client.
PENDING_TEXT_CHARS_MAX = 65_536
"""Maximum number of characters of one stream that wait for the client. Above this number, the generation is paused
until the client has read some of them.
"""
LIVE_REQUESTS_MAX = 256
SESSION_QUEUE_MAX = 8
SCRATCH_QUEUE_MAX = 192
HOLDERS_SHOWN = 8
"""Maximum number of session names that the error capacity_exhausted lists."""
DIVERGENCE_TOKENS_SHOWN = 12
"""Number of tokens of the prompt that are shown on each side of the point at which prompt and session diverged."""

# Stored responses (dialects/responses/store.py).
RESPONSES_MAX = 4096
"""Maximum number of stored responses of all owners together. Each owner has a share of this number and of
RESPONSE_BYTES_MAX.
"""
RESPONSE_BYTES_MAX = 128 * 1024**2
RESPONSE_BYTES_OVERHEAD = 1024
"""Number of bytes counted for each stored response, besides its texts."""
RESPONSE_MESSAGE_BYTES = 256
"""Number of bytes counted for each message and each tool call of a stored conversation, besides its texts."""
RESPONSE_REFERRED_BYTES_MAX = 4 * 1024**2
"""Maximum total bytes of the stored items (messages, tool calls ...) to which one request refers by their ids. The
limit on the size of a body is not enough: a short reference can stand for a long answer, and can be repeated.
"""
RESPONSE_ITEMS_SHOWN_MAX = 100
RESPONSE_ITEMS_SHOWN = 20
"""Number of input items in one answer if the request sets no limit."""

# Records of past turns (turns/).
TURNS_PER_SESSION_MAX = 16
TURN_SESSIONS_MAX = 1024
SHARED_TOKENS_SHOWN_MIN = 64
"""A session that copied fewer tokens than this from another session is reported as new, if these tokens are also less
than a tenth of the prompt.
"""
DIVERGENCE_PREFILLED_MIN = 256
"""A prompt can continue all tokens of its branch, for example because the branch is new and has none. If such a turn
prefilled at least this number of tokens, `explain` reports where the prompt diverged from the most similar other branch
of the session.
"""
CLIENT_CHARS_MAX = 32
"""Maximum length of the program name that llmd takes from a User-Agent."""
LAST_WORDS_CHARS_MAX = 40
"""Maximum characters of the last user message that lists of sessions show."""
DIVERGENCE_TOKENS_KEPT = 16
"""Number of tokens that are kept on each side of the point where prompt and session diverged in a turn."""
USER_BOUNDARIES_MAX = 4
"""Number of user messages, counted from the end of a prompt, whose beginnings libllm reports (chat.cpp)."""

# Answers kept with their tokens (answers/memory.py).
ANSWER_BYTES_MAX = 64 * 1024**2
ANSWER_BYTES_OVERHEAD = 256
"""Number of bytes counted for each answer, besides its tokens and text."""
ANSWERS_PER_SESSION_MAX = 4096
ANSWER_SESSIONS_MAX = 4096
ANSWER_TOKENS_LEFT_OUT_MAX = STOP_STRING_BYTES_MAX + 8
"""Maximum number of tokens at the end of an answer that the client's text can lack, because of a stop string or an
incomplete character.
"""

# Times.
RETRY_AFTER_S = 1
"""Seconds in Retry-After of answers with status 429 and 503."""
LOAD_RETRY_AFTER_S_MAX = 30
"""Largest Retry-After while the model loads. llmd estimates the value from how much of the model is loaded. Client
libraries do not wait longer than a minute.
"""
COMPLAINT_POLL_S = 1.0
"""Interval at which the daemon asks the engine whether reading or writing files of sessions failed."""
COMMAND_RETRY_S = 0.005
"""Delay before llmd tries again to push a command that did not fit into the command ring."""
DATABASE_RETRY_S = 10.0
"""Delay before llmd tries again to write rows to the database after a failed write."""
STALLED_AFTER_S = 30.0
"""Duration of one step of the model after which the daemon counts as stalled and is not ready."""
STOP_GRACE_S = 5.0
"""Longest time that the stopping daemon waits for the last events of the requests that it has cancelled."""
KEEPALIVE_CONNECTION_S = 75.0
LOOP_CLOCK_S = 0.01
"""Period of the timer that measures how long the event loop is blocked. If the loop is blocked for less than this time,
the timer possibly does not notice it.
"""
NOTIFY_PATIENCE_S = 0.02
"""Maximum time for which llmd waits to send a notification to the service manager (systemd) if the manager's queue is
full.
"""
TRACES_CLOSE_S = 2.0
"""Longest time that the stopping daemon waits for the collector of traces."""
TRACES_COMPLAINT_S = 60.0
"""Shortest time between two log lines about traces that could not be sent."""
LOG_PATIENCE_MS = 5
"""Maximum time for which a log line waits if the reader of standard error does not read."""
LOAD_PROGRESS_S = 5.0
LOAD_PATIENCE_S = 120.0
"""Time by which llmd extends systemd's timeout whenever more of the model has been loaded."""
SAVE_PROGRESS_S = 1.0
SAVE_PATIENCE_S = 60.0
"""Time by which a stopping daemon extends systemd's timeout whenever it has saved more."""

# Threads that render and tokenize.
TEXT_THREADS = 3
"""Number of text threads. One of these threads runs only short jobs."""
TEXT_SHORT_BYTES = 16_384
"""Maximum number of bytes of a short job. A request body of at most this size is decoded on the event loop, which takes
a few milliseconds, whatever the body contains.
"""
PARSED_ON_LOOP_CHARS_MAX = 2048
"""A piece of an answer with at most this number of characters is parsed on the event loop. Earlier characters that have
to be parsed again count, too. A larger piece is parsed in a text thread.
"""
TEXT_JOBS_MAX = 256
TEXT_JOBS_BYTES_MAX = 256 * 1024**2


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that a client can reach."""

    name: str
    most: int | str
    """The limit as a number, or the option or fact that determines the limit."""
    unit: str
    bounds: str
    """What is limited, as docs/limits.md describes it."""
    code: str
    """Code of the error that the client gets (errors.py)."""


TABLE = (
    Limit("connections", CONNECTIONS_MAX, "connections", "TCP connections of all clients", "too_many_connections"),
    Limit("connections.peer", CONNECTIONS_PER_PEER_MAX, "connections",
          "TCP connections from one address of another machine", "too_many_connections"),
    Limit("connections.unix", CONNECTIONS_LOCAL_MAX, "connections", "connections to the unix socket",
          "too_many_connections"),
    Limit("feeds", FEEDS_MAX, "streams", "GET /v1/feed", "overloaded"),
    Limit("head", HEAD_BYTES_MAX, "bytes", "the request line and headers of a request", "headers_too_large"),
    Limit("head.line", HEAD_LINE_BYTES_MAX, "bytes", "the request line alone; each header alone", "headers_too_large"),
    Limit("head.headers", HEADERS_MAX, "headers", "a request", "headers_too_large"),
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
    Limit("messages.text", "the context size x the bytes of the longest token", "bytes", "the text of all messages",
          "context_length_exceeded"),
    Limit("prompt", "--ctx-size", "tokens", "a prompt together with its answer", "context_length_exceeded"),
    Limit("prompt.text", "the context size x the bytes of the longest token", "bytes", "a prompt that is a text",
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
    Limit("responses.referred", RESPONSE_REFERRED_BYTES_MAX, "bytes",
          "all stored items together that a request refers to by id", "request_too_large"),
    Limit("chat_template_kwargs", TEMPLATE_VARIABLES_MAX, "members", "the parameter chat_template_kwargs",
          "invalid_value"),
    Limit("field", FIELD_BYTES_MAX, "bytes of JSON", "any other supported field of a request", "invalid_value"),
    Limit("stop", STOP_STRINGS_MAX, "texts", "the parameter stop", "invalid_value"),
    Limit("stop.text", STOP_STRING_BYTES_MAX, "bytes", "each text in the parameter stop", "invalid_value"),
    Limit("logit_bias", LOGIT_BIASES_MAX, "tokens", "the parameter logit_bias", "invalid_value"),
    Limit("answers", ANSWERS_MAX, "answers", "n (or best_of) times the number of prompts in a request",
          "invalid_value"),
    Limit("top_logprobs", LIKELIEST_MAX, "tokens", "top_logprobs, n_probs, and logprobs of a text completion",
          "invalid_value"),
    Limit("session_id", SESSION_ID_CHARS_MAX, "characters", "a session id", "invalid_session_id"),
    Limit("name", SESSION_ID_CHARS_MAX, "characters", "the name of a saved session", "invalid_value"),
    Limit("content", TOKENIZE_BYTES_MAX, "bytes", "a text to tokenize", "invalid_value"),
    Limit("tokens", f"{DETOKENIZE_TOKENS_MAX}, or the context size if that is larger", "token ids",
          "a list to detokenize", "invalid_value"),
    Limit("embeddings", EMBEDDING_TEXTS_MAX, "texts", "a request for embeddings", "invalid_value"),
    Limit("embeddings.text", "meta.n_embedding_tokens of GET /v1/models", "tokens", "a text to embed",
          "context_length_exceeded"),
    Limit("load", "--load-wait", "seconds", "the time that a request waits while the model loads", "model_loading"),
    Limit("time", "--request-timeout", "seconds", "the time from the arrival of a request to its end",
          "deadline_exceeded"),
    Limit("requests", LIVE_REQUESTS_MAX, "requests", "running and waiting requests", "overloaded"),
    Limit("requests.session", SESSION_QUEUE_MAX, "requests", "the queue of one session", "queue_full"),
    Limit("requests.scratch", SCRATCH_QUEUE_MAX, "requests",
          "the queue of requests that name no session; each owner has a share", "queue_full"),
    Limit("texts", TEXT_JOBS_MAX, "jobs", "texts that wait to be rendered or tokenized; each owner has a share",
          "overloaded"),
    Limit("texts.bytes", TEXT_JOBS_BYTES_MAX, "bytes",
          "all texts that wait to be rendered or tokenized; each owner has a share", "overloaded"),
)  # fmt: skip
"""The limits that docs/limits.md and /openapi.json show."""
