#include "engine/run.h"

#include "sessions/resuming.h"

const float *run_begin(run *r, places *p, session *s, bool cold)
{
    const session_prompt *prompt = &r->claim.prompt;
    const float *logits = NULL;
    r->session = s;
    r->is_decoding = false;
    r->next_token = -1;
    r->plan = resuming_begin(p, s, prompt, cold, &logits);
    cuts_begin(&r->cuts, &r->plan);
    for (uint32_t i = 0; i < prompt->n_tokens; i++) {
        sampler_accept(r->sampler, prompt->tokens[i]);
    }
    return logits;
}

uint32_t run_prefill_left(const run *r)
{
    return r->is_decoding ? 0 : cuts_next(&r->cuts) - session_n_tokens(r->session);
}

uint32_t run_checkpoint_overdue(const run *r, uint32_t checkpoint_every)
{
    const session *s = r->session;
    const uint32_t n_tokens = session_n_tokens(s) + 1;
    return r->is_decoding && session_takes_checkpoints(s) && cuts_is_due(n_tokens, s->checkpoint_at, checkpoint_every)
               ? n_tokens - s->checkpoint_at - checkpoint_every + 1
               : 0;
}

cut run_reach_cut(run *r, const float *logits)
{
    const cut reached = cuts_reached(&r->cuts, session_n_tokens(r->session));
    if (reached != CUT_NONE && logits != NULL) {
        session_keep_logits(r->session, logits);
    }
    return reached;
}

void run_decoding(run *r)
{
    r->is_decoding = true;
    session_decoding(r->session);
}
