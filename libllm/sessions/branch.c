#include "sessions/branch.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { WHOLE_SHARE_MAX = 4 }; /* a whole checkpoint can take at most 1/4 of the checkpoint budget */

static model *model_of(const branch *b)
{
    return b->shared->model;
}

static session_table *session_table_of(const branch *b)
{
    return b->shared->session_table;
}

static uint16_t slot(const branch *b)
{
    assert(b->slot != BRANCH_NO_SLOT);
    return (uint16_t)b->slot;
}

bool branch_is_named(const branch *b)
{
    return b->name[0] != '\0';
}

bool branch_has_slot(const branch *b)
{
    return b->slot != BRANCH_NO_SLOT;
}

static bool is_torn(const branch *b)
{
    return b->record.state == LLM_STATE_TORN;
}

static void assert_invariant(const branch *b)
{
    assert(is_torn(b) || !branch_has_slot(b) ||
           branch_n_tokens(b) + b->n_drafts == model_of(b)->ops->position(model_of(b), slot(b)));
    (void)b;
}

void branch_publish(branch *b)
{
    b->record.kept_in = branch_place(b);
    session_table_store_record(session_table_of(b), b->entry, &b->record);
}

static void set_state_unused(branch *b, llm_state state)
{
    b->record.state = state;
    branch_publish(b);
}

static void set_state(branch *b, llm_state state)
{
    b->record.used_ms = clock_ms();
    set_state_unused(b, state);
}

/* Truncates the tokens to the first n, and adjusts the members that refer to later tokens. */
static void truncate_tokens(branch *b, uint32_t n)
{
    session_table_truncate(session_table_of(b), b->entry, n);
    if (b->logits_at > n) {
        b->logits_at = 0;
    }
    if (b->checkpoint_at > n) {
        b->checkpoint_at = n;
    }
    if (b->record.n_visible > n) {
        b->record.n_visible = n;
    }
}

void branch_set_parked(branch *b, const parked *to)
{
    b->shared->totals->n_changes++;
    b->shared->totals->parked_bytes += to->n_bytes - b->parked.n_bytes;
    b->parked = *to;
    branch_publish(b);
}

void branch_hold_parked(branch *b, blob *state, uint32_t k)
{
    branch_set_parked(b, &(parked){.where = PARKED_IN_MEMORY, .state = state, .k = k, .n_bytes = state->n_bytes});
}

void branch_set_file_bytes(branch *b, size_t n_bytes)
{
    b->shared->totals->n_changes++;
    b->shared->totals->file_bytes += n_bytes - b->n_file_bytes;
    b->n_file_bytes = n_bytes;
}

void branch_forget_parked(branch *b)
{
    const ledger_use use = b->parked.where == PARKED_WRITING ? LEDGER_IN_FLIGHT : LEDGER_PARKED;
    ledger_drop(b->shared->ledger, use, b->parked.state);
    branch_set_parked(b, &(parked){.where = PARKED_NOWHERE});
}

static size_t logits_bytes(const branch *b)
{
    return model_of(b)->info.n_vocab * sizeof *b->logits;
}

static size_t kept_logits_bytes(const branch *b)
{
    return b->logits != NULL ? logits_bytes(b) : 0;
}

void branch_forget_logits(branch *b)
{
    if (!branch_has_slot(b)) {
        ledger_release(b->shared->ledger, LEDGER_PARKED, kept_logits_bytes(b));
    }
    ledger_bytes_free(b->logits, logits_bytes(b));
    b->logits = NULL;
    b->logits_at = 0;
}

static void unpin(branch *b)
{
    if (b->prefix != NULL) {
        checkpoint_unpin(b->shared->checkpoints, b->prefix);
        b->prefix = NULL;
    }
}

/* Removes the branch's state and tokens. The caller then sets the branch's state word. */
static void clear(branch *b)
{
    if (branch_has_slot(b)) {
        model_of(b)->ops->clear(model_of(b), slot(b));
    }
    branch_forget_parked(b);
    truncate_tokens(b, 0);
}

void branch_init(branch *b, const branch_shared *shared, uint32_t entry)
{
    *b = (branch){.shared = shared, .entry = entry, .slot = BRANCH_NO_SLOT};
}

