/* snapshot_files.h: directories, snapshots and their files, for tests of what lies on a disk. */
#ifndef SNAPSHOT_FILES_H
#define SNAPSHOT_FILES_H

#include "snapshot.h"

enum { FILES_PATH_BYTES = 128 };

extern const uint8_t files_fingerprint[16];

/* A directory of its own under /tmp; removed with all that is in it. */
void files_make_directory(char path[FILES_PATH_BYTES]);
void files_remove_directory(const char *path);

/* A small snapshot with two checkpoints, one with logits. Freed with snapshot_clear. */
snapshot files_snapshot(uint64_t id);
int files_equal(const snapshot *a, const snapshot *b);

/* The whole file, or NULL; freed by the caller. */
uint8_t *files_read(const char *directory, uint64_t id, size_t *n_bytes);
void files_write(const char *directory, uint64_t id, const char *ending, const void *bytes, size_t n_bytes);
int files_exists(const char *directory, uint64_t id, const char *ending);

#endif
