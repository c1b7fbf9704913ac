#include "sessions/places.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "policy/branch_choice.h"
#include "policy/checkpoint_points.h"
#include "states/durable.h"

int places_open(places *p, const branch_shared *shared, const places_options *options, store *disk)
{
    const uint32_t n_slots = options->n_named + options->n_scratch;
    *p =
        (places){.shared = *shared, .options = *options, .store = disk, .n_places = n_slots + options->n_parked_places};
    p->shared.pace = &p->pace;
    p->shared.totals = &p->totals;
    p->pace.token_us_first = copy_cost_token_us_first(shared->model->info.n_params, shared->model->info.is_on_gpu);
    p->slots.stall_budget_us = HUGE_VAL;
    atomic_init(&p->n_owners, options->n_owners);
    p->branches = calloc(p->n_places, sizeof *p->branches);
    p->slots.holders = calloc(n_slots, sizeof(branch *));
    p->holdings = calloc(p->n_places, sizeof *p->holdings);
    if (p->branches == NULL || p->slots.holders == NULL || p->holdings == NULL) {
        places_close(p);
        return LLM_NO_MEMORY;
    }
    for (uint32_t place = 0; place < p->n_places; place++) {
        branch_init(&p->branches[place], &p->shared, place);
    }
    return LLM_OK;
}

void places_close(places *p)
{
    for (uint32_t i = 0; p->branches != NULL && i < p->n_places; i++) {
        branch *b = &p->branches[i];
        if (b->is_open) {
            b->running = b->waiting = NULL;
            b->is_held = false;
            branch_close(b);
        }
    }
    free(p->branches);
    free(p->slots.holders);
    free(p->holdings);
    p->holdings = NULL;
    places_free_loose(p);
    p->branches = NULL;
    p->slots.holders = NULL;
}

uint64_t places_new_number(places *p)
{
    return ++p->slots.clock;
}

void places_used(places *p, branch *b)
{
    b->used = places_new_number(p);
}

void places_allow_copies(places *p, double stall_budget_us)
{
    p->slots.stall_budget_us = stall_budget_us;
}

void places_tell_forgotten(places *p, void (*forgotten)(void *context, uint32_t owner, const char *name), void *context)
{
    p->slots.forgotten = forgotten;
    p->slots.forgotten_context = context;
}

/* ---- finding ---- */

branch *places_next(places *p, session_name name, const branch *after)
{
    for (uint32_t i = after != NULL ? after->place + 1 : 0; i < p->n_places; i++) {
        branch *b = &p->branches[i];
        if (b->is_open && branch_is_named(b) && session_name_equal(branch_session_name(b), name)) {
            return b;
        }
    }
    return NULL;
}

bool places_knows(places *p, session_name name)
{
    return places_next(p, name, NULL) != NULL || places_is_waiting(p, name);
}

static branch *closed_place(places *p)
{
    for (uint32_t i = 0; i < p->n_places; i++) {
        if (!p->branches[i].is_open) {
            return &p->branches[i];
        }
    }
    return NULL;
}

/* What runs short, and who may be given up for it. */
typedef struct shortage {
    const branch *asker; /* NULL: a branch not yet opened */
    uint32_t owner;      /* the asker's */
    uint32_t limit;      /* of what all hold together */
    bool named;          /* whose kind */
    bool has_slot;       /* slots or their cells are short, not places */
    bool in_tokens;      /* cells are */
    bool pinned;         /* pinned ones may go, too */
    bool is_lost;        /* who goes is forgotten, not parked */
} shortage;

static const uint64_t LAST = (uint64_t)1 << 63;

uint64_t places_order(const branch *b)
{
    const uint64_t later = (uint64_t)1 << 62;
    return b->used | (b->n_left > 0 ? 0 : later);
}

static share_holding holding_of(const places *p, const branch *b, const shortage *of)
{
    if (!b->is_open || branch_is_named(b) != of->named || (of->has_slot && !branch_has_slot(b))) {
        return (share_holding){.amount = 0};
    }
    /* Branches that were left, then the oldest first; for a place, those whose going leaves everything else as it is before any
     * other. */
    const bool is_last_resort =
        b->n_left == 0 && branch_has_slot(b) == (branch_is_named(b) && p->options.policy == LLM_POLICY_PARK);
    const uint32_t amount = of->in_tokens ? branch_n_tokens(b) : 1;
    return (share_holding){
        .owner = b->owner,
        .amount = amount,
        .may_go = amount > 0 && branch_is_idle(b) && b != of->asker && (of->pinned || !b->record.is_pinned),
        .order = places_order(b) | (is_last_resort ? LAST : 0),
    };
}

