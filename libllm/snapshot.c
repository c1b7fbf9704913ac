#include "snapshot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char MAGIC[8] = "LLMDSES1";

enum {
    VERSION = 1,
    PATH_BYTES = 4096,
    ORDER_MARK = 0x01020304,
};

typedef struct snapshot_head {
    char magic[8];
    uint32_t version;
    uint32_t order_mark;
    uint32_t head_bytes;
    uint32_t n_tokens;
    uint64_t id;
    uint64_t file_bytes;
    uint64_t n_state_bytes;
    uint64_t opened_ms;
    uint64_t used_ms;
    uint32_t owner;
    uint32_t is_pinned;
    uint32_t n_parts;
    uint32_t reserved;
    uint8_t fingerprint[16];
    char name[LLM_SESSION_NAME_BYTES_MAX + 8];
    uint64_t checksum; /* of all before it */
} snapshot_head;

typedef struct part_head {
    uint32_t k;
    uint32_t is_whole;
    uint32_t n_logits;
    uint32_t reserved;
    uint64_t n_state_bytes;
} part_head;

/* ---- checksum: four multiply-xor lanes over 32-byte blocks, so that it keeps up with the memory ---- */

typedef struct sum {
    uint64_t lane[4];
    uint64_t n_bytes;
    uint8_t pending[32];
    uint32_t n_pending;
} sum;

static sum sum_begin(void)
{
    return (sum){.lane = {0x243f6a8885a308d3ull, 0x13198a2e03707344ull, 0xa4093822299f31d0ull, 0x082efa98ec4e6c89ull}};
}

static void sum_block(sum *s, const uint8_t *block)
{
    for (int i = 0; i < 4; i++) {
        uint64_t x;
        memcpy(&x, block + 8 * i, 8);
        s->lane[i] = (s->lane[i] ^ x) * 0x9fb21c651e98df25ull;
        s->lane[i] ^= s->lane[i] >> 32;
    }
}

static void sum_add(sum *s, const void *bytes, size_t n)
{
    const uint8_t *at = bytes;
    s->n_bytes += n;
    while (n > 0) {
        if (s->n_pending == 0 && n >= sizeof s->pending) {
            sum_block(s, at);
            at += sizeof s->pending;
            n -= sizeof s->pending;
            continue;
        }
        const size_t room = sizeof s->pending - s->n_pending;
        const size_t take = n < room ? n : room;
        memcpy(s->pending + s->n_pending, at, take);
        s->n_pending += (uint32_t)take;
        at += take;
        n -= take;
        if (s->n_pending == sizeof s->pending) {
            sum_block(s, s->pending);
            s->n_pending = 0;
        }
    }
}

static uint64_t sum_end(sum *s)
{
    memset(s->pending + s->n_pending, 0, sizeof s->pending - s->n_pending);
    sum_block(s, s->pending);
    uint64_t h = s->n_bytes;
    for (int i = 0; i < 4; i++) {
        h = (h ^ s->lane[i]) * 0xbf58476d1ce4e5b9ull;
        h ^= h >> 31;
    }
    return h;
}

static uint64_t head_checksum(const snapshot_head *head)
{
    sum s = sum_begin();
    sum_add(&s, head, offsetof(snapshot_head, checksum));
    return sum_end(&s);
}

/* ---- files ---- */

static void path_of(char *out, const char *directory, uint64_t id, const char *ending)
{
    snprintf(out, PATH_BYTES, "%s/%016" PRIx64 ".%s", directory, id, ending);
}

static bool write_bytes(int fd, const void *bytes, size_t n)
{
    const char *at = bytes;
    while (n > 0) {
        const ssize_t done = write(fd, at, n < ((size_t)1 << 30) ? n : (size_t)1 << 30);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return false;
        }
        at += done;
        n -= (size_t)done;
    }
    return true;
}

static bool read_bytes(int fd, void *bytes, size_t n)
{
    char *at = bytes;
    while (n > 0) {
        const ssize_t done = read(fd, at, n < ((size_t)1 << 30) ? n : (size_t)1 << 30);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return false;
        }
        at += done;
        n -= (size_t)done;
    }
    return true;
}

static bool sync_directory(const char *directory)
{
    const int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool good = fd >= 0 && fsync(fd) == 0;
    const int error = errno;
    if (fd >= 0) {
        close(fd);
    }
    errno = error;
    return good;
}

void snapshot_clear(snapshot *s)
{
    free(s->tokens);
    free(s->state);
    for (uint32_t i = 0; i < s->n_parts; i++) {
        free(s->parts[i].state);
        free(s->parts[i].logits);
    }
    *s = (snapshot){0};
}

/* ---- writing ---- */

static bool put(int fd, sum *s, const void *bytes, size_t n)
{
    sum_add(s, bytes, n);
    return write_bytes(fd, bytes, n);
}

