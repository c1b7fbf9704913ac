/* places_expected.c: what a session that wants a slot can expect: one now, one later, or none. */
#include "sessions/places.h"

bool places_has_in_flight(const places *p)
{
    return p->ground.ledger->n_bytes[LEDGER_IN_FLIGHT] > 0 || places_spill_waits(p);
}

bool places_is_in_progress(const places *p, const session *s, bool any_kind)
{
    if (places_has_in_flight(p)) {
        return true;
    }
    for (uint32_t i = 0; i < p->n_places; i++) {
        const session *other = &p->sessions[i];
        if (other != s && other->is_open && session_has_slot(other) && !session_is_idle(other) &&
            (any_kind || session_is_named(other) == session_is_named(s))) {
            return true;
        }
    }
    return false;
}

/* Whether the session would give its slot up for another (find_slot). */
static bool would_vacate(const places *p, const session *s)
{
    return session_is_idle(s) && (!session_is_named(s) || p->options.policy == LLM_POLICY_PARK ||
                                  (p->options.policy == LLM_POLICY_EVICT && !s->record.is_pinned));
}

/* What the has_slot sessions that would not leave take of the model's memory at least: they may share cells. */
static uint64_t least_bytes_of_others(const places *p, const session *s)
{
    const model *m = p->ground.model;
    uint64_t n_all = 0, n_most = 0;
    for (uint32_t i = 0; i < p->options.n_named + p->options.n_scratch; i++) {
        const session *other = p->slots.holders[i];
        if (other != NULL && other != s && !would_vacate(p, other)) {
            const uint64_t n = m->ops->sequence_bytes(m, session_n_tokens(other)) - m->ops->sequence_bytes(m, 0);
            n_all += n;
            n_most = n > n_most ? n : n_most;
        }
    }
    return m->info.shares_cells ? n_most : n_all;
}

bool places_may_fit(const places *p, const session *s)
{
    const model *m = p->ground.model;
    if (p->options.policy != LLM_POLICY_EVICT || s->parked.state == NULL) {
        return true;
    }
    const uint64_t n_empty = m->ops->sequence_bytes(m, 0), n_own = m->ops->sequence_bytes(m, s->parked.k);
    return (m->info.n_seq - 1) * n_empty + least_bytes_of_others(p, s) + n_own <= m->info.state_bytes;
}

static uint32_t n_free_slots(const places *p, const session *s)
{
    const uint32_t from = session_is_named(s) ? 0 : p->options.n_named;
    const uint32_t to = session_is_named(s) ? p->options.n_named : p->options.n_named + p->options.n_scratch;
    uint32_t n = 0;
    for (uint32_t i = from; i < to; i++) {
        n += p->slots.holders[i] == NULL || would_vacate(p, p->slots.holders[i]);
    }
    return n;
}

bool places_has_free_slot(const places *p, const session *s)
{
    return n_free_slots(p, s) > 0;
}

/* Of its share of the slots of that kind, what an owner has left. */
typedef struct slots_left {
    uint32_t owner;
    uint32_t n;
} slots_left;

static slots_left slots_left_of(const places *p, uint32_t owner, bool named)
{
    const uint32_t n_max = share_of(named ? p->options.n_named : p->options.n_scratch, atomic_load(&p->n_owners));
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->options.n_named + p->options.n_scratch; i++) {
        const session *s = p->slots.holders[i];
        n += s != NULL && s->owner == owner && session_is_named(s) == named && !session_is_idle(s);
    }
    return (slots_left){.owner = owner, .n = n < n_max ? n_max - n : 0};
}

static bool needs_slot(const session *s)
{
    return s->running != NULL ? !s->running->is_paused : s->waiting != NULL && !s->waiting->is_early;
}

/* It asks for a slot of the same kind as this one, and its state is at hand, or on its way. */
static bool is_coming(const session *other, const session *s)
{
    return other != s && other->is_open && !session_has_slot(other) && needs_slot(other) &&
           session_is_named(other) == session_is_named(s) &&
           (other->parked.where == PARKED_READING || other->parked.state != NULL);
}

/* Those that are coming, of each owner no more than may have slots. */
static uint32_t count_coming(const places *p, const session *s)
{
    slots_left owners[LLM_REQUESTS_MAX]; /* each that is coming has a request */
    uint32_t n_owners = 0, n_coming = 0;
    for (uint32_t i = 0; i < p->n_places; i++) {
        const session *other = &p->sessions[i];
        if (!is_coming(other, s)) {
            continue;
        }
        uint32_t k = 0;
        while (k < n_owners && owners[k].owner != other->owner) {
            k++;
        }
        if (k == n_owners) {
            owners[n_owners++] = slots_left_of(p, other->owner, session_is_named(s));
        }
        n_coming += owners[k].n > 0;
        owners[k].n -= owners[k].n > 0;
    }
    return n_coming;
}

slot_result places_may_take_slot(const places *p, const session *s)
{
    const uint32_t n_coming = count_coming(p, s);
    if (n_free_slots(p, s) > n_coming) {
        return SLOT_READY;
    }
    return n_coming > 0 || places_is_in_progress(p, s, false) ? SLOT_LATER : SLOT_NEVER;
}
