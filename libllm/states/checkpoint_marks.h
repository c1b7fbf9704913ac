/* checkpoint_marks.h: says which checkpoints exist, to threads that must not touch the checkpoints themselves. The
 * decode thread writes the marks, and any thread reads them without a lock. A mark is the number of tokens of a
 * checkpoint and their hash. So a reader finds the checkpoints of a branch by the branch's tokens. */
#ifndef LLM_CHECKPOINT_MARKS_H
#define LLM_CHECKPOINT_MARKS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "states/token_hash.h"

enum { CHECKPOINT_MARKS_MAX = 4096 };

typedef struct checkpoint_mark {
    _Atomic uint64_t owner_and_k; /* owner << 32 | k; 0 if the mark is free. No checkpoint has k = 0 */
    _Atomic uint64_t lane[2];     /* the hash; valid while owner_and_k is not 0 */
} checkpoint_mark;

typedef struct checkpoint_marks {
    checkpoint_mark marks[CHECKPOINT_MARKS_MAX];
} checkpoint_marks;

/* Adds a mark and returns its index. At most CHECKPOINT_MARKS_MAX marks can exist. Decode thread. */
uint32_t checkpoint_marks_add(checkpoint_marks *marks, uint32_t owner, uint32_t k, token_hash hash);
void checkpoint_marks_remove(checkpoint_marks *marks, uint32_t index); /* called by the decode thread */

/* Writes the k of each mark whose tokens are the first k of these tokens, in ascending order. If there are more than
 * n_out, writes the first n_out. Returns their number. A mark that is added or removed during the call may be missing.
 * Any thread. */
size_t checkpoint_marks_match(const checkpoint_marks *marks, uint32_t owner, const int32_t *tokens, size_t n_tokens,
                              uint32_t *out, size_t n_out);

#endif