static uint64_t file_bytes_of(const snapshot *s)
{
    uint64_t n = sizeof(snapshot_head) + s->n_tokens * sizeof *s->tokens + s->n_state_bytes + sizeof(uint64_t);
    for (uint32_t i = 0; i < s->n_parts; i++) {
        n += sizeof(part_head) + s->parts[i].n_state_bytes + s->parts[i].n_logits * sizeof(float);
    }
    return n;
}

static bool write_parts(int fd, sum *sum_all, const snapshot *s)
{
    for (uint32_t i = 0; i < s->n_parts; i++) {
        const snapshot_part *p = &s->parts[i];
        part_head head = {
            .k = p->k, .is_whole = p->is_whole, .n_logits = p->n_logits, .n_state_bytes = p->n_state_bytes};
        if (!put(fd, sum_all, &head, sizeof head) || !put(fd, sum_all, p->state, p->n_state_bytes) ||
            !put(fd, sum_all, p->logits, p->n_logits * sizeof(float))) {
            return false;
        }
    }
    return true;
}

static bool write_all(int fd, const snapshot *s)
{
    snapshot_head head;
    memset(&head, 0, sizeof head);
    memcpy(head.magic, MAGIC, sizeof head.magic);
    head.version = VERSION;
    head.order_mark = ORDER_MARK;
    head.head_bytes = sizeof head;
    head.n_tokens = s->n_tokens;
    head.id = s->id;
    head.file_bytes = file_bytes_of(s);
    head.n_state_bytes = s->n_state_bytes;
    head.opened_ms = s->opened_ms;
    head.used_ms = s->used_ms;
    head.owner = s->owner;
    head.is_pinned = s->is_pinned;
    head.n_parts = s->n_parts;
    memcpy(head.fingerprint, s->fingerprint, sizeof head.fingerprint);
    memcpy(head.name, s->name, sizeof s->name);
    head.checksum = head_checksum(&head);

    sum all = sum_begin();
    if (!write_bytes(fd, &head, sizeof head) || !put(fd, &all, s->tokens, s->n_tokens * sizeof *s->tokens) ||
        !put(fd, &all, s->state, s->n_state_bytes) || !write_parts(fd, &all, s)) {
        return false;
    }
    const uint64_t checksum = sum_end(&all);
    return write_bytes(fd, &checksum, sizeof checksum) && fsync(fd) == 0;
}

int snapshot_write(const char *directory, const snapshot *s)
{
    char temporary[PATH_BYTES];
    char path[PATH_BYTES];
    path_of(temporary, directory, s->id, "writing");
    path_of(path, directory, s->id, "llmd-session");
    const int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        return LLM_IO;
    }
    bool good = write_all(fd, s);
    int error = errno;
    if (close(fd) != 0 && good) {
        good = false;
        error = errno;
    }
    if (good && rename(temporary, path) != 0) {
        good = false;
        error = errno;
    }
    if (!good) {
        unlink(temporary);
        errno = error;
        return LLM_IO;
    }
    if (!sync_directory(directory)) {
        error = errno;
        unlink(path);
        errno = error;
        return LLM_IO;
    }
    return LLM_OK;
}

/* ---- reading ---- */

typedef struct reading {
    int fd;
    uint64_t left; /* bytes of the file not yet read */
    sum all;
    const char *why;
} reading;

static int refuse(reading *r, const char *why)
{
    r->why = why;
    return LLM_VERSION;
}

static int take(reading *r, void *bytes, uint64_t n)
{
    if (n > r->left || !read_bytes(r->fd, bytes, n)) {
        return refuse(r, "it is cut short");
    }
    r->left -= n;
    sum_add(&r->all, bytes, n);
    return LLM_OK;
}

static int take_new(reading *r, void **out, uint64_t n)
{
    if (n > r->left) {
        return refuse(r, "it is cut short");
    }
    *out = malloc(n > 0 ? n : 1);
    return *out == NULL ? LLM_NO_MEMORY : take(r, *out, n);
}

static int check_head(reading *r, const snapshot_head *head, uint64_t id, const uint8_t fingerprint[16])
{
    if (memcmp(head->magic, MAGIC, sizeof head->magic) != 0) {
        return refuse(r, "it is not a session file");
    }
    if (head->version != VERSION || head->order_mark != ORDER_MARK || head->head_bytes != sizeof *head) {
        return refuse(r, "it was written by another version or kind of machine");
    }
    if (head->checksum != head_checksum(head)) {
        return refuse(r, "its head is damaged");
    }
    if (memcmp(head->fingerprint, fingerprint, sizeof head->fingerprint) != 0) {
        return refuse(r, "it belongs to another model or context configuration");
    }
    const bool named = memchr(head->name, '\0', LLM_SESSION_NAME_BYTES_MAX + 1) != NULL;
    if (head->id != id || !named || head->n_parts > SNAPSHOT_PARTS_MAX || head->file_bytes != r->left + sizeof *head) {
        return refuse(r, "its head does not fit the file");
    }
    return LLM_OK;
}

