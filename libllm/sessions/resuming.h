/* resuming.h: begins a prompt in a branch with the known state that saves the most prefill. Gathers the states from
 * which the prompt could resume, lets resume.h choose among these states, and carries out the plan. Owned by the decode
 * thread. */
#ifndef LLM_RESUMING_H
#define LLM_RESUMING_H

#include <stdbool.h>
#include <stdint.h>

#include "sessions/branch_table.h"
#include "policy/resume.h"

/* Begins the prompt in the branch `b`, which must have a slot. With `cold`, no state is reused. Returns the plan that
 * was carried out. If plan.has_logits is set, *logits points to the n_vocab logits after the prompt. The logits are
 * read-only and valid until the next call. Otherwise *logits is NULL. */
resume_plan resuming_begin(branch_table *table, branch *b, const branch_prompt *prompt, bool cold,
                           const float **logits);

/* Returns how many tokens of the owner's prompt need no prefill. The state that provides them is in memory, or is the
 * state of the prompt's branch `b`, which may be on disk. If the branch is not chosen yet, `b` is NULL. */
uint32_t resuming_known(branch_table *table, uint32_t owner, const branch *b, const branch_prompt *prompt);

/* Returns the cost of copying n_tokens from the branch `from`, which has a slot: how many tokens could be prefilled in
 * the same time. If sequences share no cells, the state is saved, then loaded. */
uint32_t resuming_copy_cost(const branch *from, uint32_t n_tokens);

/* A state that is being read from disk for a prompt. */
typedef struct fetch {
    uint64_t reading;   /* number of the read (table_is_reading), or 0 if no state is read */
    double wait_us_max; /* limit on the wait for the read */
} fetch;

/* Decides whether a prompt of `b` should wait for a state on disk that belongs to another branch of the same owner. `b`
 * must have a slot. The prompt should wait if the state covers prompt tokens that no state in memory covers, and
 * reading takes less time than prefilling these tokens. In this case, begins the read, unless the read has already
 * begun. After the read, resuming_begin finds the state in memory, but only until the next table_spill_on. */
fetch resuming_fetch(branch_table *table, const branch *b, const branch_prompt *prompt);

/* Fills `to` with the state of the first `at` tokens of `from`. If the model's memory and the checkpoints do not allow
 * that, fills `to` with the state of fewer tokens. `to` must have a slot. `to` must be empty, or be `from` itself,
 * which is then truncated. `from` needs no slot. Returns false and leaves `to` empty if no token can be kept, or if the
 * model refuses. For example, the model refuses if KV cells are short. */
bool resuming_fork(branch_table *table, const branch *from, branch *to, uint32_t at);

#endif
