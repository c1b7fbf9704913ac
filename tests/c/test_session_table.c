/* Tests the session table: creation and removal, its rules, readers during frequent changes, and readers of damaged
 * tables. */
#include "boundary/session_table.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "boundary/session_table_layout.h"

static char segment[64]; /* a name that only this process uses */

static ino_t watched; /* inode of a segment whose locks are counted */
static uint32_t n_watched_locks;
/* The error of the next call of flock that waits, or 0. A sweep uses calls that do not wait, because it also finds the
 * segments of other tests. */
static int lock_error;

/* Replaces the library's function. Counts the locks of `watched`, and can fail. */
int flock(int fd, int operation)
{
    struct stat facts;
    n_watched_locks += fstat(fd, &facts) == 0 && facts.st_ino == watched;
    if (lock_error != 0 && (operation & LOCK_NB) == 0) {
        errno = lock_error;
        lock_error = 0;
        return -1;
    }
    return (int)syscall(SYS_flock, fd, operation);
}

static session_table *open_session_table(const char *name, uint32_t n_entries, uint32_t n_ctx)
{
    session_table *p = NULL;
    char error[LLM_TEXT_BYTES_MAX] = "";
    const char *fingerprint = "0123456789abcdef0123456789abcdef";
    int status = session_table_open(name, n_entries, n_ctx, "a model", fingerprint, &p, error, sizeof error);
    if (status != LLM_OK) {
        printf("session_table_open: %s: %s\n", llm_word(LLM_STATUSES, status), error);
    }
    return p;
}

static void a_private_page_tells_its_facts(void)
{
    session_table *p = open_session_table(NULL, 3, 100);
    CHECK(p != NULL);
    llm_session_table_view view;
    llm_session_table_read(session_table_reader(p), &view);
    CHECK_INT(view.version, LLM_SESSION_TABLE_VERSION);
    CHECK_INT(view.n_entries, 3);
    CHECK_INT(view.n_ctx, 100);
    CHECK_INT(view.n_counters, LLM_COUNTER_N);
    CHECK_INT(view.pid, getpid());
    CHECK(view.started_ms > UINT64_C(1500000000000));
    CHECK_STR(view.model, "a model");
    CHECK_STR(view.fingerprint, "0123456789abcdef0123456789abcdef");
    llm_branch_view session;
    int32_t token;
    for (uint32_t entry = 0; entry < 5; entry++) { /* all entries are closed, and the last two do not exist */
        CHECK_INT(llm_session_table_entry(session_table_reader(p), entry, &session), LLM_NOT_FOUND);
        CHECK_INT(llm_session_table_tokens(session_table_reader(p), entry, &token, 1, NULL), -1);
    }
    session_table_close(p);
    session_table_close(NULL);
}

static void tokens_grow_and_are_cut(void)
{
    session_table *p = open_session_table(NULL, 2, 8);
    CHECK(p != NULL);
    const llm_session_table *reader = session_table_reader(p);
    const int32_t tokens[8] = {10, 11, 12, 13, 14, 15, 16, 17};
    int32_t copy[8];
    uint32_t generation, later;
    session_table_open_entry(p, 1, 7, "a", 1);
    CHECK_INT(llm_session_table_tokens(reader, 1, copy, 8, &generation), 0);
    session_table_append(p, 1, tokens, 5);
    session_table_append(p, 1, tokens + 5, 3); /* the entry is now full */
    CHECK_INT(session_table_n_tokens(p, 1), 8);
    CHECK_INT(llm_session_table_tokens(reader, 1, copy, 8, &later), 8);
    CHECK(memcmp(copy, tokens, sizeof tokens) == 0);
    CHECK(memcmp(session_table_tokens(p, 1), tokens, sizeof tokens) == 0);
    CHECK_INT(later, generation); /* appending does not change the generation */
    CHECK_INT(llm_session_table_tokens(reader, 1, copy, 7, NULL), -9);
    session_table_truncate(p, 1, 8);
    CHECK_INT(llm_session_table_tokens(reader, 1, copy, 8, &later), 8);
    CHECK_INT(later, generation); /* nothing was removed */
    session_table_truncate(p, 1, 3);
    CHECK_INT(llm_session_table_tokens(reader, 1, copy, 8, &later), 3);
    CHECK(later != generation);
    session_table_append(p, 1, tokens, 1);
    CHECK_INT(llm_session_table_tokens(reader, 1, copy, 8, NULL), 4);
    CHECK_INT(copy[2], 12);
    CHECK_INT(copy[3], 10);
    CHECK_INT(llm_session_table_tokens(reader, 0, copy, 8, NULL), -1); /* the other entry is still closed */
    session_table_close(p);
}

