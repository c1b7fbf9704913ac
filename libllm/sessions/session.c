#include "sessions/session.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WHOLE_SHARE_MAX = 4 }; /* a whole state may take this fraction of the checkpoint budget, no more */

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t session_clock_us(void)
{
    return clock_ns(CLOCK_MONOTONIC) / 1000u;
}

uint64_t session_clock_ms(void)
{
    return clock_ns(CLOCK_REALTIME) / 1000000u;
}

uint64_t session_clock_elapsed_ms(void)
{
    return clock_ns(CLOCK_BOOTTIME) / 1000000u;
}

static model *model_of(const session *s)
{
    return s->ground->model;
}

static page *page_of(const session *s)
{
    return s->ground->page;
}

static uint16_t slot(const session *s)
{
    assert(s->slot != SESSION_NO_SLOT);
    return (uint16_t)s->slot;
}

bool session_is_named(const session *s)
{
    return s->name[0] != '\0';
}

bool session_has_slot(const session *s)
{
    return s->slot != SESSION_NO_SLOT;
}

static bool is_torn(const session *s)
{
    return s->record.state == LLM_STATE_TORN;
}

static void assert_invariant(const session *s)
{
    assert(is_torn(s) || !session_has_slot(s) ||
           session_n_tokens(s) == model_of(s)->ops->position(model_of(s), slot(s)));
    (void)s;
}

void session_publish(session *s)
{
    page_record_store(page_of(s), s->place, &s->record);
}

static void set_state_unused(session *s, llm_state state)
{
    s->record.state = state;
    session_publish(s);
}

static void set_state(session *s, llm_state state)
{
    s->record.used_ms = session_clock_ms();
    set_state_unused(s, state);
}

/* The resident tokens become the first n; what was known about the rest is forgotten. */
static void truncate_tokens(session *s, uint32_t n)
{
    page_truncate(page_of(s), s->place, n);
    if (s->logits_at > n) {
        s->logits_at = 0;
    }
    if (s->checkpoint_at > n) {
        s->checkpoint_at = n;
    }
    if (s->record.n_visible > n) {
        s->record.n_visible = n;
    }
}

void session_set_parked(session *s, const parked *to)
{
    s->ground->totals->parked_bytes += to->n_bytes - s->parked.n_bytes;
    s->parked = *to;
}

void session_hold_parked(session *s, blob *state, uint32_t k)
{
    session_set_parked(s, &(parked){.where = PARKED_IN_MEMORY, .state = state, .k = k, .n_bytes = state->n_bytes});
}

void session_set_file_bytes(session *s, size_t n_bytes)
{
    s->ground->totals->file_bytes += n_bytes - s->n_file_bytes;
    s->n_file_bytes = n_bytes;
}

void session_forget_parked(session *s)
{
    const ledger_use use = s->parked.where == PARKED_WRITING ? LEDGER_IN_FLIGHT : LEDGER_PARKED;
    ledger_drop(s->ground->ledger, use, s->parked.state);
    session_set_parked(s, &(parked){.where = PARKED_NOWHERE});
}

static size_t logits_bytes(const session *s)
{
    return model_of(s)->info.n_vocab * sizeof *s->logits;
}

void session_forget_logits(session *s)
{
    ledger_bytes_free(s->logits, logits_bytes(s));
    s->logits = NULL;
    s->logits_at = 0;
}

static void unpin(session *s)
{
    if (s->prefix != NULL) {
        checkpoint_unpin(s->ground->checkpoints, s->prefix);
        s->prefix = NULL;
    }
}

/* Empties the session's state and its tokens; heals a torn session. */
static void clear(session *s)
{
    if (session_has_slot(s)) {
        model_of(s)->ops->clear(model_of(s), slot(s));
    }
    session_forget_parked(s);
    truncate_tokens(s, 0);
}

void session_init(session *s, const session_ground *ground, uint32_t place)
{
    *s = (session){.ground = ground, .place = place, .slot = SESSION_NO_SLOT};
}

