#include "places.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "request.h"
#include "timeline.h"

enum { TIMELINES_LOOKED_AT = 64 };

int places_open(places *p, const session_ground *ground, const places_options *options, store *disk)
{
    const uint32_t n_seats = options->n_named + options->n_scratch;
    *p = (places){.ground = *ground, .options = *options, .store = disk, .n_slots = n_seats + options->n_parked_max};
    p->sessions = calloc(p->n_slots, sizeof *p->sessions);
    p->seats = calloc(n_seats, sizeof(session *));
    if (p->sessions == NULL || p->seats == NULL) {
        places_close(p);
        return LLM_NO_MEMORY;
    }
    for (uint32_t slot = 0; slot < p->n_slots; slot++) {
        session_init(&p->sessions[slot], &p->ground, slot);
    }
    return LLM_OK;
}

void places_close(places *p)
{
    for (uint32_t i = 0; p->sessions != NULL && i < p->n_slots; i++) {
        session *s = &p->sessions[i];
        if (s->is_open) {
            s->running = s->waiting = NULL;
            s->is_held = false;
            session_close(s);
        }
    }
    free(p->sessions);
    free(p->seats);
    p->sessions = NULL;
    p->seats = NULL;
}

static bool is_named(const session *s)
{
    return s->name[0] != '\0';
}

static bool is_seated(const session *s)
{
    return s->seat != SESSION_NO_SEAT;
}

void places_used(places *p, session *s)
{
    s->used = ++p->clock;
}

/* ---- finding ---- */

session *places_next(places *p, uint32_t owner, const char *name, size_t n_name_bytes, const session *after)
{
    for (uint32_t i = after != NULL ? after->slot + 1 : 0; i < p->n_slots; i++) {
        session *s = &p->sessions[i];
        if (s->is_open && is_named(s) && s->owner == owner && strlen(s->name) == n_name_bytes &&
            memcmp(s->name, name, n_name_bytes) == 0) {
            return s;
        }
    }
    return NULL;
}

static session *closed_slot(places *p)
{
    for (uint32_t i = 0; i < p->n_slots; i++) {
        if (!p->sessions[i].is_open) {
            return &p->sessions[i];
        }
    }
    return NULL;
}

static uint32_t count_open(const places *p, bool named)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_slots; i++) {
        n += p->sessions[i].is_open && is_named(&p->sessions[i]) == named;
    }
    return n;
}

/* What a choice among idle sessions looks for. */
typedef struct idle_wanted {
    bool named;
    bool seated; /* only seated ones; otherwise only those without a seat */
    bool pinned; /* pinned ones, too */
    uint32_t n_tokens_min;
    const session *except;
} idle_wanted;

static session *oldest_idle(places *p, const idle_wanted *wanted)
{
    session *oldest = NULL;
    for (uint32_t i = 0; i < p->n_slots; i++) {
        session *s = &p->sessions[i];
        if (!session_is_idle(s) || s == wanted->except || is_named(s) != wanted->named ||
            is_seated(s) != wanted->seated || (s->record.is_pinned && !wanted->pinned)) {
            continue;
        }
        if (session_n_tokens(s) >= wanted->n_tokens_min && (oldest == NULL || s->used < oldest->used)) {
            oldest = s;
        }
    }
    return oldest;
}

/* The named session that the policy gives up for a new one, or NULL. */
static session *dispensable(places *p)
{
    switch (p->options.policy) {
    case LLM_POLICY_REFUSE: break;
    case LLM_POLICY_EVICT: {
        session *s = oldest_idle(p, &(idle_wanted){.named = true, .seated = true});
        return s != NULL ? s : oldest_idle(p, &(idle_wanted){.named = true, .seated = false});
    }
    case LLM_POLICY_PARK: {
        session *s = oldest_idle(p, &(idle_wanted){.named = true, .seated = false});
        return s != NULL ? s : oldest_idle(p, &(idle_wanted){.named = true, .seated = true});
    }
    case LLM_POLICY_N: break;
    }
    return NULL;
}

static session *open_slot(places *p, uint32_t owner, const char *name, size_t n_name_bytes)
{
    session *s = closed_slot(p);
    assert(s != NULL);
    session_open(s, owner, name, n_name_bytes);
    s->id = session_clock_us() ^ ((uint64_t)++p->clock << 48) ^ ((uint64_t)session_clock_ms() << 12);
    places_used(p, s);
    return s;
}

