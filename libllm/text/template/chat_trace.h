/* chat_trace.h: counts what a template does while it runs, per thread. The counts show what two renderings of the
 * same request have in common (chat_program_render): the beginning of the text, and the values of messages and tools.
 * The guarded nodes (chat_guard.h) increase the counts. A rendering compares the counts before and after a
 * statement. */
#ifndef LLM_CHAT_TRACE_H
#define LLM_CHAT_TRACE_H

#include <cstdint>
#include <string>

/* The variable that says whether the text ends with a generation prompt. */
inline const std::string CHAT_ASKS = "add_generation_prompt";

struct chat_trace {
    uint64_t n_asks = 0; /* how often the template has read CHAT_ASKS */
    uint64_t n_changes =
        0; /* how often the template has set a variable or a member, defined a macro, or changed a list.
                             * A change of a variable that exists only inside a loop or a macro counts, too */
    uint64_t n_given_changes = 0; /* the changes of lists and objects that the request has given to the template */

    static chat_trace &current()
    {
        static thread_local chat_trace trace;
        return trace;
    }
};

#endif
