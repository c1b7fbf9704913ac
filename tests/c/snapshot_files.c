#include "snapshot_files.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "states/checkpoint.h"

const uint8_t files_identity[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
const uint8_t files_geometry[16] = {16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1};

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

void files_model_directory(const char *directory, char out[FILES_PATH_BYTES])
{
    DIR *d = opendir(directory);
    const struct dirent *entry;
    while ((entry = readdir(d)) != NULL) {
        if (entry->d_name[0] != '.') {
            snprintf(out, FILES_PATH_BYTES, "%.100s/%.16s", directory, entry->d_name);
        }
    }
    closedir(d);
}

uint32_t files_count(const char *directory, const char *ending)
{
    uint32_t n = 0;
    DIR *d = opendir(directory);
    const struct dirent *entry;
    while ((entry = readdir(d)) != NULL) {
        const char *dot = strchr(entry->d_name, '.');
        n += dot != NULL && strcmp(dot + 1, ending) == 0;
    }
    closedir(d);
    return n;
}

uint64_t files_any(const char *directory, const char *ending)
{
    uint64_t id = 0;
    DIR *d = opendir(directory);
    const struct dirent *entry;
    while ((entry = readdir(d)) != NULL) {
        const char *dot = strchr(entry->d_name, '.');
        id = dot != NULL && strcmp(dot + 1, ending) == 0 ? strtoull(entry->d_name, NULL, 16) : id;
    }
    closedir(d);
    return id;
}

static void fill(uint8_t *bytes, size_t n, uint8_t first)
{
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (uint8_t)(first + i);
    }
}

branch_file files_branch(uint64_t id)
{
    branch_file f = {.id = id, .owner = 7, .is_pinned = true, .name = "it", .opened_ms = 5, .used_ms = 6};
    f.n_tokens = FILES_TOKENS;
    f.tokens = malloc(FILES_TOKENS * sizeof *f.tokens);
    if (f.tokens == NULL) {
        abort();
    }
    fill((uint8_t *)f.tokens, FILES_TOKENS * sizeof *f.tokens, 1);
    return f;
}

static state_part part_of(uint32_t k, bool is_whole, size_t n_state_bytes, uint32_t n_logits)
{
    state_part part = {.k = k, .is_whole = is_whole, .n_state_bytes = n_state_bytes, .n_logits = n_logits};
    part.held = blob_new(checkpoint_blob_bytes(n_state_bytes, n_logits));
    if (part.held == NULL) {
        abort();
    }
    fill(part.held->bytes, part.held->n_bytes, (uint8_t)(10 * k));
    return part;
}

state_file files_state(void)
{
    branch_file of = files_branch(0);
    state_file f = {.k = FILES_COVERED, .hash = token_hash_of(0, of.tokens, FILES_COVERED), .n_parts = 3};
    f.parts[0] = part_of(FILES_COVERED, true, 77, 0);
    f.parts[1] = part_of(3, false, 21, 0);
    f.parts[2] = part_of(FILES_COVERED, true, 5, 4);
    branch_file_clear(&of);
    return f;
}

int files_branches_equal(const branch_file *a, const branch_file *b)
{
    return a->id == b->id && a->owner == b->owner && a->is_pinned == b->is_pinned && strcmp(a->name, b->name) == 0 &&
           a->opened_ms == b->opened_ms && a->used_ms == b->used_ms && a->n_tokens == b->n_tokens &&
           memcmp(a->tokens, b->tokens, a->n_tokens * sizeof *a->tokens) == 0;
}

static int parts_equal(const state_part *a, const state_part *b)
{
    return a->k == b->k && a->is_whole == b->is_whole && a->n_state_bytes == b->n_state_bytes &&
           a->n_logits == b->n_logits && a->held->n_bytes == b->held->n_bytes &&
           memcmp(a->held->bytes, b->held->bytes, a->held->n_bytes) == 0;
}

int files_states_equal(const state_file *a, const state_file *b)
{
    if (a->k != b->k || !token_hash_equal(a->hash, b->hash) || a->n_parts != b->n_parts) {
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

uint8_t *files_read(const char *directory, uint64_t id, const char *ending, size_t *n_bytes)
{
    char path[2 * FILES_PATH_BYTES];
    path_of(path, sizeof path, directory, id, ending);
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        return NULL;
    }
    uint8_t *bytes = malloc(1 << 20);
    *n_bytes = fread(bytes, 1, 1 << 20, f);
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

void files_obstruct(const char *directory, uint64_t id, const char *ending)
{
    char path[2 * FILES_PATH_BYTES];
    path_of(path, sizeof path, directory, id, ending);
    (void)unlink(path);
    if (mkdir(path, 0700) != 0) {
        perror(path);
        abort();
    }
    strcat(path, "/inside"); /* so that no file can take its place */
    if (mkdir(path, 0700) != 0) {
        abort();
    }
}
