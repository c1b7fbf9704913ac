/* session_table_layout.h: the bytes of the session table, for its writer (session_table.c) and its reader
 * (session_table_read.c); llm_session_table.h documents the protocol.
 *
 * Memory ordering without fences, so that ThreadSanitizer understands it: everything a reader copies between its two
 * loads of a commit word (tokens, record) is stored with release after the commit word that announces the change, and
 * loaded with acquire before the second look at the word. A reader that got any changed value therefore sees the
 * changed word as well, and throws the copy away. Tokens are single int32 accesses: plain moves on x86-64, never torn
 * anywhere. */
#ifndef LLM_SESSION_TABLE_LAYOUT_H
#define LLM_SESSION_TABLE_LAYOUT_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llm_session_table.h"

#define SESSION_TABLE_MAGIC UINT64_C(0x656761706d6c6c00) /* "\0llmpage", little-endian */

enum {
    SESSION_TABLE_MODEL_BYTES = 128,
    SESSION_TABLE_FINGERPRINT_BYTES = 40,
    SESSION_TABLE_NAME_WORDS = (LLM_SESSION_NAME_BYTES_MAX + 8) / 8,
};

/* Written once. `magic` last (release; readers acquire): a segment without it is not there yet. */
typedef struct session_table_header {
    _Atomic uint64_t magic;
    uint32_t version;
    uint32_t header_bytes;
    int64_t pid;    /* of the owner, for people; the lock on the segment says whether the owner lives */
    uint64_t bytes; /* of the whole segment */
    uint64_t started_ms;
    uint32_t n_entries;
    uint32_t n_ctx;
    uint32_t n_counters;
    uint32_t entry_bytes;
    uint64_t counters_at;
    uint64_t entries_at;
    uint64_t tokens_at;
    char model[SESSION_TABLE_MODEL_BYTES];
    char fingerprint[SESSION_TABLE_FINGERPRINT_BYTES];
} session_table_header;

#define SESSION_TABLE_MEMBER(type, member, text) _Atomic type member;

typedef struct session_table_entry {
    alignas(64) _Atomic uint64_t commit;

    /* The members are written while the entry is closed. */
    _Atomic uint32_t owner;
    _Atomic uint64_t id;

    /* The bytes of the name, NUL-padded. The commit word says which of the two is valid. A new name is written into the
     * other one first, so that neither a reader nor a daemon that adopts the segment sees half of it. */
    _Atomic uint64_t name[2][SESSION_TABLE_NAME_WORDS];

    /* session_table_record, each member stored by itself */
    LLM_BRANCH_RECORD_TABLE(SESSION_TABLE_MEMBER)
} session_table_entry;

/* The commit word:  generation << 32 | closed << 31 | which name << 30 | n_tokens. */
#define COMMIT_CLOSED ((uint64_t)1 << 31)
#define COMMIT_NAME ((uint64_t)1 << 30)
#define COMMIT_COUNT_MAX ((uint32_t)COMMIT_NAME - 1)

static inline uint32_t commit_generation(uint64_t word)
{
    return (uint32_t)(word >> 32);
}

static inline uint32_t commit_count(uint64_t word)
{
    return (uint32_t)word & COMMIT_COUNT_MAX;
}

static inline size_t commit_name(uint64_t word)
{
    return (word & COMMIT_NAME) != 0;
}

/* Returns the word of the entry, open and with the same name, with another count of tokens. `next`: also with the next
 * generation, so that earlier copies become invalid. */
static inline uint64_t commit_with(uint64_t word, uint32_t n_tokens, bool next)
{
    const uint64_t generation = (uint64_t)(commit_generation(word) + (uint32_t)next) << 32;
    return generation | (word & COMMIT_NAME) | n_tokens;
}

/* A segment as its readers know it: the engine's own, mapped; or another process's, which is read piece by piece into a
 * buffer, so that its owner cannot take bytes away under the reader. The facts are copied from the header when it is
 * checked and never read again: whatever the other process writes later, a reader stays within the bounds. */
struct llm_session_table {
    const uint8_t *base; /* NULL: read through fd */
    int fd;              /* -1: mapped */
    uint64_t bytes;
    uint64_t entries_at;
    uint64_t tokens_at;
    uint64_t counters_at;
    llm_session_table_view view;
};

/* Checks the header of a segment of `bytes`, whose header is at `base`, and fills *out except base and fd. LLM_OK,
 * LLM_NOT_FOUND (no magic: not a segment, or not ready), LLM_VERSION (another layout, or sizes that contradict each
 * other). */
int session_table_layout_read(const void *base, uint64_t bytes, llm_session_table *out);

#endif