void branch_open(branch *b, session_name name, uint64_t id)
{
    assert(!b->is_open && !branch_has_slot(b) && name.n_bytes <= LLM_SESSION_NAME_BYTES_MAX);
    branch_init(b, b->shared, b->entry);
    b->is_open = true;
    b->owner = name.owner;
    b->id = id;
    memcpy(b->name, name.bytes, name.n_bytes);
    b->shared->totals->n_open++;
    b->shared->totals->n_named += branch_is_named(b);
    b->record = (session_table_record){.state = LLM_STATE_EMPTY, .diverged_at = -1, .opened_ms = clock_ms()};
    session_table_open_entry(session_table_of(b), b->entry, b->owner, b->name, id);
    set_state(b, LLM_STATE_EMPTY);
}

void branch_rename(branch *b, session_name name)
{
    memcpy(b->name, name.bytes, name.n_bytes);
    b->name[name.n_bytes] = '\0';
    session_table_rename_entry(session_table_of(b), b->entry, b->name);
}

void branch_close(branch *b)
{
    assert(b->is_open && branch_is_idle(b));
    clear(b);
    unpin(b);
    branch_forget_logits(b);
    session_table_close_entry(session_table_of(b), b->entry);
    branch_set_file_bytes(b, 0);
    b->shared->totals->n_open--;
    b->shared->totals->n_named -= branch_is_named(b);
    branch_init(b, b->shared, b->entry);
}

void branch_reset(branch *b)
{
    assert(b->is_open && b->running == NULL);
    clear(b);
    unpin(b);
    branch_forget_logits(b);
    set_state(b, branch_has_slot(b) ? LLM_STATE_EMPTY : LLM_STATE_PARKED);
}

bool branch_are_tokens(const model_info *info, const int32_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= info->n_vocab) {
            return false;
        }
    }
    return true;
}

uint32_t branch_n_tokens(const branch *b)
{
    return session_table_n_tokens(session_table_of(b), b->entry);
}

const int32_t *branch_tokens(const branch *b)
{
    return session_table_tokens(session_table_of(b), b->entry);
}

bool branch_is_idle(const branch *b)
{
    return b->is_open && !b->is_held && b->running == NULL && b->waiting == NULL;
}

resume_source branch_source(const branch *b)
{
    const uint32_t n = branch_n_tokens(b);
    return (resume_source){
        .tokens = branch_tokens(b),
        .n_tokens = n,
        .truncate_floor = n > 0 ? model_of(b)->ops->truncate_floor(model_of(b), slot(b)) : 1,
    };
}

/* ---- a generation ---- */

bool branch_truncate(branch *b, uint32_t n_tokens)
{
    const uint32_t n = branch_n_tokens(b);
    if (n_tokens == n) {
        return true;
    }
    if (n_tokens == 0 || n_tokens > n || n_tokens < model_of(b)->ops->truncate_floor(model_of(b), slot(b))) {
        return false;
    }
    if (!model_of(b)->ops->truncate(model_of(b), slot(b), n_tokens)) {
        branch_invalidate(b);
        return false;
    }
    truncate_tokens(b, n_tokens);
    assert_invariant(b);
    return true;
}

/* Sets the branch's tokens to the prompt's first k tokens, after the model's sequence was brought to the state of these
 * tokens. */
static void adopt_tokens(branch *b, const int32_t *prompt, uint32_t k)
{
    const uint32_t same = resume_common_prefix(branch_tokens(b), branch_n_tokens(b), prompt, k);
    truncate_tokens(b, same);
    session_table_append(session_table_of(b), b->entry, prompt + same, k - same);
}

static model_result load_parked(branch *b, uint16_t to, const parked *from)
{
    model *m = model_of(b);
    const uint64_t begin_us = clock_us();
    const model_result result =
        m->ops->state_load(m, to, MODEL_STATE_FULL, from->k, from->state->bytes, from->state->n_bytes);
    if (result == MODEL_OK) {
        copy_cost_learn(b->shared->pace, from->state->n_bytes, (double)(clock_us() - begin_us));
    }
    return result;
}

/* Copies the donor's sequence to the slot of `b`. If sequences share no cells, the donor's state is saved to host
 * memory and loaded again. Meanwhile the bytes of the saved state count as in flight. */
static bool copy_slot(model *m, branch *b, const branch *donor)
{
    if (m->info.shares_cells) {
        return m->ops->copy(m, slot(donor), slot(b));
    }
    parked copy = {.where = PARKED_NOWHERE};
    copy.state = branch_hold_state(donor, LEDGER_IN_FLIGHT, &copy.k);
    const bool is_loaded = copy.state != NULL && load_parked(b, slot(b), &copy) == MODEL_OK;
    ledger_drop(b->shared->ledger, LEDGER_IN_FLIGHT, copy.state);
    return is_loaded;
}

