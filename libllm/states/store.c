#include "states/store.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "boundary/clock.h"
#include "states/durable.h"
#include "states/store_files.h"

typedef struct job_queue {
    store_job *first;
    store_job *last;
} job_queue;

struct store {
    store_files files; /* owned by the store thread, except for the members that files.mutex guards */
    notifier *consumer;
    int lock_fd;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards the members below */
    pthread_cond_t changed;
    /* Changes of branch files can overtake states that were pushed earlier. But if the first state in its queue was
     * pushed before the first change, the thread takes jobs of both queues in turn (next_job). */
    job_queue changes;
    job_queue states;
    uint64_t n_pushed;
    bool was_change; /* whether the last job taken was a change */
    job_queue done;
    uint32_t n_jobs; /* jobs in `changes` or `states`, and the job that the thread is doing */
    bool is_closing;
};

static void queue_push(job_queue *q, store_job *job)
{
    job->next = NULL;
    if (q->last != NULL) {
        q->last->next = job;
    } else {
        q->first = job;
    }
    q->last = job;
}

static void queue_remove(job_queue *q, const store_job *job)
{
    store_job *before = NULL;
    for (store_job *j = q->first; j != NULL; before = j, j = j->next) {
        if (j == job) {
            *(before != NULL ? &before->next : &q->first) = j->next;
            q->last = q->last == j ? before : q->last;
            return;
        }
    }
}

static store_job *queue_pop(job_queue *q)
{
    store_job *job = q->first;
    queue_remove(q, job);
    return job;
}

/* ---- jobs ---- */

store_job *store_job_new(store_verb verb, uint32_t n_changes)
{
    store_job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        return NULL;
    }
    job->verb = verb;
    job->changes = n_changes > 0 ? calloc(n_changes, sizeof *job->changes) : NULL;
    if (n_changes > 0 && job->changes == NULL) {
        free(job);
        return NULL;
    }
    job->n_changes = n_changes;
    for (uint32_t i = 0; i < n_changes; i++) {
        job->changes[i].verb = CHANGE_NONE;
    }
    return job;
}

void store_job_free(store_job *job)
{
    if (job == NULL) {
        return;
    }
    for (uint32_t i = 0; i < job->n_changes; i++) {
        branch_file_clear(&job->changes[i].file);
    }
    free(job->changes);
    branch_file_clear(&job->file);
    state_file_clear(&job->state);
    free(job);
}

/* Creates the SWEEP for the branches whose branch files `job` removes or resets. The SWEEP removes the state files of
 * these branches. Queued jobs may still write these state files, so the SWEEP is done after them. But the SWEEP is done
 * before states that are pushed later. Returns NULL if `job` removes and resets no branch file. Also returns NULL if
 * memory is short. Then the next start removes the state files whose branch files are gone. */
static store_job *sweep_after(const store_job *job)
{
    bool any = false;
    for (uint32_t i = 0; i < job->n_changes; i++) {
        any = any || job->changes[i].verb == CHANGE_REMOVE || job->changes[i].verb == CHANGE_RESET;
    }
    store_job *sweep = any && job->verb == STORE_CHANGE ? store_job_new(STORE_SWEEP, job->n_changes) : NULL;
    for (uint32_t i = 0; sweep != NULL && i < job->n_changes; i++) {
        sweep->changes[i].verb = job->changes[i].verb;
        sweep->changes[i].file.id = job->changes[i].file.id;
    }
    return sweep;
}

/* ---- the thread ---- */

static void work(store *s, store_job *job)
{
    const uint64_t began_us = clock_us();
    store_files_work(&s->files, job);
    job->took_us = (double)(clock_us() - began_us);
    pthread_mutex_lock(&s->mutex);
    s->n_jobs--;
    if (job->verb == STORE_SWEEP) {
        store_job_free(job);
    } else {
        queue_push(&s->done, job);
    }
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    notifier_wake(s->consumer);
}

/* Removes the next job from its queue, and returns it. The queues alternate. Otherwise a client that changes branch
 * files without end would block all states. But no state goes before a change that was pushed earlier. */
static store_job *next_job(store *s)
{
    const store_job *change = s->changes.first, *state = s->states.first;
    const bool takes_state = state != NULL && (change == NULL || (s->was_change && state->number < change->number));
    s->was_change = !takes_state;
    return queue_pop(takes_state ? &s->states : &s->changes);
}

static void *run(void *context)
{
    store *s = context;
    for (;;) {
        pthread_mutex_lock(&s->mutex);
        store_job *job = NULL;
        while ((job = next_job(s)) == NULL && !s->is_closing) {
            pthread_cond_wait(&s->changed, &s->mutex);
        }
        pthread_mutex_unlock(&s->mutex);
        if (job == NULL) {
            return NULL;
        }
        work(s, job);
    }
}

/* ---- pushing jobs and taking results ---- */

