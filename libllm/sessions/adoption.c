/* See adoption.h. The segment is the shared memory with the session table of the earlier daemon. A candidate is a
 * branch that was found in a file or in the segment, and may get an entry. Files and segment are both read before any
 * branch is opened. Thus all branches can be opened in the order of their last use. */
#include "sessions/adoption.h"

#include <stdlib.h>
#include <string.h>

/* this many sessions without an entry get a log line each. All others share one line */
enum { WAITING_NAMED_MAX = 4 };

typedef struct candidate {
    branch_file file; /* contents of the branch file, updated from the segment; owns the tokens */
    /* facts of the state file. is_there: the file exists and has the memory layout of this engine */
    state_facts state;
    bool has_file;   /* false if only the segment contains the branch */
    bool is_changed; /* `file` differs from the branch file on disk */
} candidate;

struct adoption {
    const model_info *info;
    candidate *candidates; /* an array of n candidates */
    uint32_t n;
    uint32_t capacity;
    uint32_t n_other_geometry;
};

/* Takes ownership of c->file.tokens. Returns NULL if memory is short. */
static candidate *add(adoption *a, const candidate *c)
{
    if (a->n == a->capacity) {
        const uint32_t capacity = a->capacity == 0 ? 64 : 2 * a->capacity;
        candidate *larger = realloc(a->candidates, capacity * sizeof *larger);
        if (larger == NULL) {
            free(c->file.tokens);
            return NULL;
        }
        a->candidates = larger;
        a->capacity = capacity;
    }
    a->candidates[a->n] = *c;
    return &a->candidates[a->n++];
}

static void found_file(void *context, branch_file *file, const state_facts *state)
{
    adoption *a = context;
    if (file->name[0] == '\0' || !branch_are_tokens(a->info, file->tokens, file->n_tokens)) {
        return;
    }
    candidate c = {.file = *file, .state = *state, .has_file = true};
    a->n_other_geometry += state->is_there && state->is_of_other_geometry;
    c.state.is_there = state->is_there && !state->is_of_other_geometry;
    file->tokens = NULL;
    (void)add(a, &c);
}

/* ---- the session table of the earlier daemon ---- */

static candidate *find(const adoption *a, uint64_t id)
{
    for (uint32_t i = 0; i < a->n; i++) {
        if (a->candidates[i].file.id == id) {
            return &a->candidates[i];
        }
    }
    return NULL;
}

/* Updates a candidate from the segment, whose data are newer than the branch file. Exception: if the segment's tokens
 * are a prefix of the file's tokens, the file's tokens are kept. In this case, the branch was being prefilled again
 * when its daemon was killed. Returns false if memory is short. */
static bool learn(candidate *c, const llm_branch_view *view, const int32_t *tokens, uint32_t n_tokens)
{
    branch_file *f = &c->file;
    const bool is_pinned = view->is_pinned == LLM_PIN_ANCHORED;
    if (resume_common_prefix(f->tokens, f->n_tokens, tokens, n_tokens) < n_tokens) {
        int32_t *copy = malloc(n_tokens * sizeof *copy);
        if (copy == NULL) {
            return false;
        }
        memcpy(copy, tokens, n_tokens * sizeof *copy);
        free(f->tokens);
        f->tokens = copy;
        f->n_tokens = n_tokens;
        c->is_changed = true;
    }
    c->is_changed = c->is_changed || f->is_pinned != is_pinned || strcmp(f->name, view->name) != 0;
    f->is_pinned = is_pinned;
    f->opened_ms = view->opened_ms;
    f->used_ms = view->used_ms;
    memcpy(f->name, view->name, LLM_SESSION_NAME_BYTES_MAX);
    return true;
}

static void look_at_entry(adoption *a, const llm_session_table *dead, uint32_t entry, int32_t *tokens,
                          uint32_t n_tokens_max)
{
    llm_branch_view view;
    const int64_t n = llm_session_table_tokens(dead, entry, tokens, n_tokens_max, NULL);
    if (n < 0 || llm_session_table_entry(dead, entry, &view) != LLM_OK || view.name[0] == '\0' ||
        !branch_are_tokens(a->info, tokens, (uint32_t)n)) {
        return;
    }
    candidate *c = find(a, view.id);
    if (c == NULL && n > 0) {
        c = add(a, &(candidate){.file = {.id = view.id, .owner = view.owner}});
    }
    if (c != NULL && !learn(c, &view, tokens, (uint32_t)n) && !c->has_file) {
        a->n--; /* removes the candidate, which was added last */
    }
}

