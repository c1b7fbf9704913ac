/* store.h: the store thread, so that decode never waits for a disk. Jobs go in, results come out, both by ownership:
 * what a job points to belongs to the store until its result is taken. One consumer: the decode thread; before it
 * starts and after it ends, the engine's owner. (Blobs of the ledger are the exception: the store reads their bytes and
 * knows no more of them.)
 *
 * Two queues, each in order. Changes of session files are small and somebody waits for them: they go first. States,
 * which may take seconds, follow. Neither order can harm: the two files of a session do not depend on each other
 * (snapshot.h). The queues are bounded by who pushes: a command waits for each job, or the job is the only one of its
 * kind for its session, and no state is written while STORE_JOBS_MAX wait. */
#ifndef LLM_STORE_H
#define LLM_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "boundary/doorbell.h"
#include "llm.h"
#include "states/snapshot.h"

enum {
    STORE_JOBS_MAX = 2048,
    STORE_PAUSE_S = 10, /* after the disk refused a session's state, none is tried for so long */
};

typedef struct store store;

typedef enum store_verb {
    STORE_CHANGE, /* session files: written all or none, then removed */
    STORE_WRITE,  /* the state of a session, or `linked_id`'s; none where there is no session file (any more) */
    STORE_READ,   /* a state */
    STORE_SAVE,   /* under a label: session file and state, or `linked_id`'s state */
    STORE_LOAD,   /* what was saved under a label: session file and, if it is of use, the state */
    STORE_UNSAVE, /* removes a label */
    STORE_SWEEP,  /* states of sessions whose files are gone (the store's own), or that make room; it has no result */
} store_verb;

typedef enum change_verb {
    CHANGE_WRITE,  /* the session file is written */
    CHANGE_REMOVE, /* both files go */
    CHANGE_RESET,  /* the session file is written, the state goes */
    CHANGE_NONE,   /* only `was` matters */
} change_verb;

/* What happens to one session's file, and what to go back to if it fails. */
typedef struct store_change {
    change_verb verb;
    session_file file; /* REMOVE: without tokens; NONE: only the id */
    struct {
        char name[LLM_SESSION_NAME_BYTES_MAX + 1];
        uint32_t is_pinned; /* as its record has it */
        bool has_file;
    } was;
} store_change;

typedef struct store_job {
    store_verb verb;
    bool is_label;                              /* CHANGE: of name and pin (places_change.c) */
    bool is_asked;                              /* a command waits for its result: */
    uint64_t request;                           /* this one, (READ, unasked: the number of the reading) */
    uint32_t owner;                             /* about this owner's */
    char name[LLM_SESSION_NAME_BYTES_MAX + 1];  /* session */
    char label[LLM_SESSION_NAME_BYTES_MAX + 1]; /* and label */
    llm_status status;
    uint32_t n_changes; /* CHANGE */
    store_change *changes;
    uint32_t place; /* WRITE, READ: of the session it is about; its id tells whether that is still the same one */
    uint64_t id;
    uint64_t linked_id;   /* WRITE, SAVE, without parts: the session whose state file is the state; 0: none */
    uint64_t n_bytes_max; /* READ, LOAD: of the state */
    double took_us;       /* out */
    session_file file;    /* SAVE: in; LOAD: out */
    state_file state;     /* WRITE, SAVE: in; READ, LOAD: out, without parts where there is none */
    uint64_t number;      /* in the order of being pushed; a sweep's is its change's */
    struct store_job *next;
} store_job;

typedef struct store_options {
    const char *directory; /* of one model; made if need be (0700) */
    const char *model;     /* its name, for people */
    const uint8_t *identity;
    const uint8_t *geometry;
    bool cuts_states; /* any state can be cut: what its file has beside it need not be known (state_facts.ends) */
} store_options;

/* The directory must be writable; one store per directory (locked). The bell is rung when a result waits. LLM_OK; LLM_IO
 * or LLM_NO_MEMORY with `error` filled. */
int store_open(const store_options *options, doorbell *bell, store **out, char *error, size_t error_bytes);
/* Finishes what is queued, then ends. NULL is allowed. */
void store_close(store *s);

/* Takes the job over. */
void store_push(store *s, store_job *job);
/* The oldest result, or NULL; without takes_asked, the oldest that no command waits for: a command's result is left here
 * while its reply has no room. The caller frees it with store_job_free. */
store_job *store_take(store *s, bool takes_asked);
bool store_has_result(store *s, bool takes_asked); /* store_take would return one */
uint32_t store_n_jobs(store *s);                   /* not yet done */
/* NULL: memory is short. n_changes changes, all CHANGE_NONE. */
store_job *store_job_new(store_verb verb, uint32_t n_changes);
void store_job_free(store_job *job); /* blobs are dropped before */
void store_wait(store *s);           /* until nothing is queued or in work */

/* What a person should know: failed writes, refused files. The oldest message not yet read; false: none. Any thread. */
void store_complain(store *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool store_complaint(store *s, char *out, size_t n_bytes);

/* Free bytes on the disk of the state directory; UINT64_MAX / 2 if its file system does not say. The opener's thread. */
uint64_t store_free_bytes(const store *s);

/* Reads all session files in the directory, which `found` may take the tokens of, and the heads of their states; the ones
 * refused are set aside with a complaint. The opener's thread, before the first job. */
void store_scan(store *s, void (*found)(void *context, session_file *file, const state_facts *state), void *context);

/* ---- what is saved under labels: any thread ---- */

/* Bytes of the state saved under a label. False: there is none. */
bool store_find_saved(store *s, uint32_t owner, const char *label, uint64_t *n_bytes);
/* Copies at most n_out, and returns how many there are. */
uint32_t store_list_saved(store *s, llm_saved *out, uint32_t n_out);

#endif
