/* Tests the store thread: the order of its jobs, who owns results, and complaints about failures. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"
#include "snapshot_files.h"
#include "states/store.h"

enum { N_JOBS = 40 };

/* ---- what is synced, and when ---- */

enum { SYNCED_MAX = 16 };

/* The files and directories that this thread has synced. store_open runs in this thread. */
static _Thread_local struct stat synced[SYNCED_MAX];
static _Thread_local uint32_t n_synced;

static char expected_path[FILES_PATH_BYTES]; /* "": no file is expected */
static bool is_durable;                      /* whether expected_path existed when a directory was synced */
static bool was_durable;                     /* is_durable when the first file was removed */
static uint32_t n_removed;
static char obstruction[FILES_PATH_BYTES]; /* a directory that is removed together with the next file, or "" */

/* Replaces the library's function, and notes what was synced. */
int fsync(int fd)
{
    struct stat facts;
    const int result = (int)syscall(SYS_fsync, fd);
    if (result == 0 && fstat(fd, &facts) == 0) {
        is_durable = is_durable || (S_ISDIR(facts.st_mode) && access(expected_path, F_OK) == 0);
        if (n_synced < SYNCED_MAX) {
            synced[n_synced++] = facts;
        }
    }
    return result;
}

/* Replaces the library's function, and notes what was durable before. */
int unlink(const char *path)
{
    was_durable = n_removed++ == 0 ? is_durable : was_durable;
    if (obstruction[0] != '\0') {
        (void)rmdir(obstruction);
    }
    return unlinkat(AT_FDCWD, path, 0);
}

static bool is_synced(const char *path)
{
    struct stat facts;
    bool is = false;
    for (uint32_t i = 0; stat(path, &facts) == 0 && i < n_synced; i++) {
        is = is || (synced[i].st_dev == facts.st_dev && synced[i].st_ino == facts.st_ino);
    }
    return is;
}

/* ---- jobs ---- */

typedef struct fixture {
    char directory[FILES_PATH_BYTES];
    notifier *consumer;
    store *store;
} fixture;

static int try_open(const char *directory, const uint8_t *geometry, notifier *consumer, store **out, char *error,
                    size_t n)
{
    const store_options options = {
        .directory = directory, .model = "a model", .identity = files_identity, .geometry = geometry};
    return store_open(&options, consumer, out, error, n);
}

static void open_in(fixture *f)
{
    char error[256] = "";
    if (notifier_open(&f->consumer) != LLM_OK ||
        try_open(f->directory, files_geometry, f->consumer, &f->store, error, sizeof error) != LLM_OK) {
        printf("%s\n", error);
        abort();
    }
}

static void open_store(fixture *f)
{
    files_make_directory(f->directory);
    open_in(f);
}

static void close_store(fixture *f)
{
    store_close(f->store);
    notifier_close(f->consumer);
    files_remove_directory(f->directory);
}

static void close_and_open(fixture *f)
{
    store_close(f->store);
    notifier_close(f->consumer);
    open_in(f);
}

static store_job *asked(store_job *job, uint64_t request)
{
    job->has_waiter = true;
    job->request = request;
    return job;
}

static void push_change(fixture *f, change_verb verb, uint64_t id, uint64_t request)
{
    store_job *job = asked(store_job_new(STORE_CHANGE, 1), request);
    job->changes[0].verb = verb;
    job->changes[0].file = files_branch(id);
    store_push(f->store, job);
}

static void push_state(fixture *f, store_verb verb, uint64_t id, uint64_t request)
{
    store_job *job = asked(store_job_new(verb, 0), request);
    job->id = id;
    job->n_bytes_max = 1 << 20;
    if (verb == STORE_WRITE) {
        job->state = files_state();
    }
    store_push(f->store, job);
}

static store_job *about_label(store_verb verb, const char *label, uint64_t request)
{
    store_job *job = asked(store_job_new(verb, 0), request);
    job->owner = 7;
    job->n_bytes_max = 1 << 20;
    strcpy(job->label, label);
    return job;
}

static void push_save(fixture *f, const char *label, uint64_t request)
{
    store_job *job = about_label(STORE_SAVE, label, request);
    job->file = files_branch(0);
    memset(job->file.name, 0, sizeof job->file.name);
    strcpy(job->file.name, label);
    job->state = files_state();
    store_push(f->store, job);
}

static store_job *take(fixture *f, uint64_t request)
{
    store_wait(f->store);
    store_job *job = store_take(f->store, true);
    if (job != NULL && job->request != request) {
        store_job_free(job);
        job = NULL;
    }
    return job;
}

