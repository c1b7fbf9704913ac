/* session_table_read.c: reads the session table, in any thread and any process. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "boundary/session_table_layout.h"

/* ---- open ---- */

/* Whether an array of n items of `size` bytes at offset `at` is within a segment of `bytes` bytes, and aligned. */
static int range_is_inside(uint64_t at, uint64_t n, uint64_t size, uint64_t bytes, uint64_t alignment)
{
    return at % alignment == 0 && at <= bytes && n <= (bytes - at) / size;
}

static int sizes_agree(const session_table_header *h, uint64_t bytes)
{
    return h->header_bytes == sizeof *h && h->entry_bytes == sizeof(session_table_entry) && h->bytes == bytes &&
           h->n_entries > 0 && h->n_entries <= LLM_SEQUENCES_MAX + LLM_PARKED_MAX && h->n_ctx > 0 &&
           h->n_ctx <= COMMIT_COUNT_MAX && h->n_counters == LLM_COUNTER_N &&
           range_is_inside(h->counters_at, h->n_counters, sizeof(uint64_t), bytes, alignof(uint64_t)) &&
           range_is_inside(h->entries_at, h->n_entries, sizeof(session_table_entry), bytes,
                           alignof(session_table_entry)) &&
           range_is_inside(h->tokens_at, (uint64_t)h->n_entries * h->n_ctx, sizeof(int32_t), bytes, alignof(int32_t));
}

/* Copies as much of the text as fits. Writes no NUL after the copy, because callers pass zeroed structs. */
static void copy_text(char *out, size_t n_out, const char *text, size_t n_text)
{
    size_t n = strnlen(text, n_text);
    memcpy(out, text, n < n_out ? n : n_out - 1);
}

int session_table_layout_read(const void *base, uint64_t bytes, llm_session_table *out)
{
    const session_table_header *shared = base;
    /* Pairs with the release in session_table.c's header_write. */
    if (bytes < sizeof *shared || atomic_load_explicit(&shared->magic, memory_order_acquire) != SESSION_TABLE_MAGIC) {
        return LLM_NOT_FOUND;
    }
    session_table_header h;
    memcpy(&h, shared, sizeof h);
    if (h.version != LLM_SESSION_TABLE_VERSION || !sizes_agree(&h, bytes)) {
        return LLM_VERSION;
    }
    *out = (llm_session_table){.fd = -1,
                               .bytes = bytes,
                               .entries_at = h.entries_at,
                               .tokens_at = h.tokens_at,
                               .counters_at = h.counters_at,
                               .view = {.version = h.version,
                                        .n_entries = h.n_entries,
                                        .n_ctx = h.n_ctx,
                                        .n_counters = h.n_counters,
                                        .pid = h.pid,
                                        .started_ms = h.started_ms,
                                        .bytes = h.bytes}};
    copy_text(out->view.model, sizeof out->view.model, h.model, sizeof h.model);
    copy_text(out->view.fingerprint, sizeof out->view.fingerprint, h.fingerprint, sizeof h.fingerprint);
    return LLM_OK;
}

/* Reads all n bytes. Returns false if the segment has become shorter. */
static bool read_at(int fd, uint64_t at, void *out, size_t n)
{
    uint8_t *to = out;
    while (n > 0) {
        const ssize_t done = pread(fd, to, n, (off_t)at);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return false;
        }
        to += done;
        at += (uint64_t)done;
        n -= (size_t)done;
    }
    return true;
}

