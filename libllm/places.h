/* places.h: who is open and who has a seat. A session is open as long as it has a slot of the page; it has a seat while
 * its state is in the model's memory. Policy lives here; a session's own state is session.h's. Owned by the decode
 * thread, or by the opener in direct mode.
 *
 * Seats 0..n_named-1 are for named sessions, the rest for scratch, so that neither kind can starve the other. Nobody
 * waits while holding a seat that another one waits for: a session that needs one either gets it now, from a free one or
 * from an idle session that is parked or forgotten, or its request goes on waiting with nothing in hand. */
#ifndef LLM_PLACES_H
#define LLM_PLACES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "llm.h"
#include "session.h"
#include "share.h"
#include "store.h"

typedef struct places_options {
    llm_policy policy;
    uint32_t n_named;        /* seats */
    uint32_t n_scratch;      /* seats */
    uint32_t n_parked_max;   /* sessions beyond the named seats that may be open; 0 unless the policy is park */
    uint32_t timelines_max;  /* of one name */
    uint32_t n_owners;       /* at the start */
    size_t parked_bytes_max; /* of parked states in memory; beyond it they go to the store, or are forgotten */
} places_options;

/* What a request begins with. */
typedef struct places_prompt {
    const int32_t *tokens;
    uint32_t n_tokens;
    uint32_t n_head; /* timeline.h */
} places_prompt;

typedef struct places {
    session_ground ground;
    places_options options;
    store *store;         /* NULL: no disk */
    size_t writing_bytes; /* of states and checkpoints that the store has still to write */
    void (*forgotten)(void *context, uint32_t owner, const char *name); /* NULL, or who hears of names given up */
    void *forgotten_context;
    uint64_t clock;            /* counts uses; orders sessions by recency */
    _Atomic uint32_t n_owners; /* writer: any thread; between whom to be fair */
    share_holding *holdings;   /* n_slots: of one choice */
    uint32_t n_slots;          /* n_named + n_scratch + n_parked_max */
    session *sessions;         /* n_slots */
    session **seats;           /* n_named + n_scratch: who sits there, or NULL */
} places;

int places_open(places *p, const session_ground *ground, const places_options *options, store *disk);
void places_close(places *p);

/* ---- finding ---- */

/* The open timelines of a name, from `after` on (NULL: from the first). NULL: no more. */
session *places_next(places *p, uint32_t owner, const char *name, size_t n_name_bytes, const session *after);

/* The timeline that a request for this name goes to (timeline.h), opened now if need be, not necessarily seated.
 * LLM_CAPACITY: none can be opened. */
int places_admit(places *p, uint32_t owner, const char *name, size_t n_name_bytes, const places_prompt *prompt,
                 session **out);

/* A new timeline of this name, without looking at the others. */
int places_open_named(places *p, uint32_t owner, const char *name, size_t n_name_bytes, session **out);

/* A scratch session for this prompt that no request holds: the one of the same owner that the prompt continues, else a
 * free one, else the least recently used. NULL: all are busy. */
session *places_scratch(places *p, uint32_t owner, const places_prompt *prompt);

/* `to`, open, empty and without a seat, becomes a copy of `from`, parked. What is torn, or lies on the disk, or is too
 * large for the memory, is not copied: then `to` stays empty. */
void places_copy_state(places *p, const session *from, session *to);

/* Some scratch session is idle, or not yet open. */
bool places_has_scratch(const places *p);

/* This owner's busy sessions, which nobody else can have the slots of, are fewer than its share. */
bool places_may_be_busy(const places *p, uint32_t owner);

void places_used(places *p, session *s); /* s is the most recent now */

/* ---- pins ---- */

/* Pins all timelines of a name, or none any more. LLM_OK, LLM_NOT_FOUND, LLM_PINS (nothing is changed). */
int places_pin(places *p, uint32_t owner, const char *name, size_t n_name_bytes, bool pinned);

/* After an adoption, which knows the anchored ones only: the other timelines of pinned sessions are pinned with them. */
void places_pin_later_timelines(places *p);

/* How many histories may be pinned in all. */
uint32_t places_pins_max(const places *p);

/* ---- seats ---- */

typedef enum seating {
    SEATED,
    SEAT_LATER,    /* what is in progress can still free what is missing: a generation, or the store */
    SEAT_NEVER,    /* everybody is idle, and the policy lets none of them go */
    SEAT_NO_CELLS, /* idem, of KV cells */
} seating;

/* Seats the session, parking or forgetting idle ones if the policy allows it. */
seating places_seat(places *p, session *s);

/* Frees KV cells for `s`: another idle session leaves the model's memory. False: none can. */
bool places_free_cells(places *p, const session *s);

bool places_park(places *p, session *s);          /* gives up its seat; it may be running (decode_step.c) */
void places_forget(places *p, session *s);        /* closes an idle session that is given up, and counts and tells it */
void places_close_session(places *p, session *s); /* the file in the state directory goes, too */
void places_reset_session(places *p, session *s); /* idem */

/* ---- the store ---- */

/* Takes what the store has finished; `done` is called for jobs that a command waits for, which may take what the
 * snapshot points to. False: there was nothing. */
bool places_take_stored(places *p, void (*done)(void *context, store_job *job), void *context);

void places_read_file(places *p, session *s);          /* its parked state comes back to memory */
void places_remove_file(places *p, const session *s);  /* its snapshot is out of date for good */
void places_relabel_file(places *p, const session *s); /* its name or pin changed: so it does in its snapshot, if any */

/* Whose parked state leaves the memory next; NULL: none can. One that a request waits for stays where it can be loaded
 * from. */
session *places_parked_victim(places *p);

/* Parks are moved from memory to the store until the budget holds. */
void places_spill(places *p);

/* Writes a session with its checkpoints. With a label: under that name, for good, and `request` gets a result through
 * places_take_stored. LLM_OK, LLM_NO_MEMORY, LLM_NOT_FOUND (nothing to save), LLM_IO (no state directory). */
int places_save(places *p, session *s, const char *label, size_t n_label_bytes, uint64_t request);

/* What a saved snapshot is about: the session it was asked for, and where it lies. */
typedef struct places_label {
    uint32_t owner;
    const char *session;
    size_t n_session_bytes;
    const char *label;
    size_t n_label_bytes;
} places_label;

/* Reads what was saved under a label; the result comes through places_take_stored. LLM_OK, LLM_NO_MEMORY, LLM_IO. */
int places_load(places *p, const places_label *from, uint64_t request);

/* A prompt could be these tokens: at least one, all of the model's vocabulary, no more than its context. */
bool places_are_tokens(const places *p, const int32_t *tokens, uint32_t n_tokens);

/* True if what was read is what was asked for, and can be a session of this model. */
bool places_can_become(const places *p, const store_job *job);

/* The session, open, idle and empty, becomes what was loaded: parked, in memory. Takes the state. */
void places_become(places *p, session *s, snapshot *from);

/* Orderly stop: writes every named session that has no file as it is now, and waits for it. `done` as in
 * places_take_stored. */
void places_save_all(places *p, void (*done)(void *context, store_job *job), void *context);

/* places_adopt.c, at a start: the sessions that lie in the store; and those that the segment of a killed daemon (NULL:
 * none) names and the store does not, with their tokens only. Parked, and in the order of their last use. */
void places_adopt(places *p, const llm_page *dead);

/* Forgets idle sessions not used since `before_ms` (CLOCK_REALTIME), pinned ones excepted. Returns the stamp of the
 * oldest one left that may expire, or 0. */
uint64_t places_expire(places *p, uint64_t before_ms);

void places_publish(places *p); /* gauges */

#endif