static void a_record_is_shown_and_leaves_with_its_session(void)
{
    session_table *p = open_session_table(NULL, 2, 8);
    CHECK(p != NULL);
    const llm_session_table *reader = session_table_reader(p);
    char name[LLM_SESSION_NAME_BYTES_MAX + 1];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    session_table_open_entry(p, 0, 42, name, 77);
    llm_branch_view v;
    CHECK_INT(llm_session_table_entry(reader, 0, &v), LLM_OK);
    CHECK_STR(v.name, name);
    CHECK_INT(v.owner, 42);
    CHECK_INT(v.id, 77);
    CHECK_INT(v.state, LLM_STATE_EMPTY);
    CHECK_INT(v.diverged_at, -1);
    CHECK(v.opened_ms > 0 && v.used_ms == v.opened_ms);
    session_table_store_record(p, 0,
                               &(session_table_record){.state = LLM_STATE_IDLE,
                                                       .reason = LLM_REASON_REWIND,
                                                       .n_visible = 1,
                                                       .n_waiting = 2,
                                                       .n_requests = 3,
                                                       .diverged_at = 4,
                                                       .n_last_prompt = 5,
                                                       .n_last_reused = 6,
                                                       .n_prefilled_total = 7,
                                                       .n_reused_total = 8,
                                                       .n_generated_total = 9,
                                                       .opened_ms = 11,
                                                       .used_ms = 10});
    CHECK_INT(llm_session_table_entry(reader, 0, &v), LLM_OK);
    CHECK_INT(v.state, LLM_STATE_IDLE);
    CHECK_INT(v.reason, LLM_REASON_REWIND);
    CHECK(v.n_visible == 1 && v.n_waiting == 2 && v.n_requests == 3 && v.diverged_at == 4 && v.n_last_prompt == 5);
    CHECK(v.n_last_reused == 6 && v.n_prefilled_total == 7 && v.n_reused_total == 8 && v.n_generated_total == 9);
    CHECK(v.used_ms == 10 && v.opened_ms == 11);
    uint32_t generation = v.generation;
    session_table_close_entry(p, 0);
    CHECK_INT(llm_session_table_entry(reader, 0, &v), LLM_NOT_FOUND);
    session_table_open_entry(p, 0, 43, "b", 1);
    CHECK_INT(llm_session_table_entry(reader, 0, &v), LLM_OK);
    CHECK_STR(v.name, "b"); /* nothing of the longer name is left */
    CHECK_INT(v.n_requests, 0);
    CHECK(v.generation != generation);
    session_table_close(p);
}

static void counters_count(void)
{
    session_table *p = open_session_table(NULL, 1, 1);
    CHECK(p != NULL);
    session_table_count(p, LLM_COUNTER_STEPS, 2);
    session_table_count(p, LLM_COUNTER_STEPS, 3);
    session_table_gauge(p, LLM_COUNTER_CELLS_USED, 9);
    session_table_gauge(p, LLM_COUNTER_CELLS_USED, 8);
    CHECK_INT(session_table_counter(p, LLM_COUNTER_STEPS), 5);
    CHECK_INT(llm_session_table_counter(session_table_reader(p), LLM_COUNTER_STEPS), 5);
    CHECK_INT(llm_session_table_counter(session_table_reader(p), LLM_COUNTER_CELLS_USED), 8);
    CHECK_INT(llm_session_table_counter(session_table_reader(p), LLM_COUNTER_STEP_US), 0);
    CHECK_INT(llm_session_table_counter(session_table_reader(p), -1), 0);
    CHECK_INT(llm_session_table_counter(session_table_reader(p), LLM_COUNTER_N), 0);
    session_table_close(p);
}

