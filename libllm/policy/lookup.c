#include "policy/lookup.h"

#include <stdlib.h>

/* Short matches are frequent, but predict badly. Long matches predict well. If only short runs were indexed, a later
 * run with the same few tokens would replace the place of a long match. So there is a table of short runs and a table
 * of long runs. */
enum { LOOKUP_INDEXES = 2, PLACES_MIN = 1024 };
static const uint32_t RUN[LOOKUP_INDEXES] = {LOOKUP_MATCH_MIN, LOOKUP_MATCH_LONG};

bool lookup_open(lookup *l, uint32_t n_tokens)
{
    const uint32_t n = n_tokens < LOOKUP_TOKENS_MAX ? n_tokens : LOOKUP_TOKENS_MAX;
    uint32_t n_places = PLACES_MIN;
    while (n_places < n) {
        n_places *= 2;
    }
    *l = (lookup){
        .places = calloc((size_t)LOOKUP_INDEXES * n_places, sizeof *l->places),
        .n_places = n_places,
        .n_indexed = n_tokens - n,
    };
    if (l->places == NULL) {
        l->n_places = 0;
    }
    return l->places != NULL;
}

void lookup_close(lookup *l)
{
    free(l->places);
    *l = (lookup){.places = NULL};
}

size_t lookup_bytes(const lookup *l)
{
    return (size_t)LOOKUP_INDEXES * l->n_places * sizeof *l->places;
}

/* Returns the entry for a run whose last token is `last`. The other tokens of the run stand before `end`. */
static uint32_t *place_of(const lookup *l, uint32_t index, const int32_t *end, int32_t last)
{
    uint64_t hash = (uint32_t)last;
    for (uint32_t i = 1; i < RUN[index]; i++) {
        hash = (hash ^ (uint32_t)end[-(int32_t)i]) * 0x9e3779b97f4a7c15u;
    }
    return &l->places[index * l->n_places + (uint32_t)(hash >> 32) % l->n_places];
}

/* Copies the tokens from `place` on to the draft. At the end of the sequence, continues with `next`, and then with the
 * beginning of the draft. So a short text that repeats gives a draft of n_max tokens. */
static uint32_t continue_from(uint32_t place, const int32_t *tokens, uint32_t n, int32_t next, int32_t *draft,
                              uint32_t n_max)
{
    for (uint32_t i = 0; i < n_max; i++) {
        const uint32_t at = place + i;
        draft[i] = at < n ? tokens[at] : at == n ? next : draft[at - n - 1];
    }
    return n_max;
}

static void add_tokens(lookup *l, const int32_t *tokens, uint32_t n)
{
    for (uint32_t i = l->n_indexed; i < n; i++) {
        for (uint32_t index = 0; index < LOOKUP_INDEXES; index++) {
            if (i + 1 >= RUN[index]) {
                *place_of(l, index, tokens + i, tokens[i]) = i + 1;
            }
        }
    }
    l->n_indexed = n;
}

/* Returns how many tokens before the place are equal to the last tokens of the sequence, `next` included. */
static uint32_t match_at(const int32_t *tokens, uint32_t n, int32_t next, uint32_t place)
{
    if (place == 0 || place > n || tokens[place - 1] != next) {
        return 0;
    }
    uint32_t n_equal = 1;
    while (n_equal < place && n_equal <= n && n_equal < LOOKUP_MATCH_MAX &&
           tokens[place - 1 - n_equal] == tokens[n - n_equal]) {
        n_equal++;
    }
    return n_equal;
}

uint32_t lookup_find(lookup *l, const int32_t *tokens, uint32_t n, int32_t next, int32_t *draft, uint32_t n_max,
                     uint32_t *n_matched)
{
    *n_matched = 0;
    if (l->n_places == 0 || n < LOOKUP_MATCH_MIN) {
        return 0;
    }
    l->n_indexed = l->n_indexed < n ? l->n_indexed : n; /* the sequence may have been truncated */
    add_tokens(l, tokens, n);
    /* The latest match continues if the new tokens of the sequence equal the tokens after the match. */
    const uint32_t candidates[] = {
        l->last != 0 && n >= l->n_last ? l->last + (n - l->n_last) : 0,
        n + 1 >= LOOKUP_MATCH_LONG ? *place_of(l, 1, tokens + n, next) : 0,
        *place_of(l, 0, tokens + n, next),
    };
    l->last = 0;
    for (uint32_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
        const uint32_t n_equal = match_at(tokens, n, next, candidates[i]);
        if (n_equal >= LOOKUP_MATCH_MIN && n_equal > *n_matched) {
            *n_matched = n_equal;
            l->last = candidates[i];
            l->n_last = n;
        }
    }
    return l->last != 0 ? continue_from(l->last, tokens, n, next, draft, n_max) : 0;
}
