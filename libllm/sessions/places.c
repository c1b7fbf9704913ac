#include "sessions/places.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "policy/branch_choice.h"
#include "policy/checkpoint_points.h"
#include "states/durable.h"

int places_open(places *p, const session_ground *ground, const places_options *options, store *disk)
{
    const uint32_t n_slots = options->n_named + options->n_scratch;
    *p =
        (places){.ground = *ground, .options = *options, .store = disk, .n_places = n_slots + options->n_parked_places};
    p->ground.pace = &p->pace;
    p->ground.totals = &p->totals;
    p->pace.token_us_first = copy_cost_token_us_first(ground->model->info.n_params, ground->model->info.is_on_gpu);
    p->slots.stall_budget_us = HUGE_VAL;
    atomic_init(&p->n_owners, options->n_owners);
    p->sessions = calloc(p->n_places, sizeof *p->sessions);
    p->slots.holders = calloc(n_slots, sizeof(session *));
    p->holdings = calloc(p->n_places, sizeof *p->holdings);
    if (p->sessions == NULL || p->slots.holders == NULL || p->holdings == NULL) {
        places_close(p);
        return LLM_NO_MEMORY;
    }
    for (uint32_t place = 0; place < p->n_places; place++) {
        session_init(&p->sessions[place], &p->ground, place);
    }
    return LLM_OK;
}

void places_close(places *p)
{
    for (uint32_t i = 0; p->sessions != NULL && i < p->n_places; i++) {
        session *s = &p->sessions[i];
        if (s->is_open) {
            s->running = s->waiting = NULL;
            s->is_held = false;
            session_close(s);
        }
    }
    free(p->sessions);
    free(p->slots.holders);
    free(p->holdings);
    p->holdings = NULL;
    places_free_loose(p);
    p->sessions = NULL;
    p->slots.holders = NULL;
}

uint64_t places_new_number(places *p)
{
    return ++p->slots.clock;
}