/* ---- named segments ---- */

static void another_mapping_reads_what_is_written(void)
{
    session_table *p = open_session_table(segment, 2, 16);
    CHECK(p != NULL);
    llm_session_table *other;
    llm_session_table_view view;
    const int32_t tokens[3] = {1, -2, 3};
    int32_t copy[16];
    CHECK_INT(llm_session_table_open(segment, -1, &other), LLM_OK);
    llm_session_table_read(other, &view);
    CHECK_INT(view.n_ctx, 16);
    CHECK_STR(view.model, "a model");
    session_table_open_entry(p, 0, 1, "s", 1);
    session_table_append(p, 0, tokens, 3);
    CHECK_INT(llm_session_table_tokens(other, 0, copy, 16, NULL), 3);
    CHECK(memcmp(copy, tokens, sizeof tokens) == 0);
    session_table_close(p);
    CHECK_INT(llm_session_table_tokens(other, 0, copy, 16, NULL), 3); /* a mapping stays valid without the name */
    llm_session_table_close(other);
    CHECK_INT(llm_session_table_open(segment, -1, &other), LLM_NOT_FOUND);
    CHECK_INT(llm_session_table_open("no-slash/inside", -1, &other), LLM_NOT_FOUND);
    llm_session_table_close(NULL);
}

/* A segment that already has the name is neither read nor replaced, whether or not its owner is alive. */
static void a_name_that_is_taken_is_left_alone(void)
{
    session_table *p = open_session_table(segment, 1, 16);
    CHECK(p != NULL);
    session_table *second;
    char error[LLM_TEXT_BYTES_MAX];
    CHECK_INT(session_table_open(segment, 1, 16, "m", "f", &second, error, sizeof error), LLM_IO);
    CHECK(strstr(error, segment) != NULL && strstr(error, strerror(EEXIST)) != NULL);
    CHECK_INT(session_table_open(segment, 1, 16, "m", "f", &second, NULL, 0), LLM_IO);
    llm_session_table *reader;
    CHECK_INT(llm_session_table_open(segment, -1, &reader), LLM_OK); /* the refused calls did not change the segment */
    CHECK(!session_table_is_abandoned(reader));
    llm_session_table_close(reader);
    session_table_close(p);
}

/* Anybody may create a segment of any name. So a reader accepts only a segment that only its owner can read and
 * write. */
static void a_segment_of_others_is_not_read(void)
{
    session_table *p = open_session_table(segment, 1, 16);
    CHECK(p != NULL);
    llm_session_table *reader;
    const int fd = shm_open(segment, O_RDWR, 0);
    CHECK(fd >= 0);
    const mode_t modes[] = {0620, 0602, 0640, 0604};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        CHECK_INT(fchmod(fd, modes[i]), 0);
        CHECK_INT(llm_session_table_open(segment, -1, &reader), LLM_IO);
    }
    CHECK_INT(fchmod(fd, 0600), 0);
    CHECK_INT(llm_session_table_open(segment, geteuid(), &reader), LLM_OK);
    llm_session_table_close(reader);
    CHECK_INT(llm_session_table_open(segment, (int64_t)geteuid() + 1, &reader), LLM_IO);
    if (geteuid() == 0) { /* root may read every segment, so it also says which owner it expects */
        CHECK_INT(fchown(fd, 1, 1), 0);
        CHECK_INT(llm_session_table_open(segment, -1, &reader), LLM_IO);
        CHECK_INT(llm_session_table_open(segment, 1, &reader), LLM_OK);
        llm_session_table_close(reader);
    }
    close(fd);
    session_table_close(p);
}

