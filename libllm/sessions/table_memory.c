/* table_memory.c: says in each branch's record how many bytes its state takes, in memory and on disk.
 *
 * Memory that several branches share is counted once. So the bytes of all branches add up to the gauges, apart from
 * rounding:
 *   memory_bytes      of branches with a slot: state_used_bytes, less what llama.cpp reserves for empty slots
 *                     of all others: parked_memory_bytes, and the parked states among in_flight_bytes
 *   checkpoint_bytes  checkpoint_bytes, less the checkpoints whose branch is closed
 *   disk_bytes        parked_disk_bytes, less the files of sessions that have no entry */
#include "sessions/branch_table.h"

static void set_memory(branch *b, uint64_t n_bytes)
{
    if (b->record.memory_bytes != n_bytes) {
        b->record.memory_bytes = n_bytes;
        branch_publish(b);
    }
}

static uint64_t unshared_bytes(const model *m, uint16_t slot)
{
    return m->ops->sequence_bytes(m, m->ops->position(m, slot));
}

/* Shared cells make the sequences together smaller than the sum of unshared_bytes. The difference is taken from the
 * sequences that have tokens in the cells of a sequence with a lower number, in proportion to these tokens. The exact
 * difference of each sequence is not known, because llama.cpp shares blocks of cells. */
static void account_slots(branch_table *table)
{
    const model *m = table->shared.model;
    const uint32_t n_slots = table->options.n_named + table->options.n_scratch;
    uint64_t n_unshared = 0;
    uint64_t n_shared_tokens = 0;
    for (uint32_t slot = 0; slot < n_slots; slot++) {
        n_unshared += unshared_bytes(m, (uint16_t)slot);
        n_shared_tokens += m->ops->shared_tokens(m, (uint16_t)slot);
    }
    const uint64_t n_used = n_shared_tokens > 0 ? m->ops->used_bytes(m) : n_unshared;
    const uint64_t n_saved = n_unshared > n_used ? n_unshared - n_used : 0;
    for (uint32_t slot = 0; slot < n_slots; slot++) {
        branch *b = table->slots.holders[slot];
        if (b == NULL) {
            continue;
        }
        const uint64_t n = unshared_bytes(m, (uint16_t)slot);
        const double n_shared = (double)m->ops->shared_tokens(m, (uint16_t)slot); /* double, because the product can
                                                                                   * exceed 64 bits */
        const uint64_t n_less = n_saved > 0 ? (uint64_t)((double)n_saved * n_shared / (double)n_shared_tokens) : 0;
        set_memory(b, n - (n_less < n ? n_less : n));
    }
}

/* Returns the host memory of a branch without a slot. Copies of a parked branch hold the same blob. */
static uint64_t host_bytes(const branch *b)
{
    const size_t n_logits = b->logits != NULL ? b->shared->model->info.n_vocab * sizeof *b->logits : 0;
    const blob *state = b->parked.state;
    if (state == NULL) {
        return n_logits;
    }
    const uint32_t n_holders = b->parked.where == PARKED_IN_MEMORY ? state->n_holders[LEDGER_PARKED] : 1;
    return n_logits + state->n_bytes / n_holders;
}

static void account_files_and_parked(branch_table *table)
{
    for (uint32_t i = 0; i < table->n_entries; i++) {
        branch *b = &table->branches[i];
        if (!b->is_open) {
            continue;
        }
        if (!branch_has_slot(b)) {
            set_memory(b, host_bytes(b));
        }
        if (b->record.disk_bytes != b->n_file_bytes) {
            b->record.disk_bytes = b->n_file_bytes;
            branch_publish(b);
        }
    }
}

/* Returns the open branch that saved or restored the checkpoint last, or NULL. */
static branch *user_of(branch_table *table, const checkpoint *c)
{
    branch *b = &table->branches[c->user_entry];
    return b->is_open && b->id == c->user_id ? b : NULL;
}

static void account_checkpoints(branch_table *table)
{
    const checkpoint_store *checkpoints = table->shared.checkpoints;
    for (uint32_t i = 0; i < table->n_entries; i++) {
        table->branches[i].n_checkpoint_bytes = 0;
    }
    for (uint32_t i = 0; i < checkpoints->n_entries; i++) {
        branch *b = user_of(table, checkpoints->entries[i]);
        if (b != NULL) {
            b->n_checkpoint_bytes += checkpoints->entries[i]->n_bytes;
        }
    }
    for (uint32_t i = 0; i < table->n_entries; i++) {
        branch *b = &table->branches[i];
        if (b->is_open && b->record.checkpoint_bytes != b->n_checkpoint_bytes) {
            b->record.checkpoint_bytes = b->n_checkpoint_bytes;
            branch_publish(b);
        }
    }
}

void table_account(branch_table *table)
{
    account_slots(table);
    /* there can be thousands of branches without a slot, so they are visited only after a change */
    const uint64_t n_changes = table->totals.n_changes;
    if (table->accounted.n_changes != n_changes) {
        account_files_and_parked(table);
        table->accounted.n_changes = n_changes;
    }
    const uint64_t n_uses = table->shared.checkpoints->clock + table->shared.checkpoints->n_evicted;
    if (table->accounted.n_uses != n_uses) {
        account_checkpoints(table);
        table->accounted.n_uses = n_uses;
    }
}
