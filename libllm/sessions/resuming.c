#include "sessions/resuming.h"

#include <assert.h>
#include <string.h>

enum { CHECKPOINTS_LOOKED_AT = 64, DONORS_MAX = LLM_SEQUENCES_MAX + LLM_PARKED_MAX };

/* The states from which a prompt can resume, other than the state of its own branch. These are the states of other
 * branches (donors), and checkpoints. */
typedef struct resuming_sources {
    uint32_t n_donors;
    const branch *donor_branches[DONORS_MAX];
    resume_source donors[DONORS_MAX];
    uint32_t n_checkpoints;
    checkpoint *checkpoint_entries[CHECKPOINTS_LOOKED_AT];
    resume_checkpoint checkpoints[CHECKPOINTS_LOOKED_AT];
} resuming_sources;

/* Whether the donor, which has a slot, can be copied now. If sequences share no cells, the copy goes through host
 * memory. Other states in flight may leave too little of that memory. */
static bool may_copy(const branch *donor)
{
    const branch_shared *g = donor->shared;
    return g->model->info.shares_cells || ledger_admits(g->ledger, branch_state_bytes(donor, branch_n_tokens(donor)));
}

/* Whether a prompt of the owner's branch `b` can resume from the donor. */
static bool can_give(const branch *donor, uint32_t owner, const branch *b)
{
    const bool holds_state = donor->slot != BRANCH_NO_SLOT ? may_copy(donor) : donor->parked.state != NULL;
    return donor != b && donor->is_open && holds_state && donor->owner == owner &&
           donor->record.state != LLM_STATE_TORN && branch_n_tokens(donor) > 0;
}

/* Describes a parked donor as a source. A parked state is loaded as a whole. Only a LLM_MEMORY_DENSE model can truncate
 * the loaded state, because such a model keeps the KV cache of all tokens in all layers. */
static resume_source parked_source(const model *m, const branch *donor)
{
    const uint32_t n = donor->parked.k;
    const copy_cost_pace *pace = donor->shared->pace;
    return (resume_source){
        .tokens = branch_tokens(donor),
        .n_tokens = n,
        .truncate_floor = m->info.memory == LLM_MEMORY_DENSE ? 1 : n,
        .n_cost = copy_cost_tokens(pace, donor->parked.n_bytes),
    };
}

uint32_t resuming_copy_cost(const branch *from, uint32_t n_tokens)
{
    const branch_shared *g = from->shared;
    return g->model->info.shares_cells ? 0 : copy_cost_tokens(g->pace, 2 * branch_state_bytes(from, n_tokens));
}

/* Describes a donor as a source. If sequences share no cells, a donor with a slot is copied through a saved state. The
 * saved state of a sliding window contains only the window. Thus the copy can be used as a whole or with a checkpoint,
 * but not truncated. */
static resume_source donor_source(const model *m, const branch *donor)
{
    if (donor->slot == BRANCH_NO_SLOT) {
        return parked_source(m, donor);
    }
    resume_source source = branch_source(donor);
    source.n_cost = resuming_copy_cost(donor, source.n_tokens);
    const bool is_narrowed = m->info.memory == LLM_MEMORY_WINDOW && !m->info.shares_cells;
    if (is_narrowed && source.n_tokens > m->info.n_window) {
        source.truncate_floor = source.n_tokens;
    }
    return source;
}

static void gather_donors(branch_table *table, uint32_t owner, const branch *b, bool has_slot, resuming_sources *out)
{
    for (uint32_t i = 0; i < table->n_entries && out->n_donors < DONORS_MAX; i++) {
        const branch *donor = &table->branches[i];
        if ((donor->slot != BRANCH_NO_SLOT) == has_slot && can_give(donor, owner, b)) {
            out->donor_branches[out->n_donors] = donor;
            out->donors[out->n_donors++] = donor_source(table->shared.model, donor);
        }
    }
}

/* Returns for how many of the prompt's first tokens the branch or a donor holds the KV cache of the attention layers.
 * Longer checkpoints that are not whole cannot be used, so the caller does not gather them. They would take the places
 * of usable ones, because only CHECKPOINTS_LOOKED_AT checkpoints are gathered. */
