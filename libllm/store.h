/* store.h: the store thread, so that decode never waits for a disk. Jobs go in, results come out, both by ownership:
 * what a job points to belongs to the store until its result is taken. One consumer: the decode thread, or the opener
 * in direct mode. */
#ifndef LLM_STORE_H
#define LLM_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "doorbell.h"
#include "llm.h"
#include "snapshot.h"

typedef struct store store;

typedef enum store_verb {
    STORE_WRITE,
    STORE_READ,
    STORE_REMOVE,
    STORE_RELABEL, /* what the file says the session is called, and whether it is pinned, becomes what the job says */
} store_verb;

typedef struct store_job {
    store_verb verb;
    uint32_t slot;    /* of the session it is about; its id tells whether that is still the same one */
    uint64_t request; /* who waits for a reply; 0: nobody */
    bool
        is_saved; /* a labelled snapshot: it lies in the subdirectory `saved`, its id is its label's, its name the label */
    uint32_t owner;                             /* with a request: whose session, */
    char name[LLM_SESSION_NAME_BYTES_MAX + 1];  /* which one, */
    char label[LLM_SESSION_NAME_BYTES_MAX + 1]; /* and where it is saved */
    llm_status status;
    snapshot snapshot; /* READ, REMOVE: only id is set on the way in; RELABEL: id, name and is_pinned */
    struct store_job *next;
} store_job;

/* The directory is made if need be (0700) and must be writable; one store per directory (locked). The bell is rung when a
 * result waits. LLM_OK; LLM_IO or LLM_NO_MEMORY with `error` filled. */
int store_open(const char *directory, const uint8_t fingerprint[16], doorbell *bell, store **out, char *error,
               size_t error_bytes);
/* Finishes what is queued, then ends. NULL is allowed. */
void store_close(store *s);

/* Takes the job over. */
void store_push(store *s, store_job *job);
/* The oldest result, or NULL. The caller frees it with store_job_free. */
store_job *store_take(store *s);
bool store_has_result(store *s);
void store_job_free(store_job *job);
void store_wait(store *s); /* until nothing is queued or in work */

/* What a person should know: failed writes, refused files. The oldest message not yet read; false: none. Any thread. */
void store_complain(store *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool store_complaint(store *s, char *out, size_t n_bytes);

/* Reads the heads of all snapshots in the directory, the ones refused are set aside with a complaint. The opener's
 * thread, before the first job. */
void store_scan(store *s, void (*found)(void *context, snapshot *head), void *context);

#endif