/* The segment shrinks while it is mapped. The reader gets no signal, only fewer results. */
static void a_segment_that_shrinks_harms_no_reader(void)
{
    session_table *p = open_session_table(segment, 2, 16);
    CHECK(p != NULL);
    const int32_t tokens[2] = {5, 6};
    session_table_open_entry(p, 1, 1, "it", 1);
    session_table_append(p, 1, tokens, 2);
    llm_session_table_view view;
    llm_session_table *reader;
    CHECK_INT(llm_session_table_open(segment, -1, &reader), LLM_OK);
    llm_session_table_read(reader, &view);
    const int fd = shm_open(segment, O_RDWR, 0);
    int32_t copy[16];
    llm_branch_view session;
    CHECK_INT(llm_session_table_tokens(reader, 1, copy, 16, NULL), 2);
    for (uint64_t n = view.bytes; n > 0; n -= 32) {
        CHECK_INT(ftruncate(fd, (off_t)n), 0);
        llm_session_table_counter(reader, 0);
        CHECK(llm_session_table_tokens(reader, 1, copy, 16, NULL) ==
              (n >= reader->tokens_at + 18 * sizeof *copy ? 2 : -1));
        (void)llm_session_table_entry(reader, 1, &session);
    }
    CHECK_INT(llm_session_table_entry(reader, 1, &session), LLM_NOT_FOUND);
    CHECK_INT(ftruncate(fd, (off_t)view.bytes), 0); /* because the writer has mapped the whole segment */
    close(fd);
    llm_session_table_close(reader);
    session_table_close(p);
}

/* A child opens the segment, and exits without closing it. It stays a zombie until the caller waits for it. */
static void die_with_segment(pid_t *child)
{
    *child = fork();
    if (*child == 0) {
        session_table *p = open_session_table(segment, 1, 16);
        if (p != NULL) {
            const int32_t tokens[2] = {5, 6};
            session_table_open_entry(p, 0, 1, "orphan", 1);
            session_table_append(p, 0, tokens, 2);
        }
        _exit(p != NULL ? 0 : 1);
    }
    siginfo_t died;
    CHECK_INT(waitid(P_PID, (id_t)*child, &died, WEXITED | WNOWAIT), 0);
    CHECK_INT(died.si_status, 0);
}

static void leave_segment_behind(void)
{
    pid_t child;
    die_with_segment(&child);
    waitpid(child, NULL, 0);
}

static bool is_abandoned(void)
{
    llm_session_table *reader;
    if (llm_session_table_open(segment, -1, &reader) != LLM_OK) {
        return false;
    }
    const bool is = session_table_is_abandoned(reader);
    llm_session_table_close(reader);
    return is;
}

static void a_zombie_owns_nothing(void)
{
    pid_t child;
    die_with_segment(&child);
    CHECK_STILL_GOOD();
    CHECK(is_abandoned());
    waitpid(child, NULL, 0);
    shm_unlink(segment);
}

/* If one daemon adopts a segment, no other daemon can adopt it. */
static void a_dead_owners_segment_has_one_heir(void)
{
    leave_segment_behind();
    CHECK_STILL_GOOD();
    llm_session_table *heir;
    CHECK_INT(llm_session_table_open(segment, -1, &heir), LLM_OK);
    CHECK(session_table_is_abandoned(heir));
    CHECK(!is_abandoned());
    llm_session_table_close(heir);
    CHECK(is_abandoned());
    shm_unlink(segment);
}

/* A sweep does not lock a segment that was used recently. Otherwise the daemon that wants to adopt the segment would
 * take it for a segment in use. */
