/* table_expected.c: decides whether a branch can get a slot now, later, or never. */
#include "sessions/branch_table.h"

bool table_has_in_flight(const branch_table *table)
{
    return table->shared.ledger->n_bytes[LEDGER_IN_FLIGHT] > 0 || table_spill_waits(table);
}

bool table_is_in_progress(const branch_table *table, const branch *b, bool any_kind)
{
    if (table_has_in_flight(table)) {
        return true;
    }
    for (uint32_t i = 0; i < table->n_entries; i++) {
        const branch *other = &table->branches[i];
        if (other != b && other->is_open && branch_has_slot(other) && !branch_is_idle(other) &&
            (any_kind || branch_is_named(other) == branch_is_named(b))) {
            return true;
        }
    }
    return false;
}

/* Whether the branch would give up its slot for another branch (find_slot). */
static bool would_vacate(const branch_table *table, const branch *b)
{
    return branch_is_idle(b) && (!branch_is_named(b) || table->options.policy == LLM_POLICY_PARK ||
                                 (table->options.policy == LLM_POLICY_EVICT && !b->record.is_pinned));
}

/* Returns a lower bound on the bytes of the model's memory that the branches in other slots would keep. Branches that
 * would give up their slots do not count. If branches can share cells, only the largest branch counts, because its
 * cells may contain those of the other branches. Invalid branches do not count, because they may have no cells. */
static uint64_t least_bytes_of_others(const branch_table *table, const branch *b)
{
    const model *m = table->shared.model;
    uint64_t n_all = 0, n_most = 0;
    for (uint32_t i = 0; i < table->options.n_named + table->options.n_scratch; i++) {
        const branch *other = table->slots.holders[i];
        const bool holds_cells = other != NULL && other->record.state != LLM_STATE_TORN;
        if (holds_cells && other != b && !would_vacate(table, other)) {
            const uint64_t n = m->ops->sequence_bytes(m, branch_n_tokens(other)) - m->ops->sequence_bytes(m, 0);
            n_all += n;
            n_most = n > n_most ? n : n_most;
        }
    }
    return m->info.shares_cells ? n_most : n_all;
}

bool table_may_fit(const branch_table *table, const branch *b)
{
    const model *m = table->shared.model;
    if (table->options.policy != LLM_POLICY_EVICT || b->parked.state == NULL) {
        return true;
    }
    const uint64_t n_empty = m->ops->sequence_bytes(m, 0), n_own = m->ops->sequence_bytes(m, b->parked.k);
    return (m->info.n_seq - 1) * n_empty + least_bytes_of_others(table, b) + n_own <= m->info.state_bytes;
}

static uint32_t n_free_slots(const branch_table *table, const branch *b)
{
    const uint32_t from = branch_is_named(b) ? 0 : table->options.n_named;
    const uint32_t to = branch_is_named(b) ? table->options.n_named : table->options.n_named + table->options.n_scratch;
    uint32_t n = 0;
    for (uint32_t i = from; i < to; i++) {
        n += table->slots.holders[i] == NULL || would_vacate(table, table->slots.holders[i]);
    }
    return n;
}

bool table_has_free_slot(const branch_table *table, const branch *b)
{
    return n_free_slots(table, b) > 0;
}

/* How many more slots of one kind (for named or for scratch branches) an owner may take within its share. */
typedef struct slots_left {
    uint32_t owner;
    uint32_t n;
} slots_left;

static slots_left slots_left_of(const branch_table *table, uint32_t owner, bool named)
{
    const uint32_t n_max =
        share_of(named ? table->options.n_named : table->options.n_scratch, atomic_load(&table->n_owners));
    uint32_t n = 0;
    for (uint32_t i = 0; i < table->options.n_named + table->options.n_scratch; i++) {
        const branch *b = table->slots.holders[i];
        n += b != NULL && b->owner == owner && branch_is_named(b) == named && !branch_is_idle(b);
    }
    return (slots_left){.owner = owner, .n = n < n_max ? n_max - n : 0};
}

static bool needs_slot(const branch *b)
{
    return b->running != NULL ? !b->running->is_paused : b->waiting != NULL && !b->waiting->is_early;
}

/* Whether `other` waits for a slot of the kind that `b` needs (named or scratch), and the state of `other` is in memory
 * or being read. */
static bool is_coming(const branch *other, const branch *b)
{
    return other != b && other->is_open && !branch_has_slot(other) && needs_slot(other) &&
           branch_is_named(other) == branch_is_named(b) &&
           (other->parked.where == PARKED_READING || other->parked.state != NULL);
}

/* Counts the other branches that are about to take a slot of the kind that `b` needs. For each owner, counts at most as
 * many as its share of slots allows. */
static uint32_t count_coming(const branch_table *table, const branch *b)
{
    slots_left owners[LLM_REQUESTS_MAX]; /* large enough, because each branch that is counted has a request */
    uint32_t n_owners = 0, n_coming = 0;
    for (uint32_t i = 0; i < table->n_entries; i++) {
        const branch *other = &table->branches[i];
        if (!is_coming(other, b)) {
            continue;
        }
        uint32_t k = 0;
        while (k < n_owners && owners[k].owner != other->owner) {
            k++;
        }
        if (k == n_owners) {
            owners[n_owners++] = slots_left_of(table, other->owner, branch_is_named(b));
        }
        n_coming += owners[k].n > 0;
        owners[k].n -= owners[k].n > 0;
    }
    return n_coming;
}

slot_result table_may_take_slot(const branch_table *table, const branch *b)
{
    const uint32_t n_coming = count_coming(table, b);
    if (n_free_slots(table, b) > n_coming) {
        return SLOT_READY;
    }
    return n_coming > 0 || table_is_in_progress(table, b, false) ? SLOT_LATER : SLOT_NEVER;
}
