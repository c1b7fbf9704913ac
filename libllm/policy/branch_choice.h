/* branch_choice.h: chooses the branch of a session that a request continues. Pure functions.
 *
 * A session name is a hint, not a conversation: clients send title, summary and compaction requests under the name of
 * the main conversation, even at the same time. So a session has a few branches, and a request continues the branch
 * whose history its prompt extends. */
#ifndef LLM_BRANCH_CHOICE_H
#define LLM_BRANCH_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct branch_candidate {
    uint32_t n_history; /* tokens of the branch's last prompt; the answer after these may be requested again */
    uint32_t n_common;  /* tokens of the common prefix of this branch and the request's prompt */
    uint32_t n_head;    /* leading tokens of the prompt that many conversations share (llm_prompt) */
    uint32_t n_lost;    /* tokens that are lost if the branch is replaced */
    bool is_busy;       /* a generation uses the branch or waits for it */
    bool is_on_disk;    /* its state is on disk, so that no other branch can copy that state */
    /* existed when its session was pinned, so that a request can continue but not replace the branch */
    bool is_anchored;
    uint64_t used; /* larger is more recent */
} branch_candidate;

typedef enum branch_verb {
    BRANCH_CONTINUE, /* branch `index`, at once or after the requests before */
    BRANCH_OPEN,     /* a new branch, in an entry of its own */
    BRANCH_REPLACE,  /* a new branch, in the entry of branch `index`, which is idle */
} branch_verb;

typedef struct branch_choice {
    branch_verb verb;
    uint32_t index;
} branch_choice;

/* Whether the prompt continues the branch: whether the prompt keeps more than half of the history's tokens after the
 * head, or more than half of all tokens if the history is not longer than the head. Every prompt continues an empty
 * history. */
bool branch_is_continued(const branch_candidate *t);

/* Chooses the branch for a prompt. If the prompt continues several candidates, chooses the candidate with the longest
 * common prefix; of equals an idle one, and of idle ones the most recently used. If the prompt continues none, but the
 * longest common prefix is in a branch whose state is on disk, chooses that branch; a copy then keeps the tokens that
 * the truncation discards. Otherwise opens a new branch, or replaces the branch of the least value, which is tokens /
 * (1 + uses of other branches since the branch's last use).
 *
 * n_max is the limit on the session's branches; if it is 1, every prompt continues the only branch. One branch more
 * than the anchored branches is always allowed. has_room says that a new branch needs no entry of another session; if
 * false, a new branch replaces a branch of this session. */
branch_choice branch_choose(const branch_candidate *candidates, uint32_t n, uint32_t n_max, bool has_room);

/* Chooses where to keep n_lost tokens that a truncation of branch `index` would discard: in a new branch (BRANCH_OPEN),
 * in the entry of a branch of less value (BRANCH_REPLACE), or nowhere (BRANCH_CONTINUE). */
branch_choice branch_choose_for_discarded(const branch_candidate *candidates, uint32_t n, uint32_t n_max,
                                          uint32_t index, uint32_t n_lost);

#endif
