/* sim_model.c: opens and closes the simulated model; sim_model.h is its manual. */
#include "model/sim/sim_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_BATCH_DEFAULT = 512 };

static void sim_close(model *base)
{
    sim_model *m = sim_of(base);
    free(m->sequences);
    free(m->states);
    free(m->attentions);
    shared_prefixes_close(&m->shared);
    free(m->logits);
    free(m->row_of);
    free(m->own_template);
    sim_script_close(m->script);
    free(m);
}

static bool sim_is_end(const model *m, int32_t token)
{
    (void)m;
    return token == SIM_TOKEN_END_OF_TEXT || token == SIM_TOKEN_TURN_END;
}

static bool sim_is_control(const model *m, int32_t token)
{
    (void)m;
    return sim_token_is_control(token);
}

static const char *sim_template(const model *m)
{
    return sim_of_const(m)->chat_template;
}

static int32_t sim_bos(const model *m)
{
    (void)m;
    return -1;
}

static int32_t sim_eos(const model *m)
{
    (void)m;
    return SIM_TOKEN_TURN_END;
}

static int32_t sim_fim(const model *m, llm_fim mark)
{
    return sim_of_const(m)->options.fim != 0 && mark <= LLM_FIM_MIDDLE ? SIM_TOKEN_END_OF_TEXT + (int32_t)mark : -1;
}

static const model_ops sim_ops = {
    .close = sim_close,
    .decode = sim_decode,
    .logits = sim_logits,
    .truncate_floor = sim_truncate_floor,
    .truncate = sim_truncate,
    .remove_drafts = sim_remove_drafts,
    .clear = sim_clear,
    .position = sim_position,
    .used_bytes = sim_used_bytes,
    .sequence_bytes = sim_sequence_bytes,
    .shared_tokens = sim_shared_tokens,
    .copy = sim_copy,
    .state_bytes = sim_saved_bytes,
    .state_save = sim_save,
    .state_load = sim_load,
    .embed = sim_embed,
    .tokenize = sim_tokenize,
    .piece = sim_piece,
    .is_end = sim_is_end,
    .is_control = sim_is_control,
    .chat_template = sim_template,
    .bos = sim_bos,
    .eos = sim_eos,
    .fim = sim_fim,
};

/* ---- open a model ---- */

static uint32_t states_per_sequence(const sim_options *o, uint32_t n_ctx)
{
    switch (o->memory) {
    case LLM_MEMORY_NONE:
    case LLM_MEMORY_RECURRENT: return 1;
    case LLM_MEMORY_WINDOW: return o->window < n_ctx ? (uint32_t)o->window + 1 : n_ctx + 1;
    default: return n_ctx + 1;
    }
}

static model_checkpoint_kind checkpoint_of(llm_memory memory)
{
    switch (memory) {
    case LLM_MEMORY_NONE:
    case LLM_MEMORY_DENSE: return MODEL_CHECKPOINT_NONE;
    case LLM_MEMORY_RECURRENT: return MODEL_CHECKPOINT_WHOLE;
    default: return MODEL_CHECKPOINT_ATTACHED;
    }
}

/* Returns how many tokens one sequence can hold in n_cells cells. This is the inverse of sim_cells_of. */
static uint64_t tokens_of(const sim_options *o, uint64_t n_cells)
{
    const uint64_t n_beside = o->window * o->window_cells;
    return n_cells >= o->window + n_beside ? n_cells - n_beside : n_cells / (1 + o->window_cells);
}

static uint64_t cells_paid(const sim_options *o, const model_options *options)
{
    return options->kv_bytes_max == 0 || o->memory == LLM_MEMORY_RECURRENT ? UINT64_MAX
                                                                           : options->kv_bytes_max / SIM_TOKEN_BYTES;
}

/* Returns the most tokens of one sequence that fit into kv_bytes_max. */
static uint64_t budget_of(const sim_options *o, const model_options *options)
{
    return tokens_of(o, cells_paid(o, options));
}

static uint32_t context_of(const sim_options *o, const model_options *options)
{
    const uint64_t budget = budget_of(o, options);
    const uint64_t most = o->ctx < MODEL_N_CTX_DEFAULT_MAX ? o->ctx : MODEL_N_CTX_DEFAULT_MAX;
    return options->n_ctx > 0 ? options->n_ctx : (uint32_t)(most < budget ? most : budget);
}

