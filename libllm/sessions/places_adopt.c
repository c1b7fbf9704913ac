/* places_adopt.c: a start: the sessions that an earlier daemon left, in files and, if it was killed, in its segment. They
 * are gathered first, so that they are opened in the order of their last use, whichever way they were found, and the
 * pinned and the newest get the places there are. */
#include <stdlib.h>
#include <string.h>

#include "sessions/places.h"

enum { SLEEPERS_NAMED_MAX = 4 }; /* a line in the log for so many that found no place, one for the rest */

typedef struct candidate {
    uint64_t id;     /* of its files */
    bool has_file;   /* else only the segment knows it */
    bool is_changed; /* the segment knows more than the file: tokens, name or pin */
    bool is_pinned;
    uint32_t owner;
    uint64_t used_ms;
    uint64_t used; /* places.h */
    char name[LLM_SESSION_NAME_BYTES_MAX + 1];
    int32_t *tokens; /* owned */
    uint32_t n_tokens;
    uint32_t k;          /* of them that the state in its file covers; 0: there is none of use */
    size_t n_disk_bytes; /* of that state */
    state_ends ends;     /* idem */
} candidate;

typedef struct adoption {
    places *places;
    candidate *candidates;
    uint32_t n;
    uint32_t capacity;
    uint32_t n_other_geometry;
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

static bool are_of_vocabulary(const places *p, const int32_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= p->ground.model->info.n_vocab) {
            return false;
        }
    }
    return true;
}

static void found_file(void *context, session_file *file, const state_facts *state)
{
    adoption *a = context;
    if (file->name[0] == '\0' || !are_of_vocabulary(a->places, file->tokens, file->n_tokens)) {
        return;
    }
    candidate c = {
        .id = file->id,
        .has_file = true,
        .is_pinned = file->is_pinned,
        .owner = file->owner,
        .used_ms = file->used_ms,
        .tokens = file->tokens,
        .n_tokens = file->n_tokens,
    };
    memcpy(c.name, file->name, sizeof c.name);
    if (state->is_there && state->is_of_other_geometry) {
        a->n_other_geometry++;
    } else if (state->is_there && state_matches(state->k, state->hash, file->tokens, file->n_tokens)) {
        c.k = state->k;
        c.n_disk_bytes = (size_t)state->n_bytes;
        c.ends = state->ends;
    }
    file->tokens = NULL;
    add(a, &c);
}

/* ---- the segment ---- */

/* The candidate of that name whose tokens are the first of these, or the other way round, or NULL: it is that timeline. */
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

/* Of use, pin and later tokens the segment knows more than the file, unless another daemon went on from the file. That a
 * pin is off, it does not: that is in the file before it is answered, and this may be another timeline that has begun with
 * the same tokens. The state in the file is that of its first tokens still. False: memory is short. */
static bool learn(candidate *c, const candidate *from_segment)
{
    if (from_segment->n_tokens > c->n_tokens) {
        int32_t *tokens = realloc(c->tokens, from_segment->n_tokens * sizeof *tokens);
        if (tokens == NULL) {
            return false;
        }
        memcpy(tokens, from_segment->tokens, from_segment->n_tokens * sizeof *tokens);
        c->tokens = tokens;
        c->n_tokens = from_segment->n_tokens;
        c->is_changed = true;
    }
    if (from_segment->used_ms >= c->used_ms) {
        c->used_ms = from_segment->used_ms;
        c->is_changed = c->is_changed || (from_segment->is_pinned && !c->is_pinned);
        c->is_pinned = c->is_pinned || from_segment->is_pinned;
    }
    return true;
}

