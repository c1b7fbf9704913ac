/* constraint_make.h: makes the document for constraint::read. The document is made from the client's description of
 * structured output. Called by any thread. */
#ifndef LLM_CONSTRAINT_MAKE_H
#define LLM_CONSTRAINT_MAKE_H

#include <stddef.h>

#include "llm.h"
#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Implements llm_constraint_make. */
int constraint_make(const model *m, const char *request, size_t n_bytes, llm_document *out, char *error,
                    size_t error_bytes);

#ifdef __cplusplus
}
#endif
#endif
