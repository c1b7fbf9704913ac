/* llama_model.cpp: decodes, truncates and clears sequences, and converts text to tokens and back. llama.cpp's results
 * are not trusted. A batch is checked before the call. After the call, the positions in llama.cpp's memory are compared
 * with `positions`. If a failure were not noticed, a session could continue from the state of another session's text,
 * or from an empty state. */
#include "model/llama/llama_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "model/llama/crash.h"

namespace {

model_llama *self(model *m)
{
    return static_cast<model_llama *>(m);
}

const model_llama *self(const model *m)
{
    return static_cast<const model_llama *>(m);
}

constexpr int32_t FAILED_CODE = -3; /* result of llama_decode if the computation failed */

/* ---- decode ------------------------------------------------------------------------------------------------------ */

/* Returns false for each batch with which llama.cpp would abort. Also returns false for each wrong batch that llama.cpp
 * would accept. For example, some models accept a gap between positions. Fills `touched` and `ends`. */
bool batch_is_valid(model_llama *m, const model_batch *b)
{
    for (const uint16_t seq : m->touched) {
        m->is_touched[seq] = 0;
    }
    m->touched.clear();
    if (b->n == 0 || b->n > m->info.n_batch) {
        return false;
    }
    uint32_t n_outputs = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        const uint16_t seq = b->seqs[i];
        if (!m->has(seq) || b->tokens[i] < 0 || static_cast<uint32_t>(b->tokens[i]) >= m->info.n_vocab) {
            return false;
        }
        if (i == 0 || seq != b->seqs[i - 1]) {
            if (m->is_touched[seq]) {
                return false; /* the sequence's tokens are not contiguous in the batch */
            }
            m->is_touched[seq] = 1;
            m->touched.push_back(seq);
            m->ends[seq] = m->positions[seq];
        }
        n_outputs += b->outputs[i] != 0;
        if (b->positions[i] < 0 || static_cast<uint32_t>(b->positions[i]) != m->ends[seq] ||
            m->ends[seq] >= m->info.n_ctx || n_outputs > m->info.n_outputs_max) {
            return false;
        }
        m->ends[seq]++;
    }
    return b->n_drafts == 0 ||
           (m->touched.size() <= m->info.n_drafting && b->n <= m->touched.size() * (MODEL_OUTPUTS_BESIDE + 1));
}

/* Returns how many of `used` bytes are counted twice, because sequences refer to the same memory. */
uint64_t shared_bytes(const model_llama *m, uint64_t used)
{
    return std::min<uint64_t>(used, llama_memory_shared_bytes(m->memory));
}

/* Returns whether the budget for KV cells allows this batch. If each sequence has its own cells, all cells together can
 * exceed the budget, because unused cells take only addresses. If all sequences are in one pool, nothing has to be
 * checked, because the pool has no more cells than the budget allows. */
bool is_paid_for(const model_llama *m)
{
    if (m->has_pool) {
        return true;
    }
    uint64_t used = m->cost.fixed_bytes;
    for (uint32_t seq = 0; seq < m->info.n_seq; seq++) {
        used += m->cost.of(m->is_touched[seq] ? m->ends[seq] : m->positions[seq]);
    }
    return used - shared_bytes(m, used) <= m->info.state_bytes;
}

llama_batch batch_fill(model_llama *m, const model_batch *b)
{
    for (uint32_t i = 0; i < b->n; i++) {
        m->tokens[i] = b->tokens[i];
        m->batch_positions[i] = b->positions[i];
        m->seqs[i] = b->seqs[i];
        m->output_flags[i] = b->outputs[i] != 0;
    }
    llama_batch out{};
    out.n_tokens = static_cast<int32_t>(b->n);
    out.token = m->tokens.data();
    out.pos = m->batch_positions.data();
    out.n_seq_id = m->n_seqs.data();
    out.seq_id = m->seq_pointers.data();
    out.logits = m->output_flags.data();
    return out;
}

/* Returns the result of a call that failed half-way, or was stopped. A stopped call that can be undone changes nothing.
 * After any other of these calls, the sequences of the batch are invalid. In all models with recurrent states except
 * Qwen's hybrids, llama.cpp can move the recurrent states of other sequences during a call. In such a model, a call
 * that cannot be undone makes all sequences invalid. */
model_result failed(model_llama *m, bool is_stopped, model_llama_undo *before)
{
    const bool is_as_before = before->undo();
    if (is_stopped && is_as_before) {
        return MODEL_STOPPED;
    }
    const bool may_have_moved = m->is_stateful() && !llama_model_takes_parts(m->weights);
    return may_have_moved && !is_as_before ? MODEL_FAILED_ALL : MODEL_FAILED_BATCH;
}

