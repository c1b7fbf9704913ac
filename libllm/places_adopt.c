/* places_adopt.c: a start: the sessions that an earlier daemon left, in files and, if it was killed, in its segment. They
 * are gathered first, so that they are opened in the order of their last use, whichever way they were found. */
#include <stdlib.h>
#include <string.h>

#include "places.h"

typedef struct candidate {
    uint64_t id;   /* of its file */
    bool has_file; /* else only its tokens are known */
    bool is_relabelled;
    bool is_pinned;
    uint32_t owner;
    uint64_t used_ms;
    char name[LLM_SESSION_NAME_BYTES_MAX + 1];
    int32_t *tokens; /* owned */
    uint32_t n_tokens;
} candidate;

typedef struct adoption {
    places *places;
    candidate *candidates;
    uint32_t n;
    uint32_t capacity;
} adoption;

/* Takes what c points to. */
static void add(adoption *a, const candidate *c)
{
    if (a->n == a->capacity) {
        const uint32_t capacity = a->capacity == 0 ? 64 : 2 * a->capacity;
        candidate *larger = realloc(a->candidates, capacity * sizeof *larger);
        if (larger == NULL) {
            free(c->tokens);
            return;
        }
        a->candidates = larger;
        a->capacity = capacity;
    }
    a->candidates[a->n++] = *c;
}

/* ---- files ---- */

static void found_file(void *context, snapshot *head)
{
    adoption *a = context;
    if (!places_are_tokens(a->places, head->tokens, head->n_tokens) || head->name[0] == '\0') {
        return;
    }
    candidate c = {
        .id = head->id,
        .has_file = true,
        .is_pinned = head->is_pinned,
        .owner = head->owner,
        .used_ms = head->used_ms,
        .tokens = head->tokens,
        .n_tokens = head->n_tokens,
    };
    memcpy(c.name, head->name, sizeof c.name);
    head->tokens = NULL;
    add(a, &c);
}

/* ---- the segment ---- */

/* The candidate of that name that already holds these tokens, or whose file holds the first of them, or NULL: it is that
 * timeline, and what the file lacks is refilled, not all. */
static candidate *known(const adoption *a, const candidate *c)
{
    for (uint32_t i = 0; i < a->n; i++) {
        candidate *other = &a->candidates[i];
        if (other->owner != c->owner || strcmp(other->name, c->name) != 0) {
            continue;
        }
        const uint32_t common = resume_common_prefix(other->tokens, other->n_tokens, c->tokens, c->n_tokens);
        if (common == c->n_tokens || (common == other->n_tokens && other->has_file)) {
            return other;
        }
    }
    return NULL;
}

/* Of use and pin the segment knows more than the file, unless another daemon went on from the file. */
static void learn(candidate *c, const candidate *from_segment)
{
    if (from_segment->used_ms >= c->used_ms) {
        c->used_ms = from_segment->used_ms;
        c->is_relabelled = c->has_file && c->is_pinned != from_segment->is_pinned;
        c->is_pinned = from_segment->is_pinned;
    }
}

static void look_at_slot(adoption *a, const llm_page *dead, uint32_t slot, int32_t *tokens)
{
    llm_session_view view;
    const int64_t n = llm_page_tokens(dead, slot, tokens, a->places->ground.model->info.n_ctx, NULL);
    if (n <= 0 || llm_page_session(dead, slot, &view) != LLM_OK || view.name[0] == '\0' ||
        !places_are_tokens(a->places, tokens, (uint32_t)n)) {
        return;
    }
    candidate c = {
        .is_pinned = view.is_pinned == LLM_PIN_ANCHORED,
        .owner = view.owner,
        .used_ms = view.used_ms,
        .tokens = tokens,
        .n_tokens = (uint32_t)n,
    };
    memcpy(c.name, view.name, LLM_SESSION_NAME_BYTES_MAX);
    candidate *same = known(a, &c);
    if (same != NULL) {
        learn(same, &c);
        return;
    }
    c.tokens = malloc(c.n_tokens * sizeof *tokens);
    if (c.tokens != NULL) {
        memcpy(c.tokens, tokens, c.n_tokens * sizeof *tokens);
        add(a, &c);
    }
}

static void look_at_page(adoption *a, const llm_page *dead)
{
    llm_page_view view;
    llm_page_read(dead, &view);
    int32_t *tokens = malloc(a->places->ground.model->info.n_ctx * sizeof *tokens);
    for (uint32_t slot = 0; tokens != NULL && slot < view.n_slots; slot++) {
        look_at_slot(a, dead, slot, tokens);
    }
    free(tokens);
}

/* ---- opening ---- */

static int by_use(const void *a, const void *b)
{
    const uint64_t x = ((const candidate *)a)->used_ms;
    const uint64_t y = ((const candidate *)b)->used_ms;
    return (x > y) - (x < y);
}

static void become(places *p, const candidate *c)
{
    session *s = NULL;
    if (places_open_named(p, c->owner, c->name, strlen(c->name), &s) != LLM_OK) {
        return;
    }
    page_append(p->ground.page, s->slot, c->tokens, c->n_tokens);
    if (c->has_file) {
        s->id = c->id;
        s->parked = (parked){.where = PARKED_ON_DISK};
        s->record.n_visible = c->n_tokens;
    }
    s->record.state = LLM_STATE_PARKED;
    s->record.used_ms = c->used_ms;
    s->record.is_pinned = c->is_pinned ? LLM_PIN_ANCHORED : LLM_PIN_NONE;
    session_publish(s);
    if (c->is_relabelled) {
        places_relabel_file(p, s);
    }
}

void places_adopt(places *p, const llm_page *dead)
{
    adoption a = {.places = p};
    if (p->store != NULL) {
        store_scan(p->store, found_file, &a);
    }
    if (dead != NULL) {
        look_at_page(&a, dead);
    }
    if (a.n > 0) {
        qsort(a.candidates, a.n, sizeof *a.candidates, by_use);
    }
    /* Of more than there are places the newest stay: each that is opened makes the oldest go, where the policy lets one
     * go. Otherwise the oldest are left out. */
    const uint32_t n_max = p->options.n_named + p->options.n_parked_max;
    const bool must_leave_out = p->options.policy == LLM_POLICY_REFUSE && a.n > n_max;
    for (uint32_t i = must_leave_out ? a.n - n_max : 0; i < a.n; i++) {
        become(p, &a.candidates[i]);
    }
    for (uint32_t i = 0; i < a.n; i++) {
        free(a.candidates[i].tokens);
    }
    places_pin_later_timelines(p);
    free(a.candidates);
}
