#include "engine/sampling.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* The stack is large because regular expressions recurse (see trigger.cpp). */
enum { THREADS_MAX = 4, STACK_BYTES = 8 << 20, NICENESS = 5 };

typedef enum job_phase { JOB_NONE, JOB_QUEUED, JOB_DONE, JOB_ABANDONED } job_phase;

struct sampling_job {
    sampling_threads *pool;
    sampler *sampler; /* owned */
    float *logits;    /* owned; n_vocab logits */
    job_phase phase;  /* guarded by the mutex of `pool`, like all members below */
    int status;
    int32_t token;
    sampling_job *next; /* next job in the queue */
};

struct sampling_threads {
    uint32_t n_vocab;
    notifier *consumer;
    _Atomic bool has_result; /* set by the threads, cleared by the decode thread */
    pthread_mutex_t mutex;
    pthread_cond_t queued;  /* signaled when a job is queued, or the threads must end */
    pthread_cond_t settled; /* signaled when no job is queued or running */
    sampling_job *first;
    sampling_job **last;
    uint32_t n_pending; /* number of queued and running jobs */
    bool is_ending;
    uint32_t n_threads;
    pthread_t threads[THREADS_MAX];
};

int sampling_open(uint32_t n_vocab, notifier *consumer, sampling_threads **out)
{
    sampling_threads *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return LLM_NO_MEMORY;
    }
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->queued, NULL);
    pthread_cond_init(&p->settled, &monotonic);
    pthread_condattr_destroy(&monotonic);
    p->n_vocab = n_vocab;
    p->consumer = consumer;
    p->last = &p->first;
    *out = p;
    return LLM_OK;
}

void sampling_close(sampling_threads *p)
{
    if (p == NULL) {
        return;
    }
    pthread_mutex_lock(&p->mutex);
    p->is_ending = true;
    pthread_cond_broadcast(&p->queued);
    pthread_mutex_unlock(&p->mutex);
    for (uint32_t i = 0; i < p->n_threads; i++) {
        pthread_join(p->threads[i], NULL);
    }
    assert(p->first == NULL && p->n_pending == 0);
    pthread_cond_destroy(&p->queued);
    pthread_cond_destroy(&p->settled);
    pthread_mutex_destroy(&p->mutex);
    free(p);
}

/* ---- the sampling threads ---- */

static void job_free(sampling_job *j)
{
    sampler_close(j->sampler);
    free(j->logits);
    free(j);
}

/* Waits for a job. Returns NULL if the thread must end. */
static sampling_job *next_job(sampling_threads *p)
{
    pthread_mutex_lock(&p->mutex);
    while (p->first == NULL && !p->is_ending) {
        pthread_cond_wait(&p->queued, &p->mutex);
    }
    sampling_job *j = p->first;
    if (j != NULL) {
        p->first = j->next;
        p->last = p->first == NULL ? &p->first : p->last;
    }
    pthread_mutex_unlock(&p->mutex);
    return j;
}

/* Hands the result to the request, or frees the job if the request has abandoned it. */
static void finish(sampling_job *j, int status, int32_t token)
{
    sampling_threads *p = j->pool;
    pthread_mutex_lock(&p->mutex);
    const bool is_wanted = j->phase == JOB_QUEUED;
    j->phase = JOB_DONE;
    j->status = status;
    j->token = token;
    pthread_mutex_unlock(&p->mutex);
    if (!is_wanted) {
        job_free(j);
    }
    pthread_mutex_lock(&p->mutex);
    if (--p->n_pending == 0) {
        pthread_cond_signal(&p->settled);
    }
    pthread_mutex_unlock(&p->mutex);
    if (is_wanted) {
        atomic_store(&p->has_result, true);
        notifier_wake(p->consumer);
    }
}

static void *serve(void *context)
{
    sampling_threads *p = context;
    /* lowers the priority of this thread only, so that the decode thread gets a core first */
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICENESS);
    sampling_job *j;
    while ((j = next_job(p)) != NULL) {
        int32_t token = -1;
        const int status = sampler_next(j->sampler, j->logits, &token);
        finish(j, status, token);
    }
    return NULL;
}

