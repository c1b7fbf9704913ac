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
    uint32_t n_matched = 0;
    d->source = DRAFT_LOOKUP;
    d->n_found = lookup_find(&d->lookup, branch_tokens(b), n, next_token, d->tokens, n_max, &n_matched);
    for (uint32_t i = 0; i < d->n_found; i++) {
        d->classes[i] = draft_class_of_match(n_matched + i);
    }
}

double drafting_expected(const drafting *d)
{
    return draft_expected(&d->rates[d->source], d->classes, d->n_found);
}

void drafting_offer(drafting *d, draft_source source, const int32_t *tokens, const uint8_t *classes, uint32_t n)
{
    if (draft_expected(&d->rates[source], classes, n) > drafting_expected(d)) {
        d->source = source;
        d->n_found = n;
        memcpy(d->tokens, tokens, n * sizeof *tokens);
        memcpy(d->classes, classes, n * sizeof *classes);
    }
}

static void find_in_grammar(drafting *d, sampler *s, uint32_t n_max)
{
    int32_t tokens[DRAFT_TOKENS_MAX];
    uint8_t classes[DRAFT_TOKENS_MAX];
    memset(classes, DRAFT_CLASS_SURE, sizeof classes);
    drafting_offer(d, DRAFT_GRAMMAR, tokens, classes, sampler_guess(s, tokens, n_max));
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
    return (draft_candidate){d->n_found, d->classes, &d->rates[d->source]};
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
        draft_learn_rate(rates, d->classes[i], true);
    }
    /* The token after the accepted ones is compared with the draft even if no call has verified it. */
    if (d->n_right < d->n_found) {
        draft_learn_rate(rates, d->classes[d->n_right], picked == d->tokens[d->n_right]);
    }
    drafting_drop(d);
}
