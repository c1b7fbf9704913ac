/* branch.h: one history of tokens with its own state. Owned by the decode thread.
 *
 *                 open                 prefill begins            last prompt token
 *      (closed) -------> EMPTY ----------------------> PREFILL -------------------> DECODE
 *                          ^                             ^                            |
 *                          |                             |   prefill begins           | generation ends,
 *                          +---- reset, from any state   +--------------------+       | or is cancelled
 *                          |                                                  |       v
 *                          +------------------------------------------------ IDLE <---+
 *                          |                                                 |  ^
 *                          |                                            park |  | slot
 *                          |                                                 v  |
 *                          +------------------------------------------------ PARKED
 *                          |
 *                          +------------------- TORN <--- a failed step, from any state with a slot
 *                                                |
 *                                                +--- prefill begins (refills) ---> PREFILL
 *
 * A branch has an entry in the session table as long as it is open, and a slot (a sequence of the model) while its
 * state is in the model's memory. PREFILL and DECODE may lose the slot for a while, when the memory is short
 * (decode_step.c).
 *
 * Invariant of a branch with a slot that is not torn:   resident tokens == position == what the model's memory holds.
 * Of one without a slot: its parked state, if there is one, holds the first `parked.k` of the resident tokens. With a
 * slot it keeps these; what is behind them is consumed again.
 * The resident tokens lie in the session table: branch.c writes those of a branch with a slot, and of its copy; those
 * that another one without a slot begins with come from table_saved.c (read), table_copy.c (copied) and adoption.c (an
 * earlier daemon's). */
#ifndef LLM_BRANCH_H
#define LLM_BRANCH_H

#include <stdbool.h>
#include <stdint.h>

#include "states/checkpoint.h"
#include "llm.h"
#include "model/model.h"
#include "boundary/clock.h"
#include "boundary/session_table.h"
#include "boundary/session_name.h"
#include "policy/resume.h"
#include "policy/copy_cost.h"
#include "states/snapshot.h"

enum { BRANCH_NO_SLOT = -1 };

/* The prompt with which a generation begins. */
typedef struct branch_prompt {
    const int32_t *tokens;
    uint32_t n_tokens;
    uint32_t n_head; /* see branch_choice.h */
} branch_prompt;

/* The members of a generation that a branch needs to know while the generation uses it or waits for it. */
typedef struct branch_claim {
    branch_prompt prompt;
    struct branch_claim *next; /* next in the same queue */
    bool is_paused;            /* its client reads too slowly: it needs no slot until that changes */
    /* it waits until an earlier request has consumed the prompt that both share, and needs no slot until then */
    bool is_early;
} branch_claim;

/* Where the state of a branch without a slot is. */
typedef enum parked_where {
    PARKED_NOWHERE, /* only the tokens are known: the next request prefills them */
    PARKED_IN_MEMORY,
    PARKED_WRITING, /* in memory, and being written to its file */
    PARKED_ON_DISK,
    PARKED_READING, /* being read from its file */
} parked_where;

typedef struct parked {
    parked_where where;
    blob *state;     /* NULL unless in memory: held as parked (IN_MEMORY) or as in flight (WRITING); MODEL_STATE_FULL */
    uint32_t k;      /* tokens that the state covers */
    size_t n_bytes;  /* size of the state, wherever it is */
    bool is_on_disk; /* its file holds this state */
    size_t n_disk_bytes; /* is_on_disk: bytes to read, checkpoints included */
    state_ends ends;     /* is_on_disk: token counts of the state and the checkpoints in the file */
    /* READING for other branches: number of tokens that they share; 0: it is read for the branch itself */
    uint32_t n_lend_tokens;
    bool is_lent;           /* IN_MEMORY for other branches; afterwards it is on disk again */
    uint64_t reading;       /* READING: number of the read, so that a result requested before a reset is recognized */
    uint64_t wait_until_us; /* ON_DISK, READING: end of the wait of its request; 0: no request waits */
} parked;

/* Totals of all open branches, updated by branch.c: the decode loop reports them often, and there are too many entries
 * to add up. */
typedef struct branch_totals {
    uint32_t n_open;
    uint32_t n_named;
    size_t parked_bytes; /* of parked states, in memory and on disk */
    size_t file_bytes;   /* of state files */
} branch_totals;

/* Shared by all branches of an engine. */
typedef struct branch_shared {
    model *model;
    session_table *session_table;
    checkpoint_store *checkpoints;
    ledger *ledger;
    copy_cost_pace *pace; /* measured speed of prefilling and of copying states */
    branch_totals *totals;
} branch_shared;

typedef struct branch {
    const branch_shared *shared;
    uint32_t entry; /* its record in the session table */
    int32_t slot;   /* the model's sequence, or BRANCH_NO_SLOT */
    bool is_open;
    bool is_held; /* being copied: counts as busy */
    uint32_t owner;
    char name[LLM_SESSION_NAME_BYTES_MAX + 1]; /* "": scratch */
    uint64_t id;                               /* of this branch, never changed: names its files */
    bool has_file;                             /* the branch file exists, or its write is queued */
    size_t n_file_bytes;                       /* bytes counted for its state file, which may be older than the state */
    size_t n_stored_bytes; /* bytes of the state file that exists, by the results of its writes so far */
    uint64_t last_write;   /* number of the last write of the state file */
    uint64_t file_since;   /* number of the last removal of the state file: results of earlier writes are ignored */
    bool is_changing;      /* a command waits until its name and pin are written */
    uint64_t used;         /* order of the last use: larger is more recent */
    session_table_record record;
    parked parked;
    bool was_parked; /* its slot was filled from a parked state and not used since */
    /* owned (ledger_bytes_new): n_vocab logits after the first logits_at resident tokens. Without a slot they count as parked:
     * slots are few, parked branches many. */
    float *logits;
    uint32_t logits_at;     /* 0: none kept */
    uint32_t checkpoint_at; /* tokens at its last checkpoint */
    checkpoint *prefix;     /* the pinned checkpoint of the shared prefix with which it began, or NULL */
    /* tokens that a truncation of another branch discarded and this copy keeps; 0: it is no such copy, or was continued
     * since */
    uint32_t n_kept;

    branch_claim *running; /* the generation that uses the branch, or NULL */
    branch_claim *waiting; /* first in the queue behind it */
} branch;

