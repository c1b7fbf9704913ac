/* durable.h: files of the state directory, each complete or absent whenever the machine stops: a file is written under
 * a temporary name, synced and renamed, and the directory is synced. Also the checksum that tells a complete file from
 * a damaged one. No thread of its own. */
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

/* Returns 64 random bits, not 0: the id of a branch and its files, so that no client's name or label chooses a file
 * name. Any thread. */
uint64_t durable_new_id(void);

void durable_path(char out[DURABLE_PATH_BYTES], const char *directory, uint64_t id, const char *ending);
/* Reads the id from such a name; false for any other name. */
bool durable_parse(const char *name, const char *ending, uint64_t *id);

/* ---- files: false with errno ---- */

int durable_create(const char *directory, uint64_t id, const char *ending); /* a descriptor, or -1 */
/* Reserves the space of a file of n bytes before it is written, if the file system can. Leaves a part of the disk to
 * other programs: one byte in DURABLE_RESERVE_SHARE, at most DURABLE_RESERVE_BYTES_MAX. */
bool durable_allocate(int fd, uint64_t n);
bool durable_write(int fd, const void *bytes, size_t n);
bool durable_read(int fd, void *bytes, size_t n); /* reads all n bytes; false with errno 0: the file ends before */
bool durable_finish(int fd, bool is_good);        /* syncs the file if it is good; closes it in any case */
bool durable_rename(const char *directory, uint64_t id, const char *from, const char *to);
bool durable_remove(const char *directory, uint64_t id, const char *ending); /* true also if there is no such file */
bool durable_exists(const char *directory, uint64_t id, const char *ending);
bool durable_make(const char *directory); /* makes it for this user only; true if it exists */
bool durable_sync(const char *directory);

#endif
