/* engine_driver.h: an engine and the client that a test is: pushes commands, drains events, checks the protocol of every
 * event on the way and keeps what each request got. One thread. */
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

/* What one request got so far. */
typedef struct answer {
    ask asked;
    bool is_admitted, is_started, is_over; /* over: FINISHED or REPLY came */
    uint32_t entry;                        /* of ADMITTED or REPLY */
    uint32_t reason, n_reused;             /* of STARTED */
    int32_t diverged_at;
    uint32_t n_consumed_events, n_consumed; /* CONSUMED events; of the last one */
    uint32_t status;                        /* of FINISHED or REPLY */
    wire_finished finished;
    char *text; /* NUL-terminated */
    size_t n_text;
    uint32_t n_tokens;                           /* of the last TEXT, or of REPLY */
    uint32_t os_error;                           /* of REPLY */
    size_t n_token_ids, n_logprobs, n_likeliest; /* of all TEXT events together: */
    int32_t *token_ids;
    uint32_t *ends; /* in characters of the whole answer */
    float *logprobs;
    token_logprob *likeliest;
    uint32_t n_chars; /* of text */
} answer;

typedef struct driver {
    llm_engine *engine;
    const llm_session_table *session_table;
    llm_info info;
    answer **answers; /* by request number; [0] is unused */
    uint64_t n_requests;
    uint64_t n_open;       /* not over */
    uint32_t n_faults;     /* breaches of the protocol, each printed */
    bool expects_nonsense; /* " WRONG-STATE" is what this test is about */
    bool forks_beside;     /* a FORK replaces nothing */
    uint64_t n_forgotten;  /* FORGOTTEN events; of the last one: */
    uint32_t forgotten_owner;
    char forgotten[LLM_SESSION_NAME_BYTES_MAX + 1];
    bool drains_late; /* takes no event before the engine had to wait for room */
    uint8_t *buffer;
} driver;

/* Members left 0 get: 4 sessions, 2 scratch, 1024 tokens. Starts serving. Aborts on failure. */
driver *driver_open(const llm_engine_options *options);
driver *driver_open_then(const llm_engine_options *options, void (*before_start)(driver *d));
driver *driver_open_model(const char *name);
/* Ends with a check that nothing is left; the count of faults. */
uint32_t driver_close(driver *d);

/* ---- commands: each returns the request's number ---- */

typedef struct generate_call {
    uint32_t owner;
    const char *session; /* NULL: scratch */
    const int32_t *prompt;
    uint32_t n_prompt;
    uint32_t max_tokens;
    uint32_t flags;
    const char *stop;  /* NULL: none */
    float temperature; /* with a seed of `seed` */
    uint64_t seed;
    const int32_t *boundaries; /* n_boundaries of them */
    uint32_t n_boundaries;
    const char *parent; /* NULL: none */
    uint32_t n_head;
    uint32_t n_logprobs_and_1; /* 0: none */
    uint64_t after;            /* 0: none */
    logit_bias bias;           /* of one token; 0: none */
    const char *constraint;    /* NULL: none */
    uint32_t min_tokens;
    int32_t stop_token;      /* 0: none */
    uint32_t n_answer_stops; /* 1: `stop` is not looked for in thoughts */
} generate_call;

uint64_t driver_generate(driver *d, const generate_call *call);
uint64_t driver_reset(driver *d, uint32_t owner, const char *session);
uint64_t driver_close_session(driver *d, uint32_t owner, const char *session);
uint64_t driver_park(driver *d, uint32_t owner, const char *session);
uint64_t driver_fork(driver *d, uint32_t owner, const char *session, const char *to, uint32_t at);
/* RENAME, SAVE, LOAD: what has a second name. */
uint64_t driver_command(driver *d, llm_command_op op, uint32_t owner, const char *session, const char *other);
uint64_t driver_unsave(driver *d, uint32_t owner, const char *label);
uint64_t driver_pin(driver *d, uint32_t owner, const char *session, bool pinned);
void driver_cancel(driver *d, uint64_t request);
void driver_pause(driver *d, uint64_t request, bool paused);

/* The only entry that knows how a GENERATE looks: bytes written. */
size_t driver_write_generate(uint64_t request, const generate_call *call, void *out, size_t n_bytes);

/* ---- events ---- */

bool driver_drain(driver *d); /* takes what waits; false: nothing did */
const answer *driver_answer(const driver *d, uint64_t request);
const answer *driver_wait(driver *d, uint64_t request); /* until it is over */
const answer *driver_wait_started(driver *d, uint64_t request);
const answer *driver_wait_text(driver *d, uint64_t request); /* until it has some, or is over */
void driver_wait_all(driver *d);

/* Every command pushed before this has been carried out, and the session table shows it. */
void driver_fence(driver *d);

/* One decode loop has begun and ended since the call. Needs no room for events. */
void driver_loop(driver *d);

/* ---- looking ---- */

uint64_t driver_counter(const driver *d, int counter);
bool driver_is_idle(driver *d); /* the session table says that nothing runs or waits */
/* State of the session in that entry, or -1. */
int driver_state(const driver *d, uint32_t entry);
/* Returns the open session of that name. Its entry is UINT32_MAX if no such session is open. */
llm_branch_view driver_session(const driver *d, const char *name);
/* Copies its resident tokens; 0 when it is closed. */
uint32_t driver_tokens(const driver *d, uint32_t entry, int32_t *out, uint32_t n_out);

/* ---- prompts and references ---- */

/* n tokens of ordinary words: the same for the same seed. */
void make_prompt(int32_t *out, uint32_t n, uint64_t seed);

/* Whether a request that has ended by itself says what the same call says on `reference` without any reuse. */
bool driver_equals_cold(driver *reference, const generate_call *call, const answer *a);

#endif
