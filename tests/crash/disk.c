/* disk.c: a disk that fails, tears and loses power, for the daemon under test. Preloaded (LD_PRELOAD); touches only files
 * below CRASH_DIR, and the clock of CLOCK_REALTIME.
 *
 *   CRASH_DIR      the directory whose files are on the bad disk
 *   CRASH_SEED     of the random choices
 *   CRASH_FAIL     operations of 10,000 that fail (ENOSPC, EIO, EMFILE, EROFS), or do only a part
 *   CRASH_AT       the operation, counted from 1, at which the process dies; 0: never
 *   CRASH_POWER    1: with it the power fails: what was not synced is lost, as far as chance decides
 *   CRASH_CLOCK    1: CLOCK_REALTIME jumps, by up to two days in either direction
 *
 * The power failure. Bytes written since the last fsync of their file are lost from some point on, and the last page
 * that is kept may be torn. A rename or unlink whose directory was not synced since may not have happened: before each,
 * the old file is linked to another name, by which it can come back. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FILES_MAX = 1024, UNDONE_MAX = 256, DAY_S = 86400, CLOCK_CALLS_PER_JUMP = 2000 };

/* A descriptor of a file on the bad disk. */
typedef struct open_file {
    bool is_open;
    bool is_directory;
    char path[PATH_MAX];
    off_t synced; /* bytes that survive */
    off_t written;
} open_file;

/* A rename or unlink that is not on the disk yet. `kept`: where the file that was at `to` (rename) or `from` (unlink) still
 * lies, "": there was none. */
typedef struct undone {
    char from[PATH_MAX];
    char to[PATH_MAX]; /* "": unlink */
    char kept[PATH_MAX];
} undone;

static struct {
    pthread_mutex_t mutex;
    char directory[PATH_MAX];
    uint64_t random;
    uint32_t n_operations;
    uint32_t crash_at;
    uint32_t fail_of_10000;
    bool loses_power;
    bool has_bad_clock;
    int64_t clock_offset_s;
    uint32_t n_clock_calls;
    open_file files[FILES_MAX]; /* by descriptor */
    undone undone[UNDONE_MAX];  /* in the order in which they happened */
    int n_undone;
    uint32_t n_kept;
} disk = {.mutex = PTHREAD_MUTEX_INITIALIZER};

#define REAL(name, type, ...) ((type (*)(__VA_ARGS__))real(#name))

static void *real(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static uint64_t number(const char *name)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : 0;
}

__attribute__((constructor)) static void begin(void)
{
    const char *directory = getenv("CRASH_DIR");
    snprintf(disk.directory, sizeof disk.directory, "%s", directory != NULL ? directory : "/nowhere");
    disk.random = number("CRASH_SEED") * 0x9e3779b97f4a7c15ull + 1;
    disk.crash_at = (uint32_t)number("CRASH_AT");
    disk.fail_of_10000 = (uint32_t)number("CRASH_FAIL");
    disk.loses_power = number("CRASH_POWER") != 0;
    disk.has_bad_clock = number("CRASH_CLOCK") != 0;
}

static uint64_t draw(uint64_t below)
{
    disk.random ^= disk.random << 13;
    disk.random ^= disk.random >> 7;
    disk.random ^= disk.random << 17;
    return disk.random % below;
}

