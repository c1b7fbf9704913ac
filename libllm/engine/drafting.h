/* drafting.h: the drafts of one request: where they come from, and how often they were right (draft.h, lookup.h). Owned
 * by the decode thread.
 *
 * Drafts never change the text. The sampler picks each token from the logits after the tokens before it, in order, as
 * without drafts. A draft token only decides whether the logits after it are known already. */
#ifndef LLM_DRAFTING_H
#define LLM_DRAFTING_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/draft.h"
#include "policy/lookup.h"
#include "sessions/branch.h"

typedef struct drafting {
    lookup lookup; /* owned; opened when the request decodes */
    draft_rates rates;
    int32_t tokens[DRAFT_TOKENS_MAX]; /* draft for the current step */
    uint32_t n_found;                 /* tokens of this draft */
    uint32_t n_matched;               /* length of the match before them */
    uint32_t n_taken;                 /* draft tokens in the current or last model call */
    uint32_t n_right;                 /* accepted ones of these */
    uint32_t n_drafted, n_accepted;   /* sums over the request's steps */
} drafting;

void drafting_close(drafting *d);

/* Finds a draft of at most n_max tokens for the tokens after next_token, which the branch consumes in this step. */
void drafting_find(drafting *d, const branch *b, int32_t next_token, uint32_t n_max);
void drafting_take(drafting *d, uint32_t n); /* the model call of this step verifies the first n tokens of the draft */

/* Returns whether the picked token is the next draft token that the last model call has verified. Counts the token as
 * accepted then. */
bool drafting_accept(drafting *d, int32_t picked);
/* Called when the last token of a step was picked: learns how good the draft was. `picked` is -1 if it is not known. */
void drafting_learn(drafting *d, int32_t picked);

#endif
