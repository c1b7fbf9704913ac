#include "engine/drafting.h"

void drafting_close(drafting *d)
{
    lookup_close(&d->lookup);
}

void drafting_find(drafting *d, const branch *b, int32_t next_token, uint32_t n_max)
{
    const uint32_t n = branch_n_tokens(b);
    d->n_found = d->n_taken = d->n_right = 0;
    if (n_max == 0 || (d->lookup.n_places == 0 && !lookup_open(&d->lookup, n))) {
        return; /* without memory for the index, there are no drafts */
    }
    d->n_found = lookup_find(&d->lookup, branch_tokens(b), n, next_token, d->tokens,
                             n_max < DRAFT_TOKENS_MAX ? n_max : DRAFT_TOKENS_MAX, &d->n_matched);
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
    d->n_accepted++;
    return true;
}

void drafting_learn(drafting *d, int32_t picked)
{
    d->n_drafted += d->n_taken;
    for (uint32_t i = 0; i < d->n_right; i++) {
        draft_learn_rate(&d->rates, d->n_matched + i, true);
    }
    /* The token after the accepted ones is compared with the draft even if no call has verified it. */
    if (picked >= 0 && d->n_right < d->n_found) {
        draft_learn_rate(&d->rates, d->n_matched + d->n_right, picked == d->tokens[d->n_right]);
    }
    d->n_found = d->n_taken = d->n_right = 0;
}
