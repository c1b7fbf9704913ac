/* first_steps.cpp: computes the first steps while a model is opened (llama_model.h). */
#include <algorithm>
#include <vector>

#include "model/llama/llama_model.h"

namespace {

llama_token any_token(const llama_vocab *vocab)
{
    const llama_token first[] = {llama_vocab_bos(vocab), llama_vocab_eos(vocab), 0};
    const llama_token n_vocab = llama_vocab_n_tokens(vocab);
    return *std::find_if(first, first + 2, [n_vocab](llama_token t) { return t >= 0 && t < n_vocab; });
}

/* Computes a step of one token and then clears its sequence. */
bool step(model_llama *m)
{
    const int32_t token = any_token(m->vocab), position = 0;
    const uint16_t seq = 0;
    const uint8_t output = 1;
    const model_batch batch = {1, &token, &position, &seq, &output, nullptr, nullptr, 0};
    const bool is_made = m->ops->decode(m, &batch) == MODEL_OK && m->ops->logits(m, 0) != nullptr;
    m->ops->clear(m, 0);
    return is_made;
}

} // namespace

bool model_llama_largest_step(llama_context *context, uint32_t n_outputs)
{
    const uint32_t n = std::min(llama_n_batch(context), llama_n_ctx_seq(context));
    llama_seq_id first = 0;
    std::vector<llama_token> tokens(n, any_token(llama_model_get_vocab(llama_get_model(context))));
    std::vector<int32_t> n_seqs(n, 1);
    std::vector<llama_seq_id *> seqs(n, &first);
    std::vector<int8_t> wanted(n, 0);
    std::fill(wanted.end() - std::min(n, n_outputs), wanted.end(), 1);
    llama_batch batch{};
    batch.n_tokens = static_cast<int32_t>(n);
    batch.token = tokens.data();
    batch.n_seq_id = n_seqs.data();
    batch.seq_id = seqs.data();
    batch.logits = wanted.data();
    try {
        const bool is_made = llama_decode(context, batch) == 0;
        llama_synchronize(context);
        llama_memory_clear(llama_get_memory(context), true);
        return is_made;
    } catch (...) { /* thrown by the device's driver, which has logged the reason */
        return false;
    }
}

bool model_llama_first_steps(model_llama *m, const model_options &o)
{
    bool is_working = step(m);
    if (is_working && o.n_threads <= 0 && !o.exact) {
        m->threads.watch();
        m->info.n_threads = model_llama_best_size(m->info.n_threads, [&](int32_t n) {
            m->threads.set(n);
            is_working = is_working && step(m);
            return is_working;
        });
        m->threads.adapt(m->info.n_threads);
    }
    return is_working;
}
