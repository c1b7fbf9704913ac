#include "engine/drafting.h"

#include <string.h>

void drafting_close(drafting *d)
{
    lookup_close(&d->lookup);
}

static void find_in_text(drafting *d, const branch *b, int32_t next_token, uint32_t n_max)
{
    const uint32_t n = branch_n_tokens(b);
    if (d->lookup.n_places == 0 && !lookup_open(&d->lookup, n)) {
        return; /* without memory for the index, there are no such drafts */
    }
    d->source = DRAFT_LOOKUP;
    d->n_found = lookup_find(&d->lookup, branch_tokens(b), n, next_token, d->tokens, n_max, &d->n_matched);
}

static void find_in_grammar(drafting *d, sampler *s, uint32_t n_max)
{
    int32_t tokens[DRAFT_TOKENS_MAX];
    const uint32_t n = sampler_guess(s, tokens, n_max);
    if (draft_expected(&d->rates[DRAFT_GRAMMAR], DRAFT_FROM_GRAMMAR, n) >
        draft_expected(&d->rates[DRAFT_LOOKUP], d->n_matched, d->n_found)) {
        d->source = DRAFT_GRAMMAR;
        d->n_found = n;
        d->n_matched = DRAFT_FROM_GRAMMAR;
        memcpy(d->tokens, tokens, n * sizeof *tokens);
    }
}

void drafting_find(drafting *d, const branch *b, sampler *s, int32_t next_token, uint32_t n_max)
{
    drafting_drop(d);
    d->removal_us = 0;
    d->removal = MODEL_OK;
    if (n_max > 0) {
        const uint32_t n_most = n_max < DRAFT_TOKENS_MAX ? n_max : DRAFT_TOKENS_MAX;
        find_in_text(d, b, next_token, n_most);
        find_in_grammar(d, s, n_most);
    }
}

draft_candidate drafting_candidate(const drafting *d)
{
    return (draft_candidate){d->n_found, d->n_matched, &d->rates[d->source]};
}

void drafting_drop(drafting *d)
{
    d->n_found = d->n_taken = d->n_right = 0;
}

void drafting_take(drafting *d, uint32_t n)
{
    d->n_taken = n;
}

bool drafting_accept(drafting *d, int32_t picked)
{
    if (d->n_right == d->n_taken || picked != d->tokens[d->n_right]) {
        return false;
    }
    d->n_right++;
    d->n_accepted[d->source]++;
    return true;
}

void drafting_learn(drafting *d, int32_t picked)
{
    draft_rates *rates = &d->rates[d->source];
    d->n_drafted[d->source] += d->n_taken;
    for (uint32_t i = 0; i < d->n_right; i++) {
        draft_learn_rate(rates, d->n_matched + i, true);
    }
    /* The token after the accepted ones is compared with the draft even if no call has verified it. */
    if (d->n_right < d->n_found) {
        draft_learn_rate(rates, d->n_matched + d->n_right, picked == d->tokens[d->n_right]);
    }
    drafting_drop(d);
}
