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
    llm_page_view view;
    llm_page_read(d->page, &view);
    page *p = NULL;
    char error[LLM_TEXT_BYTES_MAX];
    if (page_open(dead_segment_name(), view.n_places, view.n_ctx, view.model, view.fingerprint, &p, error,
                  sizeof error) != LLM_OK) {
        abort();
    }
    for (uint32_t i = 0; i < n; i++) {
        page_place_open(p, i, 0, sessions[i].name, sessions[i].id != 0 ? sessions[i].id : i + 1);
        page_append(p, i, sessions[i].tokens, sessions[i].n_tokens);
        page_record_store(p, i,
                          &(page_record){.state = LLM_STATE_IDLE,
                                         .diverged_at = -1,
                                         .used_ms = sessions[i].used_ms,
                                         .is_pinned = sessions[i].is_pinned});
    }
    page_leave(p);
    page_close(p);
}