static void a_sweep_does_not_lock_what_was_used_lately(void)
{
    struct stat facts;
    leave_segment_behind();
    CHECK_STILL_GOOD();
    const int fd = shm_open(segment, O_RDONLY, 0);
    CHECK(fd >= 0 && fstat(fd, &facts) == 0);
    close(fd);
    watched = facts.st_ino;
    char other[sizeof segment + 8];
    snprintf(other, sizeof other, "%s-other", segment);
    session_table *p = open_session_table(other, 1, 16);
    CHECK(p != NULL);
    CHECK_INT(n_watched_locks, 0);
    watched = 0;
    session_table_close(p);
    shm_unlink(segment);
}

static void a_segment_that_cannot_be_locked_is_not_left_behind(void)
{
    session_table *p = NULL;
    char error[LLM_TEXT_BYTES_MAX] = "";
    lock_error = ENOLCK;
    CHECK_INT(session_table_open(segment, 1, 16, "a model", "", &p, error, sizeof error), LLM_IO);
    CHECK(strstr(error, "No locks available") != NULL);
    CHECK_INT(shm_open(segment, O_RDONLY, 0), -1);
    lock_error = EINTR;
    p = open_session_table(segment, 1, 16);
    CHECK(p != NULL && !is_abandoned());
    session_table_close(p);
}

/* session_table_leave leaves the segment as a kill would. */
static void what_is_left_is_abandoned(void)
{
    session_table *p = open_session_table(segment, 1, 16);
    CHECK(p != NULL);
    session_table_open_entry(p, 0, 1, "left", 1);
    CHECK(!is_abandoned());
    session_table_leave(p);
    CHECK(is_abandoned());
    session_table_close(p);
    CHECK(is_abandoned());
    shm_unlink(segment);
}

static void a_dead_owners_segment_is_readable(void)
{
    leave_segment_behind();
    CHECK_STILL_GOOD();
    llm_session_table *orphan;
    int32_t copy[16];
    CHECK(is_abandoned());
    CHECK_INT(llm_session_table_open(segment, -1, &orphan), LLM_OK);
    CHECK_INT(llm_session_table_tokens(orphan, 0, copy, 16, NULL), 2);
    shm_unlink(segment);
    session_table *p = open_session_table(segment, 2, 32);
    CHECK(p != NULL);
    /* the reader of the removed segment keeps its mapping */
    CHECK_INT(llm_session_table_tokens(orphan, 0, copy, 16, NULL), 2);
    CHECK_INT(copy[1], 6);
    llm_session_table_close(orphan);
    session_table_close(p);
}

static void what_cannot_be_had_is_named(void)
{
    session_table *p;
    char error[LLM_TEXT_BYTES_MAX];
    CHECK_INT(session_table_open("/no/such/place", 1, 16, "m", "f", &p, error, sizeof error), LLM_IO);
    CHECK(strstr(error, "/no/such/place") != NULL);
    /* 2 TiB of tokens, more than any /dev/shm has */
    CHECK_INT(session_table_open(segment, 512, (1 << 30) - 1, "m", "f", &p, error, sizeof error), LLM_IO);
    CHECK(strstr(error, "needs 2199") != NULL);
    CHECK(strstr(error, strerror(ENOSPC)) != NULL || strstr(error, strerror(EFBIG)) != NULL ||
          strstr(error, strerror(ENOMEM)) != NULL);
    llm_session_table *reader;
    CHECK_INT(llm_session_table_open(segment, -1, &reader), LLM_NOT_FOUND); /* no segment is left */
}

/* ---- segments that nobody should trust ---- */

static uint64_t random_state = 88172645463325252u;

static uint64_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static int write_segment(const void *bytes, size_t n)
{
    shm_unlink(segment);
    int fd = shm_open(segment, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0) {
        return 0;
    }
    int written = write(fd, bytes, n) == (ssize_t)n;
    close(fd);
    return written;
}