int places_open_named(places *p, uint32_t owner, const char *name, size_t n_name_bytes, session **out)
{
    if (count_open(p, true) == p->options.n_named + p->options.n_parked_max) {
        session *s = dispensable(p);
        if (s == NULL) {
            return LLM_CAPACITY;
        }
        places_forget(p, s);
    }
    *out = open_slot(p, owner, name, n_name_bytes);
    page_count(p->ground.page, LLM_COUNTER_SESSIONS_OPENED, 1);
    return LLM_OK;
}

/* Another timeline of a session that has some: only where it costs no other session its place. */
static bool has_room_for_another(const places *p)
{
    return p->options.policy == LLM_POLICY_PARK || count_open(p, true) < p->options.n_named;
}

/* Tokens of the last prompt, as far as they were consumed and are still there. */
static uint32_t n_history(const session *s)
{
    const uint32_t n = session_n_tokens(s);
    const uint32_t n_prompt = s->record.n_last_prompt;
    return n_prompt > 0 && n_prompt < n ? n_prompt : n;
}

static timeline describe(const session *s, const places_prompt *prompt)
{
    uint32_t n_common =
        resume_common_prefix(session_tokens(s), session_n_tokens(s), prompt->tokens, prompt->n_tokens);
    const request *r = s->running != NULL ? s->running : s->waiting;
    if (r != NULL && r->n_prompt > session_n_tokens(s)) { /* it will hold at least this */
        n_common = resume_common_prefix(r->prompt, r->n_prompt, prompt->tokens, prompt->n_tokens);
    }
    return (timeline){
        .n_history = r != NULL ? r->n_prompt : n_history(s),
        .n_common = n_common,
        .n_head = prompt->n_head,
        .n_waiting = s->record.n_waiting,
        .is_busy = !session_is_idle(s),
        .used = s->used,
    };
}

int places_admit(places *p, uint32_t owner, const char *name, size_t n_name_bytes, const places_prompt *prompt,
                 session **out)
{
    timeline timelines[TIMELINES_LOOKED_AT];
    session *sessions[TIMELINES_LOOKED_AT];
    uint32_t n = 0;
    session *s = NULL;
    while (n < TIMELINES_LOOKED_AT && (s = places_next(p, owner, name, n_name_bytes, s)) != NULL) {
        timelines[n] = describe(s, prompt);
        sessions[n++] = s;
    }
    uint32_t n_max = p->options.timelines_max;
    if (n > 0 && n < n_max && !has_room_for_another(p)) {
        n_max = n;
    }
    const timeline_choice choice = timeline_choose(timelines, n, n_max);
    switch (choice.verb) {
    case TIMELINE_CONTINUE: *out = sessions[choice.index]; return LLM_OK;
    case TIMELINE_REPLACE: places_forget(p, sessions[choice.index]); break;
    case TIMELINE_OPEN: break;
    }
    return places_open_named(p, owner, name, n_name_bytes, out);
}

/* The idle scratch session that this prompt continues. */
static session *continued_scratch(places *p, uint32_t owner, const places_prompt *prompt)
{
    session *best = NULL;
    uint32_t best_common = 0;
    for (uint32_t i = 0; i < p->n_slots; i++) {
        session *s = &p->sessions[i];
        if (!session_is_idle(s) || is_named(s) || s->owner != owner) {
            continue;
        }
        const timeline t = describe(s, prompt);
        if (timeline_continues(&t) && t.n_common > best_common) {
            best = s;
            best_common = t.n_common;
        }
    }
    return best;
}

session *places_scratch(places *p, uint32_t owner, const places_prompt *prompt)
{
    session *s = continued_scratch(p, owner, prompt);
    if (s == NULL && count_open(p, false) == p->options.n_scratch) {
        s = oldest_idle(p, &(idle_wanted){.named = false, .seated = true});
        if (s == NULL) {
            s = oldest_idle(p, &(idle_wanted){.named = false, .seated = false});
        }
        if (s == NULL) {
            return NULL;
        }
        places_close_session(p, s); /* nothing of one owner may even be timed by another */
        s = NULL;
    }
    return s != NULL ? s : open_slot(p, owner, "", 0);
}

/* ---- closing ---- */

void places_close_session(places *p, session *s)
{
    if (is_seated(s)) {
        p->seats[s->seat] = NULL;
    }
    if (is_named(s) && p->store != NULL) {
        places_remove_file(p, s);
    }
    session_close(s);
}

void places_reset_session(places *p, session *s)
{
    if (is_named(s) && p->store != NULL) {
        places_remove_file(p, s);
    }
    session_reset(s);
}

void places_forget(places *p, session *s)
{
    assert(session_is_idle(s));
    if (is_named(s)) {
        page_count(p->ground.page, LLM_COUNTER_SESSIONS_EVICTED, 1);
    }
    places_close_session(p, s);
}

