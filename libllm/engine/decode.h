/* decode.h: the decode thread. It takes commands, schedules, steps the model, samples and delivers events. From
 * decode_start to decode_stop, it owns the model's sequences, the entries of the session table and all requests.
 *
 *   every loop:  take commands -> start requests -> take sampled tokens -> one step -> deliver events -> (sleep)
 *
 * If the model cannot decode and prefill in one call, a step makes two calls. Between the calls, the thread delivers
 * events and takes commands. Some models can stop a call that only prefills. Such a call may be stopped when a request
 * or a cancel arrives (decode_step.c).
 *
 * If a step finds too few KV cells, the thread parks another branch and repeats the step. Parking a branch frees its
 * cells. Any other failure ends exactly the requests whose branches the failure made invalid. The thread never waits
 * for the reader of events. If the event ring has no room for events, they stay in the requests' outboxes (outbox.h)
 * and in `notices`. */
#ifndef LLM_DECODE_H
#define LLM_DECODE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "boundary/notifier.h"
#include "machine/idle_clock.h"
#include "llm.h"
#include "model/model.h"
#include "boundary/session_table.h"
#include "sessions/branch_table.h"
#include "engine/request.h"
#include "boundary/ring.h"
#include "engine/step.h"

/* An event that belongs to no live request: FINISHED of a refused request, REPLY, or FORGOTTEN. */
typedef struct notice {
    uint8_t bytes[WIRE_EVENT_BYTES_MAX];
    uint32_t n_bytes;
} notice;

/* A PIN or RENAME that waits because the store is still writing an earlier change of the same session's name or pin. */
typedef struct deferred {
    wire_command command; /* the command, whose session names point into this struct */
    char session[LLM_SESSION_NAME_BYTES_MAX];
    char other[LLM_SESSION_NAME_BYTES_MAX];
    struct deferred *next;
} deferred;

/* Counts the commands that were pushed into the ring. While a model call runs, these counts show that commands have
 * arrived. A command is counted only after it is in the ring. So the decode thread finds every counted command in the
 * ring, unless it has already taken the command. */
enum { CANCELS_SEEN_MAX = 16 }; /* a power of two */

typedef struct decode_pushed {
    _Atomic uint32_t n_generate;
    _Atomic uint32_t n_cancel;
    /* request ids of the most recent CANCELs; the n-th id is at n % CANCELS_SEEN_MAX */
    _Atomic uint64_t cancelled[CANCELS_SEEN_MAX];
} decode_pushed;

typedef enum decode_life {
    DECODE_NEW,
    DECODE_SERVING, /* the thread exists or is being created, so commands pushed now are carried out */
    DECODE_JOINED   /* the thread has ended; the owner thread answers the commands left in the ring (decode_finish) */
} decode_life;

typedef struct decode {
    model *model; /* owned by the engine, like the next two members; used only by the decode thread */
    session_table *session_table;
    branch_table *table;

    ring *commands;             /* consumer: this thread */
    ring *events;               /* producer: this thread */
    notifier *command_notifier; /* woken by the loop thread: commands were pushed, or the event ring has room */
    notifier *event_notifier;   /* woken by the decode thread, once for each delivery of events */

    pthread_t thread;
    _Atomic(decode_life) life;   /* writer: the owner thread */
    _Atomic bool stop_requested; /* writer: the owner thread */
    _Atomic bool events_blocked; /* events wait for room in the ring; set by the decode thread, cleared by the loop
                                  * thread */
    decode_pushed pushed;        /* writer: the loop thread */
    uint32_t n_generate_taken;   /* GENERATEs counted in `pushed` when commands were last taken */
    uint32_t n_cancel_taken;     /* CANCELs counted in `pushed` when commands were last taken */
    uint32_t n_cancelled;        /* CANCELs that the decode thread has taken off the ring since its start */
    bool is_unfinished;          /* the current command has more states to copy, so the command stays first in the
                                  * ring */
    double lost_us; /* time lost in calls that were stopped for new requests, since the last completed call */

    /* all requests in order of arrival; an ENDED request stays until its events are delivered */
    request *requests[LLM_REQUESTS_MAX];
    uint32_t n_requests;
    branch_claim *scratch_queue; /* first of the requests that wait for any scratch branch */
    uint32_t n_scratch_waiting;
    notice *notices; /* owned */
    uint32_t n_notices;
    uint32_t n_notices_max; /* see decode_open */
    uint32_t n_replies_due; /* commands whose reply waits for the store; at most REMOVALS_DUE_MAX */
    deferred *deferred;     /* commands that have not begun, in order of arrival; owned */
    uint32_t n_deferred;    /* at most REPLIES_DUE_MAX */
    bool is_undelivered;    /* the event ring had no room for some events */
    uint64_t n_woken;       /* value of ring_committed(events) when the consumer was last woken */

    step step;
    sampling_threads *sampling; /* owned: the threads for slow samplers */
    /* requests without a slot must ask for a slot again. Set when a request has ended, KV cells were freed, the store
     * has read a state, or a command has changed a session */
    bool may_assign_slots;
    /* Requests and states to be written wait for the disk at most until some time. This is the earliest of these times,
     * or 0 if none waits */
    uint64_t fetched_by_us;
    uint64_t idle_ms_max; /* 0 if sessions do not expire */
    idle_clock idle_clock;
    uint32_t n_owners_before; /* number of the table's owners when waiting requests last asked for slots */
    uint64_t expire_at_ms;    /* time of idle_clock at which to look for expired sessions next; 0 for at once */
    float *logits;            /* n_vocab logits, owned: a copy that a sampler may modify */
} decode;

