/* durable.h: writes and reads files of the state directory. Each file is complete or absent whenever the machine stops,
 * because it is written under a temporary name, synced and renamed, and the directory is synced. Also computes the
 * checksum that reveals a damaged file. Has no thread of its own. */
#ifndef LLM_DURABLE_H
#define LLM_DURABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- checksum: four multiply-xor lanes over 32-byte blocks, so that it keeps up with the memory ---- */

typedef struct durable_sum {
    uint64_t lane[4];
    uint64_t n_bytes;
    uint8_t pending[32];
    uint32_t n_pending;
} durable_sum;

durable_sum durable_sum_begin(void);
void durable_sum_add(durable_sum *s, const void *bytes, size_t n);
uint64_t durable_sum_end(durable_sum *s);

/* ---- names: DIRECTORY/0123456789abcdef.ENDING ---- */

enum { DURABLE_PATH_BYTES = 4096 };
enum { DURABLE_RESERVE_SHARE = 20 };
#define DURABLE_RESERVE_BYTES_MAX ((uint64_t)2 << 30)

/* Returns 64 random bits, never 0. The id of a branch and its files is random so that no client chooses a file name by
 * a session name or label. Called by any thread. */
uint64_t durable_new_id(void);

void durable_path(char out[DURABLE_PATH_BYTES], const char *directory, uint64_t id, const char *ending);
/* Parses the id in such a name. Returns false for any other name. */
bool durable_parse(const char *name, const char *ending, uint64_t *id);

/* ---- files: failures return false and set errno ---- */

int durable_create(const char *directory, uint64_t id, const char *ending); /* a descriptor, or -1 */
/* Reserves the space for a file of n bytes before the file is written, if the file system supports that. Returns false
 * if other programs would be left less than 1/DURABLE_RESERVE_SHARE of the disk, or less than DURABLE_RESERVE_BYTES_MAX
 * on a large disk. */
bool durable_allocate(int fd, uint64_t n);
bool durable_write(int fd, const void *bytes, size_t n);
/* reads all n bytes; returns false with errno 0 if the file ends before */
bool durable_read(int fd, void *bytes, size_t n);
bool durable_finish(int fd, bool is_good); /* syncs the file if it is good; closes it in any case */
bool durable_rename(const char *directory, uint64_t id, const char *from, const char *to);
bool durable_remove(const char *directory, uint64_t id, const char *ending); /* true also if there is no such file */
bool durable_exists(const char *directory, uint64_t id, const char *ending);
bool durable_make(const char *directory); /* makes the directory for this user only; true if it exists */
bool durable_sync(const char *directory);

#endif
