/* direct.c: sessions driven by calls instead of commands (llm.h, "sessions, direct mode"). A session has a run, which goes
 * through the same resume, steps, checkpoints and tearing as a request's (run.h, step.h). What is different is what the
 * caller decides instead of a request: when the next token is sampled and what ends it all; that a torn session is refused
 * until a reset, and that nobody makes way or is given up for cells. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "sessions/resuming.h"

struct llm_session {
    llm_engine *engine;
    session *session;
    llm_session *next; /* engine->direct_sessions */
    run run;           /* its sampler is owned, NULL before the first prefill */
    float *logits;     /* owned: n_vocab, after the last consumed token; as many again for the sampler to work on */
    bool has_logits;
    _Atomic bool cancelled; /* writer: any thread */
};

static bool is_serving(const llm_engine *engine)
{
    return atomic_load(&engine->decode.life) == DECODE_SERVING;
}

static bool is_name(const char *name)
{
    const size_t n = strlen(name);
    for (size_t i = 0; i < n; i++) {
        if (name[i] < 0x21 || name[i] > 0x7e) {
            return false;
        }
    }
    return n <= LLM_SESSION_NAME_BYTES_MAX;
}

static llm_session *find_open(const llm_engine *engine, const session *s)
{
    llm_session *d = engine->direct_sessions;
    while (d != NULL && d->session != s) {
        d = d->next;
    }
    return d;
}

/* What lies on the disk is read first: nobody else takes the store's results in direct mode. */
static bool seat_now(places *p, session *s)
{
    bool is_seated = places_seat(p, s) == SEATED;
    if (!is_seated && s->parked.where == PARKED_READING) {
        places_settle(p);
        is_seated = places_seat(p, s) == SEATED;
    }
    return is_seated;
}

/* One that sleeps on the disk is taken in. */
static int open_or_wake(places *p, const char *name, session **out)
{
    const dormant *asleep = places_dormant_find(p, 0, name, strlen(name));
    return asleep != NULL ? places_wake(p, asleep, out) : places_open_named(p, 0, name, strlen(name), out);
}

static session *open_seated(llm_engine *engine, const char *name)
{
    places *p = &engine->places;
    session *s = name[0] != '\0' ? places_next(p, 0, name, strlen(name), NULL) : NULL;
    if (s == NULL && name[0] == '\0') {
        const session_prompt none = {.tokens = NULL};
        s = places_scratch(p, 0, &none);
    } else if (s == NULL && open_or_wake(p, name, &s) != LLM_OK) {
        return NULL;
    }
    if (s == NULL) {
        return NULL;
    }
    s->is_held = true;
    if (!seat_now(p, s)) {
        s->is_held = false;
        if (session_n_tokens(s) == 0) {
            places_close_session(p, s);
        }
        return NULL;
    }
    return s;
}

int llm_session_open(llm_engine *engine, const char *name, llm_session **out)
{
    if (is_serving(engine)) {
        return LLM_MISUSE;
    }
    if (name == NULL || !is_name(name)) {
        return LLM_INVALID;
    }
    if (engine->model->info.memory == LLM_MEMORY_NONE) {
        return LLM_NO_GENERATION;
    }
    session *known = name[0] != '\0' ? places_next(&engine->places, 0, name, strlen(name), NULL) : NULL;
    llm_session *d = known != NULL ? find_open(engine, known) : NULL;
    if (d != NULL) {
        *out = d;
        return LLM_OK;
    }
    d = calloc(1, sizeof *d);
    float *logits = malloc(2 * engine->model->info.n_vocab * sizeof *logits);
    session *s = d != NULL && logits != NULL ? open_seated(engine, name) : NULL;
    if (s == NULL) {
        const int status = d == NULL || logits == NULL ? LLM_NO_MEMORY : LLM_CAPACITY;
        free(logits);
        free(d);
        return status;
    }
    *d = (llm_session){.engine = engine, .session = s, .logits = logits, .run.next_token = -1};
    d->next = engine->direct_sessions;
    engine->direct_sessions = d;
    *out = d;
    return LLM_OK;
}

