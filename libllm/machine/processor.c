#include "machine/processor.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { FLAGS_BYTES_MAX = 8192 };

/* The features that affect the speed, with the kernel's word and ggml's word for each. */
static const struct {
    const char *flag, *word;
} KNOWN[] = {
    {"avx2", " AVX2 "},         {"fma", " FMA "},         {"avx512f", " AVX512 "},   {"avx512_vnni", " AVX512_VNNI "},
    {"amx_int8", " AMX_INT8 "}, {"asimddp", " DOTPROD "}, {"i8mm", " MATMUL_INT8 "}, {"sve", " SVE "},
};
static const char AMX[] = " AMX_INT8 ";

/* Copies the first processor's flags from the file `info` (/proc/cpuinfo). Puts a blank before and after each flag, so
 * that "avx" is not found in "avx2". The result is "" if there are no flags. */
static void read_flags(const char *info, char *out, size_t n_out)
{
    out[0] = '\0';
    FILE *file = fopen(info, "re");
    while (file != NULL && fgets(out, (int)n_out - 1, file) != NULL) {
        const size_t n = strcspn(out, "\n");
        if (strncmp(out, "flags", 5) == 0 || strncmp(out, "Features", 8) == 0) {
            out[n] = ' ';
            out[n + 1] = '\0';
            break;
        }
        out[0] = '\0';
    }
    if (file != NULL) {
        fclose(file);
    }
}

static bool has_flag(const char *flags, const char *flag)
{
    char word[32];
    snprintf(word, sizeof word, " %s ", flag);
    return strstr(flags, word) != NULL;
}

static const char *why_no_amx(const char *verdict)
{
    return strcmp(verdict, "unknown-to-compiler") == 0
               ? "does not know it; gcc 11 or later makes quantized models about twice as fast"
           : strcmp(verdict, "broken") == 0 ? "made a program for it that crashed here; another compiler may do better"
                                            : "was not told to use it; ./build.sh setup on this machine does";
}

void processor_describe(const char *info, const processor_build *build, char *out, size_t n_out)
{
    char flags[FLAGS_BYTES_MAX], left_out[256] = "";
    bool has_amx_left = false;
    read_flags(info, flags, sizeof flags);
    for (size_t i = 0; i < sizeof KNOWN / sizeof KNOWN[0]; i++) {
        if (!has_flag(flags, KNOWN[i].flag) || strstr(build->used, KNOWN[i].word) != NULL) {
            continue;
        }
        if (strcmp(KNOWN[i].word, AMX) == 0) {
            has_amx_left = true;
        } else {
            strncat(left_out, KNOWN[i].word + 1, sizeof left_out - strlen(left_out) - 1);
        }
    }
    const char *used = build->used + (build->used[0] == ' ');
    const size_t n_used = strlen(used);
    int n = snprintf(out, n_out, "uses %.*s", (int)(n_used - (n_used > 0)), used);
    if (left_out[0] != '\0' && n > 0 && (size_t)n < n_out) {
        n += snprintf(out + n, n_out - (size_t)n,
                      "; leaves out %.*s: built for another, ./build.sh setup on this machine builds for it",
                      (int)strlen(left_out) - 1, left_out);
    }
    if (has_amx_left && n > 0 && (size_t)n < n_out) {
        snprintf(out + n, n_out - (size_t)n, "; leaves out AMX_INT8: %s %s", build->compiler, why_no_amx(build->amx));
    }
}
