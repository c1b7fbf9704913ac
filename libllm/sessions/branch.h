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
 * A branch has an entry in the session table as long as it is open, and a slot (a sequence of the model) while its state is
 * in the model's memory. PREFILL and DECODE may lose the slot for a while, when the memory is short (decode_step.c).
 *
 * Invariant of a branch with a slot that is not torn:   resident tokens == position == what the model's memory holds.
 * Of one without a slot: its parked state, if there is one, holds the first `parked.k` of the resident tokens. With a slot
 * it keeps these; what is behind them is consumed again.
 * The resident tokens lie in the session table: branch.c writes those of a branch with a slot, and of its copy; those that another
 * one without a slot begins with come from table_saved.c (read), table_fork.c (copied) and adoption.c (an earlier daemon's). */
#ifndef LLM_BRANCH_H
#define LLM_BRANCH_H

#include <stdbool.h>
#include <stdint.h>

#include "states/checkpoint.h"
#include "llm.h"
#include "model/model.h"
#include "boundary/session_table.h"
#include "boundary/session_name.h"
#include "policy/resume.h"
#include "policy/copy_cost.h"
#include "states/snapshot.h"

enum { BRANCH_NO_SLOT = -1 };

/* What a generation begins with. */
typedef struct branch_prompt {
    const int32_t *tokens;
    uint32_t n_tokens;
    uint32_t n_head; /* branch_choice.h */
} branch_prompt;

/* A generation that holds a branch or waits for it, as far as the branch need know it. */
typedef struct branch_claim {
    branch_prompt prompt;
    struct branch_claim *next; /* behind it in the same queue */
    bool is_paused;            /* its reader does not keep up: it wants no slot until it does */
    bool is_early;             /* another is to read the prompt that they share: nor this one, until it has */
} branch_claim;

/* Where the state of a branch without a slot lies. */
typedef enum parked_where {
    PARKED_NOWHERE, /* only its tokens are known: refilled on its next request */
    PARKED_IN_MEMORY,
    PARKED_WRITING, /* in memory, and on its way to the disk */
    PARKED_ON_DISK,
    PARKED_READING, /* on its way back to memory */
} parked_where;

typedef struct parked {
    parked_where where;
    blob *state;            /* IN_MEMORY: held as parked, WRITING: as in flight; MODEL_STATE_FULL */
    uint32_t k;             /* tokens that the state covers */
    size_t n_bytes;         /* of the state, wherever it lies */
    bool is_on_disk;        /* its file holds this state */
    size_t n_disk_bytes;    /* is_on_disk: what reading it takes, checkpoints included */
    state_ends ends;        /* is_on_disk: of what is read then */
    uint32_t n_lend_tokens; /* READING for others: so many of its tokens; 0: it is for itself */
    bool is_lent;           /* IN_MEMORY for those others; then it lies on the disk again */
    uint64_t reading;       /* READING: which one, for what was asked for before a reset comes later */
    uint64_t wait_until_us; /* ON_DISK, READING: so long a request waits for it; 0: none does */
} parked;

/* Of all open branches, kept up by branch.c: the decode loop reports them, and entries are many. */
typedef struct branch_totals {
    uint32_t n_open;
    uint32_t n_named;
    size_t parked_bytes; /* of parked states, wherever they lie */
    size_t file_bytes;   /* of state files */
} branch_totals;

/* What all branches of an engine share. */
typedef struct branch_shared {
    model *model;
    session_table *session_table;
    checkpoint_store *checkpoints;
    ledger *ledger;
    copy_cost_pace *pace; /* of reading tokens and of copying states */
    branch_totals *totals;
} branch_shared;

typedef struct branch {
    const branch_shared *shared;
    uint32_t entry; /* its record in the session table */
    int32_t slot;   /* the model's sequence, or BRANCH_NO_SLOT */
    bool is_open;
    bool is_held; /* while it is copied: never idle */
    uint32_t owner;
    char name[LLM_SESSION_NAME_BYTES_MAX + 1]; /* "": scratch */
    uint64_t id;                               /* of this branch, for good: names its files */
    bool has_file;                             /* its branch file is in the store, or on its way */
    size_t n_file_bytes;                       /* of its state file; it may be older than what the branch holds */
    bool is_changing;                          /* a command waits until its name and pin are on the disk */
    uint64_t used;                             /* order of last use: larger is more recent */
    session_table_record record;
    parked parked;
    bool was_parked;        /* got its slot with a parked state and was not used since */
    float *logits;          /* owned (ledger_bytes_new): n_vocab, after the first logits_at resident tokens */
    uint32_t logits_at;     /* 0: none kept */
    uint32_t checkpoint_at; /* tokens at its last checkpoint */
    checkpoint *prefix;     /* pinned: the shared prefix it began with, or NULL */
    uint32_t n_kept; /* tokens kept from a truncation of another branch; 0: not a kept branch, or continued since */

    branch_claim *running; /* the generation that holds the branch, or NULL */
    branch_claim *waiting; /* first in the queue behind it */
} branch;

/* Valid until the branch is renamed or closed. */
static inline session_name branch_session_name(const branch *b)
{
    return session_name_from(b->owner, b->name);
}

void branch_init(branch *b, const branch_shared *shared, uint32_t entry);
void branch_open(branch *b, session_name name, uint64_t id);
void branch_rename(branch *b, session_name name);
void branch_close(branch *b);
void branch_reset(branch *b); /* keeps its slot, if it has one */

/* All are of the model's vocabulary. */
bool branch_are_tokens(const model_info *info, const int32_t *tokens, uint32_t n);

uint32_t branch_n_tokens(const branch *b);
const int32_t *branch_tokens(const branch *b);
resume_source branch_source(const branch *b); /* with a slot and not torn */
bool branch_is_named(const branch *b);        /* else it is scratch */
bool branch_has_slot(const branch *b);
bool branch_is_idle(const branch *b); /* no generation holds it or waits for it */

/* ---- a generation: begin, consume..., decoding, consume..., ended ---- */

/* Brings the branch to the first plan->n_keep tokens of the prompt. `donor` is plan->donor's branch, `from` is
 * plan->checkpoint's; NULL where the plan names none. False: the model refused; the branch is empty. */
bool branch_apply(branch *b, const resume_plan *plan, const int32_t *prompt, const branch *donor, checkpoint *from);

/* PREFILL begins; plan as applied. */
void branch_begin(branch *b, const resume_plan *plan, uint32_t n_prompt);

void branch_consumed(branch *b, const int32_t *tokens, uint32_t n); /* after a model step succeeded */
void branch_decoding(branch *b);                                    /* the whole prompt is consumed */
void branch_ended(branch *b, uint32_t n_visible);                   /* the generation is over; state is valid */
void branch_invalidate(branch *b);                                  /* a step failed */

/* Cuts the newest tokens off if the memory allows it exactly; false leaves everything as it is, or torn. */
bool branch_truncate(branch *b, uint32_t n_tokens);

/* Keeps the state (where a truncation could not bring it back) and, if given, the logits after the last resident token. The
 * `prefix` of many branches is kept whole and pinned by this one. */
void branch_checkpoint(branch *b, const float *logits, bool prefix);
bool branch_takes_checkpoints(const branch *b); /* a truncation cannot bring everything back */
void branch_keep_logits(branch *b, const float *logits);
void branch_forget_logits(branch *b);

/* ---- slots ---- */

/* The parked state is forgotten, wherever it lies; its file stays. */
void branch_forget_parked(branch *b);

/* Sets `parked`; what it held before is the caller's. */
void branch_set_parked(branch *b, const parked *to);
void branch_hold_parked(branch *b, blob *state, uint32_t k); /* in memory: of its first k tokens */
void branch_set_file_bytes(branch *b, size_t n_bytes);

/* The state of the branch's first *k tokens, wherever in memory it is, held for this use: that of a branch with a slot is saved.
 * NULL: it is only on the disk, there is none, or memory is short. */
blob *branch_hold_state(const branch *b, ledger_use use, uint32_t *k);

/* The state of a branch with a slot, once more. */
typedef struct branch_copy {
    int32_t slot; /* the sequence that holds it, or BRANCH_NO_SLOT: */
    blob *state;  /* held as parked */
} branch_copy;

/* Made before anything makes way for it: in a free slot where the model's memory shares cells, else (BRANCH_NO_SLOT) as a
 * saved state. False: memory is short. */
bool branch_copy_of(const branch *from, int32_t free_slot, branch_copy *out);

/* `to`, open and empty, holds what `from` holds. Takes the copy. */
void branch_become_copy(branch *to, const branch *from, const branch_copy *copy);

/* About how many bytes the state of so many tokens has. */
size_t branch_state_bytes(const branch *b, uint32_t n_tokens);

/* Saves the state and gives the slot up. False (memory is short): nothing changed. A torn or empty branch saves
 * nothing and always succeeds. */
bool branch_park(branch *b);

/* Takes a free slot and loads the parked state, if there is one in memory; tokens that it does not cover are dropped.
 * MODEL_OK; MODEL_NO_CELLS: nothing changed; MODEL_INVALID: there was no state for its tokens, or it was refused; the
 * branch has a slot and is torn. */
model_result branch_take_slot(branch *b, uint16_t slot);

void branch_publish(branch *b); /* what changed in `record` */

uint64_t clock_us(void);         /* CLOCK_MONOTONIC */
uint64_t clock_ms(void);         /* CLOCK_REALTIME */
uint64_t clock_elapsed_ms(void); /* CLOCK_BOOTTIME */

#endif