/* Returns the status of the next result, or -1 if no result comes or it belongs to another request. */
static int take_status(fixture *f, uint64_t request)
{
    store_job *job = take(f, request);
    const int status = job != NULL ? (int)job->status : -1;
    store_job_free(job);
    return status;
}

static void test_states_are_done_in_order(void)
{
    fixture f;
    open_store(&f);
    for (uint64_t i = 0; i < N_JOBS; i++) {
        push_change(&f, CHANGE_WRITE, i, 1000 + i);
        CHECK_INT(take_status(&f, 1000 + i), LLM_OK);
        push_state(&f, STORE_READ, i, 4 * i + 1);
        push_state(&f, STORE_WRITE, i, 4 * i + 2);
        push_state(&f, STORE_READ, i, 4 * i + 3);
        store_wait(f.store);
        CHECK(store_has_result(f.store, true));
        CHECK_INT(take_status(&f, 4 * i + 1), LLM_NOT_FOUND);
        CHECK_INT(take_status(&f, 4 * i + 2), LLM_OK);
        CHECK_INT(take_status(&f, 4 * i + 3), LLM_OK);
    }
    CHECK(!store_has_result(f.store, true));
    CHECK_INT(store_n_jobs(f.store), 0);
    close_store(&f);
}

/* Changes, for which commands wait, are small. They are done before states that wait to be written. */
static void test_changes_go_before_states(void)
{
    fixture f;
    open_store(&f);
    push_change(&f, CHANGE_WRITE, 1, 1);
    CHECK_INT(take_status(&f, 1), LLM_OK);
    for (uint64_t i = 0; i < N_JOBS; i++) {
        push_state(&f, STORE_WRITE, 1, 10 + i);
    }
    push_change(&f, CHANGE_WRITE, 1, 2);
    store_wait(f.store);
    uint32_t n_before = 0;
    store_job *job;
    while ((job = store_take(f.store, true)) != NULL && job->request != 2) {
        n_before++;
        store_job_free(job);
    }
    store_job_free(job);
    CHECK(n_before < N_JOBS);
    close_store(&f);
}

/* Results for which a command waits can be left in the store, while other results are taken. */
static void test_results_that_nobody_waits_for_are_taken_first_if_asked(void)
{
    fixture f;
    open_store(&f);
    push_change(&f, CHANGE_WRITE, 1, 1);
    push_change(&f, CHANGE_WRITE, 2, 2);
    store_wait(f.store);
    store_push(f.store, store_job_new(STORE_CHANGE, 0));
    store_wait(f.store);
    CHECK(store_has_result(f.store, false));
    store_job *job = store_take(f.store, false);
    CHECK(job != NULL && !job->has_waiter);
    store_job_free(job);
    CHECK(!store_has_result(f.store, false) && store_take(f.store, false) == NULL);
    CHECK_INT(take_status(&f, 1), LLM_OK);
    CHECK_INT(take_status(&f, 2), LLM_OK);
    push_change(&f, CHANGE_WRITE, 3, 3); /* after the last result was taken out, the end of the queue is still right */
    CHECK_INT(take_status(&f, 3), LLM_OK);
    close_store(&f);
}

static void test_what_is_queued_at_the_close_is_written(void)
{
    fixture f;
    open_store(&f);
    for (uint64_t i = 0; i < N_JOBS; i++) {
        push_change(&f, CHANGE_WRITE, i, 0);
        push_state(&f, STORE_WRITE, i, 0);
    }
    store_close(f.store);
    for (uint64_t i = 0; i < N_JOBS; i++) { /* no state is written before the branch file to which it belongs */
        CHECK(files_exists(f.directory, i, "llmd-session"));
        CHECK(files_exists(f.directory, i, "llmd-state"));
    }
    f.store = NULL;
    close_store(&f);
}

static void test_read_gives_what_was_written(void)
{
    fixture f;
    open_store(&f);
    push_change(&f, CHANGE_WRITE, 3, 1);
    CHECK_INT(take_status(&f, 1), LLM_OK);
    push_state(&f, STORE_WRITE, 3, 2);
    CHECK_INT(take_status(&f, 2), LLM_OK);
    store_job *job = asked(store_job_new(STORE_READ, 0), 3);
    job->id = 3;
    job->n_bytes_max = 1 << 20;
    store_push(f.store, job);
    state_file state = files_state();
    job = take(&f, 3);
    CHECK(job != NULL && files_states_equal(&job->state, &state));
    store_job_free(job);
    state_file_clear(&state);
    close_store(&f);
}

