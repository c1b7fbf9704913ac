/* places_files.c: what of a session is written to its files, and that they go. */
#include <stdlib.h>
#include <string.h>

#include "policy/cuts.h"
#include "sessions/places.h"

/* ---- describing ---- */

bool places_describe(const session *s, session_file *out)
{
    const uint32_t n_tokens = session_n_tokens(s);
    *out = (session_file){.id = s->id,
                          .owner = s->owner,
                          .is_pinned = s->record.is_pinned == LLM_PIN_ANCHORED,
                          .used_ms = s->record.used_ms};
    memcpy(out->name, s->name, sizeof out->name);
    out->tokens = malloc(n_tokens > 0 ? n_tokens * sizeof *out->tokens : 1);
    if (out->tokens == NULL) {
        return false;
    }
    memcpy(out->tokens, session_tokens(s), n_tokens * sizeof *out->tokens);
    out->n_tokens = n_tokens;
    return true;
}

static void add_part(places *p, state_file *out, const state_part *part)
{
    ledger_hold(p->ground.ledger, LEDGER_IN_FLIGHT, part->held);
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

/* The longest first. Just behind another one a checkpoint saves few tokens and takes as many bytes. What stands alone is
 * written nevertheless, and the end of the last prompt, which may be asked again: where there are logits. */
static void choose_written(checkpoint *const *matching, uint32_t n, bool *is_written)
{
    uint32_t last_k = 0, last_end = 0;
    while (last_end < n && matching[last_end]->n_logits == 0) {
        last_end++;
    }
    for (uint32_t i = n; i-- > 0;) {
        const checkpoint *c = matching[i];
        is_written[i] = i == last_end || c->is_whole || c->k - last_k > CUTS_NEAR_TOKENS;
        last_k = is_written[i] ? c->k : last_k;
    }
}

void places_describe_state(places *p, const session *s, blob *state, uint32_t k, state_file *out)
{
    enum { MATCHING_MAX = 2 * SNAPSHOT_PARTS_MAX }; /* half of them may lie just behind others */
    const int32_t *tokens = session_tokens(s);
    *out = (state_file){.k = k, .hash = token_hash_of(0, tokens, k)};
    add_part(p, out, &(state_part){.k = k, .is_whole = true, .n_state_bytes = state->n_bytes, .held = state});
    checkpoint *matching[MATCHING_MAX];
    bool is_written[MATCHING_MAX];
    const uint32_t n = checkpoint_match(p->ground.checkpoints, s->owner, tokens, k, k, matching, MATCHING_MAX);
    choose_written(matching, n, is_written);
    for (uint32_t i = 0; i < n && out->n_parts < SNAPSHOT_PARTS_MAX; i++) {
        const state_part part = part_of(matching[i]);
        if (is_written[i] && part.held->n_bytes <= ledger_room(p->ground.ledger)) {
            add_part(p, out, &part);
        }
    }
}

bool places_may_write(const places *p, size_t n_bytes)
{
    return p->store != NULL && store_n_jobs(p->store) < STORE_JOBS_MAX && ledger_admits(p->ground.ledger, n_bytes);
}

/* ---- session files ---- */

store_job *places_change_of(places *p, session *s, change_verb verb)
{
    store_job *job = p->store != NULL ? store_job_new(STORE_CHANGE, 1) : NULL;
    if (job == NULL) {
        return NULL;
    }
    store_change *c = &job->changes[0];
    c->verb = verb;
    c->file.id = s->id;
    c->file.owner = s->owner;
    memcpy(c->file.name, s->name, sizeof c->file.name);
    if ((verb == CHANGE_WRITE || verb == CHANGE_RESET) && !places_describe(s, &c->file)) {
        store_job_free(job);
        return NULL;
    }
    memcpy(job->name, s->name, sizeof job->name);
    s->has_file = verb != CHANGE_REMOVE;
    return job;
}

bool places_write_file(places *p, session *s)
{
    store_job *job = places_change_of(p, s, CHANGE_WRITE);
    if (job != NULL) {
        store_push(p->store, job);
    }
    return job != NULL;
}

void places_remove_file(places *p, session *s)
{
    if (s->has_file && p->store != NULL) {
        places_remove_id(p, s->id, s->owner, s->name);
        s->has_file = false;
    }
}

void places_reset_file(places *p, session *s)
{
    if (s->record.is_pinned != LLM_PIN_ANCHORED || p->store == NULL) {
        places_remove_file(p, s);
        return;
    }
    store_job *job = places_change_of(p, s, CHANGE_RESET);
    if (job != NULL) {
        places_attach(p, job);
    } else {
        places_remove_file(p, s);
    }
}
