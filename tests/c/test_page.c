/* The shared page: its life, its rules, readers against a busy writer, and against bytes that nobody should trust. */
#include "boundary/page.h"

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
#include "boundary/page_layout.h"

static char segment[64]; /* this process's own name */

static ino_t watched; /* a segment, and how often it was locked */
static uint32_t n_watched_locks;
/* Of the next lock that waits; 0: none. A sweep, which meets the segments of other tests, does not wait. */
static int lock_error;

/* Instead of the library's: tells what is locked, and fails when the test says so. */
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

static page *open_page(const char *name, uint32_t n_places, uint32_t n_ctx)
{
    page *p = NULL;
    char error[LLM_TEXT_BYTES_MAX] = "";
    const char *fingerprint = "0123456789abcdef0123456789abcdef";
    int status = page_open(name, n_places, n_ctx, "a model", fingerprint, &p, error, sizeof error);
    if (status != LLM_OK) {
        printf("page_open: %s: %s\n", llm_word(LLM_STATUSES, status), error);
    }
    return p;
}

static void a_private_page_tells_its_facts(void)
{
    page *p = open_page(NULL, 3, 100);
    CHECK(p != NULL);
    llm_page_view view;
    llm_page_read(page_reader(p), &view);
    CHECK_INT(view.version, LLM_PAGE_VERSION);
    CHECK_INT(view.n_places, 3);
    CHECK_INT(view.n_ctx, 100);
    CHECK_INT(view.n_counters, LLM_COUNTER_N);
    CHECK_INT(view.pid, getpid());
    CHECK(view.started_ms > UINT64_C(1500000000000));
    CHECK_STR(view.model, "a model");
    CHECK_STR(view.fingerprint, "0123456789abcdef0123456789abcdef");
    llm_branch_view session;
    int32_t token;
    for (uint32_t place = 0; place < 5; place++) { /* all closed, the last two do not exist */
        CHECK_INT(llm_page_session(page_reader(p), place, &session), LLM_NOT_FOUND);
        CHECK_INT(llm_page_tokens(page_reader(p), place, &token, 1, NULL), -1);
    }
    page_close(p);
    page_close(NULL);
}

static void tokens_grow_and_are_cut(void)
{
    page *p = open_page(NULL, 2, 8);
    CHECK(p != NULL);
    const llm_page *reader = page_reader(p);
    const int32_t tokens[8] = {10, 11, 12, 13, 14, 15, 16, 17};
    int32_t copy[8];
    uint32_t generation, later;
    page_place_open(p, 1, 7, "a", 1);
    CHECK_INT(llm_page_tokens(reader, 1, copy, 8, &generation), 0);
    page_append(p, 1, tokens, 5);
    page_append(p, 1, tokens + 5, 3); /* to the brim */
    CHECK_INT(page_n_tokens(p, 1), 8);
    CHECK_INT(llm_page_tokens(reader, 1, copy, 8, &later), 8);
    CHECK(memcmp(copy, tokens, sizeof tokens) == 0);
    CHECK(memcmp(page_tokens(p, 1), tokens, sizeof tokens) == 0);
    CHECK_INT(later, generation); /* growth keeps the generation */
    CHECK_INT(llm_page_tokens(reader, 1, copy, 7, NULL), -9);
    page_truncate(p, 1, 8);
    CHECK_INT(llm_page_tokens(reader, 1, copy, 8, &later), 8);
    CHECK_INT(later, generation); /* nothing was cut */
    page_truncate(p, 1, 3);
    CHECK_INT(llm_page_tokens(reader, 1, copy, 8, &later), 3);
    CHECK(later != generation);
    page_append(p, 1, tokens, 1);
    CHECK_INT(llm_page_tokens(reader, 1, copy, 8, NULL), 4);
    CHECK_INT(copy[2], 12);
    CHECK_INT(copy[3], 10);
    CHECK_INT(llm_page_tokens(reader, 0, copy, 8, NULL), -1); /* the neighbour is still closed */
    page_close(p);
}