static uint32_t attention_of(const branch *b, const int32_t *prompt, uint32_t n_prompt, const resuming_sources *sources)
{
    const bool is_trusted = b != NULL && b->record.state != LLM_STATE_TORN;
    const uint32_t own = is_trusted ? resume_common_prefix(branch_tokens(b), branch_n_tokens(b), prompt, n_prompt) : 0;
    return resume_longest(prompt, n_prompt, sources->donors, sources->n_donors, own);
}

/* Gathers the states from which a prompt of the owner's branch `b` can resume. `b` may be NULL. */
static void gather(branch_table *table, uint32_t owner, const branch *b, const int32_t *prompt, uint32_t n_prompt,
                   resuming_sources *out)
{
    out->n_donors = 0;
    /* donors with a slot come first, because they are cheaper to copy. If several donors are equally good, the first is
     * chosen */
    gather_donors(table, owner, b, true, out);
    gather_donors(table, owner, b, false, out);
    out->n_checkpoints =
        checkpoint_match(table->shared.checkpoints, owner, prompt, n_prompt, attention_of(b, prompt, n_prompt, out),
                         out->checkpoint_entries, CHECKPOINTS_LOOKED_AT);
    for (uint32_t i = 0; i < out->n_checkpoints; i++) {
        const checkpoint *c = out->checkpoint_entries[i];
        out->checkpoints[i] = (resume_checkpoint){.k = c->k,
                                                  .is_whole = c->is_whole,
                                                  .has_logits = c->logits != NULL,
                                                  .n_cost = copy_cost_tokens(&table->pace, c->n_state_bytes)};
    }
}

static resume_plan decide(const branch *b, const branch_prompt *prompt, bool cold, const resuming_sources *sources)
{
    return resume_decide(&(resume_input){
        .prompt = prompt->tokens,
        .n_prompt = prompt->n_tokens,
        .own = branch_source(b),
        .own_logits_at = b->logits_at,
        .torn = b->record.state == LLM_STATE_TORN,
        .cold = cold,
        .was_parked = b->was_parked,
        .donors = sources->donors,
        .n_donors = sources->n_donors,
        .checkpoints = sources->checkpoints,
        .n_checkpoints = sources->n_checkpoints,
    });
}

static bool apply(branch *b, const resume_plan *plan, const int32_t *prompt, const resuming_sources *sources)
{
    const branch *donor = plan->donor >= 0 ? sources->donor_branches[plan->donor] : NULL;
    checkpoint *from = plan->checkpoint >= 0 ? sources->checkpoint_entries[plan->checkpoint] : NULL;
    return branch_apply(b, plan, prompt, donor, from);
}

/* ---- states on disk ---- */

static bool is_on_disk_of_owner(const branch *other, const branch *b)
{
    const parked_where where = other->parked.where;
    return other != b && other->is_open && other->owner == b->owner &&
           (where == PARKED_ON_DISK || where == PARKED_READING);
}

/* Returns how many of the branch's tokens its state covers. */
static uint32_t n_known_of(const branch *other)
{
    const uint32_t k = other->parked.k, n_tokens = branch_n_tokens(other);
    return k < n_tokens ? k : n_tokens;
}

/* Returns how many of the prompt's first tokens the state on disk can provide. The prompt's last token is always left
 * to prefill, because the logits after it are needed. */
static uint32_t n_shared_on_disk(const branch *other, const branch_prompt *prompt)
{
    const parked *at = &other->parked;
    const uint32_t n_known = n_known_of(other);
    const uint32_t n = resume_common_prefix(branch_tokens(other), n_known, prompt->tokens, prompt->n_tokens - 1);
    const bool may_truncate = other->shared->model->info.memory == LLM_MEMORY_DENSE;
    return may_truncate || n == at->k ? n : state_ends_within(&at->ends, n);
}

typedef struct state_on_disk {
    branch *from; /* owner of the state; NULL if reading a state saves no time */
    uint32_t n;   /* tokens of the prompt that the state provides */
    double us;    /* microseconds saved by reading the state */
} state_on_disk;

/* Returns the microseconds saved by reading the state of `other` for the prompt's first n tokens. A state in memory
 * already covers the first n_in_memory tokens of the prompt. A read that has not begun must wait for all reads and
 * writes in flight. Returns 0 if the read has not begun and memory for it is short. */