static void look_at_session_table(adoption *a, const llm_session_table *dead)
{
    llm_session_table_view view;
    llm_session_table_read(dead, &view);
    int32_t *tokens = malloc(view.n_ctx * sizeof *tokens);
    for (uint32_t entry = 0; tokens != NULL && entry < view.n_entries; entry++) {
        look_at_entry(a, dead, entry, tokens, view.n_ctx);
    }
    free(tokens);
}

/* ---- gather ---- */

/* Whether the candidate fits the context. Only such candidates get entries: pinned sessions first, then the most
 * recently used. */
static bool fits(const adoption *a, const candidate *c)
{
    return c->file.n_tokens <= a->info->n_ctx;
}

static int by_claim(const void *a, const void *b)
{
    const candidate *x = a;
    const candidate *y = b;
    if (x->file.is_pinned != y->file.is_pinned) {
        return x->file.is_pinned ? -1 : 1;
    }
    return (x->file.used_ms < y->file.used_ms) - (x->file.used_ms > y->file.used_ms);
}

adoption *adoption_gather(const model_info *info, store *disk, const llm_session_table *dead)
{
    adoption *a = calloc(1, sizeof *a);
    if (a == NULL) {
        return NULL;
    }
    a->info = info;
    if (disk != NULL) {
        store_scan(disk, found_file, a);
    }
    if (dead != NULL) {
        look_at_session_table(a, dead);
    }
    if (a->n > 0) {
        qsort(a->candidates, a->n, sizeof *a->candidates, by_claim);
    }
    return a;
}

void adoption_free(adoption *a)
{
    for (uint32_t i = 0; a != NULL && i < a->n; i++) {
        branch_file_clear(&a->candidates[i].file);
    }
    if (a != NULL) {
        free(a->candidates);
    }
    free(a);
}

static uint32_t parked_of(uint32_t n_sessions, uint32_t n_named, uint32_t n_at_least)
{
    const uint32_t n = n_sessions > n_named ? n_sessions - n_named : 0;
    const uint32_t more = n > n_at_least ? n : n_at_least;
    return more < LLM_PARKED_MAX ? more : LLM_PARKED_MAX;
}

void adoption_size(const adoption *a, branch_table_options *sizes)
{
    uint32_t n = 0;
    uint32_t n_pinned = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        n += fits(a, &a->candidates[i]);
        n_pinned += fits(a, &a->candidates[i]) && a->candidates[i].file.is_pinned;
    }
    if (sizes->policy == LLM_POLICY_PARK) {
        const uint32_t n_names = sizes->n_named + sizes->n_parked_max;
        const uint32_t n_unpinned = n_names - table_pins_max_of(n_names);
        sizes->n_parked_max = parked_of(n_pinned + n_unpinned, sizes->n_named, sizes->n_parked_max);
    }
    sizes->n_parked_entries = parked_of(n, sizes->n_named, sizes->n_parked_max);
}

/* ---- open ---- */

static int by_use(const void *a, const void *b)
{
    const uint64_t x = ((const candidate *)a)->file.used_ms;
    const uint64_t y = ((const candidate *)b)->file.used_ms;
    return (x > y) - (x < y);
}

/* Whether the state file belongs to the branch. The state's tokens must be the branch's first k tokens. */
static bool has_state(const candidate *c)
{
    return c->state.is_there && state_matches(c->state.k, c->state.hash, c->file.tokens, c->file.n_tokens);
}