/* Calls all functions of a reader. */
static void read_all(const llm_session_table *reader)
{
    static int32_t copy[4096];
    llm_branch_view session;
    llm_session_table_view view;
    llm_session_table_read(reader, &view);
    for (uint32_t entry = 0; entry < view.n_entries; entry++) {
        llm_session_table_entry(reader, entry, &session);
        llm_session_table_tokens(reader, entry, copy, 4096, NULL);
    }
    for (int counter = 0; counter < LLM_COUNTER_N; counter++) {
        llm_session_table_counter(reader, counter);
    }
}

static void random_bytes_are_not_a_segment(void)
{
    static uint64_t bytes[2048];
    llm_session_table *reader;
    for (size_t n = 0; n < sizeof bytes; n = n * 2 + 1) {
        for (size_t i = 0; i < 2048; i++) {
            bytes[i] = random_bits();
        }
        CHECK(write_segment(bytes, n));
        CHECK_INT(llm_session_table_open(segment, -1, &reader), LLM_VERSION);
    }
    shm_unlink(segment);
}

/* Some bytes of a valid segment are changed. It is refused, or can be read without harm. */
static void a_damaged_segment_harms_no_reader(void)
{
    session_table *p = open_session_table(segment, 4, 64);
    CHECK(p != NULL);
    session_table_open_entry(p, 0, 1, "a", 1);
    session_table_open_entry(p, 3, 1, "b", 1);
    session_table_append(p, 3, (const int32_t[]){1, 2, 3}, 3);
    static uint8_t image[65536], damaged[65536];
    llm_session_table_view view;
    llm_session_table_read(session_table_reader(p), &view);
    CHECK(view.bytes <= sizeof image);
    memcpy(image, (const void *)session_table_reader(p)->base, view.bytes);
    session_table_close(p);
    int refused = 0, accepted = 0;
    for (int round = 0; round < 4000; round++) {
        memcpy(damaged, image, view.bytes);
        size_t reach = round % 2 == 0
                           ? sizeof(session_table_header) - SESSION_TABLE_MODEL_BYTES - SESSION_TABLE_FINGERPRINT_BYTES
                           : view.bytes;
        for (uint64_t i = random_bits() % 3; i < 3; i++) {
            damaged[8 + random_bits() % (reach - 8)] = (uint8_t)random_bits();
        }
        size_t n = round % 5 == 0 ? random_bits() % view.bytes : view.bytes;
        CHECK(write_segment(damaged, n));
        llm_session_table *reader;
        int status = llm_session_table_open(segment, -1, &reader);
        CHECK(status == LLM_OK || status == LLM_VERSION);
        if (status == LLM_OK) {
            read_all(reader);
            llm_session_table_close(reader);
            accepted++;
        } else {
            refused++;
        }
    }
    shm_unlink(segment);
    CHECK(refused > 100 && accepted > 100);
}

static void another_version_is_refused(void)
{
    session_table *p = open_session_table(segment, 1, 16);
    CHECK(p != NULL);
    session_table_header *h = (session_table_header *)(uintptr_t)session_table_reader(p)->base;
    llm_session_table *reader;
    h->version = LLM_SESSION_TABLE_VERSION + 1;
    CHECK_INT(llm_session_table_open(segment, -1, &reader), LLM_VERSION);
    h->version = LLM_SESSION_TABLE_VERSION;
    CHECK_INT(llm_session_table_open(segment, -1, &reader), LLM_OK);
    llm_session_table_close(reader);
    session_table_close(p);
}

/* ---- a busy writer ---- */

enum { TORTURE_CTX = 512, TORTURE_ROUNDS = 300000, TORTURE_READS_MIN = 1000 };

typedef struct torture {
    session_table *p;
    _Atomic int done;
    _Atomic int reads; /* the writer continues until the reader has read often enough */
} torture;

/* Each time the array is rewritten, it has a new number, its life. Token i of life n is n * TORTURE_CTX + i. After a
 * truncation to k, the first k tokens belong to earlier lives. So in a consistent copy, lives never decrease, and each
 * token is at its own index. */
