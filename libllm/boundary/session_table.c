/* session_table.c: creates and removes the session table, and writes everything in it. */
#include "boundary/session_table.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "boundary/clock.h"
#include "boundary/session_table_layout.h"

struct session_table {
    llm_session_table reader; /* checked sizes and offsets of the segment */
    uint8_t *base;            /* the mapped segment, writable */
    char *name;               /* the segment's name; NULL for private memory */
    int lock_fd;              /* locked descriptor of the segment; -1 for private memory */
};

/* ---- the lock that shows whether the owner of a segment lives ---- */

/* The process that created a segment is its owner. The owner holds this lock, on an open file of its own, until it
 * dies. So a process that gets the lock knows that the owner is dead. A pid would not show that. A pid means nothing in
 * another pid namespace, and a later process may have the same pid. */
static bool lock(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) == 0;
}

bool session_table_is_abandoned(const llm_session_table *p)
{
    return lock(p->fd);
}

/* ---- segments of dead owners ---- */

enum { ORPHAN_DAYS = 7 }; /* days for which a dead daemon's segment waits for a new daemon to adopt it */

static const char ORPHAN_PREFIX[] = "llmd-";
static const char SHARED_MEMORY[] = "/dev/shm"; /* the directory with the files of shm_open */

static uint64_t last_use_ms(const llm_session_table *reader)
{
    llm_session_table_view view;
    llm_session_table_read(reader, &view);
    uint64_t last = view.started_ms;
    for (uint32_t i = 0; i < view.n_entries; i++) {
        llm_branch_view session;
        if (llm_session_table_entry(reader, i, &session) == LLM_OK && session.used_ms > last) {
            last = session.used_ms;
        }
    }
    return last;
}

static bool is_opening(const char *name)
{
    const size_t n = strlen(name);
    return n > strlen(SESSION_TABLE_OPENING) &&
           strcmp(name + n - strlen(SESSION_TABLE_OPENING), SESSION_TABLE_OPENING) == 0;
}

/* Whether the segment was never completed, or was not used for a week. No daemon is likely to adopt such a segment. */
static bool is_outdated(const char *name)
{
    llm_session_table *reader;
    const uint64_t orphan_age_ms_max = (uint64_t)ORPHAN_DAYS * 24 * 3600 * 1000;
    if (is_opening(name)) {
        return true;
    }
    if (llm_session_table_open(name, -1, &reader) != LLM_OK) {
        return false;
    }
    const bool is_old = last_use_ms(reader) < clock_ms() - orphan_age_ms_max;
    llm_session_table_close(reader);
    return is_old;
}

/* Removes an outdated segment whose owner is dead. The lock is tried last, because another daemon may want to adopt a
 * recent segment. That daemon must not find the segment locked by this function (session_table_is_abandoned). The lock
 * is held while the segment is removed. Thus a process that has just created the segment notices the removal
 * (make_locked). */
static void remove_orphan(const char *name)
{
    const int fd = shm_open(name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW, 0);
    if (fd < 0) {
        return;
    }
    struct stat facts; /* used to skip segments of other users */
    if (fstat(fd, &facts) == 0 && facts.st_uid == geteuid() && is_outdated(name) && lock(fd)) {
        shm_unlink(name);
    }
    close(fd);
}

/* Removes outdated segments of dead owners. A killed daemon may never start again. Its segment would take memory until
 * the machine restarts. */
static void sweep_orphans(const char *own_name)
{
    DIR *directory = opendir(SHARED_MEMORY);
    if (directory == NULL) {
        return;
    }
    const struct dirent *entry;
    while ((entry = readdir(directory)) != NULL) {
        char name[NAME_MAX + 2];
        snprintf(name, sizeof name, "/%s", entry->d_name);
        if (strncmp(entry->d_name, ORPHAN_PREFIX, sizeof ORPHAN_PREFIX - 1) == 0 && strcmp(name, own_name) != 0) {
            remove_orphan(name);
        }
    }
    closedir(directory);
}

/* ---- open and close ---- */

static uint64_t align_up(uint64_t at)
{
    return (at + 63) & ~(uint64_t)63;
}

