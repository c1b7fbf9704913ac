/* Session files: what was written comes back, and nothing else is ever taken for it. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "snapshot_files.h"

enum { ID = 0xabc };

static char directory[FILES_PATH_BYTES];

static int read_it(uint64_t id, const uint8_t *fingerprint, snapshot *out, const char **why)
{
    return snapshot_read(directory, id, fingerprint, false, out, why);
}

static void test_round_trip(void)
{
    snapshot s = files_snapshot(ID);
    snapshot back;
    const char *why = "";
    CHECK_INT(snapshot_write(directory, &s), LLM_OK);
    CHECK(!files_exists(directory, ID, "writing"));
    CHECK_INT(read_it(ID, files_fingerprint, &back, &why), LLM_OK);
    CHECK(files_equal(&s, &back));
    snapshot_clear(&back);
    CHECK_INT(snapshot_read(directory, ID, files_fingerprint, true, &back, &why), LLM_OK);
    CHECK_INT(back.n_tokens, s.n_tokens);
    CHECK(back.state == NULL && back.n_parts == 0);
    snapshot_clear(&back);
    snapshot_clear(&s);
}

static void test_the_smallest_one(void)
{
    snapshot s = {.id = ID + 1};
    snapshot back;
    const char *why = "";
    memcpy(s.fingerprint, files_fingerprint, sizeof s.fingerprint);
    CHECK_INT(snapshot_write(directory, &s), LLM_OK);
    CHECK_INT(read_it(ID + 1, files_fingerprint, &back, &why), LLM_OK);
    CHECK_INT(back.n_tokens, 0);
    snapshot_clear(&back);
}

/* The file is put there by hand; reading must fail, say why, and give nothing. */
static void check_refused(const uint8_t *bytes, size_t n_bytes)
{
    snapshot back;
    const char *why = "";
    files_write(directory, ID, "llmd-session", bytes, n_bytes);
    CHECK_INT(read_it(ID, files_fingerprint, &back, &why), LLM_VERSION);
    CHECK(why[0] != '\0' && back.tokens == NULL && back.state == NULL && back.n_parts == 0);
}

static uint8_t *written(size_t *n_bytes)
{
    snapshot s = files_snapshot(ID);
    const int status = snapshot_write(directory, &s);
    snapshot_clear(&s);
    return status == LLM_OK ? files_read(directory, ID, n_bytes) : NULL;
}

static void test_every_cut_is_refused(void)
{
    size_t n = 0;
    uint8_t *bytes = written(&n);
    CHECK(bytes != NULL);
    for (size_t length = 0; length < n; length++) {
        check_refused(bytes, length);
        CHECK_STILL_GOOD();
    }
    free(bytes);
}

static void test_every_flipped_byte_is_refused(void)
{
    size_t n = 0;
    uint8_t *bytes = written(&n);
    CHECK(bytes != NULL);
    for (size_t i = 0; i < n; i++) {
        for (unsigned bit = 1; bit < 256; bit <<= 1) {
            bytes[i] = (uint8_t)(bytes[i] ^ bit);
            check_refused(bytes, n);
            bytes[i] = (uint8_t)(bytes[i] ^ bit);
        }
        CHECK_STILL_GOOD();
    }
    free(bytes);
}

static void test_anything_behind_the_end_is_refused(void)
{
    size_t n = 0;
    uint8_t *bytes = written(&n);
    CHECK(bytes != NULL);
    bytes[n] = 0;
    check_refused(bytes, n + 1);
    free(bytes);
}

static void test_a_file_of_another_model_is_refused(void)
{
    size_t n = 0;
    free(written(&n));
    uint8_t other[16] = {9};
    snapshot back;
    const char *why = "";
    CHECK_INT(read_it(ID, other, &back, &why), LLM_VERSION);
    CHECK(strstr(why, "another model") != NULL);
}

static void test_a_file_under_another_id_is_refused(void)
{
    size_t n = 0;
    uint8_t *bytes = written(&n);
    CHECK(bytes != NULL);
    snapshot back;
    const char *why = "";
    files_write(directory, ID + 9, "llmd-session", bytes, n);
    CHECK_INT(read_it(ID + 9, files_fingerprint, &back, &why), LLM_VERSION);
    free(bytes);
}

static void test_remove_and_set_aside(void)
{
    size_t n = 0;
    snapshot back;
    const char *why = "";
    free(written(&n));
    CHECK_INT(snapshot_remove(directory, ID), LLM_OK);
    CHECK_INT(snapshot_remove(directory, ID), LLM_OK);
    CHECK_INT(read_it(ID, files_fingerprint, &back, &why), LLM_NOT_FOUND);
    free(written(&n));
    snapshot_set_aside(directory, ID);
    CHECK(files_exists(directory, ID, "refused"));
    CHECK_INT(read_it(ID, files_fingerprint, &back, &why), LLM_NOT_FOUND);
}

static void test_a_directory_that_is_not_there(void)
{
    snapshot s = files_snapshot(ID);
    CHECK_INT(snapshot_write("/nonexistent-directory", &s), LLM_IO);
    snapshot_clear(&s);
}

typedef struct found {
    uint32_t n;
    uint64_t ids[8];
} found;

static void remember(void *context, uint64_t id)
{
    found *f = context;
    f->ids[f->n++ % 8] = id;
}

/* What a crash in the middle of a write leaves is removed; what is not ours is left alone. */
static void test_scan(void)
{
    char own[FILES_PATH_BYTES];
    files_make_directory(own);
    snapshot s = files_snapshot(ID);
    CHECK_INT(snapshot_write(own, &s), LLM_OK);
    snapshot_clear(&s);
    files_write(own, 5, "writing", "half", 4);
    files_write(own, 6, "refused", "old", 3);
    files_write(own, 7, "llmd-session.bak", "mine", 4);
    found f = {0};
    CHECK_INT(snapshot_scan(own, remember, &f), LLM_OK);
    CHECK_INT(f.n, 1);
    CHECK_INT(f.ids[0], ID);
    CHECK(!files_exists(own, 5, "writing"));
    CHECK(files_exists(own, 6, "refused") && files_exists(own, 7, "llmd-session.bak"));
    CHECK_INT(snapshot_scan("/nonexistent-directory", remember, &f), LLM_IO);
    files_remove_directory(own);
}

int main(void)
{
    files_make_directory(directory);
    RUN(test_round_trip);
    RUN(test_the_smallest_one);
    RUN(test_every_cut_is_refused);
    RUN(test_every_flipped_byte_is_refused);
    RUN(test_anything_behind_the_end_is_refused);
    RUN(test_a_file_of_another_model_is_refused);
    RUN(test_a_file_under_another_id_is_refused);
    RUN(test_remove_and_set_aside);
    RUN(test_a_directory_that_is_not_there);
    RUN(test_scan);
    files_remove_directory(directory);
    return CHECK_RESULT();
}
