/* lookup.h: finds drafts in a sequence of tokens (prompt lookup). A draft is a guess of the next tokens. If the tokens
 * at the end of the sequence also occur earlier in the sequence, the draft is a copy of the tokens that follow the
 * earlier occurrence. An agent that edits a file repeats most of the text that it has read. Saxena, "Prompt Lookup
 * Decoding" (2023), describes the method. Pure, apart from the memory of the index. */
#ifndef LLM_LOOKUP_H
#define LLM_LOOKUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LOOKUP_MATCH_MIN = 3,      /* a match has at least this many tokens */
    LOOKUP_MATCH_LONG = 6,     /* matches of at least this many tokens are also found through an index of their own */
    LOOKUP_MATCH_MAX = 32,     /* longer matches count as matches of this length */
    LOOKUP_TOKENS_MAX = 65536, /* if the sequence is longer when the index is opened, only its last tokens are
                                * indexed */
};

/* An index of one sequence. An entry of `places` is the end of a run of tokens in the sequence, found by the hash of
 * the run. A later run with the same hash replaces an earlier one. So an entry is only a hint, and lookup_find compares
 * the tokens. Entries never become invalid if the sequence is truncated or changed. */
typedef struct lookup {
    uint32_t *places;   /* owned; LOOKUP_INDEXES tables of n_places entries */
    uint32_t n_places;  /* a power of two; 0 if the index is not open */
    uint32_t n_indexed; /* the first n_indexed tokens of the sequence are in the index */
    uint32_t n_last;    /* length of the sequence at the latest match */
    uint32_t last;      /* place of the latest match; 0 if there was none */
} lookup;

/* Opens an index for a sequence that has n_tokens tokens now. Returns false if memory is short. */
bool lookup_open(lookup *l, uint32_t n_tokens);
void lookup_close(lookup *l);
size_t lookup_bytes(const lookup *l); /* returns the bytes of the index */

/* Writes a draft of the n_max tokens after `next`, the token that follows the n tokens of the sequence. Sets *n_matched
 * to the length of the match. Returns n_max, or 0 if there is no match. Adds the new tokens of the sequence to the
 * index. So a call takes time for each token that was added since the last call, and a constant time apart from
 * that. */
uint32_t lookup_find(lookup *l, const int32_t *tokens, uint32_t n, int32_t next, int32_t *draft, uint32_t n_max,
                     uint32_t *n_matched);

#endif