/* The idle branch that makes way, or NULL. */
static branch *victim(places *p, const shortage *of)
{
    for (uint32_t i = 0; i < p->n_places; i++) {
        p->holdings[i] = holding_of(p, &p->branches[i], of);
    }
    const share_claim claim = {
        .asker = of->owner, .limit = of->limit, .n_owners = atomic_load(&p->n_owners), .is_lost = of->is_lost};
    const uint32_t place = share_victim(p->holdings, p->n_places, &claim);
    return place < p->n_places ? &p->branches[place] : NULL;
}

uint32_t places_names_max(const places *p)
{
    return p->options.n_named + p->options.n_parked_max;
}

/* The named branch that the policy gives up for a new one of this owner, or NULL. */
static branch *dispensable(places *p, uint32_t owner)
{
    if (p->options.policy == LLM_POLICY_REFUSE) {
        return NULL;
    }
    return victim(p, &(shortage){.owner = owner, .limit = places_names_max(p), .named = true, .is_lost = true});
}

share_claim places_bytes_claim(const places *p, size_t n_bytes_max)
{
    return (share_claim){.limit = share_units(n_bytes_max), .n_owners = atomic_load(&p->n_owners)};
}

branch *places_parked_victim(places *p)
{
    for (uint32_t i = 0; i < p->n_places; i++) {
        const branch *b = &p->branches[i];
        const bool counts = b->is_open && b->parked.where == PARKED_IN_MEMORY;
        p->holdings[i] = (share_holding){
            .owner = b->owner,
            .amount = counts ? share_units(b->parked.n_bytes) : 0,
            .may_go = counts && branch_is_idle(b),
            .order = places_order(b),
        };
    }
    const share_claim claim = places_bytes_claim(p, p->options.parked_bytes_max);
    const uint32_t place = share_victim(p->holdings, p->n_places, &claim);
    return place < p->n_places ? &p->branches[place] : NULL;
}

/* ---- opening ---- */

static branch *open_place(places *p, session_name name, uint64_t id)
{
    branch *b = closed_place(p);
    assert(b != NULL);
    branch_open(b, name, id);
    places_used(p, b);
    return b;
}

/* Where the policy takes nothing from anybody, room is left for the others before it is gone. n_less: of the owner's, those
 * that go before. */
static bool is_within_share(const places *p, uint32_t owner, uint32_t n_less)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_places; i++) {
        n += p->branches[i].is_open && branch_is_named(&p->branches[i]) && p->branches[i].owner == owner;
    }
    return p->options.policy != LLM_POLICY_REFUSE ||
           n - n_less < share_of(places_names_max(p), atomic_load(&p->n_owners));
}

static branch *open_new(places *p, session_name name)
{
    branch *b = open_place(p, name, durable_new_id());
    places_pin_with_others(p, b);
    return b;
}

int places_open_named(places *p, session_name name, branch **out)
{
    if (!is_within_share(p, name.owner, 0)) {
        return LLM_CAPACITY;
    }
    if (p->totals.n_named >= places_names_max(p)) {
        branch *b = dispensable(p, name.owner);
        if (b == NULL) {
            return LLM_CAPACITY;
        }
        places_forget(p, b);
    }
    *out = open_new(p, name);
    page_count(p->shared.page, LLM_COUNTER_SESSIONS_OPENED, 1);
    return LLM_OK;
}

branch *places_open_known(places *p, uint32_t owner, const char *name, uint64_t id)
{
    branch *b = open_place(p, session_name_from(owner, name), id);
    page_count(p->shared.page, LLM_COUNTER_SESSIONS_OPENED, 1);
    return b;
}

bool places_may_open_kept(places *p, uint32_t owner, branch **replaced)
{
    *replaced = p->totals.n_named >= places_names_max(p) ? dispensable(p, owner) : NULL;
    return p->totals.n_named < places_names_max(p) || (*replaced != NULL && (*replaced)->n_left > 0);
}

