/* engine_driver.h: an engine together with a client for tests. The driver pushes commands, drains events, checks each
 * event against the protocol, and records what each request received. Used by one thread. */
#ifndef ENGINE_DRIVER_H
#define ENGINE_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llm.h"
#include "llm_session_table.h"
#include "random.h"
#include "boundary/wire.h"

typedef enum ask { ASK_GENERATE, ASK_REPLY } ask;

/* What one request has received so far. */
typedef struct answer {
    ask asked;
    bool is_admitted, is_started, is_over; /* is_over: FINISHED or REPLY was received */
    uint32_t entry;                        /* from ADMITTED or REPLY */
    uint32_t reason, n_reused;             /* from STARTED */
    int32_t diverged_at;
    uint32_t n_consumed_events, n_consumed; /* number of CONSUMED events, and the count in the latest of them */
    uint32_t status;                        /* from FINISHED or REPLY */
    wire_finished finished;
    char *text; /* NUL-terminated */
    size_t n_text;
    uint32_t n_tokens;                           /* from the latest TEXT, or from REPLY */
    uint32_t os_error;                           /* from REPLY */
    size_t n_token_ids, n_logprobs, n_likeliest; /* numbers of elements in the arrays below, which join all TEXT
                                                  * events */
    int32_t *token_ids;
    uint32_t *ends; /* in characters from the beginning of the answer */
    float *logprobs;
    token_logprob *likeliest;
    uint32_t n_chars; /* characters of `text` */
} answer;

typedef struct driver {
    llm_engine *engine;
    const llm_session_table *session_table;
    llm_info info;
    answer **answers; /* indexed by request number; [0] is unused */
    uint64_t n_requests;
    uint64_t n_open;       /* number of requests that are not over */
    uint32_t n_faults;     /* number of violations of the protocol, which are also printed */
    bool expects_nonsense; /* the test expects the token " WRONG-STATE"; otherwise it is a violation */
    bool forks_beside;     /* FORK is sent without `replace` */
    uint64_t n_forgotten;  /* number of FORGOTTEN events. The next members are from the latest of them */
    uint32_t forgotten_owner;
    char forgotten[LLM_SESSION_NAME_BYTES_MAX + 1];
    bool drains_late; /* takes no event until the event ring is full */
    uint8_t *buffer;
} driver;

/* Opens and starts an engine. Options that are 0 become 4 sessions, 2 scratch branches and 1024 tokens. Aborts on
 * failure. */
driver *driver_open(const llm_engine_options *options);
driver *driver_open_then(const llm_engine_options *options, void (*before_start)(driver *d));
driver *driver_open_model(const char *name);
/* Closes the engine, and checks that nothing is left. Returns the number of faults. */
uint32_t driver_close(driver *d);

/* ---- commands: each returns the request's number ---- */

typedef struct generate_call {
    uint32_t owner;
    const char *session; /* NULL for scratch */
    const int32_t *prompt;
    uint32_t n_prompt;
    uint32_t max_tokens;
    uint32_t flags;
    const char *stop;  /* NULL: none */
    float temperature; /* used with the seed `seed` */
    uint64_t seed;
    const int32_t *boundaries; /* array of n_boundaries counts */
    uint32_t n_boundaries;
    const char *parent; /* NULL: none */
    uint32_t n_head;
    uint32_t n_logprobs_and_1; /* 0: none */
    uint64_t after;            /* 0: none */
    logit_bias bias;           /* of one token; 0: none */
    const char *constraint;    /* NULL: none */
    uint32_t min_tokens;
    int32_t stop_token;      /* 0: none */
    uint32_t n_answer_stops; /* 1 if `stop` is not searched for in reasoning */
} generate_call;

uint64_t driver_generate(driver *d, const generate_call *call);
uint64_t driver_reset(driver *d, uint32_t owner, const char *session);
uint64_t driver_close_session(driver *d, uint32_t owner, const char *session);
uint64_t driver_park(driver *d, uint32_t owner, const char *session);
uint64_t driver_fork(driver *d, uint32_t owner, const char *session, const char *to, uint32_t at);
/* Sends a command that has a second name: RENAME, SAVE or LOAD. */
uint64_t driver_command(driver *d, llm_command_op op, uint32_t owner, const char *session, const char *other);
uint64_t driver_unsave(driver *d, uint32_t owner, const char *label);
uint64_t driver_pin(driver *d, uint32_t owner, const char *session, bool pinned);
void driver_cancel(driver *d, uint64_t request);
void driver_pause(driver *d, uint64_t request, bool paused);

/* Writes a GENERATE command. Returns its number of bytes. */
size_t driver_write_generate(uint64_t request, const generate_call *call, void *out, size_t n_bytes);

/* ---- events ---- */

bool driver_drain(driver *d); /* takes all waiting events; returns false if there are none */
const answer *driver_answer(const driver *d, uint64_t request);
const answer *driver_wait(driver *d, uint64_t request); /* waits until the request is over */
const answer *driver_wait_started(driver *d, uint64_t request);
const answer *driver_wait_text(driver *d, uint64_t request); /* waits until the request has text, or is over */
void driver_wait_all(driver *d);

/* Waits until all earlier commands have been carried out, and the session table shows their results. */
void driver_fence(driver *d);

/* Waits until the decode thread has begun and completed another loop. Needs no room in the event ring. */
void driver_loop(driver *d);

/* ---- state of the engine ---- */

uint64_t driver_counter(const driver *d, int counter);
bool driver_is_idle(driver *d); /* whether no request runs or waits, according to the session table */
/* Returns the state of the session in this entry, or -1. */
int driver_state(const driver *d, uint32_t entry);
/* Returns the open session of this name. Its `entry` is UINT32_MAX if there is none. */
llm_branch_view driver_session(const driver *d, const char *name);
/* Copies the resident tokens of the entry's branch. Returns their number, or 0 if the entry is closed. */
uint32_t driver_tokens(const driver *d, uint32_t entry, int32_t *out, uint32_t n_out);

/* ---- prompts and references ---- */

/* Writes n tokens of ordinary words. The same seed gives the same tokens. */
void make_prompt(int32_t *out, uint32_t n, uint64_t seed);

/* Whether a request that ended without a fault generated the same text as the same call on the engine `reference`,
 * where no state is reused. */
bool driver_equals_cold(driver *reference, const generate_call *call, const answer *a);

#endif