uint64_t places_expire(places *p, uint64_t before_ms)
{
    uint64_t oldest = 0;
    for (uint32_t i = 0; i < p->n_slots; i++) {
        session *s = &p->sessions[i];
        if (!session_is_idle(s) || s->record.is_pinned) {
            continue;
        }
        if (s->record.used_ms < before_ms) {
            places_close_session(p, s);
            page_count(p->ground.page, LLM_COUNTER_SESSIONS_EXPIRED, 1);
        } else if (oldest == 0 || s->record.used_ms < oldest) {
            oldest = s->record.used_ms;
        }
    }
    return oldest;
}

/* ---- seats ---- */

bool places_park(places *p, session *s)
{
    const int32_t seat = s->seat;
    if (!session_park(s)) {
        return false;
    }
    p->seats[seat] = NULL;
    page_count(p->ground.page, LLM_COUNTER_SESSIONS_PARKED_TOTAL, 1);
    places_spill(p);
    return true;
}

/* An idle session gives its seat up, if the policy has a way. */
static bool vacate(places *p, session *s)
{
    if (!is_named(s)) {
        places_close_session(p, s);
        return true;
    }
    if (p->options.policy == LLM_POLICY_PARK) {
        return places_park(p, s);
    }
    if (p->options.policy == LLM_POLICY_EVICT) {
        places_forget(p, s);
        return true;
    }
    return false;
}

bool places_free_cells(places *p, const session *except)
{
    idle_wanted wanted = {.named = false, .seated = true, .pinned = true, .n_tokens_min = 1, .except = except};
    session *s = oldest_idle(p, &wanted);
    if (s == NULL) {
        wanted.named = true;
        wanted.pinned = p->options.policy == LLM_POLICY_PARK;
        s = oldest_idle(p, &wanted);
    }
    return s != NULL && vacate(p, s);
}

static bool find_seat(places *p, const session *s, uint16_t *out)
{
    const uint32_t from = is_named(s) ? 0 : p->options.n_named;
    const uint32_t to = is_named(s) ? p->options.n_named : p->options.n_named + p->options.n_scratch;
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = from; i < to; i++) {
            if (p->seats[i] == NULL) {
                *out = (uint16_t)i;
                return true;
            }
        }
        const idle_wanted wanted = {
            .named = is_named(s), .seated = true, .pinned = p->options.policy == LLM_POLICY_PARK, .except = s};
        session *idle = oldest_idle(p, &wanted);
        if (idle == NULL || !vacate(p, idle)) {
            return false;
        }
    }
    return false;
}

bool places_seat(places *p, session *s)
{
    if (is_seated(s)) {
        return true;
    }
    if (s->parked.where == PARKED_ON_DISK) {
        places_read_file(p, s);
    }
    uint16_t seat = 0;
    if (s->parked.where == PARKED_READING || !find_seat(p, s, &seat)) {
        return false;
    }
    const bool had_state = s->parked.state != NULL;
    while (session_take_seat(s, seat) == MODEL_NO_CELLS) {
        if (!places_free_cells(p, s)) {
            return false;
        }
    }
    p->seats[seat] = s;
    if (had_state) {
        page_count(p->ground.page, LLM_COUNTER_SESSIONS_UNPARKED_TOTAL, 1);
    }
    return true;
}

void places_publish(places *p)
{
    uint64_t n_open = 0;
    uint64_t n_named = 0;
    uint64_t n_parked = 0;
    uint64_t cells = 0;
    uint64_t parked_bytes = 0;
    for (uint32_t i = 0; i < p->n_slots; i++) {
        const session *s = &p->sessions[i];
        if (s->is_open) {
            n_open++;
            n_named += is_named(s);
            n_parked += !is_seated(s);
            cells += is_seated(s) ? session_n_tokens(s) : 0;
            parked_bytes += s->parked.n_bytes;
        }
    }
    page *segment = p->ground.page;
    page_gauge(segment, LLM_COUNTER_SESSIONS_OPEN, n_open);
    page_gauge(segment, LLM_COUNTER_SESSIONS_NAMED, n_named);
    page_gauge(segment, LLM_COUNTER_SESSIONS_PARKED, n_parked);
    page_gauge(segment, LLM_COUNTER_CELLS_USED, cells);
    page_gauge(segment, LLM_COUNTER_PARKED_BYTES, parked_bytes);
    page_gauge(segment, LLM_COUNTER_CHECKPOINTS, p->ground.checkpoints->n_entries);
    page_gauge(segment, LLM_COUNTER_CHECKPOINT_BYTES, p->ground.checkpoints->n_bytes);
    page_gauge(segment, LLM_COUNTER_CHECKPOINTS_EVICTED, p->ground.checkpoints->n_evicted);
}
