/* branch_choice.h: which branch of its session a request continues. Pure.
 *
 * A session name is a hint, not a conversation: clients send title, summary and compaction requests under the name of
 * the main conversation, even at the same time. So a session has a few branches, and a request continues the one whose
 * history its prompt extends. */
#ifndef LLM_BRANCH_CHOICE_H
#define LLM_BRANCH_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct branch_candidate {
    uint32_t n_history; /* tokens of its last prompt; one answer follows them, which the client may request again */
    uint32_t n_common;  /* tokens of the common prefix of this branch and the request's prompt */
    uint32_t n_head;    /* leading tokens of the prompt that many conversations share (llm_prompt) */
    uint32_t n_lost;    /* tokens that are lost when it is replaced */
    bool is_busy;       /* a generation holds it or waits for it */
    bool is_on_disk;    /* its state is on disk, so that no other branch can copy it */
    bool is_anchored;   /* it existed when its session was pinned: a request can continue it, but not replace it */
    uint64_t used;      /* larger is more recent */
} branch_candidate;

typedef enum branch_verb {
    BRANCH_CONTINUE, /* branch `index`: at once, or after the requests before it */
    BRANCH_OPEN,     /* a new one, in an entry of its own */
    BRANCH_REPLACE,  /* a new one that takes the entry of branch `index`, which is idle */
} branch_verb;

typedef struct branch_choice {
    branch_verb verb;
    uint32_t index;
} branch_choice;

/* Whether the prompt continues the branch: it keeps more than half of the history's tokens after the head, or of all of
 * them if the history ends with the head. Every prompt continues an empty history. */
bool branch_is_continued(const branch_candidate *t);

/* Chooses the branch for a prompt. If the prompt continues several candidates, it goes to the one with the longest
 * common prefix, then to an idle one, then to the most recent. If it continues none, but only a branch whose state is
 * on disk has the longest common prefix, it goes there, and the tokens that this truncates are kept in a copy.
 * Otherwise a new branch is opened, or replaces the one of the least value: tokens / (1 + uses of other branches since
 * its last use).
 *
 * n_max: limit on the session's branches; with 1 every prompt continues the only one. One branch more than the anchored
 * ones is always allowed. has_room: a new branch takes no entry from another session; otherwise it replaces one of this
 * session. */
branch_choice branch_choose(const branch_candidate *candidates, uint32_t n, uint32_t n_max, bool has_room);

/* Chooses where n_lost tokens that a truncation of branch `index` would discard are kept: in a new branch
 * (BRANCH_OPEN), instead of a branch of less value (BRANCH_REPLACE), or nowhere (BRANCH_CONTINUE). */
branch_choice branch_choose_for_discarded(const branch_candidate *candidates, uint32_t n, uint32_t n_max,
                                          uint32_t index, uint32_t n_lost);

#endif
