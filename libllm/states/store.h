/* store.h: the store thread does all disk I/O, so that the decode thread never waits for a disk. The decode thread
 * (before it starts and after it ends, the engine's owner) pushes jobs and takes results. A job and the memory it
 * points to belong to the store from the push until the result is taken. Blobs are the exception: the ledger keeps
 * them, and the store only reads their bytes.
 *
 * There are two queues, each in order. Changes of branch files go first: they are small, and commands wait for them.
 * States, which may take seconds, follow. Either order is safe, as the two files of a session do not depend on each
 * other (snapshot.h). The callers bound the queues: a command waits for each job, or the job is the only one of its
 * kind for its session, and no state is written while STORE_JOBS_MAX jobs wait. */
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
    STORE_WRITE,  /* writes a session's state, or links that of `linked_id`; nothing if its branch file is gone */
    STORE_READ,   /* reads a session's state */
    STORE_SAVE,   /* saves branch file and state (or that of `linked_id`) under a label */
    STORE_LOAD,   /* reads the branch file saved under a label and, if it fits this model's memory, the state */
    STORE_UNSAVE, /* removes the files of a label */
    STORE_SWEEP, /* removes states: after a CHANGE (pushed by the store itself), or to free disk space; it has no result */
} store_verb;

typedef enum change_verb {
    CHANGE_WRITE,  /* the branch file is written */
    CHANGE_REMOVE, /* both files are removed */
    CHANGE_RESET,  /* the branch file is written, the state removed */
    CHANGE_NONE,   /* no file changes; `was` is needed for an undo */
} change_verb;

/* A change of one branch's files. It also holds what to restore if the change fails. */
typedef struct store_change {
    change_verb verb;
    branch_file file; /* REMOVE: without tokens; NONE: only the id */
    struct {
        char name[LLM_SESSION_NAME_BYTES_MAX + 1];
        uint32_t is_pinned; /* as its record has it */
        bool has_file;
    } was;
} store_change;

typedef struct store_job {
    store_verb verb;
    bool is_label;    /* CHANGE: of name and pin (table_change.c) */
    bool has_waiter;  /* a command waits for the result */
    uint64_t request; /* that command's id; READ, WRITE for no command: the number of the read or write */
    uint32_t owner;   /* of the session and the label */
    char name[LLM_SESSION_NAME_BYTES_MAX + 1]; /* of the session */
    char label[LLM_SESSION_NAME_BYTES_MAX + 1];
    llm_status status;
    int os_error;       /* LLM_IO: errno of the operation that failed; 0: none did */
    uint32_t n_changes; /* CHANGE */
    store_change *changes;
    uint32_t entry; /* WRITE, READ: of the session, which is still open there if its id is the same */
    uint64_t id;
    uint64_t linked_id;   /* WRITE, SAVE, without parts: the session whose state file is linked; 0: none */
    uint64_t n_bytes_max; /* READ, LOAD: limit on the state */
    size_t n_bytes;       /* WRITE: of the state file */
    double took_us;       /* out: duration */
    branch_file file;     /* SAVE: in; LOAD: out */
    state_file state;     /* WRITE, SAVE: in; READ, LOAD: out, without parts if there is none */
    uint64_t number;      /* in the order of pushes; a sweep after a change has the change's */
    struct store_job *next;
} store_job;

typedef struct store_options {
    const char *directory; /* of one model; made if need be (0700) */
    const char *model;     /* its name, for people */
    const uint8_t *identity;
    const uint8_t *geometry;
    /* every state can be truncated, so that a scan need not look for the checkpoints in its file (state_ends) */
    bool can_truncate_states;
} store_options;

/* The directory must be writable; one store per directory (locked). `consumer` is woken when a result waits. LLM_OK;
 * LLM_IO or LLM_NO_MEMORY with `error` filled. */
int store_open(const store_options *options, notifier *consumer, store **out, char *error, size_t error_bytes);
/* Finishes all jobs, then ends the thread. NULL is allowed. */
void store_close(store *s);

/* Takes ownership of the job. */
void store_push(store *s, store_job *job);
/* The oldest result, or NULL; without takes_waited_for, the oldest that no command waits for: the result of a command
 * stays here until its reply has room. The caller frees it with store_job_free. */
store_job *store_take(store *s, bool takes_waited_for);
bool store_has_result(store *s, bool takes_waited_for); /* store_take would return one */
uint32_t store_n_jobs(store *s);                        /* jobs not yet finished */
/* NULL: memory is short. n_changes changes, all CHANGE_NONE. */
store_job *store_job_new(store_verb verb, uint32_t n_changes);
void store_job_free(store_job *job); /* the caller has dropped its blobs */
void store_wait(store *s);           /* until all jobs are finished */

/* Messages for the log: failed writes, refused files. store_complaint returns the oldest not yet read; false: none. Any
 * thread. */
void store_complain(store *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool store_complaint(store *s, char *out, size_t n_bytes);

/* Free bytes on the disk of the state directory; UINT64_MAX / 2 if its file system does not say. The opener's
 * thread. */
uint64_t store_free_bytes(const store *s);

/* Reads all branch files in the directory and the heads of their states. `found` may take the tokens. Files that are
 * refused are renamed and reported. The opener's thread, before the first job. */
void store_scan(store *s, void (*found)(void *context, branch_file *file, const state_facts *state), void *context);

/* ---- sessions saved under labels: any thread ---- */

/* Bytes of the state saved under a label. False: there is no such label. */
bool store_find_saved(store *s, uint32_t owner, const char *label, uint64_t *n_bytes);
/* Copies at most n_out entries, and returns how many there are. */
uint32_t store_list_saved(store *s, llm_saved *out, uint32_t n_out);

#endif