/* Returns a header that is complete except for its strings and the magic. */
static session_table_header header_plan(uint32_t n_entries, uint32_t n_ctx)
{
    session_table_header h = {.version = LLM_SESSION_TABLE_VERSION,
                              .header_bytes = sizeof(session_table_header),
                              .pid = getpid(),
                              .started_ms = clock_ms(),
                              .n_entries = n_entries,
                              .n_ctx = n_ctx,
                              .n_counters = LLM_COUNTER_N,
                              .entry_bytes = sizeof(session_table_entry)};
    h.counters_at = align_up(sizeof h);
    h.entries_at = align_up(h.counters_at + sizeof(uint64_t) * h.n_counters);
    h.tokens_at = h.entries_at + (uint64_t)sizeof(session_table_entry) * n_entries;
    h.bytes = align_up(h.tokens_at + sizeof(int32_t) * (uint64_t)n_entries * n_ctx);
    return h;
}

/* Creates a segment of this name and locks it. Returns its descriptor, or -1 with errno. An existing segment of the
 * name belongs to another process, and is not read, removed or written to. Before the new segment is locked, another
 * daemon may remove it as abandoned (sweep_orphans). The segment then has no links, and is created again. */
static int make_locked(const char *name)
{
    for (;;) {
        const int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        struct stat facts;
        if (fd < 0) {
            return -1;
        }
        int failed;
        do {
            failed = flock(fd, LOCK_EX);
        } while (failed != 0 && errno == EINTR);
        if (failed != 0 || fstat(fd, &facts) != 0) {
            const int error = errno;
            shm_unlink(name);
            close(fd);
            errno = error;
            return -1;
        }
        if (facts.st_nlink > 0) {
            return fd;
        }
        close(fd);
    }
}

static int allocate(int fd, uint64_t n_bytes)
{
    int failure;
    do {
        failure = posix_fallocate(fd, 0, (off_t)n_bytes);
    } while (failure == EINTR);
    return failure;
}

