/* store_files.h: does the jobs of the store on the disk. Reads and writes the files of the sessions of one model. Also
 * reads and writes the files of sessions saved under labels. Collects complaints, which are messages for the log about
 * failures. The store thread calls these functions. Only the scans are done by the thread that opens the engine, before
 * the store thread begins. Any thread may read the index of labels and the complaints. Private to store*.c. */
#ifndef LLM_STORE_FILES_H
#define LLM_STORE_FILES_H

#include <pthread.h>

#include "states/store.h"

enum { COMPLAINTS_MAX = 16, COMPLAINT_BYTES = 512 };

/* A session saved under a label. */
typedef struct saved_entry {
    uint64_t id; /* id of the session's files in `saved_directory`. Random, so that no client can choose a file name */
    llm_saved facts;
} saved_entry;

typedef struct store_files {
    char *directory;
    char *saved_directory;
    uint8_t identity[16];
    uint8_t geometry[16];
    bool can_truncate_states;
    bool is_refusing;      /* the last write of a state failed; only the first such failure is reported */
    pthread_mutex_t mutex; /* guards the members below */
    uint32_t n_saved;
    saved_entry saved[LLM_SAVED_MAX];
    uint32_t n_complaints;
    uint32_t n_suppressed; /* number of complaints that were dropped, beyond COMPLAINTS_MAX */
    char complaints[COMPLAINTS_MAX][COMPLAINT_BYTES];
} store_files;

int store_files_open(store_files *f, const store_options *options); /* returns LLM_OK or LLM_NO_MEMORY */
void store_files_close(store_files *f);

void store_files_complain(store_files *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool store_files_complaint(store_files *f, char *out, size_t n_bytes);

void store_files_work(store_files *f, store_job *job);
void store_files_scan(store_files *f, void (*found)(void *context, branch_file *file, const state_facts *state),
                      void *context);

/* Reports a file that was refused or could not be read. A refused file is renamed. */
void store_files_refuse(store_files *f, bool is_saved, uint64_t id, int status, const char *why);

/* store_saved.c: the index of labels. */
void store_saved_scan(store_files *f);
void store_saved_save(store_files *f, store_job *job);
void store_saved_load(store_files *f, store_job *job);
void store_saved_remove(store_files *f, store_job *job);
bool store_saved_find(store_files *f, uint32_t owner, const char *label, saved_entry *out);

#endif
