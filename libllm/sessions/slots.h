/* slots.h: which branches have an entry and which a slot. A branch is open while it has an entry, a record in the shared
 * segment. It has a slot, a sequence of the model, while its state is in the model's memory. Owned by the decode thread.
 *
 * Slots 0..n_named-1 are for named branches, the rest for scratch, so that neither kind can starve the other. table_take_slot
 * never blocks, and no request waits in a slot that another request waits for.
 *
 *   the branch                        the slots of its kind           table_take_slot
 *   has a slot                        any                             SLOT_READY
 *   its state is on the disk          one is free, or can be freed    SLOT_LATER, and the state is read (shelf.h)
 *   its state is being read           any                             SLOT_LATER
 *   parked in memory, or tokens only  one is free                     SLOT_READY
 *                                     an idle branch has one          SLOT_READY: `park` parks that branch, `evict` forgets it
 *                                     all busy, or a state in flight  SLOT_LATER: the end of either frees one
 *                                     idle, but kept by the policy    SLOT_NEVER (`refuse`; `evict`, if all are pinned)
 *   does not fit the KV cells         any                             idle branches leave; else SLOT_LATER or SLOT_NO_CELLS
 *
 * Example: `a` and `b` are idle and have the only two slots; the policy is park. A request of the parked `c` arrives: `a`, the
 * least recently used, is parked, `c` is loaded into its slot, and the request begins.
 *
 * A branch that continues with a prompt that diverges from it may be kept as a copy (policy/copy_cost.h decides):
 *
 *   the prompt                                   the branch's tokens after the common prefix
 *   continues the branch                         none are discarded
 *   has another answer in place of the last one  are discarded: the client replaced them
 *   diverges earlier, prefilling is cheaper      are discarded, and prefilled again if a request needs them
 *   diverges earlier, a copy is cheaper          stay in a kept branch, unless its entry would cost another branch its own
 *
 * Example: the client edits a message at token 4,000 of 20,000. The branch is copied to a kept branch and truncated to 4,000. When
 * the client goes back to the first version, the request continues the kept branch and prefills nothing. The copy is made before
 * anything is given up for it; then it takes a free entry, or that of the least valuable kept branch. */
#ifndef LLM_SLOTS_H
#define LLM_SLOTS_H

#include "sessions/branch.h"
#include "policy/branch_choice.h"
#include "states/store.h"

typedef struct branch_table branch_table; /* branch_table.h */

typedef struct table_slots {
    branch **holders;       /* n_named + n_scratch: the branch in each, or NULL */
    uint64_t clock;         /* counts uses; orders branches by recency */
    double stall_budget_us; /* left in this gap for optional copies; HUGE_VAL: no branch decodes */
    void (*forgotten)(void *context, uint32_t owner,
                      const char *name); /* called for each name that is given up; or NULL */
    void *forgotten_context;
} table_slots;

/* ---- finding ---- */

/* The next open branch of a name after `after` (NULL: the first). NULL: no more. */
branch *table_next(branch_table *table, session_name name, const branch *after);

/* Some branch of that name is open, or waits on the disk for an entry. */
bool table_knows(branch_table *table, session_name name);

/* The branch that a request of this name continues (branch_choice.h), opened now if need be, with or without a slot.
 * LLM_CAPACITY: none can be opened, or the owner has as many busy ones as it may. */
int table_admit(branch_table *table, session_name name, const branch_prompt *prompt, branch **out);

/* A new branch of this name, without looking at the others. LLM_CAPACITY: nothing has changed. */
int table_open_named(branch_table *table, session_name name, branch **out);

/* A new branch of the session of `like`, in the place of `old`, which is idle and is forgotten. */
branch *table_replace(branch_table *table, branch *old, const branch *like);

/* Opens a branch that has this id already, in a free entry. */
branch *table_open_known(branch_table *table, uint32_t owner, const char *name, uint64_t id);

/* An idle scratch branch for this prompt: the one of the same owner that the prompt continues, else a free one, else the
 * least recently used, which is emptied unless the two share more than the prompt's head. NULL: all are busy. */
branch *table_scratch(branch_table *table, uint32_t owner, const branch_prompt *prompt);

/* Gives `to`, open, empty and without a slot, the first n tokens of `from` and a share of its state, parked in memory or on
 * the disk. A state of more than n tokens is of no use: `to` has the tokens only, and prefills them. Unless it may_truncate:
 * then it gets all tokens of the state, for the caller to truncate. (table_copy.c) */
