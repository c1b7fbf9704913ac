/* json_scan.h: one pass over JSON of a stranger: is it JSON, is it within bounds, and a copy that is quick to decode.
 * Pure: takes bytes, writes bytes. llm_json_scan in llm.h is the same with an output of its own. */
#ifndef LLM_JSON_SCAN_H
#define LLM_JSON_SCAN_H

#include "llm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `out` has room for n_bytes: the copy is never longer than what it was made from. Fills `document`, its text stays NULL.
 * Returns the verdict. */
int json_scan(const char *text, size_t n_bytes, const llm_json_limits *limits, char *out, llm_json *document);

#ifdef __cplusplus
}
#endif

#endif
