/* saved.c: copies sequences, saves them as bytes, and loads them. Owner: the decode thread.
 *
 * A saved state is a saved_head, the parts of its class and kind, and zeros. The zeros make the saved state as large as
 * the option state_kb demands. The table shows which states have which part.
 *   hashes of the attention part, one per position       full states of class window
 *   the kept states, oldest first                        all except checkpoints of class hybrid
 *   the recurrent state                                  all states of class hybrid
 * The bytes come from a file, so everything is checked before it becomes a state.
 */
#include <assert.h>
#include <string.h>

#include "model/sim/sim_model.h"

static const char saved_mark[4] = {'S', 'I', 'M', '2'};

typedef struct saved_head {
    char mark[4];
    uint32_t kind, memory, position, oldest, sound;
} saved_head;

/* A sim_state as it is saved. The struct has no padding, because the bytes of padding would differ between runs. The
 * struct has no member of type bool, because most values of a byte are invalid for a bool. */
typedef struct saved_state {
    uint64_t hash;
    uint32_t n_since_control;
    uint8_t character[3];
    uint8_t n_character;
    uint8_t n_missing;
    uint8_t is_wrong;
    uint16_t node, reply;
    uint8_t zero[2];
    uint32_t n_consumed;
    uint8_t end[4];
} saved_state;

_Static_assert(sizeof(saved_state) == 32, "no padding");

/* ---- sizes ---- */

static bool has_kept(const saved_head *h)
{
    return h->memory != LLM_MEMORY_HYBRID || h->kind == MODEL_STATE_FULL;
}

static bool has_attention(const saved_head *h)
{
    return h->memory == LLM_MEMORY_WINDOW && h->kind == MODEL_STATE_FULL;
}

static size_t bytes_of(const sim_model *m, const saved_head *h)
{
    size_t n_states = (has_kept(h) ? h->position - h->oldest + (size_t)1 : 0) + (h->memory == LLM_MEMORY_HYBRID);
    size_t n_hashes = has_attention(h) ? h->position + (size_t)1 : 0;
    size_t n = sizeof *h + n_hashes * sizeof(uint64_t) + n_states * sizeof(saved_state);
    size_t least = (size_t)m->options.state_kb * 1024;
    return n > least ? n : least;
}

static saved_head head_of(const sim_model *m, const sim_sequence *s, model_state_kind kind)
{
    saved_head h = {
        .kind = kind, .memory = m->options.memory, .position = s->position, .oldest = s->oldest, .sound = s->sound};
    memcpy(h.mark, saved_mark, sizeof saved_mark);
    return h;
}

/* ---- save ---- */

static uint8_t *state_write(uint8_t *at, const sim_state *s)
{
    saved_state saved = {.hash = s->hash,
                         .n_since_control = s->n_since_control,
                         .n_character = s->n_character,
                         .n_missing = s->n_missing,
                         .is_wrong = s->is_wrong,
                         .node = s->cue.node,
                         .reply = s->cue.reply,
                         .n_consumed = s->cue.n_consumed};
    memcpy(saved.character, s->character, sizeof saved.character);
    memcpy(at, &saved, sizeof saved);
    return at + sizeof saved;
}

size_t sim_saved_bytes(model *base, uint16_t seq, model_state_kind kind)
{
    assert(seq < base->info.n_seq);
    sim_model *m = sim_of(base);
    saved_head h = head_of(m, &m->sequences[seq], kind);
    return bytes_of(m, &h);
}

size_t sim_save(model *base, uint16_t seq, model_state_kind kind, void *out, size_t n_bytes)
{
    assert(seq < base->info.n_seq);
    sim_model *m = sim_of(base);
    sim_sequence *s = &m->sequences[seq];
    saved_head h = head_of(m, s, kind);
    size_t n = bytes_of(m, &h);
    if (n_bytes < n) {
        return 0;
    }
    uint8_t *at = out;
    memcpy(at, &h, sizeof h);
    at += sizeof h;
    if (has_attention(&h)) {
        memcpy(at, s->attention, (s->position + (size_t)1) * sizeof *s->attention);
        at += (s->position + (size_t)1) * sizeof *s->attention;
    }
    for (uint32_t k = s->oldest; has_kept(&h) && k <= s->position; k++) {
        at = state_write(at, sim_kept_at(m, s, k));
    }
    if (h.memory == LLM_MEMORY_HYBRID) {
        at = state_write(at, &s->recurrent);
    }
    memset(at, 0, n - (size_t)(at - (uint8_t *)out));
    return n;
}

/* ---- load ---- */

static bool head_read(const sim_model *m, model_state_kind kind, uint32_t k, const void *bytes, size_t n_bytes,
                      saved_head *h)
{
    if (n_bytes < sizeof *h) {
        return false;
    }
    memcpy(h, bytes, sizeof *h);
    return memcmp(h->mark, saved_mark, sizeof saved_mark) == 0 && h->kind == (uint32_t)kind &&
           h->memory == (uint32_t)m->options.memory && h->position == k && k <= m->base.info.n_ctx && h->oldest <= k &&
           k - h->oldest < m->n_kept && h->sound <= k && n_bytes == bytes_of(m, h);
}