static bool copy_donor(branch *b, const branch *donor)
{
    model *m = model_of(b);
    const uint32_t n = branch_has_slot(donor) ? branch_n_tokens(donor) : donor->parked.k;
    m->ops->clear(m, slot(b));
    truncate_tokens(b, 0);
    const bool copied =
        branch_has_slot(donor) ? copy_slot(m, b, donor) : load_parked(b, slot(b), &donor->parked) == MODEL_OK;
    if (!copied) {
        return false;
    }
    session_table_append(session_table_of(b), b->entry, branch_tokens(donor), n);
    return true;
}

/* Loads a checkpoint. A checkpoint that is not whole lacks the KV cache of the attention layers. The branch's sequence
 * must already hold this KV cache, which may be a copy of the donor's. */
static bool restore(branch *b, const checkpoint *from, const int32_t *prompt)
{
    model *m = model_of(b);
    const bool full = from->is_whole && m->info.checkpoint != MODEL_CHECKPOINT_WHOLE;
    const model_state_kind kind = full ? MODEL_STATE_FULL : MODEL_STATE_CHECKPOINT;
    if (m->ops->state_load(m, slot(b), kind, from->k, from->state, from->n_state_bytes) != MODEL_OK) {
        return false;
    }
    adopt_tokens(b, prompt, from->k);
    b->checkpoint_at = from->k;
    return true;
}

/* If any part of the plan fails, the branch is emptied. After half of a plan, the branch's tokens might differ from
 * those of its state, and no error would show that. */
bool branch_apply(branch *b, const resume_plan *plan, const int32_t *prompt, const branch *donor, checkpoint *from)
{
    if (is_torn(b)) {
        clear(b);
        set_state(b, LLM_STATE_EMPTY);
    }
    bool good = true;
    if (plan->n_keep == 0) {
        clear(b);
    } else {
        good = donor == NULL || copy_donor(b, donor);
        good = good && (from == NULL || restore(b, from, prompt));
        good = good && branch_truncate(b, plan->n_keep);
    }
    if (!good) {
        clear(b);
        set_state(b, LLM_STATE_EMPTY);
    }
    if (from != NULL && good) {
        checkpoint_use(b->shared->checkpoints, from, b->entry, b->id);
    }
    assert_invariant(b);
    return good;
}

void branch_begin(branch *b, const resume_plan *plan, uint32_t n_prompt)
{
    b->was_parked = false;
    b->n_kept = 0;
    b->record.reason = plan->reason;
    b->record.diverged_at = plan->diverged_at;
    b->record.n_requests++;
    b->record.n_last_prompt = n_prompt;
    b->record.n_last_reused = plan->n_keep;
    b->record.n_reused_total += plan->n_keep;
    set_state(b, LLM_STATE_PREFILL);
}

void branch_consumed(branch *b, const int32_t *tokens, uint32_t n)
{
    session_table_append(session_table_of(b), b->entry, tokens, n);
    if (b->record.state == LLM_STATE_PREFILL) {
        b->record.n_prefilled_total += n;
        branch_publish(b); /* readers of the session table follow the progress of a long prompt */
    }
    assert_invariant(b);
}

void branch_decoding(branch *b)
{
    assert(b->record.state == LLM_STATE_PREFILL);
    set_state(b, LLM_STATE_DECODE);
}

void branch_ended(branch *b, uint32_t n_visible)
{
    const uint32_t n_tokens = branch_n_tokens(b);
    b->record.n_visible = n_visible < n_tokens ? n_visible : n_tokens;
    if (is_torn(b)) {
        return;
    }
    if (!branch_has_slot(b)) {
        set_state(b, LLM_STATE_PARKED);
    } else {
        set_state(b, n_tokens > 0 ? LLM_STATE_IDLE : LLM_STATE_EMPTY);
    }
}

void branch_invalidate(branch *b)
{
    set_state(b, LLM_STATE_TORN);
}

/* ---- checkpoints ---- */

void branch_keep_logits(branch *b, const float *logits)
{
    if (b->logits == NULL) {
        b->logits = ledger_bytes_new(logits_bytes(b));
    }
    if (b->logits != NULL) {
        memcpy(b->logits, logits, logits_bytes(b));
        b->logits_at = branch_n_tokens(b);
    }
}

