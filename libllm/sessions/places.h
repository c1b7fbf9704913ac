/* places.h: who has a place, and who has a seat as well (llm.h). A session is open as long as it has a place; it has a
 * seat while its state is in the model's memory. Policy lives here; a session's own state is session.h's. Owned by the
 * decode thread; before it starts and after it ends, by the engine's owner.
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
#include "sessions/session.h"
#include "policy/share.h"
#include "states/store.h"

typedef struct places_options {
    llm_policy policy;
    uint32_t n_named;             /* seats */
    uint32_t n_scratch;           /* seats */
    uint32_t n_parked_max;        /* sessions beyond the named seats that may be opened; 0 unless the policy is park */
    uint32_t n_parked_places;     /* n_parked_max, or more where an earlier daemon left more sessions (adoption.h) */
    uint32_t timelines_max;       /* of one name */
    uint32_t n_owners;            /* at the start */
    size_t parked_bytes_max;      /* of parked states in memory; beyond it they go to the store, or are forgotten */
    size_t parked_disk_bytes_max; /* of state files; 0: one byte in PLACES_DISK_SHARE of what is free, and of theirs */
} places_options;

enum { PLACES_DISK_SHARE = 2 };
enum { REFUSED_REMOVALS_MAX = 1024, TIMELINES_LOOKED_AT = 64 };

/* A session file whose session is not open. */
typedef struct loose_file {
    uint64_t id;
    uint32_t owner;
    char name[LLM_SESSION_NAME_BYTES_MAX + 1];
    bool
        is_closed; /* its session was closed, and the disk refused to remove it: it would come back with the next start;
                     * else it waits for a start that has a place for it, and holds: */
    bool is_pinned;
    uint64_t used_ms;
    size_t n_file_bytes; /* of its state file */
} loose_file;

typedef struct places {
    session_ground ground;
    places_options options;
    store *store;                                                       /* NULL: no disk */
    void (*forgotten)(void *context, uint32_t owner, const char *name); /* NULL, or who hears of names given up */
    void *forgotten_context;
    worth_pace pace;
    double patience_us;        /* left of it for copies that need not be, of who decodes; HUGE_VAL: nobody does */
    uint64_t clock;            /* counts uses; orders sessions by recency */
    _Atomic uint32_t n_owners; /* writer: any thread; between whom to be fair */
    share_holding *holdings;   /* n_places: of one choice */
    uint32_t n_places;         /* n_named + n_scratch + n_parked_places */
    session *sessions;         /* n_places */
    session **seats;           /* n_named + n_scratch: who sits there, or NULL */
    store_job *removing;       /* what is closed or reset now is removed by this job; NULL: each by one of its own */
    uint32_t n_loose;
    loose_file *loose_files;   /* n_loose */
    uint64_t refused_until_us; /* the disk refused a state: until then none is given to it */
    bool spill_waits;          /* a parked state is over the budget until the store can take it, */
    uint64_t spill_until_us;   /* or until then; 0: none waits */
    bool is_stalled;           /* one has waited in vain: no state waits for the store until it finishes something */
    uint64_t stall_said_us;
    bool is_lending; /* what was read for others is there until they have had their turn: nothing is over a budget */
    bool is_saving;  /* an orderly stop has begun */
    bool is_unsaved; /* and the disk refused a session's file */
} places;

int places_open(places *p, const session_ground *ground, const places_options *options, store *disk);
void places_close(places *p);

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

/* Another timeline of a session that has some. Under park it is opened as any session is: the least recently used one makes
 * way to it, which may be another session's. Otherwise only where it costs nobody a place. */
bool places_has_room_for_another(const places *p, uint32_t owner);

/* Some scratch session is idle, or not yet open. */
bool places_has_scratch(const places *p);

/* This owner's busy sessions, which nobody else can have the places of, are fewer than its share. */
bool places_may_be_busy(const places *p, uint32_t owner);

void places_used(places *p, session *s); /* s is the most recent now */

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

/* Its parked state is asked for. False: too much is on its way already; ask again when something has come. */
bool places_read_file(places *p, session *s);

/* When the first wait for the store that is not over yet ends; 0: there is none. */
uint64_t places_waits_until_us(const places *p);

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

/* For a state of n_bytes of `s` (NULL: for none): the least valuable go. False: that is this one, or none can. */
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
/* Those that wait and were not used since before_ms go, pinned ones excepted. The oldest stamp of the others that may
 * expire, or 0. */
uint64_t places_expire_loose(places *p, uint64_t before_ms);

/* ---- what is saved under labels: places_saved.c ---- */

/* These begin a job whose result comes through places_take_stored: LLM_OK. Otherwise: LLM_IO (no state directory),
 * LLM_NO_MEMORY (also: as many bytes as may be are on their way to the disk or from it), LLM_NOT_FOUND (nothing to save;
 * nothing saved under that label). Checkpoints are saved as well, and none is copied. */
int places_save(places *p, session *s, session_name label, uint64_t request);
int places_load(places *p, session_name name, session_name label, uint64_t request);
int places_unsave(places *p, session_name label, uint64_t request);

/* A prompt could be these tokens: at least one, all of the model's vocabulary, no more than its context. */
bool places_are_tokens(const places *p, const int32_t *tokens, uint32_t n_tokens);

/* The session, open, idle and empty, becomes what was loaded: its tokens first, parked; then, in memory, the state, if
 * there is one. Between the two its file may be written. */
void places_become(places *p, session *s, const store_job *from);
void places_become_warm(places *p, session *s, store_job *from);

/* ---- ids ---- */

uint64_t places_new_id(places *p);               /* of a session and its files */
session *places_find_id(places *p, uint64_t id); /* the open one, or NULL */
uint32_t places_names_max(
    const places *p); /* timelines with a name that may be open before one makes way for another */

/* Forgets idle sessions not used since `before_ms` (CLOCK_REALTIME), pinned ones excepted. Returns the stamp of the
 * oldest one left that may expire, or 0. */
uint64_t places_expire(places *p, uint64_t before_ms);

void places_publish(places *p); /* gauges */

#endif
