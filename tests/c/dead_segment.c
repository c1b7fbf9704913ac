#include "dead_segment.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "boundary/page_layout.h"

const char *dead_segment_name(void)
{
    static char name[64];
    snprintf(name, sizeof name, "/llmd-test-dead-%d", (int)getpid());
    return name;
}

page *dead_segment_leave(const driver *d, const dead_session *sessions, uint32_t n)
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
        page_place_open(p, i, 0, sessions[i].name);
        page_append(p, i, sessions[i].tokens, sessions[i].n_tokens);
        page_record_store(p, i,
                          &(page_record){.state = LLM_STATE_IDLE,
                                         .diverged_at = -1,
                                         .used_ms = sessions[i].used_ms,
                                         .is_pinned = sessions[i].is_pinned});
    }
    const uint64_t another_start = 1; /* no process is as old as that: the owner is dead */
    const int fd = shm_open(dead_segment_name(), O_RDWR, 0);
    if (pwrite(fd, &another_start, sizeof another_start, offsetof(page_header, pid_start)) != sizeof another_start) {
        abort();
    }
    close(fd);
    return p;
}
