/* session_name.h: a session's owner and name. Sessions of different owners are separate, even if they have the same
 * name. */
#ifndef LLM_SESSION_NAME_H
#define LLM_SESSION_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct session_name {
    uint32_t owner;
    const char *bytes; /* not NUL-terminated; owned by the caller */
    size_t n_bytes;
} session_name;

static inline session_name session_name_from(uint32_t owner, const char *text)
{
    return (session_name){.owner = owner, .bytes = text, .n_bytes = strlen(text)};
}

static inline bool session_name_equal(session_name a, session_name b)
{
    return a.owner == b.owner && a.n_bytes == b.n_bytes && memcmp(a.bytes, b.bytes, a.n_bytes) == 0;
}

#endif
