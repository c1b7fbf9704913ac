/* llm_wire.h: serving: the commands to the decode thread and the events from it, both MessagePack. Every name on the
 * wire is in one of the tables here, with which a program in another language can compare its own.
 *
 * This file is read by cffi after the preprocessor, with LLM_CFFI defined.
 */
#ifndef LLM_WIRE_H
#define LLM_WIRE_H

#include "llm.h"

#ifndef LLM_CFFI
#ifdef __cplusplus
extern "C" {
#endif
#endif

/* ---- serving: commands ------------------------------------------------------------------------------------- *
 * One thread pushes, and the same thread drains. A command is one MessagePack map, nothing after it. Its first entry is
 * "op": llm_command_op; the others come in any order, each at most once. LLM_COMMAND_TABLE names the commands and
 * LLM_FIELD_TABLE the entries:
 *
 *   request     chosen by the caller, unique among live requests. In CANCEL and PAUSE: the generation to act on (an
 *               unknown one is ignored: it has just ended).
 *   owner       the requester. Sessions of different owners are separate, also if they have the same name.
 *   session     "" for scratch, where the table allows it
 *   prompt      token ids, at least one
 *   max_tokens  0: as many as the context holds. Always clamped to that.
 *   sampling    map of LLM_SAMPLING_TABLE: a parameter that is left out has its default
 *   logit_bias  pairs of token and finite bias
 *   stop        strings, none of them empty
 *   n_answer_stops  the first n of `stop` are not searched for in reasoning and the blanks after it, if `constraint`
 *               describes reasoning
 *   stop_tokens end the answer as the model's own end tokens do
 *   min_tokens  until then the answer does not end by itself: no token that ends it is sampled, no stop string searched for
 *   constraint  the form that the answer must have: JSON of llm_constraint_make and llm_chat_render; empty: none
 *   dry_sequence_breakers  texts that end a repetition for DRY; left out: newline, colon, quotation mark, asterisk
 *   flags       bit set of llm_generate_flag
 *   boundaries  ascending token counts at which histories are likely to diverge (llm_prompt): checkpoints are taken there
 *   parent      if the session does not exist, it begins as a fork of this one; "": no parent
 *   n_head      tokens at the prompt's beginning that many conversations share (llm_prompt), at most the whole prompt.
 *               They do not count when a branch is chosen for a prompt, and their state is kept for all.
 *   n_logprobs  return the log probability of each token and of that many most likely ones; -1: none. They are taken from
 *               the model's own distribution, before `sampling` and `logit_bias` are applied.
 *   after       a live, earlier generation of the same owner: this one begins when that one has consumed its prompt or
 *               ended, so that tokens which both have are consumed once; 0 or unknown: at once. A request for several
 *               answers is several generations, all but the first `after` the first.
 *   paused      a paused generation keeps its slot and is not stepped
 *   at          the fork begins with that many of the session's tokens, or as close below as its memory and checkpoints
 *               allow; UINT32_MAX: all
 *   replace     true: a session that already has the new name is closed; false: LLM_EXISTS
 *   pinned      a pinned session is never forgotten or expired, but can be parked. The branches that it has at that moment
 *               are kept: a prompt that continues none of them gets another branch. A quarter of all entries stays
 *               unpinned, and of the rest each owner has its share: beyond that LLM_PINS, and nothing is changed.
 *   label       the name of a saved session in the state directory
 *
 * A session has a few branches (see --session-timelines): GENERATE goes to the one that the prompt continues; RESET,
 * CLOSE, PARK, PIN and RENAME act on all; FORK and SAVE take the one used last. LOAD replaces the contents of a session
 * of that name once the saved files are read; the pin stays. PARK skips branches that are busy (LLM_BUSY).
 *
 * A session for which a start found no entry stays on disk for a later start. Only RESET and CLOSE act on it, and its
 * name is taken (LLM_EXISTS).
 *
 * With a state directory, a reply comes after the change is on disk: for PIN, RENAME, RESET, CLOSE, SAVE and UNSAVE
 * when their files are written or removed, for FORK and LOAD when the files of the session that they replace are
 * removed. LLM_IO: the disk refused the change. A pin or a name is then restored, and a second change of them waits
 * until the first is decided. A session that was reset, closed or replaced stays so, but its file may come back with
 * the next start. A repeated command tries again, also a CLOSE of a session that is already closed; so does an orderly
 * stop. LLM_OVERLOADED: too many commands wait for the disk, and nothing was done; never returned to RESET and CLOSE.
 * SAVE and LOAD: LLM_NO_MEMORY also if the limit on bytes on their way to or from disk is reached: try again. SAVE:
 * LLM_NOT_FOUND (nothing to save), LLM_SAVED_FULL. If the session's state is lost, its tokens are saved, and a later
 * use prefills them. LOAD: LLM_NOT_FOUND (no such label), LLM_CONTEXT_LENGTH (more tokens than a session can hold now),
 * LLM_VERSION (its file was refused and set aside), LLM_CAPACITY.
 * FORK and LOAD: LLM_SHUTDOWN (the engine has been stopped and would not write the new session).
 *
 * The reader is strict: LLM_INVALID if an entry is unknown, doubled, missing, not one of this command, or of another
 * type or range, or if bytes follow the map. The message is then dropped before it enters the ring.
 */

/* X(NAME, number), from 1 without a gap. Numbers never change meaning. */
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
    LLM_GENERATE_COLD = 2,            /* reuse no state: the reference that every reuse must equal */
    LLM_GENERATE_RETURN_TOKENS = 4,   /* TEXT carries the tokens, too; implied by n_logprobs */
    LLM_GENERATE_RETURN_CONSUMED = 8, /* CONSUMED reports the progress of the prompt */
    LLM_GENERATE_FLAGS = 15,          /* all of them */
} llm_generate_flag;

