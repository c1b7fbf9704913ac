/* mask.h: finds the tokens that a grammar allows next, for tests in C. */
#ifndef MASK_H
#define MASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mask mask;

mask *mask_open(const model *m, const char *grammar); /* returns NULL if the grammar is invalid */
void mask_close(mask *k);
void mask_find(mask *k, bool *allowed); /* writes n_vocab elements */
bool mask_allows(mask *k, int32_t token);
bool mask_accept(mask *k, int32_t token);
bool mask_accept_text(mask *k, const char *text, size_t n, bool is_guessed); /* returns false if the text is not
                                                                              * allowed, or takes too much work */
size_t mask_guess(mask *k, char *out, size_t n_out); /* writes the bytes that are guessed next */
/* Guesses with memory for n_allocations only. Returns whether that was enough. */
bool mask_guess_within(mask *k, uint32_t n_allocations);

#ifdef __cplusplus
}
#endif
#endif
