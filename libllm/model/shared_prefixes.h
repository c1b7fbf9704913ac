/* shared_prefixes.h: keeps how many leading tokens two sequences of a model have in the same memory, because one of
 * them was made as a copy of the other. Owned by the decode thread. */
#ifndef LLM_SHARED_PREFIXES_H
#define LLM_SHARED_PREFIXES_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shared_prefixes {
    uint32_t n_seq;
    uint32_t *n_tokens; /* [a * n_seq + b] is the number of leading tokens whose memory the sequences a and b share. The
                         * matrix is symmetric */
} shared_prefixes;

bool shared_prefixes_open(shared_prefixes *p, uint32_t n_seq); /* returns false if memory is short */
void shared_prefixes_close(shared_prefixes *p);

/* called after dst became a copy of the n_tokens tokens of src. dst also shares what src shares with others */
void shared_prefixes_copy(shared_prefixes *p, uint16_t src, uint16_t dst, uint32_t n_tokens);

/* From now on, the sequence shares only the memory of its first k tokens. */
void shared_prefixes_truncate(shared_prefixes *p, uint16_t seq, uint32_t k);

/* Returns how many leading tokens of the sequence are in the memory of a sequence with a lower number. If shared memory
 * is counted once, namely for the sequence with the lowest number, these tokens are not counted for this sequence. */
uint32_t shared_prefixes_counted_before(const shared_prefixes *p, uint16_t seq);

#ifdef __cplusplus
}
#endif
#endif
