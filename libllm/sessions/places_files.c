/* places_files.c: what of a session is written to its files, and that they go. */
#include <stdlib.h>
#include <string.h>

#include "policy/checkpoint_points.h"
#include "sessions/places.h"

/* ---- describing ---- */

bool places_describe(const branch *b, branch_file *out)
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

enum { MATCHING_MAX = 2 * SNAPSHOT_PARTS_MAX }; /* half of them may lie just behind others */

static void add_part(places *p, state_file *out, const state_part *part)
{
    ledger_hold(p->shared.ledger, LEDGER_IN_FLIGHT, part->held);
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

static void add_checkpoint(places *p, state_file *out, const checkpoint *c, size_t n_bytes_max)
{
    const state_part part = part_of(c);
    if (out->n_parts < SNAPSHOT_PARTS_MAX && part.held->n_bytes <= n_bytes_max) {
        add_part(p, out, &part);
    }
}

/* The longest first. The end of the last prompt may be asked again: where there are logits. It is written whatever room the
 * state leaves: it is in memory as a checkpoint anyway. Just behind another one a checkpoint saves few tokens and takes as many
 * bytes: of the others only those are written that are farther from the one before, or stand alone. */
static void add_checkpoints(places *p, state_file *out, checkpoint *const *longest_first, uint32_t n)
{
    uint32_t last_end = 0;
    while (last_end < n && longest_first[last_end]->n_logits == 0) {
        last_end++;
    }
    if (last_end < n) {
        add_checkpoint(p, out, longest_first[last_end], SIZE_MAX);
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
        add_checkpoint(p, out, written[n_written], ledger_room(p->shared.ledger));
    }
}

void places_describe_state(places *p, const branch *b, blob *state, uint32_t k, state_file *out)
{
    const int32_t *tokens = branch_tokens(b);
    *out = (state_file){.k = k, .hash = token_hash_of(0, tokens, k)};
    add_part(p, out, &(state_part){.k = k, .is_whole = true, .n_state_bytes = state->n_bytes, .held = state});
    checkpoint *matching[MATCHING_MAX];
    const uint32_t n = checkpoint_match(p->shared.checkpoints, b->owner, tokens, k, k, matching, MATCHING_MAX);
    add_checkpoints(p, out, matching, n);
}

bool places_write_state(places *p, branch *b, blob *state, uint32_t k, store_job *job)
{
    places_describe_state(p, b, state, k, &job->state);
    const size_t n_bytes = (size_t)state_file_bytes(&job->state);
    if (!places_make_disk_room(p, b, n_bytes)) {
        places_drop_parts(p, &job->state);
        return false;
    }
    job->place = b->place;
    job->id = b->id;
    memcpy(job->name, b->name, sizeof job->name);
    job->n_bytes_before = b->n_file_bytes;
    branch_set_file_bytes(b, n_bytes);
    store_push(p->store, job);
    return true;
}

bool places_may_write(const places *p, size_t n_bytes)
{
    return p->store != NULL && store_n_jobs(p->store) < STORE_JOBS_MAX && ledger_admits(p->shared.ledger, n_bytes);
}

/* ---- branch files ---- */

store_job *places_change_of(places *p, branch *b, change_verb verb)
{
    store_job *job = p->store != NULL ? store_job_new(STORE_CHANGE, 1) : NULL;
    if (job == NULL) {
        return NULL;
    }
    store_change *c = &job->changes[0];
    c->verb = verb;
    c->file.id = b->id;
    c->file.owner = b->owner;
    memcpy(c->file.name, b->name, sizeof c->file.name);
    if ((verb == CHANGE_WRITE || verb == CHANGE_RESET) && !places_describe(b, &c->file)) {
        store_job_free(job);
        return NULL;
    }
    memcpy(job->name, b->name, sizeof job->name);
    b->has_file = verb != CHANGE_REMOVE;
    return job;
}

bool places_write_file(places *p, branch *b)
{
    store_job *job = places_change_of(p, b, CHANGE_WRITE);
    if (job != NULL) {
        store_push(p->store, job);
    }
    return job != NULL;
}

void places_remove_file(places *p, branch *b)
{
    if (b->has_file && p->store != NULL) {
        places_remove_id(p, b->id, b->owner, b->name);
        b->has_file = false;
        branch_set_file_bytes(b, 0);
    }
}

void places_reset_file(places *p, branch *b)
{
    if (b->record.is_pinned != LLM_PIN_ANCHORED || p->store == NULL) {
        places_remove_file(p, b);
        return;
    }
    store_job *job = places_change_of(p, b, CHANGE_RESET);
    if (job != NULL) {
        places_attach(p, job);
        branch_set_file_bytes(b, 0);
    } else {
        places_remove_file(p, b);
    }
}
