#include "warm.h"

#include <assert.h>
#include <string.h>

enum { CHECKPOINTS_LOOKED_AT = 64 };

/* What a prompt may resume from, beside the session itself. */
typedef struct warm_sources {
    uint32_t n_donors;
    const session *donor_sessions[LLM_SEQUENCES_MAX];
    resume_source donors[LLM_SEQUENCES_MAX];
    uint32_t n_checkpoints;
    checkpoint *checkpoint_entries[CHECKPOINTS_LOOKED_AT];
    resume_checkpoint checkpoints[CHECKPOINTS_LOOKED_AT];
} warm_sources;

static bool can_give(const session *donor, const session *s)
{
    return donor != s && donor->is_open && donor->seat != SESSION_NO_SEAT && donor->owner == s->owner &&
           donor->record.state != LLM_STATE_TORN && session_n_tokens(donor) > 0;
}

/* A copy that shares no cells is made through a saved state, and that of a sliding window keeps the window only: it can
 * be taken whole, or with a checkpoint, but not cut back. */
static resume_source donor_source(const model *m, const session *donor)
{
    resume_source source = session_source(donor);
    const bool is_narrowed = m->info.memory == LLM_MEMORY_WINDOW && !m->info.shares_cells;
    if (is_narrowed && source.n_tokens > m->info.n_window) {
        source.rewind_floor = source.n_tokens;
    }
    return source;
}

static void gather(places *p, const session *s, const int32_t *prompt, uint32_t n_prompt, warm_sources *out)
{
    out->n_donors = 0;
    for (uint32_t i = 0; i < p->n_slots && out->n_donors < LLM_SEQUENCES_MAX; i++) {
        const session *donor = &p->sessions[i];
        if (can_give(donor, s)) {
            out->donor_sessions[out->n_donors] = donor;
            out->donors[out->n_donors++] = donor_source(p->ground.model, donor);
        }
    }
    out->n_checkpoints = checkpoint_match(p->ground.checkpoints, s->owner, prompt, n_prompt, out->checkpoint_entries,
                                          CHECKPOINTS_LOOKED_AT);
    for (uint32_t i = 0; i < out->n_checkpoints; i++) {
        const checkpoint *c = out->checkpoint_entries[i];
        out->checkpoints[i] = (resume_checkpoint){.k = c->k, .is_whole = c->is_whole, .has_logits = c->logits != NULL};
    }
}

static resume_plan decide(const session *s, const int32_t *prompt, uint32_t n_prompt, bool cold,
                          const warm_sources *sources)
{
    return resume_decide(&(resume_input){
        .prompt = prompt,
        .n_prompt = n_prompt,
        .own = session_source(s),
        .own_logits_at = s->logits_at,
        .torn = s->record.state == LLM_STATE_TORN,
        .cold = cold,
        .was_parked = s->was_parked,
        .donors = sources->donors,
        .n_donors = sources->n_donors,
        .checkpoints = sources->checkpoints,
        .n_checkpoints = sources->n_checkpoints,
    });
}

/* Acts on the plan. Should the model refuse, the session starts over: in doubt, refill. */
static resume_plan apply(session *s, resume_plan plan, const int32_t *prompt, const warm_sources *sources)
{
    const session *donor = plan.donor >= 0 ? sources->donor_sessions[plan.donor] : NULL;
    checkpoint *from = plan.checkpoint >= 0 ? sources->checkpoint_entries[plan.checkpoint] : NULL;
    if (session_apply(s, &plan, prompt, donor, from)) {
        return plan;
    }
    return (resume_plan){
        .reason = LLM_REASON_TORN, .diverged_at = plan.diverged_at, .donor = -1, .checkpoint = -1};
}

resume_plan warm_begin(places *p, session *s, const int32_t *prompt, uint32_t n_prompt, bool cold, const float **logits)
{
    warm_sources sources;
    gather(p, s, prompt, n_prompt, &sources);
    const resume_plan plan = apply(s, decide(s, prompt, n_prompt, cold, &sources), prompt, &sources);
    *logits = NULL;
    if (plan.has_logits) {
        *logits = plan.checkpoint >= 0 ? sources.checkpoint_entries[plan.checkpoint]->logits : s->logits;
    }
    session_begin(s, &plan, n_prompt);
    return plan;
}

uint32_t warm_fork(places *p, const session *from, session *to, uint32_t at)
{
    const uint32_t n = session_n_tokens(from);
    const uint32_t wanted = at < n ? at : n;
    if (wanted == 0) {
        return 0;
    }
    warm_sources sources;
    const int32_t *tokens = session_tokens(from);
    gather(p, to, tokens, wanted, &sources);
    resume_plan plan = resume_decide(&(resume_input){
        .prompt = tokens,
        .n_prompt = wanted,
        .own = session_source(to),
        .donors = sources.donors,
        .n_donors = sources.n_donors,
        .checkpoints = sources.checkpoints,
        .n_checkpoints = sources.n_checkpoints,
        .may_keep_all = true,
    });
    plan = apply(to, plan, tokens, &sources);
    return session_n_tokens(to);
}
