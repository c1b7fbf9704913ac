#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "machine/processor.h"

static char path[] = "/tmp/llmd-test-cpuinfo-XXXXXX";
static char text[1024];

static const char *described(const char *flags, const char *used, const char *amx)
{
    FILE *file = fopen(path, "w");
    fprintf(file, "processor\t: 0\nmodel name\t: avx2 of somebody\n%s\nbugs\t: none\n", flags);
    fclose(file);
    const processor_build build = {.used = used, .amx = amx, .compiler = "gcc 10.2.1"};
    processor_describe(path, &build, text, sizeof text);
    return text;
}

static void test_all_of_it(void)
{
    CHECK_STR(described("flags\t\t: fpu avx2 fma amx_int8", " AVX2 FMA AMX_INT8 REPACK ", "works"),
              "uses AVX2 FMA AMX_INT8 REPACK");
    CHECK_STR(described("flags\t\t: fpu", " SSE3 ", "absent"), "uses SSE3");
}

static void test_what_a_build_for_another_leaves_out(void)
{
    described("flags\t\t: avx2 fma avx512f avx512_vnni", " AVX2 FMA ", "absent");
    CHECK(strstr(text, "uses AVX2 FMA; leaves out AVX512 AVX512_VNNI: ") == text);
    CHECK(strstr(text, "./build.sh setup") != NULL && strstr(text, "AMX") == NULL);
    described("Features\t: fp asimd asimddp i8mm", " NEON DOTPROD ", "unknown-to-compiler");
    CHECK(strstr(text, "uses NEON DOTPROD; leaves out MATMUL_INT8: ") == text);
}

static void test_why_there_is_no_amx(void)
{
    const char *flags = "flags\t\t: avx2 fma amx_int8";
    CHECK(
        strstr(described(flags, " AVX2 FMA ", "unknown-to-compiler"), "AMX_INT8: gcc 10.2.1 does not know it; gcc 11"));
    CHECK(strstr(described(flags, " AVX2 FMA ", "broken"), "AMX_INT8: gcc 10.2.1 made a program for it that crashed"));
    CHECK(strstr(described(flags, " AVX2 FMA ", ""), "AMX_INT8: gcc 10.2.1 was not told to use it"));
}

static void test_a_processor_that_says_nothing(void)
{
    const processor_build build = {.used = " NEON ", .amx = "", .compiler = "gcc"};
    processor_describe("/nonexistent", &build, text, sizeof text);
    CHECK_STR(text, "uses NEON");
    char small[8];
    processor_describe("/nonexistent", &build, small, sizeof small);
    CHECK_STR(small, "uses NE");
}

int main(void)
{
    close(mkstemp(path));
    RUN(test_all_of_it);
    RUN(test_what_a_build_for_another_leaves_out);
    RUN(test_why_there_is_no_amx);
    RUN(test_a_processor_that_says_nothing);
    unlink(path);
    return CHECK_RESULT();
}