void session_open(session *s, session_name name, uint64_t id)
{
    assert(!s->is_open && !session_has_slot(s) && name.n_bytes <= LLM_SESSION_NAME_BYTES_MAX);
    session_init(s, s->ground, s->place);
    s->is_open = true;
    s->owner = name.owner;
    s->id = id;
    memcpy(s->name, name.bytes, name.n_bytes);
    s->ground->totals->n_open++;
    s->ground->totals->n_named += session_is_named(s);
    s->record = (page_record){.state = LLM_STATE_EMPTY, .diverged_at = -1, .opened_ms = session_clock_ms()};
    page_place_open(page_of(s), s->place, s->owner, s->name, id);
    set_state(s, LLM_STATE_EMPTY);
}

void session_rename(session *s, session_name name)
{
    memcpy(s->name, name.bytes, name.n_bytes);
    s->name[name.n_bytes] = '\0';
    page_place_rename(page_of(s), s->place, s->name);
}

void session_close(session *s)
{
    assert(s->is_open && session_is_idle(s));
    clear(s);
    unpin(s);
    session_forget_logits(s);
    page_place_close(page_of(s), s->place);
    session_set_file_bytes(s, 0);
    s->ground->totals->n_open--;
    s->ground->totals->n_named -= session_is_named(s);
    session_init(s, s->ground, s->place);
}

void session_reset(session *s)
{
    assert(s->is_open && s->running == NULL);
    clear(s);
    unpin(s);
    set_state(s, session_has_slot(s) ? LLM_STATE_EMPTY : LLM_STATE_PARKED);
}

bool session_are_tokens(const model_info *info, const int32_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= info->n_vocab) {
            return false;
        }
    }
    return true;
}

uint32_t session_n_tokens(const session *s)
{
    return page_n_tokens(page_of(s), s->place);
}

const int32_t *session_tokens(const session *s)
{
    return page_tokens(page_of(s), s->place);
}

bool session_is_idle(const session *s)
{
    return s->is_open && !s->is_held && s->running == NULL && s->waiting == NULL;
}

resume_source session_source(const session *s)
{
    const uint32_t n = session_n_tokens(s);
    return (resume_source){
        .tokens = session_tokens(s),
        .n_tokens = n,
        .rewind_floor = n > 0 ? model_of(s)->ops->rewind_floor(model_of(s), slot(s)) : 1,
    };
}

/* ---- a generation ---- */

bool session_cut(session *s, uint32_t n_tokens)
{
    const uint32_t n = session_n_tokens(s);
    if (n_tokens == n) {
        return true;
    }
    if (n_tokens == 0 || n_tokens > n || n_tokens < model_of(s)->ops->rewind_floor(model_of(s), slot(s))) {
        return false;
    }
    if (!model_of(s)->ops->rewind(model_of(s), slot(s), n_tokens)) {
        session_tear(s);
        return false;
    }
    truncate_tokens(s, n_tokens);
    assert_invariant(s);
    return true;
}

/* The model's sequence now holds the prompt's first k tokens, however it came to that. */
static void adopt_tokens(session *s, const int32_t *prompt, uint32_t k)
{
    const uint32_t same = resume_common_prefix(session_tokens(s), session_n_tokens(s), prompt, k);
    truncate_tokens(s, same);
    page_append(page_of(s), s->place, prompt + same, k - same);
}

static model_result load_parked(session *s, uint16_t to, const parked *from)
{
    model *m = model_of(s);
    const uint64_t begin_us = session_clock_us();
    const model_result result =
        m->ops->state_load(m, to, MODEL_STATE_FULL, from->k, from->state->bytes, from->state->n_bytes);
    if (result == MODEL_OK) {
        copy_cost_learn(s->ground->pace, from->state->n_bytes, (double)(session_clock_us() - begin_us));
    }
    return result;
}

/* Between cells of their own a copy is a save and a load: its bytes are in the account like all others. */
static bool copy_slot(model *m, session *s, const session *donor)
{
    if (m->info.shares_cells) {
        return m->ops->copy(m, slot(donor), slot(s));
    }
    parked copy = {.where = PARKED_NOWHERE};
    copy.state = session_hold_state(donor, LEDGER_IN_FLIGHT, &copy.k);
    const bool is_loaded = copy.state != NULL && load_parked(s, slot(s), &copy) == MODEL_OK;
    ledger_drop(s->ground->ledger, LEDGER_IN_FLIGHT, copy.state);
    return is_loaded;
}

