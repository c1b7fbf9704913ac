#include "sessions/branch_table.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "policy/branch_choice.h"
#include "policy/checkpoint_points.h"
#include "states/durable.h"

int table_open(branch_table *table, const branch_shared *shared, const branch_table_options *options, store *disk)
{
    const uint32_t n_slots = options->n_named + options->n_scratch;
    *table = (branch_table){
        .shared = *shared, .options = *options, .store = disk, .n_entries = n_slots + options->n_parked_entries};
    table->shared.pace = &table->pace;
    table->shared.totals = &table->totals;
    table->pace.token_us_first = copy_cost_token_us_first(shared->model->info.n_params, shared->model->info.is_on_gpu);
    table->slots.stall_budget_us = HUGE_VAL;
    atomic_init(&table->n_owners, options->n_owners);
    table->branches = calloc(table->n_entries, sizeof *table->branches);
    table->slots.holders = calloc(n_slots, sizeof(branch *));
    table->holdings = calloc(table->n_entries, sizeof *table->holdings);
    if (table->branches == NULL || table->slots.holders == NULL || table->holdings == NULL) {
        table_close(table);
        return LLM_NO_MEMORY;
    }
    for (uint32_t entry = 0; entry < table->n_entries; entry++) {
        branch_init(&table->branches[entry], &table->shared, entry);
    }
    return LLM_OK;
}

void table_close(branch_table *table)
{
    for (uint32_t i = 0; table->branches != NULL && i < table->n_entries; i++) {
        branch *b = &table->branches[i];
        if (b->is_open) {
            b->running = b->waiting = NULL;
            b->is_held = false;
            branch_close(b);
        }
    }
    free(table->branches);
    free(table->slots.holders);
    free(table->holdings);
    table->holdings = NULL;
    table_free_loose(table);
    table->branches = NULL;
    table->slots.holders = NULL;
}

uint64_t table_new_number(branch_table *table)
{
    return ++table->slots.clock;
}

void table_used(branch_table *table, branch *b)
{
    b->used = table_new_number(table);
}

void table_allow_copies(branch_table *table, double stall_budget_us)
{
    table->slots.stall_budget_us = stall_budget_us;
}

void table_set_forgotten_listener(branch_table *table,
                                  void (*forgotten)(void *context, uint32_t owner, const char *name), void *context)
{
    table->slots.forgotten = forgotten;
    table->slots.forgotten_context = context;
}

/* ---- finding ---- */

branch *table_next(branch_table *table, session_name name, const branch *after)
{
    for (uint32_t i = after != NULL ? after->entry + 1 : 0; i < table->n_entries; i++) {
        branch *b = &table->branches[i];
        if (b->is_open && branch_is_named(b) && session_name_equal(branch_session_name(b), name)) {
            return b;
        }
    }
    return NULL;
}

bool table_knows(branch_table *table, session_name name)
{
    return table_next(table, name, NULL) != NULL || table_is_waiting(table, name);
}

static branch *closed_entry(branch_table *table)
{
    for (uint32_t i = 0; i < table->n_entries; i++) {
        if (!table->branches[i].is_open) {
            return &table->branches[i];
        }
    }
    return NULL;
}

/* A shortage of a resource: entries, slots or KV cells. Says which branches can be given up to free some of it. */
typedef struct shortage {
    const branch *asker; /* the branch that needs the resource, or NULL if not open yet */
    uint32_t owner;      /* owner of that branch */
    uint32_t limit;      /* total amount of the resource */
    bool named;          /* true if named branches count, false if scratch branches count */
    bool has_slot;       /* the resource is slots or cells, not entries */
    bool in_tokens;      /* the resource is cells */
    bool pinned;         /* pinned branches can be chosen */
    bool is_lost;        /* the chosen branch is forgotten, not parked */
} shortage;

static const uint64_t LAST = (uint64_t)1 << 63;

uint64_t table_order(const branch *b)
{
    const uint64_t later = (uint64_t)1 << 62;
    return b->used | (b->n_kept > 0 ? 0 : later);
}

