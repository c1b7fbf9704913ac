/* resuming.h: brings a branch to the longest provable prefix of a prompt: gathers what there is to resume from, has
 * resume.h decide, and acts. Owned by the decode thread. */
#ifndef LLM_RESUMING_H
#define LLM_RESUMING_H

#include <stdbool.h>
#include <stdint.h>

#include "sessions/branch_table.h"
#include "policy/resume.h"

/* The branch `b`, which has a slot, begins with this prompt. Returns the plan as it happened; where it has_logits, *logits points to
 * n_vocab kept ones (read-only, valid until the next call). */
resume_plan resuming_begin(branch_table *table, branch *b, const branch_prompt *prompt, bool cold,
                           const float **logits);

/* What is read from the disk for a prompt. */
typedef struct fetch {
    uint64_t reading;   /* table_is_reading; 0: nothing */
    double wait_us_max; /* longer it is not waited for */
} fetch;

/* Another branch of the owner may have a state on the disk with so much more of the prompt than there is at hand for
 * the branch `b`, which has a slot, that it is sooner read than the tokens are: then its reading begins, or has begun before. Behind it
 * resuming_begin finds it, until table_spill_on. */
fetch resuming_fetch(branch_table *table, const branch *b, const branch_prompt *prompt);

/* A copy of `from`, with or without a slot, in the empty branch `to`, which has one: of its first `at` tokens, or as close below as
 * its memory and the checkpoints allow. False: nothing would be left of it, or the model refused, for want of cells, say;
 * `to` is empty. */
bool resuming_fork(branch_table *table, const branch *from, branch *to, uint32_t at);

#endif
