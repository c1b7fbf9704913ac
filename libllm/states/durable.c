#include "states/durable.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* ---- checksum ---- */

durable_sum durable_sum_begin(void)
{
    return (durable_sum){
        .lane = {0x243f6a8885a308d3ull, 0x13198a2e03707344ull, 0xa4093822299f31d0ull, 0x082efa98ec4e6c89ull}};
}

static void add_block(durable_sum *s, const uint8_t *block)
{
    for (int i = 0; i < 4; i++) {
        uint64_t x;
        memcpy(&x, block + 8 * i, 8);
        s->lane[i] = (s->lane[i] ^ x) * 0x9fb21c651e98df25ull;
        s->lane[i] ^= s->lane[i] >> 32;
    }
}

void durable_sum_add(durable_sum *s, const void *bytes, size_t n)
{
    const uint8_t *at = bytes;
    s->n_bytes += n;
    while (n > 0) {
        if (s->n_pending == 0 && n >= sizeof s->pending) {
            add_block(s, at);
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
            add_block(s, s->pending);
            s->n_pending = 0;
        }
    }
}

uint64_t durable_sum_end(durable_sum *s)
{
    memset(s->pending + s->n_pending, 0, sizeof s->pending - s->n_pending);
    add_block(s, s->pending);
    uint64_t h = s->n_bytes;
    for (int i = 0; i < 4; i++) {
        h = (h ^ s->lane[i]) * 0xbf58476d1ce4e5b9ull;
        h ^= h >> 31;
    }
    return h;
}

/* ---- names ---- */

/* Called if getrandom failed. A system-call filter may refuse getrandom but allow /dev/urandom. */
static bool read_random_device(uint64_t *id)
{
    FILE *device = fopen("/dev/urandom", "rbe");
    const bool is_read = device != NULL && fread(id, sizeof *id, 1, device) == 1;
    if (device != NULL) {
        fclose(device);
    }
    return is_read;
}

uint64_t durable_new_id(void)
{
    uint64_t id = 0;
    while (id == 0) {
        const bool is_drawn = getrandom(&id, sizeof id, 0) == (ssize_t)sizeof id;
        if (!is_drawn && errno != EINTR && !read_random_device(&id)) {
            perror("llmd: no random numbers");
            abort(); /* without random bits, the id could be the id of another session's file */
        }
    }
    return id;
}

void durable_path(char out[DURABLE_PATH_BYTES], const char *directory, uint64_t id, const char *ending)
{
    snprintf(out, DURABLE_PATH_BYTES, "%s/%016" PRIx64 ".%s", directory, id, ending);
}

bool durable_parse(const char *name, const char *ending, uint64_t *id)
{
    if (strlen(name) != 17 + strlen(ending) || name[16] != '.' || strcmp(name + 17, ending) != 0 ||
        strspn(name, "0123456789abcdef") != 16) {
        return false;
    }
    *id = strtoull(name, NULL, 16);
    return true;
}

/* ---- files ---- */

int durable_create(const char *directory, uint64_t id, const char *ending)
{
    char path[DURABLE_PATH_BYTES];
    durable_path(path, directory, id, ending);
    return open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
}

static bool leaves_reserve(int fd, uint64_t n)
{
    struct statvfs disk;
    if (fstatvfs(fd, &disk) != 0) {
        return true;
    }
    const uint64_t share = (uint64_t)disk.f_blocks * disk.f_frsize / DURABLE_RESERVE_SHARE;
    const uint64_t reserve = share < DURABLE_RESERVE_BYTES_MAX ? share : DURABLE_RESERVE_BYTES_MAX;
    return disk.f_blocks == 0 || (uint64_t)disk.f_bavail * disk.f_frsize >= n + reserve;
}

bool durable_allocate(int fd, uint64_t n)
{
    if (!leaves_reserve(fd, n)) {
        errno = ENOSPC;
        return false;
    }
    /* posix_fallocate is not used, because on file systems without support it writes to every block. */
    while (fallocate(fd, 0, 0, (off_t)n) != 0) {
        if (errno != EINTR) {
            return errno != ENOSPC && errno != EDQUOT;
        }
    }
    return true;
}

bool durable_write(int fd, const void *bytes, size_t n)
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

bool durable_read(int fd, void *bytes, size_t n)
{
    char *at = bytes;
    while (n > 0) {
        const ssize_t done = read(fd, at, n < ((size_t)1 << 30) ? n : (size_t)1 << 30);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            errno = done == 0 ? 0 : errno;
            return false;
        }
        at += done;
        n -= (size_t)done;
    }
    return true;
}

bool durable_finish(int fd, bool is_good)
{
    is_good = is_good && fsync(fd) == 0;
    const int error = errno;
    const bool is_closed = close(fd) == 0;
    if (!is_good) {
        errno = error;
    }
    return is_good && is_closed;
}

bool durable_rename(const char *directory, uint64_t id, const char *from, const char *to)
{
    char path_from[DURABLE_PATH_BYTES];
    char path_to[DURABLE_PATH_BYTES];
    durable_path(path_from, directory, id, from);
    durable_path(path_to, directory, id, to);
    return rename(path_from, path_to) == 0;
}

bool durable_remove(const char *directory, uint64_t id, const char *ending)
{
    char path[DURABLE_PATH_BYTES];
    durable_path(path, directory, id, ending);
    return unlink(path) == 0 || errno == ENOENT;
}

bool durable_exists(const char *directory, uint64_t id, const char *ending)
{
    char path[DURABLE_PATH_BYTES];
    durable_path(path, directory, id, ending);
    return access(path, F_OK) == 0;
}

bool durable_make(const char *directory)
{
    char parent[DURABLE_PATH_BYTES];
    snprintf(parent, sizeof parent, "%s/..", directory);
    if (mkdir(directory, 0700) != 0) {
        return errno == EEXIST;
    }
    (void)durable_sync(parent); /* best effort: llmd can work in a directory whose parent cannot be read or synced */
    return true;
}

bool durable_sync(const char *directory)
{
    const int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 && durable_finish(fd, true);
}