static share_holding holding_of(const branch_table *table, const branch *b, const shortage *of)
{
    if (!b->is_open || branch_is_named(b) != of->named || (of->has_slot && !branch_has_slot(b))) {
        return (share_holding){.amount = 0};
    }
    /* Copies that llmd made before a truncation (n_kept > 0) are given up first. If an entry is needed, the other
     * branches form two groups. With policy park, named branches without a slot are given up before those with a slot.
     * The new branch can then still get a slot, by parking another branch. In all other cases, branches with a slot are
     * given up first. The new branch then takes over that slot. Within a group, the least recently used branch goes
     * first. */
    const bool is_last_resort =
        b->n_kept == 0 && branch_has_slot(b) == (branch_is_named(b) && table->options.policy == LLM_POLICY_PARK);
    const uint32_t amount = of->in_tokens ? branch_n_tokens(b) : 1;
    return (share_holding){
        .owner = b->owner,
        .amount = amount,
        .may_go = amount > 0 && branch_is_idle(b) && b != of->asker && (of->pinned || !b->record.is_pinned),
        .order = table_order(b) | (is_last_resort ? LAST : 0),
    };
}

/* Returns the idle branch that is given up, or NULL if there is none. */
static branch *victim(branch_table *table, const shortage *of)
{
    for (uint32_t i = 0; i < table->n_entries; i++) {
        table->holdings[i] = holding_of(table, &table->branches[i], of);
    }
    const share_claim claim = {
        .asker = of->owner, .limit = of->limit, .n_owners = atomic_load(&table->n_owners), .is_lost = of->is_lost};
    const uint32_t entry = share_victim(table->holdings, table->n_entries, &claim);
    return entry < table->n_entries ? &table->branches[entry] : NULL;
}

uint32_t table_names_max(const branch_table *table)
{
    return table->options.n_named + table->options.n_parked_max;
}

/* Returns the named branch that the policy gives up for a new branch of this owner, or NULL. */
static branch *dispensable(branch_table *table, uint32_t owner)
{
    if (table->options.policy == LLM_POLICY_REFUSE) {
        return NULL;
    }
    return victim(table, &(shortage){.owner = owner, .limit = table_names_max(table), .named = true, .is_lost = true});
}

share_claim table_bytes_claim(const branch_table *table, size_t n_bytes_max)
{
    return (share_claim){.limit = share_units(n_bytes_max), .n_owners = atomic_load(&table->n_owners)};
}

branch *table_parked_victim(branch_table *table)
{
    for (uint32_t i = 0; i < table->n_entries; i++) {
        const branch *b = &table->branches[i];
        const bool counts = b->is_open && b->parked.where == PARKED_IN_MEMORY;
        table->holdings[i] = (share_holding){
            .owner = b->owner,
            .amount = counts ? share_units(b->parked.n_bytes) : 0,
            .may_go = counts && branch_is_idle(b),
            .order = table_order(b),
        };
    }
    const share_claim claim = table_bytes_claim(table, table->options.parked_bytes_max);
    const uint32_t entry = share_victim(table->holdings, table->n_entries, &claim);
    return entry < table->n_entries ? &table->branches[entry] : NULL;
}

/* ---- opening ---- */

static branch *open_entry(branch_table *table, session_name name, uint64_t id)
{
    branch *b = closed_entry(table);
    assert(b != NULL);
    branch_open(b, name, id);
    table_used(table, b);
    return b;
}

/* Counts the open branches of one owner, or of all owners if `owner` is NULL. Counts the named branches if `named` is
 * true, else the scratch branches. With busy_only, idle branches do not count. */
static uint32_t count_open(const branch_table *table, bool named, const uint32_t *owner, bool busy_only)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < table->n_entries; i++) {
        const branch *b = &table->branches[i];
        n += b->is_open && branch_is_named(b) == named && (owner == NULL || b->owner == *owner) &&
             !(busy_only && branch_is_idle(b));
    }
    return n;
}

/* Whether the owner may open another branch if n_less of the owner's branches are closed first. Policy refuse never
 * takes an entry back, so an owner with more than its share would lock out the other owners. */
static bool is_within_share(const branch_table *table, uint32_t owner, uint32_t n_less)
{
    return table->options.policy != LLM_POLICY_REFUSE ||
           count_open(table, true, &owner, false) - n_less <
               share_of(table_names_max(table), atomic_load(&table->n_owners));
}

static branch *open_new(branch_table *table, session_name name)
{
    branch *b = open_entry(table, name, durable_new_id());
    table_pin_with_others(table, b);
    return b;
}

int table_open_named(branch_table *table, session_name name, branch **out)
{
    if (!is_within_share(table, name.owner, 0)) {
        return LLM_CAPACITY;
    }
    if (table->totals.n_named >= table_names_max(table)) {
        branch *b = dispensable(table, name.owner);
        if (b == NULL) {
            return LLM_CAPACITY;
        }
        table_forget(table, b);
    }
    *out = open_new(table, name);
    session_table_count(table->shared.session_table, LLM_COUNTER_SESSIONS_OPENED, 1);
    return LLM_OK;
}