/* Returns whether state.c can continue the state's incomplete character. */
static bool state_is_sane(const saved_state *s)
{
    bool sane = s->is_wrong <= 1 && s->n_missing <= 3 && s->n_character <= 3;
    if (s->n_missing == 0) {
        return sane && s->n_character == 0;
    }
    for (uint8_t i = 1; sane && i < s->n_character; i++) {
        sane = (s->character[i] & 0xc0) == 0x80;
    }
    return sane && s->n_character > 0 && s->n_character + s->n_missing <= 4;
}

static bool state_read(const sim_model *m, const uint8_t **at, sim_state *out)
{
    saved_state saved;
    memcpy(&saved, *at, sizeof saved);
    *at += sizeof saved;
    *out = (sim_state){.hash = saved.hash,
                       .n_since_control = saved.n_since_control,
                       .n_character = saved.n_character,
                       .n_missing = saved.n_missing,
                       .is_wrong = saved.is_wrong != 0,
                       .cue = {.node = saved.node, .reply = saved.reply, .n_consumed = saved.n_consumed}};
    memcpy(out->character, saved.character, sizeof saved.character);
    return state_is_sane(&saved) && sim_cue_is_valid(m->script, &out->cue);
}

/* Fills the sequence from the parts that follow the saved_head. For a full state, the sequence must be empty. Returns
 * false if a part is invalid. */
static bool parts_read(sim_model *m, sim_sequence *s, const saved_head *h, const uint8_t *at)
{
    bool sane = true;
    if (has_attention(h)) {
        memcpy(s->attention, at, (h->position + (size_t)1) * sizeof *s->attention);
        at += (h->position + (size_t)1) * sizeof *s->attention;
    }
    for (uint32_t k = h->oldest; has_kept(h) && k <= h->position; k++) {
        sane &= state_read(m, &at, sim_kept_at(m, s, k));
    }
    if (h->memory == LLM_MEMORY_HYBRID) {
        sane &= state_read(m, &at, &s->recurrent);
    }
    return sane;
}

/* Returns whether a saved state of this kind lacks the attention part. Such a state can be loaded only on a sequence
 * that already has the attention part. */
static bool attaches(const sim_model *m, model_state_kind kind)
{
    return kind == MODEL_STATE_CHECKPOINT && m->base.info.checkpoint == MODEL_CHECKPOINT_ATTACHED;
}

model_result sim_load(model *base, uint16_t seq, model_state_kind kind, uint32_t k, const void *bytes, size_t n_bytes)
{
    assert(seq < base->info.n_seq);
    sim_model *m = sim_of(base);
    sim_sequence *s = &m->sequences[seq];
    saved_head h;
    m->n_after_call = 0;
    if (!head_read(m, kind, k, bytes, n_bytes, &h)) {
        sim_clear(base, seq);
        return MODEL_INVALID;
    }
    bool attached = attaches(m, kind);
    bool has_base = attached && s->position >= k && s->sound <= k;
    if (!attached) {
        sim_clear(base, seq);
        if (!sim_cells_suffice(m, sim_cells_of(&m->options, k))) {
            return MODEL_NO_CELLS;
        }
    }
    if (!parts_read(m, s, &h, (const uint8_t *)bytes + sizeof h)) {
        sim_clear(base, seq);
        return MODEL_INVALID;
    }
    shared_prefixes_truncate(&m->shared, seq, k);
    s->position = k;
    s->oldest = has_kept(&h) ? h.oldest : s->oldest;
    if (!attached) {
        s->sound = h.sound;
    } else if (!has_base) {
        sim_sequence_spoil(m, s);
    }
    return MODEL_OK;
}

/* ---- copy ---- */

bool sim_copy(model *base, uint16_t src, uint16_t dst)
{
    assert(src < base->info.n_seq && dst < base->info.n_seq);
    sim_model *m = sim_of(base);
    sim_sequence *from = &m->sequences[src], *to = &m->sequences[dst];
    if (src == dst || to->position != 0) {
        return false;
    }
    if (base->info.shares_cells) {
        shared_prefixes_copy(&m->shared, src, dst, from->position);
    } else if (!sim_cells_suffice(m, sim_cells_of(&m->options, from->position))) {
        return false;
    }
    to->position = from->position;
    to->oldest = from->oldest;
    to->sound = from->sound;
    to->recurrent = from->recurrent;
    for (uint32_t k = from->oldest; k <= from->position; k++) {
        *sim_kept_at(m, to, k) = *sim_kept_at(m, from, k);
    }
    if (from->attention != NULL) {
        memcpy(to->attention, from->attention, (from->position + (size_t)1) * sizeof *from->attention);
    }
    return true;
}