branch *places_open_kept(places *p, const branch *b)
{
    return open_new(p, branch_session_name(b));
}

branch *places_replace(places *p, branch *old, const branch *like)
{
    const uint32_t owner = like->owner;
    char name[LLM_SESSION_NAME_BYTES_MAX + 1];
    memcpy(name, like->name, sizeof name);
    places_forget(p, old);
    return open_new(p, session_name_from(owner, name));
}

/* For a further branch of a session that has some. Under park it is opened as any branch is: the least recently used one
 * makes way for it, which may be another branch's. Otherwise only where it costs nobody a place. */
static bool has_room_for_another(const places *p, uint32_t owner)
{
    return p->options.policy == LLM_POLICY_PARK ||
           (p->totals.n_named < p->options.n_named && is_within_share(p, owner, 0));
}

uint32_t places_n_history(const branch *b)
{
    const uint32_t n = branch_n_tokens(b);
    const uint32_t n_prompt = b->record.n_last_prompt;
    return n_prompt > 0 && n_prompt < n ? n_prompt : n;
}

static uint32_t n_common_of(const branch *b, const branch_prompt *prompt)
{
    const branch_claim *c = b->running != NULL ? b->running : b->waiting;
    const bool grows = c != NULL && c->prompt.n_tokens > branch_n_tokens(b); /* it will hold at least this */
    return grows ? resume_common_prefix(c->prompt.tokens, c->prompt.n_tokens, prompt->tokens, prompt->n_tokens)
                 : resume_common_prefix(branch_tokens(b), branch_n_tokens(b), prompt->tokens, prompt->n_tokens);
}

branch_candidate places_candidate_of(const branch *b, const branch_prompt *prompt)
{
    const branch_claim *c = b->running != NULL ? b->running : b->waiting;
    return (branch_candidate){
        .n_history = c != NULL ? c->prompt.n_tokens : places_n_history(b),
        .n_lost = b->n_left > 0 ? b->n_left : branch_n_tokens(b),
        .n_common = prompt != NULL ? n_common_of(b, prompt) : 0,
        .n_head = prompt != NULL ? prompt->n_head : 0,
        .is_far = b->parked.where == PARKED_ON_DISK || b->parked.where == PARKED_READING,
        .is_busy = !branch_is_idle(b),
        .is_anchored = b->record.is_pinned == LLM_PIN_ANCHORED,
        .used = b->used,
    };
}

int places_admit(places *p, session_name name, const branch_prompt *prompt, branch **out)
{
    branch_candidate candidates[BRANCHES_COMPARED_MAX];
    branch *branches[BRANCHES_COMPARED_MAX];
    branch *b = NULL;
    uint32_t n = 0;
    while (n < BRANCHES_COMPARED_MAX && (b = places_next(p, name, b)) != NULL) {
        candidates[n] = places_candidate_of(b, prompt);
        branches[n++] = b;
    }
    const branch_choice choice =
        branch_choose(candidates, n, p->options.branches_max, has_room_for_another(p, name.owner));
    if (choice.verb == BRANCH_CONTINUE) {
        *out = branches[choice.index];
        return LLM_OK;
    }
    const bool leaves_place = choice.verb == BRANCH_REPLACE;
    if (!places_may_be_busy(p, name.owner) || !is_within_share(p, name.owner, leaves_place)) {
        return LLM_CAPACITY; /* before anything gives way to it */
    }
    if (leaves_place) {
        *out = places_replace(p, branches[choice.index], branches[choice.index]);
        page_count(p->shared.page, LLM_COUNTER_SESSIONS_OPENED, 1);
        return LLM_OK;
    }
    return places_open_named(p, name, out);
}

/* The idle scratch branch that this prompt continues. */
static branch *continued_scratch(places *p, uint32_t owner, const branch_prompt *prompt)
{
    branch *best = NULL;
    uint32_t best_common = 0;
    for (uint32_t i = 0; i < p->n_places; i++) {
        branch *b = &p->branches[i];
        if (!branch_is_idle(b) || branch_is_named(b) || b->owner != owner) {
            continue;
        }
        const branch_candidate t = places_candidate_of(b, prompt);
        if (branch_is_continued(&t) && t.n_common > best_common) {
            best = b;
            best_common = t.n_common;
        }
    }
    return best;
}