branch *table_open_known(branch_table *table, uint32_t owner, const char *name, uint64_t id)
{
    branch *b = open_entry(table, session_name_from(owner, name), id);
    session_table_count(table->shared.session_table, LLM_COUNTER_SESSIONS_OPENED, 1);
    return b;
}

bool table_may_open_kept(branch_table *table, uint32_t owner, branch **replaced)
{
    *replaced = table->totals.n_named >= table_names_max(table) ? dispensable(table, owner) : NULL;
    return table->totals.n_named < table_names_max(table) || (*replaced != NULL && (*replaced)->n_kept > 0);
}

branch *table_open_kept(branch_table *table, const branch *b)
{
    return open_new(table, branch_session_name(b));
}

branch *table_replace(branch_table *table, branch *old, const branch *like)
{
    const uint32_t owner = like->owner;
    char name[LLM_SESSION_NAME_BYTES_MAX + 1];
    memcpy(name, like->name, sizeof name);
    table_forget(table, old);
    return open_new(table, session_name_from(owner, name));
}

/* Whether a session that has branches may open another branch. With policy park, it always may, because the least
 * recently used branch is given up for a new one. With the other policies, it may only if an entry is free. */
static bool has_room_for_another(const branch_table *table, uint32_t owner)
{
    return table->options.policy == LLM_POLICY_PARK ||
           (table->totals.n_named < table->options.n_named && is_within_share(table, owner, 0));
}

uint32_t table_n_history(const branch *b)
{
    const uint32_t n = branch_n_tokens(b);
    const uint32_t n_prompt = b->record.n_last_prompt;
    return n_prompt > 0 && n_prompt < n ? n_prompt : n;
}

static uint32_t n_common_of(const branch *b, const branch_prompt *prompt)
{
    const branch_claim *c = b->running != NULL ? b->running : b->waiting;
    /* after the request of this claim, the branch holds at least the request's prompt */
    const bool grows = c != NULL && c->prompt.n_tokens > branch_n_tokens(b);
    return grows ? resume_common_prefix(c->prompt.tokens, c->prompt.n_tokens, prompt->tokens, prompt->n_tokens)
                 : resume_common_prefix(branch_tokens(b), branch_n_tokens(b), prompt->tokens, prompt->n_tokens);
}

branch_candidate table_candidate_of(const branch *b, const branch_prompt *prompt)
{
    const branch_claim *c = b->running != NULL ? b->running : b->waiting;
    return (branch_candidate){
        .n_history = c != NULL ? c->prompt.n_tokens : table_n_history(b),
        .n_lost = b->n_kept > 0 ? b->n_kept : branch_n_tokens(b),
        .n_common = prompt != NULL ? n_common_of(b, prompt) : 0,
        .n_head = prompt != NULL ? prompt->n_head : 0,
        .is_on_disk = b->parked.where == PARKED_ON_DISK || b->parked.where == PARKED_READING,
        .is_busy = !branch_is_idle(b),
        .is_anchored = b->record.is_pinned == LLM_PIN_ANCHORED,
        .used = b->used,
    };
}

int table_admit(branch_table *table, session_name name, const branch_prompt *prompt, branch **out)
{
    branch_candidate candidates[BRANCHES_COMPARED_MAX];
    branch *branches[BRANCHES_COMPARED_MAX];
    branch *b = NULL;
    uint32_t n = 0;
    while (n < BRANCHES_COMPARED_MAX && (b = table_next(table, name, b)) != NULL) {
        candidates[n] = table_candidate_of(b, prompt);
        branches[n++] = b;
    }
    const branch_choice choice =
        branch_choose(candidates, n, table->options.branches_max, has_room_for_another(table, name.owner));
    if (choice.verb == BRANCH_CONTINUE) {
        *out = branches[choice.index];
        return LLM_OK;
    }
    const bool frees_entry = choice.verb == BRANCH_REPLACE;
    if (!table_may_be_busy(table, name.owner) || !is_within_share(table, name.owner, frees_entry)) {
        return LLM_CAPACITY; /* checked first, so that no branch is given up without need */
    }
    if (frees_entry) {
        *out = table_replace(table, branches[choice.index], branches[choice.index]);
        session_table_count(table->shared.session_table, LLM_COUNTER_SESSIONS_OPENED, 1);
        return LLM_OK;
    }
    return table_open_named(table, name, out);
}

