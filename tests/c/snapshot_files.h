/* snapshot_files.h: directories, sessions, states and their files, for tests of what lies on a disk. */
#ifndef SNAPSHOT_FILES_H
#define SNAPSHOT_FILES_H

#include "states/snapshot.h"

enum { FILES_PATH_BYTES = 128, FILES_TOKENS = 9, FILES_COVERED = 7 };

extern const uint8_t files_identity[16];
extern const uint8_t files_geometry[16];

/* A directory of its own under /tmp; removed with all that is in it. */
void files_make_directory(char path[FILES_PATH_BYTES]);
void files_remove_directory(const char *path);
/* The directory of the one model that was served with this state directory. */
void files_model_directory(const char *directory, char out[FILES_PATH_BYTES]);

/* A session of FILES_TOKENS tokens, owner 7, name "it", pinned. Freed with branch_file_clear. */
branch_file files_branch(uint64_t id);
/* A state of its first FILES_COVERED tokens with two checkpoints, one with logits. Freed with state_file_clear. */
state_file files_state(void);
int files_branches_equal(const branch_file *a, const branch_file *b);
int files_states_equal(const state_file *a, const state_file *b);

/* The whole file, or NULL; freed by the caller. */
uint8_t *files_read(const char *directory, uint64_t id, const char *ending, size_t *n_bytes);
void files_write(const char *directory, uint64_t id, const char *ending, const void *bytes, size_t n_bytes);
uint32_t files_count(const char *directory, const char *ending);
uint64_t files_any(const char *directory, const char *ending); /* id of any of these files, or 0 */
int files_exists(const char *directory, uint64_t id, const char *ending);

/* A directory under that name: nothing can be written to it, renamed to it, or removed, as on a disk that fails. */
void files_obstruct(const char *directory, uint64_t id, const char *ending);

/* Runs a test that keeps its files in `directory`, a static char[FILES_PATH_BYTES] of its file (see RUN in check.h). */
#define RUN_FILES(test)                                                                                                \
    do {                                                                                                               \
        files_make_directory(directory);                                                                               \
        RUN(test);                                                                                                     \
        files_remove_directory(directory);                                                                             \
    } while (0)

#endif
