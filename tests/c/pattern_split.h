/* pattern_split.h: the splitting of text by patterns that llama.cpp is built with (cmake/llama/), and std::regex, which
 * it stands for. */
#ifndef PATTERN_SPLIT_H
#define PATTERN_SPLIT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PATTERN_REFUSED = -1, PATTERN_TOO_MANY_STEPS = -2 };

/* The lengths of the matches and of what lies between them, and their number; or one of the above. `lengths` has room
 * for n_bytes + 1. std::regex recurses once or more for each byte: short texts only. */
int64_t pattern_split(const char *pattern, const char *text, size_t n_bytes, size_t *lengths);
int64_t pattern_split_std(const char *pattern, const char *text, size_t n_bytes, size_t *lengths);

#ifdef __cplusplus
}
#endif

#endif