static bool is_ours(const char *path)
{
    const size_t n = strlen(disk.directory);
    return path != NULL && strncmp(path, disk.directory, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* ---- the power fails ---- */

static void lose_bytes(void)
{
    for (int fd = 0; fd < FILES_MAX; fd++) {
        open_file *f = &disk.files[fd];
        if (!f->is_open || f->is_directory || f->written <= f->synced) {
            continue;
        }
        const off_t lost = (off_t)draw((uint64_t)(f->written - f->synced) + 1);
        const off_t length = f->written - lost;
        (void)!ftruncate(fd, length);
        if (length > f->synced && draw(2) == 0) { /* torn: the length is there, the bytes are not */
            const off_t hole = f->synced + (off_t)draw((uint64_t)(length - f->synced));
            (void)!ftruncate(fd, hole);
            (void)!ftruncate(fd, length);
        }
    }
}

static void undo_some(void)
{
    for (int i = disk.n_undone - 1; i >= 0 && draw(2) == 0; i--) { /* only the last ones: a journal keeps the order */
        const undone *u = &disk.undone[i];
        if (u->to[0] == '\0') {
            REAL(rename, int, const char *, const char *)(u->kept, u->from);
            continue;
        }
        REAL(rename, int, const char *, const char *)(u->to, u->from);
        if (u->kept[0] != '\0') {
            REAL(rename, int, const char *, const char *)(u->kept, u->to);
        }
    }
}

static void die(void)
{
    if (disk.loses_power) {
        lose_bytes();
        undo_some();
    }
    kill(getpid(), SIGKILL);
    for (;;) {
        pause();
    }
}

/* ---- an operation: it may be the last one, and it may fail ---- */

static bool must_fail(const int *errors, int n_errors)
{
    if (++disk.n_operations == disk.crash_at) {
        die();
    }
    if (draw(10000) >= disk.fail_of_10000) {
        return false;
    }
    errno = errors[draw((uint64_t)n_errors)];
    return true;
}

static const int OPEN_ERRORS[] = {EMFILE, ENOSPC, EIO, EROFS};
static const int WRITE_ERRORS[] = {ENOSPC, EIO};
static const int READ_ERRORS[] = {EIO};

#define MUST_FAIL(errors) must_fail(errors, (int)(sizeof(errors) / sizeof((errors)[0])))

static void opened(int fd, const char *path, int flags)
{
    if (fd < 0 || fd >= FILES_MAX) {
        return;
    }
    struct stat facts;
    open_file *f = &disk.files[fd];
    *f = (open_file){.is_open = true};
    snprintf(f->path, sizeof f->path, "%s", path);
    if (fstat(fd, &facts) == 0) {
        f->is_directory = S_ISDIR(facts.st_mode);
        f->synced = f->written = (flags & O_TRUNC) != 0 ? 0 : facts.st_size;
    }
}

static int open_any(const char *name, const char *path, int flags, mode_t mode)
{
    int (*open_real)(const char *, int, ...) = (int (*)(const char *, int, ...))real(name);
    if (!is_ours(path)) {
        return open_real(path, flags, mode);
    }
    pthread_mutex_lock(&disk.mutex);
    int fd = MUST_FAIL(OPEN_ERRORS) ? -1 : open_real(path, flags, mode);
    opened(fd, path, flags);
    pthread_mutex_unlock(&disk.mutex);
    return fd;
}

#define MODE_OF(flags)                                                                                                 \
    mode_t mode = 0;                                                                                                   \
    if (((flags) & (O_CREAT | O_TMPFILE)) != 0) {                                                                      \
        va_list arguments;                                                                                             \
        va_start(arguments, flags);                                                                                    \
        mode = va_arg(arguments, mode_t);                                                                              \
        va_end(arguments);                                                                                             \
    }

int open(const char *path, int flags, ...)
{
    MODE_OF(flags)
    return open_any("open", path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    MODE_OF(flags)
    return open_any("open64", path, flags, mode);
}

static open_file *file_of(int fd)
{
    return fd >= 0 && fd < FILES_MAX && disk.files[fd].is_open ? &disk.files[fd] : NULL;
}

int close(int fd)
{
    pthread_mutex_lock(&disk.mutex);
    open_file *f = file_of(fd);
    /* Closing syncs nothing: until then the bytes can be lost, and afterwards nobody could tell which. The daemon syncs
     * what it means to keep before it closes; the rest is kept here. */
    if (f != NULL) {
        f->is_open = false;
    }
    pthread_mutex_unlock(&disk.mutex);
    return REAL(close, int, int)(fd);
}

/* ---- bytes ---- */

static ssize_t write_some(open_file *f, int fd, const void *bytes, size_t n, off_t at, bool is_positioned)
{
    if (MUST_FAIL(WRITE_ERRORS)) {
        return -1;
    }
    if (n > 1 && draw(20) == 0) {
        n = 1 + draw(n - 1);
    }
    const ssize_t done = is_positioned ? REAL(pwrite, ssize_t, int, const void *, size_t, off_t)(fd, bytes, n, at)
                                       : REAL(write, ssize_t, int, const void *, size_t)(fd, bytes, n);
    if (done > 0) {
        const off_t end = is_positioned ? at + done : lseek(fd, 0, SEEK_CUR);
        f->written = end > f->written ? end : f->written;
    }
    return done;
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    pthread_mutex_lock(&disk.mutex);
    open_file *f = file_of(fd);
    const ssize_t done = f != NULL ? write_some(f, fd, bytes, n, 0, false) : -1;
    pthread_mutex_unlock(&disk.mutex);
    return f != NULL ? done : REAL(write, ssize_t, int, const void *, size_t)(fd, bytes, n);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    pthread_mutex_lock(&disk.mutex);
    open_file *f = file_of(fd);
    const ssize_t done = f != NULL ? write_some(f, fd, bytes, n, at, true) : -1;
    pthread_mutex_unlock(&disk.mutex);
    return f != NULL ? done : REAL(pwrite, ssize_t, int, const void *, size_t, off_t)(fd, bytes, n, at);
}

ssize_t read(int fd, void *bytes, size_t n)
{
    pthread_mutex_lock(&disk.mutex);
    const bool is_on_disk = file_of(fd) != NULL;
    const bool fails = is_on_disk && MUST_FAIL(READ_ERRORS);
    const int error = errno;
    if (is_on_disk && n > 1 && draw(20) == 0) {
        n = 1 + draw(n - 1);
    }
    pthread_mutex_unlock(&disk.mutex);
    errno = error;
    return fails ? -1 : REAL(read, ssize_t, int, void *, size_t)(fd, bytes, n);
}

static bool is_in(const char *path, const char *directory)
{
    const size_t n = strlen(directory);
    return strncmp(path, directory, n) == 0 && path[n] == '/' && strchr(path + n + 1, '/') == NULL;
}

static void forget(int i)
{
    disk.n_undone--;
    memmove(&disk.undone[i], &disk.undone[i + 1], (size_t)(disk.n_undone - i) * sizeof disk.undone[0]);
}

/* The changes made in this directory are on disk now. */
static void settle(const char *directory)
{
    for (int i = disk.n_undone - 1; i >= 0; i--) {
        if (is_in(disk.undone[i].from, directory)) {
            if (disk.undone[i].kept[0] != '\0') {
                REAL(unlink, int, const char *)(disk.undone[i].kept);
            }
            forget(i);
        }
    }
}

int fsync(int fd)
{
    pthread_mutex_lock(&disk.mutex);
    open_file *f = file_of(fd);
    int status = 0;
    if (f != NULL && MUST_FAIL(READ_ERRORS)) {
        status = -1;
    } else if (f != NULL && f->is_directory) {
        settle(f->path);
    } else if (f != NULL) {
        f->synced = f->written;
    }
    pthread_mutex_unlock(&disk.mutex);
    return status; /* the real disk of the test machine need not be asked */
}

int fdatasync(int fd)
{
    return fsync(fd);
}

/* ---- names ---- */

static void remember(const char *from, const char *to, const char *old)
{
    if (!disk.loses_power) {
        return;
    }
    if (disk.n_undone == UNDONE_MAX) {
        forget(0);
    }
    undone *u = &disk.undone[disk.n_undone++];
    *u = (undone){0};
    snprintf(u->from, sizeof u->from, "%s", from);
    snprintf(u->to, sizeof u->to, "%s", to);
    char kept[PATH_MAX + 32];
    snprintf(kept, sizeof kept, "%s/.kept-%d-%u", disk.directory, getpid(), disk.n_kept++);
    if (link(old, kept) == 0) {
        snprintf(u->kept, sizeof u->kept, "%.*s", (int)sizeof u->kept - 1, kept);
    }
}

int rename(const char *from, const char *to)
{
    if (!is_ours(from)) {
        return REAL(rename, int, const char *, const char *)(from, to);
    }
    pthread_mutex_lock(&disk.mutex);
    int status = -1;
    if (!MUST_FAIL(WRITE_ERRORS)) {
        remember(from, to, to);
        status = REAL(rename, int, const char *, const char *)(from, to);
        if (status != 0 && disk.loses_power) {
            forget(disk.n_undone - 1);
        }
    }
    pthread_mutex_unlock(&disk.mutex);
    return status;
}

int unlink(const char *path)
{
    if (!is_ours(path)) {
        return REAL(unlink, int, const char *)(path);
    }
    static const int errors[] = {EIO, EROFS};
    pthread_mutex_lock(&disk.mutex);
    int status = -1;
    if (!MUST_FAIL(errors)) {
        remember(path, "", path);
        status = REAL(unlink, int, const char *)(path);
        if (status != 0 && disk.loses_power) {
            forget(disk.n_undone - 1);
        }
    }
    pthread_mutex_unlock(&disk.mutex);
    return status;
}

/* ---- the clock ---- */

int clock_gettime(clockid_t clock, struct timespec *out)
{
    const int status = REAL(clock_gettime, int, clockid_t, struct timespec *)(clock, out);
    if (clock == CLOCK_REALTIME && disk.has_bad_clock && status == 0) {
        pthread_mutex_lock(&disk.mutex);
        if (disk.n_clock_calls++ % CLOCK_CALLS_PER_JUMP == 0) {
            disk.clock_offset_s = (int64_t)draw(4 * DAY_S) - 2 * DAY_S;
        }
        out->tv_sec += (time_t)disk.clock_offset_s;
        pthread_mutex_unlock(&disk.mutex);
    }
    return status;
}
