/* json_scan.h: checks in one pass over untrusted text whether the text is JSON and within limits, and makes a copy that
 * is quick to decode. Python's decoder holds the interpreter lock for a whole document: millions of values, a million
 * names or unusual floats stopped the event loop for seconds, even if another thread decoded them. This pass needs no
 * lock and counts the things that make decoding slow. A document over a limit is refused with the limit's name and an
 * offset. Pure function. llm_json_scan in llm.h does the same, and allocates the copy. */
#ifndef LLM_JSON_SCAN_H
#define LLM_JSON_SCAN_H

#include "llm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `out` must have room for n_bytes; the copy is never longer than the original. Fills `document` except its text, which
 * stays NULL. Returns the verdict. */
int json_scan(const char *text, size_t n_bytes, const llm_json_limits *limits, char *out, llm_json *document);

#ifdef __cplusplus
}
#endif

#endif
