/* end_tokens.h: lists the tokens that end an answer. */
#ifndef LLM_END_TOKENS_H
#define LLM_END_TOKENS_H

#include <cstdint>
#include <vector>

struct model;

/* Returns the tokens that end an answer. Keeps the list of the most recently used model. Searching the vocabulary for
 * each request with ignore_end would take too long. Called by any thread. */
std::vector<int32_t> end_tokens(const model *m);

#endif
