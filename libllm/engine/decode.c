#include "engine/decode.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

int decode_open(decode *d)
{
    d->step.stop = decode_stops;
    d->step.stop_context = d;
    d->logits = malloc(d->model->info.n_vocab * sizeof *d->logits);
    /* The limit on notices, which are events of no live request (decode.h). A command or a result of the store is taken
     * only while notices and deferred commands together are fewer than LLM_REQUESTS_MAX (decode_has_room). The command
     * or result adds at most one notice, and opens at most two sessions. A result can also start all deferred commands.
     * Each deferred command adds one notice and opens one session. For each session that is opened, another may be
     * forgotten, which adds a notice. Before the next command or result is taken, all open sessions can be forgotten,
     * and also LOOSE_EXPIRED_MAX sessions without an entry. */
    d->n_notices_max = 2 * LLM_REQUESTS_MAX + LOOSE_EXPIRED_MAX + d->table->n_entries + 4;
    d->notices = malloc(d->n_notices_max * sizeof *d->notices);
    const bool has_threads = sampling_open(d->model->info.n_vocab, d->command_notifier, &d->sampling) == LLM_OK;
    if (d->notices == NULL || d->logits == NULL || !has_threads || step_open(&d->step) != LLM_OK) {
        decode_close(d);
        return LLM_NO_MEMORY;
    }
    return LLM_OK;
}

void decode_close(decode *d)
{
    while (d->n_requests > 0) {
        request *r = d->requests[--d->n_requests];
        decode_end_request(d, r, LLM_OUTCOME_SHUTDOWN, LLM_SHUTDOWN);
        request_close(r);
    }
    while (d->deferred != NULL) {
        deferred *w = d->deferred;
        d->deferred = w->next;
        free(w);
    }
    free(d->notices);
    d->notices = NULL;
    free(d->logits);
    d->logits = NULL;
    step_close(&d->step);
    sampling_close(d->sampling);
    d->sampling = NULL;
}

/* ---- delivery of events ---- */

static bool deliver_notices(decode *d)
{
    uint32_t n = 0;
    while (n < d->n_notices) {
        void *record = ring_reserve(d->events, d->notices[n].n_bytes);
        if (record == NULL) {
            break;
        }
        memcpy(record, d->notices[n].bytes, d->notices[n].n_bytes);
        ring_commit(d->events, d->notices[n].n_bytes);
        n++;
    }
    memmove(d->notices, d->notices + n, (d->n_notices - n) * sizeof d->notices[0]);
    d->n_notices -= n;
    return d->n_notices == 0;
}

/* Delivers as many events as the event ring has room for, and frees ended requests whose events are all delivered.
 * Returns true if no event is left. If a notice does not fit into the ring, no later event is delivered. The notice may
 * be FORGOTTEN, which must come before any event of a later session of that name. */
static bool deliver_all(decode *d)
{
    bool is_all_delivered = deliver_notices(d);
    if (!is_all_delivered) {
        return false;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < d->n_requests; i++) {
        request *r = d->requests[i];
        const bool delivered = outbox_deliver(&r->out, d->events);
        is_all_delivered = is_all_delivered && delivered;
        if (delivered && r->phase == REQUEST_ENDED) {
            session_table_count(d->session_table, (llm_counter)(LLM_COUNTER_FINISHED_END + r->out.finished.outcome), 1);
            request_close(r);
        } else {
            d->requests[kept++] = r;
        }
    }
    d->n_requests = kept;
    return is_all_delivered;
}

void decode_deliver(decode *d)
{
    bool is_all_delivered = deliver_all(d);
    if (!is_all_delivered) {
        session_table_count(d->session_table, LLM_COUNTER_OUTBOX_STALLS, 1);
        /* Set the flag events_blocked, then try once more. If the reader looked at the flag before this thread set it,
         * the second attempt sees all room that the reader had made by then. Otherwise the reader sees the flag and
         * wakes this thread (announce_room). Both threads exchange the flag. So the two exchanges have an order, and
         * the second synchronizes with the first (notifier.c). A plain store could become visible only after this
         * thread has looked at the ring. */
        (void)atomic_exchange(&d->events_blocked, true);
        is_all_delivered = deliver_all(d);
    }
    d->is_undelivered = !is_all_delivered;
    if (ring_committed(d->events) != d->n_woken) {
        d->n_woken = ring_committed(d->events);
        notifier_wake(d->event_notifier);
    }
}

void decode_was_pushed(decode *d, const wire_command *c)
{
    if (c->op == LLM_COMMAND_GENERATE) {
        atomic_fetch_add(&d->pushed.n_generate, 1);
    } else if (c->op == LLM_COMMAND_CANCEL) {
        atomic_store(&d->pushed.cancelled[atomic_load(&d->pushed.n_cancel) % CANCELS_SEEN_MAX], c->request);
        atomic_fetch_add(&d->pushed.n_cancel, 1);
    }
}

/* ---- the loop of the decode thread ---- */

static void publish(decode *d)
{
    uint64_t waiting = 0;
    uint64_t running = 0;
    uint64_t early = 0;
    for (uint32_t i = 0; i < d->n_requests; i++) {
        waiting += d->requests[i]->phase == REQUEST_WAITING;
        running += d->requests[i]->phase == REQUEST_RUNNING;
        early += d->requests[i]->phase == REQUEST_WAITING && d->requests[i]->claim.is_early;
    }
    session_table_gauge(d->session_table, LLM_COUNTER_REQUESTS_WAITING, waiting);
    session_table_gauge(d->session_table, LLM_COUNTER_REQUESTS_EARLY, early);
    session_table_gauge(d->session_table, LLM_COUNTER_REQUESTS_RUNNING, running);
    table_publish(d->table);
}

