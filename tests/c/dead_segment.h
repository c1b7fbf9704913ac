/* dead_segment.h: makes a session table as a killed engine leaves it in shared memory. */
#ifndef DEAD_SEGMENT_H
#define DEAD_SEGMENT_H

#include "engine_driver.h"
#include "boundary/session_table.h"

typedef struct dead_session {
    const char *name;
    const int32_t *tokens;
    uint32_t n_tokens;
    uint64_t used_ms;
    bool is_pinned;
    uint64_t id; /* id of the branch, or 0 for a branch without a file */
} dead_session;

const char *dead_segment_name(void); /* returns the name that this process uses for its dead segment */

/* Makes the session table that an engine like `d` with these sessions leaves when its process is killed. */
void dead_segment_leave(const driver *d, const dead_session *sessions, uint32_t n);

#endif