/* Closing a session removes its files. A state that waits to be written at that time does not stay behind. */
static void test_what_is_removed_is_gone(void)
{
    fixture f;
    open_store(&f);
    for (uint64_t i = 0; i < N_JOBS; i++) {
        push_change(&f, CHANGE_WRITE, i, 1);
        push_state(&f, STORE_WRITE, i, 2);
        push_state(&f, STORE_WRITE, i, 3);
        push_change(&f, i % 2 == 0 ? CHANGE_REMOVE : CHANGE_RESET, i, 4);
    }
    store_wait(f.store);
    for (uint64_t i = 0; i < N_JOBS; i++) {
        CHECK_INT(files_exists(f.directory, i, "llmd-session"), i % 2 == 1);
        CHECK(!files_exists(f.directory, i, "llmd-state"));
    }
    close_store(&f);
}

/* A change is made completely or not at all. */
static void test_a_change_that_fails_changes_nothing(void)
{
    fixture f;
    open_store(&f);
    push_change(&f, CHANGE_WRITE, 1, 1);
    CHECK_INT(take_status(&f, 1), LLM_OK);
    files_obstruct(f.directory, 2, "writing");
    store_job *job = asked(store_job_new(STORE_CHANGE, 2), 2);
    for (uint64_t i = 0; i < 2; i++) {
        job->changes[i].verb = CHANGE_WRITE;
        job->changes[i].file = files_branch(i + 1);
        strcpy(job->changes[i].file.name, "other");
    }
    store_push(f.store, job);
    CHECK_INT(take_status(&f, 2), LLM_IO);
    branch_file back, expected = files_branch(1);
    const char *why = "";
    CHECK_INT(branch_file_read(f.directory, 1, files_identity, &back, &why), LLM_OK);
    CHECK(files_branches_equal(&back, &expected));
    CHECK(!files_exists(f.directory, 1, "writing"));
    char text[256];
    CHECK(store_complaint(f.store, text, sizeof text) && strstr(text, "cannot be written") != NULL);
    branch_file_clear(&back);
    branch_file_clear(&expected);
    files_obstruct(f.directory, 1, "llmd-session");
    push_change(&f, CHANGE_REMOVE, 1, 3);
    CHECK_INT(take_status(&f, 3), LLM_IO);
    CHECK(store_complaint(f.store, text, sizeof text) && strstr(text, "cannot be removed") != NULL);
    close_store(&f);
}

/* A reset writes an empty file and removes files. If the write fails because the disk is full, the files are removed
 * nevertheless. */
static void test_what_goes_needs_no_room(void)
{
    fixture f;
    open_store(&f);
    push_change(&f, CHANGE_WRITE, 1, 1);
    push_change(&f, CHANGE_WRITE, 2, 2);
    CHECK(take_status(&f, 1) == LLM_OK && take_status(&f, 2) == LLM_OK);
    files_obstruct(f.directory, 1, "writing");
    store_job *job = asked(store_job_new(STORE_CHANGE, 2), 3);
    job->changes[0].verb = CHANGE_RESET;
    job->changes[0].file = files_branch(1);
    job->changes[1].verb = CHANGE_REMOVE;
    job->changes[1].file.id = 2;
    store_push(f.store, job);
    CHECK_INT(take_status(&f, 3), LLM_IO);
    CHECK(files_exists(f.directory, 1, "llmd-session") && !files_exists(f.directory, 2, "llmd-session"));
    close_store(&f);
}

/* A reset session needs a new file. If there is room for it only after the other files are removed, the file is written
 * then. */
static void test_a_removal_makes_room_for_what_stays(void)
{
    fixture f;
    open_store(&f);
    push_change(&f, CHANGE_WRITE, 1, 1);
    CHECK_INT(take_status(&f, 1), LLM_OK);
    snprintf(obstruction, sizeof obstruction, "%.*s/%016x.writing", (int)sizeof obstruction - 40, f.directory, 2);
    CHECK(mkdir(obstruction, 0700) == 0);
    store_job *job = asked(store_job_new(STORE_CHANGE, 2), 2);
    job->changes[0].verb = CHANGE_REMOVE;
    job->changes[0].file.id = 1;
    job->changes[1].verb = CHANGE_RESET;
    job->changes[1].file = files_branch(2);
    store_push(f.store, job);
    CHECK_INT(take_status(&f, 2), LLM_OK);
    CHECK(!files_exists(f.directory, 1, "llmd-session") && files_exists(f.directory, 2, "llmd-session"));
    obstruction[0] = '\0';
    close_store(&f);
}