static bool copy_donor(session *s, const session *donor)
{
    model *m = model_of(s);
    const uint32_t n = session_has_slot(donor) ? session_n_tokens(donor) : donor->parked.k;
    m->ops->clear(m, slot(s));
    truncate_tokens(s, 0);
    const bool copied =
        session_has_slot(donor) ? copy_slot(m, s, donor) : load_parked(s, slot(s), &donor->parked) == MODEL_OK;
    if (!copied) {
        return false;
    }
    page_append(page_of(s), s->place, session_tokens(donor), n);
    return true;
}

static bool restore(session *s, const checkpoint *from, const int32_t *prompt)
{
    model *m = model_of(s);
    const bool full = from->is_whole && m->info.checkpoint != MODEL_CHECKPOINT_WHOLE;
    const model_state_kind kind = full ? MODEL_STATE_FULL : MODEL_STATE_CHECKPOINT;
    if (m->ops->state_load(m, slot(s), kind, from->k, from->state, from->n_state_bytes) != MODEL_OK) {
        return false;
    }
    adopt_tokens(s, prompt, from->k);
    s->checkpoint_at = from->k;
    return true;
}

bool session_apply(session *s, const resume_plan *plan, const int32_t *prompt, const session *donor, checkpoint *from)
{
    if (is_torn(s)) {
        clear(s);
        set_state(s, LLM_STATE_EMPTY);
    }
    bool good = true;
    if (plan->n_keep == 0) {
        clear(s);
    } else {
        good = donor == NULL || copy_donor(s, donor);
        good = good && (from == NULL || restore(s, from, prompt));
        good = good && session_cut(s, plan->n_keep);
    }
    if (!good) {
        clear(s);
        set_state(s, LLM_STATE_EMPTY);
    }
    if (from != NULL && good) {
        checkpoint_use(s->ground->checkpoints, from);
    }
    assert_invariant(s);
    return good;
}

void session_begin(session *s, const resume_plan *plan, uint32_t n_prompt)
{
    s->was_parked = false;
    s->n_left = 0;
    s->record.reason = plan->reason;
    s->record.diverged_at = plan->diverged_at;
    s->record.n_requests++;
    s->record.n_last_prompt = n_prompt;
    s->record.n_last_reused = plan->n_keep;
    s->record.n_reused_total += plan->n_keep;
    set_state(s, LLM_STATE_PREFILL);
}

void session_consumed(session *s, const int32_t *tokens, uint32_t n)
{
    page_append(page_of(s), s->place, tokens, n);
    if (s->record.state == LLM_STATE_PREFILL) {
        s->record.n_prefilled_total += n;
        session_publish(s); /* a long prompt is watched while it is read */
    }
    assert_invariant(s);
}

void session_decoding(session *s)
{
    assert(s->record.state == LLM_STATE_PREFILL);
    set_state(s, LLM_STATE_DECODE);
}

void session_ended(session *s, uint32_t n_visible)
{
    const uint32_t n_tokens = session_n_tokens(s);
    s->record.n_visible = n_visible < n_tokens ? n_visible : n_tokens;
    if (is_torn(s)) {
        return;
    }
    if (!session_has_slot(s)) {
        set_state(s, LLM_STATE_PARKED);
    } else {
        set_state(s, n_tokens > 0 ? LLM_STATE_IDLE : LLM_STATE_EMPTY);
    }
}

void session_tear(session *s)
{
    set_state(s, LLM_STATE_TORN);
}

/* ---- what is kept ---- */

void session_keep_logits(session *s, const float *logits)
{
    if (s->logits == NULL) {
        s->logits = ledger_bytes_new(logits_bytes(s));
    }
    if (s->logits != NULL) {
        memcpy(s->logits, logits, logits_bytes(s));
        s->logits_at = session_n_tokens(s);
    }
}