static int read_head(reading *r, uint64_t id, const uint8_t fingerprint[16], snapshot_head *head)
{
    struct stat info;
    if (fstat(r->fd, &info) != 0 || info.st_size < (off_t)sizeof *head) {
        return refuse(r, "it is too short");
    }
    if (!read_bytes(r->fd, head, sizeof *head)) {
        return LLM_IO;
    }
    r->left = (uint64_t)info.st_size - sizeof *head;
    r->all = sum_begin();
    return check_head(r, head, id, fingerprint);
}

static int read_part(reading *r, snapshot_part *p, uint32_t n_tokens)
{
    part_head head;
    int status = take(r, &head, sizeof head);
    if (status != LLM_OK) {
        return status;
    }
    if (head.k == 0 || head.k > n_tokens || head.is_whole > 1) {
        return refuse(r, "a checkpoint in it makes no sense");
    }
    p->k = head.k;
    p->is_whole = head.is_whole == 1;
    p->n_state_bytes = head.n_state_bytes;
    p->n_logits = head.n_logits;
    status = take_new(r, &p->state, head.n_state_bytes);
    if (status == LLM_OK && head.n_logits > 0) {
        status = take_new(r, (void **)&p->logits, (uint64_t)head.n_logits * sizeof(float));
    }
    return status;
}

static int read_rest(reading *r, const snapshot_head *head, snapshot *out)
{
    int status = take_new(r, &out->state, head->n_state_bytes);
    out->n_state_bytes = head->n_state_bytes;
    for (uint32_t i = 0; status == LLM_OK && i < head->n_parts; i++) {
        out->n_parts = i + 1;
        status = read_part(r, &out->parts[i], out->n_tokens);
    }
    if (status != LLM_OK) {
        return status;
    }
    const uint64_t expected = sum_end(&r->all);
    uint64_t checksum = 0;
    if (r->left != sizeof checksum || !read_bytes(r->fd, &checksum, sizeof checksum) || checksum != expected) {
        return refuse(r, "its contents are damaged");
    }
    return LLM_OK;
}

static int read_file(reading *r, uint64_t id, const uint8_t fingerprint[16], bool head_only, snapshot *out)
{
    snapshot_head head;
    int status = read_head(r, id, fingerprint, &head);
    if (status != LLM_OK) {
        return status;
    }
    out->id = head.id;
    out->owner = head.owner;
    out->is_pinned = head.is_pinned != 0;
    out->opened_ms = head.opened_ms;
    out->used_ms = head.used_ms;
    memcpy(out->name, head.name, sizeof out->name);
    memcpy(out->fingerprint, head.fingerprint, sizeof out->fingerprint);
    status = take_new(r, (void **)&out->tokens, (uint64_t)head.n_tokens * sizeof(int32_t));
    out->n_tokens = head.n_tokens;
    return status != LLM_OK || head_only ? status : read_rest(r, &head, out);
}

int snapshot_read(const char *directory, uint64_t id, const uint8_t fingerprint[16], bool head_only, snapshot *out,
                  const char **why)
{
    char path[PATH_BYTES];
    path_of(path, directory, id, "llmd-session");
    *out = (snapshot){0};
    reading r = {.fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), .why = ""};
    if (r.fd < 0) {
        *why = strerror(errno);
        return errno == ENOENT ? LLM_NOT_FOUND : LLM_IO;
    }
    const int status = read_file(&r, id, fingerprint, head_only, out);
    close(r.fd);
    *why = r.why;
    if (status != LLM_OK) {
        snapshot_clear(out);
    }
    return status;
}

int snapshot_remove(const char *directory, uint64_t id)
{
    char path[PATH_BYTES];
    path_of(path, directory, id, "llmd-session");
    if (unlink(path) != 0) {
        return errno == ENOENT ? LLM_OK : LLM_IO;
    }
    return sync_directory(directory) ? LLM_OK : LLM_IO; /* what was reset or closed must not come back */
}

void snapshot_set_aside(const char *directory, uint64_t id)
{
    char path[PATH_BYTES];
    char aside[PATH_BYTES];
    path_of(path, directory, id, "llmd-session");
    path_of(aside, directory, id, "refused");
    (void)rename(path, aside);
}

/* The id in "0123456789abcdef.ENDING"; false for any other name. */
static bool parse_name(const char *name, const char *ending, uint64_t *id)
{
    if (strlen(name) != 17 + strlen(ending) || name[16] != '.' || strcmp(name + 17, ending) != 0 ||
        strspn(name, "0123456789abcdef") != 16) {
        return false;
    }
    *id = strtoull(name, NULL, 16);
    return true;
}

int snapshot_scan(const char *directory, void (*found)(void *context, uint64_t id), void *context)
{
    DIR *d = opendir(directory);
    if (d == NULL) {
        return LLM_IO;
    }
    const struct dirent *entry;
    while ((entry = readdir(d)) != NULL) {
        uint64_t id = 0;
        if (parse_name(entry->d_name, "llmd-session", &id)) {
            found(context, id);
        } else if (parse_name(entry->d_name, "writing", &id)) {
            char path[PATH_BYTES];
            path_of(path, directory, id, "writing");
            unlink(path);
        }
    }
    closedir(d);
    return LLM_OK;
}
