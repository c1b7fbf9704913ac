/* loop_renderings.h: renders a template with and without the kept outcomes of chat_loop.h, and compares the results. */
#ifndef LOOP_RENDERINGS_H
#define LOOP_RENDERINGS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct loop_counts {
    int64_t n_outcomes; /* number of outcomes that were kept, including outcomes that were dropped later; -1 if the
                         * template cannot be compiled */
    int64_t n_repeated; /* number of iterations that did not run, in both renderings together */
};

/* Compiles the template, and renders it as a request does: all messages, then all but the last one, with the same
 * outcomes. Each rendering can spend n_steps, or the whole budget if n_steps is 0. Compares the renderings with
 * renderings without outcomes: their texts, errors, costs and counts, and which bytes come from messages. Writes what
 * differs to `difference`, or "" if nothing differs. `messages` is a JSON array. */
struct loop_counts loop_renderings_compare(const char *source, const char *messages, uint64_t n_steps, char *difference,
                                           size_t n_bytes);

#ifdef __cplusplus
}
#endif

#endif
