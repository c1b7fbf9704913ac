#include "snapshot_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const uint8_t files_fingerprint[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

void files_make_directory(char path[FILES_PATH_BYTES])
{
    snprintf(path, FILES_PATH_BYTES, "/tmp/llmd-test.XXXXXX");
    if (mkdtemp(path) == NULL) {
        perror(path);
        abort();
    }
}

void files_remove_directory(const char *path)
{
    char command[FILES_PATH_BYTES + 16];
    snprintf(command, sizeof command, "rm -rf %s", path);
    if (system(command) != 0) {
        abort();
    }
}

static void *bytes_of(size_t n, uint8_t first)
{
    uint8_t *bytes = malloc(n);
    for (size_t i = 0; bytes != NULL && i < n; i++) {
        bytes[i] = (uint8_t)(first + i);
    }
    return bytes;
}

snapshot files_snapshot(uint64_t id)
{
    snapshot s = {.id = id, .owner = 7, .is_pinned = true, .name = "it", .opened_ms = 5, .used_ms = 6};
    memcpy(s.fingerprint, files_fingerprint, sizeof s.fingerprint);
    s.n_tokens = 9;
    s.tokens = bytes_of(s.n_tokens * sizeof *s.tokens, 1);
    s.n_state_bytes = 77;
    s.state = bytes_of(s.n_state_bytes, 50);
    s.n_parts = 2;
    s.parts[0] = (snapshot_part){.k = 3, .n_state_bytes = 21, .state = bytes_of(21, 90)};
    s.parts[1] =
        (snapshot_part){.k = 9, .is_whole = true, .n_state_bytes = 5, .state = bytes_of(5, 120), .n_logits = 4};
    s.parts[1].logits = bytes_of(4 * sizeof(float), 0);
    return s;
}

static int parts_equal(const snapshot_part *a, const snapshot_part *b)
{
    return a->k == b->k && a->is_whole == b->is_whole && a->n_state_bytes == b->n_state_bytes &&
           a->n_logits == b->n_logits && memcmp(a->state, b->state, a->n_state_bytes) == 0 &&
           (a->n_logits == 0 || memcmp(a->logits, b->logits, a->n_logits * sizeof(float)) == 0);
}

int files_equal(const snapshot *a, const snapshot *b)
{
    if (a->id != b->id || a->owner != b->owner || a->is_pinned != b->is_pinned || strcmp(a->name, b->name) != 0 ||
        a->opened_ms != b->opened_ms || a->used_ms != b->used_ms || a->n_tokens != b->n_tokens ||
        a->n_state_bytes != b->n_state_bytes || a->n_parts != b->n_parts ||
        memcmp(a->fingerprint, b->fingerprint, sizeof a->fingerprint) != 0 ||
        memcmp(a->tokens, b->tokens, a->n_tokens * sizeof *a->tokens) != 0 ||
        memcmp(a->state, b->state, a->n_state_bytes) != 0) {
        return 0;
    }
    for (uint32_t i = 0; i < a->n_parts; i++) {
        if (!parts_equal(&a->parts[i], &b->parts[i])) {
            return 0;
        }
    }
    return 1;
}

static void path_of(char *out, size_t n, const char *directory, uint64_t id, const char *ending)
{
    snprintf(out, n, "%s/%016" PRIx64 ".%s", directory, id, ending);
}

uint8_t *files_read(const char *directory, uint64_t id, size_t *n_bytes)
{
    char path[2 * FILES_PATH_BYTES];
    path_of(path, sizeof path, directory, id, "llmd-session");
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        return NULL;
    }
    uint8_t *bytes = malloc(1 << 16);
    *n_bytes = fread(bytes, 1, 1 << 16, f);
    fclose(f);
    return bytes;
}

void files_write(const char *directory, uint64_t id, const char *ending, const void *bytes, size_t n_bytes)
{
    char path[2 * FILES_PATH_BYTES];
    path_of(path, sizeof path, directory, id, ending);
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(bytes, 1, n_bytes, f) != n_bytes || fclose(f) != 0) {
        perror(path);
        abort();
    }
}

int files_exists(const char *directory, uint64_t id, const char *ending)
{
    char path[2 * FILES_PATH_BYTES];
    path_of(path, sizeof path, directory, id, ending);
    return access(path, F_OK) == 0;
}
