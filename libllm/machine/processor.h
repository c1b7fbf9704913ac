/* processor.h: describes for people which features of this processor a build uses, which features it leaves out, and
 * why, because a build for another machine is slower without any error. Any thread. */
#ifndef LLM_PROCESSOR_H
#define LLM_PROCESSOR_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROCESSOR_INFO "/proc/cpuinfo"

typedef struct processor_build {
    const char *used;     /* the features that its kernels use, as ggml's words with a blank before and after each
                           * word */
    const char *amx;      /* result of the test of AMX at build time: works, absent, broken, unknown-to-compiler; "" if
                           * not tested */
    const char *compiler; /* name and version */
} processor_build;

/* Writes the description, which is a part of a sentence, to `out`. `info` is PROCESSOR_INFO. */
void processor_describe(const char *info, const processor_build *build, char *out, size_t n_out);

#ifdef __cplusplus
}
#endif
#endif
