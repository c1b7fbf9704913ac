#include "places.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int places_open(places *p, model *m, page *segment, uint32_t n_named, uint32_t n_scratch, llm_policy policy)
{
    *p = (places){.model = m, .page = segment, .policy = policy, .n_named = n_named, .n_scratch = n_scratch};
    p->sessions = calloc(n_named + n_scratch, sizeof *p->sessions);
    if (p->sessions == NULL) {
        return LLM_NO_MEMORY;
    }
    for (uint32_t slot = 0; slot < n_named + n_scratch; slot++) {
        session_init(&p->sessions[slot], m, segment, slot);
    }
    return LLM_OK;
}

void places_close(places *p)
{
    free(p->sessions);
    p->sessions = NULL;
}

uint32_t places_n(const places *p)
{
    return p->n_named + p->n_scratch;
}

static bool is_named(const places *p, const session *s)
{
    return s->slot < p->n_named;
}

static bool is_idle(const session *s)
{
    return s->is_open && s->running == NULL && s->waiting == NULL;
}

void places_used(places *p, session *s)
{
    s->used = ++p->clock;
}

session *places_find(places *p, uint32_t owner, const char *name, size_t n_name_bytes)
{
    for (uint32_t i = 0; i < p->n_named; i++) {
        session *s = &p->sessions[i];
        if (s->is_open && s->owner == owner && strlen(s->name) == n_name_bytes &&
            memcmp(s->name, name, n_name_bytes) == 0) {
            return s;
        }
    }
    return NULL;
}

/* In slots [from, to): a closed place, or NULL. */
static session *closed_place(places *p, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        if (!p->sessions[i].is_open) {
            return &p->sessions[i];
        }
    }
    return NULL;
}

/* In slots [from, to): the least recently used idle session that holds at least min_tokens, or NULL. */
static session *oldest_idle(places *p, uint32_t from, uint32_t to, uint32_t min_tokens)
{
    session *oldest = NULL;
    for (uint32_t i = from; i < to; i++) {
        session *s = &p->sessions[i];
        if (is_idle(s) && session_n_tokens(s) >= min_tokens && (oldest == NULL || s->used < oldest->used)) {
            oldest = s;
        }
    }
    return oldest;
}

void places_forget(places *p, session *s)
{
    assert(is_idle(s));
    if (is_named(p, s)) {
        page_count(p->page, LLM_COUNTER_SESSIONS_EVICTED, 1);
    }
    session_close(s);
}

session *places_admit(places *p, uint32_t owner, const char *name, size_t n_name_bytes)
{
    session *s = places_find(p, owner, name, n_name_bytes);
    if (s != NULL) {
        return s;
    }
    s = closed_place(p, 0, p->n_named);
    if (s == NULL && p->policy == LLM_POLICY_EVICT) {
        s = oldest_idle(p, 0, p->n_named, 0);
        if (s != NULL) {
            places_forget(p, s);
        }
    }
    if (s != NULL) {
        session_open(s, owner, name, n_name_bytes);
        page_count(p->page, LLM_COUNTER_SESSIONS_OPENED, 1);
        places_used(p, s);
    }
    return s;
}

/* The idle scratch session this prompt continues: more than half of what it holds is a prefix of the prompt. */
static session *continued_scratch(places *p, uint32_t owner, const int32_t *prompt, uint32_t n_prompt)
{
    session *best = NULL;
    uint32_t best_common = 0;
    for (uint32_t i = p->n_named; i < places_n(p); i++) {
        session *s = &p->sessions[i];
        if (!is_idle(s) || s->owner != owner) {
            continue;
        }
        const uint32_t n = session_n_tokens(s);
        const uint32_t common = resume_common_prefix(session_tokens(s), n, prompt, n_prompt);
        if (common > n / 2 && common > best_common) {
            best = s;
            best_common = common;
        }
    }
    return best;
}

session *places_scratch(places *p, uint32_t owner, const int32_t *prompt, uint32_t n_prompt)
{
    session *s = continued_scratch(p, owner, prompt, n_prompt);
    if (s == NULL) {
        s = closed_place(p, p->n_named, places_n(p));
    }
    if (s == NULL) {
        s = oldest_idle(p, p->n_named, places_n(p), 0);
        if (s != NULL && s->owner != owner) {
            session_close(s); /* nothing of one owner may even be timed by another */
        }
    }
    if (s != NULL && !s->is_open) {
        session_open(s, owner, "", 0);
    }
    return s;
}

bool places_free_cells(places *p)
{
    session *s = oldest_idle(p, p->n_named, places_n(p), 1);
    if (s == NULL && p->policy == LLM_POLICY_EVICT) {
        s = oldest_idle(p, 0, p->n_named, 1);
    }
    if (s == NULL) {
        return false;
    }
    places_forget(p, s);
    return true;
}

void places_publish(places *p)
{
    uint64_t n_open = 0;
    uint64_t n_named = 0;
    uint64_t cells = 0;
    for (uint32_t i = 0; i < places_n(p); i++) {
        const session *s = &p->sessions[i];
        if (s->is_open) {
            n_open++;
            n_named += is_named(p, s);
            cells += session_n_tokens(s);
        }
    }
    page_gauge(p->page, LLM_COUNTER_SESSIONS_OPEN, n_open);
    page_gauge(p->page, LLM_COUNTER_SESSIONS_NAMED, n_named);
    page_gauge(p->page, LLM_COUNTER_CELLS_USED, cells);
}