static int check_descriptor(int fd, int64_t owner, llm_session_table *table)
{
    struct stat facts;
    if (fstat(fd, &facts) < 0) {
        return LLM_IO;
    }
    const uid_t expected_uid = owner >= 0 ? (uid_t)owner : geteuid();
    if (!S_ISREG(facts.st_mode) || facts.st_uid != expected_uid || (facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        return LLM_IO;
    }
    _Alignas(session_table_header) uint8_t header[sizeof(session_table_header)];
    if (facts.st_size < (off_t)sizeof header || !read_at(fd, 0, header, sizeof header)) {
        return LLM_VERSION;
    }
    if (session_table_layout_read(header, (uint64_t)facts.st_size, table) != LLM_OK) {
        return LLM_VERSION; /* another version of libllm, or another program, wrote the segment */
    }
    table->fd = fd;
    return LLM_OK;
}

int llm_session_table_open(const char *name, int64_t owner, llm_session_table **out)
{
    const int fd = shm_open(name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW, 0);
    if (fd < 0) {
        return errno == ENOENT || errno == EINVAL || errno == ENAMETOOLONG ? LLM_NOT_FOUND : LLM_IO;
    }
    llm_session_table *table = malloc(sizeof *table);
    const int status = table != NULL ? check_descriptor(fd, owner, table) : LLM_NO_MEMORY;
    if (status != LLM_OK) {
        close(fd);
        free(table);
        return status;
    }
    *out = table;
    return LLM_OK;
}

void llm_session_table_close(llm_session_table *table)
{
    if (table != NULL) {
        close(table->fd);
        free(table);
    }
}

/* ---- read ---- */

static const session_table_entry *entry_at(const llm_session_table *table, uint32_t entry)
{
    return (const session_table_entry *)(const void *)(table->base + table->entries_at) + entry;
}

static uint64_t offset_of_entry(const llm_session_table *table, uint32_t entry)
{
    return table->entries_at + (uint64_t)entry * sizeof(session_table_entry);
}

void llm_session_table_read(const llm_session_table *table, llm_session_table_view *out)
{
    *out = table->view;
}

uint64_t llm_session_table_counter(const llm_session_table *table, int counter)
{
    if (counter < 0 || (uint32_t)counter >= table->view.n_counters) {
        return 0;
    }
    if (table->base == NULL) {
        uint64_t value = 0;
        return read_at(table->fd, table->counters_at + (uint64_t)counter * sizeof value, &value, sizeof value) ? value
                                                                                                               : 0;
    }
    const _Atomic uint64_t *counters = (const void *)(table->base + table->counters_at);
    return atomic_load_explicit(&counters[counter], memory_order_relaxed);
}

/* Loads a member with acquire. Thus the reader's second load of the commit word cannot come before the loads of members
 * (session_table_layout.h). */
#define LOAD(member) atomic_load_explicit(&s->member, memory_order_acquire)

static void record_copy(const session_table_entry *s, uint64_t word, llm_branch_view *out)
{
#define READ(type, member, text) out->member = LOAD(member);
    LLM_BRANCH_RECORD_TABLE(READ)
#undef READ
    out->owner = LOAD(owner);
    out->id = LOAD(id);
    for (size_t i = 0; i < SESSION_TABLE_NAME_WORDS; i++) {
        const uint64_t bytes = LOAD(name[commit_name(word)][i]);
        memcpy(out->name + 8 * i, &bytes, sizeof bytes);
    }
    out->name[sizeof out->name - 1] = '\0';
}

/* Limit on attempts to copy an entry. If libllm is the writer, an attempt succeeds long before the limit. Only another
 * program would change an entry so often. */
enum { TRIES_MAX = 100000 };

/* Returns the commit word of an entry whose segment is read through a descriptor. No system guarantees that pread
 * copies an aligned word in a single access. The result could be a mixture of two commit words, with the count of one
 * and the generation of the other. So the word is read until two reads are equal. */
static uint64_t commit_read(const llm_session_table *table, uint32_t entry)
{
    const uint64_t at = offset_of_entry(table, entry) + offsetof(session_table_entry, commit);
    uint64_t last = COMMIT_CLOSED;
    for (uint32_t i = 0; i < TRIES_MAX; i++) {
        uint64_t word;
        if (!read_at(table->fd, at, &word, sizeof word)) {
            break;
        }
        if (i > 0 && word == last) {
            return word;
        }
        last = word;
    }
    return COMMIT_CLOSED;
}

/* Returns the current commit word. If the segment is mapped, the load acquires, which pairs with the releases in
 * session_table.c. If the segment is read through a descriptor, fences order the reads. */
static uint64_t commit_now(const llm_session_table *table, uint32_t entry)
{
    if (table->base != NULL) {
        return atomic_load_explicit(&entry_at(table, entry)->commit, memory_order_acquire);
    }
    atomic_thread_fence(memory_order_acquire);
    const uint64_t word = commit_read(table, entry);
    atomic_thread_fence(memory_order_acquire);
    return word;
}

/* Returns the entry's commit word, or COMMIT_CLOSED if the entry is closed. In a damaged segment, the count may be more
 * tokens than the array can hold. Such an entry counts as closed. */
static uint64_t commit_load(const llm_session_table *table, uint32_t entry)
{
    const uint64_t word = commit_now(table, entry);
    return (word & COMMIT_CLOSED) != 0 || commit_count(word) > table->view.n_ctx ? COMMIT_CLOSED : word;
}

static bool same_generation(const llm_session_table *table, uint32_t entry, uint64_t word)
{
    return commit_generation(commit_now(table, entry)) == commit_generation(word);
}

/* Returns false if the segment has become shorter. */
static bool record_load(const llm_session_table *table, uint32_t entry, uint64_t word, llm_branch_view *out)
{
    if (table->base != NULL) {
        record_copy(entry_at(table, entry), word, out);
        return true;
    }
    session_table_entry copy;
    const bool is_there = read_at(table->fd, offset_of_entry(table, entry), &copy, sizeof copy);
    if (is_there) {
        record_copy(&copy, word, out);
    }
    return is_there;
}

static bool tokens_load(const llm_session_table *table, uint32_t entry, int32_t *out, uint32_t n)
{
    const uint64_t at = table->tokens_at + (uint64_t)entry * table->view.n_ctx * sizeof *out;
    if (table->base == NULL) {
        return read_at(table->fd, at, out, n * sizeof *out);
    }
    const int32_t *tokens = (const int32_t *)(const void *)(table->base + at);
    for (uint32_t i = 0; i < n; i++) {
        out[i] = __atomic_load_n(&tokens[i], __ATOMIC_ACQUIRE); /* pairs with session_table.c's tokens_store */
    }
    return true;
}

int llm_session_table_entry(const llm_session_table *table, uint32_t entry, llm_branch_view *out)
{
    if (entry >= table->view.n_entries) {
        return LLM_NOT_FOUND;
    }
    for (uint32_t i = 0; i < TRIES_MAX; i++) {
        llm_branch_view view = {.entry = entry};
        const uint64_t word = commit_load(table, entry);
        if (word == COMMIT_CLOSED || !record_load(table, entry, word, &view)) {
            return LLM_NOT_FOUND;
        }
        if (same_generation(table, entry, word)) {
            view.generation = commit_generation(word);
            view.n_tokens = commit_count(word);
            *out = view;
            return LLM_OK;
        }
    }
    return LLM_NOT_FOUND;
}

int64_t llm_session_table_tokens(const llm_session_table *table, uint32_t entry, int32_t *out, size_t n_out,
                                 uint32_t *generation)
{
    if (entry >= table->view.n_entries) {
        return -1;
    }
    for (uint32_t i = 0; i < TRIES_MAX; i++) {
        const uint64_t word = commit_load(table, entry);
        const uint32_t n = commit_count(word);
        if (word == COMMIT_CLOSED) {
            return -1;
        }
        if (n > n_out) {
            return -(int64_t)n - 1;
        }
        if (!tokens_load(table, entry, out, n)) {
            return -1;
        }
        if (same_generation(table, entry, word)) {
            if (generation != NULL) {
                *generation = commit_generation(word);
            }
            return n;
        }
    }
    return -1;
}
