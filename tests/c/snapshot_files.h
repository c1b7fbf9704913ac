/* snapshot_files.h: makes and reads directories and files of sessions and states, for tests of files. */
#ifndef SNAPSHOT_FILES_H
#define SNAPSHOT_FILES_H

#include "states/snapshot.h"

enum { FILES_PATH_BYTES = 128, FILES_TOKENS = 9, FILES_COVERED = 7 };

extern const uint8_t files_identity[16];
extern const uint8_t files_geometry[16];

/* files_make_directory makes a new directory under /tmp. files_remove_directory removes it with its contents. */
void files_make_directory(char path[FILES_PATH_BYTES]);
void files_remove_directory(const char *path);
/* Returns the directory of the only model that has used this state directory. */
void files_model_directory(const char *directory, char out[FILES_PATH_BYTES]);

/* Returns a pinned session "it" of owner 7 with FILES_TOKENS tokens. Freed with branch_file_clear. */
branch_file files_branch(uint64_t id);
/* Returns a state of the session's first FILES_COVERED tokens, with two checkpoints, one of them with logits. Freed
 * with state_file_clear. */
state_file files_state(void);
int files_branches_equal(const branch_file *a, const branch_file *b);
int files_states_equal(const state_file *a, const state_file *b);

/* Returns the contents of the file, which the caller frees, or NULL. */
uint8_t *files_read(const char *directory, uint64_t id, const char *ending, size_t *n_bytes);
void files_write(const char *directory, uint64_t id, const char *ending, const void *bytes, size_t n_bytes);
uint32_t files_count(const char *directory, const char *ending);
uint64_t files_any(const char *directory, const char *ending); /* returns the id of a file with this ending, or 0 if
                                                                * there is none */
int files_exists(const char *directory, uint64_t id, const char *ending);

/* Simulates a failing disk: makes a directory with the file's name. Then the file can be neither written nor removed,
 * and no file can be renamed to this name. */
void files_obstruct(const char *directory, uint64_t id, const char *ending);

/* Runs a test (see RUN in check.h) with a new directory for its files. The test file must have a static
 * char[FILES_PATH_BYTES] `directory`. */
#define RUN_FILES(test)                                                                                                \
    do {                                                                                                               \
        files_make_directory(directory);                                                                               \
        RUN(test);                                                                                                     \
        files_remove_directory(directory);                                                                             \
    } while (0)

#endif
