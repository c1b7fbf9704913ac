/* session_table_layout.h: the layout of the session table. The writer (session_table.c) and the reader
 * (session_table_read.c) use it. llm_session_table.h documents the protocol.
 *
 * Memory ordering uses no fences, so that ThreadSanitizer understands it. A reader loads the entry's commit word,
 * copies tokens or a record, and loads the commit word again. If the commit word shows a change, the reader discards
 * the copy. The writer first stores the commit word that announces a change, and then stores the changed tokens and
 * members with release. The reader loads tokens and members with acquire. A reader that copied any changed value
 * therefore also sees the changed commit word. Each token is read and written with a single int32 access. Such an
 * access is a plain move on x86-64, and never torn on any processor. */
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

/* The header is written once. `magic` is written last, with release, and read with acquire. A segment without the magic
 * is not complete yet. */
typedef struct session_table_header {
    _Atomic uint64_t magic;
    uint32_t version;
    uint32_t header_bytes;
    int64_t pid;    /* pid of the segment's daemon, for people. The lock on the segment shows whether the daemon is
                     * alive */
    uint64_t bytes; /* bytes of the whole segment */
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

    /* These two members are written only while the entry is closed. */
    _Atomic uint32_t owner;
    _Atomic uint64_t id;

    /* Two buffers for the name, NUL-padded. The commit word says which buffer is valid. A new name is first written
     * into the other buffer. Thus neither a reader nor a daemon that adopts the segment sees half a name. */
    _Atomic uint64_t name[2][SESSION_TABLE_NAME_WORDS];

    /* the members of session_table_record, each stored atomically by itself */
    LLM_BRANCH_RECORD_TABLE(SESSION_TABLE_MEMBER)
} session_table_entry;

/* The commit word:  generation << 32 | closed << 31 | name index << 30 | n_tokens. */
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

/* Returns the commit word for an open entry that has n_tokens. The entry keeps the name to which `word` points. With
 * `next`, the new word has the next generation. Then readers discard copies that they began before this word was
 * stored. */
static inline uint64_t commit_with(uint64_t word, uint32_t n_tokens, bool next)
{
    const uint64_t generation = (uint64_t)(commit_generation(word) + (uint32_t)next) << 32;
    return generation | (word & COMMIT_NAME) | n_tokens;
}

/* A reader of a segment. The engine's own segment is mapped. The segment of another process is read piece by piece into
 * a buffer. If the owner of a mapped segment shortened the segment, the reader would die of SIGBUS. The sizes and
 * offsets are copied from the header when the header is checked, and never read again. Thus a reader stays within
 * bounds, whatever the other process writes later. */
struct llm_session_table {
    const uint8_t *base; /* NULL if the segment is read through fd */
    int fd;              /* -1 if the segment is mapped */
    uint64_t bytes;
    uint64_t entries_at;
    uint64_t tokens_at;
    uint64_t counters_at;
    llm_session_table_view view;
};

/* Checks the header at `base` of a segment of `bytes` bytes, and fills *out except its members base and fd. Returns
 * LLM_OK. Returns LLM_NOT_FOUND if the magic is missing. Then the segment is no session table, or an incomplete one.
 * Returns LLM_VERSION if the layout has another version or the sizes contradict each other. */
int session_table_layout_read(const void *base, uint64_t bytes, llm_session_table *out);

#endif
