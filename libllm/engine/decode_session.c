/* decode_session.c: carries out the commands about sessions. Each command gets exactly one reply, at once or when the
 * store has finished the command's job. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/decode.h"
#include "sessions/resuming.h"

branch *decode_latest(decode *d, session_name name)
{
    branch *latest = NULL;
    branch *b = NULL;
    while ((b = table_next(d->table, name, b)) != NULL) {
        if (latest == NULL || b->used > latest->used) {
            latest = b;
        }
    }
    return latest;
}

static branch *latest_of(decode *d, const wire_command *c)
{
    return decode_latest(d, c->session);
}

static void end_requests(decode *d, branch *b)
{
    decode_end_session_requests(d, b, LLM_OUTCOME_CANCELLED, LLM_CANCELLED);
}

/* Closes every branch of the session `name`, even busy branches. Keeps `kept`, which may be NULL. Also removes the
 * files of branches of this session that have no entry. */
static void close_all(decode *d, session_name name, const branch *kept)
{
    branch *after = NULL;
    branch *b;
    while ((b = table_next(d->table, name, after)) != NULL) {
        after = b;
        end_requests(d, b);
        if (b != kept) {
            table_close_branch(d->table, b);
        }
    }
    table_remove_loose(d->table, name);
    d->may_assign_slots = true;
}

/* Empties a session. Closes all branches except `kept`, and empties `kept`, which keeps the session's pin. The caller
 * decides what happens to the file of `kept`. */
static void empty_all(decode *d, session_name name, branch *kept)
{
    if (table_is_pinned(d->table, name)) {
        kept->record.is_pinned = LLM_PIN_ANCHORED;
    }
    close_all(d, name, kept);
    branch_reset(kept);
}

/* Provides an empty session with this name: empties the existing session, or opens a new session. Returns LLM_OK or
 * LLM_CAPACITY. After LLM_CAPACITY, nothing has changed. */
static int open_empty(decode *d, session_name name, branch **out)
{
    branch *b = decode_latest(d, name);
    const int status = b != NULL ? LLM_OK : table_open_named(d->table, name, &b);
    if (status == LLM_OK) {
        empty_all(d, name, b);
        *out = b;
    }
    return status;
}

/* Replies now. Exception: with is_due, the reply comes with the result of a store job. */
static void reply_unless_due(decode *d, const wire_command *c, bool is_due, int status, const branch *b)
{
    if (is_due) {
        d->n_replies_due++;
    } else {
        decode_reply(d, c->request, (llm_status)status, b);
    }
}

/* Pushes the job that removes the files collected since table_removing_begin. The command gets its reply when the files
 * are removed, or now if there are none. */
static void end_removal(decode *d, const wire_command *c, const branch *kept)
{
    reply_unless_due(d, c, table_removing_end(d->table, c->session, c->request), LLM_OK, kept);
}

/* Empties the session. Its most recently used branch stays open, without tokens. If the session is only on disk and has
 * no entry, a new branch gets the session's name and pin. */
static void reset_session(decode *d, const wire_command *c)
{
    branch *kept = latest_of(d, c);
    int status = kept != NULL ? LLM_OK : LLM_NOT_FOUND;
    if (kept == NULL && table_is_waiting(d->table, c->session)) {
        status = table_open_named(d->table, c->session, &kept);
    }
    if (status != LLM_OK) {
        decode_reply(d, c->request, (llm_status)status, NULL);
        return;
    }
    table_removing_begin(d->table);
    empty_all(d, c->session, kept);
    table_reset_file(d->table, kept);
    end_removal(d, c, kept);
}

static void close_session(decode *d, const wire_command *c)
{
    if (!table_knows(d->table, c->session) && table_next_loose(d->table, c->session, NULL) == NULL) {
        decode_reply(d, c->request, LLM_NOT_FOUND, NULL);
        return;
    }
    table_removing_begin(d->table);
    close_all(d, c->session, NULL);
    end_removal(d, c, NULL);
}

/* ---- fork ---- */

/* Fills `to` with the first `at` tokens of `from`, and with their state. `to` must be open and empty. If both branches
 * have slots, the model copies the state. The model may have no cells for a copy, or a slot may be missing. Then the
 * state of `from` is copied in host memory or on disk (table_copy). */
