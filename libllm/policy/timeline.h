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
    uint32_t n_worth; /* tokens that are gone with it */
    bool is_busy;     /* a generation holds it or waits for it */
    bool is_far;      /* its state lies on the disk: only it can go on with it */
    bool is_anchored; /* it was there when its session was pinned: it may be gone on with, but not be replaced */
    uint64_t used;    /* larger is more recent */
} timeline;

typedef enum timeline_verb {
    TIMELINE_CONTINUE, /* timeline `index`: at once, or after what keeps it busy */
    TIMELINE_OPEN,     /* another one gets a place beside the others */
    TIMELINE_REPLACE,  /* timeline `index`, which is idle, makes way for another one */
} timeline_verb;

typedef struct timeline_choice {
    timeline_verb verb;
    uint32_t index;
} timeline_choice;

/* True if the prompt goes on with that history rather than starting another one: it keeps more than half of what lies
 * behind the head, or of the whole where nothing lies behind it. An empty history is continued by everything. */
bool timeline_continues(const timeline *t);

/* A prompt that would open another one, but shares more with one that is far than with any that could be copied, goes on in
 * that one: there it is read, and what the cut would discard is kept aside.
 *
 * Of those that may make way, the one of the least value goes: tokens / (1 + uses of the others since its last one).
 *
 * n_max: how many timelines the session may have; 1 makes everything continue the only one. has_room: one more may be open
 * without costing another session its place; else one of this session makes way. One beside those that are anchored may
 * always be there. With several that the prompt continues: the longest common prefix, then the one that is not busy, then the most
 * recent. */
timeline_choice timeline_choose(const timeline *timelines, uint32_t n, uint32_t n_max, bool has_room);

/* Timeline `index` is about to lose n_worth tokens by a cut. Where they are kept: beside the others (TIMELINE_OPEN), or in
 * place of one of less value (TIMELINE_REPLACE); or nowhere (TIMELINE_CONTINUE). */
timeline_choice timeline_aside(const timeline *timelines, uint32_t n, uint32_t n_max, uint32_t index, uint32_t n_worth);

#endif
