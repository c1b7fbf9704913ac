/* undo.cpp: restores the sequences of a decode call that is stopped or fails. The class is model_llama_undo of
 * llama_model.h. The decode thread owns an undo object during the call. */
#include <sys/mman.h>

#include "model/llama/llama_model.h"

namespace {

constexpr uint32_t LONG_CALL_TOKENS = 32; /* a call with fewer tokens ends soon, so stopping it would save no time. No
                                           * copy is made for it */

} // namespace

/* Attention-only models need no copy, because undo() truncates their KV cache. If the model has recurrent states, a
 * call can be undone only under three conditions. The batch has a stop function, the call is long, and all its tokens
 * are of one sequence. In a call for several sequences, llama.cpp can move the states of other sequences. A sequence
 * that has consumed no token before the call needs no copy, because undo() empties it. If there is no memory for the
 * copy, the call runs, but cannot be stopped or undone. Writing the copy of a hybrid's state (19 MB) would cause 4,800
 * page faults. So all pages of the copy are mapped with one call (MAP_POPULATE). */
model_llama_undo::model_llama_undo(model_llama *of, const model_batch *b) : m(of)
{
    if (!m->is_stateful()) {
        can_undo = true;
        return;
    }
    if (b->stop == nullptr || m->touched.size() > m->info.n_stoppable || b->n < LONG_CALL_TOKENS) {
        return;
    }
    const uint16_t seq = m->touched[0];
    if (m->positions[seq] == 0) {
        can_undo = true;
        return;
    }
    n_bytes = model_llama_state_bytes(m, seq, MODEL_STATE_CHECKPOINT);
    void *at = n_bytes == 0
                   ? MAP_FAILED
                   : mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (at == MAP_FAILED) {
        return;
    }
    state = at;
    can_undo = model_llama_state_save(m, seq, MODEL_STATE_CHECKPOINT, state, n_bytes) == n_bytes;
}

model_llama_undo::~model_llama_undo()
{
    if (state != nullptr) {
        munmap(state, n_bytes);
    }
}

/* llama.cpp computes a call in several passes. Each finished pass has added cells to the KV cache. So undo() truncates
 * the cache to the positions before the call. Returns true only if llama.cpp's memory then holds each sequence at its
 * position before the call. */
bool model_llama_undo::undo()
{
    bool is_as_before = can_undo;
    for (const uint16_t seq : m->touched) {
        const uint32_t k = m->positions[seq];
        if (state != nullptr) {
            is_as_before =
                is_as_before && model_llama_state_load(m, seq, MODEL_STATE_CHECKPOINT, k, state, n_bytes) == MODEL_OK;
        } else if (can_undo) {
            llama_memory_seq_rm(m->memory, seq, static_cast<llama_pos>(k), -1);
        }
        is_as_before = is_as_before && model_llama_memory_position(m, seq) == k;
    }
    return is_as_before;
}
