/* The memory behind llama.cpp's cells, on tiny generated models: it is taken as sequences grow, and given back when they are
 * cut or emptied. Counted in pages, which the system knows exactly. */
#include "tiny_models.h"

enum { LONG_CTX = 4096, LONG_TEXT = 3072, SLACK_KIB = 256 /* of a set, a map and the allocator, not of cells */ };

/* Anonymous memory of what is mapped without a reservation, from the page tables: the buffers of llama.cpp. A sanitizer maps
 * its own like that, too, but leaves it out of dumps. */
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
    char path[512], error[512] = "";
    model *m = NULL;
    path_of(current->file, path, sizeof path);
    model_options o = usual(path);
    o.n_ctx = LONG_CTX;
    if (model_open(path, &o, &m, error, sizeof error) != LLM_OK) {
        printf("%s\n", error);
    }
    return m;
}

/* What a text of that length takes and what its cut and its end give back; a first one has touched what steps need. */
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
        CHECK(m->ops->rewind(m, 0, LONG_TEXT / 4));
        const long cut = anonymous_kib();
        CHECK(cut - empty < taken / 2 + SLACK_KIB);
        CHECK_INT(feed(m, 0, 1, LONG_TEXT / 4, LONG_TEXT, 64), MODEL_OK);
    }
    float *row = row_after(m, 64);
    m->ops->clear(m, 0);
    CHECK(anonymous_kib() - empty < SLACK_KIB);
    CHECK(current->memory == LLM_MEMORY_RECURRENT || taken > 2 * SLACK_KIB);
    CHECK_INT(feed(m, 1, 1, 0, LONG_TEXT, 64), MODEL_OK);
    float *again = row_after(m, 64);
    check_same(row, again, m->info.n_vocab); /* zeros are as good as new */
    printf("opened %ld KiB, %d tokens %ld KiB\n", opened_kib, LONG_TEXT, taken);
    free(row);
    free(again);
    m->ops->close(m);
}

/* Others' cells lie between and behind: they keep theirs. */
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
    RUN(test_pages_follow_use);
    RUN(test_others_keep_their_pages);
}

int main(void)
{
    for_each_model(test_pages);
    return CHECK_RESULT();
}
