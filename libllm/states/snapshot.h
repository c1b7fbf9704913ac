/* snapshot.h: a session as two files. No thread of its own: the store thread writes and reads, the opener scans.
 *
 *   ID.llmd-session   small, rewritten whenever a change must last: identity of the branch, and all its tokens
 *       head          magic, version, sizes, id, name, pin, stamps, model identity, checksum of the head
 *       tokens        int32[n_tokens]
 *       checksum      of the tokens
 *
 *   ID.llmd-state     large, never changed: the model's state after the first k of these tokens
 *       head          magic, version, sizes, k, hash of the k tokens, geometry, checksum of the head
 *       parts         part head + state + logits, each: first the whole state, then checkpoints of shorter prefixes
 *       checksum      of everything behind the head
 *
 * The branch file knows nothing of the state file: a state is one of this session iff its hash is that of the session's
 * first k tokens. So any mix that a crash leaves is safe, and a session whose state is gone is read again from its
 * tokens.
 *
 * All in the byte order and layout of the writing machine: the heads' sizes refuse any other. Nothing in a file is
 * trusted before its checksum is right; a branch file of another model (identity) and a state of another memory layout
 * (geometry) are told apart from damage. */
#ifndef LLM_SNAPSHOT_H
#define LLM_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "states/ledger.h"
#include "llm.h"
#include "states/token_hash.h"

enum { SNAPSHOT_PARTS_MAX = 64 };

/* Endings of the files, and of those that are being written. */
#define SNAPSHOT_BRANCH "llmd-session"
#define SNAPSHOT_BRANCH_WRITING "writing"
#define SNAPSHOT_STATE "llmd-state"
#define SNAPSHOT_STATE_WRITING "writing-state"

typedef struct branch_file {
    uint64_t id;
    uint32_t owner;
    bool is_pinned;
    char name[LLM_SESSION_NAME_BYTES_MAX + 1];
    uint64_t opened_ms;
    uint64_t used_ms;
    int32_t *tokens; /* owned */
    uint32_t n_tokens;
} branch_file;

/* A state after k tokens, optionally with the logits after the k-th; laid out like a checkpoint's blob. */
typedef struct state_part {
    uint32_t k;
    bool is_whole;
    size_t n_state_bytes;
    uint32_t n_logits;
    blob *held; /* while writing: held by the job, as in flight; after reading: held by nothing yet */
} state_part;

/* The token counts of its parts. A branch that has at least so many of the same tokens can continue from there. */
typedef struct state_ends {
    uint32_t n; /* 0: unknown */
    uint32_t k[SNAPSHOT_PARTS_MAX];
} state_ends;

typedef struct state_file {
    uint32_t k; /* tokens that the state covers */
    token_hash hash;
    uint32_t n_parts; /* 0: there is no state */
    state_part parts[SNAPSHOT_PARTS_MAX];
} state_file;

/* The facts in the head of a state file. */
typedef struct state_facts {
    bool is_there;
    bool is_of_other_geometry;
    uint32_t k;
    token_hash hash;
    uint64_t n_bytes; /* of all parts: the bytes to read */
    state_ends ends;  /* of its parts, if requested; else unknown */
} state_facts;

void branch_file_clear(branch_file *f); /* frees the tokens */
/* frees parts that were read; parts that were to be written must be dropped before (ledger.h) */
void state_file_clear(state_file *f);
uint64_t state_file_bytes(const state_file *f);
state_ends state_file_ends(const state_file *f);

/* Returns the largest of these counts that is at most n; 0: none. */
uint32_t state_ends_within(const state_ends *e, uint32_t n_tokens);

/* Whether a state of k tokens with that hash belongs to these tokens. */
bool state_matches(uint32_t k, token_hash hash, const int32_t *tokens, uint32_t n_tokens);

/* ---- the branch file ---- */

/* Writes the file under its temporary name; branch_file_commit renames it, and durable_sync must follow. LLM_OK, or
 * LLM_IO with errno; then no temporary file is left. */
int branch_file_prepare(const char *directory, const uint8_t identity[16], const branch_file *f);
int branch_file_commit(const char *directory, uint64_t id);
void branch_file_abandon(const char *directory, uint64_t id);

/* Does all three steps, durable_sync included. */
int branch_file_write(const char *directory, const uint8_t identity[16], const branch_file *f);

/* LLM_OK; LLM_NOT_FOUND; LLM_IO; LLM_VERSION (no branch file, damaged, or of another model; `why` says which);
 * LLM_NO_MEMORY. */
int branch_file_read(const char *directory, uint64_t id, const uint8_t identity[16], branch_file *out,
                     const char **why);

/* ---- the state file ---- */

int state_file_write(const char *directory, uint64_t id, const uint8_t geometry[16], const state_file *f);

/* Reads the head and, with looks_at_parts, those of the parts: one seek per part on a slow disk. Their counts stay unknown if a
 * head is invalid, which reading the file will report. LLM_OK with is_there false if there is no file. */
int state_file_look(const char *directory, uint64_t id, const uint8_t geometry[16], bool looks_at_parts,
                    state_facts *out, const char **why);

/* Allocates at most n_bytes_max, whatever the file says. Returns as branch_file_read does; LLM_VERSION also for another
 * geometry. */
int state_file_read(const char *directory, uint64_t id, const uint8_t geometry[16], uint64_t n_bytes_max,
                    state_file *out, const char **why);

/* ---- both: snapshot_directory.c ---- */

/* Removes both files, the branch file first: a state file alone is useless, and the next start removes it. LLM_OK or
 * LLM_IO. */
int snapshot_remove_branch(const char *directory, uint64_t id);
int snapshot_remove_state(const char *directory, uint64_t id);

/* Gives the state file a second name, which is safe as state files never change. LLM_OK or LLM_IO. */
int snapshot_link_state(const char *from_directory, uint64_t from, const char *to_directory, uint64_t to);

/* Renames a file that must not be read again to ID.refused or ID.refused-state. */
void snapshot_set_branch_aside(const char *directory, uint64_t id);
void snapshot_set_state_aside(const char *directory, uint64_t id);

/* Calls `found` for each branch file in the directory; then removes temporary files and state files without a branch
 * file, which a crash left. LLM_OK or LLM_IO. */
int snapshot_scan(const char *directory, void (*found)(void *context, uint64_t id), void *context);

#endif
