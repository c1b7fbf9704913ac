/* timeline.h: which timeline of its session a request continues. Pure.
 *
 * A session's id is a hint, not a conversation: clients send title, summary and compaction requests under the id of the
 * main conversation, even at the same time. So a session holds a few timelines, and a request continues the one whose
 * history its prompt extends. */
#ifndef LLM_TIMELINE_H
#define LLM_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct timeline {
    uint32_t n_history; /* tokens of its last prompt; one answer follows them, which the client may request again */
    uint32_t n_common;  /* tokens of the common prefix of this timeline and the request's prompt */
    uint32_t n_head;    /* leading tokens of the prompt that many conversations share (llm_prompt) */
    uint32_t n_lost;    /* tokens that are lost when it is replaced */
    bool is_busy;       /* a generation holds it or waits for it */
    bool is_far;        /* its state is on the disk, so that no other timeline can copy it */
    bool is_anchored;   /* it existed when its session was pinned: a request may continue it, but not replace it */
    uint64_t used;      /* larger is more recent */
} timeline;

typedef enum timeline_verb {
    TIMELINE_CONTINUE, /* timeline `index`: at once, or after the requests before it */
    TIMELINE_OPEN,     /* a new one, in a place of its own */
    TIMELINE_REPLACE,  /* a new one, in the place of timeline `index`, which is idle */
} timeline_verb;

typedef struct timeline_choice {
    timeline_verb verb;
    uint32_t index;
} timeline_choice;

/* True if the prompt continues that history: it keeps more than half of the history's tokens after the head, or of all of
 * them if the history ends with the head. Every prompt continues an empty history. */
bool timeline_continues(const timeline *t);

/* If the prompt continues several timelines, it goes to the one with the longest common prefix, then to an idle one, then
 * to the most recent. If it continues none, but only a timeline whose state is on the disk has the longest common prefix, it
 * goes there, and the tokens that this truncates are kept as a branch. Else a new timeline is opened, or replaces the one of
 * the least value: tokens / (1 + uses of the others since its last use).
 *
 * n_max: limit on the session's timelines; with 1 every prompt continues the only one. One timeline more than the anchored
 * ones is always allowed. has_room: a new timeline costs no other session its place; else it replaces one of this session. */
timeline_choice timeline_choose(const timeline *timelines, uint32_t n, uint32_t n_max, bool has_room);

/* Where n_lost tokens that a truncation of timeline `index` would discard are kept: in a new timeline (TIMELINE_OPEN), in
 * place of one of less value (TIMELINE_REPLACE), or nowhere (TIMELINE_CONTINUE). */
timeline_choice timeline_aside(const timeline *timelines, uint32_t n, uint32_t n_max, uint32_t index, uint32_t n_lost);

#endif