static void fill_fork(decode *d, branch *from, branch *to, uint32_t at)
{
    const bool has_state = from->slot != BRANCH_NO_SLOT && from->record.state != LLM_STATE_TORN;
    const uint32_t n = at < branch_n_tokens(from) ? at : branch_n_tokens(from);
    if (n == 0) {
        return;
    }
    if (has_state && table_take_slot(d->table, to) == SLOT_READY && from->slot != BRANCH_NO_SLOT &&
        resuming_fork(d->table, from, to, n)) {
        return;
    }
    if (to->slot != BRANCH_NO_SLOT) {
        (void)table_park(d->table, to); /* cannot fail, because `to` is empty */
    }
    table_copy(d->table, from, to, n, true);
    if (n < branch_n_tokens(to) && table_take_slot(d->table, to) == SLOT_READY) {
        (void)resuming_fork(d->table, to, to, n);
    } else if (n < branch_n_tokens(to)) {
        branch_reset(to);
        table_copy(d->table, from, to, n, false);
    }
}

/* Opens the session `name` for a fork of `from`. An existing session of that name is emptied. The files of the existing
 * session are added to the removal that the caller has begun (table_removing_begin). */
static int open_fork(decode *d, branch *from, session_name name, branch **out)
{
    assert(!session_name_equal(branch_session_name(from), name));
    const bool was_held = from->is_held;
    from->is_held = true; /* `from` must not be forgotten to make room for its fork */
    const int status = open_empty(d, name, out);
    from->is_held = was_held;
    if (status == LLM_OK) {
        (*out)->record.is_pinned = LLM_PIN_NONE;
        table_remove_file(d->table, *out);
    }
    return status;
}

static void become_fork(decode *d, branch *from, branch *to, uint32_t at)
{
    table_used(d->table, from); /* now `from` is the most recently used branch, which is parked last */
    to->record.n_last_prompt = 0;
    const bool was_held = from->is_held;
    /* The policy evict could forget `from` to give its fork a slot, so `from` is held. The policy park would only park
     * `from`, which does no harm. */
    from->is_held = was_held || d->table->options.policy == LLM_POLICY_EVICT;
    fill_fork(d, from, to, at);
    from->is_held = was_held;
    branch_ended(to, branch_n_tokens(to));
}

int decode_fork(decode *d, branch *from, session_name name)
{
    branch *to = NULL;
    const int status = open_fork(d, from, name, &to);
    if (status == LLM_OK) {
        become_fork(d, from, to, UINT32_MAX);
    }
    return status;
}

static llm_status may_fork(decode *d, const wire_command *c, const branch *from)
{
    if (from == NULL) {
        return LLM_NOT_FOUND;
    }
    if (session_name_equal(branch_session_name(from), c->other)) {
        return LLM_INVALID;
    }
    return !c->is_on && table_knows(d->table, c->other) ? LLM_EXISTS : LLM_OK;
}

/* Copies a session to a new session, which may replace an existing one. The reply follows when the files of the
 * replaced session are removed. These files are removed before any file of the fork is written. */
static void fork_session(decode *d, const wire_command *c)
{
    branch *from = latest_of(d, c);
    branch *to = NULL;
    llm_status status = may_fork(d, c, from);
    if (status != LLM_OK) {
        decode_reply(d, c->request, status, from);
        return;
    }
    table_removing_begin(d->table);
    status = (llm_status)open_fork(d, from, c->other, &to);
    const bool is_due = table_removing_end(d->table, c->other, c->request);
    if (status == LLM_OK) {
        become_fork(d, from, to, c->at);
    }
    reply_unless_due(d, c, is_due, status, to);
}

/* ---- park, pin, rename ---- */

/* Parks one branch of the session per call. If another branch of the session still has a slot, the command stays in the
 * ring and is carried out again after a step. Thus decoding sessions get a step between two copies. */