static int status_of(model_result result)
{
    switch (result) {
    case MODEL_OK: return LLM_OK;
    case MODEL_NO_CELLS: return LLM_NO_CELLS;
    case MODEL_STOPPED: return LLM_CANCELLED;
    case MODEL_INVALID:
    case MODEL_FAILED_BATCH:
    case MODEL_FAILED_ALL: break;
    }
    return LLM_STEP_FAILED;
}

static void take_logits(llm_session *d, const float *logits)
{
    memcpy(d->logits, logits, d->engine->model->info.n_vocab * sizeof *d->logits);
    d->has_logits = true;
}

static bool is_cancelled(void *context)
{
    const llm_session *d = context;
    return atomic_load(&d->cancelled);
}

/* One step for this session alone. No decode thread runs: its step is at hand. */
static int step_alone(llm_session *d)
{
    step *t = &d->engine->decode.step;
    t->stop = is_cancelled;
    t->stop_context = d;
    step_begin(t);
    step_add(t, &d->run);
    step_plan(t);
    d->has_logits = false;
    const model_result result = step_call(t, STEP_ALL);
    if (result == MODEL_OK) {
        step_learn(t, 0);
    }
    const float *logits = result == MODEL_OK ? step_logits(t, 0) : NULL;
    if (logits != NULL) {
        take_logits(d, logits);
    }
    step_checkpoint(t);
    return status_of(result);
}

static int check_prompt(const llm_session *d, const int32_t *tokens, size_t n_tokens)
{
    const model_info *info = &d->engine->model->info;
    if (n_tokens == 0) {
        return LLM_INVALID;
    }
    if (n_tokens > info->n_ctx) {
        return LLM_CONTEXT_LENGTH;
    }
    for (size_t i = 0; i < n_tokens; i++) {
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= info->n_vocab) {
            return LLM_TOKEN;
        }
    }
    return d->session->record.state == LLM_STATE_TORN ? LLM_TORN : LLM_OK;
}

static int replace_sampler(llm_session *d, const llm_sampling *sampling)
{
    const llm_sampling greedy = {.top_p = 1, .repeat_penalty = 1, .typical_p = 1};
    const sampler_options options = {.sampling = sampling != NULL ? *sampling : greedy};
    sampler *s = NULL;
    const int status = sampler_open(d->engine->model, &options, &s);
    if (status != LLM_OK) {
        return status;
    }
    sampler_close(d->run.sampler);
    d->run.sampler = s;
    return LLM_OK;
}

static void begin(llm_session *d, const int32_t *tokens, uint32_t n_tokens)
{
    run *r = &d->run;
    r->claim.prompt = (session_prompt){.tokens = tokens, .n_tokens = n_tokens};
    cuts_open(&r->cuts, &(cuts_input){.n_prompt = n_tokens,
                                      .needs_boundaries = d->engine->model->info.checkpoint != MODEL_CHECKPOINT_NONE});
    d->has_logits = false;
    places *p = &d->engine->places;
    if (resuming_fetch(p, d->session, &r->claim.prompt).reading != 0) {
        places_settle(p);
    }
    const float *kept = run_begin(r, p, d->session, false);
    places_spill_on(p);
    if (kept != NULL) {
        take_logits(d, kept);
    }
}

static int consume_prompt(llm_session *d)
{
    int status = LLM_OK;
    while (status == LLM_OK && session_n_tokens(d->session) < d->run.claim.prompt.n_tokens) {
        if (atomic_exchange(&d->cancelled, false)) {
            return LLM_CANCELLED;
        }
        status = step_alone(d);
    }
    if (status == LLM_CANCELLED) {
        atomic_store(&d->cancelled, false);
    }
    return status;
}