static uint8_t *map_named(const char *name, const session_table_header *h, int *out_fd, char *error, size_t error_bytes)
{
    sweep_orphans(name);
    const int fd = make_locked(name);
    if (fd < 0) {
        snprintf(error, error_bytes, "shared segment %s cannot be made: %s", name, strerror(errno));
        return NULL;
    }
    void *base = MAP_FAILED;
    int failure = allocate(fd, h->bytes);
    if (failure == 0) {
        base = mmap(NULL, h->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        failure = base == MAP_FAILED ? errno : 0;
    }
    if (failure != 0) {
        shm_unlink(name);
        close(fd);
        snprintf(error, error_bytes, "shared segment %s needs %" PRIu64 " bytes: %s", name, h->bytes,
                 strerror(failure));
        return NULL;
    }
    *out_fd = fd;
    return base;
}

static uint8_t *map_private(const session_table_header *h, char *error, size_t error_bytes)
{
    void *base = mmap(NULL, h->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        snprintf(error, error_bytes, "the token arrays need %" PRIu64 " bytes: %s", h->bytes, strerror(errno));
        return NULL;
    }
    return base;
}

static session_table_entry *entry_at(const session_table *p, uint32_t entry)
{
    assert(entry < p->reader.view.n_entries);
    return (session_table_entry *)(void *)(p->base + p->reader.entries_at) + entry;
}

static void header_write(uint8_t *base, session_table_header *h, const char *model, const char *fingerprint)
{
    snprintf(h->model, sizeof h->model, "%s", model);
    snprintf(h->fingerprint, sizeof h->fingerprint, "%s", fingerprint);
    session_table_header *shared = (session_table_header *)(void *)base;
    memcpy(shared, h, sizeof *h);
    session_table_entry *entries = (session_table_entry *)(void *)(base + h->entries_at);
    for (uint32_t i = 0; i < h->n_entries; i++) {
        atomic_init(&entries[i].commit, COMMIT_CLOSED);
    }
    /* Pairs with the acquire in session_table_layout_read. */
    atomic_store_explicit(&shared->magic, SESSION_TABLE_MAGIC, memory_order_release);
}

int session_table_open(const char *name, uint32_t n_entries, uint32_t n_ctx, const char *model, const char *fingerprint,
                       session_table **out, char *error, size_t error_bytes)
{
    char ignored_error[1];
    if (error == NULL || error_bytes == 0) {
        error = ignored_error;
        error_bytes = sizeof ignored_error;
    }
    error[0] = '\0';
    assert(n_entries > 0 && n_entries <= LLM_SEQUENCES_MAX + LLM_PARKED_MAX && n_ctx > 0 && n_ctx <= COMMIT_COUNT_MAX);
    session_table_header h = header_plan(n_entries, n_ctx);
    session_table *p = calloc(1, sizeof *p);
    char *own_name = name != NULL ? strdup(name) : NULL;
    if (p == NULL || (name != NULL && own_name == NULL)) {
        free(own_name);
        free(p);
        return LLM_NO_MEMORY;
    }
    p->lock_fd = -1;
    uint8_t *base =
        name != NULL ? map_named(name, &h, &p->lock_fd, error, error_bytes) : map_private(&h, error, error_bytes);
    if (base == NULL) {
        free(own_name);
        free(p);
        return name != NULL ? LLM_IO : LLM_NO_MEMORY;
    }
    header_write(base, &h, model, fingerprint);
    p->base = base;
    p->name = own_name;
    int status = session_table_layout_read(base, h.bytes, &p->reader);
    assert(status == LLM_OK);
    (void)status;
    p->reader.base = base;
    *out = p;
    return LLM_OK;
}

static void give_up_lock(session_table *p)
{
    if (p->lock_fd >= 0) {
        close(p->lock_fd);
        p->lock_fd = -1;
    }
}

void session_table_close(session_table *p)
{
    if (p == NULL) {
        return;
    }
    if (p->name != NULL) {
        shm_unlink(p->name);
    }
    munmap(p->base, p->reader.bytes);
    give_up_lock(p);
    free(p->name);
    free(p);
}

int session_table_publish(session_table *p)
{
    char *name = p->name != NULL ? strdup(p->name) : NULL;
    if (name == NULL) {
        return p->name == NULL ? LLM_OK : LLM_NO_MEMORY;
    }
    assert(is_opening(name));
    name[strlen(name) - strlen(SESSION_TABLE_OPENING)] = '\0';
    char from[PATH_MAX];
    char to[PATH_MAX];
    snprintf(from, sizeof from, "%s%s", SHARED_MEMORY, p->name);
    snprintf(to, sizeof to, "%s%s", SHARED_MEMORY, name);
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) != 0) {
        free(name);
        return LLM_IO;
    }
    free(p->name);
    p->name = name;
    return LLM_OK;
}

void session_table_leave(session_table *p)
{
    const int fd = p->name != NULL ? shm_open(p->name, O_RDWR, 0) : -1;
    if (fd < 0) {
        return;
    }
    if (mmap(p->base, p->reader.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0) != MAP_FAILED) {
        free(p->name);
        p->name = NULL;
        /* mmap has replaced the mapping of the locked file, so closing the descriptor releases the lock */
        give_up_lock(p);
    }
    close(fd);
}

const llm_session_table *session_table_reader(const session_table *p)
{
    return &p->reader;
}

/* ---- entries ---- */

/* Loads a commit word that only this thread writes, which needs no memory ordering. */
static uint64_t commit_own(const session_table_entry *s)
{
    return atomic_load_explicit(&s->commit, memory_order_relaxed);
}

/* Pairs with the acquires in session_table_read.c. */
static void commit_store(session_table_entry *s, uint64_t word)
{
    atomic_store_explicit(&s->commit, word, memory_order_release);
}

/* Stores a member with release. Thus no reader sees the new value before the commit word that announces the change
 * (session_table_layout.h). */
#define STORE(member, value) atomic_store_explicit(&s->member, value, memory_order_release)

static void record_write(session_table_entry *s, const session_table_record *record)
{
#define WRITE(type, member, text) STORE(member, record->member);
    LLM_BRANCH_RECORD_TABLE(WRITE)
#undef WRITE
}

