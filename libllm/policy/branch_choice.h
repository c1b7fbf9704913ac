/* branch_choice.h: chooses the branch of a session that a request continues. Pure functions.
 *
 * A session name is only a hint. Clients also send title, summary and compaction requests under the name of the main
 * conversation, even at the same time. So a session has a few branches. A request continues the branch whose history
 * its prompt extends. */
#ifndef LLM_BRANCH_CHOICE_H
#define LLM_BRANCH_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct branch_candidate {
    /* tokens of the branch's last prompt. The answer to this prompt does not count, because a client may request
     * another answer */
    uint32_t n_history;
    uint32_t n_common; /* tokens of the common prefix of this branch and the request's prompt */
    uint32_t n_head;   /* tokens of the prompt's head, which many conversations share (llm_prompt) */
    uint32_t n_lost;   /* tokens that are lost if the branch is replaced */
    bool is_busy;      /* a generation uses the branch or waits for it */
    bool is_on_disk;   /* the branch's state is on disk, so no other branch can copy it */
    /* the branch existed when its session was pinned. A prompt can continue the branch, but no new branch can replace
     * it */
    bool is_anchored;
    uint64_t used; /* time of the last use; a larger value is more recent */
} branch_candidate;

typedef enum branch_verb {
    BRANCH_CONTINUE, /* continue branch `index`, at once or after the requests that wait for it */
    BRANCH_OPEN,     /* open a new branch, in an entry of its own */
    BRANCH_REPLACE,  /* open a new branch, in the entry of branch `index`, which is idle */
} branch_verb;

typedef struct branch_choice {
    branch_verb verb;
    uint32_t index;
} branch_choice;

/* Whether the prompt continues branch `t`. The common prefix must include more than half of the tokens that the
 * branch's history has after the head. If the history is not longer than the head, the common prefix must include more
 * than half of the whole history. Every prompt continues an empty history. */
bool branch_is_continued(const branch_candidate *t);

/* Chooses the branch for a prompt. If the prompt continues several candidates, chooses the one with the longest common
 * prefix. If several candidates share the longest prefix, chooses an idle candidate. Of several idle candidates,
 * chooses the most recently used one.
 *
 * If the prompt continues no candidate, a branch whose state is on disk may still have the longest common prefix. Then
 * chooses this branch. The branch is truncated, and the discarded tokens may be kept in a copy. Otherwise opens a new
 * branch, or replaces the least valuable branch. The value of a branch is n_lost / (1 + n_uses). Here n_uses counts the
 * uses of other branches since the branch's last use.
 *
 * The session has at most n_max branches. But a session can always have one branch more than it has anchored branches.
 * `has_room` says whether the session can get another entry. Without room, a new branch replaces another branch of this
 * session. If no branch can be opened or replaced, the prompt continues the branch with the longest common prefix. */
branch_choice branch_choose(const branch_candidate *candidates, uint32_t n, uint32_t n_max, bool has_room);

/* Chooses where to keep n_lost tokens that a truncation of branch `index` would discard. BRANCH_OPEN: in a new branch.
 * BRANCH_REPLACE: in the entry of a branch of less value. BRANCH_CONTINUE: nowhere. */
branch_choice branch_choose_for_discarded(const branch_candidate *candidates, uint32_t n, uint32_t n_max,
                                          uint32_t index, uint32_t n_lost);

#endif
