/* naming.h: names and pins, how a change of them gets to the disk, and how files go. Owned by the decode thread.
 *
 *   command         in memory                    on the disk before the answer        if the disk refuses
 *   PIN, RENAME     at once                      files of what has one or is pinned   all is taken back; LLM_IO
 *   RESET           at once: empty               the files go; of a pinned one an     LLM_IO; tried again by the next reset,
 *                                                empty one stays                      close or stop
 *   CLOSE           at once: gone                the files go                         LLM_IO; the file is loose, idem
 *
 * Example: PIN `a` marks its timelines as anchored and changing, and pushes one job that writes their files. A second PIN or RENAME
 * of `a` waits for the result. If the write fails, the timelines are what they were, and the file, which may have been written
 * after all, is written once more.
 *
 * A loose file is that of a session that is not open: it was closed and the disk did not let it go, or it waits for a start
 * that has a place for it (adoption.h). */
#ifndef LLM_NAMING_H
#define LLM_NAMING_H

#include "sessions/session.h"
#include "states/store.h"

typedef struct places places; /* places.h */

/* A session file whose session is not open. */
typedef struct loose_file {
    uint64_t id;
    uint32_t owner;
    char name[LLM_SESSION_NAME_BYTES_MAX + 1];
    /* Its session was closed, and the disk refused to remove it: it would come back with the next start. Else it waits for a
     * start that has a place for it, and holds: */
    bool is_closed;
    bool is_pinned;
    uint64_t used_ms;
    size_t n_file_bytes; /* of its state file */
} loose_file;

enum { LOOSE_EXPIRED_MAX = LLM_REQUESTS_MAX }; /* at a time: each of them may be reported, and reports have bounded room */

typedef struct places_naming {
    store_job *removing; /* what is closed or reset now is removed by this job; NULL: each by one of its own */
    uint32_t n_loose;
    loose_file *loose_files; /* n_loose */
    uint32_t n_waiting;      /* of them, not is_closed */
    size_t loose_bytes;      /* of their states */
} places_naming;

/* ---- pins ---- */

/* Pins all timelines of a name, or none any more. LLM_OK, LLM_NOT_FOUND (none is open), LLM_PINS (nothing is changed). */
int places_pin(places *p, session_name name, bool pinned);

/* Some timeline of that name, open or waiting, was there when it was pinned. */
bool places_is_pinned(places *p, session_name name);

/* A timeline of a pinned session that was not there when it was pinned. */
void places_pin_with_others(places *p, session *s);

/* A pin was taken back: the timelines that were not pinned themselves follow those that were. */
void places_pin_follow(places *p, uint32_t owner, const char *name);

/* After an adoption, which knows the anchored ones only: the other timelines of pinned sessions are pinned with them. */
void places_pin_later_timelines(places *p);

/* How many histories may be pinned in all. */
uint32_t places_pins_max(const places *p);
uint32_t places_pins_max_of(uint32_t n_names); /* where so many timelines may be open */

/* ---- what a command waits for: places_change.c ---- */

/* A change of name or pin. Between begin and end the caller changes the name's timelines; `end` makes
 * the store write what must last. True: a result will come through places_take_stored, and if it is a failure,
 * places_change_undo takes everything back; until then the timelines are changing, and a second change has to wait, for it
 * could not be told what to go back to. False: *status is the answer, and an error has been undone already. */
store_job *places_change_begin(places *p, session_name name); /* NULL: no memory */
bool places_change_end(places *p, store_job *job, uint64_t request, llm_status *status);
void places_change_undo(places *p, const store_job *job);
void places_change_settled(places *p, const store_job *job); /* its result is there */
bool places_is_changing(places *p, session_name name);
void places_rename(places *p, session_name name, session_name to);

/* ---- what a command waits for: places_removal.c ---- */

/* All files removed between begin and end are removed by one job, which syncs their directory once. True: a result will
 * come. */
void places_removing_begin(places *p);
bool places_removing_end(places *p, session_name name, uint64_t request);
void places_removing_end_unasked(places *p); /* nobody waits for it */
void places_remove_id(places *p, uint64_t id, uint32_t owner, const char *name);
void places_attach(places *p, store_job *job); /* of one change: to the job between begin and end, or by itself */

/* What the disk did not let go in this job is remembered, and tried again when the session is closed once more, or with an
 * orderly stop. */
void places_removal_refused(places *p, const store_job *job);

/* ---- files of sessions that are not open: places_removal.c ---- */

bool places_add_loose(places *p, const loose_file *f); /* false: memory is short */
/* Those of a name, from `after` on (NULL: from the first). NULL: no more. */
const loose_file *places_next_loose(const places *p, session_name name, const loose_file *after);
bool places_is_waiting(const places *p, session_name name); /* one waits for a place */
uint32_t places_n_waiting(const places *p);
void places_remove_loose(places *p, session_name name);
void places_remove_closed(places *p); /* of whatever name */
/* Removes files that wait for a place and were not used since before_ms, at most LOOSE_EXPIRED_MAX of them and none that is
 * pinned. Returns the oldest stamp of those left that may expire, or 0. */
uint64_t places_expire_loose(places *p, uint64_t before_ms);
size_t places_loose_bytes(const places *p); /* of their states */
void places_free_loose(places *p);

#endif
