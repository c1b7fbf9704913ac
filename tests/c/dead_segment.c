#include "dead_segment.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const char *dead_segment_name(void)
{
    static char name[64];
    snprintf(name, sizeof name, "/llmd-test-dead-%d", (int)getpid());
    return name;
}

void dead_segment_leave(const driver *d, const dead_session *sessions, uint32_t n)
{
    llm_session_table_view view;
    llm_session_table_read(d->session_table, &view);
    session_table *p = NULL;
    char error[LLM_TEXT_BYTES_MAX];
    if (session_table_open(dead_segment_name(), view.n_entries, view.n_ctx, view.model, view.fingerprint, &p, error,
                           sizeof error) != LLM_OK) {
        abort();
    }
    for (uint32_t i = 0; i < n; i++) {
        session_table_open_entry(p, i, 0, sessions[i].name, sessions[i].id != 0 ? sessions[i].id : i + 1);
        session_table_append(p, i, sessions[i].tokens, sessions[i].n_tokens);
        session_table_store_record(p, i,
                                   &(session_table_record){.state = LLM_STATE_IDLE,
                                                           .diverged_at = -1,
                                                           .used_ms = sessions[i].used_ms,
                                                           .is_pinned = sessions[i].is_pinned});
    }
    session_table_leave(p);
    session_table_close(p);
}