static void open_one(branch_table *table, const candidate *c)
{
    const branch_file *f = &c->file;
    branch *b = table_open_known(table, f->owner, f->name, f->id);
    session_table_append(table->shared.session_table, b->entry, f->tokens, f->n_tokens);
    b->has_file = c->has_file;
    /* the state file counts against the limit on disk space even if the branch cannot use the state */
    b->n_stored_bytes = (size_t)c->state.n_bytes;
    branch_set_file_bytes(b, b->n_stored_bytes);
    if (has_state(c)) {
        branch_set_parked(b, &(parked){.where = PARKED_ON_DISK,
                                       .k = c->state.k,
                                       .n_bytes = (size_t)c->state.n_bytes,
                                       .is_on_disk = true,
                                       .n_disk_bytes = (size_t)c->state.n_bytes,
                                       .ends = c->state.ends});
        b->record.n_visible = f->n_tokens;
    }
    b->record.state = LLM_STATE_PARKED;
    /* files of older versions do not contain opened_ms */
    b->record.opened_ms = f->opened_ms != 0 ? f->opened_ms : b->record.opened_ms;
    b->record.used_ms = f->used_ms;
    b->record.is_pinned = f->is_pinned ? LLM_PIN_ANCHORED : LLM_PIN_NONE;
    branch_publish(b);
    /* an unpinned branch that has no file yet is first written at the next orderly stop */
    if (c->is_changed && (c->has_file || c->file.is_pinned)) {
        (void)table_write_file(table, b);
    }
}

/* Called for a branch that gets no entry and that the segment has changed. Writes the branch file with the newer data.
 * Takes ownership of the tokens. */
static void write_waiting(branch_table *table, candidate *c)
{
    store_job *job = table->store != NULL ? store_job_new(STORE_CHANGE, 1) : NULL;
    if (job == NULL) {
        return;
    }
    job->changes[0].verb = CHANGE_WRITE;
    job->changes[0].file = c->file;
    memcpy(job->name, c->file.name, sizeof job->name);
    c->file.tokens = NULL;
    c->has_file = true;
    store_push(table->store, job);
}

static void leave_waiting(adoption *a, branch_table *table, candidate *c, uint32_t *n)
{
    const char *why = fits(a, c) ? "the limit on sessions is reached" : "it has more tokens than --ctx-size holds";
    if (c->is_changed) {
        write_waiting(table, c);
    }
    if (!c->has_file) {
        return;
    }
    loose_file f = {.id = c->file.id,
                    .owner = c->file.owner,
                    .is_pinned = c->file.is_pinned,
                    .used_ms = c->file.used_ms,
                    .n_file_bytes = (size_t)c->state.n_bytes};
    memcpy(f.name, c->file.name, sizeof f.name);
    (void)table_add_loose(table, &f); /* if memory is short, the next start finds the file again */
    if ((*n)++ < WAITING_NAMED_MAX) {
        store_complain(table->store, "session \"%s\"%s got no entry (%s): it stays on disk for a later start", f.name,
                       f.is_pinned ? ", pinned," : "", why);
    }
}

static void complain_of_layout(const adoption *a, branch_table *table)
{
    const char *of_them = a->n_other_geometry == 1 ? "its" : "their";
    store_complain(
        table->store,
        "%u session%s saved under another memory layout (--max-sessions, --scratch-sessions, --ctx-size, "
        "--kv-memory, --kv-type, free memory, or another llama.cpp): %s tokens are kept and prefilled at %s next use",
        a->n_other_geometry, a->n_other_geometry == 1 ? " was" : "s were", of_them, of_them);
}

void adoption_open(adoption *a, branch_table *table)
{
    const uint32_t n_max = table->options.n_named + table->options.n_parked_entries;
    uint32_t n_open = 0;
    uint32_t n_waiting = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        candidate c = a->candidates[i];
        if (n_open < n_max && fits(a, &c)) { /* moves candidates that get an entry to the front */
            a->candidates[i] = a->candidates[n_open];
            a->candidates[n_open++] = c;
        }
    }
    if (n_open > 0) {
        qsort(a->candidates, n_open, sizeof *a->candidates, by_use);
    }
    for (uint32_t i = 0; i < n_open; i++) {
        open_one(table, &a->candidates[i]);
    }
    for (uint32_t i = n_open; i < a->n; i++) {
        leave_waiting(a, table, &a->candidates[i], &n_waiting);
    }
    if (n_waiting > WAITING_NAMED_MAX) {
        store_complain(table->store, "and %u more sessions got no entry", n_waiting - WAITING_NAMED_MAX);
    }
    if (a->n_other_geometry > 0) {
        complain_of_layout(a, table);
    }
    table_pin_later_branches(table);
    table_limit_disk(table);
}