static void a_record_is_shown_and_leaves_with_its_session(void)
{
    page *p = open_page(NULL, 2, 8);
    CHECK(p != NULL);
    const llm_page *reader = page_reader(p);
    char name[LLM_SESSION_NAME_BYTES_MAX + 1];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    page_place_open(p, 0, 42, name, 77);
    llm_branch_view v;
    CHECK_INT(llm_page_session(reader, 0, &v), LLM_OK);
    CHECK_STR(v.name, name);
    CHECK_INT(v.owner, 42);
    CHECK_INT(v.id, 77);
    CHECK_INT(v.state, LLM_STATE_EMPTY);
    CHECK_INT(v.diverged_at, -1);
    CHECK(v.opened_ms > 0 && v.used_ms == v.opened_ms);
    page_record_store(p, 0,
                      &(page_record){.state = LLM_STATE_IDLE,
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
    CHECK_INT(llm_page_session(reader, 0, &v), LLM_OK);
    CHECK_INT(v.state, LLM_STATE_IDLE);
    CHECK_INT(v.reason, LLM_REASON_REWIND);
    CHECK(v.n_visible == 1 && v.n_waiting == 2 && v.n_requests == 3 && v.diverged_at == 4 && v.n_last_prompt == 5);
    CHECK(v.n_last_reused == 6 && v.n_prefilled_total == 7 && v.n_reused_total == 8 && v.n_generated_total == 9);
    CHECK(v.used_ms == 10 && v.opened_ms == 11);
    uint32_t generation = v.generation;
    page_place_close(p, 0);
    CHECK_INT(llm_page_session(reader, 0, &v), LLM_NOT_FOUND);
    page_place_open(p, 0, 43, "b", 1);
    CHECK_INT(llm_page_session(reader, 0, &v), LLM_OK);
    CHECK_STR(v.name, "b"); /* nothing of the longer name is left */
    CHECK_INT(v.n_requests, 0);
    CHECK(v.generation != generation);
    page_close(p);
}

static void counters_count(void)
{
    page *p = open_page(NULL, 1, 1);
    CHECK(p != NULL);
    page_count(p, LLM_COUNTER_STEPS, 2);
    page_count(p, LLM_COUNTER_STEPS, 3);
    page_gauge(p, LLM_COUNTER_CELLS_USED, 9);
    page_gauge(p, LLM_COUNTER_CELLS_USED, 8);
    CHECK_INT(page_counter(p, LLM_COUNTER_STEPS), 5);
    CHECK_INT(llm_page_counter(page_reader(p), LLM_COUNTER_STEPS), 5);
    CHECK_INT(llm_page_counter(page_reader(p), LLM_COUNTER_CELLS_USED), 8);
    CHECK_INT(llm_page_counter(page_reader(p), LLM_COUNTER_STEP_US), 0);
    CHECK_INT(llm_page_counter(page_reader(p), -1), 0);
    CHECK_INT(llm_page_counter(page_reader(p), LLM_COUNTER_N), 0);
    page_close(p);
}

/* ---- named segments ---- */

static void another_mapping_reads_what_is_written(void)
{
    page *p = open_page(segment, 2, 16);
    CHECK(p != NULL);
    llm_page *other;
    llm_page_view view;
    const int32_t tokens[3] = {1, -2, 3};
    int32_t copy[16];
    CHECK_INT(llm_page_open(segment, -1, &other), LLM_OK);
    llm_page_read(other, &view);
    CHECK_INT(view.n_ctx, 16);
    CHECK_STR(view.model, "a model");
    page_place_open(p, 0, 1, "s", 1);
    page_append(p, 0, tokens, 3);
    CHECK_INT(llm_page_tokens(other, 0, copy, 16, NULL), 3);
    CHECK(memcmp(copy, tokens, sizeof tokens) == 0);
    page_close(p);
    CHECK_INT(llm_page_tokens(other, 0, copy, 16, NULL), 3); /* a mapping outlives the name */
    llm_page_close(other);
    CHECK_INT(llm_page_open(segment, -1, &other), LLM_NOT_FOUND);
    CHECK_INT(llm_page_open("no-slash/inside", -1, &other), LLM_NOT_FOUND);
    llm_page_close(NULL);
}

/* Whosever it is, alive or not: what has the name already is neither read nor removed. */
static void a_name_that_is_taken_is_left_alone(void)
{
    page *p = open_page(segment, 1, 16);
    CHECK(p != NULL);
    page *second;
    char error[LLM_TEXT_BYTES_MAX];
    CHECK_INT(page_open(segment, 1, 16, "m", "f", &second, error, sizeof error), LLM_IO);
    CHECK(strstr(error, segment) != NULL && strstr(error, strerror(EEXIST)) != NULL);
    CHECK_INT(page_open(segment, 1, 16, "m", "f", &second, NULL, 0), LLM_IO);
    llm_page *reader;
    CHECK_INT(llm_page_open(segment, -1, &reader), LLM_OK); /* the refused ones did not harm it */
    CHECK(!page_is_abandoned(reader));
    llm_page_close(reader);
    page_close(p);
}

/* Only its owner's, and nobody else's to write or read: anybody may put anything under a name. */
static void a_segment_of_others_is_not_read(void)
{
    page *p = open_page(segment, 1, 16);
    CHECK(p != NULL);
    llm_page *reader;
    const int fd = shm_open(segment, O_RDWR, 0);
    CHECK(fd >= 0);
    const mode_t modes[] = {0620, 0602, 0640, 0604};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        CHECK_INT(fchmod(fd, modes[i]), 0);
        CHECK_INT(llm_page_open(segment, -1, &reader), LLM_IO);
    }
    CHECK_INT(fchmod(fd, 0600), 0);
    CHECK_INT(llm_page_open(segment, geteuid(), &reader), LLM_OK);
    llm_page_close(reader);
    CHECK_INT(llm_page_open(segment, (int64_t)geteuid() + 1, &reader), LLM_IO);
    if (geteuid() == 0) { /* root may read all: it asks for the owner that it expects */
        CHECK_INT(fchown(fd, 1, 1), 0);
        CHECK_INT(llm_page_open(segment, -1, &reader), LLM_IO);
        CHECK_INT(llm_page_open(segment, 1, &reader), LLM_OK);
        llm_page_close(reader);
    }
    close(fd);
    page_close(p);
}

/* The bytes are taken away under the reader: it gets no signal, only nothing. */
static void a_segment_that_shrinks_harms_no_reader(void)
{
    page *p = open_page(segment, 2, 16);
    CHECK(p != NULL);
    const int32_t tokens[2] = {5, 6};
    page_place_open(p, 1, 1, "it", 1);
    page_append(p, 1, tokens, 2);
    llm_page_view view;
    llm_page *reader;
    CHECK_INT(llm_page_open(segment, -1, &reader), LLM_OK);
    llm_page_read(reader, &view);
    const int fd = shm_open(segment, O_RDWR, 0);
    int32_t copy[16];
    llm_branch_view session;
    CHECK_INT(llm_page_tokens(reader, 1, copy, 16, NULL), 2);
    for (uint64_t n = view.bytes; n > 0; n -= 32) {
        CHECK_INT(ftruncate(fd, (off_t)n), 0);
        llm_page_counter(reader, 0);
        CHECK(llm_page_tokens(reader, 1, copy, 16, NULL) == (n >= reader->tokens_at + 18 * sizeof *copy ? 2 : -1));
        (void)llm_page_session(reader, 1, &session);
    }
    CHECK_INT(llm_page_session(reader, 1, &session), LLM_NOT_FOUND);
    CHECK_INT(ftruncate(fd, (off_t)view.bytes), 0); /* for the writer, which has it mapped */
    close(fd);
    llm_page_close(reader);
    page_close(p);
}

/* A process that opens the segment and dies without closing it; nobody has asked for its exit status yet. */
static void die_with_segment(pid_t *child)
{
    *child = fork();
    if (*child == 0) {
        page *p = open_page(segment, 1, 16);
        if (p != NULL) {
            const int32_t tokens[2] = {5, 6};
            page_place_open(p, 0, 1, "orphan", 1);
            page_append(p, 0, tokens, 2);
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
    llm_page *reader;
    if (llm_page_open(segment, -1, &reader) != LLM_OK) {
        return false;
    }
    const bool is = page_is_abandoned(reader);
    llm_page_close(reader);
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

/* What one daemon takes over is not taken over by another one. */
static void a_dead_owners_segment_has_one_heir(void)
{
    leave_segment_behind();
    CHECK_STILL_GOOD();
    llm_page *heir;
    CHECK_INT(llm_page_open(segment, -1, &heir), LLM_OK);
    CHECK(page_is_abandoned(heir));
    CHECK(!is_abandoned());
    llm_page_close(heir);
    CHECK(is_abandoned());
    shm_unlink(segment);
}

/* The daemon that comes back for it may ask at any moment whether it is abandoned. */
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
    page *p = open_page(other, 1, 16);
    CHECK(p != NULL);
    CHECK_INT(n_watched_locks, 0);
    watched = 0;
    page_close(p);
    shm_unlink(segment);
}

static void a_segment_that_cannot_be_locked_is_not_left_behind(void)
{
    page *p = NULL;
    char error[LLM_TEXT_BYTES_MAX] = "";
    lock_error = ENOLCK;
    CHECK_INT(page_open(segment, 1, 16, "a model", "", &p, error, sizeof error), LLM_IO);
    CHECK(strstr(error, "No locks available") != NULL);
    CHECK_INT(shm_open(segment, O_RDONLY, 0), -1);
    lock_error = EINTR;
    p = open_page(segment, 1, 16);
    CHECK(p != NULL && !is_abandoned());
    page_close(p);
}

/* "As if the process were killed now." */
static void what_is_left_is_abandoned(void)
{
    page *p = open_page(segment, 1, 16);
    CHECK(p != NULL);
    page_place_open(p, 0, 1, "left", 1);
    CHECK(!is_abandoned());
    page_leave(p);
    CHECK(is_abandoned());
    page_close(p);
    CHECK(is_abandoned());
    shm_unlink(segment);
}

static void a_dead_owners_segment_is_readable(void)
{
    leave_segment_behind();
    CHECK_STILL_GOOD();
    llm_page *orphan;
    int32_t copy[16];
    CHECK(is_abandoned());
    CHECK_INT(llm_page_open(segment, -1, &orphan), LLM_OK);
    CHECK_INT(llm_page_tokens(orphan, 0, copy, 16, NULL), 2);
    shm_unlink(segment);
    page *p = open_page(segment, 2, 32);
    CHECK(p != NULL);
    CHECK_INT(llm_page_tokens(orphan, 0, copy, 16, NULL), 2); /* its reader is not pulled away */
    CHECK_INT(copy[1], 6);
    llm_page_close(orphan);
    page_close(p);
}

static void what_cannot_be_had_is_named(void)
{
    page *p;
    char error[LLM_TEXT_BYTES_MAX];
    CHECK_INT(page_open("/no/such/place", 1, 16, "m", "f", &p, error, sizeof error), LLM_IO);
    CHECK(strstr(error, "/no/such/place") != NULL);
    /* 2 TiB of tokens: no machine's /dev/shm has them */
    CHECK_INT(page_open(segment, 512, (1 << 30) - 1, "m", "f", &p, error, sizeof error), LLM_IO);
    CHECK(strstr(error, "needs 2199") != NULL);
    CHECK(strstr(error, strerror(ENOSPC)) != NULL || strstr(error, strerror(EFBIG)) != NULL ||
          strstr(error, strerror(ENOMEM)) != NULL);
    llm_page *reader;
    CHECK_INT(llm_page_open(segment, -1, &reader), LLM_NOT_FOUND); /* nothing is left behind */
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

/* Reads everything that a reader can ask for. */
static void read_all(const llm_page *reader)
{
    static int32_t copy[4096];
    llm_branch_view session;
    llm_page_view view;
    llm_page_read(reader, &view);
    for (uint32_t place = 0; place < view.n_places; place++) {
        llm_page_session(reader, place, &session);
        llm_page_tokens(reader, place, copy, 4096, NULL);
    }
    for (int counter = 0; counter < LLM_COUNTER_N; counter++) {
        llm_page_counter(reader, counter);
    }
}

static void random_bytes_are_not_a_segment(void)
{
    static uint64_t bytes[2048];
    llm_page *reader;
    for (size_t n = 0; n < sizeof bytes; n = n * 2 + 1) {
        for (size_t i = 0; i < 2048; i++) {
            bytes[i] = random_bits();
        }
        CHECK(write_segment(bytes, n));
        CHECK_INT(llm_page_open(segment, -1, &reader), LLM_VERSION);
    }
    shm_unlink(segment);
}

/* A true segment with bytes changed: either refused, or readable without harm. */
static void a_damaged_segment_harms_no_reader(void)
{
    page *p = open_page(segment, 4, 64);
    CHECK(p != NULL);
    page_place_open(p, 0, 1, "a", 1);
    page_place_open(p, 3, 1, "b", 1);
    page_append(p, 3, (const int32_t[]){1, 2, 3}, 3);
    static uint8_t image[65536], damaged[65536];
    llm_page_view view;
    llm_page_read(page_reader(p), &view);
    CHECK(view.bytes <= sizeof image);
    memcpy(image, (const void *)page_reader(p)->base, view.bytes);
    page_close(p);
    int refused = 0, accepted = 0;
    for (int round = 0; round < 4000; round++) {
        memcpy(damaged, image, view.bytes);
        size_t reach = round % 2 == 0 ? sizeof(page_header) - PAGE_MODEL_BYTES - PAGE_FINGERPRINT_BYTES : view.bytes;
        for (uint64_t i = random_bits() % 3; i < 3; i++) {
            damaged[8 + random_bits() % (reach - 8)] = (uint8_t)random_bits();
        }
        size_t n = round % 5 == 0 ? random_bits() % view.bytes : view.bytes;
        CHECK(write_segment(damaged, n));
        llm_page *reader;
        int status = llm_page_open(segment, -1, &reader);
        CHECK(status == LLM_OK || status == LLM_VERSION);
        if (status == LLM_OK) {
            read_all(reader);
            llm_page_close(reader);
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
    page *p = open_page(segment, 1, 16);
    CHECK(p != NULL);
    page_header *h = (page_header *)(uintptr_t)page_reader(p)->base;
    llm_page *reader;
    h->version = LLM_PAGE_VERSION + 1;
    CHECK_INT(llm_page_open(segment, -1, &reader), LLM_VERSION);
    h->version = LLM_PAGE_VERSION;
    CHECK_INT(llm_page_open(segment, -1, &reader), LLM_OK);
    llm_page_close(reader);
    page_close(p);
}

/* ---- a busy writer ---- */

enum { TORTURE_CTX = 512, TORTURE_ROUNDS = 300000, TORTURE_READS_MIN = 1000 };

typedef struct torture {
    page *p;
    _Atomic int done;
    _Atomic int reads; /* the writer goes on until the reader has seen enough */
} torture;

/* Each life of the array has a number; token i of life n is n * TORTURE_CTX + i. A truncation to k keeps the life of
 * the first k tokens, so a whole copy is: lives that never fall, each token at its own index. */
static void *rewrite(void *argument)
{
    torture *t = argument;
    int32_t tokens[TORTURE_CTX];
    for (int32_t life = 1; life <= TORTURE_ROUNDS || atomic_load(&t->reads) < TORTURE_READS_MIN; life++) {
        uint32_t kept = (uint32_t)life * 7919u % TORTURE_CTX;
        kept = kept < page_n_tokens(t->p, 0) ? kept : page_n_tokens(t->p, 0) / 2;
        if (life % 64 == 0) { /* a million is a multiple: where the number starts over, nothing is kept */
            page_place_close(t->p, 0);
            page_place_open(t->p, 0, (uint32_t)life, "torture", 1);
            kept = 0;
        }
        page_truncate(t->p, 0, kept);
        uint32_t grown = 1 + (uint32_t)life * 31u % (TORTURE_CTX - kept);
        for (uint32_t i = 0; i < grown; i++) {
            tokens[i] = life % 1000000 * TORTURE_CTX + (int32_t)(kept + i);
        }
        page_append(t->p, 0, tokens, grown / 2);
        page_append(t->p, 0, tokens + grown / 2, grown - grown / 2);
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
    torture t = {.p = open_page(segment, 1, TORTURE_CTX)};
    CHECK(t.p != NULL);
    page_place_open(t.p, 0, 1, "torture", 1);
    llm_page *reader;
    CHECK_INT(llm_page_open(segment, -1, &reader), LLM_OK);
    pthread_t writer;
    CHECK_INT(pthread_create(&writer, NULL, rewrite, &t), 0);
    int32_t copy[TORTURE_CTX];
    int torn = 0, torn_records = 0;
    while (!atomic_load(&t.done)) {
        uint32_t generation;
        int64_t n = llm_page_tokens(reader, 0, copy, TORTURE_CTX, &generation);
        torn += n < -1 || (n > 0 && !is_whole(copy, n));
        llm_branch_view v;
        if (llm_page_session(reader, 0, &v) == LLM_OK) {
            torn_records += strcmp(v.name, "torture") != 0 || v.n_tokens > TORTURE_CTX;
        }
        atomic_fetch_add(&t.reads, n >= 0);
    }
    pthread_join(writer, NULL);
    CHECK_INT(torn, 0);
    CHECK_INT(torn_records, 0);
    llm_page_close(reader);
    page_close(t.p);
}

/* A session is there under one of its names whenever it is looked at, through the mapping or a descriptor. */
static void *rename_it(void *argument)
{
    torture *t = argument;
    for (uint32_t i = 0; i < TORTURE_ROUNDS || atomic_load(&t->reads) < TORTURE_READS_MIN; i++) {
        page_place_rename(t->p, 0, i % 2 == 0 ? "a longer name than the other" : "short");
    }
    atomic_store(&t->done, 1);
    return NULL;
}

static void a_renamed_session_is_always_there(void)
{
    torture t = {.p = open_page(segment, 1, 4)};
    CHECK(t.p != NULL);
    page_place_open(t.p, 0, 1, "short", 1);
    page_append(t.p, 0, (const int32_t[]){1, 2, 3}, 3);
    llm_page *other;
    CHECK_INT(llm_page_open(segment, -1, &other), LLM_OK);
    pthread_t writer;
    CHECK_INT(pthread_create(&writer, NULL, rename_it, &t), 0);
    int missed = 0, torn = 0;
    while (!atomic_load(&t.done)) {
        const llm_page *readers[] = {other, page_reader(t.p)};
        for (int i = 0; i < 2; i++) {
            llm_branch_view v;
            int32_t copy[4];
            if (llm_page_session(readers[i], 0, &v) != LLM_OK || llm_page_tokens(readers[i], 0, copy, 4, NULL) != 3) {
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
    llm_page_close(other);
    page_close(t.p);
}

/* Makes the segment look as if it had last been used so many days ago, by a process that has no such number here: a container
 * with a pid namespace of its own. */
static void age_segment(const char *name, int64_t days)
{
    int fd = shm_open(name, O_RDWR, 0);
    CHECK(fd >= 0);
    page_header *h = mmap(NULL, sizeof *h, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
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
        {8, true, false, false, "-old"},       {6, true, false, true, "-old"},
        {8, false, false, true, "-old"},       {8, true, true, true, "-old"},
        {0, true, false, false, PAGE_OPENING}, {0, false, false, true, PAGE_OPENING},
        {8, false, false, true, PAGE_OPENING},
    };
    char name[96];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(name, sizeof name, "%s%s", segment, cases[i].ending);
        page *old = open_page(name, 2, 16);
        CHECK(old != NULL);
        if (cases[i].has_session) {
            page_place_open(old, 0, 0, "used today", 1);
        }
        age_segment(name, cases[i].days);
        CHECK_STILL_GOOD();
        if (cases[i].is_dead) {
            page_leave(old);
        }
        page *p = open_page(segment, 2, 16);
        CHECK(p != NULL);
        CHECK_INT(segment_exists(name), cases[i].stays);
        page_close(p);
        page_close(old);
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
    shm_unlink(segment); /* a failed test may have left it */
    return CHECK_RESULT();
}