/* What they share need not be copied, and where they part is seen. Where the head is not known, a few tokens say nothing. */
static bool shares_more_than_head(const branch *b, uint32_t owner, const branch_prompt *prompt)
{
    const uint32_t n_head = prompt->n_head > CHECKPOINT_HEAD_TOKENS_MIN ? prompt->n_head : CHECKPOINT_HEAD_TOKENS_MIN;
    return b->owner == owner && b->record.state != LLM_STATE_TORN && places_candidate_of(b, prompt).n_common > n_head;
}

/* Such as one that was opened for a prompt that still waits. */
static branch *empty_scratch(places *p, uint32_t owner)
{
    for (uint32_t i = 0; i < p->n_places; i++) {
        branch *b = &p->branches[i];
        if (branch_is_idle(b) && !branch_is_named(b) && b->owner == owner && branch_n_tokens(b) == 0) {
            return b;
        }
    }
    return NULL;
}

branch *places_scratch(places *p, uint32_t owner, const branch_prompt *prompt)
{
    branch *b = continued_scratch(p, owner, prompt);
    if (b == NULL) {
        b = empty_scratch(p, owner);
    }
    if (b == NULL && p->totals.n_open - p->totals.n_named == p->options.n_scratch) {
        b = victim(p, &(shortage){.owner = owner, .limit = p->options.n_scratch});
        if (b == NULL) {
            return NULL;
        }
        if (!shares_more_than_head(b, owner, prompt)) {
            places_close_session(p, b); /* nothing of one owner may even be timed by another */
            b = NULL;
        }
    }
    return b != NULL ? b : open_place(p, session_name_from(owner, ""), durable_new_id());
}

bool places_has_scratch(const places *p)
{
    uint32_t n_busy = 0;
    for (uint32_t i = 0; i < p->n_places; i++) {
        const branch *b = &p->branches[i];
        n_busy += b->is_open && !branch_is_named(b) && !branch_is_idle(b);
    }
    return n_busy < p->options.n_scratch;
}

bool places_may_be_busy(const places *p, uint32_t owner)
{
    uint32_t n_busy = 0;
    for (uint32_t i = 0; i < p->n_places; i++) {
        const branch *b = &p->branches[i];
        n_busy += b->is_open && branch_is_named(b) && b->owner == owner && !branch_is_idle(b);
    }
    return n_busy < share_of(places_names_max(p), atomic_load(&p->n_owners));
}

/* ---- closing ---- */

void places_close_session(places *p, branch *b)
{
    if (branch_has_slot(b)) {
        p->slots.holders[b->slot] = NULL;
    }
    places_remove_file(p, b);
    branch_close(b);
}

void places_reset_session(places *p, branch *b)
{
    branch_reset(b);
    places_reset_file(p, b);
}

void places_report_forgotten(places *p, uint32_t owner, const char *name, llm_counter counter)
{
    page_count(p->shared.page, counter, 1);
    if (p->slots.forgotten != NULL && !places_knows(p, session_name_from(owner, name))) {
        p->slots.forgotten(p->slots.forgotten_context, owner, name);
    }
}

static void give_up(places *p, branch *b, llm_counter counter)
{
    assert(branch_is_idle(b));
    const uint32_t owner = b->owner;
    char name[LLM_SESSION_NAME_BYTES_MAX + 1];
    memcpy(name, b->name, sizeof name);
    places_close_session(p, b);
    if (name[0] != '\0') {
        places_report_forgotten(p, owner, name, counter);
    }
}

void places_forget(places *p, branch *b)
{
    give_up(p, b, LLM_COUNTER_SESSIONS_EVICTED);
}

uint64_t places_expire(places *p, uint64_t before_ms)
{
    enum { EXPIRED_MAX = 64 };
    uint32_t n_expired = 0;
    uint64_t oldest = places_expire_loose(p, before_ms);
    for (uint32_t i = 0; i < p->n_places; i++) {
        branch *b = &p->branches[i];
        if (!branch_is_idle(b) || b->record.is_pinned) {
            continue;
        }
        if (b->record.used_ms < before_ms && n_expired < EXPIRED_MAX) {
            give_up(p, b, LLM_COUNTER_SESSIONS_EXPIRED);
            n_expired++;
        } else if (oldest == 0 || b->record.used_ms < oldest) {
            oldest = b->record.used_ms;
        }
    }
    return oldest;
}

