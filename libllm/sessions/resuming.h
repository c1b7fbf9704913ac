/* resuming.h: brings a branch to the longest provable prefix of a prompt: gathers the sources, lets resume.h decide,
 * and acts. Owned by the decode thread. */
#ifndef LLM_RESUMING_H
#define LLM_RESUMING_H

#include <stdbool.h>
#include <stdint.h>

#include "sessions/branch_table.h"
#include "policy/resume.h"

/* Begins the prompt in the branch `b`, which has a slot. Returns the plan that was carried out; if it has_logits,
 * *logits points to n_vocab kept ones (read-only, valid until the next call). */
resume_plan resuming_begin(branch_table *table, branch *b, const branch_prompt *prompt, bool cold,
                           const float **logits);

/* A state that is being read from disk for a prompt. */
typedef struct fetch {
    uint64_t reading;   /* number of the read (table_is_reading); 0: none */
    double wait_us_max; /* limit on the wait for it */
} fetch;

/* Considers states of other branches of the owner on disk, for the branch `b`, which has a slot. If reading one is
 * faster than prefilling the tokens that it has more than all sources in memory, its read begins, unless it has begun
 * before. Afterwards resuming_begin finds the state, until table_spill_on. */
fetch resuming_fetch(branch_table *table, const branch *b, const branch_prompt *prompt);

/* Fills the empty branch `to`, which has a slot, with the first `at` tokens of `from` (with or without a slot), or as
 * close below as its memory and the checkpoints allow. Returns false if nothing would be left, or the model refused,
 * for example for want of cells; then `to` is empty. */
bool resuming_fork(branch_table *table, const branch *from, branch *to, uint32_t at);

#endif
