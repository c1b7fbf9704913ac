/* seating.h: who has a place and who a seat. A session is open while it has a place, a record in the shared segment. It has a
 * seat, a sequence of the model, while its state is in the model's memory. Owned by the decode thread.
 *
 * Seats 0..n_named-1 are for named sessions, the rest for scratch, so that neither kind can starve the other. No request
 * waits while its session holds a seat that another request waits for: places_seat answers at once.
 *
 *   the session                       the seats of its kind           places_seat
 *   has a seat                        any                             SEATED
 *   its state is on the disk          one could be had                SEAT_LATER, and the state is asked for (shelf.h)
 *   its state is being read           any                             SEAT_LATER
 *   parked in memory, or tokens only  one is free                     SEATED
 *                                     an idle session has one         SEATED: `park` parks that one, `evict` forgets it
 *                                     all busy, or a state in flight  SEAT_LATER: its end frees one
 *                                     idle, but none may go           SEAT_NEVER (`refuse`; `evict`, if all are pinned)
 *   does not fit the KV cells         any                             idle ones leave theirs; else SEAT_LATER or SEAT_NO_CELLS
 *
 * Example: two seats, idle `a` and `b` in them, policy park. A request for the parked `c` comes: `a`, which was used longest ago,
 * is parked, `c` is loaded into its seat, and the request begins.
 *
 * A branch is a timeline that is kept when its session goes on with a prompt that parts from it (policy/worth.h decides):
 *
 *   the prompt                                   what the session held beyond the common prefix
 *   continues the session                        nothing is discarded
 *   has another answer in place of the last one  is discarded: the client changed it for good
 *   parts earlier, prefilling is cheaper         is discarded, to be prefilled again if it is asked for
 *   parts earlier, a copy is cheaper             stays as a branch, if a place costs no other session its own
 *
 * Example: of 20,000 tokens the client edits a message at 4,000. The whole is copied to a branch, and the session truncated to
 * 4,000. When the client goes back to the first version, the request continues the branch and prefills nothing. The copy
 * exists before anything makes way for it; then it takes a free place, or that of the least valuable branch. */
#ifndef LLM_SEATING_H
#define LLM_SEATING_H

#include "sessions/session.h"
#include "states/store.h"

typedef struct places places; /* places.h */

typedef struct places_seating {
    session **seats;    /* n_named + n_scratch: who sits there, or NULL */
    uint64_t clock;     /* counts uses; orders sessions by recency */
    double patience_us; /* left of it for copies that need not be, of who decodes; HUGE_VAL: nobody does */
    void (*forgotten)(void *context, uint32_t owner, const char *name); /* NULL, or who hears of names given up */
    void *forgotten_context;
} places_seating;

/* ---- finding ---- */

/* The open timelines of a name, from `after` on (NULL: from the first). NULL: no more. */
session *places_next(places *p, session_name name, const session *after);

/* Some timeline of that name is open, or waits on the disk for a place. */
bool places_knows(places *p, session_name name);

/* The timeline that a request for this name goes to (timeline.h), opened now if need be, not necessarily seated.
 * LLM_CAPACITY: none can be opened, or be busy. */
int places_admit(places *p, session_name name, const session_prompt *prompt, session **out);

/* A new timeline of this name, without looking at the others. LLM_CAPACITY: nothing has changed. */
int places_open_named(places *p, session_name name, session **out);

/* A new timeline of the session that `like` is of, in the place of `old`, which is idle and goes. */
session *places_replace(places *p, session *old, const session *like);

/* The timeline with this id, in a place that is free. */
session *places_open_known(places *p, uint32_t owner, const char *name, uint64_t id);

/* A scratch session for this prompt that no request holds: the one of the same owner that the prompt continues, else a
 * free one, else the least recently used, which is emptied unless they share more than the prompt's head. NULL: all are
 * busy. */
session *places_scratch(places *p, uint32_t owner, const session_prompt *prompt);

/* `to`, open, empty and without a seat, gets the first n tokens of `from`, and its state, parked: what is parked is shared,
 * in memory or on the disk. Without a state, as it is where that covers more than n tokens, it is read again from its
 * tokens. Only a `to` that may be cut still gets more: all that the state covers. (places_fork.c) */
void places_copy(places *p, session *from, session *to, uint32_t n, bool may_be_cut);

/* `s`, seated, is about to go on with this prompt: if that discards what is dearer to read again than to copy, it stays as a
 * timeline beside it, in a place that costs no other session its own. False: nothing is to be kept, or can be.
 * (places_branch.c) */
bool places_keep_branch(places *p, session *s, const session_prompt *prompt);

/* There is a place for another branch of this owner: a free one (*replaced is NULL), where places_open_branch opens it, or that
 * of a branch that was left before. */
bool places_may_open_branch(places *p, uint32_t owner, session **replaced);
session *places_open_branch(places *p, const session *s);

/* Tokens of the last prompt, as far as they were consumed and are still there. */
uint32_t places_n_history(const session *s);

/* Some scratch session is idle, or not yet open. */
bool places_has_scratch(const places *p);

/* This owner's busy sessions, which nobody else can have the places of, are fewer than its share. */
bool places_may_be_busy(const places *p, uint32_t owner);

void places_used(places *p, session *s); /* s is the most recent now */

/* ---- seats ---- */

/* Time for copies that need not be, before a decoding session notices; HUGE_VAL: none decodes. */
void places_allow_copies(places *p, double patience_us);

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

/* ---- what who wants a seat can expect: places_expected.c ---- */

/* A seat of the session's kind is empty, or somebody idle would leave it. */
bool places_has_free_seat(const places *p, const session *s);

/* A state is on its way to the disk or from it, or waits to be: what is short may be there when it has come. */
bool places_has_in_flight(const places *p);

/* What keeps a seat of that kind, or any, is in progress and will end: a generation in another session, or a state on its
 * way to the disk or from it. */
bool places_is_in_progress(const places *p, const session *s, bool any_kind);

/* Whether a state on the disk should be read now: there are more seats to be had than sessions whose state is at hand, or on
 * its way, for a request that waits. What could not be seated is not read. */
seating places_may_be_seated(const places *p, const session *s);

/* ---- ids ---- */

session *places_find_id(places *p, uint64_t id); /* the open one, or NULL */
uint32_t places_names_max(
    const places *p); /* timelines with a name that may be open before one makes way for another */

uint64_t places_new_number(places *p); /* larger than all before: a use, a reading */

/* Who hears of names that are given up; NULL: nobody. */
void places_tell_forgotten(places *p, void (*forgotten)(void *context, uint32_t owner, const char *name),
                           void *context);

/* Counts a timeline that was given up unasked, and reports the name if it was the last one. */
void places_report_forgotten(places *p, uint32_t owner, const char *name, llm_counter counter);

/* Forgets idle sessions not used since `before_ms` (CLOCK_REALTIME), pinned ones excepted. Returns the stamp of the
 * oldest one left that may expire, or 0. */
uint64_t places_expire(places *p, uint64_t before_ms);

void places_publish(places *p); /* gauges */

#endif
