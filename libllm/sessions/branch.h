/* branch.h: a branch, which is one history of tokens with a model state of its own. Owned by the decode thread.
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
 * A branch has an entry in the session table as long as it is open. It has a slot while its state is in the model's
 * memory. A slot is a sequence of the model. If KV cells are short, a branch in PREFILL or DECODE may lose its slot for
 * a while (decode_step.c).
 *
 * The resident tokens of a branch are its tokens in the session table. Invariant: the sequence of a branch with a slot
 * holds exactly the resident tokens, unless the branch is invalid (state word TORN). While draft tokens are verified,
 * they follow the resident tokens in the sequence. If a branch without a slot has a parked state, the state covers the
 * first `parked.k` resident tokens. When the branch gets a slot again, the resident tokens after the first `parked.k`
 * are dropped. The next request prefills those that its prompt contains.
 *
 * Resident tokens are written by branch.c. Exception: a branch may begin without a slot. Then its first tokens come
 * from table_saved.c (a saved session), from table_copy.c (another branch), or from adoption.c (an earlier daemon). */
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

/* What a branch needs to know of a generation that uses the branch or waits for it. */
typedef struct branch_claim {
    branch_prompt prompt;
    struct branch_claim *next; /* next generation in the same queue */
    /* the client reads the answer too slowly. The generation needs no slot until the client catches up */
    bool is_paused;
    /* the generation needs no slot yet, because it waits until another request has prefilled tokens with which both
     * prompts begin */
    bool is_early;
} branch_claim;

/* Where the state of a branch without a slot is. */
typedef enum parked_where {
    PARKED_NOWHERE, /* only the tokens are known: the next request prefills them */
    PARKED_IN_MEMORY,
    PARKED_WRITING, /* the state is in memory, and is being written to its file */
    PARKED_ON_DISK,
    PARKED_READING, /* the state is being read from its file */
} parked_where;

typedef struct parked {
    parked_where where;
    /* the whole state (MODEL_STATE_FULL) if `where` is IN_MEMORY or WRITING, otherwise NULL. The bytes of the state
     * count as parked, or as in flight if WRITING */
    blob *state;
    uint32_t k;          /* number of the branch's first tokens that the state covers */
    size_t n_bytes;      /* size of the state, in memory or on disk */
    bool is_on_disk;     /* the branch's state file holds this state */
    size_t n_disk_bytes; /* if is_on_disk: bytes to read, checkpoints included */
    state_ends ends;     /* if is_on_disk: token counts of the state and the checkpoints in the file */
    /* while READING: another branch's prompt may wait for the state. This is the most tokens that such a prompt shares
     * with the state. 0 if the state is read only for the branch itself */
    uint32_t n_lend_tokens;
    /* the state is lent. It is IN_MEMORY until the waiting requests of other branches have begun, then ON_DISK again */
    bool is_lent;
    /* if READING: number of the read. The result of a read with another number is ignored, because that read began
     * before a reset */
    uint64_t reading;
    /* time at which a request stops waiting for the state on disk; 0 if no request waits */
    uint64_t wait_until_us;
} parked;

/* Totals of all open branches. branch.c updates them at each change. The decode loop reports them often, and adding up
 * all entries each time would take too long. */
