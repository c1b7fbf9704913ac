/* file.h: a strict reader of GGUF headers. llama.cpp answers a false header with a failed assertion or a crash
 * (crash.h), or a sentence that helps nobody; so it is only shown files whose counts, sizes and offsets are true. The
 * memory and time of this reader are bounded by the limits below, whatever the file says. Any thread. */
#ifndef LLM_MODEL_LLAMA_FILE_H
#define LLM_MODEL_LLAMA_FILE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Well above every model there is: the largest vocabularies have 262,144 tokens, the largest headers 30 MiB. */
enum {
    MODEL_FILE_HEADER_BYTES_MAX = 256 << 20,
    MODEL_FILE_KEYS_MAX = 65536,
    MODEL_FILE_KEY_BYTES_MAX = 1024,
    MODEL_FILE_TENSORS_MAX = 65536,
    MODEL_FILE_ELEMENTS_MAX = 4 << 20, /* of one array, a vocabulary for example */
    MODEL_FILE_STRING_BYTES_MAX = 16 << 20,
    MODEL_FILE_TOKEN_BYTES_MAX = 1024, /* of one token's text */
    MODEL_FILE_ALIGNMENT_MAX = 1 << 20,
    MODEL_FILE_PARTS_MAX = 1024,
};

typedef struct model_file {
    uint64_t n_bytes; /* of the file, with whatever follows the tensors: llama.cpp maps and reads all of it */
    uint32_t n_tensors;
    uint32_t part; /* of a split model, from 0 */
    uint32_t n_parts;
    uint32_t n_tensors_all; /* of all parts; 0: the file does not say */
    char architecture[64];  /* as far as it fits; "": the file does not say */
} model_file;

/* LLM_OK; LLM_MODEL_LOAD with a sentence about `name`, LLM_NO_MEMORY. */
int model_file_read(const char *name, const void *bytes, size_t n_bytes, model_file *out, char *error,
                    size_t error_bytes);

/* The file at `path`, and the other parts of a split model: `out` is their sum. */
int model_file_check(const char *path, model_file *out, char *error, size_t error_bytes);

/* Returns whether there is memory for a copy of the weights in the layouts that are fastest on this processor. The copy
 * takes up to an eighth more than the file, and cannot be dropped and read again as the file's pages can: where memory
 * is short, it would end with the kernel's OOM killer. Another eighth is left for the state. */
int model_file_may_be_copied(uint64_t n_bytes, uint64_t n_free);

#ifdef __cplusplus
}
#endif
#endif