static void name_write(session_table_entry *s, size_t which, const char *name)
{
    uint64_t words[SESSION_TABLE_NAME_WORDS] = {0};
    memcpy(words, name, strnlen(name, LLM_SESSION_NAME_BYTES_MAX));
    for (size_t i = 0; i < SESSION_TABLE_NAME_WORDS; i++) {
        STORE(name[which][i], words[i]);
    }
}

void session_table_open_entry(session_table *p, uint32_t entry, uint32_t owner, const char *name, uint64_t id)
{
    session_table_entry *s = entry_at(p, entry);
    const uint64_t word = commit_with(commit_own(s), 0, true) & ~COMMIT_NAME;
    const uint64_t now = clock_ms();
    const session_table_record record = {.state = LLM_STATE_EMPTY, .diverged_at = -1, .opened_ms = now, .used_ms = now};
    commit_store(s, word | COMMIT_CLOSED);
    STORE(owner, owner);
    STORE(id, id);
    name_write(s, 0, name);
    record_write(s, &record);
    commit_store(s, word);
}

void session_table_rename_entry(session_table *p, uint32_t entry, const char *name)
{
    session_table_entry *s = entry_at(p, entry);
    const uint64_t word = commit_own(s);
    name_write(s, 1 - commit_name(word), name);
    commit_store(s, commit_with(word, commit_count(word), true) ^ COMMIT_NAME);
}

void session_table_close_entry(session_table *p, uint32_t entry)
{
    session_table_entry *s = entry_at(p, entry);
    commit_store(s, commit_with(commit_own(s), 0, true) | COMMIT_CLOSED);
}

static int32_t *tokens_at(const session_table *p, uint32_t entry)
{
    int32_t *tokens = (int32_t *)(void *)(p->base + p->reader.tokens_at);
    return tokens + (size_t)entry * p->reader.view.n_ctx;
}

const int32_t *session_table_tokens(const session_table *p, uint32_t entry)
{
    return tokens_at(p, entry);
}

uint32_t session_table_n_tokens(const session_table *p, uint32_t entry)
{
    return commit_count(commit_own(entry_at(p, entry)));
}

/* Stores tokens with release, which pairs with the acquire in tokens_load. A truncation that came before has stored a
 * new generation. A reader that loads one of these tokens therefore also sees this generation. */
static void tokens_store(int32_t *to, const int32_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        __atomic_store_n(&to[i], tokens[i], __ATOMIC_RELEASE);
    }
}

void session_table_append(session_table *p, uint32_t entry, const int32_t *tokens, uint32_t n)
{
    session_table_entry *s = entry_at(p, entry);
    uint64_t word = commit_own(s);
    uint32_t count = commit_count(word);
    assert((word & COMMIT_CLOSED) == 0 && n <= p->reader.view.n_ctx - count);
    tokens_store(tokens_at(p, entry) + count, tokens, n);
    commit_store(s, commit_with(word, count + n, false));
}

void session_table_truncate(session_table *p, uint32_t entry, uint32_t n)
{
    session_table_entry *s = entry_at(p, entry);
    uint64_t word = commit_own(s);
    assert((word & COMMIT_CLOSED) == 0 && n <= commit_count(word));
    if (n < commit_count(word)) {
        commit_store(s, commit_with(word, n, true));
    }
}

void session_table_store_record(session_table *p, uint32_t entry, const session_table_record *record)
{
    record_write(entry_at(p, entry), record);
}

/* ---- counters: each is atomic by itself; any thread ---- */

static _Atomic uint64_t *counter_at(const session_table *p, llm_counter counter)
{
    assert((unsigned)counter < LLM_COUNTER_N);
    return (_Atomic uint64_t *)(void *)(p->base + p->reader.counters_at) + counter;
}

void session_table_count(session_table *p, llm_counter counter, uint64_t add)
{
    atomic_fetch_add_explicit(counter_at(p, counter), add, memory_order_relaxed);
}

void session_table_gauge(session_table *p, llm_counter counter, uint64_t value)
{
    atomic_store_explicit(counter_at(p, counter), value, memory_order_relaxed);
}

uint64_t session_table_counter(const session_table *p, llm_counter counter)
{
    return atomic_load_explicit(counter_at(p, counter), memory_order_relaxed);
}
