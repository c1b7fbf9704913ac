/* slots.h: decides which branches have an entry, and which have a slot. An entry is a record in the session table. A
 * branch is open while it has an entry. A slot is a sequence of the model. A branch has a slot while its state is in
 * the model's memory. Owned by the decode thread.
 *
 * Slots 0..n_named-1 are for named branches, the rest for scratch. Thus neither kind can starve the other.
 * table_take_slot never blocks. A request that has a slot but must wait for something else gives up the slot if another
 * request waits for it (decode_slots.c).
 *
 *   the branch                        the slots of its kind           table_take_slot
 *   has a slot                        any                             SLOT_READY
 *   its state is on the disk          one is free, or can be freed    SLOT_LATER, and the state is read (shelf.h)
 *   its state is being read           any                             SLOT_LATER
 *   parked in memory, or tokens only  one is free                     SLOT_READY
 *                                     an idle branch has one          SLOT_READY: `park` parks it, `evict` forgets it
 *                                     all busy, or a state in flight  SLOT_LATER: the end of either frees one
 *                                     idle, but kept by the policy    SLOT_NEVER (`refuse`; `evict`, if all are pinned)
 *   does not fit the KV cells         any                             idle branches leave; else SLOT_LATER or _NO_CELLS
 *
 * Example: `a` and `b` are idle and have the only two slots; the policy is park. A request of the parked `c` arrives.
 * The least recently used branch `a` is parked, `c` is loaded into that slot, and the request begins.
 *
 * If a prompt diverges from the branch that it continues, a copy of the branch may be kept (policy/copy_cost.h
 * decides):
 *
 *   the prompt                                   the branch's tokens after the common prefix
 *   continues the branch                         none are discarded
 *   has another answer in place of the last one  are discarded: the client replaced them
 *   diverges earlier, prefilling is cheaper      are discarded, and prefilled again if a request needs them
 *   diverges earlier, a copy is cheaper          stay in a kept branch, if there is an entry for it
 *
 * Example: the client edits a message at token 4,000 of 20,000. The branch is copied to a kept branch and truncated to
 * 4,000. When the client goes back to the first version, the request continues the kept branch and prefills nothing.
 * The copy gets a free entry, or the entry of a less valuable branch. The less valuable branch is given up only after
 * the copy was made. */
#ifndef LLM_SLOTS_H
#define LLM_SLOTS_H

#include "sessions/branch.h"
#include "policy/branch_choice.h"
#include "states/store.h"

typedef struct branch_table branch_table; /* branch_table.h */

typedef struct table_slots {
    branch **holders; /* n_named + n_scratch: the branch in each slot, or NULL */
    uint64_t clock;   /* counts the uses of branches, which orders the branches by recency */
    /* microseconds that optional copies may still take before they delay the next token of a decoding branch. HUGE_VAL
     * if no branch decodes */
    double stall_budget_us;
    /* NULL, or a function that is called for each session whose last branch is given up */
    void (*forgotten)(void *context, uint32_t owner, const char *name);
    void *forgotten_context;
} table_slots;

/* ---- finding ---- */

/* Returns the session's next open branch after `after`, or its first if `after` is NULL. Returns NULL if there are no
 * more. */
branch *table_next(branch_table *table, session_name name, const branch *after);

/* Whether a branch of the session is open, or waits on the disk for an entry. */
bool table_knows(branch_table *table, session_name name);

/* Sets *out to the branch for a request of this session. This is the branch that the prompt continues
 * (branch_choice.h), or a new one. The branch may have no slot. Returns LLM_OK, or LLM_CAPACITY if no branch can be
 * opened. Also returns LLM_CAPACITY if the owner already has its share of busy branches. */
int table_admit(branch_table *table, session_name name, const branch_prompt *prompt, branch **out);

/* Opens a new branch of the session, whatever the session's other branches contain. Returns LLM_OK, or LLM_CAPACITY if
 * no branch can be opened. Then nothing has changed. */
int table_open_named(branch_table *table, session_name name, branch **out);

/* Forgets `old` and opens a new branch of the session of `like` instead. `old` must be idle. */
branch *table_replace(branch_table *table, branch *old, const branch *like);

/* Opens a branch with the id that it had in an earlier daemon, in a free entry. */
branch *table_open_known(branch_table *table, uint32_t owner, const char *name, uint64_t id);

/* Returns an idle scratch branch for this prompt, or NULL if all scratch branches are busy. The first choice is the
 * owner's branch that the prompt continues. The second choice is an empty or new branch. The third choice is the least
 * recently used branch. This branch is closed, and a new branch takes its entry. Exception: if the branch belongs to
 * the owner, and has more than the prompt's head in common with the prompt, the branch itself is returned, and can be
 * truncated. */
branch *table_scratch(branch_table *table, uint32_t owner, const branch_prompt *prompt);

/* Copies the first n tokens of `from` to `to`, which must be open and empty, and have no slot. If the state of `from`
 * covers at most n tokens, it also becomes the parked state of `to`, in memory or on the disk. If the state covers more
 * tokens, `to` gets no state, and its next request prefills the tokens. With may_truncate, `to` gets such a larger
 * state, too, with all tokens that it covers. Then the caller must truncate `to`. (table_copy.c) */
void table_copy(branch_table *table, branch *from, branch *to, uint32_t n, bool may_truncate);

