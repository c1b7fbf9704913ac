/* vocabulary_model.h: a model that can only tokenize, from a file without weights (vocab-*.gguf). */
#ifndef VOCABULARY_MODEL_H
#define VOCABULARY_MODEL_H

#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens the file with other values for tokenizer.ggml.model, tokenizer.ggml.pre and general.name; "" leaves the file's
 * own. Returns NULL if llama.cpp refuses the file. Only the operations on text may be called. The model is closed like
 * any other model. */
model *vocabulary_open(const char *path, const char *tokenizer_model, const char *pre, const char *name);

#ifdef __cplusplus
}
#endif

#endif