static uint32_t cells_of(const sim_options *o, const model_options *options, uint32_t n_ctx)
{
    if (o->cells != SIM_UNSET) {
        return (uint32_t)o->cells;
    }
    const uint64_t budget = cells_paid(o, options);
    const uint64_t all = sim_cells_of(o, n_ctx) * options->n_seq;
    const uint64_t n = all < budget ? all : budget;
    return o->memory == LLM_MEMORY_RECURRENT || n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

static uint32_t batch_of(const sim_options *o, uint32_t wanted)
{
    uint64_t n_batch = wanted > 0 ? wanted : N_BATCH_DEFAULT;
    return (uint32_t)(o->batch < n_batch ? o->batch : n_batch);
}

/* Computes two FNV-1a hashes with different start values, one for each half of `out`. */
static void hash_fill(const uint64_t *facts, size_t n, uint8_t out[16])
{
    for (size_t half = 0; half < 2; half++) {
        uint64_t hash = UINT64_C(0xcbf29ce484222325) + half;
        for (size_t i = 0; i < n * sizeof *facts; i++) {
            hash = (hash ^ ((const uint8_t *)facts)[i]) * UINT64_C(0x100000001b3);
        }
        memcpy(out + 8 * half, &hash, sizeof hash);
    }
}

/* Options that change the generated text are part of the identity, because they have the effect of another model file.
 * Options for speed and faults are not part of the identity. Without a script, the identity is the same as in versions
 * that had no scripts. */
static void identity_fill(const sim_model *m, const model_options *options, model_info *info)
{
    const sim_options *o = &m->options;
    const uint64_t model_facts[] = {2 /* version of the vocabulary and the state */, o->memory, o->window, o->length,
                                    m->script != NULL ? sim_script_hash(m->script) : 0};
    const uint64_t layout_facts[] = {3, o->layout, o->state_kb, options->exact ? options->n_seq : 0, options->kv_type};
    const size_t n_facts = sizeof model_facts / sizeof *model_facts;
    hash_fill(model_facts, m->script != NULL ? n_facts : n_facts - 1, info->identity);
    hash_fill(layout_facts, sizeof layout_facts / sizeof *layout_facts, info->geometry);
}

/* A model with a sliding window keeps only the states after the last `window` tokens. So drafts need a window that is
 * at least as long as the longest draft. */
static uint32_t n_drafting_of(const sim_options *o, uint32_t n_seq)
{
    switch (o->memory) {
    case LLM_MEMORY_NONE: return 0;
    case LLM_MEMORY_DENSE: return n_seq;
    case LLM_MEMORY_WINDOW: return o->window >= MODEL_OUTPUTS_BESIDE ? n_seq : 0;
    default: return 1;
    }
}

static void info_fill(sim_model *m, const model_options *options)
{
    const sim_options *o = &m->options;
    const bool attends_only = o->memory == LLM_MEMORY_DENSE || o->memory == LLM_MEMORY_WINDOW;
    model_info *info = &m->base.info;
    *info = (model_info){.n_ctx = context_of(o, options),
                         .n_ctx_train = (uint32_t)o->ctx,
                         .n_vocab = SIM_VOCABULARY,
                         .n_seq = options->n_seq,
                         .n_batch = batch_of(o, options->n_batch),
                         .n_outputs_max = options->n_seq + MODEL_OUTPUTS_BESIDE,
                         .n_embedding = (uint32_t)o->embed,
                         .n_window = o->memory == LLM_MEMORY_WINDOW ? (uint32_t)o->window : 0,
                         .memory = o->memory,
                         .kv_type = options->kv_type,
                         .kv_token_bytes = o->memory == LLM_MEMORY_RECURRENT ? 0 : SIM_TOKEN_BYTES,
                         .checkpoint = checkpoint_of(o->memory),
                         .shares_cells = !options->exact && o->window_cells == 0,
                         .mixed_calls = attends_only,
                         .n_drafting = n_drafting_of(o, options->n_seq),
                         .n_stoppable = attends_only ? options->n_seq : 1,
                         .n_threads = 1,
                         .token_bytes_max = sim_token_bytes_max(),
                         .sampling_default = model_sampling_unstated()};
    info->sampling_default.top_k = 0;
    info->sampling_default.penalty_last_n = 64;
    m->n_cells = cells_of(o, options, info->n_ctx);
    info->n_cells = m->n_cells != UINT32_MAX ? (uint32_t)tokens_of(o, m->n_cells) : UINT32_MAX;
    info->n_embedding_tokens = o->embed > 0 ? info->n_ctx : 0;
    m->n_kept = states_per_sequence(o, info->n_ctx);
    info->state_bytes = (m->n_cells != UINT32_MAX ? m->n_cells : info->n_seq) * (uint64_t)SIM_TOKEN_BYTES;
    snprintf(info->name, sizeof info->name, "sim-%s", llm_word(LLM_MEMORIES, (int)o->memory));
    snprintf(info->arch, sizeof info->arch, "sim");
    snprintf(info->description, sizeof info->description, "simulated %s model", llm_word(LLM_MEMORIES, (int)o->memory));
    snprintf(info->backend, sizeof info->backend, "sim");
    identity_fill(m, options, info);
}

static bool memory_open(sim_model *m, const char *chat_template)
{
    const model_info *info = &m->base.info;
    m->sequences = calloc(info->n_seq, sizeof *m->sequences);
    m->states = calloc((size_t)info->n_seq * m->n_kept, sizeof *m->states);
    bool has_window = info->memory == LLM_MEMORY_WINDOW;
    m->attentions = has_window ? calloc((size_t)info->n_seq * (info->n_ctx + (size_t)1), sizeof *m->attentions) : NULL;
    const bool has_shared = shared_prefixes_open(&m->shared, info->n_seq);
    m->logits = calloc((size_t)info->n_outputs_max * info->n_vocab, sizeof *m->logits);
    m->row_of = calloc(info->n_batch, sizeof *m->row_of);
    m->own_template = chat_template != NULL ? strdup(chat_template) : NULL;
    const char *usual_template = info->memory == LLM_MEMORY_NONE ? NULL : sim_chat_template;
    m->chat_template = chat_template != NULL ? m->own_template : usual_template;
    if (m->sequences == NULL || m->states == NULL || (has_window && m->attentions == NULL) || !has_shared ||
        m->logits == NULL || m->row_of == NULL || (chat_template != NULL && m->own_template == NULL)) {
        return false;
    }
    for (uint32_t i = 0; i < info->n_batch; i++) {
        m->row_of[i] = -1;
    }
    for (uint32_t seq = 0; seq < info->n_seq; seq++) {
        m->sequences[seq].kept = m->states + (size_t)seq * m->n_kept;
        m->sequences[seq].attention = has_window ? m->attentions + seq * (info->n_ctx + (size_t)1) : NULL;
        sim_clear(&m->base, (uint16_t)seq);
    }
    return true;
}

static int options_check(const model_options *options, char *error, size_t error_bytes)
{
    if (options->n_seq == 0 || options->n_seq > LLM_SEQUENCES_MAX) {
        snprintf(error, error_bytes, "sim: n_seq=%u: use 1 to %d", options->n_seq, LLM_SEQUENCES_MAX);
        return LLM_INVALID;
    }
    if (options->n_ctx > INT32_MAX) {
        snprintf(error, error_bytes, "sim: n_ctx=%u: use at most %d", options->n_ctx, INT32_MAX);
        return LLM_INVALID;
    }
    return LLM_OK;
}

static int budget_check(const sim_options *o, const model_options *options, char *error, size_t error_bytes)
{
    const uint64_t budget = budget_of(o, options), n_ctx = context_of(o, options);
    if (n_ctx > 0 && n_ctx <= budget) {
        return LLM_OK;
    }
    snprintf(error, error_bytes,
             "sim: one session of %llu tokens (--ctx-size) takes %llu bytes, but --kv-memory is %llu, enough for %llu "
             "tokens",
             (unsigned long long)n_ctx, (unsigned long long)sim_cells_of(o, n_ctx) * SIM_TOKEN_BYTES,
             (unsigned long long)options->kv_bytes_max, (unsigned long long)budget);
    return LLM_NO_MEMORY;
}

int model_sim_open(const model_options *options, model **out, char *error, size_t error_bytes)
{
    sim_options parsed;
    sim_script *script = NULL;
    int status = options_check(options, error, error_bytes);
    if (status == LLM_OK) {
        status = sim_options_read(options->path, &parsed, error, error_bytes);
    }
    if (status == LLM_OK) {
        status = budget_check(&parsed, options, error, error_bytes);
    }
    if (status == LLM_OK && parsed.script[0] != '\0') {
        status = sim_script_open(parsed.script, &script, error, error_bytes);
    }
    if (status != LLM_OK) {
        return status;
    }
    sim_text_open();
    sim_model *m = calloc(1, sizeof *m);
    if (m != NULL) {
        m->base.ops = &sim_ops;
        m->options = parsed;
        m->script = script;
        info_fill(m, options);
        if (memory_open(m, options->chat_template)) {
            *out = &m->base;
            return LLM_OK;
        }
        sim_close(&m->base);
    } else {
        sim_script_close(script);
    }
    snprintf(error, error_bytes, "sim: no memory for %u sequences of %u tokens", options->n_seq, options->n_ctx);
    return LLM_NO_MEMORY;
}