/* Prepares the thread. The caller must have filled the members above `thread` and the members that step_open needs.
 * Returns LLM_OK or LLM_NO_MEMORY. */
int decode_open(decode *d);
void decode_close(decode *d);

int decode_start(decode *d); /* called by the owner thread; returns LLM_OK or LLM_IO */
void decode_stop(decode *d); /* called by the owner thread; ends every request with `shutdown`, and joins the decode
                              * thread */

/* Moves waiting events into the event ring, as many as the ring has room for. Called by the decode thread. */
void decode_deliver(decode *d);

/* Called by the owner thread after the decode thread has ended. Answers the commands that the decode thread did not
 * take. Delivers as many events as the event ring has room for. To get all events, the caller empties the ring and
 * calls this function again, until the ring stays empty. */
void decode_finish(decode *d);

/* Counts a command that was checked and is in the ring now. Called by the loop thread. */
void decode_was_pushed(decode *d, const wire_command *c);

/* decode_command.c: whether the array `notices` has room for one more reply. Only then does the decode thread take the
 * next command, or the next store result for which a command waits, because each of them may add a reply. Room for the
 * replies to all deferred commands is kept, too. One store result may start all deferred commands. */
bool decode_has_room(const decode *d);

/* Takes commands off the ring and carries them out, as long as their replies have room (decode_has_room). Commands that
 * copy states take long: FORK, SAVE, PARK. Many of them would stall decoding requests. So after budget_us, the other
 * commands stay in the ring until the next step is over. If budget_us is HUGE_VAL, there is no such limit. */
void decode_take_commands(decode *d, double budget_us);
/* Returns the stall budget: how long work between two steps may take without a noticeable delay of decoding requests.
 * Copies of states are an example of such work. Returns HUGE_VAL if no request decodes. */
double decode_stall_budget_us(const decode *d);
request *decode_find(const decode *d, uint64_t id); /* returns NULL if no such request is live */
void decode_leave_queue(decode *d, request *r);     /* removes the request from the queue in which it waits, if any */
void decode_forgotten(void *d, uint32_t owner, const char *name); /* callback of slots.h: adds a notice FORGOTTEN */
void decode_end_request(decode *d, request *r, llm_outcome outcome, llm_status status);
void decode_end_session_requests(decode *d, branch *b, llm_outcome outcome, llm_status status);

/* decode_slots.c: starts or continues waiting requests that can have a slot now. */
void decode_start_waiting(decode *d);

/* decode_leader.c: decode_finds_leader looks for a running prefill that the waiting request should wait for, and
 * records it in the request. Called when the request would ask for a slot. Returns false if the request should not
 * wait. Afterwards, decode_waits_for_leader is called in each loop. It returns false if the wait is over: the leader
 * has consumed the shared tokens, or its prefill has ended or does not progress. */
bool decode_finds_leader(decode *d, request *r);
bool decode_waits_for_leader(const decode *d, request *r);

/* decode_session.c: the commands about sessions. */
void decode_reply(decode *d, uint64_t request_id, llm_status status, const branch *b);
void decode_reply_stored(decode *d, const store_job *job, llm_status status, const branch *b);
branch *decode_latest(decode *d, session_name name);           /* returns the session's most recently used branch */
int decode_fork(decode *d, branch *from, session_name name);   /* makes a fork with all tokens of `from` */
void decode_session_command(decode *d, const wire_command *c); /* carries out any command except GENERATE, CANCEL and
                                                                * PAUSE */
void decode_take_stored(decode *d);                            /* handles the results of the store */
/* saves all sessions at an orderly stop, and answers commands that wait for the store */
void decode_save_all(decode *d);

/* decode_step.c: one step of the model for all requests that can run. Returns false if no request can run. */
bool decode_step(decode *d);
void decode_take_sampled(decode *d); /* takes the tokens that sampling threads have picked */
bool decode_stops(void *d);          /* callback `stop` of step.h */

/* Says which requests may lose their slots to the asker, a request that needs a slot or KV cells. AMONG_ALL: all
 * requests. AMONG_KIND: requests of the asker's kind, named or scratch. AMONG_OWNER_AND_KIND: requests of the asker's
 * kind and owner. */
typedef enum decode_among { AMONG_ALL, AMONG_KIND, AMONG_OWNER_AND_KIND } decode_among;
bool decode_is_among(const request *r, const request *asker, decode_among among);

/* Parks the branch of the newest request that holds a slot without progress. Either the request has not begun, or its
 * client does not read and its generation is paused. Considers only the requests that `among` allows (see
 * decode_among), and never parks the asker's own branch. Returns false if no branch can be parked, or the capacity
 * policy does not allow parking. */
bool decode_park_unmoving(decode *d, const request *asker, decode_among among);

#endif
