/* drafting.h: the drafts of one request: where they come from, and how often they were right (draft.h). A draft is text
 * that the branch already contains (lookup.h), text that the answer's grammar requires (grammar_guess.cpp), or a guess
 * of a draft model (draft_model.h). Owned by the decode thread.
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
#include "text/sampling/sampler.h"

typedef enum draft_source { DRAFT_LOOKUP, DRAFT_GRAMMAR, DRAFT_MODEL, DRAFT_SOURCES } draft_source;

typedef struct drafting {
    lookup lookup; /* owned; opened when the request decodes */
    draft_rates rates[DRAFT_SOURCES];
    int32_t tokens[DRAFT_TOKENS_MAX];  /* draft for the current step */
    draft_source source;               /* where this draft comes from */
    uint32_t n_found;                  /* tokens of this draft */
    uint8_t classes[DRAFT_TOKENS_MAX]; /* class of each of them (draft.h) */
    uint32_t n_taken;                  /* draft tokens in the current or last model call */
    uint32_t n_right;                  /* accepted ones of these */
    uint64_t removal_us;               /* time in which the rest of this draft was removed; 0 if nothing was */
    model_result removal;              /* result of this removal; MODEL_OK if nothing was removed */
    uint32_t n_drafted[DRAFT_SOURCES], n_accepted[DRAFT_SOURCES]; /* sums over the request's steps */
} drafting;

void drafting_close(drafting *d);

/* Finds a draft of at most n_max tokens for the tokens after next_token, which the branch consumes in this step, and
 * which the sampler has accepted: in the text or in the grammar, whichever has more tokens that are expected to be
 * accepted. */
void drafting_find(drafting *d, const branch *b, sampler *s, int32_t next_token, uint32_t n_max);
/* Takes the n tokens as the draft if more of them are expected to be accepted than of the draft found so far. */
void drafting_offer(drafting *d, draft_source source, const int32_t *tokens, const uint8_t *classes, uint32_t n);
/* Returns how many tokens of the draft found so far are expected to be accepted. */
double drafting_expected(const drafting *d);
draft_candidate drafting_candidate(const drafting *d);
void drafting_take(drafting *d, uint32_t n); /* the model call of this step verifies the first n tokens of the draft */

void drafting_drop(drafting *d); /* the model call has failed, so that nothing is known about the draft */

/* Returns whether the picked token is the next draft token that the last model call has verified. Counts the token as
 * accepted then. */
bool drafting_accept(drafting *d, int32_t picked);
/* Called when no more tokens of the draft are accepted: learns how good the draft was. `picked` is the token after the
 * accepted ones. It is -1 if the step has not picked it, so that no draft could have helped. */
void drafting_learn(drafting *d, int32_t picked);

#endif