void places_used(places *p, session *s)
{
    s->used = places_new_number(p);
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

session *places_next(places *p, session_name name, const session *after)
{
    for (uint32_t i = after != NULL ? after->place + 1 : 0; i < p->n_places; i++) {
        session *s = &p->sessions[i];
        if (s->is_open && session_is_named(s) && session_name_equal(session_name_of(s), name)) {
            return s;
        }
    }
    return NULL;
}

bool places_knows(places *p, session_name name)
{
    return places_next(p, name, NULL) != NULL || places_is_waiting(p, name);
}

static session *closed_place(places *p)
{
    for (uint32_t i = 0; i < p->n_places; i++) {
        if (!p->sessions[i].is_open) {
            return &p->sessions[i];
        }
    }
    return NULL;
}

/* What runs short, and who may be given up for it. */
typedef struct shortage {
    const session *asker; /* NULL: a session not yet opened */
    uint32_t owner;       /* the asker's */
    uint32_t limit;       /* of what all hold together */
    bool named;           /* whose kind */
    bool has_slot;        /* slots or their cells are short, not places */
    bool in_tokens;       /* cells are */
    bool pinned;          /* pinned ones may go, too */
    bool is_lost;         /* who goes is forgotten, not parked */
} shortage;

static const uint64_t LAST = (uint64_t)1 << 63;

uint64_t places_order(const session *s)
{
    const uint64_t later = (uint64_t)1 << 62;
    return s->used | (s->n_left > 0 ? 0 : later);
}

static share_holding holding_of(const places *p, const session *s, const shortage *of)
{
    if (!s->is_open || session_is_named(s) != of->named || (of->has_slot && !session_has_slot(s))) {
        return (share_holding){.amount = 0};
    }
    /* Branches that were left, then the oldest first; for a place, those whose going leaves everything else as it is before any
     * other. */
    const bool is_last_resort =
        s->n_left == 0 && session_has_slot(s) == (session_is_named(s) && p->options.policy == LLM_POLICY_PARK);
    const uint32_t amount = of->in_tokens ? session_n_tokens(s) : 1;
    return (share_holding){
        .owner = s->owner,
        .amount = amount,
        .may_go = amount > 0 && session_is_idle(s) && s != of->asker && (of->pinned || !s->record.is_pinned),
        .order = places_order(s) | (is_last_resort ? LAST : 0),
    };
}

/* The idle session that makes way, or NULL. */
static session *victim(places *p, const shortage *of)
{
    for (uint32_t i = 0; i < p->n_places; i++) {
        p->holdings[i] = holding_of(p, &p->sessions[i], of);
    }
    const share_claim claim = {
        .asker = of->owner, .limit = of->limit, .n_owners = atomic_load(&p->n_owners), .is_lost = of->is_lost};
    const uint32_t place = share_victim(p->holdings, p->n_places, &claim);
    return place < p->n_places ? &p->sessions[place] : NULL;
}

uint32_t places_names_max(const places *p)
{
    return p->options.n_named + p->options.n_parked_max;
}

/* The named session that the policy gives up for a new one of this owner, or NULL. */
static session *dispensable(places *p, uint32_t owner)
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

session *places_parked_victim(places *p)
{
    for (uint32_t i = 0; i < p->n_places; i++) {
        const session *s = &p->sessions[i];
        const bool counts = s->is_open && s->parked.where == PARKED_IN_MEMORY;
        p->holdings[i] = (share_holding){
            .owner = s->owner,
            .amount = counts ? share_units(s->parked.n_bytes) : 0,
            .may_go = counts && session_is_idle(s),
            .order = places_order(s),
        };
    }
    const share_claim claim = places_bytes_claim(p, p->options.parked_bytes_max);
    const uint32_t place = share_victim(p->holdings, p->n_places, &claim);
    return place < p->n_places ? &p->sessions[place] : NULL;
}

/* ---- opening ---- */

static session *open_place(places *p, session_name name, uint64_t id)
{
    session *s = closed_place(p);
    assert(s != NULL);
    session_open(s, name, id);
    places_used(p, s);
    return s;
}

/* Where the policy takes nothing from anybody, room is left for the others before it is gone. n_less: of the owner's, those
 * that go before. */
static bool is_within_share(const places *p, uint32_t owner, uint32_t n_less)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_places; i++) {
        n += p->sessions[i].is_open && session_is_named(&p->sessions[i]) && p->sessions[i].owner == owner;
    }
    return p->options.policy != LLM_POLICY_REFUSE ||
           n - n_less < share_of(places_names_max(p), atomic_load(&p->n_owners));
}

static session *open_new(places *p, session_name name)
{
    session *s = open_place(p, name, durable_new_id());
    places_pin_with_others(p, s);
    return s;
}

int places_open_named(places *p, session_name name, session **out)
{
    if (!is_within_share(p, name.owner, 0)) {
        return LLM_CAPACITY;
    }
    if (p->totals.n_named >= places_names_max(p)) {
        session *s = dispensable(p, name.owner);
        if (s == NULL) {
            return LLM_CAPACITY;
        }
        places_forget(p, s);
    }
    *out = open_new(p, name);
    page_count(p->ground.page, LLM_COUNTER_SESSIONS_OPENED, 1);
    return LLM_OK;
}

session *places_open_known(places *p, uint32_t owner, const char *name, uint64_t id)
{
    session *s = open_place(p, session_name_from(owner, name), id);
    page_count(p->ground.page, LLM_COUNTER_SESSIONS_OPENED, 1);
    return s;
}

bool places_may_open_kept(places *p, uint32_t owner, session **replaced)
{
    *replaced = p->totals.n_named >= places_names_max(p) ? dispensable(p, owner) : NULL;
    return p->totals.n_named < places_names_max(p) || (*replaced != NULL && (*replaced)->n_left > 0);
}

session *places_open_kept(places *p, const session *s)
{
    return open_new(p, session_name_of(s));
}

session *places_replace(places *p, session *old, const session *like)
{
    const uint32_t owner = like->owner;
    char name[LLM_SESSION_NAME_BYTES_MAX + 1];
    memcpy(name, like->name, sizeof name);
    places_forget(p, old);
    return open_new(p, session_name_from(owner, name));
}

