/* snapshot.h: a session as two files. No thread of its own: the store thread writes and reads, the opener scans.
 *
 *   ID.llmd-session   small, written anew whenever something of it must last: who the session is, and all its tokens
 *       head          magic, version, sizes, id, name, pin, stamps, model identity, checksum of the head
 *       tokens        int32[n_tokens]
 *       checksum      of the tokens
 *
 *   ID.llmd-state     large, and never changed: what the model's memory held after the first k of these tokens
 *       head          magic, version, sizes, k, hash of the k tokens, geometry, checksum of the head
 *       parts         part head + state + logits, each: first the whole state, then checkpoints of shorter prefixes
 *       checksum      of everything behind the head
 *
 * The branch file knows nothing of the state file: a state is one of this session iff its hash is that of the session's
 * first k tokens. So any mix that a crash leaves is safe, and a session whose state is gone is read again from its tokens.
 *
 * All in the byte order and layout of the writing machine: the heads' sizes refuse any other. Nothing in a file is trusted
 * before its checksum is right; a branch file of another model (identity) and a state of another memory layout (geometry)
 * are told apart from damage. */
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

/* A state after k tokens and, if there are any, the logits after the k-th: laid out as a checkpoint's blob. */
typedef struct state_part {
    uint32_t k;
    bool is_whole;
    size_t n_state_bytes;
    uint32_t n_logits;
    blob *held; /* written: by the job, as in flight; read: by nobody yet */
} state_part;

/* After how many tokens its parts are. What holds so many of the same tokens, or more, can go on from there. */
typedef struct state_ends {
    uint32_t n; /* 0: not known */
    uint32_t k[SNAPSHOT_PARTS_MAX];
} state_ends;

typedef struct state_file {
    uint32_t k; /* tokens that the state covers */
    token_hash hash;
    uint32_t n_parts; /* 0: there is no state */
    state_part parts[SNAPSHOT_PARTS_MAX];
} state_file;

/* What the head of a state file says. */
typedef struct state_facts {
    bool is_there;
    bool is_of_other_geometry;
    uint32_t k;
    token_hash hash;
    uint64_t n_bytes; /* of all parts: what reading it takes */
    state_ends ends;  /* state_file_look_at_parts, where somebody asks for it */
} state_facts;

void branch_file_clear(branch_file *f); /* frees the tokens */
void state_file_clear(state_file *f);   /* frees what was read; what was to be written is dropped before (ledger.h) */
uint64_t state_file_bytes(const state_file *f);
state_ends state_file_ends(const state_file *f);

/* The last of them that n tokens reach; 0: none. */
uint32_t state_ends_within(const state_ends *e, uint32_t n_tokens);

/* Whether a state of k tokens with that hash belongs to these tokens. */
bool state_matches(uint32_t k, token_hash hash, const int32_t *tokens, uint32_t n_tokens);

/* ---- the branch file ---- */

/* Writes it under its temporary name; branch_file_commit makes it the file, but for durable_sync. LLM_OK, or LLM_IO with
 * errno: then there is no temporary file. */
int branch_file_prepare(const char *directory, const uint8_t identity[16], const branch_file *f);
int branch_file_commit(const char *directory, uint64_t id);
void branch_file_abandon(const char *directory, uint64_t id);

/* All three, and durable_sync. */
int branch_file_write(const char *directory, const uint8_t identity[16], const branch_file *f);

/* LLM_OK; LLM_NOT_FOUND; LLM_IO; LLM_VERSION (no branch file, damaged, or of another model; `why` says which);
 * LLM_NO_MEMORY. */
int branch_file_read(const char *directory, uint64_t id, const uint8_t identity[16], branch_file *out,
                     const char **why);

/* ---- the state file ---- */

int state_file_write(const char *directory, uint64_t id, const uint8_t geometry[16], const state_file *f);

/* The head alone. LLM_OK with is_there false where there is none. */
int state_file_look(const char *directory, uint64_t id, const uint8_t geometry[16], state_facts *out, const char **why);

/* The heads of its parts: not known where there is none, or one makes no sense, which reading it will say. On a slow disk it takes
 * as long as a part has to be looked for. */
state_ends state_file_look_at_parts(const char *directory, uint64_t id, const uint8_t geometry[16]);

/* Allocates no more than n_bytes_max, whatever the file says. As branch_file_read; LLM_VERSION also for another
 * geometry. */
int state_file_read(const char *directory, uint64_t id, const uint8_t geometry[16], uint64_t n_bytes_max,
                    state_file *out, const char **why);

/* ---- both: snapshot_directory.c ---- */

/* The branch file first: a state alone is nothing, and is removed at the next start. LLM_OK or LLM_IO. */
int snapshot_remove_branch(const char *directory, uint64_t id);
int snapshot_remove_state(const char *directory, uint64_t id);

/* A state that lies on the disk gets a second name: it is never changed. LLM_OK or LLM_IO. */
int snapshot_link_state(const char *from_directory, uint64_t from, const char *to_directory, uint64_t to);

/* Renames a file that must not be read again to ID.refused or ID.refused-state. */
void snapshot_set_branch_aside(const char *directory, uint64_t id);
void snapshot_set_state_aside(const char *directory, uint64_t id);

/* Calls `found` for each branch file in the directory; then removes temporary files and states without a session, which
 * a crash left. LLM_OK or LLM_IO. */
int snapshot_scan(const char *directory, void (*found)(void *context, uint64_t id), void *context);

#endif
