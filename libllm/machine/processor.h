/* processor.h: what a build uses of the processor that it runs on, what it leaves out, and why; for people. Any thread. */
#ifndef LLM_PROCESSOR_H
#define LLM_PROCESSOR_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROCESSOR_INFO "/proc/cpuinfo"

typedef struct processor_build {
    const char *used; /* what its kernels use, words of ggml with a blank around each */
    const char *amx;  /* what its making found: works, absent, broken, unknown-to-compiler; "": that was not asked */
    const char *compiler; /* and version */
} processor_build;

/* `info`: PROCESSOR_INFO. A part of a sentence. */
void processor_describe(const char *info, const processor_build *build, char *out, size_t n_out);

#ifdef __cplusplus
}
#endif
#endif