/* For a further branch of a session that has some. Under park it is opened as any session is: the least recently used one
 * makes way for it, which may be another session's. Otherwise only where it costs nobody a place. */
static bool has_room_for_another(const places *p, uint32_t owner)
{
    return p->options.policy == LLM_POLICY_PARK ||
           (p->totals.n_named < p->options.n_named && is_within_share(p, owner, 0));
}

uint32_t places_n_history(const session *s)
{
    const uint32_t n = session_n_tokens(s);
    const uint32_t n_prompt = s->record.n_last_prompt;
    return n_prompt > 0 && n_prompt < n ? n_prompt : n;
}

static uint32_t n_common_of(const session *s, const session_prompt *prompt)
{
    const session_claim *c = s->running != NULL ? s->running : s->waiting;
    const bool grows = c != NULL && c->prompt.n_tokens > session_n_tokens(s); /* it will hold at least this */
    return grows ? resume_common_prefix(c->prompt.tokens, c->prompt.n_tokens, prompt->tokens, prompt->n_tokens)
                 : resume_common_prefix(session_tokens(s), session_n_tokens(s), prompt->tokens, prompt->n_tokens);
}

branch_candidate places_candidate_of(const session *s, const session_prompt *prompt)
{
    const session_claim *c = s->running != NULL ? s->running : s->waiting;
    return (branch_candidate){
        .n_history = c != NULL ? c->prompt.n_tokens : places_n_history(s),
        .n_lost = s->n_left > 0 ? s->n_left : session_n_tokens(s),
        .n_common = prompt != NULL ? n_common_of(s, prompt) : 0,
        .n_head = prompt != NULL ? prompt->n_head : 0,
        .is_far = s->parked.where == PARKED_ON_DISK || s->parked.where == PARKED_READING,
        .is_busy = !session_is_idle(s),
        .is_anchored = s->record.is_pinned == LLM_PIN_ANCHORED,
        .used = s->used,
    };
}

int places_admit(places *p, session_name name, const session_prompt *prompt, session **out)
{
    branch_candidate candidates[BRANCHES_COMPARED_MAX];
    session *sessions[BRANCHES_COMPARED_MAX];
    session *s = NULL;
    uint32_t n = 0;
    while (n < BRANCHES_COMPARED_MAX && (s = places_next(p, name, s)) != NULL) {
        candidates[n] = places_candidate_of(s, prompt);
        sessions[n++] = s;
    }
    const branch_choice choice =
        branch_choose(candidates, n, p->options.branches_max, has_room_for_another(p, name.owner));
    if (choice.verb == BRANCH_CONTINUE) {
        *out = sessions[choice.index];
        return LLM_OK;
    }
    const bool leaves_place = choice.verb == BRANCH_REPLACE;
    if (!places_may_be_busy(p, name.owner) || !is_within_share(p, name.owner, leaves_place)) {
        return LLM_CAPACITY; /* before anything gives way to it */
    }
    if (leaves_place) {
        *out = places_replace(p, sessions[choice.index], sessions[choice.index]);
        page_count(p->ground.page, LLM_COUNTER_SESSIONS_OPENED, 1);
        return LLM_OK;
    }
    return places_open_named(p, name, out);
}

/* The idle scratch session that this prompt continues. */
static session *continued_scratch(places *p, uint32_t owner, const session_prompt *prompt)
{
    session *best = NULL;
    uint32_t best_common = 0;
    for (uint32_t i = 0; i < p->n_places; i++) {
        session *s = &p->sessions[i];
        if (!session_is_idle(s) || session_is_named(s) || s->owner != owner) {
            continue;
        }
        const branch_candidate t = places_candidate_of(s, prompt);
        if (branch_is_continued(&t) && t.n_common > best_common) {
            best = s;
            best_common = t.n_common;
        }
    }
    return best;
}

