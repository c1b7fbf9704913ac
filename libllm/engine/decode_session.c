/* decode_session.c: the commands about sessions: each gets exactly one reply, at once or when the store is done. */
#include <assert.h>
#include <string.h>

#include "engine/decode.h"
#include "sessions/resuming.h"

session *decode_latest(decode *d, uint32_t owner, const char *name, size_t n_name_bytes)
{
    session *latest = NULL;
    session *s = NULL;
    while ((s = places_next(d->places, owner, name, n_name_bytes, s)) != NULL) {
        if (latest == NULL || s->used > latest->used) {
            latest = s;
        }
    }
    return latest;
}

static session *next(decode *d, const wire_command *c, const session *after)
{
    return places_next(d->places, c->owner, c->session, c->n_session_bytes, after);
}

static session *latest_of(decode *d, const wire_command *c)
{
    return decode_latest(d, c->owner, c->session, c->n_session_bytes);
}

static void end_requests(decode *d, session *s)
{
    decode_end_session_requests(d, s, LLM_OUTCOME_CANCELLED, LLM_CANCELLED);
}

/* Every timeline of a name goes, whatever it is doing. */
static void close_all(decode *d, uint32_t owner, const char *name, size_t n_name_bytes)
{
    session *s;
    while ((s = places_next(d->places, owner, name, n_name_bytes, NULL)) != NULL) {
        end_requests(d, s);
        places_close_session(d->places, s);
    }
    (void)places_dormant_remove(d->places, owner, name, n_name_bytes);
    d->may_reseat = true;
}

/* The timeline used last stays, empty; the others go, and what sleeps. It alone holds the pin then, even where it came
 * later. */
static session *reset_all(decode *d, const wire_command *c)
{
    session *kept = latest_of(d, c);
    session *s = NULL;
    while ((s = next(d, c, s)) != NULL) {
        if (s->record.is_pinned == LLM_PIN_ANCHORED) {
            kept->record.is_pinned = LLM_PIN_ANCHORED; /* the session stays pinned: its file says so */
        }
    }
    while ((s = next(d, c, s)) != NULL) {
        end_requests(d, s);
        if (s == kept) {
            places_reset_session(d->places, s);
        } else {
            places_close_session(d->places, s);
        }
    }
    (void)places_dormant_remove(d->places, c->owner, c->session, c->n_session_bytes);
    d->may_reseat = true;
    return kept;
}

static bool is_known(decode *d, const wire_command *c)
{
    return places_knows(d->places, c->owner, c->session, c->n_session_bytes);
}

/* The answer comes when the files are gone. */
void decode_reset_or_close(decode *d, const wire_command *c)
{
    if (!is_known(d, c)) {
        decode_reply(d, c->request, LLM_NOT_FOUND, NULL);
        return;
    }
    session *kept = NULL;
    places_removing_begin(d->places);
    if (c->op == LLM_COMMAND_RESET) {
        kept = reset_all(d, c);
    } else {
        close_all(d, c->owner, c->session, c->n_session_bytes);
    }
    if (places_removing_end(d->places, c->owner, c->session, c->n_session_bytes, c->request)) {
        d->n_replies_due++;
    } else {
        decode_reply(d, c->request, LLM_OK, kept);
    }
}

/* ---- fork ---- */

static bool same_name(const session *s, const char *name, size_t n_name_bytes)
{
    return strlen(s->name) == n_name_bytes && memcmp(s->name, name, n_name_bytes) == 0;
}

/* Its state is at hand; or it is being read from the store now. */
static bool can_be_forked(decode *d, session *from)
{
    places_used(d->places, from); /* so that it is not the one to be parked */
    (void)places_seat(d->places, from);
    return from->seat != SESSION_NO_SEAT || from->parked.state != NULL ||
           (session_n_tokens(from) == 0 && !places_is_waking(from));
}