/* Returns the idle scratch branch that this prompt continues, or NULL. */
static branch *continued_scratch(branch_table *table, uint32_t owner, const branch_prompt *prompt)
{
    branch *best = NULL;
    uint32_t best_common = 0;
    for (uint32_t i = 0; i < table->n_entries; i++) {
        branch *b = &table->branches[i];
        if (!branch_is_idle(b) || branch_is_named(b) || b->owner != owner) {
            continue;
        }
        const branch_candidate t = table_candidate_of(b, prompt);
        if (branch_is_continued(&t) && t.n_common > best_common) {
            best = b;
            best_common = t.n_common;
        }
    }
    return best;
}

/* Whether the common prefix of the branch and the prompt is longer than a head. The branch is then truncated and reused
 * instead of closed. If the length of the prompt's head is unknown, a common prefix of up to CHECKPOINT_HEAD_TOKENS_MIN
 * tokens could be only a head. */
static bool shares_more_than_head(const branch *b, uint32_t owner, const branch_prompt *prompt)
{
    const uint32_t n_head = prompt->n_head > CHECKPOINT_HEAD_TOKENS_MIN ? prompt->n_head : CHECKPOINT_HEAD_TOKENS_MIN;
    return b->owner == owner && b->record.state != LLM_STATE_TORN && table_candidate_of(b, prompt).n_common > n_head;
}

/* Returns an idle, empty scratch branch of the owner, or NULL. Such a branch was opened, for example, for a prompt that
 * could not begin yet. */
static branch *empty_scratch(branch_table *table, uint32_t owner)
{
    for (uint32_t i = 0; i < table->n_entries; i++) {
        branch *b = &table->branches[i];
        if (branch_is_idle(b) && !branch_is_named(b) && b->owner == owner && branch_n_tokens(b) == 0) {
            return b;
        }
    }
    return NULL;
}

branch *table_scratch(branch_table *table, uint32_t owner, const branch_prompt *prompt)
{
    branch *b = continued_scratch(table, owner, prompt);
    if (b == NULL) {
        b = empty_scratch(table, owner);
    }
    if (b == NULL && table->totals.n_open - table->totals.n_named == table->options.n_scratch) {
        b = victim(table, &(shortage){.owner = owner, .limit = table->options.n_scratch});
        if (b == NULL) {
            return NULL;
        }
        if (!shares_more_than_head(b, owner, prompt)) {
            /* closed and not reused. A cache hit can be measured, so a reused branch of another owner would reveal that
             * owner's tokens */
            table_close_branch(table, b);
            b = NULL;
        }
    }
    return b != NULL ? b : open_entry(table, session_name_from(owner, ""), durable_new_id());
}

bool table_has_scratch(const branch_table *table)
{
    return count_open(table, false, NULL, true) < table->options.n_scratch;
}

bool table_may_be_busy(const branch_table *table, uint32_t owner)
{
    return count_open(table, true, &owner, true) < share_of(table_names_max(table), atomic_load(&table->n_owners));
}

/* ---- closing ---- */

void table_close_branch(branch_table *table, branch *b)
{
    if (branch_has_slot(b)) {
        table->slots.holders[b->slot] = NULL;
    }
    table_remove_file(table, b);
    branch_close(b);
}

void table_reset_branch(branch_table *table, branch *b)
{
    branch_reset(b);
    table_reset_file(table, b);
}

void table_report_forgotten(branch_table *table, uint32_t owner, const char *name, llm_counter counter)
{
    session_table_count(table->shared.session_table, counter, 1);
    if (table->slots.forgotten != NULL && !table_knows(table, session_name_from(owner, name))) {
        table->slots.forgotten(table->slots.forgotten_context, owner, name);
    }
}

static void give_up(branch_table *table, branch *b, llm_counter counter)
{
    assert(branch_is_idle(b));
    const uint32_t owner = b->owner;
    char name[LLM_SESSION_NAME_BYTES_MAX + 1];
    memcpy(name, b->name, sizeof name);
    table_close_branch(table, b);
    if (name[0] != '\0') {
        table_report_forgotten(table, owner, name, counter);
    }
}

void table_forget(branch_table *table, branch *b)
{
    give_up(table, b, LLM_COUNTER_SESSIONS_EVICTED);
}

uint64_t table_expire(branch_table *table, uint64_t before_ms)
{
    enum { EXPIRED_MAX = 64 };
    uint32_t n_expired = 0;
    uint64_t oldest = table_expire_loose(table, before_ms);
    for (uint32_t i = 0; i < table->n_entries; i++) {
        branch *b = &table->branches[i];
        if (!branch_is_idle(b) || b->record.is_pinned) {
            continue;
        }
        if (b->record.used_ms < before_ms && n_expired < EXPIRED_MAX) {
            give_up(table, b, LLM_COUNTER_SESSIONS_EXPIRED);
            n_expired++;
        } else if (oldest == 0 || b->record.used_ms < oldest) {
            oldest = b->record.used_ms;
        }
    }
    return oldest;
}

