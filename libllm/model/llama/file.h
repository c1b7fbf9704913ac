/* file.h: a strict reader of GGUF headers. A damaged header makes llama.cpp fail an assertion, crash (crash.h) or
 * report a useless message. So llmd only gives llama.cpp files with correct counts, sizes and offsets. The limits below
 * bound the memory and the time of this reader, whatever the file contains. Any thread. */
#ifndef LLM_MODEL_LLAMA_FILE_H
#define LLM_MODEL_LLAMA_FILE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Limits well above all known models. The largest vocabularies have 262,144 tokens, and the largest headers have 30
 * MiB. */
enum {
    MODEL_FILE_HEADER_BYTES_MAX = 256 << 20,
    MODEL_FILE_KEYS_MAX = 65536,
    MODEL_FILE_KEY_BYTES_MAX = 1024,
    MODEL_FILE_TENSORS_MAX = 65536,
    MODEL_FILE_ELEMENTS_MAX = 4 << 20, /* elements of one array, for example a vocabulary */
    MODEL_FILE_STRING_BYTES_MAX = 16 << 20,
    MODEL_FILE_TOKEN_BYTES_MAX = 1024, /* bytes of one token's text */
    MODEL_FILE_ALIGNMENT_MAX = 1 << 20,
    MODEL_FILE_PARTS_MAX = 1024,
};

typedef struct model_file {
    uint64_t n_bytes; /* size of the file, including any bytes after the tensors, because llama.cpp maps and reads the
                       * whole file */
    uint32_t n_tensors;
    uint32_t part; /* number of this part of a split model, from 0 */
    uint32_t n_parts;
    uint32_t n_tensors_all; /* tensors of all parts; 0 if the file does not state this number */
    char architecture[64];  /* name of the model's architecture, truncated if too long; empty if the file states none */
} model_file;

/* Checks a header in memory. Returns LLM_OK, LLM_MODEL_LOAD with a sentence about `name`, or LLM_NO_MEMORY. */
int model_file_read(const char *name, const void *bytes, size_t n_bytes, model_file *out, char *error,
                    size_t error_bytes);

/* Checks the file at `path`, and the other parts of a split model. *out receives the sums over all parts. */
int model_file_check(const char *path, model_file *out, char *error, size_t error_bytes);

/* Returns whether there is memory for a copy of the weights. The copy has the layouts that are fastest on this
 * processor. The copy takes up to an eighth more than the file. Another eighth of the file's size is reserved for the
 * state. The kernel can drop the file's pages and read them again, but not the copy. So if memory became short, the
 * kernel's OOM killer would end the process. */
int model_file_may_be_copied(uint64_t n_bytes, uint64_t n_free);

#ifdef __cplusplus
}
#endif
#endif
