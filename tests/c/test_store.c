/* The store thread: jobs in order, results by ownership, failures as complaints. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "check.h"
#include "snapshot_files.h"
#include "store.h"

enum { N_JOBS = 40 };

typedef struct fixture {
    char directory[FILES_PATH_BYTES];
    doorbell *bell;
    store *store;
} fixture;

static void open_store(fixture *f)
{
    char error[256] = "";
    files_make_directory(f->directory);
    if (doorbell_open(&f->bell) != LLM_OK ||
        store_open(f->directory, files_fingerprint, f->bell, &f->store, error, sizeof error) != LLM_OK) {
        printf("%s\n", error);
        abort();
    }
}

static void close_store(fixture *f)
{
    store_close(f->store);
    doorbell_close(f->bell);
    files_remove_directory(f->directory);
}

static void push(fixture *f, store_verb verb, uint64_t id, uint64_t request)
{
    store_job *job = calloc(1, sizeof *job);
    *job = (store_job){.verb = verb, .request = request};
    if (verb == STORE_WRITE) {
        job->snapshot = files_snapshot(id);
    }
    job->snapshot.id = id;
    store_push(f->store, job);
}

/* The next result's status, which must be that of `request`; -1: it is another one's, or there is none. */
static int take_status(fixture *f, uint64_t request)
{
    store_wait(f->store);
    store_job *job = store_take(f->store);
    const int status = job != NULL && job->request == request ? (int)job->status : -1;
    store_job_free(job);
    return status;
}

static void test_jobs_are_done_in_order(void)
{
    fixture f;
    open_store(&f);
    for (uint64_t i = 0; i < N_JOBS; i++) {
        push(&f, STORE_WRITE, i % 5, 4 * i + 1);
        push(&f, STORE_READ, i % 5, 4 * i + 2);
        push(&f, STORE_REMOVE, i % 5, 4 * i + 3);
        push(&f, STORE_READ, i % 5, 4 * i + 4);
    }
    store_wait(f.store);
    CHECK(store_has_result(f.store));
    for (uint64_t i = 0; i < N_JOBS; i++) {
        CHECK_INT(take_status(&f, 4 * i + 1), LLM_OK);
        CHECK_INT(take_status(&f, 4 * i + 2), LLM_OK);
        CHECK_INT(take_status(&f, 4 * i + 3), LLM_OK);
        CHECK_INT(take_status(&f, 4 * i + 4), LLM_NOT_FOUND);
    }
    CHECK(!store_has_result(f.store));
    close_store(&f);
}

static void test_what_is_queued_at_the_close_is_written(void)
{
    fixture f;
    open_store(&f);
    for (uint64_t i = 0; i < N_JOBS; i++) {
        push(&f, STORE_WRITE, i, 0);
    }
    store_close(f.store);
    for (uint64_t i = 0; i < N_JOBS; i++) {
        CHECK(files_exists(f.directory, i, "llmd-session"));
    }
    f.store = NULL;
    close_store(&f);
}

static void test_read_gives_what_was_written(void)
{
    fixture f;
    open_store(&f);
    push(&f, STORE_WRITE, 3, 1);
    push(&f, STORE_READ, 3, 2);
    CHECK_INT(take_status(&f, 1), LLM_OK);
    store_wait(f.store);
    store_job *job = store_take(f.store);
    snapshot expected = files_snapshot(3);
    CHECK(job != NULL && files_equal(&job->snapshot, &expected));
    snapshot_clear(&expected);
    store_job_free(job);
    close_store(&f);
}

static void test_relabel_changes_the_name_and_nothing_else(void)
{
    fixture f;
    open_store(&f);
    push(&f, STORE_WRITE, 3, 1);
    store_job *job = calloc(1, sizeof *job);
    *job = (store_job){.verb = STORE_RELABEL, .request = 2};
    job->snapshot.id = 3;
    memcpy(job->snapshot.name, "other", 6);
    store_push(f.store, job);
    CHECK_INT(take_status(&f, 1), LLM_OK);
    CHECK_INT(take_status(&f, 2), LLM_OK);
    snapshot expected = files_snapshot(3);
    memcpy(expected.name, "other", 6);
    expected.is_pinned = false;
    snapshot back;
    const char *why = "";
    CHECK_INT(snapshot_read(f.directory, 3, files_fingerprint, false, &back, &why), LLM_OK);
    CHECK(files_equal(&back, &expected));
    snapshot_clear(&back);
    snapshot_clear(&expected);
    push(&f, STORE_RELABEL, 4, 3);
    CHECK_INT(take_status(&f, 3), LLM_NOT_FOUND);
    char text[256];
    CHECK(!store_complaint(f.store, text, sizeof text));
    close_store(&f);
}

