/* json_scan.h: checks in one pass over untrusted text whether the text is JSON and within limits. Also makes a copy
 * that is quick to decode. Python's decoder holds the interpreter lock while it decodes a document. So documents with
 * millions of values, a million names or unusual floats stopped the event loop for seconds. Decoding in another thread
 * did not help. This check needs no interpreter lock, and counts what makes decoding slow. If a document exceeds a
 * limit, the check stops, and reports the limit and the offset. Pure function. llm_json_scan in llm.h also allocates
 * the copy. */
#ifndef LLM_JSON_SCAN_H
#define LLM_JSON_SCAN_H

#include "llm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Checks n_bytes of `text` and writes the copy to `out`. The copy is never longer than the original, so n_bytes are
 * enough. Fills `document`, but leaves document->text NULL. Returns the verdict (llm_json_verdict). */
int json_scan(const char *text, size_t n_bytes, const llm_json_limits *limits, char *out, llm_json *document);

#ifdef __cplusplus
}
#endif

#endif
