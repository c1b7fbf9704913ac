/* store.h: the store thread does all disk I/O. So the decode thread never waits for a disk. The decode thread pushes
 * jobs and takes their results. Before the decode thread starts and after it has ended, the thread that opens and
 * closes the engine pushes the jobs and takes their results. A job and its memory belong to the store from the push
 * until the result is taken. Blobs (ledger.h) are the exception. They belong to the ledger, and the store only reads
 * their bytes.
 *
 * There are two queues, and the jobs of each queue are done in order. Changes of branch files have a queue of their own
 * and can overtake states. Changes are small and commands wait for them, while reading and writing states may take
 * seconds. Any order of changes and states is safe, because the two files of a branch do not depend on each other
 * (snapshot.h).
 *
 * The queues stay short. Many jobs have a command that waits for them. A state is not read again while it is being
 * read. No state is written while STORE_JOBS_MAX jobs wait. */
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
    STORE_PAUSE_S = 10, /* seconds without writes of states, after a write failed */
};

typedef struct store store;

typedef enum store_verb {
    /* changes the files of some branches (store_change). First writes some branch files, either all or none. Then
     * removes other files */
    STORE_CHANGE,
    /* writes a branch's state, or links the state of `linked_id`. Does nothing if the branch has no branch file */
    STORE_WRITE,
    STORE_READ,   /* reads a branch's state */
    STORE_SAVE,   /* saves a branch file and a state (or the state of `linked_id`) under a label */
    STORE_LOAD,   /* reads the branch file saved under a label, and the state if it has this engine's memory layout */
    STORE_UNSAVE, /* removes the files of a label */
    /* removes state files. After a CHANGE that removes or resets branches, the store itself pushes this job. The decode
     * thread also pushes this job, if disk space is short. Has no result */
    STORE_SWEEP,
} store_verb;

typedef enum change_verb {
    CHANGE_WRITE,  /* the branch file is written */
    CHANGE_REMOVE, /* both files are removed */
    CHANGE_RESET,  /* the branch file is written, and the state is removed */
    CHANGE_NONE,   /* no file changes, but the undo needs the former values in `was` */
} change_verb;

/* A change of one branch's files. Also holds the former values, which are restored if the change fails. */
typedef struct store_change {
    change_verb verb;
    branch_file file; /* contents of the branch file: complete for WRITE and RESET, without tokens for REMOVE, only the
                       * id for NONE */
    struct {
        char name[LLM_SESSION_NAME_BYTES_MAX + 1];
        uint32_t is_pinned; /* as in the branch's record in the session table */
        bool has_file;
    } was;
} store_change;

typedef struct store_job {
    store_verb verb;
    bool is_label;   /* for CHANGE: the name or pin changes (table_change.c) */
    bool has_waiter; /* a command waits for the result */
    /* id of the command that waits. If no command waits for a READ or WRITE, the number of the read or write */
    uint64_t request;
    uint32_t owner;                            /* owner of the session and the label */
    char name[LLM_SESSION_NAME_BYTES_MAX + 1]; /* name of the session */
    char label[LLM_SESSION_NAME_BYTES_MAX + 1];
    llm_status status;
    int os_error;       /* errno of the operation that failed with LLM_IO, else 0 */
    uint32_t n_changes; /* for CHANGE: number of changes */
    store_change *changes;
    /* for WRITE, READ: entry and id of the branch. If the entry now has another id, the branch is no longer open. */
    uint32_t entry;
    uint64_t id;
    /* for a WRITE or SAVE without parts in `state`: id of the branch whose state file is linked, or 0 */
    uint64_t linked_id;
    uint64_t n_bytes_max; /* for READ, LOAD: limit on the bytes of the state */
    size_t n_bytes;       /* for WRITE: bytes of the state file */
    double took_us;       /* output: duration of the job */
    branch_file file;     /* input of SAVE, output of LOAD */
    state_file state;     /* input of WRITE, SAVE; output of READ, LOAD. If there is no state, n_parts is 0 */
    uint64_t number;      /* number of the push; a SWEEP that follows a CHANGE has the number of the CHANGE */
    struct store_job *next;
} store_job;

typedef struct store_options {
    const char *directory; /* directory of one model, created with mode 0700 at the first use */
    const char *model;     /* name of the model, for people */
    const uint8_t *identity;
    const uint8_t *geometry;
    /* the model can truncate every state. Then a scan need not read which checkpoints the state files contain
     * (state_ends) */
    bool can_truncate_states;
} store_options;

/* Opens the store and locks the directory, which must be writable and not be used by another store. `consumer` is woken
 * when a result waits. Returns LLM_OK, LLM_NO_MEMORY, or LLM_IO with a text in `error`. */
int store_open(const store_options *options, notifier *consumer, store **out, char *error, size_t error_bytes);
/* Finishes all jobs, then ends the thread. NULL is allowed. */
void store_close(store *s);

/* Takes ownership of the job. */
void store_push(store *s, store_job *job);
/* Returns the oldest result, or NULL. Without takes_waited_for, skips results for which a command waits. Such a result
 * stays in the store until there is room for the command's reply. The caller frees the result with store_job_free. */
store_job *store_take(store *s, bool takes_waited_for);
bool store_has_result(store *s, bool takes_waited_for); /* whether store_take would return a result */
uint32_t store_n_jobs(store *s);                        /* number of unfinished jobs */
/* Creates a job with n_changes changes, all CHANGE_NONE. Returns NULL if memory is short. */
store_job *store_job_new(store_verb verb, uint32_t n_changes);
void store_job_free(store_job *job); /* blobs that the job holds must be dropped before */
void store_wait(store *s);           /* waits until all jobs are finished */

/* Messages for the log, for example about a failed write or a refused file. store_complain adds a message.
 * store_complaint removes the oldest message and copies it to `out`, or returns false if there is none. Called by any
 * thread. */
void store_complain(store *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool store_complaint(store *s, char *out, size_t n_bytes);

/* Returns the free bytes on the disk of the state directory. Returns UINT64_MAX / 2 if the file system does not report
 * them. Called by the thread that opens the engine. */
uint64_t store_free_bytes(const store *s);

/* Reads all branch files in the directory and the headers of their state files, and calls `found` for each branch.
 * `found` may take ownership of the tokens, by setting file->tokens to NULL. A file that is damaged, or of another
 * model or version, is renamed and reported. Called by the thread that opens the engine, before the first job. */
void store_scan(store *s, void (*found)(void *context, branch_file *file, const state_facts *state), void *context);

/* ---- sessions saved under labels: any thread ---- */

/* Sets *n_bytes to the bytes of the state saved under a label. Returns false if there is no such label. */
bool store_find_saved(store *s, uint32_t owner, const char *label, uint64_t *n_bytes);
/* Copies the list of saved sessions, but at most n_out of them, and returns how many there are. */
uint32_t store_list_saved(store *s, llm_saved *out, uint32_t n_out);

#endif
