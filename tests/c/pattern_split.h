/* pattern_split.h: splits text by patterns: with the code that replaces std::regex in llama.cpp
 * (cmake/llama/unicode-split.h), and with std::regex itself. */
#ifndef PATTERN_SPLIT_H
#define PATTERN_SPLIT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PATTERN_REFUSED = -1, PATTERN_TOO_MANY_STEPS = -2 };

/* Writes the lengths of the matches and of the texts between them, and returns their number, or one of the error values
 * above. `lengths` has room for n_bytes + 1 numbers. std::regex recurses once or more for each byte, so the text must
 * be short. */
int64_t pattern_split(const char *pattern, const char *text, size_t n_bytes, size_t *lengths);
int64_t pattern_split_std(const char *pattern, const char *text, size_t n_bytes, size_t *lengths);

#ifdef __cplusplus
}
#endif

#endif
