#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COMPLAINTS_MAX = 16, COMPLAINT_BYTES = 512 };

typedef struct job_queue {
    store_job *first;
    store_job *last;
} job_queue;

struct store {
    char *directory;
    char *saved_directory;
    uint8_t fingerprint[16];
    doorbell *bell;
    int lock_fd;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    job_queue queued;
    job_queue done;
    bool is_working;
    bool is_closing;
    uint32_t n_complaints;
    char complaints[COMPLAINTS_MAX][COMPLAINT_BYTES];
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

static store_job *queue_pop(job_queue *q)
{
    store_job *job = q->first;
    if (job != NULL) {
        q->first = job->next;
        q->last = q->first != NULL ? q->last : NULL;
    }
    return job;
}

/* ---- complaints ---- */

void store_complain(store *s, const char *format, ...)
{
    char text[COMPLAINT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&s->mutex);
    if (s->n_complaints == COMPLAINTS_MAX) { /* nobody reads: the oldest goes */
        memmove(s->complaints[0], s->complaints[1], sizeof s->complaints - sizeof s->complaints[0]);
        s->n_complaints--;
    }
    memcpy(s->complaints[s->n_complaints++], text, sizeof text);
    pthread_mutex_unlock(&s->mutex);
}

bool store_complaint(store *s, char *out, size_t n_bytes)
{
    pthread_mutex_lock(&s->mutex);
    const bool any = s->n_complaints > 0;
    if (any) {
        snprintf(out, n_bytes, "%s", s->complaints[0]);
        s->n_complaints--;
        memmove(s->complaints[0], s->complaints[1], s->n_complaints * sizeof s->complaints[0]);
    }
    pthread_mutex_unlock(&s->mutex);
    return any;
}

/* ---- the thread ---- */

static void refuse_file(store *s, const char *directory, uint64_t id, int status, const char *why)
{
    if (status == LLM_VERSION) {
        snapshot_set_aside(directory, id);
        store_complain(s, "session file %016llx was refused and set aside: %s", (unsigned long long)id, why);
    } else {
        store_complain(s, "session file %016llx cannot be read: %s", (unsigned long long)id, why);
    }
}

/* LLM_NOT_FOUND is fine: there is no file to say something wrong. */
static void relabel(store *s, store_job *job)
{
    snapshot file;
    const char *why = "";
    const uint64_t id = job->snapshot.id;
    job->status = (llm_status)snapshot_read(s->directory, id, s->fingerprint, false, &file, &why);
    if (job->status == LLM_NOT_FOUND) {
        return;
    }
    if (job->status != LLM_OK) {
        refuse_file(s, s->directory, id, job->status, why);
        return;
    }
    memcpy(file.name, job->snapshot.name, sizeof file.name);
    file.is_pinned = job->snapshot.is_pinned;
    job->status = (llm_status)snapshot_write(s->directory, &file);
    if (job->status != LLM_OK) {
        store_complain(s, "session \"%s\" cannot be written to %s: %s", file.name, s->directory, strerror(errno));
    }
    snapshot_clear(&file);
}

static void work(store *s, store_job *job)
{
    const uint64_t id = job->snapshot.id;
    const char *directory = job->is_saved ? s->saved_directory : s->directory;
    const char *why = "";
    switch (job->verb) {
    case STORE_WRITE:
        job->status = (llm_status)snapshot_write(directory, &job->snapshot);
        if (job->status != LLM_OK) {
            store_complain(s, "session \"%s\" cannot be written to %s: %s", job->snapshot.name, directory,
                           strerror(errno));
        }
        break;
    case STORE_READ:
        job->status = (llm_status)snapshot_read(directory, id, s->fingerprint, false, &job->snapshot, &why);
        job->snapshot.id = id;
        if (job->status != LLM_OK && !(job->is_saved && job->status == LLM_NOT_FOUND)) { /* a label nobody saved */
            refuse_file(s, directory, id, job->status, why);
        }
        break;
    case STORE_RELABEL: relabel(s, job); break;
    case STORE_REMOVE: job->status = (llm_status)snapshot_remove(directory, id); break;
    }
}

static void *run(void *context)
{
    store *s = context;
    pthread_mutex_lock(&s->mutex);
    for (;;) {
        store_job *job = queue_pop(&s->queued);
        if (job == NULL && s->is_closing) {
            break;
        }
        if (job == NULL) {
            pthread_cond_wait(&s->changed, &s->mutex);
            continue;
        }
        s->is_working = true;
        pthread_mutex_unlock(&s->mutex);
        work(s, job);
        pthread_mutex_lock(&s->mutex);
        s->is_working = false;
        queue_push(&s->done, job);
        pthread_cond_broadcast(&s->changed);
        doorbell_ring(s->bell);
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* ---- the other side ---- */

void store_push(store *s, store_job *job)
{
    pthread_mutex_lock(&s->mutex);
    queue_push(&s->queued, job);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

store_job *store_take(store *s)
{
    pthread_mutex_lock(&s->mutex);
    store_job *job = queue_pop(&s->done);
    pthread_mutex_unlock(&s->mutex);
    return job;
}

bool store_has_result(store *s)
{
    pthread_mutex_lock(&s->mutex);
    const bool any = s->done.first != NULL;
    pthread_mutex_unlock(&s->mutex);
    return any;
}

void store_job_free(store_job *job)
{
    if (job != NULL) {
        snapshot_clear(&job->snapshot);
        free(job);
    }
}

void store_wait(store *s)
{
    pthread_mutex_lock(&s->mutex);
    while (s->queued.first != NULL || s->is_working) {
        pthread_cond_wait(&s->changed, &s->mutex);
    }
    pthread_mutex_unlock(&s->mutex);
}

/* ---- opening ---- */

static int say(char *error, size_t error_bytes, const char *directory, const char *what)
{
    snprintf(error, error_bytes, "state directory %s: %s", directory, what);
    return LLM_IO;
}

static int lock_directory(store *s, char *error, size_t error_bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/lock", s->directory);
    if ((mkdir(s->directory, 0700) != 0 && errno != EEXIST) ||
        (mkdir(s->saved_directory, 0700) != 0 && errno != EEXIST)) {
        return say(error, error_bytes, s->directory, strerror(errno));
    }
    s->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (s->lock_fd < 0) {
        return say(error, error_bytes, s->directory, strerror(errno));
    }
    if (flock(s->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        return say(error, error_bytes, s->directory, "another daemon uses it; give each its own --state-dir");
    }
    return LLM_OK;
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
    free(s->directory);
    free(s->saved_directory);
    free(s);
}

int store_open(const char *directory, const uint8_t fingerprint[16], doorbell *bell, store **out, char *error,
               size_t error_bytes)
{
    store *s = calloc(1, sizeof *s);
    char *copy = strdup(directory);
    char *saved = NULL;
    if (s == NULL || copy == NULL || asprintf(&saved, "%s/saved", directory) < 0) {
        free(s);
        free(copy);
        return LLM_NO_MEMORY;
    }
    s->directory = copy;
    s->saved_directory = saved;
    memcpy(s->fingerprint, fingerprint, sizeof s->fingerprint);
    s->bell = bell;
    s->lock_fd = -1;
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, NULL);
    int status = lock_directory(s, error, error_bytes);
    if (status == LLM_OK && start(s) != LLM_OK) {
        status = say(error, error_bytes, directory, "no thread can be made");
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

typedef struct scan {
    store *store;
    void (*found)(void *context, snapshot *head);
    void *context;
} scan;

static void scan_one(void *context, uint64_t id)
{
    const scan *c = context;
    snapshot head;
    const char *why = "";
    const int status = snapshot_read(c->store->directory, id, c->store->fingerprint, true, &head, &why);
    if (status != LLM_OK) {
        refuse_file(c->store, c->store->directory, id, status, why);
        return;
    }
    c->found(c->context, &head);
    snapshot_clear(&head);
}

static void leave(void *context, uint64_t id)
{
    (void)context;
    (void)id;
}

void store_scan(store *s, void (*found)(void *context, snapshot *head), void *context)
{
    (void)snapshot_scan(s->saved_directory, leave, NULL); /* only for what a crash left */
    scan c = {.store = s, .found = found, .context = context};
    if (snapshot_scan(s->directory, scan_one, &c) != LLM_OK) {
        store_complain(s, "state directory %s cannot be listed: %s", s->directory, strerror(errno));
    }
}