/* `to` is open and empty. With two seats the model copies; with one, what is saved of `from` is copied. */
static void fill_fork(decode *d, session *from, session *to, uint32_t at)
{
    if (places_seat(d->places, to) == SEATED && from->seat != SESSION_NO_SEAT) {
        (void)resuming_fork(d->places, from, to, at);
        return;
    }
    if (to->seat != SESSION_NO_SEAT) {
        (void)places_park(d->places, to); /* empty: cannot fail */
    }
    places_copy_state(d->places, from, to);
    if (at < session_n_tokens(to) && places_seat(d->places, to) == SEATED) {
        (void)resuming_fork(d->places, to, to, at);
    }
}

int decode_fork(decode *d, session *from, const char *name, size_t n_name_bytes, uint32_t at, session **out)
{
    assert(!same_name(from, name, n_name_bytes));
    session *to = NULL;
    if (!can_be_forked(d, from)) {
        return LLM_BUSY;
    }
    const bool was_held = from->is_held;
    from->is_held = true; /* nor to be forgotten */
    const int status = places_open_named(d->places, from->owner, name, n_name_bytes, &to);
    from->is_held = was_held;
    if (status == LLM_OK) {
        fill_fork(d, from, to, at);
        session_ended(to, session_n_tokens(to));
        *out = to;
    }
    return status;
}

void decode_fork_command(decode *d, const wire_command *c)
{
    session *from = latest_of(d, c);
    session *to = NULL;
    if (from == NULL) {
        decode_reply(d, c->request, LLM_NOT_FOUND, NULL);
        return;
    }
    if (same_name(from, c->other, c->n_other_bytes)) {
        decode_reply(d, c->request, LLM_INVALID, from);
        return;
    }
    if (!c->is_on && places_knows(d->places, c->owner, c->other, c->n_other_bytes)) {
        decode_reply(d, c->request, LLM_EXISTS, from);
        return;
    }
    if (!can_be_forked(d, from)) { /* before anything is closed for it */
        decode_reply(d, c->request, LLM_BUSY, from);
        return;
    }
    close_all(d, c->owner, c->other, c->n_other_bytes);
    const int status = decode_fork(d, from, c->other, c->n_other_bytes, c->at, &to);
    decode_reply(d, c->request, (llm_status)status, to);
}

/* ---- park, pin, rename ---- */

void decode_park(decode *d, const wire_command *c)
{
    session *s = NULL;
    llm_status status = latest_of(d, c) == NULL ? LLM_NOT_FOUND : LLM_OK;
    while ((s = next(d, c, s)) != NULL) {
        if (!session_is_idle(s)) {
            status = LLM_BUSY;
        } else if (s->seat != SESSION_NO_SEAT && !places_park(d->places, s)) {
            status = LLM_NO_MEMORY;
        }
    }
    d->may_reseat = true;
    decode_reply(d, c->request, status, latest_of(d, c));
}

/* The answer comes when what was changed is written; if it cannot be, it is undone, so that the answer, the memory and
 * the disk agree. */
static void end_change(decode *d, const wire_command *c, store_job *job)
{
    llm_status status = LLM_OK;
    if (places_change_end(d->places, job, c->request, &status)) {
        d->n_replies_due++;
    } else {
        decode_reply(d, c->request, status,
                     c->op == LLM_COMMAND_RENAME ? decode_latest(d, c->owner, c->other, c->n_other_bytes)
                                                 : latest_of(d, c));
    }
}

/* Some timeline is: what was written of it now would lack its tokens. */
static bool is_waking(decode *d, const wire_command *c)
{
    session *s = NULL;
    while ((s = next(d, c, s)) != NULL) {
        if (places_is_waking(s)) {
            return true;
        }
    }
    return false;
}

void decode_pin(decode *d, const wire_command *c)
{
    session *s = latest_of(d, c);
    if (is_waking(d, c)) {
        decode_reply(d, c->request, LLM_BUSY, s);
        return;
    }
    store_job *job = s != NULL ? places_change_begin(d->places, c->owner, c->session, c->n_session_bytes) : NULL;
    if (job == NULL) {
        decode_reply(d, c->request, s == NULL ? LLM_NOT_FOUND : LLM_NO_MEMORY, s);
        return;
    }
    const int status = places_pin(d->places, c->owner, c->session, c->n_session_bytes, c->is_on);
    if (status != LLM_OK) { /* nothing was changed */
        store_job_free(job);
        decode_reply(d, c->request, (llm_status)status, s);
        return;
    }
    end_change(d, c, job);
}