static checkpoint *save_checkpoint(session *s, const float *logits, bool whole)
{
    model *m = model_of(s);
    const uint32_t n_vocab = m->info.n_vocab;
    const model_state_kind kind =
        whole && m->info.checkpoint != MODEL_CHECKPOINT_WHOLE ? MODEL_STATE_FULL : MODEL_STATE_CHECKPOINT;
    const size_t n_bytes = m->ops->state_bytes(m, slot(s), kind);
    checkpoint_store *store = s->ground->checkpoints;
    if (n_bytes == 0 || (kind == MODEL_STATE_FULL && n_bytes > store->n_bytes_max / WHOLE_SHARE_MAX)) {
        return NULL;
    }
    checkpoint *c = checkpoint_add(store, s->owner, session_tokens(s), session_n_tokens(s), n_bytes,
                                   logits != NULL ? n_vocab : 0, whole || m->info.checkpoint == MODEL_CHECKPOINT_WHOLE);
    if (c == NULL) {
        return NULL;
    }
    if (m->ops->state_save(m, slot(s), kind, c->state, n_bytes) != n_bytes) {
        checkpoint_remove(store, c);
        return NULL;
    }
    if (logits != NULL) {
        memcpy(c->logits, logits, n_vocab * sizeof *logits);
    }
    return c;
}

/* Replaces `lesser`, a checkpoint of the same tokens. Returns the one that is in the store then: if saving fails, `lesser`. */
static checkpoint *save_more(session *s, const float *logits, bool whole, checkpoint *lesser)
{
    checkpoint_store *store = s->ground->checkpoints;
    checkpoint_detach(store, lesser);
    const float *known = lesser->n_logits == model_of(s)->info.n_vocab ? lesser->logits : NULL;
    checkpoint *c = save_checkpoint(s, logits != NULL ? logits : known, whole || lesser->is_whole);
    if (c == NULL && !lesser->is_whole && logits != NULL && known == NULL) {
        c = save_checkpoint(s, logits, false);
    }
    return checkpoint_replace(store, lesser, c);
}

bool session_takes_checkpoints(const session *s)
{
    return model_of(s)->info.checkpoint != MODEL_CHECKPOINT_NONE;
}

void session_checkpoint(session *s, const float *logits, bool prefix)
{
    const bool whole = prefix; /* it shall outlive the sessions that hold its attention */
    if (!whole && !session_takes_checkpoints(s)) {
        return;
    }
    checkpoint_store *store = s->ground->checkpoints;
    checkpoint *c = checkpoint_find(store, s->owner, session_tokens(s), session_n_tokens(s));
    s->checkpoint_at = session_n_tokens(s); /* should it fail, the next one is not due at once */
    if (c != NULL && c->n_pins == 0 && ((whole && !c->is_whole) || (logits != NULL && c->logits == NULL))) {
        c = save_more(s, logits, whole, c);
    } else if (c == NULL) {
        c = save_checkpoint(s, logits, whole);
    }
    if (c == NULL && whole && model_of(s)->info.checkpoint != MODEL_CHECKPOINT_NONE) {
        c = save_checkpoint(s, logits, false);
    }
    if (c == NULL) {
        return;
    }
    checkpoint_use(store, c);
    if (prefix && s->prefix != c) {
        unpin(s);
        s->prefix = checkpoint_pin(store, c) ? c : NULL;
    }
}

/* ---- slots ---- */

/* Of a session with a slot that has one. NULL: memory is short. */
static blob *save_state(const session *s, ledger_use use)
{
    model *m = model_of(s);
    const size_t n_bytes = m->ops->state_bytes(m, slot(s), MODEL_STATE_FULL);
    const uint64_t begin_us = session_clock_us();
    blob *state = n_bytes > 0 ? ledger_new(s->ground->ledger, use, n_bytes) : NULL;
    if (state != NULL && m->ops->state_save(m, slot(s), MODEL_STATE_FULL, state->bytes, n_bytes) != n_bytes) {
        ledger_drop(s->ground->ledger, use, state);
        state = NULL;
    }
    if (state != NULL) {
        copy_cost_learn(s->ground->pace, n_bytes, (double)(session_clock_us() - begin_us));
    }
    return state;
}