/* If a pinned session is reset, another branch's file gets the pin. At any time, one of the two files on the disk has
 * it, even if the power fails. */
static void test_what_is_written_is_durable_before_anything_is_removed(void)
{
    fixture f;
    open_store(&f);
    push_change(&f, CHANGE_WRITE, 1, 1);
    CHECK_INT(take_status(&f, 1), LLM_OK);
    store_job *job = asked(store_job_new(STORE_CHANGE, 2), 2);
    job->changes[0].verb = CHANGE_REMOVE;
    job->changes[0].file.id = 1;
    job->changes[1].verb = CHANGE_RESET;
    job->changes[1].file = files_branch(2);
    snprintf(expected_path, sizeof expected_path, "%.*s/%016x.llmd-session", (int)sizeof expected_path - 40,
             f.directory, 2);
    is_durable = was_durable = false;
    n_removed = 0;
    store_push(f.store, job);
    CHECK_INT(take_status(&f, 2), LLM_OK);
    CHECK(!files_exists(f.directory, 1, "llmd-session") && files_exists(f.directory, 2, "llmd-session"));
    CHECK(was_durable);
    expected_path[0] = '\0';
    close_store(&f);
}

/* Memory is short, but the file is good. */
static void test_a_state_without_room_is_not_set_aside(void)
{
    fixture f;
    open_store(&f);
    push_change(&f, CHANGE_WRITE, 1, 1);
    push_state(&f, STORE_WRITE, 1, 2);
    CHECK(take_status(&f, 1) == LLM_OK && take_status(&f, 2) == LLM_OK);
    store_job *job = asked(store_job_new(STORE_READ, 0), 3);
    job->id = 1;
    job->n_bytes_max = 1;
    store_push(f.store, job);
    CHECK_INT(take_status(&f, 3), LLM_NO_MEMORY);
    CHECK(files_exists(f.directory, 1, "llmd-state"));
    close_store(&f);
}

static void test_a_damaged_state_is_set_aside_and_told(void)
{
    fixture f;
    open_store(&f);
    files_write(f.directory, 8, "llmd-state", "nonsense", 8);
    push_state(&f, STORE_READ, 8, 1);
    CHECK_INT(take_status(&f, 1), LLM_VERSION);
    CHECK(files_exists(f.directory, 8, "refused-state"));
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
    push_change(&f, CHANGE_WRITE, 1, 1);
    CHECK_INT(take_status(&f, 1), LLM_IO);
    char text[256];
    CHECK(store_complaint(f.store, text, sizeof text));
    CHECK(strstr(text, "No such file") != NULL);
    close_store(&f);
}

/* The disk is full in the middle of a file. No part of the file stays, and the next write succeeds. */
static void test_a_full_disk(void)
{
    fixture f;
    open_store(&f);
    push_change(&f, CHANGE_WRITE, 1, 1);
    CHECK_INT(take_status(&f, 1), LLM_OK);
    struct rlimit before;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = 100, .rlim_max = before.rlim_max});
    push_change(&f, CHANGE_WRITE, 1, 2);
    const int session = take_status(&f, 2);
    push_state(&f, STORE_WRITE, 1, 3);
    const int state = take_status(&f, 3);
    push_save(&f, "label", 4);
    const int saved = take_status(&f, 4);
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK(session == LLM_IO && state == LLM_IO && saved == LLM_IO);
    CHECK(!files_exists(f.directory, 1, "writing") && !files_exists(f.directory, 1, "writing-state"));
    CHECK(files_exists(f.directory, 1, "llmd-session") && !files_exists(f.directory, 1, "llmd-state"));
    llm_saved found;
    CHECK_INT(store_list_saved(f.store, &found, 1), 0);
    push_state(&f, STORE_WRITE, 1, 5);
    CHECK_INT(take_status(&f, 5), LLM_OK);
    close_store(&f);
}

static void test_what_is_not_told_is_counted(void)
{
    fixture f;
    open_store(&f);
    for (int i = 0; i < 100; i++) {
        store_complain(f.store, "complaint %d", i);
    }
    char text[256];
    int n = 0;
    CHECK(store_complaint(f.store, text, sizeof text));
    CHECK_STR(text, "complaint 0");
    for (n = 1; store_complaint(f.store, text, sizeof text); n++) {
    }
    CHECK(n > 1 && n < 100);
    char expected[128];
    snprintf(expected, sizeof expected, "and %d more", 100 - (n - 1));
    CHECK(strncmp(text, expected, strlen(expected)) == 0);
    close_store(&f);
}

