/* timeline.h: which timeline of its session a request goes to. Pure.
 *
 * A session's id is a hint, not a conversation: clients send title, summary and compaction requests under the id of the
 * main conversation, even at the same time. So an id holds a few timelines, and a request goes to the one whose history
 * it continues. */
#ifndef LLM_TIMELINE_H
#define LLM_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct timeline {
    uint32_t n_history; /* tokens of its last prompt: what came after is one answer, which may be asked for again */
    uint32_t n_common;  /* tokens it shares with the request's prompt from the start */
    uint32_t n_head;    /* of the prompt: how many at its beginning many conversations share (llm_prompt) */
    uint32_t n_waiting;
    bool is_busy;     /* a generation holds it or waits for it */
    bool is_anchored; /* it was there when its session was pinned: it may be gone on with, but not be replaced */
    uint64_t used;    /* larger is more recent */
} timeline;

typedef enum timeline_verb {
    TIMELINE_CONTINUE, /* timeline `index`: at once, or after what keeps it busy */
    TIMELINE_OPEN,     /* another one beside the others */
    TIMELINE_REPLACE,  /* timeline `index`, which is idle, makes way for another one */
} timeline_verb;

typedef struct timeline_choice {
    timeline_verb verb;
    uint32_t index;
} timeline_choice;

/* True if the prompt goes on with that history rather than starting another one: it keeps more than half of what lies
 * behind the head, or of the whole where nothing lies behind it. An empty history is continued by everything. */
bool timeline_continues(const timeline *t);

/* n_max: how many timelines the session may have; 1 makes everything continue the only one. One beside those that are
 * anchored may always be there. With several that the prompt continues: the longest common prefix, then the one that is
 * not busy, then the most recent. */
timeline_choice timeline_choose(const timeline *timelines, uint32_t n, uint32_t n_max);

#endif