blob *session_hold_state(const session *s, ledger_use use, uint32_t *k)
{
    *k = session_has_slot(s) ? session_n_tokens(s) : s->parked.k;
    if (session_has_slot(s)) {
        return is_torn(s) || *k == 0 ? NULL : save_state(s, use);
    }
    if (s->parked.state != NULL) {
        ledger_hold(s->ground->ledger, use, s->parked.state);
    }
    return s->parked.state;
}

size_t session_state_bytes(const session *s, uint32_t n_tokens)
{
    return (size_t)model_of(s)->ops->sequence_bytes(model_of(s), n_tokens);
}

static void tell_as_copy(const session *from, session *to)
{
    page_append(page_of(to), to->place, session_tokens(from), session_n_tokens(from));
    to->checkpoint_at = from->checkpoint_at;
    to->record.reason = from->record.reason;
    to->record.diverged_at = from->record.diverged_at;
    to->record.n_visible = from->record.n_visible;
    to->record.n_last_prompt = from->record.n_last_prompt;
    to->record.n_last_reused = from->record.n_last_reused;
    to->record.used_ms = from->record.used_ms;
}

bool session_copy_of(const session *from, int32_t free_slot, session_copy *out)
{
    assert(session_has_slot(from) && !is_torn(from));
    model *m = model_of(from);
    *out = (session_copy){.slot = free_slot};
    if (free_slot != SESSION_NO_SLOT) {
        assert(m->info.shares_cells);
        return m->ops->copy(m, slot(from), (uint16_t)free_slot);
    }
    out->state = save_state(from, LEDGER_PARKED);
    return out->state != NULL;
}

void session_become_copy(session *to, const session *from, const session_copy *copy)
{
    assert(!session_has_slot(to) && session_n_tokens(to) == 0);
    to->slot = copy->slot;
    if (copy->state != NULL) {
        session_hold_parked(to, copy->state, session_n_tokens(from));
    }
    tell_as_copy(from, to);
    set_state_unused(to, session_has_slot(to) ? LLM_STATE_IDLE : LLM_STATE_PARKED);
}

bool session_park(session *s)
{
    model *m = model_of(s);
    if (is_torn(s) || session_n_tokens(s) == 0) {
        m->ops->clear(m, slot(s));
        session_forget_parked(s);
    } else {
        blob *state = save_state(s, LEDGER_PARKED);
        if (state == NULL) {
            return false;
        }
        session_forget_parked(s);
        session_hold_parked(s, state, session_n_tokens(s));
        m->ops->clear(m, slot(s));
    }
    s->slot = SESSION_NO_SLOT;
    if (s->running == NULL) {
        set_state_unused(s, LLM_STATE_PARKED);
    }
    return true;
}

model_result session_take_slot(session *s, uint16_t free_slot)
{
    assert(!session_has_slot(s));
    const uint32_t n_tokens = session_n_tokens(s);
    bool is_loaded = false;
    if (s->parked.state != NULL && n_tokens > 0) {
        const model_result result = load_parked(s, free_slot, &s->parked);
        if (result == MODEL_NO_CELLS) {
            return result;
        }
        is_loaded = result == MODEL_OK;
    }
    s->slot = free_slot;
    s->was_parked = is_loaded && s->running == NULL;
    if (is_loaded && s->parked.k < n_tokens) {
        truncate_tokens(s, s->parked.k);
    }
    const bool is_lost = n_tokens > 0 && !is_loaded; /* the tokens are known, their state is gone */
    session_forget_parked(s);
    if (is_lost) {
        set_state(s, LLM_STATE_TORN);
    } else if (s->running == NULL) {
        set_state_unused(s, session_n_tokens(s) > 0 ? LLM_STATE_IDLE : LLM_STATE_EMPTY);
    }
    assert_invariant(s);
    return is_lost ? MODEL_INVALID : MODEL_OK;
}