/* What they share need not be copied, and where they part is seen. Where the head is not known, a few tokens say nothing. */
static bool shares_more_than_head(const session *s, uint32_t owner, const session_prompt *prompt)
{
    const uint32_t n_head = prompt->n_head > CHECKPOINT_HEAD_TOKENS_MIN ? prompt->n_head : CHECKPOINT_HEAD_TOKENS_MIN;
    return s->owner == owner && s->record.state != LLM_STATE_TORN && places_candidate_of(s, prompt).n_common > n_head;
}

/* Such as one that was opened for a prompt that still waits. */
static session *empty_scratch(places *p, uint32_t owner)
{
    for (uint32_t i = 0; i < p->n_places; i++) {
        session *s = &p->sessions[i];
        if (session_is_idle(s) && !session_is_named(s) && s->owner == owner && session_n_tokens(s) == 0) {
            return s;
        }
    }
    return NULL;
}

session *places_scratch(places *p, uint32_t owner, const session_prompt *prompt)
{
    session *s = continued_scratch(p, owner, prompt);
    if (s == NULL) {
        s = empty_scratch(p, owner);
    }
    if (s == NULL && p->totals.n_open - p->totals.n_named == p->options.n_scratch) {
        s = victim(p, &(shortage){.owner = owner, .limit = p->options.n_scratch});
        if (s == NULL) {
            return NULL;
        }
        if (!shares_more_than_head(s, owner, prompt)) {
            places_close_session(p, s); /* nothing of one owner may even be timed by another */
            s = NULL;
        }
    }
    return s != NULL ? s : open_place(p, session_name_from(owner, ""), durable_new_id());
}

bool places_has_scratch(const places *p)
{
    uint32_t n_busy = 0;
    for (uint32_t i = 0; i < p->n_places; i++) {
        const session *s = &p->sessions[i];
        n_busy += s->is_open && !session_is_named(s) && !session_is_idle(s);
    }
    return n_busy < p->options.n_scratch;
}

bool places_may_be_busy(const places *p, uint32_t owner)
{
    uint32_t n_busy = 0;
    for (uint32_t i = 0; i < p->n_places; i++) {
        const session *s = &p->sessions[i];
        n_busy += s->is_open && session_is_named(s) && s->owner == owner && !session_is_idle(s);
    }
    return n_busy < share_of(places_names_max(p), atomic_load(&p->n_owners));
}

/* ---- closing ---- */

void places_close_session(places *p, session *s)
{
    if (session_has_slot(s)) {
        p->slots.holders[s->slot] = NULL;
    }
    places_remove_file(p, s);
    session_close(s);
}

void places_reset_session(places *p, session *s)
{
    session_reset(s);
    places_reset_file(p, s);
}

void places_report_forgotten(places *p, uint32_t owner, const char *name, llm_counter counter)
{
    page_count(p->ground.page, counter, 1);
    if (p->slots.forgotten != NULL && !places_knows(p, session_name_from(owner, name))) {
        p->slots.forgotten(p->slots.forgotten_context, owner, name);
    }
}

static void give_up(places *p, session *s, llm_counter counter)
{
    assert(session_is_idle(s));
    const uint32_t owner = s->owner;
    char name[LLM_SESSION_NAME_BYTES_MAX + 1];
    memcpy(name, s->name, sizeof name);
    places_close_session(p, s);
    if (name[0] != '\0') {
        places_report_forgotten(p, owner, name, counter);
    }
}

void places_forget(places *p, session *s)
{
    give_up(p, s, LLM_COUNTER_SESSIONS_EVICTED);
}

uint64_t places_expire(places *p, uint64_t before_ms)
{
    enum { EXPIRED_MAX = 64 };
    uint32_t n_expired = 0;
    uint64_t oldest = places_expire_loose(p, before_ms);
    for (uint32_t i = 0; i < p->n_places; i++) {
        session *s = &p->sessions[i];
        if (!session_is_idle(s) || s->record.is_pinned) {
            continue;
        }
        if (s->record.used_ms < before_ms && n_expired < EXPIRED_MAX) {
            give_up(p, s, LLM_COUNTER_SESSIONS_EXPIRED);
            n_expired++;
        } else if (oldest == 0 || s->record.used_ms < oldest) {
            oldest = s->record.used_ms;
        }
    }
    return oldest;
}