/* ---- slots ---- */

bool table_park(branch_table *table, branch *b)
{
    const int32_t slot = b->slot;
    if (!branch_park(b)) {
        return false;
    }
    table->slots.holders[slot] = NULL;
    session_table_count(table->shared.session_table, LLM_COUNTER_SESSIONS_PARKED_TOTAL, 1);
    table_spill(table);
    return true;
}

/* Makes an idle branch give up its slot, if the policy allows that. With can_wait, the branch keeps its slot while the
 * state of another branch waits for the store. Parking one more branch would then drop a state, because only one state
 * can wait beyond the budget. */
static bool vacate(branch_table *table, branch *b, bool can_wait)
{
    if (!branch_is_named(b)) {
        table_close_branch(table, b);
        return true;
    }
    if (table->options.policy == LLM_POLICY_PARK) {
        return !(can_wait && table_spill_waits(table)) && table_park(table, b);
    }
    if (table->options.policy == LLM_POLICY_EVICT) {
        table_forget(table, b);
        return true;
    }
    return false;
}

static bool free_cells(branch_table *table, const branch *b, bool can_wait)
{
    const bool parks = table->options.policy == LLM_POLICY_PARK;
    shortage of = {
        .asker = b, .owner = b->owner, .limit = table->shared.model->info.n_cells, .has_slot = true, .in_tokens = true};
    branch *idle = victim(table, &of); /* scratch branches go first, because clients do not rely on these */
    if (idle == NULL) {
        of.named = true;
        of.pinned = parks;
        of.is_lost = !parks;
        idle = victim(table, &of);
    }
    return idle != NULL && vacate(table, idle, can_wait);
}

bool table_free_cells(branch_table *table, const branch *b)
{
    return free_cells(table, b, false);
}

static bool find_slot(branch_table *table, const branch *b, uint16_t *out)
{
    const bool parks = table->options.policy == LLM_POLICY_PARK;
    const uint32_t from = branch_is_named(b) ? 0 : table->options.n_named;
    const uint32_t to = branch_is_named(b) ? table->options.n_named : table->options.n_named + table->options.n_scratch;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = from; i < to; i++) {
            if (table->slots.holders[i] == NULL) {
                *out = (uint16_t)i;
                return true;
            }
        }
        branch *idle = victim(table, &(shortage){
                                         .asker = b,
                                         .owner = b->owner,
                                         .limit = to - from,
                                         .named = branch_is_named(b),
                                         .has_slot = true,
                                         .pinned = parks,
                                         .is_lost = branch_is_named(b) && !parks,
                                     });
        if (idle == NULL || !vacate(table, idle, true)) {
            return false;
        }
    }
    return false;
}

/* First reads the state from the disk, then finds a slot, then finds cells. A branch must not hold a slot while its
 * state is being read. And no idle branch must be forgotten for a state that would not fit into the cells anyway
 * (table_may_fit). */
slot_result table_take_slot(branch_table *table, branch *b)
{
    if (branch_has_slot(b)) {
        return SLOT_READY;
    }
    if (b->parked.where == PARKED_ON_DISK) {
        const slot_result expected = table_may_take_slot(table, b);
        if (expected != SLOT_READY) {
            b->parked.wait_until_us = 0;
            return expected;
        }
        if (!table_read_file(table, b) && !table_gives_up_reading(table, b)) {
            return table_is_in_progress(table, b, false) ? SLOT_LATER : SLOT_NEVER;
        }
    }
    if (b->parked.where == PARKED_READING && !table_gives_up_reading(table, b)) {
        return SLOT_LATER;
    }
    if (!table_may_fit(table, b)) {
        return table_is_in_progress(table, b, true) ? SLOT_LATER : SLOT_NO_CELLS;
    }
    uint16_t slot = 0;
    if (!find_slot(table, b, &slot)) {
        return table_is_in_progress(table, b, false) ? SLOT_LATER : SLOT_NEVER;
    }
    const bool had_state = b->parked.state != NULL;
    while (branch_take_slot(b, slot) == MODEL_NO_CELLS) {
        if (!free_cells(table, b, true)) {
            return table_is_in_progress(table, b, true) ? SLOT_LATER : SLOT_NO_CELLS;
        }
    }
    table->slots.holders[slot] = b;
    if (had_state) {
        session_table_count(table->shared.session_table, LLM_COUNTER_SESSIONS_UNPARKED_TOTAL, 1);
    }
    return SLOT_READY;
}
