/* script.h: the answers of a simulated model to certain texts, for tests of clients that need answers with a meaning:
 * reasoning, tool calls, structured output. Read once, immutable: any thread.
 *
 * A script is a text file of entries. A line "? " with a trigger begins an entry; the lines below it, up to the next
 * such line and without the last line end, are the reply. Lines before the first entry are ignored. Once the model has
 * consumed a trigger, anywhere in its text, its turns are that reply and then the end of the turn, until it consumes
 * another trigger. A reply that has been consumed in part is continued, so that a prompt may end with its beginning.
 * Replies should not hold triggers. */
#ifndef LLM_SIM_SCRIPT_H
#define LLM_SIM_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIM_SCRIPT_BYTES_MAX = 1 << 20, SIM_REPLIES_MAX = 1024, SIM_TRIGGER_NODES_MAX = 16384 };

typedef struct sim_script sim_script;

/* How far a sequence is in the script. It is part of the state, so that copies and saved states continue the same
 * reply. All zero: no trigger has been seen. */
typedef struct sim_cue {
    uint16_t node;       /* of the triggers' automaton: the longest beginning of a trigger with which the text ends */
    uint16_t reply;      /* the reply to the last trigger, counted from 1 */
    uint32_t n_consumed; /* bytes of the reply that have been consumed */
} sim_cue;

/* LLM_OK, LLM_INVALID (the file cannot be read, has no entry or too much) with a message, LLM_NO_MEMORY. */
int sim_script_open(const char *path, sim_script **out, char *error, size_t error_bytes);
void sim_script_close(sim_script *s); /* NULL is allowed */

uint64_t sim_script_hash(const sim_script *s);
bool sim_cue_is_valid(const sim_script *s, const sim_cue *c); /* s may be NULL: then only all zero is */

void sim_cue_follow(const sim_script *s, sim_cue *c, const char *bytes, size_t n);
void sim_cue_break(sim_cue *c); /* a control token was consumed: no trigger and no reply goes on over it */

/* Returns the rest of the reply, *n bytes; 0: all of it has been consumed. NULL: there is no reply. */
const char *sim_cue_rest(const sim_script *s, const sim_cue *c, size_t *n);

#endif
