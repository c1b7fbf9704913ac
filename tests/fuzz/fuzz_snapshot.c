/* fuzz_snapshot.c: the readers of session files and of state files. Arbitrary bytes, and a file that was written and then
 * changed: raw bytes alone would never have the right checksum. Whatever is accepted must be what was written. The first
 * byte chooses which file, and how. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "states/checkpoint.h"
#include "states/snapshot.h"

enum { ID = 1, STATE_BYTES = 40, FILE_BYTES_MAX = 1 << 16 };

static const uint8_t identity[16] = {1, 2, 3};
static const uint8_t geometry[16] = {4, 5, 6};
static char directory[64];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

static void remove_directory(void)
{
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", directory);
    require(system(command) == 0);
}

static void path_of_it(char *out, size_t n, bool is_state)
{
    if (directory[0] == '\0') {
        strcpy(directory, "/tmp/fuzz_snapshot.XXXXXX");
        require(mkdtemp(directory) != NULL);
        atexit(remove_directory);
    }
    snprintf(out, n, "%s/%016x.%s", directory, ID, is_state ? "llmd-state" : "llmd-session");
}

static void put(bool is_state, const void *bytes, size_t n)
{
    char path[128];
    path_of_it(path, sizeof path, is_state);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    require(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    close(fd);
}

static size_t get(bool is_state, uint8_t *bytes)
{
    char path[128];
    path_of_it(path, sizeof path, is_state);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    require(fd >= 0);
    const ssize_t n = read(fd, bytes, FILE_BYTES_MAX);
    require(n >= 0 && n < FILE_BYTES_MAX);
    close(fd);
    return (size_t)n;
}

static bool is_session_accepted(void)
{
    branch_file f;
    const char *why = "";
    const int status = branch_file_read(directory, ID, identity, &f, &why);
    if (status == LLM_OK) {
        require(f.id == ID && strnlen(f.name, sizeof f.name) <= LLM_SESSION_NAME_BYTES_MAX);
        require(f.n_tokens == 0 || f.tokens != NULL);
    } else {
        require(why[0] != '\0' && f.tokens == NULL);
    }
    branch_file_clear(&f);
    return status == LLM_OK;
}

/* Reads the head alone, and the file with the limit that it names. */
static bool is_state_accepted(void)
{
    state_file f;
    state_facts facts;
    const char *why = "";
    const int head_status = state_file_look(directory, ID, geometry, true, &facts, &why);
    const int status = state_file_read(directory, ID, geometry, facts.n_bytes, &f, &why);
    if (status == LLM_OK) {
        require(head_status == LLM_OK && facts.is_there && !facts.is_of_other_geometry);
        require(f.k == facts.k && f.n_parts > 0 && f.n_parts <= SNAPSHOT_PARTS_MAX && f.parts[0].k == f.k);
        require(state_file_bytes(&f) == facts.n_bytes);
        for (uint32_t i = 0; i < f.n_parts; i++) {
            const state_part *p = &f.parts[i];
            require(p->k > 0 && p->k <= f.k && p->held != NULL);
            require(p->held->n_bytes == checkpoint_blob_bytes(p->n_state_bytes, p->n_logits));
        }
    } else {
        require(why[0] != '\0' && f.n_parts == 0);
    }
    state_file_clear(&f);
    return status == LLM_OK;
}

static bool is_accepted(bool is_state)
{
    return is_state ? is_state_accepted() : is_session_accepted();
}

/* Made of the input's bytes. */
static void write_session(const uint8_t *data, size_t n_bytes)
{
    branch_file f = {.id = ID, .owner = data[0], .n_tokens = (uint32_t)(n_bytes / sizeof(int32_t)), .name = "it"};
    f.tokens = malloc(n_bytes + sizeof *f.tokens);
    require(f.tokens != NULL);
    memcpy(f.tokens, data, n_bytes);
    require(branch_file_write(directory, identity, &f) == LLM_OK);
    branch_file_clear(&f);
}

static void write_state(const uint8_t *data, size_t n_bytes)
{
    state_file f = {.k = (uint32_t)n_bytes, .hash = {{data[0], n_bytes}}, .n_parts = 1 + data[0] % 3u};
    for (uint32_t i = 0; i < f.n_parts; i++) {
        state_part *p = &f.parts[i];
        *p = (state_part){.k = i == 0 ? f.k : 1 + data[0] % f.k, .is_whole = i != 1};
        p->n_state_bytes = i == 0 ? n_bytes % STATE_BYTES : i;
        p->n_logits = i == 1 ? 2 : 0;
        p->held = blob_new(checkpoint_blob_bytes(p->n_state_bytes, p->n_logits));
        require(p->held != NULL);
        memset(p->held->bytes, 0, p->held->n_bytes);
    }
    require(state_file_write(directory, ID, geometry, &f) == LLM_OK);
    state_file_clear(&f);
}

/* Three bytes of input: where, and what becomes of that byte. */
static void change(uint8_t *file, size_t n_file, const uint8_t *data, size_t n_bytes)
{
    for (size_t i = 0; i + 3 <= n_bytes; i += 3) {
        file[(data[i] | (size_t)data[i + 1] << 8) % n_file] = data[i + 2];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static uint8_t original[FILE_BYTES_MAX];
    static uint8_t changed[FILE_BYTES_MAX];
    if (n_bytes < 2 || n_bytes > FILE_BYTES_MAX / 4) {
        return 0;
    }
    const bool is_state = data[0] % 4 >= 2;
    if (data[0] % 2 == 0) {
        put(is_state, data + 1, n_bytes - 1);
        (void)is_accepted(is_state);
        return 0;
    }
    char path[128];
    path_of_it(path, sizeof path, is_state);
    const size_t n_contents = 1 + (n_bytes - 1) / 2;
    if (is_state) {
        write_state(data + 1, n_contents);
    } else {
        write_session(data + 1, n_contents);
    }
    const size_t n_file = get(is_state, original);
    require(is_accepted(is_state));
    memcpy(changed, original, n_file);
    change(changed, n_file, data + 1 + n_contents, n_bytes - 1 - n_contents);
    put(is_state, changed, n_file);
    require(is_accepted(is_state) == (memcmp(original, changed, n_file) == 0));
    return 0;
}