/* How the value of an entry is written. */
typedef enum llm_field_type {
    LLM_FIELD_UINT,  /* an integer from least to most */
    LLM_FIELD_INT,   /* a signed integer from least to most */
    LLM_FIELD_FLOAT, /* a finite number from least to most */
    LLM_FIELD_BOOL,
    LLM_FIELD_NAME,     /* str of least to most printable ASCII characters without spaces */
    LLM_FIELD_TOKENS,   /* bin: int32 little-endian, at least `least` of them */
    LLM_FIELD_BIASES,   /* bin: pairs of (int32 token, float32 bias), little-endian, at most `most` of them */
    LLM_FIELD_TEXTS,    /* array of at most `most` str */
    LLM_FIELD_SAMPLING, /* map */
    LLM_FIELD_BYTES,    /* bin of at most `most` bytes */
} llm_field_type;

/* Sets of commands. */
#define LLM_COMMAND_BIT(name) (1u << LLM_COMMAND_##name)
#define LLM_COMMANDS_LIVE (LLM_COMMAND_BIT(CANCEL) | LLM_COMMAND_BIT(PAUSE))
#define LLM_COMMANDS_OWNED ((1u << LLM_COMMAND_END) - 2u - LLM_COMMANDS_LIVE)
#define LLM_COMMANDS_SESSION (LLM_COMMANDS_OWNED - LLM_COMMAND_BIT(GENERATE) - LLM_COMMAND_BIT(UNSAVE))

/* Every entry of every command: X(type, name, commands that need it, commands that may have it, least, most, default).
 * A name of LLM_COMMANDS_SESSION has at least one character, whatever `least` says of GENERATE. */
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

/* A row of these tables, so that a program in another language can compare its own with them. */
typedef struct llm_field {
    const char *name;
    uint32_t type; /* llm_field_type */
    uint32_t is_needed;
    double least, most, otherwise; /* otherwise: the default of an entry that is not needed */
} llm_field;

/* Describe the i-th entry of a command, or parameter of `sampling`. LLM_OK, LLM_NOT_FOUND (there are no more). Any
 * thread. */
LLM_API int llm_command_field(int command, int i, llm_field *out);
LLM_API int llm_sampling_field(int i, llm_field *out);

/* Checks and queues one command, and wakes the decode thread if it sleeps. Loop thread.
 * LLM_INVALID, LLM_FULL (nothing was queued; a normal outcome), LLM_SHUTDOWN. */
LLM_API int llm_command_push(llm_engine *engine, const void *message, size_t n_bytes);