void table_copy(branch_table *table, branch *from, branch *to, uint32_t n, bool may_truncate);

/* Before `b`, which has a slot, continues with this prompt: copies `b` to a kept branch if the prompt discards tokens that cost more to
 * prefill again than to copy, and if an entry for it costs no other branch its own. False: no copy is made.
 * (table_keep.c) */
bool table_keep_branch(branch_table *table, branch *b, const branch_prompt *prompt);

/* There is an entry for another kept branch of this owner: a free one (*replaced is NULL) for table_open_kept, or that of
 * another kept branch. */
bool table_may_open_kept(branch_table *table, uint32_t owner, branch **replaced);
branch *table_open_kept(branch_table *table, const branch *b);

/* What branch_choose compares, for a prompt; what branch_choose_for_discarded compares, for NULL. */
branch_candidate table_candidate_of(const branch *b, const branch_prompt *prompt);

/* Resident tokens of the last prompt. */
uint32_t table_n_history(const branch *b);

/* A scratch branch is idle, or can be opened. */
bool table_has_scratch(const branch_table *table);

/* This owner has fewer busy branches than its share: their entries cannot be given to other owners. */
bool table_may_be_busy(const branch_table *table, uint32_t owner);

void table_used(branch_table *table, branch *b); /* b is the most recent now */

/* ---- slots ---- */

/* Sets the time for optional copies before a decoding branch notices; HUGE_VAL: none decodes. */
void table_allow_copies(branch_table *table, double stall_budget_us);

typedef enum slot_result {
    SLOT_READY,
    SLOT_LATER,    /* a generation, or a job of the store, may free a slot when it ends */
    SLOT_NEVER,    /* all branches are idle, and the policy keeps all of them */
    SLOT_NO_CELLS, /* all branches are idle, and the KV cache has no room without those that the policy keeps */
} slot_result;

/* Gives the branch a slot, parking or forgetting idle ones if the policy allows it. */
slot_result table_take_slot(branch_table *table, branch *b);

/* Frees KV cells for `b`: another idle branch leaves the model's memory. False: none can. */
bool table_free_cells(branch_table *table, const branch *b);

bool table_park(branch_table *table, branch *b);         /* gives up its slot; it may be running (decode_step.c) */
void table_forget(branch_table *table, branch *b);       /* closes an idle branch for another one, and reports it */
void table_close_branch(branch_table *table, branch *b); /* removes its files, too */
void table_reset_branch(branch_table *table, branch *b); /* removes its files, too */

/* ---- whether a slot can be had: table_expected.c ---- */

/* A slot of the branch's kind is empty, or its idle branch may leave it. */
bool table_has_free_slot(const branch_table *table, const branch *b);

/* A state is being written or read, or waits to be written: its end may free memory or a slot. */
bool table_has_in_flight(const branch_table *table);

/* A slot of that kind (or of any) may be freed without a command: a generation in another branch will end, or a state is in
 * flight. */
bool table_is_in_progress(const branch_table *table, const branch *b, bool any_kind);

/* SLOT_READY: the branch's state should be read from the disk now, as more slots can be had than there are waiting requests
 * whose branch's state is in memory or being read. A state whose branch could not get a slot is not read. */
slot_result table_may_take_slot(const branch_table *table, const branch *b);

/* False: the state of `b` would not fit the KV cache even if all idle branches left it. Asked with policy `evict` only, which would
 * forget one after the other in vain. */
bool table_may_fit(const branch_table *table, const branch *b);

/* ---- ids ---- */

branch *table_find_id(branch_table *table, uint64_t id); /* the open branch, or NULL */
uint32_t table_names_max(const branch_table *table);     /* limit on open named branches */

uint64_t table_new_number(branch_table *table); /* larger than all before: of a use, or of a read */

/* Sets the function that names given up are reported to; NULL: none. */
void table_set_forgotten_listener(branch_table *table,
                                  void (*forgotten)(void *context, uint32_t owner, const char *name), void *context);

/* Counts a branch that was given up unasked, and reports the name if it was the last one. */
void table_report_forgotten(branch_table *table, uint32_t owner, const char *name, llm_counter counter);

/* Forgets unpinned idle branches not used since `before_ms` (CLOCK_REALTIME), at most 64 at a time, so that decoding branches do
 * not wait for a thousand of them. Returns the oldest stamp of those left that may expire, or 0. */
uint64_t table_expire(branch_table *table, uint64_t before_ms);

void table_publish(branch_table *table); /* gauges */

#endif