static void *rewrite(void *argument)
{
    torture *t = argument;
    int32_t tokens[TORTURE_CTX];
    for (int32_t life = 1; life <= TORTURE_ROUNDS || atomic_load(&t->reads) < TORTURE_READS_MIN; life++) {
        uint32_t kept = (uint32_t)life * 7919u % TORTURE_CTX;
        kept = kept < session_table_n_tokens(t->p, 0) ? kept : session_table_n_tokens(t->p, 0) / 2;
        if (life % 64 == 0) { /* also when the number of the life starts again, because a million is a multiple of 64 */
            session_table_close_entry(t->p, 0);
            session_table_open_entry(t->p, 0, (uint32_t)life, "torture", 1);
            kept = 0;
        }
        session_table_truncate(t->p, 0, kept);
        uint32_t grown = 1 + (uint32_t)life * 31u % (TORTURE_CTX - kept);
        for (uint32_t i = 0; i < grown; i++) {
            tokens[i] = life % 1000000 * TORTURE_CTX + (int32_t)(kept + i);
        }
        session_table_append(t->p, 0, tokens, grown / 2);
        session_table_append(t->p, 0, tokens + grown / 2, grown - grown / 2);
    }
    atomic_store(&t->done, 1);
    return NULL;
}

static int is_whole(const int32_t *tokens, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (tokens[i] % TORTURE_CTX != i || (i > 0 && tokens[i] < tokens[i - 1])) {
            return 0;
        }
    }
    return 1;
}

static void a_reader_never_sees_a_torn_copy(void)
{
    torture t = {.p = open_session_table(segment, 1, TORTURE_CTX)};
    CHECK(t.p != NULL);
    session_table_open_entry(t.p, 0, 1, "torture", 1);
    llm_session_table *reader;
    CHECK_INT(llm_session_table_open(segment, -1, &reader), LLM_OK);
    pthread_t writer;
    CHECK_INT(pthread_create(&writer, NULL, rewrite, &t), 0);
    int32_t copy[TORTURE_CTX];
    int torn = 0, torn_records = 0;
    while (!atomic_load(&t.done)) {
        uint32_t generation;
        int64_t n = llm_session_table_tokens(reader, 0, copy, TORTURE_CTX, &generation);
        torn += n < -1 || (n > 0 && !is_whole(copy, n));
        llm_branch_view v;
        if (llm_session_table_entry(reader, 0, &v) == LLM_OK) {
            torn_records += strcmp(v.name, "torture") != 0 || v.n_tokens > TORTURE_CTX;
        }
        atomic_fetch_add(&t.reads, n >= 0);
    }
    pthread_join(writer, NULL);
    CHECK_INT(torn, 0);
    CHECK_INT(torn_records, 0);
    llm_session_table_close(reader);
    session_table_close(t.p);
}

/* Renames an entry again and again. At any time, readers must find it under one of its names. */
static void *rename_it(void *argument)
{
    torture *t = argument;
    for (uint32_t i = 0; i < TORTURE_ROUNDS || atomic_load(&t->reads) < TORTURE_READS_MIN; i++) {
        session_table_rename_entry(t->p, 0, i % 2 == 0 ? "a longer name than the other" : "short");
    }
    atomic_store(&t->done, 1);
    return NULL;
}

static void a_renamed_session_is_always_there(void)
{
    torture t = {.p = open_session_table(segment, 1, 4)};
    CHECK(t.p != NULL);
    session_table_open_entry(t.p, 0, 1, "short", 1);
    session_table_append(t.p, 0, (const int32_t[]){1, 2, 3}, 3);
    llm_session_table *other;
    CHECK_INT(llm_session_table_open(segment, -1, &other), LLM_OK);
    pthread_t writer;
    CHECK_INT(pthread_create(&writer, NULL, rename_it, &t), 0);
    int missed = 0, torn = 0;
    while (!atomic_load(&t.done)) {
        const llm_session_table *readers[] = {other, session_table_reader(t.p)};
        for (int i = 0; i < 2; i++) {
            llm_branch_view v;
            int32_t copy[4];
            if (llm_session_table_entry(readers[i], 0, &v) != LLM_OK ||
                llm_session_table_tokens(readers[i], 0, copy, 4, NULL) != 3) {
                missed++;
            } else {
                torn += strcmp(v.name, "short") != 0 && strcmp(v.name, "a longer name than the other") != 0;
                torn += v.n_tokens != 3;
            }
        }
        atomic_fetch_add(&t.reads, 1);
    }
    pthread_join(writer, NULL);
    CHECK_INT(missed, 0);
    CHECK_INT(torn, 0);
    llm_session_table_close(other);
    session_table_close(t.p);
}

