/* snapshot.h: a session as bytes in a file: parked, saved, or from before a restart. No thread of its own: the store
 * thread writes and reads, the opener scans.
 *
 *   snapshot_head    magic, version, sizes, identity, fingerprint, checksum of the head
 *   tokens           int32[n_tokens]
 *   state            MODEL_STATE_FULL after exactly these tokens
 *   parts            snapshot_part_head + state + logits, each: checkpoints of prefixes of these tokens
 *   checksum         of everything behind the head
 *
 * All in the byte order and layout of the writing machine: the fingerprint and the head's size refuse any other. A file
 * is written to a temporary name, synced, and renamed, so that a name always holds a whole file. Nothing in a file is
 * trusted before its checksum is right, and nothing at all if the fingerprint is another model's. */
#ifndef LLM_SNAPSHOT_H
#define LLM_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llm.h"

enum { SNAPSHOT_PARTS_MAX = 64 };

/* A checkpoint. */
typedef struct snapshot_part {
    uint32_t k;
    bool is_whole;
    void *state;
    size_t n_state_bytes;
    float *logits; /* or NULL */
    uint32_t n_logits;
} snapshot_part;

typedef struct snapshot {
    uint64_t id;
    uint32_t owner;
    bool is_pinned;
    char name[LLM_SESSION_NAME_BYTES_MAX + 1];
    uint8_t fingerprint[16];
    uint64_t opened_ms;
    uint64_t used_ms;
    int32_t *tokens;
    uint32_t n_tokens;
    void *state;
    size_t n_state_bytes;
    uint32_t n_parts;
    snapshot_part parts[SNAPSHOT_PARTS_MAX];
} snapshot;

/* Frees what the members point to. */
void snapshot_clear(snapshot *s);

/* Writes DIRECTORY/ID.llmd-session durably. LLM_OK, or LLM_IO with errno; a failed write leaves no file behind. */
int snapshot_write(const char *directory, const snapshot *s);

/* Reads one file. head_only: all but state and parts, and without their checksum. LLM_OK; LLM_NOT_FOUND; LLM_IO;
 * LLM_VERSION (not a snapshot, damaged, or of another model; `why` says which); LLM_NO_MEMORY. */
int snapshot_read(const char *directory, uint64_t id, const uint8_t fingerprint[16], bool head_only, snapshot *out,
                  const char **why);

int snapshot_remove(const char *directory, uint64_t id);

/* Calls `found` for each snapshot file in the directory; removes temporary files that a crash left. LLM_OK or LLM_IO. */
int snapshot_scan(const char *directory, void (*found)(void *context, uint64_t id), void *context);

/* Renames a file that must not be read again to ID.refused. */
void snapshot_set_aside(const char *directory, uint64_t id);

#endif
