/* processor.h: describes for people which features of this processor a build uses, which ones it leaves out, and why: a
 * build for another machine is slower without an error. Any thread. */
#ifndef LLM_PROCESSOR_H
#define LLM_PROCESSOR_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROCESSOR_INFO "/proc/cpuinfo"

typedef struct processor_build {
    const char *used;     /* the features that its kernels use: ggml's words with a blank around each */
    const char *amx;      /* AMX when it was built: works, absent, broken, unknown-to-compiler; "": not examined */
    const char *compiler; /* name and version */
} processor_build;

/* Writes a part of a sentence into `out`. `info`: PROCESSOR_INFO. */
void processor_describe(const char *info, const processor_build *build, char *out, size_t n_out);

#ifdef __cplusplus
}
#endif
#endif
