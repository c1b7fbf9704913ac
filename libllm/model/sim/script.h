/* script.h: the replies of a simulated model to certain texts. Tests use a script for clients that need meaningful
 * answers, for example reasoning, tool calls or structured output. Immutable after it is read. Any thread.
 *
 * A script is a text file of entries. A line that begins with "? " and a trigger begins an entry. The following lines,
 * up to the next entry and without the last line end, are the reply. Lines before the first entry are ignored. A
 * trigger can be anywhere in a sequence. After the trigger, each turn that the model generates in this sequence is the
 * trigger's reply, until another trigger follows. If a prompt ends with the beginning of the reply, the model generates
 * the rest of the reply. Replies should not contain triggers. */
#ifndef LLM_SIM_SCRIPT_H
#define LLM_SIM_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIM_SCRIPT_BYTES_MAX = 1 << 20, SIM_REPLIES_MAX = 1024, SIM_TRIGGER_NODES_MAX = 16384 };

typedef struct sim_script sim_script;

/* Position of a sequence in the script. The position is part of the state. So copies and saved states continue the same
 * reply. All members are zero if no trigger has been seen. */
typedef struct sim_cue {
    uint16_t node;       /* node of the automaton (script.c). The node stands for the longest beginning of a trigger
                          * with which the sequence's text ends */
    uint16_t reply;      /* number of the reply to the most recent trigger, counted from 1 */
    uint32_t n_consumed; /* bytes of the reply that have been consumed */
} sim_cue;

/* Returns LLM_OK, LLM_INVALID with a message (the file cannot be read, has no entry, or is too large), or
 * LLM_NO_MEMORY. */
int sim_script_open(const char *path, sim_script **out, char *error, size_t error_bytes);
void sim_script_close(sim_script *s); /* NULL is allowed */

uint64_t sim_script_hash(const sim_script *s);
bool sim_cue_is_valid(const sim_script *s, const sim_cue *c); /* if s is NULL, all members must be 0 */

void sim_cue_follow(const sim_script *s, sim_cue *c, const char *bytes, size_t n);
void sim_cue_break(sim_cue *c); /* called for a control token, which interrupts triggers and replies */

/* Returns the part of the current reply that has not been consumed. *n is its size, and 0 after the whole reply.
 * Returns NULL if no trigger has been seen. */
const char *sim_cue_rest(const sim_script *s, const sim_cue *c, size_t *n);

#endif
