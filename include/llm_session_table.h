/* llm_session_table.h: the session table of one engine. The table contains a record of each open branch, the tokens
 * that the branch has consumed, and the engine's counters. Only the decode thread writes the table. The event loop,
 * llmctl in another process, and the next daemon after a crash read the table. Readers take no lock and never delay the
 * writer.
 *
 *   offset 0        llm_session_table_header  fixed facts, written before the magic number that makes the segment valid
 *   counters_at     uint64 counters[]         each counter is atomic
 *   entries_at      llm_session_table_entry entries[n_entries]
 *   tokens_at       int32 tokens[n_entries][n_ctx]
 *
 * Each entry has one commit word:  generation << 32 | closed << 31 | name index << 30 | n_tokens.
 *   append     write tokens, then store the word with the larger count (release)
 *   truncate   store the word with generation + 1 and the smaller count, fence, and only then overwrite tokens
 *   open/close store the word with generation + 1 and `closed`, fence, change the record. To open an entry, store the
 *              word again with generation + 1 and without `closed`
 *   rename     write the name buffer that is not in use, then store the word with generation + 1 and the index of
 *              this buffer
 *   read       load the word (acquire). If `closed` is set, the entry has no branch. Otherwise copy, fence, and load
 *              the word again. If the generation has changed, begin again. Otherwise the copy is valid. Tokens that
 *              were appended meanwhile do no harm.
 *
 * If the writer dies, the table stays readable. No reader ever waits for a lock.
 */
#ifndef LLM_SESSION_TABLE_H
#define LLM_SESSION_TABLE_H