void store_push(store *s, store_job *job)
{
    store_job *sweep = sweep_after(job);
    pthread_mutex_lock(&s->mutex);
    job->number = ++s->n_pushed;
    queue_push(job->verb == STORE_CHANGE ? &s->changes : &s->states, job);
    s->n_jobs++;
    if (sweep != NULL) {
        sweep->number = job->number;
        queue_push(&s->states, sweep);
        s->n_jobs++;
    }
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

static store_job *first_result(const store *s, bool takes_waited_for)
{
    store_job *job = s->done.first;
    while (job != NULL && job->has_waiter && !takes_waited_for) {
        job = job->next;
    }
    return job;
}

store_job *store_take(store *s, bool takes_waited_for)
{
    pthread_mutex_lock(&s->mutex);
    store_job *job = first_result(s, takes_waited_for);
    queue_remove(&s->done, job);
    pthread_mutex_unlock(&s->mutex);
    return job;
}

bool store_has_result(store *s, bool takes_waited_for)
{
    pthread_mutex_lock(&s->mutex);
    const bool any = first_result(s, takes_waited_for) != NULL;
    pthread_mutex_unlock(&s->mutex);
    return any;
}

uint32_t store_n_jobs(store *s)
{
    pthread_mutex_lock(&s->mutex);
    const uint32_t n = s->n_jobs;
    pthread_mutex_unlock(&s->mutex);
    return n;
}

void store_wait(store *s)
{
    pthread_mutex_lock(&s->mutex);
    while (s->n_jobs > 0) {
        pthread_cond_wait(&s->changed, &s->mutex);
    }
    pthread_mutex_unlock(&s->mutex);
}

void store_complain(store *s, const char *format, ...)
{
    char text[COMPLAINT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    store_files_complain(&s->files, "%s", text);
}

bool store_complaint(store *s, char *out, size_t n_bytes)
{
    return store_files_complaint(&s->files, out, n_bytes);
}

uint64_t store_free_bytes(const store *s)
{
    struct statvfs disk;
    /* Some FUSE file systems report no blocks at all; then the free space is unknown, not 0. */
    const bool is_known = statvfs(s->files.directory, &disk) == 0 && disk.f_blocks > 0;
    return is_known ? (uint64_t)disk.f_bavail * disk.f_frsize : UINT64_MAX / 2;
}

void store_scan(store *s, void (*found)(void *context, branch_file *file, const state_facts *state), void *context)
{
    store_files_scan(&s->files, found, context);
}

bool store_find_saved(store *s, uint32_t owner, const char *label, uint64_t *n_bytes)
{
    saved_entry entry;
    const bool found = store_saved_find(&s->files, owner, label, &entry);
    *n_bytes = found ? entry.facts.n_bytes : 0;
    return found;
}

uint32_t store_list_saved(store *s, llm_saved *out, uint32_t n_out)
{
    pthread_mutex_lock(&s->files.mutex);
    const uint32_t n = s->files.n_saved;
    for (uint32_t i = 0; i < n && i < n_out; i++) {
        out[i] = s->files.saved[i].facts;
    }
    pthread_mutex_unlock(&s->files.mutex);
    return n;
}

/* ---- opening ---- */

static int refuse_directory(char *error, size_t error_bytes, const char *directory, const char *what)
{
    snprintf(error, error_bytes, "state directory %s: %s", directory, what);
    return LLM_IO;
}

static int lock_directory(store *s, char *error, size_t error_bytes)
{
    const char *directory = s->files.directory;
    char path[4096];
    snprintf(path, sizeof path, "%s/lock", directory);
    if (!durable_make(directory) || !durable_make(s->files.saved_directory)) {
        return refuse_directory(error, error_bytes, directory, strerror(errno));
    }
    s->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (s->lock_fd < 0) {
        return refuse_directory(error, error_bytes, directory, strerror(errno));
    }
    if (flock(s->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        return refuse_directory(error, error_bytes, directory, "another daemon uses it; give each its own --state-dir");
    }
    return LLM_OK;
}

/* Writes model.txt, which tells people to which model the directory belongs. The directory's own name is only the
 * digest of the model. llmd itself never reads model.txt. */
static void name_directory(const store_options *options)
{
    char *path = NULL;
    if (asprintf(&path, "%s/model.txt", options->directory) < 0) {
        return;
    }
    FILE *file = fopen(path, "we");
    if (file != NULL) {
        fprintf(file, "%s\n", options->model);
        fclose(file);
    }
    free(path);
}

static int start(store *s)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&s->thread, NULL, run, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        return LLM_IO;
    }
    pthread_setname_np(s->thread, "llm-store");
    return LLM_OK;
}

static void free_store(store *s)
{
    if (s->lock_fd >= 0) {
        close(s->lock_fd);
    }
    pthread_mutex_destroy(&s->mutex);
    pthread_cond_destroy(&s->changed);
    store_files_close(&s->files);
    free(s);
}

int store_open(const store_options *options, notifier *consumer, store **out, char *error, size_t error_bytes)
{
    store *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return LLM_NO_MEMORY;
    }
    s->consumer = consumer;
    s->lock_fd = -1;
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, NULL);
    int status = store_files_open(&s->files, options);
    if (status == LLM_OK) {
        status = lock_directory(s, error, error_bytes);
    }
    if (status == LLM_OK) {
        name_directory(options);
        store_saved_scan(&s->files);
        status = start(s) == LLM_OK
                     ? LLM_OK
                     : refuse_directory(error, error_bytes, options->directory, "no thread can be created");
    }
    if (status != LLM_OK) {
        free_store(s);
        return status;
    }
    *out = s;
    return LLM_OK;
}

void store_close(store *s)
{
    if (s == NULL) {
        return;
    }
    pthread_mutex_lock(&s->mutex);
    s->is_closing = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    pthread_join(s->thread, NULL);
    store_job *job;
    while ((job = queue_pop(&s->done)) != NULL) {
        store_job_free(job);
    }
    free_store(s);
}
