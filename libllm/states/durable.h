/* durable.h: files of the state directory: whole or not there, whenever the machine stops. Written under a temporary
 * name, synced, renamed, and the directory synced. And the checksum that tells a whole file from a damaged one. No
 * thread of its own. */
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

/* 64 random bits, not 0: of a session and its files, so that no name or label chooses a file. Any thread. */
uint64_t durable_new_id(void);

void durable_path(char out[DURABLE_PATH_BYTES], const char *directory, uint64_t id, const char *ending);
/* The id in such a name; false for any other name. */
bool durable_parse(const char *name, const char *ending, uint64_t *id);

/* ---- files: false with errno ---- */

int durable_create(const char *directory, uint64_t id, const char *ending); /* a descriptor, or -1 */
/* Takes the space of a file of n bytes before the first one is written, where the file system can, and never what
 * others need of the disk: one byte in DURABLE_RESERVE_SHARE of it, at most DURABLE_RESERVE_BYTES_MAX. */
bool durable_allocate(int fd, uint64_t n);
bool durable_write(int fd, const void *bytes, size_t n);
bool durable_read(int fd, void *bytes, size_t n); /* all n of them, or false: errno 0 where the file ends before */
bool durable_finish(int fd, bool is_good);        /* if good, syncs; closes in any case */
bool durable_rename(const char *directory, uint64_t id, const char *from, const char *to);
bool durable_remove(const char *directory, uint64_t id, const char *ending); /* what is not there is removed */
bool durable_exists(const char *directory, uint64_t id, const char *ending);
bool durable_make(const char *directory); /* for this user; true where it is there already */
bool durable_sync(const char *directory);

#endif
