/* store.h: the store thread does all disk I/O, so that the decode thread never waits for a disk. The decode thread
 * pushes jobs and takes results; before it starts and after it ends, the engine's owner does so. A job and the memory
 * it points to belong to the store from the push until the result is taken. Blobs are the exception: they belong to the
 * ledger, and the store only reads their bytes.
 *
 * There are two queues, and the jobs of each queue are done in order. Changes of branch files go first, because these
 * jobs are small and commands wait for them. States, which may take seconds, follow. Any order of the two is safe,
 * because the two files of a branch do not depend on each other (snapshot.h). The callers limit the length of the
 * queues: a command waits for each job, or the job is the only one of its kind for its branch, and no state is written
 * while STORE_JOBS_MAX jobs wait. */
#ifndef LLM_STORE_H
#define LLM_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "boundary/notifier.h"
#include "llm.h"
#include "states/snapshot.h"

enum {
    STORE_JOBS_MAX = 2048,
    STORE_PAUSE_S = 10, /* pause after a state could not be written */
};

typedef struct store store;

typedef enum store_verb {
    STORE_CHANGE, /* writes branch files, all or none, then removes branch files */
    STORE_WRITE,  /* writes a branch's state, or links the state of `linked_id`; does nothing without a branch file */
    STORE_READ,   /* reads a branch's state */
    STORE_SAVE,   /* saves a branch file and a state (or the state of `linked_id`) under a label */
    STORE_LOAD,   /* reads the branch file saved under a label and, if it fits this model's memory, the state */
    STORE_UNSAVE, /* removes the files of a label */
    /* removes states, after a CHANGE (then pushed by the store itself) or to free disk space; has no result */
    STORE_SWEEP,
} store_verb;

typedef enum change_verb {
    CHANGE_WRITE,  /* the branch file is written */
    CHANGE_REMOVE, /* both files are removed */
    CHANGE_RESET,  /* the branch file is written, and the state is removed */
    CHANGE_NONE,   /* no file changes; `was` is needed for an undo */
} change_verb;

/* A change of one branch's files, with the former values, which are restored if the change fails. */
typedef struct store_change {
    change_verb verb;
    branch_file file; /* has no tokens for REMOVE, and only an id for NONE */
    struct {
        char name[LLM_SESSION_NAME_BYTES_MAX + 1];
        uint32_t is_pinned; /* as in the branch's record */
        bool has_file;
    } was;
} store_change;

typedef struct store_job {
    store_verb verb;
    bool is_label;    /* for CHANGE: the name or pin changes (table_change.c) */
    bool has_waiter;  /* a command waits for the result */
    uint64_t request; /* id of that command; for a READ or WRITE without a command: number of the read or write */
    uint32_t owner;   /* owner of the session and the label */
    char name[LLM_SESSION_NAME_BYTES_MAX + 1]; /* name of the session */
    char label[LLM_SESSION_NAME_BYTES_MAX + 1];
    llm_status status;
    int os_error;       /* for LLM_IO: errno of the operation that failed; 0 if none did */
    uint32_t n_changes; /* CHANGE */
    store_change *changes;
    uint32_t entry; /* for WRITE, READ: entry of the branch, which is still open if the id there is the same */
    uint64_t id;
    uint64_t linked_id;   /* for WRITE, SAVE without parts: id of the branch whose state file is linked; 0 if none */
    uint64_t n_bytes_max; /* for READ, LOAD: limit on the bytes of the state */
    size_t n_bytes;       /* for WRITE: bytes of the state file */
    double took_us;       /* output: duration of the job */
    branch_file file;     /* input of SAVE, output of LOAD */
    state_file state;     /* input of WRITE, SAVE; output of READ, LOAD; has no parts if there is no state */
    uint64_t number;      /* counts pushes; a sweep after a change has the number of the change */
    struct store_job *next;
} store_job;

typedef struct store_options {
    const char *directory; /* directory of one model; created (0700) if it does not exist */
    const char *model;     /* name of the model, for people */
    const uint8_t *identity;
    const uint8_t *geometry;
    /* every state can be truncated, so that a scan need not look for the checkpoints in state files (state_ends) */
    bool can_truncate_states;
} store_options;

/* Opens the store and locks the directory, which must be writable and not be used by another store. `consumer` is woken
 * when a result waits. Returns LLM_OK, LLM_NO_MEMORY, or LLM_IO with a text in `error`. */
int store_open(const store_options *options, notifier *consumer, store **out, char *error, size_t error_bytes);
/* Finishes all jobs, then ends the thread. NULL is allowed. */
void store_close(store *s);

/* Takes ownership of the job. */
void store_push(store *s, store_job *job);
/* Returns the oldest result, or NULL. Without takes_waited_for, skips results for which a command waits: such a result
 * stays in the store until there is room for the command's reply. The caller frees the result with store_job_free. */
store_job *store_take(store *s, bool takes_waited_for);
bool store_has_result(store *s, bool takes_waited_for); /* whether store_take would return a result */
uint32_t store_n_jobs(store *s);                        /* jobs not yet finished */
/* Creates a job with n_changes changes, all CHANGE_NONE. Returns NULL if memory is short. */
store_job *store_job_new(store_verb verb, uint32_t n_changes);
void store_job_free(store_job *job); /* blobs that the job holds must be dropped before */
void store_wait(store *s);           /* waits until all jobs are finished */

/* Messages for the log, about failed writes and refused files. store_complaint copies the oldest message that was not
 * yet read, and returns false if there is none. Called by any thread. */
void store_complain(store *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool store_complaint(store *s, char *out, size_t n_bytes);

/* Returns the free bytes on the disk of the state directory, or UINT64_MAX / 2 if the file system does not report them.
 * Called by the opener. */
uint64_t store_free_bytes(const store *s);

/* Reads all branch files in the directory and the heads of their state files, and calls `found` for each branch.
 * `found` may take ownership of the tokens, by setting file->tokens to NULL. Files that are refused are renamed and
 * reported. Called by the opener, before the first job. */
void store_scan(store *s, void (*found)(void *context, branch_file *file, const state_facts *state), void *context);

/* ---- sessions saved under labels: any thread ---- */

/* Sets *n_bytes to the bytes of the state saved under a label. Returns false if there is no such label. */
bool store_find_saved(store *s, uint32_t owner, const char *label, uint64_t *n_bytes);
/* Copies at most n_out entries, and returns how many entries there are. */
uint32_t store_list_saved(store *s, llm_saved *out, uint32_t n_out);

#endif