static checkpoint *save_checkpoint(branch *b, const float *logits, bool whole)
{
    model *m = model_of(b);
    const uint32_t n_vocab = m->info.n_vocab;
    const model_state_kind kind =
        whole && m->info.checkpoint != MODEL_CHECKPOINT_WHOLE ? MODEL_STATE_FULL : MODEL_STATE_CHECKPOINT;
    const size_t n_bytes = m->ops->state_bytes(m, slot(b), kind);
    checkpoint_store *store = b->shared->checkpoints;
    if (n_bytes == 0 || (kind == MODEL_STATE_FULL && n_bytes > store->n_bytes_max / WHOLE_SHARE_MAX)) {
        return NULL;
    }
    checkpoint *c = checkpoint_add(store, b->owner, branch_tokens(b), branch_n_tokens(b), n_bytes,
                                   logits != NULL ? n_vocab : 0, whole || m->info.checkpoint == MODEL_CHECKPOINT_WHOLE);
    if (c == NULL) {
        return NULL;
    }
    if (m->ops->state_save(m, slot(b), kind, c->state, n_bytes) != n_bytes) {
        checkpoint_remove(store, c);
        return NULL;
    }
    if (logits != NULL) {
        memcpy(c->logits, logits, n_vocab * sizeof *logits);
    }
    return c;
}

/* Replaces `lesser`, a checkpoint of the same tokens that has no logits or is not whole, by a more complete checkpoint.
 * Returns the checkpoint that is in the store afterwards. If saving fails, this is `lesser`. */
static checkpoint *save_more(branch *b, const float *logits, bool whole, checkpoint *lesser)
{
    checkpoint_store *store = b->shared->checkpoints;
    checkpoint_detach(store, lesser);
    const float *known = lesser->n_logits == model_of(b)->info.n_vocab ? lesser->logits : NULL;
    checkpoint *c = save_checkpoint(b, logits != NULL ? logits : known, whole || lesser->is_whole);
    if (c == NULL && !lesser->is_whole && logits != NULL && known == NULL) {
        c = save_checkpoint(b, logits, false);
    }
    return checkpoint_replace(store, lesser, c);
}

bool branch_takes_checkpoints(const branch *b)
{
    return model_of(b)->info.checkpoint != MODEL_CHECKPOINT_NONE;
}

void branch_checkpoint(branch *b, const float *logits, bool prefix)
{
    /* the checkpoint of a shared prefix must be usable after all branches that hold the KV cache of the prefix are
     * gone */
    const bool whole = prefix;
    if (!whole && !branch_takes_checkpoints(b)) {
        return;
    }
    checkpoint_store *store = b->shared->checkpoints;
    checkpoint *c = checkpoint_find(store, b->owner, branch_tokens(b), branch_n_tokens(b));
    /* set even if saving fails. Otherwise the next checkpoint would be due immediately */
    b->checkpoint_at = branch_n_tokens(b);
    if (c != NULL && c->n_pins == 0 && ((whole && !c->is_whole) || (logits != NULL && c->logits == NULL))) {
        c = save_more(b, logits, whole, c);
    } else if (c == NULL) {
        c = save_checkpoint(b, logits, whole);
    }
    if (c == NULL && whole && model_of(b)->info.checkpoint != MODEL_CHECKPOINT_NONE) {
        c = save_checkpoint(b, logits, false);
    }
    if (c == NULL) {
        return;
    }
    checkpoint_use(store, c, b->entry, b->id);
    if (prefix && b->prefix != c) {
        unpin(b);
        b->prefix = checkpoint_pin(store, c) ? c : NULL;
    }
}

/* ---- slots ---- */

/* Saves the state of a branch that has a slot and is not empty. Returns NULL if memory is short. */
static blob *save_state(const branch *b, ledger_use use)
{
    model *m = model_of(b);
    const size_t n_bytes = m->ops->state_bytes(m, slot(b), MODEL_STATE_FULL);
    const uint64_t begin_us = clock_us();
    blob *state = n_bytes > 0 ? ledger_new(b->shared->ledger, use, n_bytes) : NULL;
    if (state != NULL && m->ops->state_save(m, slot(b), MODEL_STATE_FULL, state->bytes, n_bytes) != n_bytes) {
        ledger_drop(b->shared->ledger, use, state);
        state = NULL;
    }
    if (state != NULL) {
        copy_cost_learn(b->shared->pace, n_bytes, (double)(clock_us() - begin_us));
    }
    return state;
}

