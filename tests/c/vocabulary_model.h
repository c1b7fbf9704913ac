/* vocabulary_model.h: a model that can only tokenize, from a file without weights (vocab-*.gguf). */
#ifndef VOCABULARY_MODEL_H
#define VOCABULARY_MODEL_H

#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens the file with other values for tokenizer.ggml.model, tokenizer.ggml.pre and general.name; "" leaves the file's
 * own. NULL if llama.cpp does not take it. Only the operations on text may be called; close it as any model. */
model *vocabulary_open(const char *path, const char *tokenizer_model, const char *pre, const char *name);

#ifdef __cplusplus
}
#endif

#endif
