#include "engine/outbox.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int outbox_open(outbox *o, uint64_t request)
{
    *o = (outbox){.request = request, .text = malloc(LLM_OUTBOX_BYTES_MAX + STOP_TEXT_BYTES_MAX)};
    return o->text != NULL ? LLM_OK : LLM_NO_MEMORY;
}

void outbox_close(outbox *o)
{
    free(o->text);
    o->text = NULL;
    token_details_close(&o->details);
}

void outbox_admit(outbox *o, uint32_t entry)
{
    o->is_due[LLM_EVENT_ADMITTED] = true;
    o->entry = entry;
}

void outbox_start(outbox *o, uint32_t entry, uint32_t n_prompt, const resume_plan *plan)
{
    o->entry = entry;
    o->is_due[LLM_EVENT_STARTED] = true;
    o->n_prompt = n_prompt;
    o->plan = *plan;
}

void outbox_consumed(outbox *o, uint32_t n_tokens, uint64_t prefill_us)
{
    o->is_due[LLM_EVENT_CONSUMED] = true;
    o->n_consumed = n_tokens;
    o->prefill_us = prefill_us;
}

void outbox_add_text(outbox *o, const stop_result *released, uint64_t before, uint32_t n_tokens)
{
    assert(o->n_text + released->n_text <= LLM_OUTBOX_BYTES_MAX + STOP_TEXT_BYTES_MAX);
    memcpy(o->text + o->n_text, released->text, released->n_text);
    o->n_text += released->n_text;
    o->n_tokens = n_tokens;
    token_details_released(&o->details, released, before);
}

void outbox_finish(outbox *o, const wire_finished *finished)
{
    o->is_due[LLM_EVENT_FINISHED] = true;
    o->finished = *finished;
}

bool outbox_is_full(const outbox *o)
{
    return o->n_text >= LLM_OUTBOX_BYTES_MAX || token_details_is_full(&o->details);
}

/* Writes one event into the ring. Returns false if the ring has no room. */
static bool deliver_event(outbox *o, ring *events, llm_event_op op)
{
    wire_tokens next;
    const wire_tokens *tokens = op == LLM_EVENT_TEXT ? token_details_next(&o->details, &next) : NULL;
    const size_t room = WIRE_EVENT_BYTES_MAX + (op == LLM_EVENT_TEXT ? o->n_text + token_details_bytes(tokens) : 0);
    void *record = ring_reserve(events, room);
    if (record == NULL) {
        return false;
    }
    wire_writer w = wire_writer_open(record, room);
    switch (op) {
    case LLM_EVENT_ADMITTED: wire_write_admitted(&w, o->request, o->entry); break;
    case LLM_EVENT_STARTED:
        wire_write_started(&w, o->request, o->plan.reason, o->n_prompt, o->plan.n_keep, o->plan.diverged_at);
        break;
    case LLM_EVENT_CONSUMED: wire_write_consumed(&w, o->request, o->n_consumed, o->prefill_us); break;
    case LLM_EVENT_TEXT: wire_write_text(&w, o->request, o->text, o->n_text, o->n_tokens, tokens); break;
    case LLM_EVENT_FINISHED: wire_write_finished(&w, &o->finished); break;
    case LLM_EVENT_REPLY:
    case LLM_EVENT_FORGOTTEN: break;
    }
    assert(!w.failed);
    ring_commit(events, wire_size(&w));
    token_details_delivered(&o->details, tokens);
    return true;
}

/* Writes the event if it is due. Returns false if the event is still due, because the ring had no room. */
static bool deliver_due(outbox *o, ring *events, llm_event_op op)
{
    o->is_due[op] = o->is_due[op] && !deliver_event(o, events, op);
    return !o->is_due[op];
}

static bool deliver_text(outbox *o, ring *events)
{
    while (o->n_text > 0 || o->details.n_released > 0) {
        if (!deliver_event(o, events, LLM_EVENT_TEXT)) {
            return false;
        }
        o->n_text = 0;
    }
    return true;
}

bool outbox_deliver(outbox *o, ring *events)
{
    return deliver_due(o, events, LLM_EVENT_ADMITTED) && deliver_due(o, events, LLM_EVENT_STARTED) &&
           deliver_due(o, events, LLM_EVENT_CONSUMED) && deliver_text(o, events) &&
           deliver_due(o, events, LLM_EVENT_FINISHED);
}