static void park(decode *d, const wire_command *c)
{
    branch *b = NULL;
    llm_status status = latest_of(d, c) == NULL ? LLM_NOT_FOUND : LLM_OK;
    bool is_one_parked = false;
    while ((b = table_next(d->table, c->session, b)) != NULL) {
        if (!branch_is_idle(b)) {
            status = LLM_BUSY;
        } else if (branch_has_slot(b) && is_one_parked) {
            d->is_unfinished = true;
            return;
        } else if (branch_has_slot(b)) {
            is_one_parked = table_park(d->table, b);
            status = is_one_parked ? status : LLM_NO_MEMORY;
        }
    }
    decode_reply(d, c->request, status, latest_of(d, c));
}

/* Pushes the job that writes a PIN or RENAME to the disk. The command gets its reply when the job is done. If the job
 * fails, the change is undone. Thus the reply, the memory and the disk agree. */
static void end_change(decode *d, const wire_command *c, store_job *job)
{
    llm_status status = LLM_OK;
    const bool is_due = table_change_end(d->table, job, c->request, &status);
    reply_unless_due(d, c, is_due, status, decode_latest(d, c->op == LLM_COMMAND_RENAME ? c->other : c->session));
}

static void pin(decode *d, const wire_command *c)
{
    branch *b = latest_of(d, c);
    store_job *job = b != NULL ? table_change_begin(d->table, c->session) : NULL;
    if (job == NULL) {
        decode_reply(d, c->request, b == NULL ? LLM_NOT_FOUND : LLM_NO_MEMORY, b);
        return;
    }
    const int status = table_pin(d->table, c->session, c->is_on);
    if (status != LLM_OK) { /* nothing was changed */
        store_job_free(job);
        decode_reply(d, c->request, (llm_status)status, b);
        return;
    }
    end_change(d, c, job);
}

static llm_status may_rename(decode *d, const wire_command *c)
{
    if (latest_of(d, c) == NULL) {
        return LLM_NOT_FOUND;
    }
    return table_knows(d->table, c->other) ? LLM_EXISTS : LLM_OK;
}

static void rename_session(decode *d, const wire_command *c)
{
    llm_status status = may_rename(d, c);
    store_job *job = NULL;
    if (status == LLM_OK) {
        job = table_change_begin(d->table, c->session);
        status = job != NULL ? LLM_OK : LLM_NO_MEMORY;
    }
    if (status != LLM_OK) {
        decode_reply(d, c->request, status, latest_of(d, c));
        return;
    }
    table_rename(d->table, c->session, c->other);
    end_change(d, c, job);
}

/* ---- save, load ---- */

static void save(decode *d, const wire_command *c)
{
    branch *b = latest_of(d, c);
    const int status = b != NULL ? table_save(d->table, b, c->other, c->request) : LLM_NOT_FOUND;
    reply_unless_due(d, c, status == LLM_OK, status, b);
}

/* Starts to read the saved session from disk. The existing session is replaced only after the saved session has been
 * read. Thus a damaged file replaces nothing. */
static void load(decode *d, const wire_command *c)
{
    const int status = table_load(d->table, c->session, c->other, c->request);
    reply_unless_due(d, c, status == LLM_OK, status, latest_of(d, c));
}

static void unsave(decode *d, const wire_command *c)
{
    const int status = table_unsave(d->table, c->other, c->request);
    reply_unless_due(d, c, status == LLM_OK, status, NULL);
}

/* Replaces the session by the saved session that the store has read. Sets *is_due if the reply must wait for a job of
 * the store. This job removes the files of the replaced session. It also writes the branch file if the session is
 * pinned. */
static llm_status become_loaded(decode *d, store_job *job, bool *is_due)
{
    const session_name name = session_name_from(job->owner, job->name);
    branch *b = NULL;
    if (job->file.n_tokens > d->model->info.n_ctx) {
        return LLM_CONTEXT_LENGTH;
    }
    if (job->file.n_tokens == 0 || !branch_are_tokens(&d->model->info, job->file.tokens, job->file.n_tokens)) {
        return LLM_VERSION;
    }
    table_removing_begin(d->table);
    const int status = open_empty(d, name, &b);
    if (status == LLM_OK) {
        table_become(d->table, b, job);
        table_reset_file(d->table, b);
    }
    *is_due = table_removing_end(d->table, name, job->request);
    if (status == LLM_OK) {
        /* called last, so that the state is written only after the old files are removed */
        table_become_warm(d->table, b, job);
    }
    return (llm_status)status;
}

