/* table_files.c: chooses which tokens, states and checkpoints of a branch are written to files. Also removes files. */
#include <stdlib.h>
#include <string.h>

#include "policy/checkpoint_points.h"
#include "sessions/branch_table.h"

/* ---- describing ---- */

bool table_describe(const branch *b, branch_file *out)
{
    const uint32_t n_tokens = branch_n_tokens(b);
    *out = (branch_file){.id = b->id,
                         .owner = b->owner,
                         .is_pinned = b->record.is_pinned == LLM_PIN_ANCHORED,
                         .opened_ms = b->record.opened_ms,
                         .used_ms = b->record.used_ms};
    memcpy(out->name, b->name, sizeof out->name);
    out->tokens = malloc(n_tokens > 0 ? n_tokens * sizeof *out->tokens : 1);
    if (out->tokens == NULL) {
        return false;
    }
    memcpy(out->tokens, branch_tokens(b), n_tokens * sizeof *out->tokens);
    out->n_tokens = n_tokens;
    return true;
}

/* limit on the checkpoints considered for a file. It is twice the number of parts that a file can have, because half of
 * the checkpoints may be skipped as too close to others */
enum { MATCHING_MAX = 2 * SNAPSHOT_PARTS_MAX };

static void add_part(branch_table *table, state_file *out, const state_part *part)
{
    ledger_hold(table->shared.ledger, LEDGER_IN_FLIGHT, part->held);
    out->parts[out->n_parts++] = *part;
}

static state_part part_of(const checkpoint *c)
{
    return (state_part){.k = c->k,
                        .is_whole = c->is_whole,
                        .n_state_bytes = c->n_state_bytes,
                        .n_logits = c->n_logits,
                        .held = c->held};
}

static void add_checkpoint(branch_table *table, state_file *out, const checkpoint *c, size_t n_bytes_max)
{
    const state_part part = part_of(c);
    if (out->n_parts < SNAPSHOT_PARTS_MAX && part.held->n_bytes <= n_bytes_max) {
        add_part(table, out, &part);
    }
}

/* Chooses the checkpoints to be written, beginning with the longest. The longest checkpoint with logits is at the end
 * of the last prompt. It is always written, because the client may send the same prompt again (regenerate). Writing it
 * takes no more memory: the checkpoint store holds it anyway.
 *
 * Another checkpoint is written if it is whole. Otherwise it must be more than CHECKPOINT_NEAR_TOKENS longer than the
 * next shorter checkpoint that is written. A checkpoint that is closer to a shorter one would save few tokens, but take
 * as many bytes as any other. */
static void add_checkpoints(branch_table *table, state_file *out, checkpoint *const *longest_first, uint32_t n)
{
    uint32_t last_end = 0;
    while (last_end < n && longest_first[last_end]->n_logits == 0) {
        last_end++;
    }
    if (last_end < n) {
        add_checkpoint(table, out, longest_first[last_end], SIZE_MAX);
    }
    uint32_t n_written = 0, last_k = 0;
    const checkpoint *written[MATCHING_MAX];
    for (uint32_t i = n; i-- > 0;) {
        const checkpoint *c = longest_first[i];
        if (i == last_end || c->is_whole || c->k - last_k > CHECKPOINT_NEAR_TOKENS) {
            last_k = c->k;
            written[n_written] = c;
            n_written += i != last_end;
        }
    }
    while (n_written-- > 0) {
        add_checkpoint(table, out, written[n_written], ledger_room(table->shared.ledger));
    }
}

void table_describe_state(branch_table *table, const branch *b, blob *state, uint32_t k, state_file *out)
{
    const int32_t *tokens = branch_tokens(b);
    *out = (state_file){.k = k, .hash = token_hash_of(0, tokens, k)};
    add_part(table, out, &(state_part){.k = k, .is_whole = true, .n_state_bytes = state->n_bytes, .held = state});
    checkpoint *matching[MATCHING_MAX];
    const uint32_t n = checkpoint_match(table->shared.checkpoints, b->owner, tokens, k, k, matching, MATCHING_MAX);
    add_checkpoints(table, out, matching, n);
}

bool table_write_state(branch_table *table, branch *b, blob *state, uint32_t k, store_job *job)
{
    table_describe_state(table, b, state, k, &job->state);
    const size_t n_bytes = (size_t)state_file_bytes(&job->state);
    if (!table_make_disk_room(table, b, n_bytes)) {
        table_drop_parts(table, &job->state);
        return false;
    }
    table_expect_file(table, b, job, n_bytes);
    store_push(table->store, job);
    return true;
}

bool table_may_write(const branch_table *table, size_t n_bytes)
{
    return table->store != NULL && store_n_jobs(table->store) < STORE_JOBS_MAX &&
           ledger_admits(table->shared.ledger, n_bytes);
}

/* ---- branch files ---- */

store_job *table_change_of(branch_table *table, branch *b, change_verb verb)
{
    store_job *job = table->store != NULL ? store_job_new(STORE_CHANGE, 1) : NULL;
    if (job == NULL) {
        return NULL;
    }
    store_change *c = &job->changes[0];
    c->verb = verb;
    c->file.id = b->id;
    c->file.owner = b->owner;
    memcpy(c->file.name, b->name, sizeof c->file.name);
    if ((verb == CHANGE_WRITE || verb == CHANGE_RESET) && !table_describe(b, &c->file)) {
        store_job_free(job);
        return NULL;
    }
    memcpy(job->name, b->name, sizeof job->name);
    b->has_file = verb != CHANGE_REMOVE;
    return job;
}

bool table_write_file(branch_table *table, branch *b)
{
    store_job *job = table_change_of(table, b, CHANGE_WRITE);
    if (job != NULL) {
        store_push(table->store, job);
    }
    return job != NULL;
}

void table_remove_file(branch_table *table, branch *b)
{
    if (b->has_file && table->store != NULL) {
        table_remove_id(table, b->id, b->owner, b->name);
        b->has_file = false;
        table_file_is_gone(table, b);
    }
}

void table_reset_file(branch_table *table, branch *b)
{
    if (b->record.is_pinned != LLM_PIN_ANCHORED || table->store == NULL) {
        table_remove_file(table, b);
        return;
    }
    store_job *job = table_change_of(table, b, CHANGE_RESET);
    if (job != NULL) {
        table_attach(table, job);
        table_file_is_gone(table, b);
    } else {
        table_remove_file(table, b);
    }
}