/* Starts half as many threads as there are processors, because the model needs processors, too. Starts at least one and
 * at most THREADS_MAX threads. The threads inherit the decode thread's blocked signals. */
static void make_threads(sampling_threads *p)
{
    const long n_processors = sysconf(_SC_NPROCESSORS_ONLN);
    const uint32_t n_threads_max = n_processors < 4                 ? 1
                                   : n_processors / 2 > THREADS_MAX ? THREADS_MAX
                                                                    : (uint32_t)n_processors / 2;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    while (p->n_threads < n_threads_max && pthread_create(&p->threads[p->n_threads], &attributes, serve, p) == 0) {
        pthread_setname_np(p->threads[p->n_threads++], "llm-sampling");
    }
    pthread_attr_destroy(&attributes);
}

/* ---- called by the decode thread ---- */

sampling_job *sampling_job_open(sampling_threads *p, sampler *s)
{
    sampling_job *j = calloc(1, sizeof *j);
    float *logits = malloc(p->n_vocab * sizeof *logits);
    if (j == NULL || logits == NULL) {
        free(j);
        free(logits);
        return NULL;
    }
    *j = (sampling_job){.pool = p, .sampler = s, .logits = logits};
    return j;
}

/* Takes an abandoned job out of the queue. Returns true if no thread will use the job any more. Returns false if a
 * thread is working on the job. This thread then frees the job. */
static bool let_go(sampling_threads *p, sampling_job *j)
{
    if (j->phase != JOB_QUEUED) {
        return true;
    }
    sampling_job **link = &p->first;
    while (*link != NULL && *link != j) {
        link = &(*link)->next;
    }
    if (*link == NULL) {
        j->phase = JOB_ABANDONED;
        return false;
    }
    *link = j->next;
    p->last = *link == NULL ? link : p->last;
    p->n_pending--;
    return true;
}

void sampling_abandon(sampling_job *j)
{
    if (j == NULL) {
        return;
    }
    sampling_threads *p = j->pool;
    pthread_mutex_lock(&p->mutex);
    const bool is_free = let_go(p, j);
    pthread_mutex_unlock(&p->mutex);
    if (is_free) {
        job_free(j);
    }
}

void sampling_begin(sampling_job *j, const float *logits)
{
    sampling_threads *p = j->pool;
    memcpy(j->logits, logits, p->n_vocab * sizeof *logits);
    if (p->n_threads == 0) {
        make_threads(p);
    }
    pthread_mutex_lock(&p->mutex);
    assert(j->phase == JOB_NONE);
    j->phase = JOB_QUEUED;
    j->next = NULL;
    p->n_pending++;
    *p->last = j;
    p->last = &j->next;
    pthread_cond_signal(&p->queued);
    pthread_mutex_unlock(&p->mutex);
    if (p->n_threads == 0) {
        sampling_job *own = next_job(p);
        int32_t token = -1;
        const int status = sampler_next(own->sampler, own->logits, &token);
        finish(own, status, token);
    }
}

bool sampling_take(sampling_job *j, int *status, int32_t *token)
{
    pthread_mutex_lock(&j->pool->mutex);
    const bool is_done = j->phase == JOB_DONE;
    if (is_done) {
        j->phase = JOB_NONE;
        *status = j->status;
        *token = j->token;
    }
    pthread_mutex_unlock(&j->pool->mutex);
    return is_done;
}

bool sampling_has_result(const sampling_threads *p)
{
    return atomic_load(&p->has_result);
}

void sampling_settle(sampling_threads *p, uint32_t us_max)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)us_max * 1000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&p->mutex);
    while (p->n_pending > 0 && us_max > 0 && pthread_cond_timedwait(&p->settled, &p->mutex, &until) == 0) {
    }
    pthread_mutex_unlock(&p->mutex);
    atomic_store(&p->has_result, false);
}