/* Changes the segment's header so that it was last used `days` ago. Its process number is not known here, as if the
 * process ran in a container with a pid namespace of its own. */
static void age_segment(const char *name, int64_t days)
{
    int fd = shm_open(name, O_RDWR, 0);
    CHECK(fd >= 0);
    session_table_header *h = mmap(NULL, sizeof *h, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    CHECK(h != MAP_FAILED);
    h->started_ms -= (uint64_t)days * 24 * 3600 * 1000;
    h->pid = INT32_MAX;
    munmap(h, sizeof *h);
}

static bool segment_exists(const char *name)
{
    int fd = shm_open(name, O_RDONLY, 0);
    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0;
}

static void segments_of_the_long_dead_are_removed(void)
{
    static const struct {
        int64_t days;
        bool is_dead, has_session, stays;
        const char *ending;
    } cases[] = {
        {8, true, false, false, "-old"},
        {6, true, false, true, "-old"},
        {8, false, false, true, "-old"},
        {8, true, true, true, "-old"},
        {0, true, false, false, SESSION_TABLE_OPENING},
        {0, false, false, true, SESSION_TABLE_OPENING},
        {8, false, false, true, SESSION_TABLE_OPENING},
    };
    char name[96];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(name, sizeof name, "%s%s", segment, cases[i].ending);
        session_table *old = open_session_table(name, 2, 16);
        CHECK(old != NULL);
        if (cases[i].has_session) {
            session_table_open_entry(old, 0, 0, "used today", 1);
        }
        age_segment(name, cases[i].days);
        CHECK_STILL_GOOD();
        if (cases[i].is_dead) {
            session_table_leave(old);
        }
        session_table *p = open_session_table(segment, 2, 16);
        CHECK(p != NULL);
        CHECK_INT(segment_exists(name), cases[i].stays);
        session_table_close(p);
        session_table_close(old);
        shm_unlink(name);
    }
}

int main(void)
{
    snprintf(segment, sizeof segment, "/llmd-test-page-%d", (int)getpid());
    RUN(a_private_page_tells_its_facts);
    RUN(tokens_grow_and_are_cut);
    RUN(a_record_is_shown_and_leaves_with_its_session);
    RUN(counters_count);
    RUN(another_mapping_reads_what_is_written);
    RUN(a_name_that_is_taken_is_left_alone);
    RUN(a_segment_of_others_is_not_read);
    RUN(a_segment_that_shrinks_harms_no_reader);
    RUN(a_dead_owners_segment_is_readable);
    RUN(a_zombie_owns_nothing);
    RUN(a_dead_owners_segment_has_one_heir);
    RUN(a_sweep_does_not_lock_what_was_used_lately);
    RUN(a_segment_that_cannot_be_locked_is_not_left_behind);
    RUN(what_is_left_is_abandoned);
    RUN(segments_of_the_long_dead_are_removed);
    RUN(what_cannot_be_had_is_named);
    RUN(random_bytes_are_not_a_segment);
    RUN(a_damaged_segment_harms_no_reader);
    RUN(another_version_is_refused);
    RUN(a_reader_never_sees_a_torn_copy);
    RUN(a_renamed_session_is_always_there);
    shm_unlink(segment); /* remains of a failed test */
    return CHECK_RESULT();
}