static void test_a_second_store_is_refused(void)
{
    fixture f;
    open_store(&f);
    store *second = NULL;
    char error[512] = "";
    CHECK_INT(try_open(f.directory, files_geometry, f.consumer, &second, error, sizeof error), LLM_IO);
    CHECK(strstr(error, "another daemon") != NULL);
    CHECK_INT(try_open("/proc/nonexistent", files_geometry, f.consumer, &second, error, sizeof error), LLM_IO);
    close_store(&f);
}

typedef struct scanned {
    uint32_t n;
    uint32_t n_states;
} scanned;

static void count(void *context, branch_file *file, const state_facts *state)
{
    scanned *found = context;
    found->n += file->n_tokens == FILES_TOKENS;
    found->n_states += state->is_there && state_matches(state->k, state->hash, file->tokens, file->n_tokens);
}

static void test_scan_sets_aside_what_is_refused(void)
{
    fixture f;
    open_store(&f);
    push_change(&f, CHANGE_WRITE, 1, 1);
    CHECK_INT(take_status(&f, 1), LLM_OK);
    push_state(&f, STORE_WRITE, 1, 2);
    CHECK_INT(take_status(&f, 2), LLM_OK);
    push_change(&f, CHANGE_WRITE, 4, 3);
    CHECK_INT(take_status(&f, 3), LLM_OK);
    files_write(f.directory, 2, "llmd-session", "nonsense", 8);
    files_write(f.directory, 2, "llmd-state", "nonsense", 8);
    files_write(f.directory, 4, "llmd-state", "nonsense", 8);
    scanned found = {0};
    store_scan(f.store, count, &found);
    CHECK_INT(found.n, 2);
    CHECK_INT(found.n_states, 1);
    CHECK(files_exists(f.directory, 2, "refused") && !files_exists(f.directory, 2, "llmd-state"));
    CHECK(files_exists(f.directory, 4, "refused-state") && files_exists(f.directory, 4, "llmd-session"));
    close_store(&f);
}

static void test_a_directory_names_its_model(void)
{
    fixture f;
    char path[FILES_PATH_BYTES + 16], text[64] = "";
    open_store(&f);
    snprintf(path, sizeof path, "%s/model.txt", f.directory);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL && fgets(text, sizeof text, file) != NULL);
    CHECK_STR(text, "a model\n");
    if (file != NULL) {
        fclose(file);
    }
    close_store(&f);
}

/* ---- labels ---- */

static int load(fixture *f, const char *label, bool *has_state)
{
    store_push(f->store, about_label(STORE_LOAD, label, 99));
    store_job *job = take(f, 99);
    const int status = job != NULL ? (int)job->status : -1;
    *has_state = job != NULL && job->state.n_parts > 0;
    store_job_free(job);
    return status;
}

static void test_labels(void)
{
    fixture f;
    llm_saved found[4];
    bool has_state = false;
    open_store(&f);
    push_save(&f, "one", 1);
    push_save(&f, "two", 2);
    push_save(&f, "one", 3);
    CHECK(take_status(&f, 1) == LLM_OK && take_status(&f, 2) == LLM_OK && take_status(&f, 3) == LLM_OK);
    CHECK_INT(store_list_saved(f.store, found, 4), 2);
    CHECK(found[0].owner == 7 && found[0].n_tokens == FILES_TOKENS && found[0].n_bytes > 0 && found[0].saved_ms > 0);
    close_and_open(&f);
    CHECK_INT(store_list_saved(f.store, found, 4), 2);
    CHECK(load(&f, "one", &has_state) == LLM_OK && has_state);
    CHECK_INT(load(&f, "three", &has_state), LLM_NOT_FOUND);
    store_push(f.store, about_label(STORE_UNSAVE, "one", 5));
    store_push(f.store, about_label(STORE_UNSAVE, "one", 6));
    CHECK(take_status(&f, 5) == LLM_OK && take_status(&f, 6) == LLM_NOT_FOUND);
    CHECK_INT(store_list_saved(f.store, found, 4), 1);
    CHECK_STR(found[0].label, "two");
    close_store(&f);
}

/* After a crash, an earlier file of the label exists again. Its time stamp is later, because the clock was set back. It
 * nevertheless counts as the earlier file. */
