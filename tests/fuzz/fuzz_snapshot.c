/* fuzz_snapshot.c: the reader of session files. Arbitrary bytes, and a file that was written and then changed: raw bytes
 * alone would never have the right checksum. Whatever is accepted must be what was written. The first byte chooses. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "snapshot.h"

enum { ID = 1, STATE_BYTES = 40, FILE_BYTES_MAX = 1 << 16 };

static const uint8_t fingerprint[16] = {1, 2, 3};
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

static void path_of_it(char *out, size_t n)
{
    if (directory[0] == '\0') {
        strcpy(directory, "/tmp/fuzz_snapshot.XXXXXX");
        require(mkdtemp(directory) != NULL);
        atexit(remove_directory);
    }
    snprintf(out, n, "%s/%016x.llmd-session", directory, ID);
}

static void put(const void *bytes, size_t n)
{
    char path[128];
    path_of_it(path, sizeof path);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    require(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    close(fd);
}

static size_t get(uint8_t *bytes)
{
    char path[128];
    path_of_it(path, sizeof path);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    require(fd >= 0);
    const ssize_t n = read(fd, bytes, FILE_BYTES_MAX);
    require(n >= 0 && n < FILE_BYTES_MAX);
    close(fd);
    return (size_t)n;
}

static void require_whole(const snapshot *s)
{
    require(s->id == ID && memcmp(s->fingerprint, fingerprint, sizeof fingerprint) == 0);
    require(strnlen(s->name, sizeof s->name) <= LLM_SESSION_NAME_BYTES_MAX && s->n_parts <= SNAPSHOT_PARTS_MAX);
    require(s->n_tokens == 0 || s->tokens != NULL);
    for (uint32_t i = 0; i < s->n_parts; i++) {
        require(s->parts[i].k > 0 && s->parts[i].k <= s->n_tokens && s->parts[i].state != NULL);
        require((s->parts[i].n_logits > 0) == (s->parts[i].logits != NULL));
    }
}

/* Reads the file whole and its head alone. True if it was accepted whole. */
static bool is_accepted(void)
{
    snapshot s;
    const char *why = "";
    const int head_status = snapshot_read(directory, ID, fingerprint, true, &s, &why);
    snapshot_clear(&s);
    const int status = snapshot_read(directory, ID, fingerprint, false, &s, &why);
    if (status == LLM_OK) {
        require(head_status == LLM_OK);
        require_whole(&s);
    } else {
        require(why[0] != '\0' && s.tokens == NULL && s.state == NULL && s.n_parts == 0);
    }
    snapshot_clear(&s);
    return status == LLM_OK;
}

/* A snapshot made of the input's bytes. */
static void write_one(const uint8_t *data, size_t n_bytes)
{
    snapshot s = {.id = ID, .owner = data[0], .n_tokens = (uint32_t)(n_bytes / sizeof(int32_t)), .name = "it"};
    uint8_t state[STATE_BYTES] = {0};
    float logits[2] = {1, 2};
    int32_t *tokens = malloc(n_bytes + sizeof *tokens);
    require(tokens != NULL);
    memcpy(tokens, data, n_bytes);
    memcpy(s.fingerprint, fingerprint, sizeof fingerprint);
    s.tokens = tokens;
    s.state = state;
    s.n_state_bytes = n_bytes % STATE_BYTES;
    s.n_parts = s.n_tokens > 0 ? data[0] % 3u : 0;
    for (uint32_t i = 0; i < s.n_parts; i++) {
        s.parts[i] = (snapshot_part){.k = 1 + i % s.n_tokens, .state = state, .n_state_bytes = i, .is_whole = i == 1};
        s.parts[i].n_logits = i == 1 ? 2 : 0;
        s.parts[i].logits = i == 1 ? logits : NULL;
    }
    require(snapshot_write(directory, &s) == LLM_OK);
    free(tokens);
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
    if (data[0] % 2 == 0) {
        put(data + 1, n_bytes - 1);
        (void)is_accepted();
        return 0;
    }
    char path[128];
    path_of_it(path, sizeof path);
    const size_t n_contents = 1 + (n_bytes - 1) / 2;
    write_one(data + 1, n_contents);
    const size_t n_file = get(original);
    require(is_accepted());
    memcpy(changed, original, n_file);
    change(changed, n_file, data + 1 + n_contents, n_bytes - 1 - n_contents);
    put(changed, n_file);
    require(is_accepted() == (memcmp(original, changed, n_file) == 0));
    return 0;
}