/* Returns the result of a call that llama.cpp reports as successful. If llama.cpp's memory disagrees with the batch
 * about any position, no sequence can be trusted. */
model_result finished(model_llama *m, uint32_t n)
{
    for (const uint16_t seq : m->touched) {
        if (model_llama_memory_position(m, seq) != m->ends[seq]) {
            return MODEL_FAILED_ALL;
        }
    }
    for (const uint16_t seq : m->touched) {
        m->positions[seq] = m->ends[seq];
    }
    m->n_output_flags = n;
    return MODEL_OK;
}

/* Calls llama_decode. If llama_decode throws, returns FAILED_CODE. llama_decode throws if a device has no free memory,
 * and if a Vulkan device is lost. */
int32_t decoded(model_llama *m, const model_batch *b)
{
    try {
        const model_llama_stepping running_out_is_an_exception;
        const int32_t n_threads = m->threads.begin(b->n);
        llama_set_n_threads(m->context, n_threads, n_threads);
        const int32_t code = llama_decode(m->context, batch_fill(m, b));
        if (code == 0) {
            llama_synchronize(m->context); /* on a GPU, llama_decode returns before the step is computed */
            m->threads.end(b->n);
        }
        return code;
    } catch (...) {
        return FAILED_CODE;
    }
}

/* Saves the state to which op_remove_drafts goes back. Returns false if memory is short. */
bool save_before_drafts(model_llama *m, const model_batch *b)
{
    model_llama_before_drafts *before = &m->before_drafts;
    before->n_bytes = 0;
    if (b->n_drafts == 0 || !m->is_stateful()) {
        return true;
    }
    before->seq = m->touched[0];
    before->position = m->positions[before->seq];
    const size_t n_bytes = model_llama_state_bytes(m, before->seq, MODEL_STATE_CHECKPOINT);
    try {
        before->state.reserve(n_bytes); /* exactly: resize alone would allocate up to twice as much */
        before->state.resize(std::max(n_bytes, before->state.size()));
    } catch (const std::bad_alloc &) {
        return false;
    }
    before->n_bytes = model_llama_state_save(m, before->seq, MODEL_STATE_CHECKPOINT, before->state.data(), n_bytes);
    return before->n_bytes > 0;
}

model_result op_decode(model *base, const model_batch *b)
{
    model_llama *m = self(base);
    m->n_output_flags = 0;
    if (!batch_is_valid(m, b)) {
        return MODEL_INVALID;
    }
    if (!is_paid_for(m) || !save_before_drafts(m, b)) {
        return MODEL_NO_CELLS;
    }
    model_llama_undo before(m, b);
    m->running = before.is_possible() ? b : nullptr;
    const int32_t code = decoded(m, b);
    m->running = nullptr;
    switch (code) {
    case 0: return finished(m, b->n);
    case 1: return MODEL_NO_CELLS;
    case -1: return MODEL_INVALID;
    default: return failed(m, code == MODEL_LLAMA_STOPPED_CODE, &before);
    }
}

/* A model file can list tokens to suppress. Their logits are set to minus infinity. So no sampler picks them, and no
 * log probability counts them. */
float *op_logits(model *base, uint32_t i)
{
    model_llama *m = self(base);
    if (i >= m->n_output_flags || !m->output_flags[i]) {
        return nullptr;
    }
    try {
        float *row = llama_get_logits_ith(m->context, static_cast<int32_t>(i));
        int32_t n_suppressed = 0;
        const llama_token *suppressed = llama_vocab_get_suppress_tokens(m->vocab, &n_suppressed);
        for (int32_t k = 0; row != nullptr && k < n_suppressed; k++) {
            if (suppressed[k] >= 0 && static_cast<uint32_t>(suppressed[k]) < m->info.n_vocab) {
                row[suppressed[k]] = -std::numeric_limits<float>::infinity();
            }
        }
        return row;
    } catch (...) {
        return nullptr;
    }
}

/* ---- truncate ---------------------------------------------------------------------------------------------------- */

/* llama.cpp truncates a sequence with a sliding window at any position, even if the window has lost tokens to which the
 * next token must attend. The generated text would then be wrong without an error. Truncating to k tokens is exact only
 * if the oldest position in memory is at most max(0, k - window). For example, let the window be 1,024 and the
 * positions 3,000 to 4,999 be in memory. k = 4,024 is exact, because 4,024 - 1,024 is 3,000. Smaller k are not
 * exact. */
uint32_t op_truncate_floor(const model *base, uint16_t seq)
{
    const model_llama *m = self(base);
    if (!m->has(seq)) {
        return 1;
    }
    const uint32_t position = m->positions[seq];
    if (m->is_stateful()) {
        return position;
    }
    if (m->info.memory == LLM_MEMORY_DENSE || position == 0) {
        return std::min<uint32_t>(position, 1);
    }
    const llama_pos oldest = llama_memory_seq_pos_min(m->memory, seq);
    if (oldest == 0) {
        return 1;
    }
    if (oldest < 0) {
        return position;
    }
    return std::min(position, static_cast<uint32_t>(oldest) + m->info.n_window);
}

