#include "session.h"

#include <assert.h>
#include <string.h>
#include <time.h>

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t session_clock_us(void)
{
    return clock_ns(CLOCK_MONOTONIC) / 1000u;
}

uint64_t session_clock_ms(void)
{
    return clock_ns(CLOCK_REALTIME) / 1000000u;
}

static uint16_t seq(const session *s)
{
    return (uint16_t)s->slot;
}

static void assert_invariant(const session *s)
{
    assert(s->record.state == LLM_STATE_TORN ||
           session_n_tokens(s) == s->model->ops->position(s->model, seq(s)));
    (void)s;
}

static void set_state(session *s, llm_state state)
{
    s->record.state = state;
    s->record.used_ms = session_clock_ms();
    session_publish(s);
}

/* Empties the model's sequence and the resident tokens; heals a torn session. */
static void clear(session *s)
{
    s->model->ops->clear(s->model, seq(s));
    page_truncate(s->page, s->slot, 0);
    s->record.n_visible = 0;
}

void session_init(session *s, model *m, page *p, uint32_t slot)
{
    *s = (session){.model = m, .page = p, .slot = slot};
}

void session_open(session *s, uint32_t owner, const char *name, size_t n_name_bytes)
{
    assert(!s->is_open && n_name_bytes <= LLM_SESSION_NAME_BYTES_MAX);
    s->is_open = true;
    s->owner = owner;
    memcpy(s->name, name, n_name_bytes);
    s->name[n_name_bytes] = '\0';
    s->record = (page_record){.state = LLM_STATE_EMPTY, .diverged_at = -1};
    page_slot_open(s->page, s->slot, owner, s->name);
    set_state(s, LLM_STATE_EMPTY);
}

void session_close(session *s)
{
    assert(s->is_open && s->running == NULL && s->waiting == NULL);
    clear(s);
    page_slot_close(s->page, s->slot);
    s->is_open = false;
    s->name[0] = '\0';
}

void session_reset(session *s)
{
    assert(s->is_open && s->running == NULL);
    clear(s);
    set_state(s, LLM_STATE_EMPTY);
}

uint32_t session_n_tokens(const session *s)
{
    return page_n_tokens(s->page, s->slot);
}

const int32_t *session_tokens(const session *s)
{
    return page_tokens(s->page, s->slot);
}

resume_plan session_plan(const session *s, const int32_t *prompt, uint32_t n_prompt, bool cold)
{
    const uint32_t n_tokens = session_n_tokens(s);
    return resume_decide(&(resume_input){
        .resident = session_tokens(s),
        .n_resident = n_tokens,
        .prompt = prompt,
        .n_prompt = n_prompt,
        .rewind_floor = n_tokens > 0 ? s->model->ops->rewind_floor(s->model, seq(s)) : 1,
        .torn = s->record.state == LLM_STATE_TORN,
        .cold = cold,
    });
}

bool session_cut(session *s, uint32_t n_tokens)
{
    const uint32_t n = session_n_tokens(s);
    if (n_tokens == n) {
        return true;
    }
    if (n_tokens == 0 || n_tokens > n || n_tokens < s->model->ops->rewind_floor(s->model, seq(s))) {
        return false;
    }
    if (!s->model->ops->rewind(s->model, seq(s), n_tokens)) {
        session_tear(s);
        return false;
    }
    page_truncate(s->page, s->slot, n_tokens);
    assert_invariant(s);
    return true;
}

resume_plan session_begin(session *s, const int32_t *prompt, uint32_t n_prompt, bool cold)
{
    resume_plan plan = session_plan(s, prompt, n_prompt, cold);
    if (plan.n_keep == 0) {
        clear(s);
    } else if (!session_cut(s, plan.n_keep)) {
        clear(s);
        plan = (resume_plan){.reason = LLM_REASON_TORN, .n_keep = 0, .diverged_at = plan.diverged_at};
    }
    s->record.reason = plan.reason;
    s->record.diverged_at = plan.diverged_at;
    s->record.n_requests++;
    s->record.n_last_prompt = n_prompt;
    s->record.n_last_reused = plan.n_keep;
    s->record.n_reused_total += plan.n_keep;
    set_state(s, LLM_STATE_PREFILL);
    assert_invariant(s);
    return plan;
}

void session_consumed(session *s, const int32_t *tokens, uint32_t n)
{
    page_append(s->page, s->slot, tokens, n);
    if (s->record.state == LLM_STATE_PREFILL) {
        s->record.n_prefilled_total += n;
    }
    assert_invariant(s);
}

void session_decoding(session *s)
{
    assert(s->record.state == LLM_STATE_PREFILL);
    set_state(s, LLM_STATE_DECODE);
}

void session_ended(session *s, uint32_t n_visible)
{
    const uint32_t n_tokens = session_n_tokens(s);
    s->record.n_visible = n_visible < n_tokens ? n_visible : n_tokens;
    if (s->record.state != LLM_STATE_TORN) {
        set_state(s, n_tokens > 0 ? LLM_STATE_IDLE : LLM_STATE_EMPTY);
    }
}

void session_tear(session *s)
{
    set_state(s, LLM_STATE_TORN);
}

void session_publish(session *s)
{
    page_record_store(s->page, s->slot, &s->record);
}