static double gain_us(const branch_table *table, const branch *other, uint32_t n, uint32_t n_in_memory)
{
    const size_t n_bytes = other->parked.n_disk_bytes;
    const bool is_coming = other->parked.where == PARKED_READING;
    if (n <= n_in_memory || (!is_coming && !ledger_admits(table->shared.ledger, n_bytes))) {
        return 0;
    }
    const size_t n_bytes_before = is_coming ? 0 : table->shared.ledger->n_bytes[LEDGER_IN_FLIGHT];
    return copy_cost_fetch_saves_us(&table->pace, n_bytes, n_bytes_before, n - n_in_memory);
}

/* Returns how many prompt tokens the state of `other` must provide to save more than `us` microseconds. The result is
 * at most n_most, or 0 if n_most tokens are not enough. */
static uint32_t n_to_gain(const branch_table *table, const branch *other, uint32_t n_most, uint32_t n_in_memory,
                          double us)
{
    if (gain_us(table, other, n_most, n_in_memory) <= us) {
        return 0;
    }
    uint32_t too_few = 0, enough = n_most;
    while (enough - too_few > 1) {
        const uint32_t n = too_few + (enough - too_few) / 2;
        if (gain_us(table, other, n, n_in_memory) > us) {
            enough = n;
        } else {
            too_few = n;
        }
    }
    return enough;
}

/* Returns the state on disk that saves the most time. Hundreds of branches may begin with the same head. To compare all
 * their tokens with the prompt would delay every step. To save more than the best branch so far, a branch must share at
 * least n_least tokens with the prompt. So the branch's token number n_least is compared first. The branch is compared
 * in full only if this token equals the prompt's. */
static state_on_disk best_on_disk(branch_table *table, const branch *b, const branch_prompt *prompt,
                                  uint32_t n_in_memory)
{
    state_on_disk best = {.from = NULL};
    for (uint32_t i = 0; i < table->n_entries; i++) {
        branch *other = &table->branches[i];
        if (!is_on_disk_of_owner(other, b)) {
            continue;
        }
        const uint32_t n_most = n_known_of(other) < prompt->n_tokens ? n_known_of(other) : prompt->n_tokens;
        const uint32_t n_least = n_to_gain(table, other, n_most, n_in_memory, best.us);
        if (n_least == 0 || branch_tokens(other)[n_least - 1] != prompt->tokens[n_least - 1]) {
            continue;
        }
        const uint32_t n = n_shared_on_disk(other, prompt);
        const double us = gain_us(table, other, n, n_in_memory);
        if (us > best.us) {
            best = (state_on_disk){.from = other, .n = n, .us = us};
        }
    }
    return best;
}

/* Returns how many of the prompt's tokens the branch `b` itself provides, without a copy. Most prompts continue their
 * branch. For these prompts, this number is enough to decide that reading a state from disk would not be
 * faster. */
static uint32_t n_in_place(const branch *b, const branch_prompt *prompt)
{
    if (b->record.state == LLM_STATE_TORN) {
        return 0;
    }
    const resume_source own = branch_source(b);
    const uint32_t n = resume_common_prefix(own.tokens, own.n_tokens, prompt->tokens, prompt->n_tokens);
    return n == own.n_tokens || n >= own.truncate_floor ? n : 0;
}

/* Begins to read the state, unless the read has already begun. Returns false if too many bytes are in flight. */
static bool begin_reading(branch_table *table, const state_on_disk *best)
{
    parked *at = &best->from->parked;
    if (at->where == PARKED_ON_DISK) {
        if (!table_read_file(table, best->from)) {
            return false;
        }
        session_table_count(table->shared.session_table, LLM_COUNTER_PARKED_FETCHED, 1);
    }
    at->n_lend_tokens = best->n > at->n_lend_tokens ? best->n : at->n_lend_tokens;
    return true;
}

fetch resuming_fetch(branch_table *table, const branch *b, const branch_prompt *prompt)
{
    uint32_t n_in_memory = n_in_place(b, prompt);
    state_on_disk best = best_on_disk(table, b, prompt, n_in_memory);
    if (best.from != NULL) {
        resuming_sources sources;
        gather(table, b->owner, b, prompt->tokens, prompt->n_tokens, &sources);
        n_in_memory = decide(b, prompt, false, &sources).n_keep;
        best = best_on_disk(table, b, prompt, n_in_memory);
    }
    if (best.from == NULL || !begin_reading(table, &best)) {
        return (fetch){.reading = 0};
    }
    return (fetch){.reading = best.from->parked.reading,
                   .wait_us_max = copy_cost_wait_us_max(&table->pace, best.n - n_in_memory)};
}