int llm_session_prefill(llm_session *d, const int32_t *tokens, size_t n_tokens, const llm_sampling *sampling,
                        llm_resume *out)
{
    if (is_serving(d->engine)) {
        return LLM_MISUSE;
    }
    int status = check_prompt(d, tokens, n_tokens);
    if (status == LLM_OK) {
        status = replace_sampler(d, sampling);
    }
    if (status != LLM_OK) {
        return status;
    }
    begin(d, tokens, (uint32_t)n_tokens);
    status = consume_prompt(d);
    const uint32_t n_now = session_n_tokens(d->session);
    if (status == LLM_OK) {
        run_decoding(&d->run);
    }
    session_ended(d->session, n_now);
    d->run.claim.prompt.tokens = NULL; /* the caller's, and consumed */
    if (out != NULL) {
        *out = (llm_resume){
            .reason = d->run.plan.reason,
            .n_reused = d->run.plan.n_keep,
            .n_prefilled = n_now - d->run.plan.n_keep,
            .diverged_at = d->run.plan.diverged_at,
        };
    }
    return status;
}

int llm_session_decode(llm_session *d, int32_t *token)
{
    if (is_serving(d->engine)) {
        return LLM_MISUSE;
    }
    if (d->session->record.state == LLM_STATE_TORN) {
        return LLM_TORN;
    }
    if (d->run.sampler == NULL || (d->run.next_token < 0 && !d->has_logits)) {
        return LLM_NOT_FOUND;
    }
    if (atomic_exchange(&d->cancelled, false)) {
        return LLM_CANCELLED;
    }
    if (d->run.next_token >= 0) {
        if (session_n_tokens(d->session) == d->engine->model->info.n_ctx) {
            return LLM_CONTEXT_LENGTH;
        }
        const int status = step_alone(d);
        if (status != LLM_OK) {
            return status;
        }
    }
    const size_t n_vocab = d->engine->model->info.n_vocab;
    memcpy(d->logits + n_vocab, d->logits, n_vocab * sizeof *d->logits);
    const int status = sampler_next(d->run.sampler, d->logits + n_vocab, &d->run.next_token);
    *token = d->run.next_token;
    return status;
}

int llm_session_logits(const llm_session *d, float *out, size_t n_out)
{
    const size_t n_vocab = d->engine->model->info.n_vocab;
    if (is_serving(d->engine)) {
        return LLM_MISUSE;
    }
    if (d->session->record.state == LLM_STATE_TORN) {
        return LLM_TORN;
    }
    if (!d->has_logits) {
        return LLM_NOT_FOUND;
    }
    if (n_out < n_vocab) {
        return LLM_SMALL_BUFFER;
    }
    memcpy(out, d->logits, n_vocab * sizeof *out);
    return LLM_OK;
}

int64_t llm_session_position(const llm_session *d)
{
    return session_n_tokens(d->session);
}

int llm_session_reset(llm_session *d)
{
    if (is_serving(d->engine)) {
        return LLM_MISUSE;
    }
    places_reset_session(&d->engine->places, d->session);
    d->run.next_token = -1;
    d->has_logits = false;
    atomic_store(&d->cancelled, false);
    return LLM_OK;
}

void llm_session_cancel(llm_session *d)
{
    atomic_store(&d->cancelled, true);
}

static void free_direct(llm_session *d)
{
    sampler_close(d->run.sampler);
    free(d->logits);
    free(d);
}

int llm_session_close(llm_session *d)
{
    llm_engine *engine = d->engine;
    if (is_serving(engine)) {
        return LLM_MISUSE;
    }
    llm_session **link = &engine->direct_sessions;
    while (*link != d) {
        link = &(*link)->next;
    }
    *link = d->next;
    d->session->is_held = false;
    places_close_session(&engine->places, d->session);
    free_direct(d);
    return LLM_OK;
}

void direct_close_all(llm_engine *engine)
{
    while (engine->direct_sessions != NULL) {
        llm_session_close(engine->direct_sessions);
    }
}
