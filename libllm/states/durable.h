/* durable.h: writes and reads files of the state directory. Each file is either complete or absent after a crash at any
 * moment. For this, a file is written under a temporary name, synced and renamed, and the directory is synced. Also
 * computes the checksum that reveals a damaged file. Has no thread of its own. */
#ifndef LLM_DURABLE_H
#define LLM_DURABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- checksum: four multiply-xor lanes over 32-byte blocks, as fast as the memory can be read ---- */

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

/* Returns 64 random bits, never 0. The id of a branch and its files is random. Thus no client can choose a file name by
 * a session name or label. Called by any thread. */
uint64_t durable_new_id(void);

void durable_path(char out[DURABLE_PATH_BYTES], const char *directory, uint64_t id, const char *ending);
/* Parses the id in a file name of the form 0123456789abcdef.ENDING. Returns false for any other name. */
bool durable_parse(const char *name, const char *ending, uint64_t *id);

/* ---- files: failures return false and set errno ---- */

int durable_create(const char *directory, uint64_t id, const char *ending); /* returns a file descriptor, or -1 */
/* Reserves the space for a file of n bytes before the file is written. Some file systems do not support this. Then
 * reserves nothing. Returns false if there is not enough space. Also returns false if other programs would be left with
 * too little space. Too little space is less than both 1/DURABLE_RESERVE_SHARE of the disk and
 * DURABLE_RESERVE_BYTES_MAX. */
bool durable_allocate(int fd, uint64_t n);
bool durable_write(int fd, const void *bytes, size_t n);
/* reads all n bytes; returns false, with errno 0, if the file has fewer */
bool durable_read(int fd, void *bytes, size_t n);
bool durable_finish(int fd, bool is_good); /* if is_good, syncs the file; closes the file in any case */
bool durable_rename(const char *directory, uint64_t id, const char *from, const char *to);
bool durable_remove(const char *directory, uint64_t id, const char *ending); /* true also if there is no such file */
bool durable_exists(const char *directory, uint64_t id, const char *ending);
bool durable_make(const char *directory); /* creates the directory for this user only; true also if the directory
                                           * exists */
bool durable_sync(const char *directory);

#endif
