/* shelf.h: states outside the model's memory, and the dealings with the store that writes and reads their files. Owned by the
 * decode thread, which never waits here for the disk.
 *
 *   NOWHERE    only the tokens are known: prefilled again by the next request (`torn`)
 *   IN_MEMORY  held as parked: three quarters of --park-memory, the rest of which is for states on their way
 *   WRITING    in memory still, and on its way to the disk
 *   ON_DISK    in its file
 *   READING    on its way back: for its own request, or lent to another session's
 *
 * Spill: while parked states take more than that, the least valuable idle one leaves memory:
 *
 *   the session, the store                        its state
 *   a scratch session                             is dropped: of a session without a name nothing outlasts the process
 *   has the state on the disk already             is dropped from memory, and ON_DISK
 *   the store takes it                            WRITING, then ON_DISK
 *   the store has too much in hand                waits in memory, one at a time and not for ever (spill_until_us)
 *   no store, the disk is full or has refused     is dropped: NOWHERE
 *
 * Example: --park-memory 1G, and a third state of 400 MB is parked: the oldest is written, and its memory is given back when it is
 * on the disk. Its next request reads it, and says `restored`.
 *
 * Lend: a prompt of one session may begin with what another one's state on the disk holds. It is read if that is sooner than
 * prefilling (sessions/resuming.c):
 *
 *   read for                                      when it has come                    if it cannot be read
 *   its own request                               IN_MEMORY, until it has a seat      NOWHERE
 *   another session's prompt, and its own idles   IN_MEMORY, lent until the requests  ON_DISK, as before
 *                                                 that wait have begun; then ON_DISK
 *
 * No request waits for a read longer than prefilling those tokens would take (or a second).
 *
 * Example: an agent's system prompt of 10,000 tokens is in the parked session `a`. The first request of the new session `b` waits
 * for `a`'s state, copies its first 10,000 tokens (`shared`), and `a` is on the disk again. */
#ifndef LLM_SHELF_H
#define LLM_SHELF_H

#include "sessions/session.h"
#include "states/store.h"

typedef struct places places; /* places.h */

typedef struct places_shelf {
    uint64_t refused_until_us; /* the disk refused a state: until then none is given to it */
    bool spill_waits;          /* a parked state is over the budget until the store can take it, */
    uint64_t spill_until_us;   /* or until then; 0: none waits */
    bool is_stalled;           /* one has waited in vain: no state waits for the store until it finishes something */
    uint64_t stall_said_us;
    bool is_lending; /* what was read for others is there until they have had their turn: nothing is over a budget */
    bool is_saving;  /* an orderly stop has begun */
    bool is_unsaved; /* and the disk refused a session's file */
} places_shelf;

/* ---- what the store has finished: places_stored.c ---- */

/* Takes one result of the store (store_take); `done` is called if a command waits for it. False: there was none. */
bool places_take_stored(places *p, bool takes_asked, void (*done)(void *context, store_job *job), void *context);

/* Waits for the store and takes what it has finished: before it is closed, and where nobody waits for results. */
void places_settle(places *p);

/* ---- parked states: places_parked.c ---- */

/* Whose parked state leaves the memory next; NULL: none can. One that a request waits for stays where it can be loaded
 * from. (places.c) */
session *places_parked_victim(places *p);

/* Parks are moved from memory to the store until the budget holds. While the store has too much in hand, one of them waits
 * in memory (spill_waits), as long as reading its tokens again would take, and 10 s at least; if more are to go then,
 * their states are dropped. */
void places_spill(places *p);
bool places_is_refused(const places *p); /* the disk refused a state a short time ago */
void places_spill_on(places *p);         /* the store may have finished something; who waited has had its turn */

bool places_spill_waits(const places *p);
bool places_is_lending(const places *p); /* what was read for others stays in memory until they have had their turn */
bool places_is_unsaved(const places *p); /* an orderly stop could not write a session's file */

/* Its parked state is asked for. False: too much is on its way already; ask again when something has come. */
bool places_read_file(places *p, session *s);

/* When the wait of a parked state for the store ends; 0: none waits. */
uint64_t places_spill_waits_until_us(const places *p);

/* Its request has waited for the state on the disk as long as reading its tokens again would take: it goes on without. */
bool places_gives_up_reading(places *p, session *s);

/* Some session's state is on its way by this reading (session.h). */
bool places_is_reading(const places *p, uint64_t reading);

/* The session's parked state becomes what was read; its checkpoints are kept, too. False: it is not of these tokens. */
bool places_take_state(places *p, session *s, state_file *from);

/* What was written, or could not be, is held no longer. */
void places_drop_parts(places *p, state_file *f);

void places_written(places *p, const store_job *job); /* a state; or it could not be */
void places_read_back(places *p, store_job *job);     /* idem */

/* ---- what states take on the disk: places_disk.c ---- */

size_t places_disk_bytes(const places *p);

/* The state file goes, and with it the state of a session that has it there alone. False: memory is short. */
bool places_remove_state(places *p, session *s);

/* Removes the least valuable states until one of n_bytes of `s` fits. False, and all stay: it is less valuable than they
 * are, or would not fit all the same. */
bool places_make_disk_room(places *p, const session *s, size_t n_bytes);

/* A start: settles the limit, and keeps to it. */
void places_limit_disk(places *p);

/* Orders sessions by the value of what they hold, the least first. Below 2^63. (places.c) */
uint64_t places_order(const session *s);

/* ---- session files: places_files.c ---- */

/* Tokens, name, pin and stamps, to be written. False: memory is short. */
bool places_describe(const session *s, session_file *out);

/* The state of the session's first k tokens with its checkpoints, as far as room allows; all are held as in flight. */
void places_describe_state(places *p, const session *s, blob *state, uint32_t k, state_file *out);

/* Gives the job to the store, which has the session's file, or is about to. False: the disk is full of what is worth more; the
 * job is the caller's still. */
bool places_write_state(places *p, session *s, blob *state, uint32_t k, store_job *job);

/* Whether the store may be given a state of that size now. */
bool places_may_write(const places *p, size_t n_bytes);

/* A job about one session; its file is described where the verb writes it. NULL: memory is short. */
store_job *places_change_of(places *p, session *s, change_verb verb);

bool places_write_file(places *p, session *s); /* false: memory is short */

/* Its files are out of date for good: they go; of a pinned session that is reset an empty one stays. */
void places_remove_file(places *p, session *s);
void places_reset_file(places *p, session *s);

/* ---- an orderly stop: places_stop.c ---- */

/* Writes every named session as it is now, and waits for it. `take_stored` takes the store's results. */
void places_save_all(places *p, void (*take_stored)(void *context), void *context);

/* ---- what is saved under labels: places_saved.c ---- */

/* These begin a job whose result comes through places_take_stored: LLM_OK. Otherwise: LLM_IO (no state directory),
 * LLM_NO_MEMORY (also: as many bytes as may be are on their way to the disk or from it), LLM_NOT_FOUND (nothing to save;
 * nothing saved under that label). Checkpoints are saved as well, and none is copied. */
int places_save(places *p, session *s, session_name label, uint64_t request);
int places_load(places *p, session_name name, session_name label, uint64_t request);
int places_unsave(places *p, session_name label, uint64_t request);

/* The session, open, idle and empty, becomes what was loaded: its tokens first, parked; then, in memory, the state, if
 * there is one. Between the two its file may be written. */
void places_become(places *p, session *s, const store_job *from);
void places_become_warm(places *p, session *s, store_job *from);

#endif