/* Whether the orderly stop has written all sessions. From then on, no session may be created: it would be confirmed to
 * the client, but lost. */
static bool is_saved(const decode *d)
{
    return atomic_load(&d->life) == DECODE_JOINED;
}

static void stored(void *context, store_job *job)
{
    decode *d = context;
    llm_status status = job->status;
    bool is_due = false;
    if (job->verb == STORE_LOAD && status == LLM_OK) {
        status = is_saved(d) ? LLM_SHUTDOWN : become_loaded(d, job, &is_due);
    } else if (job->verb == STORE_CHANGE && status != LLM_OK) {
        table_change_undo(d->table, job);
    }
    if (is_due) {
        return;
    }
    d->n_replies_due--;
    decode_reply_stored(d, job, status, decode_latest(d, session_name_from(job->owner, job->name)));
}

/* ---- deferred commands, which wait for the store ---- */

static bool changes_label(const wire_command *c)
{
    return c->op == LLM_COMMAND_PIN || c->op == LLM_COMMAND_RENAME;
}

static void defer(decode *d, const wire_command *c)
{
    deferred *w = calloc(1, sizeof *w);
    if (w == NULL) {
        decode_reply(d, c->request, LLM_NO_MEMORY, latest_of(d, c));
        return;
    }
    w->command = *c;
    memcpy(w->session, c->session.bytes, c->session.n_bytes);
    memcpy(w->other, c->other.bytes, c->other.n_bytes);
    w->command.session.bytes = w->session;
    w->command.other.bytes = w->other;
    deferred **last = &d->deferred;
    while (*last != NULL) {
        last = &(*last)->next;
    }
    *last = w;
    d->n_deferred++;
    d->n_replies_due++;
}

static void carry_out(decode *d, const wire_command *c)
{
    switch (c->op) {
    case LLM_COMMAND_RESET: reset_session(d, c); break;
    case LLM_COMMAND_CLOSE: close_session(d, c); break;
    case LLM_COMMAND_FORK: fork_session(d, c); break;
    case LLM_COMMAND_PARK: park(d, c); break;
    case LLM_COMMAND_PIN: pin(d, c); break;
    case LLM_COMMAND_RENAME: rename_session(d, c); break;
    case LLM_COMMAND_SAVE: save(d, c); break;
    case LLM_COMMAND_LOAD: load(d, c); break;
    case LLM_COMMAND_UNSAVE: unsave(d, c); break;
    case LLM_COMMAND_GENERATE:
    case LLM_COMMAND_CANCEL:
    case LLM_COMMAND_PAUSE: assert(false); break; /* see decode_command.c */
    }
}

void decode_session_command(decode *d, const wire_command *c)
{
    if (is_saved(d) && (c->op == LLM_COMMAND_FORK || c->op == LLM_COMMAND_LOAD)) {
        decode_reply(d, c->request, LLM_SHUTDOWN, NULL);
        return;
    }
    if (changes_label(c) && table_is_changing(d->table, c->session)) {
        defer(d, c);
    } else {
        carry_out(d, c);
    }
}

static void carry_out_deferred(decode *d)
{
    deferred *w = d->deferred;
    d->deferred = NULL;
    d->n_deferred = 0;
    while (w != NULL) {
        deferred *following = w->next;
        d->n_replies_due--;
        decode_session_command(d, &w->command);
        free(w);
        w = following;
    }
}

void decode_take_stored(decode *d)
{
    /* Slots are assigned again after each result. The store may have read the state of a branch that waits for a
     * slot. */
    while (table_take_stored(d->table, decode_has_room(d), stored, d)) {
        d->may_assign_slots = true;
        carry_out_deferred(d);
    }
}

static void take_stored(void *context)
{
    decode_take_stored(context);
}

void decode_save_all(decode *d)
{
    while (d->deferred != NULL && decode_has_room(d)) { /* each deferred command waits for a job of the store */
        store_wait(d->table->store);
        decode_take_stored(d);
    }
    table_save_all(d->table, take_stored, d);
}
