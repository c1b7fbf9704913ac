/* table_keep.c: copies a branch before a truncation. The copy is made if prefilling the discarded tokens again would
 * take longer than the copy. */
#include <string.h>

#include "policy/branch_choice.h"
#include "sessions/branch_table.h"

static int32_t free_slot(const branch_table *table)
{
    for (uint32_t i = 0; table->shared.model->info.shares_cells && i < table->options.n_named; i++) {
        if (table->slots.holders[i] == NULL) {
            return (int32_t)i;
        }
    }
    return BRANCH_NO_SLOT;
}

/* Returns how many discarded tokens a copy should keep, or 0 if no copy should be made. */
static uint32_t n_tokens_to_keep(const branch_table *table, const branch *b, const branch_prompt *prompt)
{
    const uint32_t n = branch_n_tokens(b);
    const size_t n_bytes = free_slot(table) != BRANCH_NO_SLOT ? 0 : branch_state_bytes(b, n);
    const copy_cost_divergence divergence = {
        .n_tokens = n,
        .n_history = table_n_history(b),
        .n_common = resume_common_prefix(branch_tokens(b), n, prompt->tokens, prompt->n_tokens),
        .n_prompt = prompt->n_tokens,
        .n_cost = copy_cost_tokens(&table->pace, n_bytes),
        .copy_us = copy_cost_us(&table->pace, n_bytes),
        .stall_budget_us = table->slots.stall_budget_us,
    };
    return n_bytes <= table->options.parked_bytes_max && copy_cost_pays_off(&divergence) ? n - divergence.n_common : 0;
}

/* Looks for an entry for the copy that keeps n_lost tokens of `b`. Returns false if there is none. Sets *replaced to
 * NULL if an entry is free. Otherwise sets it to the branch that must be forgotten for the copy. */
static bool find_entry(branch_table *table, branch *b, uint32_t n_lost, branch **replaced)
{
    branch_candidate candidates[BRANCHES_COMPARED_MAX];
    branch *branches[BRANCHES_COMPARED_MAX];
    uint32_t n = 0;
    uint32_t index = 0;
    branch *t = NULL;
    while (n < BRANCHES_COMPARED_MAX && (t = table_next(table, branch_session_name(b), t)) != NULL) {
        index = t == b ? n : index;
        candidates[n] = table_candidate_of(t, NULL);
        branches[n++] = t;
    }
    const branch_choice choice = branch_choose_for_discarded(candidates, n, table->options.branches_max, index, n_lost);
    *replaced = choice.verb == BRANCH_REPLACE ? branches[choice.index] : NULL;
    return choice.verb == BRANCH_REPLACE ||
           (choice.verb == BRANCH_OPEN && table_may_open_kept(table, b->owner, replaced));
}

bool table_keep_branch(branch_table *table, branch *b, const branch_prompt *prompt)
{
    const bool may_be_kept = branch_is_named(b) && !b->is_held && table->options.policy == LLM_POLICY_PARK &&
                             b->record.state != LLM_STATE_TORN && branch_n_tokens(b) > 0;
    const uint32_t n_lost = may_be_kept ? n_tokens_to_keep(table, b, prompt) : 0;
    branch *replaced = NULL;
    branch_copy copy;
    if (n_lost == 0 || !find_entry(table, b, n_lost, &replaced) || !branch_copy_of(b, free_slot(table), &copy)) {
        return false;
    }
    branch *kept = replaced != NULL ? table_replace(table, replaced, b) : table_open_kept(table, b);
    branch_become_copy(kept, b, &copy);
    if (copy.slot != BRANCH_NO_SLOT) {
        table->slots.holders[copy.slot] = kept;
    }
    kept->n_kept = n_lost;
    table->slots.stall_budget_us -= copy_cost_us(&table->pace, kept->parked.n_bytes);
    table_used(table, b); /* `b` is now more recently used than the kept branch, which is given up first */
    session_table_count(table->shared.session_table, LLM_COUNTER_BRANCHES_KEPT, 1);
    table_spill(table);
    return true;
}