bool op_truncate(model *base, uint16_t seq, uint32_t k)
{
    model_llama *m = self(base);
    if (!m->has(seq) || k == 0 || k > m->positions[seq]) {
        return false;
    }
    if (k == m->positions[seq]) {
        return true;
    }
    if (k < op_truncate_floor(base, seq)) {
        return false;
    }
    try {
        if (!llama_memory_seq_rm(m->memory, seq, static_cast<llama_pos>(k), -1) ||
            model_llama_memory_position(m, seq) != k) {
            return false;
        }
    } catch (...) {
        return false;
    }
    if (m->positions[seq] - k >= MODEL_LLAMA_TRIMMED_TOKENS_MIN) {
        llama_memory_seq_trim(m->memory, seq);
    }
    m->positions[seq] = k;
    shared_prefixes_truncate(&m->shared, seq, k);
    return true;
}

/* Goes back to the state before the call, and computes the call's tokens up to position k again. */
model_result compute_again(model_llama *m, uint16_t seq, uint32_t k)
{
    const model_llama_before_drafts &before = m->before_drafts;
    constexpr uint32_t most = MODEL_OUTPUTS_BESIDE + 1;
    if (before.n_bytes == 0 || before.seq != seq || k <= before.position || k - before.position > most) {
        return MODEL_FAILED_BATCH;
    }
    const uint32_t n = k - before.position;
    int32_t tokens[most], positions[most];
    uint16_t seqs[most];
    const uint8_t outputs[most] = {0};
    for (uint32_t i = 0; i < n; i++) {
        tokens[i] = m->tokens[i];
        positions[i] = static_cast<int32_t>(before.position + i);
        seqs[i] = seq;
    }
    const model_batch again = {n, tokens, positions, seqs, outputs, nullptr, nullptr, 0};
    if (model_llama_state_load(m, seq, MODEL_STATE_CHECKPOINT, before.position, before.state.data(), before.n_bytes) !=
        MODEL_OK) {
        return MODEL_FAILED_BATCH;
    }
    const model_result result = op_decode(m, &again);
    return result == MODEL_OK || result == MODEL_FAILED_ALL ? result : MODEL_FAILED_BATCH;
}

model_result op_remove_drafts(model *base, uint16_t seq, uint32_t k)
{
    model_llama *m = self(base);
    if (m->has(seq) && m->is_stateful()) {
        return compute_again(m, seq, k);
    }
    return op_truncate(base, seq, k) ? MODEL_OK : MODEL_FAILED_BATCH;
}

void op_clear(model *base, uint16_t seq)
{
    model_llama *m = self(base);
    if (!m->has(seq)) {
        return;
    }
    try {
        llama_memory_seq_rm(m->memory, seq, -1, -1); /* llama.cpp never refuses to remove a whole sequence */
        llama_memory_seq_trim(m->memory, seq);
    } catch (...) { /* llama.cpp may not have removed all cells of the sequence. The position is set to 0 below, so
                     * finished() reports the sequence's next step as failed */
    }
    m->positions[seq] = 0;
    m->before_drafts.n_bytes = 0;
    shared_prefixes_truncate(&m->shared, seq, 0);
}

uint64_t op_used_bytes(const model *base)
{
    const model_llama *m = self(base);
    return model_llama_used(m, 0, m->positions[0]);
}

uint64_t op_sequence_bytes(const model *base, uint32_t n_tokens)
{
    const model_llama *m = self(base);
    return m->cost.fixed_bytes / m->info.n_seq + m->cost.of(n_tokens);
}

uint32_t op_shared_tokens(const model *base, uint16_t seq)
{
    return shared_prefixes_counted_before(&self(base)->shared, seq);
}

uint32_t op_position(const model *base, uint16_t seq)
{
    const model_llama *m = self(base);
    return m->has(seq) ? m->positions[seq] : 0;
}

/* ---- text: any thread -------------------------------------------------------------------------------------------- */

bool is_token(const model_llama *m, int32_t token)
{
    return token >= 0 && static_cast<uint32_t>(token) < m->info.n_vocab;
}

