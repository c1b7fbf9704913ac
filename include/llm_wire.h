/* llm_wire.h specifies the commands to the decode thread and the events from that thread. Commands and events are
 * MessagePack messages. The tables here contain every name in these messages. A program in another language can compare
 * its own names with the tables (llm_command_field, llm_event_member).
 *
 * The daemon's cffi module is built from this file, after the preprocessor has run with LLM_CFFI defined. */
#ifndef LLM_WIRE_H
#define LLM_WIRE_H

#include "llm.h"

#ifndef LLM_CFFI
#ifdef __cplusplus
extern "C" {
#endif
#endif

/* ---- serving: commands ------------------------------------------------------------------------------------- *
 * One thread pushes commands, and the same thread drains events. A command is one MessagePack map and nothing else. The
 * first entry of the map is "op", an llm_command_op. The other entries follow in any order, each at most once.
 * LLM_COMMAND_TABLE lists the commands and LLM_FIELD_TABLE the entries. Entries of most commands:
 *
 *   `request`     id chosen by the caller, unique among live requests. In CANCEL and PAUSE this is the id of a
 *                 generation. These two commands ignore an unknown id, because the generation may just have ended.
 *   `owner`       number of the session's owner. Sessions of different owners are separate even if their names are
 *                 equal.
 *   `session`     the session's name. "" means scratch, where LLM_FIELD_TABLE allows it.
 */

/* Entries of GENERATE:
 *   `prompt`      token ids, at least one.
 *   `max_tokens`  maximum number of tokens to generate. 0 means as many as the context can hold. A larger value than
 *                 the context can hold has the same effect.
 *   `sampling`    map from the names in LLM_SAMPLING_TABLE to values. A missing parameter has its default.
 *   `logit_bias`  pairs of token and finite bias.
 *   `stop`        stop strings, none of them empty.
 *   `n_answer_stops`  number of strings at the beginning of `stop` that are searched for only in the answer. They are
 *                 not searched for in the reasoning or in the blanks after it. A number above 0 needs a `constraint`
 *                 that says where reasoning ends.
 *   `stop_tokens`  tokens that end the answer like the model's own end tokens.
 *   `min_tokens`  minimum number of tokens of the answer. While the answer has fewer tokens, the model's end tokens are
 *                 not sampled, and stop strings are not searched for.
 *   `constraint`  the output format of the answer, as JSON from llm_constraint_make or llm_chat_render. An empty value
 *                 means that the answer can have any format.
 *   `dry_sequence_breakers`  strings at which a repetition ends for the sampler DRY. The default is newline, colon,
 *                 quotation mark and asterisk.
 *   `flags`       bit set of llm_generate_flag.
 *   `boundaries`  ascending token counts (llm_prompt) at which other prompts are likely to diverge. The engine saves
 *                 checkpoints there.
 *   `parent`      name of another session. If `session` does not exist yet, it begins as a fork of the parent. ""
 *                 means no parent.
 *   `n_head`      number of tokens of the prompt's head (llm_prompt), at most the whole prompt. Many conversations
 *                 share a head. So a prompt that has only its head in common with a branch does not continue the
 *                 branch. A checkpoint at the head's end serves every prompt with that head.
 *   `n_logprobs`  for each token, report its log probability and those of the n_logprobs most likely tokens. -1 means
 *                 that no log probabilities are reported. They are the model's, before `sampling` and `logit_bias` are
 *                 applied.
 *   `after`       id of an earlier live generation of the same owner. This generation begins when the earlier
 *                 generation has consumed its prompt or has ended. Thus a common prompt is prefilled only once. If the
 *                 id is 0 or unknown, this generation begins at once. A request for several answers becomes several
 *                 generations. All but the first of them have the first one's id as `after`.
 */

/* Entries of PAUSE, FORK, RENAME, PIN, SAVE, LOAD and UNSAVE:
 *   `paused`      true pauses the generation. A paused generation takes part in no step, but keeps its slot until
 *                 others need the slot. false continues the generation.
 *   `new_session`  name of the fork, or the new name of the session.
 *   `at`          the fork begins with this many tokens of the session. UINT32_MAX means all. The fork has fewer tokens
 *                 if the model's memory and the session's checkpoints do not allow this count.
 *   `replace`     says what happens to an existing session of the new name. true closes that session. false lets the
 *                 fork fail with LLM_EXISTS.
 *   `pinned`      true pins the session. A pinned session is never forgotten or expired, but can be parked. The session
 *                 keeps the branches that it has at the time of the command. A prompt that continues none of these
 *                 branches begins another branch. A quarter of all branches always stays unpinned, and each owner can
 *                 pin its share of the other three quarters. If a pin would exceed this share, the command fails with
 *                 LLM_PINS and changes nothing.
 *   `label`       name of a saved session in the state directory.
 */

/* Which branches a command uses. A session can have several branches (option --session-timelines). GENERATE uses the
 * branch whose history the prompt continues. RESET, CLOSE, PARK, PIN and RENAME apply to all branches. FORK and SAVE
 * use the most recently used branch. LOAD first reads the saved file and then replaces the content of the session. A
 * session that was pinned before the LOAD stays pinned. PARK parks only the idle branches. If a branch is busy, the
 * REPLY has LLM_BUSY.
 *
 * If there was no free entry for a session when the engine started, the session stays on disk for a later start. Until
 * then, only RESET and CLOSE affect the session. A new session of that name is refused with LLM_EXISTS. */

/* Replies and errors of commands. With a state directory, changes that must survive a crash are on disk before the
 * REPLY. These steps precede the REPLY:
 * - PIN, RENAME, SAVE and UNSAVE: their files are written or removed.
 * - RESET and CLOSE: the session's files are removed.
 * - FORK and LOAD: the files of a replaced session are removed.
 * LLM_IO means that the disk refused the change. After LLM_IO, a PIN has not changed the session's pin, and a RENAME
 * has not changed the session's name. A second change of the same pin or name waits for the result of the first.
 *
 * Suppose that the files of a reset, closed or replaced session cannot be removed. The session is then gone from the
 * engine, but the next start can find its files and open the session again. An orderly stop tries again to remove the
 * files. The client can also send the same command again, even a CLOSE of a session that is already closed.
 * LLM_OVERLOADED means that too many commands wait for the disk. The refused command had no effect. RESET and CLOSE
 * never fail with LLM_OVERLOADED.
 *
 * If a session has no usable state, SAVE saves only its tokens. These tokens are prefilled when the session is used
 * after a LOAD. Errors of single commands:
 *   SAVE           LLM_NOT_FOUND (nothing to save), LLM_SAVED_FULL.
 *   LOAD           LLM_NOT_FOUND (no such label), LLM_CAPACITY. LLM_CONTEXT_LENGTH means that the saved session has
 *                  more tokens than a branch can hold now. LLM_VERSION means that the file was refused and renamed.
 *   SAVE and LOAD  LLM_NO_MEMORY, also at the limit on bytes in transfer to or from the disk. The command can be tried
 *                  again later.
 *   FORK and LOAD  LLM_SHUTDOWN (the engine has been stopped and writes no new sessions).
 *
 * Commands are checked strictly. An invalid command is dropped before it enters the ring, with LLM_INVALID. A command
 * is invalid in these cases:
 * - A key is missing, unknown, repeated or not part of the command.
 * - A value has a wrong type or is out of range.
 * - Any byte follows the map.
 */

/* Every command: X(NAME, number). The numbers run from 1 without a gap and never change meaning. */
#define LLM_COMMAND_TABLE(X)                                                                                           \
    X(GENERATE, 1)                                                                                                     \
    X(CANCEL, 2)                                                                                                       \
    X(RESET, 3)                                                                                                        \
    X(CLOSE, 4)                                                                                                        \
    X(PAUSE, 5)                                                                                                        \
    X(FORK, 6)                                                                                                         \
    X(PARK, 7)                                                                                                         \
    X(PIN, 8)                                                                                                          \
    X(RENAME, 9)                                                                                                       \
    X(SAVE, 10)                                                                                                        \
    X(LOAD, 11)                                                                                                        \
    X(UNSAVE, 12)

#define LLM_COMMAND_ENUM(name, number) LLM_COMMAND_##name = number,
#define LLM_COMMAND_COUNT(name, number) +1
typedef enum llm_command_op { LLM_COMMAND_TABLE(LLM_COMMAND_ENUM) } llm_command_op;
enum { LLM_COMMAND_END = 1 LLM_COMMAND_TABLE(LLM_COMMAND_COUNT) };

typedef enum llm_generate_flag {
    LLM_GENERATE_IGNORE_END = 1,      /* the model's end-of-turn tokens are never sampled */
    LLM_GENERATE_COLD = 2,            /* no state is reused. Tests compare answers with and without this flag */
    LLM_GENERATE_RETURN_TOKENS = 4,   /* TEXT also carries tokens. n_logprobs implies this flag */
    LLM_GENERATE_RETURN_CONSUMED = 8, /* CONSUMED events report the progress of prefill */
    LLM_GENERATE_NO_DRAFTS = 16,      /* no model call verifies drafts of this answer. The answer is the same */
    LLM_GENERATE_FLAGS = 31,          /* all flags together */
} llm_generate_flag;

/* Encoding of an entry's value. */
typedef enum llm_field_type {
    LLM_FIELD_UINT,  /* an unsigned integer from `least` to `most` */
    LLM_FIELD_INT,   /* a signed integer from `least` to `most` */
    LLM_FIELD_FLOAT, /* a finite number from `least` to `most` */
    LLM_FIELD_BOOL,
    LLM_FIELD_NAME,     /* str of `least` to `most` printable ASCII characters without spaces */
    LLM_FIELD_TOKENS,   /* bin: at least `least` tokens, int32 little-endian */
    LLM_FIELD_BIASES,   /* bin: at most `most` pairs of (int32 token, float32 bias), little-endian */
    LLM_FIELD_TEXTS,    /* array of at most `most` str */
    LLM_FIELD_SAMPLING, /* a map of sampling parameters */
    LLM_FIELD_BYTES,    /* bin of at most `most` bytes */
} llm_field_type;

/* Sets of commands. */
#define LLM_COMMAND_BIT(name) (1u << LLM_COMMAND_##name)
#define LLM_COMMANDS_LIVE (LLM_COMMAND_BIT(CANCEL) | LLM_COMMAND_BIT(PAUSE))
#define LLM_COMMANDS_OWNED ((1u << LLM_COMMAND_END) - 2u - LLM_COMMANDS_LIVE)
#define LLM_COMMANDS_SESSION (LLM_COMMANDS_OWNED - LLM_COMMAND_BIT(GENERATE) - LLM_COMMAND_BIT(UNSAVE))

/* Every entry of every command. A row is X(type, name, commands that require the entry, commands that allow the entry,
 * least, most, default). `least` of `session` is 0, but only a GENERATE can have an empty name. In the commands of
 * LLM_COMMANDS_SESSION the name has at least one character. */
#define LLM_FIELD_TABLE(X)                                                                                             \
    X(UINT, request, LLM_COMMANDS_OWNED | LLM_COMMANDS_LIVE, 0, 1, UINT64_MAX, 0)                                      \
    X(UINT, owner, LLM_COMMANDS_OWNED, 0, 0, UINT32_MAX, 0)                                                            \
    X(NAME, session, LLM_COMMANDS_SESSION, LLM_COMMAND_BIT(GENERATE), 0, LLM_SESSION_NAME_BYTES_MAX, 0)                \
    X(TOKENS, prompt, LLM_COMMAND_BIT(GENERATE), 0, 1, UINT32_MAX, 0)                                                  \
    X(UINT, max_tokens, 0, LLM_COMMAND_BIT(GENERATE), 0, UINT32_MAX, 0)                                                \
    X(SAMPLING, sampling, 0, LLM_COMMAND_BIT(GENERATE), 0, 0, 0)                                                       \
    X(BIASES, logit_bias, 0, LLM_COMMAND_BIT(GENERATE), 0, LLM_LOGIT_BIASES_MAX, 0)                                    \
    X(TEXTS, stop, 0, LLM_COMMAND_BIT(GENERATE), 0, LLM_STOPS_MAX, 0)                                                  \
    X(UINT, flags, 0, LLM_COMMAND_BIT(GENERATE), 0, LLM_GENERATE_FLAGS, 0)                                             \
    X(TOKENS, boundaries, 0, LLM_COMMAND_BIT(GENERATE), 0, UINT32_MAX, 0)                                              \
    X(NAME, parent, 0, LLM_COMMAND_BIT(GENERATE), 0, LLM_SESSION_NAME_BYTES_MAX, 0)                                    \
    X(UINT, n_head, 0, LLM_COMMAND_BIT(GENERATE), 0, UINT32_MAX, 0)                                                    \
    X(INT, n_logprobs, 0, LLM_COMMAND_BIT(GENERATE), -1, LLM_LOGPROBS_MAX, -1)                                         \
    X(UINT, after, 0, LLM_COMMAND_BIT(GENERATE), 0, UINT64_MAX, 0)                                                     \
    X(TOKENS, stop_tokens, 0, LLM_COMMAND_BIT(GENERATE), 0, LLM_STOP_TOKENS_MAX, 0)                                    \
    X(UINT, min_tokens, 0, LLM_COMMAND_BIT(GENERATE), 0, UINT32_MAX, 0)                                                \
    X(UINT, n_answer_stops, 0, LLM_COMMAND_BIT(GENERATE), 0, LLM_STOPS_MAX, 0)                                         \
    X(BYTES, constraint, 0, LLM_COMMAND_BIT(GENERATE), 0, LLM_CONSTRAINT_BYTES_MAX, 0)                                 \
    X(TEXTS, dry_sequence_breakers, 0, LLM_COMMAND_BIT(GENERATE), 0, LLM_DRY_BREAKERS_MAX, 0)                          \
    X(BOOL, paused, LLM_COMMAND_BIT(PAUSE), 0, 0, 1, 0)                                                                \
    X(NAME, new_session, LLM_COMMAND_BIT(FORK) | LLM_COMMAND_BIT(RENAME), 0, 1, LLM_SESSION_NAME_BYTES_MAX, 0)         \
    X(UINT, at, 0, LLM_COMMAND_BIT(FORK), 0, UINT32_MAX, UINT32_MAX)                                                   \
    X(BOOL, replace, 0, LLM_COMMAND_BIT(FORK), 0, 1, 0)                                                                \
    X(BOOL, pinned, LLM_COMMAND_BIT(PIN), 0, 0, 1, 0)                                                                  \
    X(NAME, label, LLM_COMMAND_BIT(SAVE) | LLM_COMMAND_BIT(LOAD) | LLM_COMMAND_BIT(UNSAVE), 0, 1, LLM_LABEL_BYTES_MAX, \
      0)

/* One row of LLM_FIELD_TABLE or LLM_SAMPLING_TABLE. A program in another language can use the rows to check the entries
 * that it writes. */
typedef struct llm_field {
    const char *name;
    uint32_t type; /* llm_field_type */
    uint32_t is_needed;
    double least, most, otherwise; /* range of the value; `otherwise` is the default if the entry is not required */
} llm_field;

/* Copies the row of the i-th entry of a command, or of the i-th parameter of `sampling`. Returns LLM_OK, or
 * LLM_NOT_FOUND if there is no such row. Any thread. */
LLM_API int llm_command_field(int command, int i, llm_field *out);
LLM_API int llm_sampling_field(int i, llm_field *out);

/* Checks and queues one command, and wakes the decode thread if that thread sleeps. Loop thread. Errors: LLM_INVALID,
 * LLM_FULL, LLM_SHUTDOWN. LLM_FULL is a normal outcome and means that the ring has no room. After an error nothing was
 * queued. */
LLM_API int llm_command_push(llm_engine *engine, const void *message, size_t n_bytes);

/* Returns the name of the invalid entry after llm_command_push has returned LLM_INVALID. For an entry of the map
 * `sampling`, the name is like "sampling.top_p". If the whole message is malformed, the name is "". Valid until the
 * next push. Loop thread. */
LLM_API const char *llm_command_refused(const llm_engine *engine);

/* ---- serving: events --------------------------------------------------------------------------------------- *
 * An event is a MessagePack array of an llm_event_op and the event's members in the order of LLM_EVENT_TABLE. New
 * versions add members only at the end of an event. Empty members at the end of an event can be missing. The bracketed
 * members of TEXT are missing unless the command requested them.
 *
 *   ADMITTED  request, entry
 *   STARTED   request, reason, n_prompt, n_reused, diverged_at
 *   TEXT      request, text, n_tokens [, tokens, ends, logprobs, likeliest]
 *   FINISHED  request, outcome, status, n_prompt, n_reused, n_prefilled, n_generated, n_resident, n_visible,
 *             stop_index, queue_us, prefill_us, decode_us, seed, n_drafted, n_accepted, n_grammar_drafted,
 *             n_grammar_accepted, n_model_drafted, n_model_accepted
 *   REPLY     request, status, entry, n_tokens, os_error
 *   FORGOTTEN owner, session
 *   CONSUMED  request, n_tokens, prefill_us
 */

/* Order of the events. A GENERATE that is refused gets only FINISHED, with the outcome `refused`. Any other GENERATE
 * gets ADMITTED, then STARTED when its branch is free and the source of its state is decided, then TEXT events, then
 * FINISHED. STARTED is missing if the request is cancelled before it starts. All other commands except CANCEL and PAUSE
 * get one REPLY. With LLM_GENERATE_RETURN_CONSUMED, CONSUMED events come between STARTED and the first TEXT, at most
 * one per model call. If events are drained slowly, only the latest CONSUMED is delivered. FORGOTTEN reports that the
 * engine removed a session without a command. The cause is the capacity policy, or the session was idle too long.
 * FORGOTTEN precedes any event of a later session of that name. */

/* Members of events:
 *   `entry`        index of the branch's entry in the session table. In ADMITTED, UINT32_MAX means that the scratch
 *                  branch is not chosen yet.
 *   `n_tokens`     in REPLY, the number of tokens that the session holds after the command. After a SAVE, the number of
 *                  saved tokens. In CONSUMED, the number of prompt tokens that have been consumed.
 *   `os_error`     the errno of the file operation that caused the status LLM_IO. Otherwise 0.
 *   `diverged_at`  first prompt token that differs from the branch's tokens, or -1.
 *   `text`         str: complete characters, never part of a stop string. Invalid bytes became U+FFFD. Empty only if
 *                  the event carries tokens.
 *   `n_tokens`     in TEXT, the number of tokens generated so far. Tokens with text that is still held back count, too.
 *   `tokens`       bin of int32 little-endian: the tokens whose text this event completes. The flag
 *                  LLM_GENERATE_RETURN_TOKENS or n_logprobs requests them. Tokens that ended the turn or were removed
 *                  with a stop string are not reported.
 *   `ends`         bin of uint32 little-endian. For each token, the number of whole characters of `text` up to the
 *                  token's end.
 *   `logprobs`     bin of float32 little-endian: the log probability of each token, at least -9999. n_logprobs requests
 *                  them.
 *   `likeliest`    bin of pairs of int32 token and float32 log probability, little-endian. Each token has n_logprobs
 *                  pairs, the most likely first.
 *   `n_prefilled`  prompt tokens that were consumed. After a cancel, the number can be smaller than n_prompt -
 *                  n_reused.
 *   `n_resident`   tokens that the branch holds after the generation.
 *   `n_visible`    how many of the n_resident tokens the client can have seen. The number is smaller than n_resident if
 *                  the branch could not be truncated before a stop string.
 *   `stop_index`   index of the stop string that was found, or -1.
 *   `seed`         the seed that was used.
 */

typedef enum llm_event_op {
    LLM_EVENT_ADMITTED = 1,
    LLM_EVENT_STARTED = 2,
    LLM_EVENT_TEXT = 3,
    LLM_EVENT_FINISHED = 4,
    LLM_EVENT_REPLY = 5,
    LLM_EVENT_FORGOTTEN = 6,
    LLM_EVENT_CONSUMED = 7,
} llm_event_op;

/* Every member of every event: X(EVENT, member), in the order on the wire. */
#define LLM_EVENT_TABLE(X)                                                                                             \
    X(ADMITTED, request)                                                                                               \
    X(ADMITTED, entry)                                                                                                 \
    X(STARTED, request)                                                                                                \
    X(STARTED, reason)                                                                                                 \
    X(STARTED, n_prompt)                                                                                               \
    X(STARTED, n_reused)                                                                                               \
    X(STARTED, diverged_at)                                                                                            \
    X(TEXT, request)                                                                                                   \
    X(TEXT, text)                                                                                                      \
    X(TEXT, n_tokens)                                                                                                  \
    X(TEXT, tokens)                                                                                                    \
    X(TEXT, ends)                                                                                                      \
    X(TEXT, logprobs)                                                                                                  \
    X(TEXT, likeliest)                                                                                                 \
    X(FINISHED, request)                                                                                               \
    X(FINISHED, outcome)                                                                                               \
    X(FINISHED, status)                                                                                                \
    X(FINISHED, n_prompt)                                                                                              \
    X(FINISHED, n_reused)                                                                                              \
    X(FINISHED, n_prefilled)                                                                                           \
    X(FINISHED, n_generated)                                                                                           \
    X(FINISHED, n_resident)                                                                                            \
    X(FINISHED, n_visible)                                                                                             \
    X(FINISHED, stop_index)                                                                                            \
    X(FINISHED, queue_us)                                                                                              \
    X(FINISHED, prefill_us)                                                                                            \
    X(FINISHED, decode_us)                                                                                             \
    X(FINISHED, seed)                                                                                                  \
    X(FINISHED, n_drafted)                                                                                             \
    X(FINISHED, n_accepted)                                                                                            \
    X(FINISHED, n_grammar_drafted)                                                                                     \
    X(FINISHED, n_grammar_accepted)                                                                                    \
    X(FINISHED, n_model_drafted)                                                                                       \
    X(FINISHED, n_model_accepted)                                                                                      \
    X(REPLY, request)                                                                                                  \
    X(REPLY, status)                                                                                                   \
    X(REPLY, entry)                                                                                                    \
    X(REPLY, n_tokens)                                                                                                 \
    X(REPLY, os_error)                                                                                                 \
    X(FORGOTTEN, owner)                                                                                                \
    X(FORGOTTEN, session)                                                                                              \
    X(CONSUMED, request)                                                                                               \
    X(CONSUMED, n_tokens)                                                                                              \
    X(CONSUMED, prefill_us)

/* Returns the name of the i-th member of an event, or NULL if the event has at most i members. Any thread. The strings
 * are static. */
LLM_API const char *llm_event_member(int event, int i);

/* Returns a file descriptor that is readable while events wait. The caller's event loop can watch it. The engine owns
 * the descriptor. Loop thread. */
LLM_API int llm_events_fd(const llm_engine *engine);

/* Moves waiting events into `out` as one MessagePack array of events. If all events fit, the descriptor (llm_events_fd)
 * is no longer readable afterwards. Returns the number of bytes written, or 0 if no event waits. A buffer of
 * LLM_DRAIN_BYTES_MIN bytes or more always has room for at least one event. Loop thread. */
enum { LLM_DRAIN_BYTES_MIN = 262144 };
LLM_API int64_t llm_events_drain(llm_engine *engine, void *out, size_t n_bytes);

#ifndef LLM_CFFI
#ifdef __cplusplus
}
#endif
#endif
#endif