typedef struct branch_totals {
    uint32_t n_open;
    uint32_t n_named;
    size_t parked_bytes; /* bytes of parked states, in memory and on disk */
    size_t file_bytes;   /* bytes of state files */
    uint64_t n_changes;  /* number of changes of parked states and of state files */
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
    uint32_t entry; /* index of the branch's entry in the session table */
    int32_t slot;   /* the model's sequence, or BRANCH_NO_SLOT */
    bool is_open;
    bool is_held; /* a command copies the branch, so the branch counts as busy */
    uint32_t owner;
    char name[LLM_SESSION_NAME_BYTES_MAX + 1]; /* "" for a scratch branch */
    uint64_t id;                               /* number of this branch; never changes, and is the name of the branch's
                                                * files */
    bool has_file;                             /* the branch file exists, or its write is queued */
    /* bytes of the branch's state file that count against the limit on state files. The file on disk may still hold an
     * older state */
    size_t n_file_bytes;
    size_t n_stored_bytes; /* bytes of the state file that is on disk, according to the results of writes */
    uint64_t last_write;   /* number of the most recent write of the state file */
    uint64_t file_since;   /* number of the last removal of the state file. Results of earlier writes are ignored */
    bool is_changing;      /* a command waits until the branch's name and pin are on disk */
    uint64_t used;         /* order of the last use: larger is more recent */
    session_table_record record;
    parked parked;
    bool was_parked; /* the branch's parked state was loaded into the slot, and no request has used the branch since */
    /* n_vocab logits after the first logits_at resident tokens; owned (ledger_bytes_new). Only the logits of branches
     * without a slot count as parked memory. There can be many such branches, but there are few slots. */
    float *logits;
    uint32_t logits_at;        /* 0 if no logits are kept */
    uint32_t checkpoint_at;    /* number of tokens at the branch's most recent checkpoint */
    size_t n_checkpoint_bytes; /* used by table_memory.c while it adds up the checkpoints */
    checkpoint *prefix;        /* the pinned checkpoint of the shared prefix with which the branch began, or NULL */
    /* A kept branch is a copy of another branch, made before that branch was truncated. For a kept branch, n_kept is
     * the number of tokens that the truncation removed. For all other branches, n_kept is 0. It becomes 0 when a
     * request has continued the kept branch. */
    uint32_t n_kept;
    uint32_t n_drafts; /* draft tokens that the sequence holds after the resident tokens; 0 between steps */

    branch_claim *running; /* the generation that uses the branch, or NULL */
    branch_claim *waiting; /* first generation in the queue for this branch */
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
void branch_reset(branch *b); /* removes all tokens and the state; the branch keeps its slot, if it has one */

/* Whether all tokens are in the model's vocabulary. */
bool branch_are_tokens(const model_info *info, const int32_t *tokens, uint32_t n);

uint32_t branch_n_tokens(const branch *b);
const int32_t *branch_tokens(const branch *b);
resume_source branch_source(const branch *b); /* the branch must have a slot and be valid */
bool branch_is_named(const branch *b);        /* false for a scratch branch */
bool branch_has_slot(const branch *b);
bool branch_is_idle(const branch *b); /* no generation uses the branch or waits for it */

/* Returns where the branch's state is. During a write this is host memory, and during a read the disk. */
static inline llm_place branch_place(const branch *b)
{
    const parked_where where = b->parked.where;
    const bool is_in_memory = where == PARKED_IN_MEMORY || where == PARKED_WRITING;
    if (b->slot != BRANCH_NO_SLOT) {
        return LLM_PLACE_SLOT;
    }
    return where == PARKED_NOWHERE ? LLM_PLACE_NONE : is_in_memory ? LLM_PLACE_MEMORY : LLM_PLACE_DISK;
}

/* ---- calls for a generation, in this order: branch_begin, _consumed..., _decoding, _consumed..., _ended ---- */

/* Carries out the plan: brings the branch to the state after the prompt's first plan->n_keep tokens. `donor` is the
 * branch of plan->donor, `from` the checkpoint of plan->checkpoint. Each is NULL if the plan has none. If the model
 * refuses any part of the plan, returns false and leaves the branch empty. */
bool branch_apply(branch *b, const resume_plan *plan, const int32_t *prompt, const branch *donor, checkpoint *from);

/* Enters PREFILL. `plan` is the plan that was carried out. */
void branch_begin(branch *b, const resume_plan *plan, uint32_t n_prompt);

/* appends tokens that a successful model step consumed */
void branch_consumed(branch *b, const int32_t *tokens, uint32_t n);
/* branch_draft.c: drafts of one model step, for models that can verify drafts (info.n_drafting). branch_drafted records
 * that the step has added n draft tokens to the sequence, after the tokens that the branch consumes.
 * branch_accept_draft accepts the next draft token. branch_reject_drafts removes the rest, and returns the result of
 * model.h's remove_drafts. If this result is not MODEL_OK, the branch is invalid. If it is MODEL_FAILED_ALL, the caller
 * also invalidates all other branches */
void branch_drafted(branch *b, uint32_t n);
void branch_accept_draft(branch *b, int32_t token);
model_result branch_reject_drafts(branch *b);
void branch_decoding(branch *b); /* called when the whole prompt is consumed */
/* called when the generation is over. The client knows or has seen the first n_visible tokens. An invalid branch stays
 * invalid */
void branch_ended(branch *b, uint32_t n_visible);
void branch_invalidate(branch *b); /* called when a step has failed */

/* Truncates the branch to n_tokens if the model's memory can be truncated exactly there. Otherwise returns false and
 * leaves the branch unchanged, or invalid if the model failed. */
bool branch_truncate(branch *b, uint32_t n_tokens);

/* Saves a checkpoint. Exception: a model that can be truncated to every earlier position needs no checkpoint. `logits`
 * are the logits after the last resident token, or NULL. `prefix` says that many branches begin with the branch's
 * tokens. With `prefix`, a whole checkpoint (checkpoint.h) is saved for any model, and pinned for this branch. */
void branch_checkpoint(branch *b, const float *logits, bool prefix);
bool branch_takes_checkpoints(const branch *b); /* false if the model can be truncated to every earlier position */
void branch_keep_logits(branch *b, const float *logits);
void branch_forget_logits(branch *b);

/* ---- slots ---- */

/* After this call the branch has no parked state. Frees a state in memory; a state file stays on the disk, but is not
 * used. */
void branch_forget_parked(branch *b);

/* Sets `parked`. The caller must have dropped the blob of the former state, if there was one. */
void branch_set_parked(branch *b, const parked *to);
void branch_hold_parked(branch *b, blob *state, uint32_t k); /* parks the state of the first k tokens in memory */
void branch_set_file_bytes(branch *b, size_t n_bytes);

/* Returns the state of the branch's first *k tokens as a blob, held for `use` (ledger.h). If the branch has a slot, its
 * state is first saved to host memory. Otherwise the parked state is returned. Returns NULL if the branch has no valid
 * state, or has it only on disk. Also returns NULL if memory is short. */
blob *branch_hold_state(const branch *b, ledger_use use, uint32_t *k);

/* A copy of the state of a branch with a slot, in a sequence of its own or in host memory. */
typedef struct branch_copy {
    int32_t slot; /* the sequence that holds the copy of the state, or BRANCH_NO_SLOT */
    blob *state;  /* the copy in host memory, counted as parked (ledger.h), or NULL */
} branch_copy;

/* Copies the state of `from` into the sequence free_slot, or into host memory if free_slot is BRANCH_NO_SLOT. A
 * sequence is allowed only if the model's sequences share cells. Returns false if memory is short. The copy may need
 * the entry of another branch. Then the caller makes the copy first, and gives up the other branch only after a
 * success. */
bool branch_copy_of(const branch *from, int32_t free_slot, branch_copy *out);

/* Makes `to` a copy of `from`, and takes ownership of `copy`. `to` must be open and empty, and have no slot. */
void branch_become_copy(branch *to, const branch *from, const branch_copy *copy);

/* Returns the approximate bytes of the state of n tokens. */
size_t branch_state_bytes(const branch *b, uint32_t n_tokens);

/* Saves the state to host memory and gives up the slot. If memory is short, returns false and changes nothing. An
 * invalid or empty branch has no state to save, so parking it always succeeds. */
bool branch_park(branch *b);

/* Gives the branch a free slot and loads its parked state, if that is in memory. Drops the tokens that the state does
 * not cover. Returns:
 *   - MODEL_OK
 *   - MODEL_NO_CELLS if KV cells are short. Nothing has changed
 *   - MODEL_INVALID if the branch had no state for its tokens, or the model refused the state. The branch then has the
 *     slot and is invalid */
model_result branch_take_slot(branch *b, uint16_t slot);

void branch_publish(branch *b); /* writes `record` to the session table, where readers see it */

#endif