/* Whether the thread has work. notifier_wait calls this function after it has armed the notifier. Thus the thread does
 * not sleep if work arrived just before the notifier was armed. */
static bool has_work(void *context)
{
    decode *d = context;
    if (atomic_load(&d->stop_requested)) {
        return true;
    }
    if (d->is_undelivered && !atomic_load(&d->events_blocked)) {
        return true;
    }
    if (d->n_owners_before != atomic_load(&d->table->n_owners)) {
        return true;
    }
    const bool has_room = decode_has_room(d);
    store *s = d->table->store;
    if (sampling_has_result(d->sampling) || (s != NULL && store_has_result(s, has_room))) {
        return true;
    }
    return has_room && !ring_is_empty(d->commands);
}

static uint64_t idle_now(decode *d)
{
    return idle_clock_now(&d->idle_clock, clock_ms(), clock_elapsed_ms());
}

/* Forgets idle sessions that have expired. Does nothing before the oldest session can expire. Also does nothing while
 * `notices` has an event that has not been delivered. Each expired session adds an event FORGOTTEN to `notices`, and
 * these events must not pile up. */
static void expire(decode *d)
{
    if (d->idle_ms_max == 0 || d->n_notices > 0) {
        return;
    }
    const uint64_t now = idle_now(d);
    if (now < d->expire_at_ms) {
        return;
    }
    table_removing_begin(d->table);
    const uint64_t oldest = table_expire(d->table, now > d->idle_ms_max ? now - d->idle_ms_max : 0);
    table_removing_end_unasked(d->table);
    d->may_assign_slots = true;
    const uint64_t next = oldest != 0 ? oldest + d->idle_ms_max + 1 : now + d->idle_ms_max;
    d->expire_at_ms = next > now ? next : now + 1;
}

static int ms_until(uint64_t moment, uint64_t now, uint64_t units_of_ms)
{
    const uint64_t left = moment > now ? (moment - now) / units_of_ms + 1 : 1;
    return left < INT32_MAX ? (int)left : INT32_MAX;
}

/* Returns how many milliseconds the thread may sleep, or -1 for no limit. The sleep ends when the next session expires.
 * It also ends when a request or state stops waiting for the disk (fetched_by_us). While `notices` is not empty, no
 * session expires (see `expire`), and the reader of events wakes the thread. */
static int wait_ms(decode *d)
{
    const bool expires = d->idle_ms_max != 0 && d->n_notices == 0;
    const int expiry = expires ? ms_until(d->expire_at_ms, idle_now(d), 1) : -1;
    if (d->fetched_by_us == 0) {
        return expiry;
    }
    const int fetch = ms_until(d->fetched_by_us, clock_us(), 1000);
    return expiry < 0 || fetch < expiry ? fetch : expiry;
}

static void end_all(decode *d)
{
    decode_take_commands(d, HUGE_VAL); /* commands that were pushed before the stop get their replies, too */
    for (uint32_t i = 0; i < d->n_requests; i++) {
        decode_end_request(d, d->requests[i], LLM_OUTCOME_SHUTDOWN, LLM_SHUTDOWN);
    }
    decode_deliver(d);
    decode_save_all(d);
    decode_deliver(d);
    publish(d);
}

static void *serve(void *context)
{
    decode *d = context;
    while (!atomic_load(&d->stop_requested)) {
        decode_take_stored(d);
        decode_take_commands(d, decode_stall_budget_us(d));
        expire(d);
        /* kept for has_work, which must notice a change of n_owners. Each owner's share of the slots depends on
         * n_owners */
        d->n_owners_before = atomic_load(&d->table->n_owners);
        decode_start_waiting(d);
        decode_take_sampled(d);
        const bool stepped = decode_step(d);
        const bool was_undelivered = d->is_undelivered;
        decode_deliver(d);
        publish(d);
        session_table_count(d->session_table, LLM_COUNTER_HEARTBEAT, 1);
        /* the event ring has room again, so requests whose outboxes were full can run again */
        const bool may_go_on = was_undelivered && !d->is_undelivered;
        if (!stepped && !may_go_on && !d->may_assign_slots) {
            notifier_wait(d->command_notifier, has_work, d, wait_ms(d));
        }
    }
    end_all(d);
    return NULL;
}

void decode_finish(decode *d)
{
    decode_take_commands(d, HUGE_VAL);
    /* a command may wait for a result that the store has not delivered yet */
    while (d->n_replies_due > 0 && decode_has_room(d)) {
        store_wait(d->table->store);
        decode_take_stored(d);
    }
    decode_deliver(d);
}

int decode_start(decode *d)
{
    /* The new thread inherits a mask that blocks all signals, because the main thread handles them. */
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    atomic_store(&d->stop_requested, false);
    table_set_forgotten_listener(d->table, decode_forgotten, d);
    /* set before the thread is created. Thus it is set when decode_start returns and commands are pushed */
    atomic_store(&d->life, DECODE_SERVING);
    const int failed = pthread_create(&d->thread, NULL, serve, d);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        atomic_store(&d->life, DECODE_NEW);
        return LLM_IO;
    }
    pthread_setname_np(d->thread, "llm-decode");
    return LLM_OK;
}

void decode_stop(decode *d)
{
    if (atomic_load(&d->life) != DECODE_SERVING) {
        return;
    }
    atomic_store(&d->stop_requested, true);
    notifier_wake(d->command_notifier);
    pthread_join(d->thread, NULL);
    table_set_forgotten_listener(d->table, NULL, NULL);
    atomic_store(&d->life, DECODE_JOINED);
}