int64_t op_tokenize(const model *base, const char *text, size_t n_bytes, bool add_special, bool parse_special,
                    int32_t *out, size_t n_out)
{
    constexpr size_t most = std::numeric_limits<int32_t>::max();
    if (n_bytes > most || llama_vocab_type(self(base)->vocab) == LLAMA_VOCAB_TYPE_NONE) { /* llama.cpp would abort */
        return INT64_MIN;
    }
    try {
        const int32_t room = static_cast<int32_t>(std::min(n_out, most));
        const int32_t n = llama_tokenize(self(base)->vocab, text == nullptr ? "" : text, static_cast<int32_t>(n_bytes),
                                         out, room, add_special, parse_special);
        /* If a vocabulary has no "unknown" token, llama.cpp returns -1 as the token of text that it cannot spell. */
        const auto is_none = [base](int32_t token) { return !is_token(self(base), token); };
        return n == INT32_MIN || std::any_of(out, out + std::max(n, 0), is_none) ? INT64_MIN : n;
    } catch (...) {
        return INT64_MIN;
    }
}

int32_t op_piece(const model *base, int32_t token, bool special, char *out, size_t n_out)
{
    constexpr size_t most = std::numeric_limits<int32_t>::max();
    if (!is_token(self(base), token)) {
        return 0;
    }
    try {
        return llama_token_to_piece(self(base)->vocab, token, out, static_cast<int32_t>(std::min(n_out, most)), 0,
                                    special);
    } catch (...) {
        return 0;
    }
}

bool op_is_end(const model *base, int32_t token)
{
    return is_token(self(base), token) && llama_vocab_is_eog(self(base)->vocab, token);
}

/* Returns true for exactly the tokens that the tokenizer recognizes in text only with parse_special. User-defined
 * tokens are not control tokens, because the tokenizer always recognizes them, as ordinary words of the vocabulary. */
bool op_is_control(const model *base, int32_t token)
{
    if (!is_token(self(base), token)) {
        return false;
    }
    const int attr = llama_vocab_get_attr(self(base)->vocab, token);
    return (attr & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN)) != 0;
}

const char *source_or_null(const std::string &source)
{
    return source.empty() ? nullptr : source.c_str();
}

const char *op_chat_template(const model *base)
{
    return source_or_null(self(base)->template_source);
}

const char *op_tool_template(const model *base)
{
    return source_or_null(self(base)->tool_template_source);
}

int32_t op_bos(const model *base)
{
    return llama_vocab_bos(self(base)->vocab);
}

int32_t op_eos(const model *base)
{
    return llama_vocab_eos(self(base)->vocab);
}

int32_t op_fim(const model *base, llm_fim mark)
{
    const llama_vocab *vocab = self(base)->vocab;
    switch (mark) {
    case LLM_FIM_PREFIX: return llama_vocab_fim_pre(vocab);
    case LLM_FIM_SUFFIX: return llama_vocab_fim_suf(vocab);
    case LLM_FIM_MIDDLE: return llama_vocab_fim_mid(vocab);
    case LLM_FIM_REPOSITORY: return llama_vocab_fim_rep(vocab);
    case LLM_FIM_FILE: return llama_vocab_fim_sep(vocab);
    default: return -1;
    }
}

void op_close(model *base)
{
    delete self(base);
}

} // namespace

uint32_t model_llama_memory_position(const model_llama *m, uint16_t seq)
{
    return static_cast<uint32_t>(llama_memory_seq_pos_max(m->memory, seq) + 1);
}

bool model_llama_is_stopped(void *m)
{
    const model_batch *b = static_cast<const model_llama *>(m)->running;
    return b != nullptr && b->stop != nullptr && b->stop(b->stop_context);
}

uint64_t model_llama_used(const model_llama *m, uint32_t seq, uint32_t k)
{
    uint64_t used = m->cost.fixed_bytes;
    for (uint32_t i = 0; i < m->info.n_seq; i++) {
        used += m->cost.of(i == seq ? k : m->positions[i]);
    }
    return used - shared_bytes(m, used);
}

bool model_llama_may_hold(const model_llama *m, uint32_t seq, uint32_t k)
{
    return m->has_pool || model_llama_used(m, seq, k) <= m->info.state_bytes;
}

model_llama::~model_llama()
{
    shared_prefixes_close(&shared);
    llama_free(embedder.context);
    if (context != nullptr) {
        llama_free(context);
    }
    if (weights != nullptr) {
        llama_model_free(weights);
    }
}

const model_ops model_llama_ops = {
    op_close,
    op_decode,
    op_logits,
    op_truncate_floor,
    op_truncate,
    op_remove_drafts,
    op_clear,
    op_position,
    op_used_bytes,
    op_sequence_bytes,
    op_shared_tokens,
    model_llama_copy,
    model_llama_state_bytes,
    model_llama_state_save,
    model_llama_state_load,
    model_llama_embed,
    op_tokenize,
    op_piece,
    op_is_end,
    op_is_control,
    op_chat_template,
    op_bos,
    op_eos,
    op_fim,
    op_tool_template,
};