static void look_at_place(adoption *a, const llm_page *dead, uint32_t place, int32_t *tokens, uint32_t n_tokens_max)
{
    llm_session_view view;
    const int64_t n = llm_page_tokens(dead, place, tokens, n_tokens_max, NULL);
    if (n <= 0 || llm_page_session(dead, place, &view) != LLM_OK || view.name[0] == '\0' ||
        !are_of_vocabulary(a->places, tokens, (uint32_t)n)) {
        return;
    }
    candidate c = {
        .is_changed = true,
        .is_pinned = view.is_pinned == LLM_PIN_ANCHORED,
        .owner = view.owner,
        .used_ms = view.used_ms,
        .tokens = tokens,
        .n_tokens = (uint32_t)n,
    };
    memcpy(c.name, view.name, LLM_SESSION_NAME_BYTES_MAX);
    candidate *same = known(a, &c);
    if (same != NULL) {
        (void)learn(same, &c);
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
    int32_t *tokens = malloc(view.n_ctx * sizeof *tokens);
    for (uint32_t place = 0; tokens != NULL && place < view.n_places; place++) {
        look_at_place(a, dead, place, tokens, view.n_ctx);
    }
    free(tokens);
}

/* ---- opening ---- */

static bool fits(const places *p, const candidate *c)
{
    return c->n_tokens <= p->ground.model->info.n_ctx;
}

/* Who gets a place first: what fits the context, the pinned, the newest. */
static int by_claim(const void *a, const void *b)
{
    const candidate *x = a;
    const candidate *y = b;
    if (x->is_pinned != y->is_pinned) {
        return x->is_pinned ? -1 : 1;
    }
    return (x->used_ms < y->used_ms) - (x->used_ms > y->used_ms);
}

static int by_use(const void *a, const void *b)
{
    const uint64_t x = ((const candidate *)a)->used_ms;
    const uint64_t y = ((const candidate *)b)->used_ms;
    return (x > y) - (x < y);
}

/* What only the segment knows gets a file where that is promised; else the next orderly stop writes it. */
static void write_if_due(places *p, session *s, const candidate *c)
{
    store_job *job = c->is_changed && (c->has_file || c->is_pinned) ? places_change_of(p, s, CHANGE_WRITE) : NULL;
    if (job != NULL) {
        store_push(p->store, job);
    }
}

static bool become(places *p, const candidate *c)
{
    session *s = NULL;
    if (places_open_named(p, c->owner, c->name, strlen(c->name), &s) != LLM_OK) {
        return false;
    }
    page_append(p->ground.page, s->place, c->tokens, c->n_tokens);
    if (c->has_file) {
        s->id = c->id;
        s->has_file = true;
    }
    if (c->k > 0) {
        s->parked = (parked){.where = PARKED_ON_DISK,
                             .k = c->k,
                             .n_bytes = c->n_disk_bytes,
                             .is_on_disk = true,
                             .n_disk_bytes = c->n_disk_bytes,
                             .ends = c->ends};
        s->record.n_visible = c->n_tokens;
    }
    s->record.state = LLM_STATE_PARKED;
    s->record.used_ms = c->used_ms;
    s->record.is_pinned = c->is_pinned ? LLM_PIN_ANCHORED : LLM_PIN_NONE;
    session_publish(s);
    write_if_due(p, s, c);
    return true;
}

/* What the segment alone knew, or knew more of, gets a file to sleep in. False: there is no store, or memory is short. */
static bool write_sleeper(places *p, candidate *c)
{
    store_job *job = p->store != NULL ? store_job_new(STORE_CHANGE, 1) : NULL;
    if (job == NULL) {
        return false;
    }
    c->id = c->has_file ? c->id : places_new_id(p);
    c->has_file = true;
    store_change *change = &job->changes[0];
    change->verb = CHANGE_WRITE;
    change->file = (session_file){.id = c->id,
                                  .owner = c->owner,
                                  .is_pinned = c->is_pinned,
                                  .used_ms = c->used_ms,
                                  .tokens = c->tokens,
                                  .n_tokens = c->n_tokens};
    memcpy(change->file.name, c->name, sizeof c->name);
    memcpy(job->name, c->name, sizeof c->name);
    c->tokens = NULL; /* the job's */
    store_push(p->store, job);
    return true;
}

static void sleep_in_store(places *p, candidate *c, uint32_t *n)
{
    const uint32_t n_ctx = p->ground.model->info.n_ctx;
    const token_sketch tokens = token_sketch_of(c->tokens, fits(p, c) ? c->n_tokens : n_ctx);
    const bool is_written = c->is_changed && write_sleeper(p, c);
    if (!is_written && !c->has_file) {
        return;
    }
    dormant d = {.id = c->id,
                 .owner = c->owner,
                 .used_ms = c->used_ms,
                 .used = c->used,
                 .is_pinned = c->is_pinned,
                 .n_disk_bytes = c->k > 0 && c->k <= n_ctx ? c->n_disk_bytes : 0,
                 .k = c->k,
                 .tokens = tokens};
    memcpy(d.name, c->name, sizeof d.name);
    places_dormant_add(p, &d);
    if ((*n)++ < SLEEPERS_NAMED_MAX) {
        store_complain(p->store, "session \"%s\"%s found no place (%s): it is taken in when it is used again", c->name,
                       c->is_pinned ? ", pinned," : "",
                       fits(p, c) ? "more sessions than --max-sessions and --max-parked allow"
                                  : "more tokens than --ctx-size holds");
    }
}

/* Of more than there are places for, those with the best claim; each list in its own order. */
static void open_all(adoption *a)
{
    places *p = a->places;
    const uint32_t n_max = p->options.n_named + p->options.n_parked_max;
    uint32_t n_open = 0;
    uint32_t n_sleeping = 0;
    qsort(a->candidates, a->n, sizeof *a->candidates, by_use);
    for (uint32_t i = 0; i < a->n; i++) {
        a->candidates[i].used = ++p->clock;
    }
    qsort(a->candidates, a->n, sizeof *a->candidates, by_claim);
    for (uint32_t i = 0; i < a->n; i++) {
        candidate *c = &a->candidates[i];
        if (n_open < n_max && fits(p, c)) {
            candidate chosen = *c; /* the chosen ones gather at the front */
            *c = a->candidates[n_open];
            a->candidates[n_open++] = chosen;
        }
    }
    qsort(a->candidates, n_open, sizeof *a->candidates, by_use);
    for (uint32_t i = 0; i < a->n; i++) {
        if (i >= n_open || !become(p, &a->candidates[i])) {
            sleep_in_store(p, &a->candidates[i], &n_sleeping);
        }
    }
    if (n_sleeping > SLEEPERS_NAMED_MAX) {
        store_complain(p->store, "and %u more sessions found no place", n_sleeping - SLEEPERS_NAMED_MAX);
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
    if (a.n_other_geometry > 0) {
        const char *of_them = a.n_other_geometry == 1 ? "its" : "their";
        store_complain(
            p->store,
            "%u session%s saved under another memory layout (--max-sessions, --scratch-sessions, --ctx-size, "
            "--kv-memory, free memory, or another llama.cpp): %s tokens are kept and read again on %s next use",
            a.n_other_geometry, a.n_other_geometry == 1 ? " was" : "s were", of_them, of_them);
    }
    if (a.n > 0) {
        open_all(&a);
    }
    for (uint32_t i = 0; i < a.n; i++) {
        free(a.candidates[i].tokens);
    }
    places_pin_later_timelines(p);
    free(a.candidates);
}
