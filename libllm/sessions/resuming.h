/* resuming.h: brings a branch to the longest prefix of a prompt whose state is known: gathers the sources of states,
 * lets resume.h decide, and carries out the plan. Owned by the decode thread. */
#ifndef LLM_RESUMING_H
#define LLM_RESUMING_H

#include <stdbool.h>
#include <stdint.h>

#include "sessions/branch_table.h"
#include "policy/resume.h"

/* Begins the prompt in the branch `b`, which must have a slot. Returns the plan that was carried out. If the plan
 * has_logits, *logits points to the n_vocab logits after the prompt (read-only, valid until the next call); otherwise
 * *logits is NULL. */
resume_plan resuming_begin(branch_table *table, branch *b, const branch_prompt *prompt, bool cold,
                           const float **logits);

/* A state that is being read from disk for a prompt. */
typedef struct fetch {
    uint64_t reading;   /* number of the read (table_is_reading); 0 if no state is read */
    double wait_us_max; /* limit on the wait for the read */
} fetch;

/* Considers reading a state from disk for a prompt of `b`: a state of another branch of the same owner. `b` must have a
 * slot. Begins the read, unless it has already begun, if reading is faster than prefilling the tokens that only this
 * state covers, and no source in memory. After the read, resuming_begin finds the state in memory until the next
 * table_spill_on. */
fetch resuming_fetch(branch_table *table, const branch *b, const branch_prompt *prompt);

/* Fills `to` with the state of the first `at` tokens of `from`, or of as many of them as the model's memory and the
 * checkpoints allow. `to` must have a slot, and be empty or be `from` itself, which is then truncated; `from` may have
 * a slot or not. If no token can be kept or the model refuses, for example because cells are short, returns false and
 * leaves `to` empty. */
bool resuming_fork(branch_table *table, const branch *from, branch *to, uint32_t at);

#endif
