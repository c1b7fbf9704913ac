/* processor.h: describes which features of this processor the build uses or does not use, and why. Without this
 * description, nobody would notice that a build for another machine is slower. Called by any thread. */
#ifndef LLM_PROCESSOR_H
#define LLM_PROCESSOR_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROCESSOR_INFO "/proc/cpuinfo"

typedef struct processor_build {
    /* the features that the compute kernels of the build use, in ggml's words, with a blank before and after each
     * word */
    const char *used;
    /* result of the AMX test at build time: works, absent, broken or unknown-to-compiler. "" if AMX was not tested */
    const char *amx;
    const char *compiler; /* name and version of the compiler that made the build */
} processor_build;

/* Writes the description, which is a part of a sentence, to `out`. `info` is PROCESSOR_INFO. */
void processor_describe(const char *info, const processor_build *build, char *out, size_t n_out);

#ifdef __cplusplus
}
#endif
#endif
