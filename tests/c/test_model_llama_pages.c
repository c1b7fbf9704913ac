/* Tests the memory of llama.cpp's cells, with tiny generated models. Memory is taken when sequences grow, and returned
 * when they are truncated or cleared. The tests count pages, because the system knows their number exactly. */
#include <unistd.h>

#include "own_memory.h"
#include "tiny_models.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define IS_SANITIZED
#endif

enum { LONG_CTX = 4096, LONG_TEXT = 3072, SLACK_KIB = 256 /* of memory that does not belong to cells */ };

/* Returns the anonymous memory of mappings without a reservation, as llama.cpp's buffers are. A sanitizer's mappings
 * are like this, too, but are excluded from core dumps, so they do not count. */
static long anonymous_kib(void)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[4096];
    long sum = 0, kib = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        (void)sscanf(line, "Anonymous: %ld kB", &kib);
        if (strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " nr") != NULL && strstr(line, " dd") == NULL) {
            sum += kib;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return sum;
}

static model *opened_long(void)
{
    return opened_with(LONG_CTX, N_SEQ);
}

/* Returns the size of all read-only mappings that belong to no file. */
static uint64_t read_only_bytes(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    char line[4096], access[5];
    unsigned long begin, end, inode;
    uint64_t sum = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "%lx-%lx %4s %*s %*s %lu", &begin, &end, access, &inode) == 4 && strcmp(access, "r--p") == 0 &&
            inode == 0) {
            sum += end - begin;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return sum;
}

/* Small weights such as norms are copied to read-only memory at the addresses of the mapped file. Closing the model
 * frees this memory. On a device, nothing is mapped. */
static void test_small_weights_have_pages_of_their_own(void)
{
    const uint64_t before = read_only_bytes();
    model *m = opened_long();
    CHECK(m != NULL);
    CHECK(device != NULL || read_only_bytes() >= before + 4 * (uint64_t)sysconf(_SC_PAGESIZE));
    m->ops->close(m);
    CHECK(device != NULL || read_only_bytes() == before);
}

#ifndef IS_SANITIZED /* a sanitizer keeps freed memory */

/* Measures how much memory a model with this context takes when it is opened, including the allocator's. */
static void measure_opened(uint32_t n_ctx, uint32_t n_seq, long *kib)
{
    const long before = own_memory_kib("Anonymous:");
    model *m = opened_with(n_ctx, n_seq);
    CHECK(m != NULL);
    *kib = own_memory_kib("Anonymous:") - before;
    m->ops->close(m);
}

/* For each cell, llama.cpp has a set of sequences. A set takes no memory before its cell is used. */
static void test_cells_take_memory_when_used(void)
{
    enum { FEW = 256, MANY_SEQ = 128, SET_BYTES = 32 };
    long with_few = 0, with_many = 0;
    measure_opened(FEW, MANY_SEQ, &with_few); /* the first model makes the allocator take what all models need */
    measure_opened(FEW, MANY_SEQ, &with_few);
    measure_opened(LONG_CTX, MANY_SEQ, &with_many);
    CHECK(with_many - with_few < (long)MANY_SEQ * (LONG_CTX - FEW) * SET_BYTES / 1024);
}

#endif

/* Measures the memory that a text takes, and how much its truncation and its end give back. The first text only makes
 * llama.cpp take the memory that steps need. */
static void test_pages_follow_use(void)
{
    const long before_open = anonymous_kib();
    model *m = opened_long();
    CHECK(m != NULL);
    const long opened_kib = anonymous_kib() - before_open;
    CHECK_INT(feed(m, 0, 1, 0, LONG_TEXT, 64), MODEL_OK);
    m->ops->clear(m, 0);
    const long empty = anonymous_kib();
    CHECK_INT(feed(m, 0, 1, 0, LONG_TEXT, 64), MODEL_OK);
    const long full = anonymous_kib();
    const long taken = full - empty;
    if (current->memory == LLM_MEMORY_DENSE) {
        CHECK(m->ops->truncate(m, 0, LONG_TEXT / 4));
        const long cut = anonymous_kib();
        CHECK(cut - empty < taken / 2 + SLACK_KIB);
        CHECK_INT(feed(m, 0, 1, LONG_TEXT / 4, LONG_TEXT, 64), MODEL_OK);
    }
    float *row = row_after(m, 64);
    m->ops->clear(m, 0);
    CHECK(anonymous_kib() - empty < SLACK_KIB);
    CHECK(current->memory == LLM_MEMORY_RECURRENT || taken > (kv_type == LLM_KV_F16 ? 2 : 1) * SLACK_KIB);
    CHECK_INT(feed(m, 1, 1, 0, LONG_TEXT, 64), MODEL_OK);
    float *again = row_after(m, 64);
    check_same(row, again, m->info.n_vocab); /* cells of zeros are as good as new ones */
    printf("opened %ld KiB, %d tokens %ld KiB\n", opened_kib, LONG_TEXT, taken);
    free(row);
    free(again);
    m->ops->close(m);
}

/* The cells of another sequence are between and after the freed ones. They keep their memory. */
static void test_others_keep_their_pages(void)
{
    model *m = opened_long();
    CHECK(m != NULL);
    for (uint32_t at = 0; at < 2048; at += 64) {
        CHECK_INT(feed(m, 0, 1, at, at + 64, 64), MODEL_OK);
        CHECK_INT(feed(m, 1, 2, at, at + 64, 64), MODEL_OK);
    }
    m->ops->clear(m, 0);
    CHECK_INT(feed(m, 1, 2, 2048, 2058, 10), MODEL_OK);
    float *row = row_after(m, 10);
    float *reference = cold(m, 2, 2058);
    check_same(row, reference, m->info.n_vocab);
    free(row);
    free(reference);
    m->ops->close(m);
}

static void test_pages(void)
{
    RUN(test_small_weights_have_pages_of_their_own);
#ifndef IS_SANITIZED
    RUN(test_cells_take_memory_when_used);
#endif
    RUN(test_pages_follow_use);
    RUN(test_others_keep_their_pages);
}

int main(void)
{
    for_each_model(test_pages);
    return CHECK_RESULT();
}