/* Called before `b` continues with this prompt, which discards tokens of `b`. If prefilling these tokens again would
 * take longer than a copy, copies `b` to another branch (the kept branch). The copy needs a free entry or the entry of
 * a less valuable branch. `b` must have a slot. Returns whether a copy was made. (table_keep.c) */
bool table_keep_branch(branch_table *table, branch *b, const branch_prompt *prompt);

/* Whether this owner can have one more kept branch. If an entry is free, sets *replaced to NULL, and the caller calls
 * table_open_kept. Otherwise sets *replaced to an older kept branch, which the caller must replace (table_replace). */
bool table_may_open_kept(branch_table *table, uint32_t owner, branch **replaced);
branch *table_open_kept(branch_table *table, const branch *b);

/* Describes the branch for branch_choose, or for branch_choose_for_discarded if `prompt` is NULL. */
branch_candidate table_candidate_of(const branch *b, const branch_prompt *prompt);

/* Returns how many of the branch's tokens belong to its last prompt. */
uint32_t table_n_history(const branch *b);

/* Whether a scratch branch is idle, or can be opened. */
bool table_has_scratch(const branch_table *table);

/* Whether this owner has fewer busy branches than its share. Without this limit, one owner could occupy all entries,
 * because the entry of a busy branch cannot be given to another owner. */
bool table_may_be_busy(const branch_table *table, uint32_t owner);

void table_used(branch_table *table, branch *b); /* makes `b` the most recently used branch */

/* ---- slots ---- */

/* Sets how long optional copies may take before they delay a decoding branch. HUGE_VAL means that no branch decodes. */
void table_allow_copies(branch_table *table, double stall_budget_us);

typedef enum slot_result {
    SLOT_READY,
    SLOT_LATER, /* a generation, or a job of the store, may free a slot when it ends */
    SLOT_NEVER, /* all branches with slots are idle, and the policy allows none of them to be parked or forgotten */
    /* too few KV cells are free. Idle branches hold cells, but the policy does not allow parking or forgetting these
     * branches */
    SLOT_NO_CELLS,
} slot_result;

/* Gives the branch a slot. Parks or forgets idle branches for it, as the policy allows. */
slot_result table_take_slot(branch_table *table, branch *b);

/* Frees KV cells for `b`: removes another idle branch from the model's memory. Returns false if no branch can leave. */
bool table_free_cells(branch_table *table, const branch *b);

/* saves the state to host memory and frees the slot, even during a generation (decode_step.c). Returns false if memory
 * is short */
bool table_park(branch_table *table, branch *b);
void table_forget(branch_table *table, branch *b);       /* closes an idle branch, and reports its name */
void table_close_branch(branch_table *table, branch *b); /* closes the branch, and removes its files */
void table_reset_branch(branch_table *table, branch *b); /* empties the branch, and removes its files */

/* ---- whether a branch can get a slot: table_expected.c ---- */

/* Whether a slot for branches of the kind of `b` (named or scratch) is free, or can be taken from an idle branch. */
bool table_has_free_slot(const branch_table *table, const branch *b);

/* Whether a state is being written or read, or waits to be written. When the job ends, memory or a slot may become
 * free. */
bool table_has_in_flight(const branch_table *table);

/* Whether a slot can become free without a command of a client. True if a generation uses or awaits another branch that
 * has a slot. Also true if a state is on its way to or from the disk. Only slots for the kind of `b` count, named or
 * scratch. With any_kind, all slots count. */
bool table_is_in_progress(const branch_table *table, const branch *b, bool any_kind);

/* Whether the branch's state should be read from the disk now. Waiting requests whose states are in memory or being
 * read get slots first. Returns SLOT_READY if a slot is left for `b` after that. A slot counts if it is free or can be
 * freed. Otherwise `b` would get no slot after the read, and SLOT_LATER or SLOT_NEVER is returned. */
slot_result table_may_take_slot(const branch_table *table, const branch *b);

/* Returns false if the state of `b` would not fit the KV cache even after all idle branches had left it. Checked only
 * with policy `evict`, which would otherwise forget one idle branch after the other in vain. */
bool table_may_fit(const branch_table *table, const branch *b);

/* ---- ids ---- */

branch *table_find_id(branch_table *table, uint64_t id); /* returns the open branch, or NULL */
uint32_t table_names_max(const branch_table *table);     /* returns the limit on open named branches */

/* returns a number that is larger than all earlier ones. These numbers order uses, reads and writes */
uint64_t table_new_number(branch_table *table);

/* Sets the function that is called for each session whose last branch is given up. NULL is allowed. */
void table_set_forgotten_listener(branch_table *table,
                                  void (*forgotten)(void *context, uint32_t owner, const char *name), void *context);

/* Counts a branch that was given up without a client's request. If the session has no other branch, reports the session
 * as forgotten. */
void table_report_forgotten(branch_table *table, uint32_t owner, const char *name, llm_counter counter);

/* Forgets unpinned idle branches that were last used before `before_ms` (CLOCK_REALTIME). One call forgets at most 64
 * branches, because a thousand removals at once would delay decoding branches. Of the remaining branches that may
 * expire, returns the earliest last use. Returns 0 if no such branch remains. */
uint64_t table_expire(branch_table *table, uint64_t before_ms);

void table_publish(branch_table *table); /* sets the gauges in the session table, and calls table_account */
void table_account(branch_table *table); /* says in the branches' records how many bytes each takes (table_memory.c) */

#endif
