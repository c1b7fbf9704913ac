/* json_scan.h: one pass over untrusted JSON: whether it is JSON, whether it is within limits, and a copy that is quick
 * to decode. Python's decoder holds the interpreter lock for a whole document: millions of values, a million names or
 * unusual floats stopped the event loop for seconds, even from another thread. This pass needs no lock, counts what
 * makes decoding slow, and refuses it with a name and an offset. Pure: takes bytes, writes bytes. llm_json_scan in
 * llm.h is the same with an output of its own. */
#ifndef LLM_JSON_SCAN_H
#define LLM_JSON_SCAN_H

#include "llm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `out` has room for n_bytes: the copy is never longer than the original. Fills `document`; its text stays NULL.
 * Returns the verdict. */
int json_scan(const char *text, size_t n_bytes, const llm_json_limits *limits, char *out, llm_json *document);

#ifdef __cplusplus
}
#endif

#endif