#ifndef LLM_CFFI
#include "llm.h"
#ifdef __cplusplus
extern "C" {
#endif
#endif

enum { LLM_SESSION_TABLE_VERSION = 10 };

/* X(NAME, prometheus name, kind c|t|g, help). The session table, /metrics and llmctl are made from this list. Kinds: c
 * is a counter, g is a gauge, t is a counter of time. Times are microseconds in the session table, and seconds in
 * /metrics and llmctl. */
#define LLM_COUNTER_TABLE(X)                                                                                           \
    X(STEPS, "steps_total", 'c', "Model steps run.")                                                                   \
    X(STEP_US, "step_seconds_total", 't', "Time spent inside model steps.")                                            \
    X(PREFILL_TOKENS, "prefill_tokens_total", 'c', "Prompt tokens prefilled.")                                         \
    X(DECODE_TOKENS, "decode_tokens_total", 'c', "Tokens generated.")                                                  \
    X(DRAFTED_TOKENS, "drafted_tokens_total", 'c', "Draft tokens that the model has verified.")                        \
    X(ACCEPTED_TOKENS, "accepted_tokens_total", 'c', "Draft tokens that became part of an answer.")                    \
    X(GRAMMAR_DRAFTED_TOKENS, "grammar_drafted_tokens_total", 'c', "Verified draft tokens from a grammar.")            \
    X(GRAMMAR_ACCEPTED_TOKENS, "grammar_accepted_tokens_total", 'c', "Accepted draft tokens from a grammar.")          \
    X(MODEL_DRAFTED_TOKENS, "model_drafted_tokens_total", 'c', "Verified draft tokens from the draft model.")          \
    X(MODEL_ACCEPTED_TOKENS, "model_accepted_tokens_total", 'c', "Accepted draft tokens from the draft model.")        \
    X(REUSED_TOKENS, "reused_tokens_total", 'c', "Prompt tokens whose state was reused.")                              \
    X(STARTED_NEW, "started_new_total", 'c', "Requests started with reason new.")                                      \
    X(STARTED_EXACT_PREFIX, "started_exact_prefix_total", 'c', "Requests started with reason exact_prefix.")           \
    X(STARTED_EQUAL, "started_equal_total", 'c', "Requests started with reason equal.")                                \
    X(STARTED_REWIND, "started_rewind_total", 'c', "Requests started with reason rewind.")                             \
    X(STARTED_CHECKPOINT, "started_checkpoint_total", 'c', "Requests started with reason checkpoint.")                 \
    X(STARTED_SHARED, "started_shared_total", 'c', "Requests started with reason shared.")                             \
    X(STARTED_RESTORED, "started_restored_total", 'c', "Requests started with reason restored.")                       \
    X(STARTED_MISMATCH, "started_mismatch_total", 'c', "Requests started with reason mismatch.")                       \
    X(STARTED_TORN, "started_torn_total", 'c', "Requests started with reason torn.")                                   \
    X(FINISHED_END, "finished_end_total", 'c', "Requests that ended because the model ended its turn.")                \
    X(FINISHED_STOP, "finished_stop_total", 'c', "Requests that ended at a stop string.")                              \
    X(FINISHED_LENGTH, "finished_length_total", 'c', "Requests that ended at max_tokens or a full context.")           \
    X(FINISHED_CANCELLED, "finished_cancelled_total", 'c', "Requests cancelled.")                                      \
    X(FINISHED_REFUSED, "finished_refused_total", 'c', "Requests refused by the engine.")                              \
    X(FINISHED_FAILED, "finished_failed_total", 'c', "Requests that failed in the model.")                             \
    X(FINISHED_SHUTDOWN, "finished_shutdown_total", 'c', "Requests ended by shutdown.")                                \
    X(SESSIONS_OPENED, "sessions_opened_total", 'c', "Sessions opened.")                                               \
    X(SESSIONS_EVICTED, "sessions_evicted_total", 'c', "Idle sessions forgotten to make room.")                        \
    X(SESSIONS_EXPIRED, "sessions_expired_total", 'c', "Idle sessions forgotten after --session-idle-time.")           \
    X(SESSIONS_PARKED_TOTAL, "parks_total", 'c', "Sessions moved out of the model's memory.")                          \
    X(SESSIONS_UNPARKED_TOTAL, "unparks_total", 'c', "Parked sessions moved back.")                                    \
    X(PARKED_DROPPED, "parked_dropped_total", 'c', "Parked states lost: no memory, no disk, or a refused file.")       \
    X(PARKED_FETCHED, "parked_fetched_total", 'c', "Parked states read from the disk for another session's prompt.")   \
    X(BRANCHES_KEPT, "branches_kept_total", 'c', "Copies of branches made before a truncation.")                       \
    X(PREEMPTIONS, "preemptions_total", 'c', "Running sessions parked because no KV cells were free.")                 \
    X(STEPS_FAILED, "steps_failed_total", 'c', "Model steps that failed.")                                             \
    X(OUTBOX_STALLS, "outbox_stalls_total", 'c', "Times that events had to wait because the event ring was full.")     \
    X(HEARTBEAT, "heartbeat_total", 'c', "Loops of the decode thread.")                                                \
    X(IN_STEP, "in_step", 'g', "1 while the decode thread is inside a model step.")                                    \
    X(SESSIONS_OPEN, "sessions_open", 'g', "Sessions open, scratch included.")                                         \
    X(SESSIONS_NAMED, "sessions_named", 'g', "Named sessions open.")                                                   \
    X(REQUESTS_RUNNING, "requests_running", 'g', "Requests in prefill or decode.")                                     \
    X(REQUESTS_WAITING, "requests_waiting", 'g', "Requests waiting for their session.")                                \
    X(REQUESTS_EARLY, "requests_waiting_for_prefill", 'g', "Requests waiting for another request's prefill.")          \
    X(SESSIONS_PARKED, "sessions_parked", 'g', "Open sessions without a slot in the model's memory.")                  \
    X(PARKED_BYTES, "parked_bytes", 'g', "Bytes of parked states, in host memory and on disk.")                        \
    X(PARKED_MEMORY_BYTES, "parked_memory_bytes", 'g', "Host memory of parked states.")                                \
    X(IN_FLIGHT_BYTES, "in_flight_bytes", 'g', "Host memory of states on their way to or from disk.")                  \
    X(PARKED_DISK_BYTES, "parked_disk_bytes", 'g', "Disk space of states of sessions, sessions in use included.")      \
    X(PARKED_DISK_REFUSES, "parked_disk_refuses", 'g', "1 while llmd writes no states because a write has failed.")    \
    X(SESSIONS_DORMANT, "sessions_dormant", 'g', "Sessions on disk that got no entry at the start.")                   \
    X(SESSIONS_SAVED, "sessions_saved_total", 'c', "Sessions that the orderly stop has written so far.")               \
    X(CHECKPOINTS, "checkpoints", 'g', "Checkpoints in memory.")                                                       \
    X(CHECKPOINT_BYTES, "checkpoint_bytes", 'g', "Host memory of checkpoints.")                                        \
    X(CHECKPOINTS_EVICTED, "checkpoints_evicted_total", 'c', "Checkpoints evicted to make room.")                      \
    X(CELLS_USED, "kv_cells_used", 'g', "Tokens of the branches in slots. Branches can share KV cells.")               \
    X(STATE_USED, "state_used_bytes", 'g', "Bytes of llmd_state_bytes that sessions use.")

#define LLM_COUNTER_ENUM(name, metric, kind, help) LLM_COUNTER_##name,
typedef enum llm_counter { LLM_COUNTER_TABLE(LLM_COUNTER_ENUM) LLM_COUNTER_N } llm_counter;

LLM_API const char *llm_counter_name(int counter); /* for example "steps_total". NULL for a number outside the table */
LLM_API const char *llm_counter_help(int counter);
LLM_API int llm_counter_is_gauge(int counter);
/* Whether the counter is a time. Times are microseconds in the table, although the counters' names say seconds. */
LLM_API int llm_counter_is_time(int counter);

/* How a branch is pinned. */
typedef enum llm_pin {
    LLM_PIN_NONE = 0,
    LLM_PIN_ANCHORED = 1, /* the branch was open when its session was pinned. The branch is never forgotten, expired
                           * or replaced */
    LLM_PIN_SESSION = 2,  /* the branch was opened after its session was pinned. The branch is never forgotten or
                           * expired, but a new branch of the session can replace it */
} llm_pin;

/* What the decode thread reports about an open branch. A row is X(type, member, text). The branch's record, the session
 * table and llm_branch_view are made from this list. To add a member, change every place that tests/test_travels.py
 * lists. */
#define LLM_BRANCH_RECORD_TABLE(X)                                                                                     \
    X(uint32_t, state, "llm_state")                                                                                    \
    X(uint32_t, kept_in, "llm_place of the state")                                                                     \
    X(uint32_t, reason, "llm_reason of the last start")                                                                \
    X(uint32_t, n_visible, "resident tokens that the client can have seen")                                            \
    X(uint32_t, n_waiting, "requests that wait for the running one")                                                   \
    X(uint32_t, n_requests, "generations started")                                                                     \
    X(uint32_t, is_pinned, "llm_pin")                                                                                  \
    X(int32_t, diverged_at, "first token of the last prompt that was not resident, or -1")                             \
    X(uint32_t, n_last_prompt, "tokens of the last prompt")                                                            \
    X(uint32_t, n_last_reused, "tokens of the last prompt whose state was reused")                                     \
    X(uint64_t, n_prefilled_total, "prompt tokens consumed")                                                           \
    X(uint64_t, n_reused_total, "prompt tokens whose state was reused")                                                \
    X(uint64_t, n_generated_total, "tokens generated")                                                                 \
    X(uint64_t, memory_bytes, "memory of the state, in a slot or in host memory; shared memory is counted once")       \
    X(uint64_t, checkpoint_bytes, "host memory of the checkpoints that the branch saved or restored last")             \
    X(uint64_t, disk_bytes, "size of the state file")                                                                  \
    X(uint64_t, opened_ms, "CLOCK_REALTIME; for a branch from an earlier daemon, when it was first opened")            \
    X(uint64_t, used_ms, "CLOCK_REALTIME of the last use")

#define LLM_BRANCH_RECORD_MEMBER(type, member, text) type member;

/* A consistent copy of one branch's record. */
typedef struct llm_branch_view {
    uint32_t entry;
    uint32_t owner;
    uint32_t generation; /* number of changes of the entry, appends of tokens not counted */
    uint32_t n_tokens;   /* resident */
    /* Number of this branch. The number never changes. The names of the branch's files contain it, so that the next
     * daemon recognizes these files. */
    uint64_t id;
    LLM_BRANCH_RECORD_TABLE(LLM_BRANCH_RECORD_MEMBER)
    char name[LLM_SESSION_NAME_BYTES_MAX + 8]; /* "" for scratch */
} llm_branch_view;

typedef struct llm_session_table_view {
    uint32_t version;
    uint32_t n_entries;
    uint32_t n_ctx;
    uint32_t n_counters;
    int64_t pid;
    uint64_t started_ms; /* time at which the table was made (CLOCK_REALTIME) */
    uint64_t bytes;
    char model[128];
    char fingerprint[40];
} llm_session_table_view;

typedef struct llm_session_table llm_session_table;

/* Opens another engine's session table for reading. The shared memory must belong to the user `owner`, where -1 stands
 * for the user of this process. No other user may be able to write the shared memory. Both are checked, because any
 * user can create shared memory with this name. The table is read with read calls and not through a mapping. So a table
 * that is truncated meanwhile causes an error and not a signal. Any process. Close with llm_session_table_close.
 * Errors:
 * - LLM_NOT_FOUND.
 * - LLM_VERSION: the table has another version, or the file is not a session table.
 * - LLM_IO, also if another user owns the file or can write it. */
LLM_API int llm_session_table_open(const char *name, int64_t owner, llm_session_table **out);
LLM_API void llm_session_table_close(llm_session_table *table);

/* Returns the engine's own session table, for readers in this process. The caller must not close this table. Any
 * thread. */
LLM_API const llm_session_table *llm_engine_session_table(const llm_engine *engine);

/* The next functions read a table. Any thread, any process. */
LLM_API void llm_session_table_read(const llm_session_table *table, llm_session_table_view *out);
LLM_API uint64_t llm_session_table_counter(const llm_session_table *table, int counter);
/* Copies the record of the entry's branch. Returns LLM_NOT_FOUND if the entry has no branch. */
LLM_API int llm_session_table_entry(const llm_session_table *table, uint32_t entry, llm_branch_view *out);
/* Copies the tokens of the entry's branch and returns their count. Returns -1 if the entry has no branch. Returns
 * -count-1 if `n_out` is too small. *generation receives the generation of the copied tokens. `generation` may be
 * NULL. */
LLM_API int64_t llm_session_table_tokens(const llm_session_table *table, uint32_t entry, int32_t *out, size_t n_out,
                                         uint32_t *generation);

#ifndef LLM_CFFI
#ifdef __cplusplus
}
#endif
#endif
#endif