static llm_status may_rename(decode *d, const wire_command *c)
{
    if (latest_of(d, c) == NULL) {
        return LLM_NOT_FOUND;
    }
    if (is_waking(d, c)) {
        return LLM_BUSY;
    }
    return places_knows(d->places, c->owner, c->other, c->n_other_bytes) ? LLM_EXISTS : LLM_OK;
}

void decode_rename(decode *d, const wire_command *c)
{
    llm_status status = may_rename(d, c);
    store_job *job = NULL;
    if (status == LLM_OK) {
        job = places_change_begin(d->places, c->owner, c->session, c->n_session_bytes);
        status = job != NULL ? LLM_OK : LLM_NO_MEMORY;
    }
    if (status != LLM_OK) {
        decode_reply(d, c->request, status, latest_of(d, c));
        return;
    }
    session *timeline;
    while ((timeline = next(d, c, NULL)) != NULL) {
        session_rename(timeline, c->other, c->n_other_bytes);
    }
    end_change(d, c, job);
}

/* ---- save, load ---- */

void decode_save(decode *d, const wire_command *c)
{
    session *s = latest_of(d, c);
    int status = s == NULL ? LLM_NOT_FOUND : is_waking(d, c) ? LLM_BUSY : LLM_OK;
    if (status == LLM_OK) {
        status = places_save(d->places, s, c->other, c->n_other_bytes, c->request);
    }
    if (status != LLM_OK) {
        decode_reply(d, c->request, (llm_status)status, s);
    } else {
        d->n_replies_due++;
    }
}

static places_label label_of(const wire_command *c)
{
    return (places_label){
        .owner = c->owner,
        .session = c->session,
        .n_session_bytes = c->n_session_bytes,
        .label = c->other,
        .n_label_bytes = c->n_other_bytes,
    };
}

/* The session is replaced when the store has read what was saved: what cannot be read replaces nothing. */
void decode_load(decode *d, const wire_command *c)
{
    const places_label from = label_of(c);
    const int status = places_load(d->places, &from, c->request);
    if (status != LLM_OK) {
        decode_reply(d, c->request, (llm_status)status, latest_of(d, c));
    } else {
        d->n_replies_due++;
    }
}

void decode_unsave(decode *d, const wire_command *c)
{
    const places_label what = label_of(c);
    const int status = places_unsave(d->places, &what, c->request);
    if (status != LLM_OK) {
        decode_reply(d, c->request, (llm_status)status, NULL);
    } else {
        d->n_replies_due++;
    }
}

static llm_status become_loaded(decode *d, store_job *job)
{
    const size_t n_name = strlen(job->name);
    session *s = NULL;
    if (job->file.n_tokens > d->model->info.n_ctx) {
        return LLM_CONTEXT_LENGTH;
    }
    if (!places_are_tokens(d->places, job->file.tokens, job->file.n_tokens)) {
        return LLM_VERSION;
    }
    close_all(d, job->owner, job->name, n_name);
    const int status = places_open_named(d->places, job->owner, job->name, n_name, &s);
    if (status == LLM_OK) {
        places_become(d->places, s, job);
    }
    return (llm_status)status;
}

static void stored(void *context, store_job *job)
{
    decode *d = context;
    llm_status status = job->status;
    if (job->verb == STORE_LOAD && status == LLM_OK) {
        status = become_loaded(d, job);
    } else if (job->verb == STORE_CHANGE && status != LLM_OK) {
        places_change_undo(d->places, job);
    }
    d->n_replies_due--;
    decode_reply(d, job->request, status, decode_latest(d, job->owner, job->name, strlen(job->name)));
}

void decode_take_stored(decode *d)
{
    /* A session that was parked under its request may have its state in memory again. */
    d->may_reseat = places_take_stored(d->places, stored, d) || d->may_reseat;
}

void decode_save_all(decode *d)
{
    places_save_all(d->places, stored, d);
}
