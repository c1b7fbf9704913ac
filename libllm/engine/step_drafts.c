/* step_drafts.c: the drafts of a step (step.h): which requests have some, how many tokens the model call verifies, and
 * what the removal of wrong ones costs. */
#include "engine/step.h"

#include <stdio.h>

#include "machine/last_words.h"

bool step_has_drafts(const step *t)
{
    return t->has_drafts && t->model->info.n_drafting > 0;
}

/* Whether the number of requests allows drafts in a call. A request that takes no part in the step, because its token
 * is still being picked, counts for n_drafting: the removal of drafts from recurrent states would delay it. */
static bool can_verify(const step *t)
{
    return t->n_requests + t->n_sampling <= t->model->info.n_drafting && t->n_requests <= DRAFT_REQUESTS_MAX;
}

/* How many draft tokens the request could verify. A slow sampler picks in another thread. The model's logits after a
 * draft token are gone before that thread is done. A checkpoint is saved before the sampler has decided about the
 * draft. The last token of an answer is not consumed. */
static uint32_t n_drafts_max(const step *t, const request *r)
{
    const bool can =
        can_verify(t) && !r->no_drafts && r->is_decoding && r != t->checkpoint && !sampler_is_slow(r->sampler);
    const uint32_t n_left = r->max_tokens - r->n_generated;
    return can && n_left > 1 ? n_left - 1 : 0;
}

/* If the text and the grammar promise at least this many accepted tokens, the draft model is not asked: it costs
 * time. */
static const double EXPECTED_ENOUGH = 1;

/* The draft model computes, too. A crash in it names the session, as one in a step does. */
static void describe_guess(const void *work, char *out, size_t n_bytes)
{
    char session[LAST_WORDS_BYTES_MAX];
    request_describe(work, session, sizeof session);
    snprintf(out, n_bytes, "the draft model, %s", session);
}

/* Asks the draft model, which guesses only while a single request decodes: with several, the calls of the draft model
 * would delay all of them. */
static void ask_draft_model(step *t)
{
    if (t->draft_model == NULL) {
        return;
    }
    t->draft_model->spent_us = 0;
    if (t->n_requests != 1 || t->n_sampling > 0 || !draft_has_costs(&t->draft_costs, 1)) {
        return;
    }
    request *r = t->requests[0];
    drafting *d = &r->drafting;
    const uint32_t n_max = n_drafts_max(t, r);
    t->n_accepted_before = d->n_accepted[DRAFT_MODEL];
    if (n_max == 0 || drafting_expected(d) >= EXPECTED_ENOUGH) {
        return;
    }
    const draft_model_task task = {
        .owner = r->owner,
        .tokens = branch_tokens(r->branch),
        .n_tokens = branch_n_tokens(r->branch),
        .next = r->next_token,
        .n_max = n_max,
        .plain_us = t->draft_costs.plain_us,
    };
    int32_t tokens[DRAFT_TOKENS_MAX];
    uint8_t classes[DRAFT_TOKENS_MAX];
    session_table_gauge(t->session_table, LLM_COUNTER_IN_STEP, 1);
    last_words_working(describe_guess, r);
    const uint32_t n = draft_model_guess(t->draft_model, &task, &d->rates[DRAFT_MODEL], tokens, classes);
    last_words_working(NULL, NULL);
    session_table_gauge(t->session_table, LLM_COUNTER_IN_STEP, 0);
    drafting_offer(d, DRAFT_MODEL, tokens, classes, n);
}

/* Finds drafts for all requests that could verify some, also if none is verified in this step: the guess is compared
 * with the next token all the same. A step that prefills verifies none, since its time is for the prompts. */
void step_plan_drafts(step *t)
{
    draft_candidate candidates[LLM_SEQUENCES_MAX];
    uint32_t n_drafts[LLM_SEQUENCES_MAX];
    for (uint32_t i = 0; i < t->n_requests; i++) {
        request *r = t->requests[i];
        drafting_find(&r->drafting, r->branch, r->sampler, r->next_token, n_drafts_max(t, r));
    }
    ask_draft_model(t);
    for (uint32_t i = 0; i < t->n_requests; i++) {
        candidates[i] = drafting_candidate(&t->requests[i]->drafting);
    }
    const model_info *info = &t->model->info;
    const uint32_t n_batch = info->n_batch - t->n_requests, n_outputs = info->n_outputs_max - t->n_requests;
    const uint32_t n_max = step_has(t, STEP_PREFILL) ? 0 : n_batch < n_outputs ? n_batch : n_outputs;
    draft_plan(candidates, t->n_requests, n_max, &t->draft_costs, n_drafts);
    for (uint32_t i = 0; i < t->n_requests; i++) {
        drafting_take(&t->requests[i]->drafting, n_drafts[i]);
    }
}

bool step_drop_drafts(step *t)
{
    bool has = false;
    for (uint32_t i = 0; i < t->n_requests; i++) {
        has = has || t->requests[i]->drafting.n_taken > 0;
        drafting_take(&t->requests[i]->drafting, 0);
    }
    return has;
}

uint64_t step_learn_removals(step *t)
{
    uint64_t sum_us = 0;
    for (uint32_t i = 0; i < t->n_requests; i++) {
        const uint64_t us = t->is_called[i] ? t->requests[i]->drafting.removal_us : 0;
        if (us > 0) {
            draft_learn_removal(&t->draft_costs, (double)us);
        }
        sum_us += us;
    }
    return sum_us;
}

void step_learn_credit(step *t, double us)
{
    draft_model *d = t->draft_model;
    if (d == NULL) {
        return;
    }
    if (d->spent_us == 0 || t->n_requests != 1) {
        draft_credit_rest(&d->credit);
        return;
    }
    const double plain_us = t->draft_costs.plain_us;
    const drafting *guesses = &t->requests[0]->drafting;
    const uint32_t n_saved = guesses->n_accepted[DRAFT_MODEL] - t->n_accepted_before;
    const double verifying_us = t->n_drafts > 0 && guesses->source == DRAFT_MODEL ? us - plain_us : 0;
    draft_credit_add(&d->credit, n_saved - ((double)d->spent_us + verifying_us) / plain_us);
}