/* Returns the entry that the last llm_command_push refused with LLM_INVALID ("sampling.top_p" within a map); "" if the
 * message as a whole was wrong. Valid until the next push. Loop thread. */
LLM_API const char *llm_command_refused(const llm_engine *engine);

/* ---- serving: events --------------------------------------------------------------------------------------- *
 * An event is a MessagePack array: its llm_event_op, then its members in the order of LLM_EVENT_TABLE. New members are
 * only added at an event's end; empty members at the end may be left out (those of TEXT in brackets are left out unless
 * requested).
 *
 *   ADMITTED  request, entry
 *   STARTED   request, reason, n_prompt, n_reused, diverged_at
 *   TEXT      request, text, n_tokens [, tokens, ends, logprobs, likeliest]
 *   FINISHED  request, outcome, status, n_prompt, n_reused, n_prefilled, n_generated, n_resident, n_visible, stop_index,
 *             queue_us, prefill_us, decode_us, seed
 *   REPLY     request, status, entry, n_tokens, os_error
 *   FORGOTTEN owner, session
 *   CONSUMED  request, n_tokens, prefill_us
 *
 * A GENERATE gets either FINISHED(refused) alone, or ADMITTED, then STARTED when its session is free and its resume
 * is decided (absent if it is cancelled before), then TEXT..., then FINISHED. All other commands but CANCEL and PAUSE
 * get one REPLY. CONSUMED comes between STARTED and the first TEXT, with LLM_GENERATE_RETURN_CONSUMED, at most once for
 * each model call: a slow client gets only the latest one. FORGOTTEN says that a session was given up without a
 * command, by the capacity policy or because it expired; it comes before any event of a later session of that name.
 *
 *   entry        the session's entry in the session table; UINT32_MAX in ADMITTED: not known yet (scratch)
 *   n_tokens     in REPLY: tokens that the session holds afterwards; in the reply to a SAVE: tokens saved; in CONSUMED:
 *                tokens of the prompt that the session holds by now
 *   os_error     errno of the file operation that failed, if the status is LLM_IO and one did, else 0
 *   diverged_at  first prompt token that differs from what was resident, or -1
 *   text         str: whole characters, never part of a stop string; invalid bytes became U+FFFD. Empty only if the event
 *                has tokens
 *   n_tokens     in TEXT: tokens generated so far, including tokens whose text is held back
 *   tokens       bin: int32 little-endian: the tokens whose text is complete with this event (with
 *                LLM_GENERATE_RETURN_TOKENS or n_logprobs). A token that ended the turn, or was cut off with a stop string,
 *                is not returned.
 *   ends         bin: uint32 little-endian, for each of them the number of characters of `text` up to its end; a token that
 *                ends within a character ends before that character here
 *   logprobs     bin: float32 little-endian, for each of them its log probability, at least -9999 (with n_logprobs)
 *   likeliest    bin: for each of them n_logprobs pairs of (int32 token, float32 log probability), little-endian, the
 *                likeliest first
 *   n_prefilled  prompt tokens really consumed (less than n_prompt - n_reused after a cancel)
 *   n_resident   tokens the session holds afterwards
 *   n_visible    how many of these the client can have seen (fewer after a stop string that could not be truncated)
 *   stop_index   which stop string, or -1
 *   seed         the seed used
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

/* X(EVENT, member), in the order on the wire. */
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

/* Returns the i-th member of an event; NULL: there are no more. Any thread; static strings. */
LLM_API const char *llm_event_member(int event, int i);

/* Readable when events wait: add it to the event loop. Owned by the engine. Loop thread. */
LLM_API int llm_events_fd(const llm_engine *engine);

/* Moves waiting events into `out` as ONE MessagePack array of events and clears the descriptor when all were
 * taken. Returns bytes written, 0 when nothing waits. A buffer of LLM_DRAIN_BYTES_MIN or more always makes
 * progress. Loop thread. */
enum { LLM_DRAIN_BYTES_MIN = 262144 };
LLM_API int64_t llm_events_drain(llm_engine *engine, void *out, size_t n_bytes);

#ifndef LLM_CFFI
#ifdef __cplusplus
}
#endif
#endif
#endif