/* ---- slots ---- */

bool places_park(places *p, session *s)
{
    const int32_t slot = s->slot;
    if (!session_park(s)) {
        return false;
    }
    p->slots.holders[slot] = NULL;
    page_count(p->ground.page, LLM_COUNTER_SESSIONS_PARKED_TOTAL, 1);
    places_spill(p);
    return true;
}

/* An idle session gives its slot up, if the policy has a way. For one that can wait no state is dropped because the store is
 * busy. */
static bool vacate(places *p, session *s, bool can_wait)
{
    if (!session_is_named(s)) {
        places_close_session(p, s);
        return true;
    }
    if (p->options.policy == LLM_POLICY_PARK) {
        return !(can_wait && places_spill_waits(p)) && places_park(p, s);
    }
    if (p->options.policy == LLM_POLICY_EVICT) {
        places_forget(p, s);
        return true;
    }
    return false;
}

static bool free_cells(places *p, const session *s, bool can_wait)
{
    const bool parks = p->options.policy == LLM_POLICY_PARK;
    shortage of = {
        .asker = s, .owner = s->owner, .limit = p->ground.model->info.n_cells, .has_slot = true, .in_tokens = true};
    session *idle = victim(p, &of); /* scratch sessions first: nobody counts on them */
    if (idle == NULL) {
        of.named = true;
        of.pinned = parks;
        of.is_lost = !parks;
        idle = victim(p, &of);
    }
    return idle != NULL && vacate(p, idle, can_wait);
}

bool places_free_cells(places *p, const session *s)
{
    return free_cells(p, s, false);
}

static bool find_slot(places *p, const session *s, uint16_t *out)
{
    const bool parks = p->options.policy == LLM_POLICY_PARK;
    const uint32_t from = session_is_named(s) ? 0 : p->options.n_named;
    const uint32_t to = session_is_named(s) ? p->options.n_named : p->options.n_named + p->options.n_scratch;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = from; i < to; i++) {
            if (p->slots.holders[i] == NULL) {
                *out = (uint16_t)i;
                return true;
            }
        }
        session *idle = victim(p, &(shortage){
                                      .asker = s,
                                      .owner = s->owner,
                                      .limit = to - from,
                                      .named = session_is_named(s),
                                      .has_slot = true,
                                      .pinned = parks,
                                      .is_lost = session_is_named(s) && !parks,
                                  });
        if (idle == NULL || !vacate(p, idle, true)) {
            return false;
        }
    }
    return false;
}

slot_result places_take_slot(places *p, session *s)
{
    if (session_has_slot(s)) {
        return SLOT_READY;
    }
    if (s->parked.where == PARKED_ON_DISK) {
        const slot_result expected = places_may_take_slot(p, s);
        if (expected != SLOT_READY) {
            s->parked.wanted_until_us = 0;
            return expected;
        }
        if (!places_read_file(p, s) && !places_gives_up_reading(p, s)) {
            return places_is_in_progress(p, s, false) ? SLOT_LATER : SLOT_NEVER;
        }
    }
    if (s->parked.where == PARKED_READING && !places_gives_up_reading(p, s)) {
        return SLOT_LATER;
    }
    if (!places_may_fit(p, s)) {
        return places_is_in_progress(p, s, true) ? SLOT_LATER : SLOT_NO_CELLS;
    }
    uint16_t slot = 0;
    if (!find_slot(p, s, &slot)) {
        return places_is_in_progress(p, s, false) ? SLOT_LATER : SLOT_NEVER;
    }
    const bool had_state = s->parked.state != NULL;
    while (session_take_slot(s, slot) == MODEL_NO_CELLS) {
        if (!free_cells(p, s, true)) {
            return places_is_in_progress(p, s, true) ? SLOT_LATER : SLOT_NO_CELLS;
        }
    }
    p->slots.holders[slot] = s;
    if (had_state) {
        page_count(p->ground.page, LLM_COUNTER_SESSIONS_UNPARKED_TOTAL, 1);
    }
    return SLOT_READY;
}