/* ---- what is known ---- */

/* Describes the state of a branch that may have no slot yet. */
static resume_source own_source(const branch *b)
{
    if (b->slot != BRANCH_NO_SLOT) {
        return branch_source(b);
    }
    resume_source source = parked_source(b->shared->model, b);
    source.n_tokens = b->parked.where != PARKED_NOWHERE ? n_known_of(b) : 0;
    source.n_cost = 0;
    return source;
}

uint32_t resuming_known(branch_table *table, uint32_t owner, const branch *b, const branch_prompt *prompt)
{
    resuming_sources sources;
    gather(table, owner, b, prompt->tokens, prompt->n_tokens, &sources);
    return resume_decide(&(resume_input){
                             .prompt = prompt->tokens,
                             .n_prompt = prompt->n_tokens,
                             .own = b != NULL ? own_source(b) : (resume_source){.n_tokens = 0},
                             .own_logits_at = b != NULL ? b->logits_at : 0,
                             .torn = b != NULL && b->record.state == LLM_STATE_TORN,
                             .donors = sources.donors,
                             .n_donors = sources.n_donors,
                             .checkpoints = sources.checkpoints,
                             .n_checkpoints = sources.n_checkpoints,
                         })
        .n_keep;
}

/* ---- resuming ---- */

/* Returns a plan that prefills everything. Used for a branch that is empty because the model refused an earlier
 * plan. */
static resume_plan refill(int32_t diverged_at)
{
    return (resume_plan){.reason = LLM_REASON_TORN, .diverged_at = diverged_at, .donor = -1, .checkpoint = -1};
}

/* Decides on a plan and carries it out. This fails if the model has too few free KV cells. Then parks an idle branch
 * and tries again with a new plan, which may use the parked state, too. */
static resume_plan settle(branch_table *table, branch *b, const branch_prompt *prompt, bool cold,
                          resuming_sources *sources)
{
    enum { TRIES = 3 };
    int32_t diverged_at = -1;
    for (int i = 0; i < TRIES; i++) {
        gather(table, b->owner, b, prompt->tokens, prompt->n_tokens, sources);
        const resume_plan plan = decide(b, prompt, cold, sources);
        if (apply(b, &plan, prompt->tokens, sources)) {
            return plan;
        }
        diverged_at = i == 0 ? plan.diverged_at : diverged_at;
        if (!table_free_cells(table, b)) {
            break;
        }
    }
    return refill(diverged_at);
}

resume_plan resuming_begin(branch_table *table, branch *b, const branch_prompt *prompt, bool cold, const float **logits)
{
    resuming_sources sources;
    if (!cold) {
        (void)table_keep_branch(table, b, prompt);
    }
    const resume_plan plan = settle(table, b, prompt, cold, &sources);
    *logits = NULL;
    if (plan.has_logits) {
        *logits = plan.checkpoint >= 0 ? sources.checkpoint_entries[plan.checkpoint]->logits : b->logits;
    }
    branch_begin(b, &plan, prompt->n_tokens);
    return plan;
}

bool resuming_fork(branch_table *table, const branch *from, branch *to, uint32_t at)
{
    const uint32_t n = branch_n_tokens(from);
    const uint32_t n_fork = at < n ? at : n;
    resuming_sources sources;
    const int32_t *tokens = branch_tokens(from);
    gather(table, to->owner, to, tokens, n_fork, &sources);
    const resume_plan plan = resume_decide(&(resume_input){
        .prompt = tokens,
        .n_prompt = n_fork,
        .own = branch_source(to),
        .donors = sources.donors,
        .n_donors = sources.n_donors,
        .checkpoints = sources.checkpoints,
        .n_checkpoints = sources.n_checkpoints,
        .may_keep_all = true,
    });
    /* a plan keeps nothing if copying costs more than prefilling. The caller then copies the state with table_copy */
    const bool is_nothing = plan.n_keep == 0 && n_fork > 0 && from != to;
    return !is_nothing && apply(to, &plan, tokens, &sources);
}