blob *branch_hold_state(const branch *b, ledger_use use, uint32_t *k)
{
    *k = branch_has_slot(b) ? branch_n_tokens(b) : b->parked.k;
    if (branch_has_slot(b)) {
        return is_torn(b) || *k == 0 ? NULL : save_state(b, use);
    }
    if (b->parked.state != NULL) {
        ledger_hold(b->shared->ledger, use, b->parked.state);
    }
    return b->parked.state;
}

size_t branch_state_bytes(const branch *b, uint32_t n_tokens)
{
    return (size_t)model_of(b)->ops->sequence_bytes(model_of(b), n_tokens);
}

static void copy_record(const branch *from, branch *to)
{
    session_table_append(session_table_of(to), to->entry, branch_tokens(from), branch_n_tokens(from));
    to->checkpoint_at = from->checkpoint_at;
    to->record.reason = from->record.reason;
    to->record.diverged_at = from->record.diverged_at;
    to->record.n_visible = from->record.n_visible;
    to->record.n_last_prompt = from->record.n_last_prompt;
    to->record.n_last_reused = from->record.n_last_reused;
    to->record.used_ms = from->record.used_ms;
}

bool branch_copy_of(const branch *from, int32_t free_slot, branch_copy *out)
{
    assert(branch_has_slot(from) && !is_torn(from));
    model *m = model_of(from);
    *out = (branch_copy){.slot = free_slot};
    if (free_slot != BRANCH_NO_SLOT) {
        assert(m->info.shares_cells);
        return m->ops->copy(m, slot(from), (uint16_t)free_slot);
    }
    out->state = save_state(from, LEDGER_PARKED);
    return out->state != NULL;
}

void branch_become_copy(branch *to, const branch *from, const branch_copy *copy)
{
    assert(!branch_has_slot(to) && branch_n_tokens(to) == 0);
    to->slot = copy->slot;
    if (copy->state != NULL) {
        branch_hold_parked(to, copy->state, branch_n_tokens(from));
    }
    copy_record(from, to);
    set_state_unused(to, branch_has_slot(to) ? LLM_STATE_IDLE : LLM_STATE_PARKED);
}

bool branch_park(branch *b)
{
    model *m = model_of(b);
    if (is_torn(b) || branch_n_tokens(b) == 0) {
        m->ops->clear(m, slot(b));
        branch_forget_parked(b);
        branch_forget_logits(b);
    } else {
        blob *state = save_state(b, LEDGER_PARKED);
        if (state == NULL) {
            return false;
        }
        branch_forget_parked(b);
        branch_hold_parked(b, state, branch_n_tokens(b));
        m->ops->clear(m, slot(b));
    }
    b->slot = BRANCH_NO_SLOT;
    ledger_reserve(b->shared->ledger, LEDGER_PARKED, kept_logits_bytes(b));
    if (b->running == NULL) {
        set_state_unused(b, LLM_STATE_PARKED);
    }
    return true;
}

model_result branch_take_slot(branch *b, uint16_t free_slot)
{
    assert(!branch_has_slot(b));
    const uint32_t n_tokens = branch_n_tokens(b);
    bool is_loaded = false;
    if (b->parked.state != NULL && n_tokens > 0) {
        const model_result result = load_parked(b, free_slot, &b->parked);
        if (result == MODEL_NO_CELLS) {
            return result;
        }
        is_loaded = result == MODEL_OK;
    }
    b->slot = free_slot;
    ledger_release(b->shared->ledger, LEDGER_PARKED, kept_logits_bytes(b));
    b->was_parked = is_loaded && b->running == NULL;
    if (is_loaded && b->parked.k < n_tokens) {
        truncate_tokens(b, b->parked.k);
    }
    const bool is_lost = n_tokens > 0 && !is_loaded; /* only the tokens are left */
    branch_forget_parked(b);
    if (is_lost) {
        set_state(b, LLM_STATE_TORN);
    } else if (b->running == NULL) {
        set_state_unused(b, branch_n_tokens(b) > 0 ? LLM_STATE_IDLE : LLM_STATE_EMPTY);
    }
    assert_invariant(b);
    return is_lost ? MODEL_INVALID : MODEL_OK;
}
