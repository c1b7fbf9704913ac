/* dead_segment.h: the session table that a killed engine leaves behind. */
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
    uint64_t id; /* of the branch that it is; 0: of one that has no file */
} dead_session;

const char *dead_segment_name(void); /* of this process's one */

/* With these sessions, as an engine like `d` leaves it when its process is killed. */
void dead_segment_leave(const driver *d, const dead_session *sessions, uint32_t n);

#endif