static void test_what_was_saved_last_is_the_newer(void)
{
    fixture f;
    open_store(&f);
    char saved[FILES_PATH_BYTES + 8];
    snprintf(saved, sizeof saved, "%s/saved", f.directory);
    branch_file old = files_branch(1);
    strcpy(old.name, "label");
    old.used_ms = (uint64_t)1 << 60;
    old.n_tokens--;
    CHECK_INT(branch_file_write(saved, files_identity, &old), LLM_OK);
    close_and_open(&f);
    push_save(&f, "label", 1);
    CHECK_INT(take_status(&f, 1), LLM_OK);
    /* the power failed before the removal of this file was on the disk */
    CHECK_INT(branch_file_write(saved, files_identity, &old), LLM_OK);
    close_and_open(&f);
    llm_saved found[2];
    CHECK_INT(store_list_saved(f.store, found, 2), 1);
    CHECK_INT(found[0].n_tokens, FILES_TOKENS);
    branch_file_clear(&old);
    close_store(&f);
}

/* After a start with other options, the label exists, but its state cannot be used. */
static void test_a_label_outlives_its_geometry(void)
{
    fixture f;
    char error[256];
    const uint8_t other[16] = {1};
    bool has_state = true;
    open_store(&f);
    push_save(&f, "one", 1);
    CHECK_INT(take_status(&f, 1), LLM_OK);
    store_close(f.store);
    CHECK_INT(try_open(f.directory, other, f.consumer, &f.store, error, sizeof error), LLM_OK);
    CHECK(load(&f, "one", &has_state) == LLM_OK && !has_state);
    close_store(&f);
}

static void test_labels_are_bounded_for_each_owner(void)
{
    fixture f;
    char label[16];
    open_store(&f);
    for (uint64_t i = 0; i < LLM_SAVED_PER_OWNER_MAX; i++) {
        snprintf(label, sizeof label, "l%d", (int)i);
        push_save(&f, label, i);
        CHECK_INT(take_status(&f, i), LLM_OK);
    }
    push_save(&f, "more", 1);
    CHECK_INT(take_status(&f, 1), LLM_SAVED_FULL);
    push_save(&f, "l3", 2); /* replaces the label that exists */
    CHECK_INT(take_status(&f, 2), LLM_OK);
    store_job *job = about_label(STORE_SAVE, "theirs", 3);
    job->file = files_branch(0);
    job->file.owner = job->owner = 8;
    strcpy(job->file.name, "theirs");
    store_push(f.store, job);
    CHECK_INT(take_status(&f, 3), LLM_OK);
    close_store(&f);
}

/* Without a sync, a power failure could remove the new directory with all files of the model's first sessions. */
static void test_a_new_directory_outlasts_the_power(void)
{
    fixture f;
    char parent[FILES_PATH_BYTES];
    files_make_directory(parent);
    snprintf(f.directory, sizeof f.directory, "%.*s/model", (int)sizeof f.directory - 8, parent);
    n_synced = 0;
    open_in(&f);
    CHECK(is_synced(parent));
    CHECK(is_synced(f.directory)); /* has the new directory `saved` */
    n_synced = 0;
    close_and_open(&f);
    CHECK_INT(n_synced, 0);
    close_store(&f);
    files_remove_directory(parent);
}

int main(void)
{
    RUN(test_states_are_done_in_order);
    RUN(test_changes_go_before_states);
    RUN(test_results_that_nobody_waits_for_are_taken_first_if_asked);
    RUN(test_what_is_queued_at_the_close_is_written);
    RUN(test_read_gives_what_was_written);
    RUN(test_what_is_removed_is_gone);
    RUN(test_a_change_that_fails_changes_nothing);
    RUN(test_what_goes_needs_no_room);
    RUN(test_a_removal_makes_room_for_what_stays);
    RUN(test_what_is_written_is_durable_before_anything_is_removed);
    RUN(test_a_state_without_room_is_not_set_aside);
    RUN(test_a_damaged_state_is_set_aside_and_told);
    RUN(test_a_directory_that_vanishes);
    RUN(test_a_full_disk);
    RUN(test_what_is_not_told_is_counted);
    RUN(test_a_second_store_is_refused);
    RUN(test_scan_sets_aside_what_is_refused);
    RUN(test_a_directory_names_its_model);
    RUN(test_labels);
    RUN(test_what_was_saved_last_is_the_newer);
    RUN(test_a_label_outlives_its_geometry);
    RUN(test_labels_are_bounded_for_each_owner);
    RUN(test_a_new_directory_outlasts_the_power);
    return CHECK_RESULT();
}