static void test_a_damaged_file_is_set_aside_and_told(void)
{
    fixture f;
    open_store(&f);
    files_write(f.directory, 8, "llmd-session", "nonsense", 8);
    push(&f, STORE_READ, 8, 1);
    CHECK_INT(take_status(&f, 1), LLM_VERSION);
    CHECK(files_exists(f.directory, 8, "refused"));
    char text[256];
    CHECK(store_complaint(f.store, text, sizeof text));
    CHECK(strstr(text, "refused and set aside") != NULL);
    CHECK(!store_complaint(f.store, text, sizeof text));
    close_store(&f);
}

static void test_a_directory_that_vanishes(void)
{
    fixture f;
    open_store(&f);
    files_remove_directory(f.directory);
    push(&f, STORE_WRITE, 1, 1);
    CHECK_INT(take_status(&f, 1), LLM_IO);
    char text[256];
    CHECK(store_complaint(f.store, text, sizeof text));
    CHECK(strstr(text, "No such file") != NULL);
    close_store(&f);
}

/* A disk that is full in the middle of a file: nothing is left, and the next write works. */
static void test_a_full_disk(void)
{
    fixture f;
    open_store(&f);
    struct rlimit before;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = 300, .rlim_max = before.rlim_max});
    push(&f, STORE_WRITE, 1, 1);
    const int status = take_status(&f, 1);
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK_INT(status, LLM_IO);
    CHECK(!files_exists(f.directory, 1, "writing") && !files_exists(f.directory, 1, "llmd-session"));
    push(&f, STORE_WRITE, 1, 2);
    CHECK_INT(take_status(&f, 2), LLM_OK);
    close_store(&f);
}

static void test_only_the_last_complaints_are_kept(void)
{
    fixture f;
    open_store(&f);
    for (int i = 0; i < 100; i++) {
        store_complain(f.store, "complaint %d", i);
    }
    char text[256];
    int n = 0;
    while (store_complaint(f.store, text, sizeof text)) {
        n++;
    }
    CHECK(n > 0 && n < 100);
    CHECK_STR(text, "complaint 99");
    close_store(&f);
}

static void test_a_second_store_is_refused(void)
{
    fixture f;
    open_store(&f);
    store *second = NULL;
    char error[512] = "";
    CHECK_INT(store_open(f.directory, files_fingerprint, f.bell, &second, error, sizeof error), LLM_IO);
    CHECK(strstr(error, "another daemon") != NULL);
    CHECK_INT(store_open("/proc/nonexistent", files_fingerprint, f.bell, &second, error, sizeof error), LLM_IO);
    close_store(&f);
}

static void count(void *context, snapshot *head)
{
    *(uint32_t *)context += head->n_tokens == 9 && head->state == NULL;
}

static void test_scan_sets_aside_what_is_refused(void)
{
    fixture f;
    open_store(&f);
    push(&f, STORE_WRITE, 1, 1);
    CHECK_INT(take_status(&f, 1), LLM_OK);
    files_write(f.directory, 2, "llmd-session", "nonsense", 8);
    char saved[FILES_PATH_BYTES + 8];
    snprintf(saved, sizeof saved, "%s/saved", f.directory);
    files_write(saved, 3, "writing", "half", 4);
    uint32_t n = 0;
    store_scan(f.store, count, &n);
    CHECK_INT(n, 1);
    CHECK(files_exists(f.directory, 2, "refused"));
    CHECK(!files_exists(saved, 3, "writing"));
    close_store(&f);
}

int main(void)
{
    RUN(test_jobs_are_done_in_order);
    RUN(test_what_is_queued_at_the_close_is_written);
    RUN(test_read_gives_what_was_written);
    RUN(test_relabel_changes_the_name_and_nothing_else);
    RUN(test_a_damaged_file_is_set_aside_and_told);
    RUN(test_a_directory_that_vanishes);
    RUN(test_a_full_disk);
    RUN(test_only_the_last_complaints_are_kept);
    RUN(test_a_second_store_is_refused);
    RUN(test_scan_sets_aside_what_is_refused);
    return CHECK_RESULT();
}
