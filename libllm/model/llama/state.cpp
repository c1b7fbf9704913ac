/* state.cpp: saves, loads and copies sequences (model.h describes the kinds of saved states). A state comes from host
 * memory or disk, so its bytes are checked. After every operation, the sequence's position in llama.cpp's memory is
 * compared with the expected position. If they differ, the sequence is emptied. The caller then prefills the sequence
 * once more. That only takes time, but a wrong state would give wrong text. */
#include "model/llama/llama_model.h"

#include <cstring>

namespace {

/* Header of a saved state. llama.cpp's own states have no header. This header has a magic number (`mark`) and a length.
 * So bytes that are not a saved state can be refused. */
struct blob_head {
    char mark[4];
    uint32_t kind;
    uint64_t n_bytes; /* bytes after this header */
};

constexpr char MARK[4] = {'L', 'S', 'T', '1'};

model_llama *self(model *m)
{
    return static_cast<model_llama *>(m);
}

llama_state_seq_flags flags_of(model_state_kind kind)
{
    return kind == MODEL_STATE_CHECKPOINT ? LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY : LLAMA_STATE_SEQ_FLAGS_NONE;
}

void empty(model_llama *m, uint16_t seq)
{
    llama_memory_seq_rm(m->memory, seq, -1, -1);
    llama_memory_seq_trim(m->memory, seq);
    m->positions[seq] = 0;
    shared_prefixes_truncate(&m->shared, seq, 0);
}

/* Returns the bytes after the header, or nullptr if `bytes` are not a state of this kind. */
const uint8_t *contents(model_state_kind kind, const void *bytes, size_t n_bytes)
{
    blob_head head;
    if (n_bytes < sizeof head) {
        return nullptr;
    }
    std::memcpy(&head, bytes, sizeof head);
    if (std::memcmp(head.mark, MARK, sizeof MARK) != 0 || head.kind != static_cast<uint32_t>(kind) ||
        head.n_bytes != n_bytes - sizeof head) {
        return nullptr;
    }
    return static_cast<const uint8_t *>(bytes) + sizeof head;
}

bool holds(model_llama *m, uint16_t seq, uint32_t k)
{
    return llama_memory_seq_pos_max(m->memory, seq) + 1 == static_cast<llama_pos>(k);
}

bool load(model_llama *m, uint16_t seq, model_state_kind kind, uint32_t k, const uint8_t *state, size_t n_bytes)
{
    const size_t n = llama_state_seq_set_data_ext(m->context, state, n_bytes, seq, flags_of(kind));
    if (n != n_bytes) {
        return false;
    }
    /* The attention layers can hold more than the checkpoint's k tokens. Truncating these layers to k tokens is exact,
     * because the recurrent state is the state after k tokens. */
    if (kind == MODEL_STATE_CHECKPOINT && !llama_memory_seq_rm(m->memory, seq, static_cast<llama_pos>(k), -1)) {
        return false;
    }
    if (m->positions[seq] < k || m->positions[seq] - k >= MODEL_LLAMA_TRIMMED_TOKENS_MIN) {
        llama_memory_seq_trim(m->memory, seq);
    }
    return holds(m, seq, k);
}

/* Called after a load failed. Returns whether there are cells for k tokens of `seq`. If there are, the saved state was
 * invalid. Shared cells are counted once for each sequence, so more cells can be free than this function assumes, but
 * never fewer. */
bool has_cells(const model_llama *m, uint16_t seq, uint32_t k)
{
    if (m->info.n_cells == UINT32_MAX) {
        return true;
    }
    uint64_t used = 0;
    for (uint32_t i = 0; i < m->info.n_seq; i++) {
        used += i == seq ? 0 : m->positions[i];
    }
    return used + k <= m->info.n_cells;
}

} // namespace

bool model_llama_copy(model *base, uint16_t src, uint16_t dst)
{
    model_llama *m = self(base);
    /* Without a block table, llama.cpp copies between separate streams only in the next step. The copy would then
     * overwrite a state that was loaded into dst before that step. */
    if (!m->info.shares_cells || !m->has(src) || !m->has(dst) || src == dst || m->positions[dst] != 0) {
        return false;
    }
    try {
        llama_memory_seq_cp(m->memory, src, dst, -1, -1);
        if (!holds(m, dst, m->positions[src])) {
            empty(m, dst);
            return false;
        }
    } catch (...) {
        return false;
    }
    m->positions[dst] = m->positions[src];
    shared_prefixes_copy(&m->shared, src, dst, m->positions[src]);
    return true;
}

size_t model_llama_state_bytes(model *base, uint16_t seq, model_state_kind kind)
{
    model_llama *m = self(base);
    if (!m->has(seq)) {
        return 0;
    }
    try {
        const size_t n = llama_state_seq_get_size_ext(m->context, seq, flags_of(kind));
        return n == 0 ? 0 : n + sizeof(blob_head);
    } catch (...) {
        return 0;
    }
}

size_t model_llama_state_save(model *base, uint16_t seq, model_state_kind kind, void *out, size_t n_bytes)
{
    model_llama *m = self(base);
    blob_head head = {{MARK[0], MARK[1], MARK[2], MARK[3]}, static_cast<uint32_t>(kind), 0};
    if (!m->has(seq) || n_bytes <= sizeof head) {
        return 0;
    }
    try {
        uint8_t *at = static_cast<uint8_t *>(out);
        const size_t n =
            llama_state_seq_get_data_ext(m->context, at + sizeof head, n_bytes - sizeof head, seq, flags_of(kind));
        if (n == 0) {
            return 0;
        }
        head.n_bytes = n;
        std::memcpy(at, &head, sizeof head);
        return sizeof head + n;
    } catch (...) {
        return 0;
    }
}

model_result model_llama_state_load(model *base, uint16_t seq, model_state_kind kind, uint32_t k, const void *bytes,
                                    size_t n_bytes)
{
    model_llama *m = self(base);
    if (!m->has(seq)) {
        return MODEL_INVALID;
    }
    m->before_drafts.n_bytes = 0;
    try {
        const uint8_t *state = contents(kind, bytes, n_bytes);
        if (kind == MODEL_STATE_FULL) {
            empty(m, seq); /* what it shares with other sequences must not be counted as saved */
        }
        if (state != nullptr && !model_llama_may_hold(m, seq, k)) {
            empty(m, seq);
            return MODEL_NO_CELLS;
        }
        if (state != nullptr && load(m, seq, kind, k, state, n_bytes - sizeof(blob_head))) {
            m->positions[seq] = k;
            shared_prefixes_truncate(&m->shared, seq, k);
            return MODEL_OK;
        }
        empty(m, seq);
        return state != nullptr && !has_cells(m, seq, k) ? MODEL_NO_CELLS : MODEL_INVALID;
    } catch (...) {
        m->positions[seq] = 0;
        shared_prefixes_truncate(&m->shared, seq, 0);
        return MODEL_INVALID;
    }
}