/* Returns the name; valid until the branch is renamed or closed. */
static inline session_name branch_session_name(const branch *b)
{
    return session_name_from(b->owner, b->name);
}

void branch_init(branch *b, const branch_shared *shared, uint32_t entry);
void branch_open(branch *b, session_name name, uint64_t id);
void branch_rename(branch *b, session_name name);
void branch_close(branch *b);
void branch_reset(branch *b); /* keeps its slot, if it has one */

/* Whether all tokens are in the model's vocabulary. */
bool branch_are_tokens(const model_info *info, const int32_t *tokens, uint32_t n);

uint32_t branch_n_tokens(const branch *b);
const int32_t *branch_tokens(const branch *b);
resume_source branch_source(const branch *b); /* the branch must have a slot and be valid */
bool branch_is_named(const branch *b);        /* false: scratch */
bool branch_has_slot(const branch *b);
bool branch_is_idle(const branch *b); /* no generation uses it or waits for it */

/* ---- a generation calls begin, consumed..., decoding, consumed..., ended ---- */

/* Brings the branch to the first plan->n_keep tokens of the prompt. `donor` is the branch of plan->donor, `from` the
 * checkpoint of plan->checkpoint; NULL if the plan has none. Returns false if the model refused; then the branch is
 * empty. */
bool branch_apply(branch *b, const resume_plan *plan, const int32_t *prompt, const branch *donor, checkpoint *from);

/* Enters PREFILL. `plan` is what branch_apply has done. */
void branch_begin(branch *b, const resume_plan *plan, uint32_t n_prompt);

void branch_consumed(branch *b, const int32_t *tokens, uint32_t n); /* after a model step succeeded */
void branch_decoding(branch *b);                                    /* the whole prompt is consumed */
void branch_ended(branch *b, uint32_t n_visible);                   /* the generation is over; state is valid */
void branch_invalidate(branch *b);                                  /* a step failed */

/* Truncates the branch if the memory can do it exactly. Returns false otherwise; the branch is unchanged then, or
 * invalid if the model failed. */
bool branch_truncate(branch *b, uint32_t n_tokens);

/* Saves a checkpoint (if a truncation could not restore the state) with the logits after the last resident token, if
 * given. With `prefix`, the checkpoint is whole and this branch pins it, because many branches begin with it. */
void branch_checkpoint(branch *b, const float *logits, bool prefix);
bool branch_takes_checkpoints(const branch *b); /* true: the model cannot be truncated to every earlier position */
void branch_keep_logits(branch *b, const float *logits);
void branch_forget_logits(branch *b);

/* ---- slots ---- */

/* Drops the parked state, wherever it is; the file stays. */
void branch_forget_parked(branch *b);

/* Sets `parked`; the caller has taken care of the former state. */
void branch_set_parked(branch *b, const parked *to);
void branch_hold_parked(branch *b, blob *state, uint32_t k); /* parks the state of the first k tokens in memory */
void branch_set_file_bytes(branch *b, size_t n_bytes);

/* Returns the state of the branch's first *k tokens, held for this use: the parked one, or for a branch with a slot a
 * saved one. NULL: it is only on disk, there is none, or memory is short. */
blob *branch_hold_state(const branch *b, ledger_use use, uint32_t *k);

/* A copy of the state of a branch with a slot: */
typedef struct branch_copy {
    int32_t slot; /* the sequence that holds the copy, or BRANCH_NO_SLOT: */
    blob *state;  /* held as parked */
} branch_copy;

/* Makes the copy before anything is given up for it: in a free slot if the model's memory shares cells, else
 * (BRANCH_NO_SLOT) as a saved state. Returns false if memory is short. */
bool branch_copy_of(const branch *from, int32_t free_slot, branch_copy *out);

/* Makes `to`, which is open and empty, a copy of `from`. Takes ownership of the copy. */
void branch_become_copy(branch *to, const branch *from, const branch_copy *copy);

/* Returns the approximate bytes of the state of n tokens. */
size_t branch_state_bytes(const branch *b, uint32_t n_tokens);

/* Saves the state and gives the slot up. Returns false if memory is short; nothing changed then. An invalid or empty
 * branch saves nothing and always succeeds. */
bool branch_park(branch *b);

/* Takes a free slot and loads the parked state, if there is one in memory; tokens beyond that state are dropped.
 * MODEL_OK; MODEL_NO_CELLS: nothing changed; MODEL_INVALID: there was no state for its tokens, or the model refused it;
 * the branch has a slot and is invalid. */
model_result branch_take_slot(branch *b, uint16_t slot);

void branch_publish(branch *b); /* publishes changes of `record` */

#endif
