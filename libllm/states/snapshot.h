/* snapshot.h: writes and reads a branch as two files. Has no thread of its own. The store thread writes and reads the
 * files. The thread that opens the engine scans the directory.
 *
 *   ID.llmd-session   small, rewritten whenever a change must last: identity of the branch, and all its tokens
 *       header        magic, version, sizes, id, name, pin, stamps, model identity, checksum of the header
 *       tokens        int32[n_tokens]
 *       checksum      of the tokens
 *
 *   ID.llmd-state     large, never changed: the model's state after the first k of these tokens
 *       header        magic, version, sizes, k, hash of the k tokens, geometry, checksum of the header
 *       parts         part header + state + logits, each: first the whole state, then checkpoints of shorter prefixes
 *       checksum      of everything after the header
 *
 * The branch file does not mention the state file. A state belongs to a branch iff the hash in the state file is the
 * hash of the branch's first k tokens. So any combination of files that a crash leaves is safe. If the state is gone,
 * the branch's tokens are prefilled again.
 *
 * Files have the byte order and struct layout of the machine that wrote them. Reading refuses a file whose header has
 * another byte order or size. Nothing in a file is trusted before the file's checksum was checked. A branch file may
 * belong to another model (identity). A state may have another memory layout (geometry). Such files are not reported as
 * damaged. */
#ifndef LLM_SNAPSHOT_H
#define LLM_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "states/ledger.h"
#include "llm.h"
#include "states/token_hash.h"

enum { SNAPSHOT_PARTS_MAX = 64 };

/* Endings of complete files, and of files that are being written. */
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

/* A part of a state file: the state after k tokens, optionally with the logits after the k-th token. The bytes of a
 * part are laid out like the blob of a checkpoint (checkpoint.h). */
typedef struct state_part {
    uint32_t k;
    bool is_whole;
    size_t n_state_bytes;
    uint32_t n_logits;
    /* blob with the bytes of the part (ledger.h). During a write, the store job holds the blob as in flight. After a
     * read, the blob has no holder */
    blob *held;
} state_part;

/* How many tokens each part of a state file covers. A branch with the same first k tokens can continue from a part that
 * covers k tokens. */
typedef struct state_ends {
    uint32_t n; /* number of parts, or 0 if unknown */
    uint32_t k[SNAPSHOT_PARTS_MAX];
} state_ends;

typedef struct state_file {
    uint32_t k; /* number of the branch's first tokens that the state covers */
    token_hash hash;
    uint32_t n_parts; /* 0 if there is no state */
    state_part parts[SNAPSHOT_PARTS_MAX];
} state_file;

/* The contents of the header of a state file. */
typedef struct state_facts {
    bool is_there;
    bool is_of_other_geometry;
    uint32_t k;
    token_hash hash;
    uint64_t n_bytes; /* bytes of all parts: the bytes that state_file_read reads */
    state_ends ends;  /* token counts of the parts, if requested; else unknown */
} state_facts;

void branch_file_clear(branch_file *f); /* frees the tokens */
/* frees parts that were read. Parts that were to be written must be dropped before (ledger.h) */
void state_file_clear(state_file *f);
uint64_t state_file_bytes(const state_file *f);
state_ends state_file_ends(const state_file *f);

/* Returns the largest count in `e` that is at most n_tokens. Returns 0 if there is no such count. */
uint32_t state_ends_within(const state_ends *e, uint32_t n_tokens);

/* Whether a state of k tokens with that hash belongs to these tokens. */
bool state_matches(uint32_t k, token_hash hash, const int32_t *tokens, uint32_t n_tokens);

/* ---- the branch file ---- */

/* branch_file_prepare writes the file under a temporary name, branch_file_commit renames the file, and
 * branch_file_abandon removes the temporary file. The caller must call durable_sync after branch_file_commit.
 * branch_file_prepare and branch_file_commit return LLM_OK, or LLM_IO with errno. If branch_file_prepare fails, no
 * temporary file is left. */
int branch_file_prepare(const char *directory, const uint8_t identity[16], const branch_file *f);
int branch_file_commit(const char *directory, uint64_t id);
void branch_file_abandon(const char *directory, uint64_t id);

/* Prepares and commits the file, and calls durable_sync. */
int branch_file_write(const char *directory, const uint8_t identity[16], const branch_file *f);

/* Reads a branch file. Returns LLM_OK, LLM_NOT_FOUND, LLM_IO, LLM_NO_MEMORY, or LLM_VERSION if the file is no branch
 * file, is damaged, or is of another model. On failure, *why says what is wrong. */
int branch_file_read(const char *directory, uint64_t id, const uint8_t identity[16], branch_file *out,
                     const char **why);

/* ---- the state file ---- */

int state_file_write(const char *directory, uint64_t id, const uint8_t geometry[16], const state_file *f);

/* Reads the header of a state file. With looks_at_parts, also reads the headers of the parts, which costs one seek per
 * part on a slow disk. If the header of a part is invalid, the token counts of the parts stay unknown. A later read of
 * the file will report the error. If there is no file, returns LLM_OK and sets is_there to false. */
int state_file_look(const char *directory, uint64_t id, const uint8_t geometry[16], bool looks_at_parts,
                    state_facts *out, const char **why);

/* Reads a state file. Allocates at most n_bytes_max, whatever the file contains. Returns the same statuses as
 * branch_file_read, and LLM_VERSION also for a state of another geometry. */
int state_file_read(const char *directory, uint64_t id, const uint8_t geometry[16], uint64_t n_bytes_max,
                    state_file *out, const char **why);

/* ---- both: snapshot_directory.c ---- */

/* Remove one of the two files. The branch file should be removed first. If a crash leaves only the state file, the file
 * is useless, and the next start removes it. Return LLM_OK or LLM_IO. */
int snapshot_remove_branch(const char *directory, uint64_t id);
int snapshot_remove_state(const char *directory, uint64_t id);

/* Gives the state file a second name, which is safe because state files never change. Returns LLM_OK or LLM_IO. */
int snapshot_link_state(const char *from_directory, uint64_t from, const char *to_directory, uint64_t to);

/* Rename a file that must not be read again. A branch file becomes ID.refused, a state file ID.refused-state. */
void snapshot_set_branch_aside(const char *directory, uint64_t id);
void snapshot_set_state_aside(const char *directory, uint64_t id);

/* Calls `found` for each branch file in the directory. Then removes the temporary files that a crash left. Also removes
 * state files without a branch file. Returns LLM_OK or LLM_IO. */
int snapshot_scan(const char *directory, void (*found)(void *context, uint64_t id), void *context);

#endif