/* ---- slots ---- */

bool places_park(places *p, branch *b)
{
    const int32_t slot = b->slot;
    if (!branch_park(b)) {
        return false;
    }
    p->slots.holders[slot] = NULL;
    page_count(p->shared.page, LLM_COUNTER_SESSIONS_PARKED_TOTAL, 1);
    places_spill(p);
    return true;
}

/* An idle branch gives its slot up, if the policy has a way. For one that can wait no state is dropped because the store is
 * busy. */
static bool vacate(places *p, branch *b, bool can_wait)
{
    if (!branch_is_named(b)) {
        places_close_session(p, b);
        return true;
    }
    if (p->options.policy == LLM_POLICY_PARK) {
        return !(can_wait && places_spill_waits(p)) && places_park(p, b);
    }
    if (p->options.policy == LLM_POLICY_EVICT) {
        places_forget(p, b);
        return true;
    }
    return false;
}

static bool free_cells(places *p, const branch *b, bool can_wait)
{
    const bool parks = p->options.policy == LLM_POLICY_PARK;
    shortage of = {
        .asker = b, .owner = b->owner, .limit = p->shared.model->info.n_cells, .has_slot = true, .in_tokens = true};
    branch *idle = victim(p, &of); /* scratch branches first: nobody counts on them */
    if (idle == NULL) {
        of.named = true;
        of.pinned = parks;
        of.is_lost = !parks;
        idle = victim(p, &of);
    }
    return idle != NULL && vacate(p, idle, can_wait);
}

bool places_free_cells(places *p, const branch *b)
{
    return free_cells(p, b, false);
}

static bool find_slot(places *p, const branch *b, uint16_t *out)
{
    const bool parks = p->options.policy == LLM_POLICY_PARK;
    const uint32_t from = branch_is_named(b) ? 0 : p->options.n_named;
    const uint32_t to = branch_is_named(b) ? p->options.n_named : p->options.n_named + p->options.n_scratch;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = from; i < to; i++) {
            if (p->slots.holders[i] == NULL) {
                *out = (uint16_t)i;
                return true;
            }
        }
        branch *idle = victim(p, &(shortage){
                                     .asker = b,
                                     .owner = b->owner,
                                     .limit = to - from,
                                     .named = branch_is_named(b),
                                     .has_slot = true,
                                     .pinned = parks,
                                     .is_lost = branch_is_named(b) && !parks,
                                 });
        if (idle == NULL || !vacate(p, idle, true)) {
            return false;
        }
    }
    return false;
}

slot_result places_take_slot(places *p, branch *b)
{
    if (branch_has_slot(b)) {
        return SLOT_READY;
    }
    if (b->parked.where == PARKED_ON_DISK) {
        const slot_result expected = places_may_take_slot(p, b);
        if (expected != SLOT_READY) {
            b->parked.wanted_until_us = 0;
            return expected;
        }
        if (!places_read_file(p, b) && !places_gives_up_reading(p, b)) {
            return places_is_in_progress(p, b, false) ? SLOT_LATER : SLOT_NEVER;
        }
    }
    if (b->parked.where == PARKED_READING && !places_gives_up_reading(p, b)) {
        return SLOT_LATER;
    }
    if (!places_may_fit(p, b)) {
        return places_is_in_progress(p, b, true) ? SLOT_LATER : SLOT_NO_CELLS;
    }
    uint16_t slot = 0;
    if (!find_slot(p, b, &slot)) {
        return places_is_in_progress(p, b, false) ? SLOT_LATER : SLOT_NEVER;
    }
    const bool had_state = b->parked.state != NULL;
    while (branch_take_slot(b, slot) == MODEL_NO_CELLS) {
        if (!free_cells(p, b, true)) {
            return places_is_in_progress(p, b, true) ? SLOT_LATER : SLOT_NO_CELLS;
        }
    }
    p->slots.holders[slot] = b;
    if (had_state) {
        page_count(p->shared.page, LLM_COUNTER_SESSIONS_UNPARKED_TOTAL, 1);
    }
    return SLOT_READY;
}
