/* embed.cpp: computes embeddings of texts, in a second context over the model's weights. This context is made when the
 * first embedding is requested. For a model that only computes embeddings, this is the only context, and it is made
 * when the model is opened. Any thread can call model_llama_embed. One call runs at a time
 * (model_llama_embedder::turn).
 *
 * If a model has causal attention and pooling "last", the embedding of a text is the state of its last token. Such a
 * model consumes a text in several steps, like a prompt. An embedding is requested only after the last token, because
 * llama.cpp computes a row of logits with every embedding. All other models process all tokens of a batch in one step.
 * In such a step each token is compared with all tokens of the batch, even with tokens of other texts. Comparisons
 * between texts are wasted work, so few texts share a batch. */
#include <algorithm>
#include <cstring>
#include <new>

#include "model/llama/crash.h"
#include "model/llama/llama_model.h"

namespace {

constexpr uint32_t TEXTS_MAX = 16;        /* most texts of one batch */
constexpr uint32_t STEP_TOKENS = 512;     /* most tokens of one step, if a text can be consumed in several steps */
constexpr uint32_t TOKENS_MAX = 8192;     /* most tokens of one batch, unless --ctx-size is larger */
constexpr uint32_t TOKENS_MIN = 512;      /* a text may have this many tokens, even if TOKENS_MAX, STATE_BYTES_MAX or
                                           * LOGITS_BYTES_MAX allows fewer */
constexpr uint32_t TOKENS_TOGETHER = 512; /* most tokens of one step that embeds several texts */
constexpr uint64_t STATE_BYTES_MAX = 512u << 20;
constexpr uint64_t LOGITS_BYTES_MAX = 256u << 20; /* most bytes of the logits of one step, if each token has logits */

struct batch {
    explicit batch(uint32_t n) : n_max(n), in(llama_batch_init(static_cast<int32_t>(n), 0, 1)) {}
    ~batch()
    {
        llama_batch_free(in);
    }
    batch(const batch &) = delete;
    batch &operator=(const batch &) = delete;

    void add(llama_token token, uint32_t position, uint32_t seq, bool has_output)
    {
        const int32_t i = in.n_tokens++;
        in.token[i] = token;
        in.pos[i] = static_cast<llama_pos>(position);
        in.n_seq_id[i] = 1;
        in.seq_id[i][0] = static_cast<llama_seq_id>(seq);
        in.logits[i] = has_output;
    }

    bool is_full() const
    {
        return static_cast<uint32_t>(in.n_tokens) == n_max;
    }

    uint32_t n_max;
    llama_batch in;
};

struct texts {
    const int32_t *tokens;
    const uint32_t *n_tokens;
    uint32_t n;
};

/* Architectures of encoders, which are made for embeddings. Their contexts have no KV cache in llama.cpp. */
const char *const ONLY_EMBEDDING[] = {"bert",         "modern-bert",  "nomic-bert", "nomic-bert-moe", "neo-bert",
                                      "jina-bert-v2", "jina-bert-v3", "eurobert",   "gemma-embedding"};

bool is_only_embedding(const model_llama *m)
{
    return m->info.memory == LLM_MEMORY_NONE;
}

/* Returns the value of the metadata key ARCHITECTURE.`name`, or "" if the file does not have this key. */
std::string fact_of(const model_llama *m, const char *name)
{
    char text[16] = "";
    const std::string key = std::string(m->info.arch) + "." + name;
    return llama_model_meta_val_str(m->weights, key.c_str(), text, sizeof text) < 0 ? "" : text;
}

bool is_stepwise(const model_llama *m)
{
    const bool looks_back = !is_only_embedding(m) && fact_of(m, "attention.causal") != "false";
    return looks_back && m->embedder.pooling == LLAMA_POOLING_TYPE_LAST;
}

/* Returns why the model cannot make one embedding of a whole text, or "" if it can. Pooling is the method that computes
 * this embedding from the states of the tokens. A file that does not state its pooling is refused. A wrong guess would
 * give wrong vectors without an error. */
std::string pooling_trouble(const std::string &pooling)
{
    if (pooling.empty()) {
        return "the file does not say how the states of its tokens become the embedding of a text (pooling_type)";
    }
    switch (strtol(pooling.c_str(), nullptr, 10)) {
    case LLAMA_POOLING_TYPE_MEAN:
    case LLAMA_POOLING_TYPE_CLS:
    case LLAMA_POOLING_TYPE_LAST: return "";
    case LLAMA_POOLING_TYPE_RANK: return "it ranks pairs of texts and makes no embeddings; choose an embedding model";
    default: return "it makes a vector for each token and none for a text (pooling_type " + pooling + ")";
    }
}

/* Returns whether the host has memory for the embedding context. Also returns true if nothing has to be checked here.
 * - On a device, llama.cpp itself checks the memory.
 * - The context of a model that only computes embeddings was made at the start. */
bool has_memory(const model_llama *m)
{
    if (is_only_embedding(m)) {
        return true;
    }
    const uint64_t n_tokens = m->info.n_embedding_tokens;
    const uint64_t n_outputs = is_stepwise(m) ? TEXTS_MAX : n_tokens;
    /* the keys and values of an embedding context are f16, at most twice the bytes of another type */
    const uint64_t cell_bytes = m->cost.of(1) * (m->info.kv_type == LLM_KV_F16 ? 1 : 2);
    const uint64_t needed = n_tokens * cell_bytes + 2 * n_outputs * m->info.n_vocab * sizeof(float);
    return strcmp(m->info.backend, "CPU") != 0 || needed < model_llama_memory_free();
}

/* Models that only compute embeddings use flash attention. Without flash attention, the attention scores of all pairs
 * of tokens would be in memory: 3 GB for 8,192 tokens and 12 attention heads. */
llama_context_params context_params(const model_llama *m)
{
    llama_context_params p = llama_context_default_params();
    const bool stepwise = is_stepwise(m);
    p.n_ctx = model_llama_padded(m->info.n_embedding_tokens); /* padded, so that llama.cpp can divide the context into
                                                               * TEXTS_MAX equal parts */
    p.n_batch = stepwise ? std::min(STEP_TOKENS, p.n_ctx) : p.n_ctx;
    p.n_ubatch = p.n_batch;
    p.n_seq_max = TEXTS_MAX;
    p.n_outputs_max = stepwise ? TEXTS_MAX : 0;
    p.n_threads = is_only_embedding(m) ? m->info.n_threads : std::max(1, m->info.n_threads / 2); /* half of the threads,
                                                                                                  * because decoding
                                                                                                  * runs at the same
                                                                                                  * time */
    p.n_threads_batch = p.n_threads;
    p.flash_attn_type =
        is_only_embedding(m) && !m->is_exact ? LLAMA_FLASH_ATTN_TYPE_AUTO : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    p.kv_unified = true;
    p.swa_full = true;
    p.embeddings = true;
    p.no_perf = true;
    return p;
}

/* llama.cpp calls this abort callback between two operations of a step, but only on a CPU. step() also calls it before
 * each step. So when a client disconnects, a text of 8,192 tokens is stopped at once, and not after tens of seconds. */
bool is_given_up(void *embedder)
{
    return model_embedding_is_cancelled(static_cast<const model_llama_embedder *>(embedder)->cancel_flag);
}

/* Calls llama_decode, unless the caller has cancelled the embedding. */
int32_t step(model_llama *m, const llama_batch &in)
{
    return is_given_up(&m->embedder) ? MODEL_LLAMA_STOPPED_CODE : llama_decode(m->embedder.context, in);
}

llama_context *context_open(model_llama *m)
{
    if (!has_memory(m)) {
        return nullptr;
    }
    const llama_context_params p = context_params(m);
    llama_context *context = llama_init_from_model(m->weights, p);
    if (context != nullptr) {
        m->embedder.threads.open(p.n_threads);
        llama_attach_threadpool(context, m->embedder.threads.of_ggml(), m->embedder.threads.of_ggml());
        llama_set_abort_callback(context, is_given_up, &m->embedder);
    }
    return context;
}

/* Consumes all but the last token of each text, without embeddings. Returns 0, or the first code of llama_decode that
 * is not 0. */
int32_t consume(model_llama *m, const texts &t)
{
    batch b(llama_n_batch(m->embedder.context));
    llama_set_embeddings(m->embedder.context, false);
    const int32_t *tokens = t.tokens;
    int32_t code = 0;
    for (uint32_t i = 0; i < t.n; tokens += t.n_tokens[i++]) {
        for (uint32_t k = 0; k + 1 < t.n_tokens[i]; k++) {
            b.add(tokens[k], k, i, false);
            if (b.is_full() && (code = step(m, b.in)) != 0) {
                return code;
            }
            b.in.n_tokens = b.is_full() ? 0 : b.in.n_tokens;
        }
    }
    return b.in.n_tokens == 0 ? 0 : step(m, b.in);
}

/* If `stepwise`, consumes the last token of each text. Otherwise consumes all tokens. Requests embeddings in both
 * cases. Returns llama_decode's code. */
int32_t conclude(model_llama *m, const texts &t, bool stepwise)
{
    batch b(llama_n_batch(m->embedder.context));
    llama_set_embeddings(m->embedder.context, true);
    const int32_t *tokens = t.tokens;
    for (uint32_t i = 0; i < t.n; tokens += t.n_tokens[i++]) {
        for (uint32_t k = stepwise ? t.n_tokens[i] - 1 : 0; k < t.n_tokens[i]; k++) {
            b.add(tokens[k], k, i, true);
        }
    }
    return step(m, b.in);
}

/* Embeds a batch of texts. Returns LLM_OK, LLM_CANCELLED or LLM_STEP_FAILED. */
int embed(model_llama *m, const texts &t, float *out)
{
    llama_context *context = m->embedder.context;
    const bool stepwise = is_stepwise(m);
    const size_t n_embedding = m->info.n_embedding;
    llama_memory_clear(llama_get_memory(context), false);
    int32_t code = stepwise ? consume(m, t) : 0;
    code = code == 0 ? conclude(m, t, stepwise) : code;
    if (code != 0) {
        return code == MODEL_LLAMA_STOPPED_CODE ? LLM_CANCELLED : LLM_STEP_FAILED;
    }
    llama_synchronize(context);
    for (uint32_t i = 0; i < t.n; i++) {
        const float *pooled = llama_get_embeddings_seq(context, static_cast<llama_seq_id>(i));
        if (pooled == nullptr) {
            return LLM_STEP_FAILED;
        }
        memcpy(out + i * n_embedding, pooled, n_embedding * sizeof *out);
    }
    return LLM_OK;
}

/* Returns how many texts form the next batch. The first text is always in the batch. Each following text is added until
 * a text does not fit. */
uint32_t n_fitting(const model_llama *m, const uint32_t *n_tokens, uint32_t n_texts)
{
    const uint32_t most = m->info.n_embedding_tokens;
    const uint32_t together = is_stepwise(m) ? most : std::min(most, TOKENS_TOGETHER);
    uint64_t sum = n_tokens[0];
    uint32_t n = 1;
    while (n < std::min(n_texts, TEXTS_MAX) && sum + n_tokens[n] <= together) {
        sum += n_tokens[n++];
    }
    return n;
}

void drop_context(model_llama *m)
{
    llama_free(m->embedder.context);
    m->embedder.context = nullptr;
}

} // namespace

bool model_llama_only_embeds(const char *arch)
{
    const auto is_arch = [arch](const char *name) { return strcmp(name, arch) == 0; };
    return std::any_of(std::begin(ONLY_EMBEDDING), std::end(ONLY_EMBEDDING), is_arch);
}

void model_llama_embedder_open(model_llama *m, const model_options &o)
{
    const std::string pooling = fact_of(m, "pooling_type"), trouble = pooling_trouble(pooling);
    if (!trouble.empty()) {
        throw std::runtime_error(trouble);
    }
    m->embedder.pooling = static_cast<int>(strtol(pooling.c_str(), nullptr, 10));
    m->info.n_threads = o.n_threads > 0 ? o.n_threads : model_llama_cores();
    m->info.n_embedding = static_cast<uint32_t>(llama_model_n_embd_out(m->weights));
    const uint32_t n_wished = o.n_ctx != 0 ? m->info.n_ctx : std::min(m->info.n_ctx, TOKENS_MAX);
    const uint32_t n_tokens =
        model_llama_text_plan(o.path, m->loading.params, context_params(m), {n_wished, o.n_ctx != 0, 0, 0, false});
    m->info.n_ctx = m->info.n_embedding_tokens = n_tokens;
    m->embedder.context = context_open(m);
    const int32_t token = 0;
    const uint32_t n = 1;
    std::vector<float> vector(m->info.n_embedding);
    if (m->embedder.context == nullptr || embed(m, {&token, &n, 1}, vector.data()) != LLM_OK) {
        const std::string cause = model_llama_log_cause();
        throw std::runtime_error(cause.empty() ? "its first pass failed" : cause);
    }
}

void model_llama_embedding_facts(model_llama *m)
{
    const std::string pooling = fact_of(m, "pooling_type");
    const bool attends_only = m->info.memory == LLM_MEMORY_DENSE || m->info.memory == LLM_MEMORY_WINDOW;
    if (!attends_only || !pooling_trouble(pooling).empty()) {
        return;
    }
    m->embedder.pooling = static_cast<int>(strtol(pooling.c_str(), nullptr, 10));
    const uint64_t cell_bytes = std::max<uint64_t>(1, m->cost.of(1));
    const uint64_t by_state = STATE_BYTES_MAX / cell_bytes;
    const uint64_t by_logits = is_stepwise(m) ? TOKENS_MAX : LOGITS_BYTES_MAX / (sizeof(float) * m->info.n_vocab);
    const uint64_t most = std::max<uint64_t>(TOKENS_MIN, std::min({by_state, by_logits, uint64_t{TOKENS_MAX}}));
    m->info.n_embedding = static_cast<uint32_t>(llama_model_n_embd_out(m->weights));
    m->info.n_embedding_tokens = static_cast<uint32_t>(std::min<uint64_t>(most, m->info.n_ctx));
}

int model_llama_embed(model *base, const int32_t *tokens, const uint32_t *n_tokens, uint32_t n_texts,
                      const int32_t *cancel_flag, float *out, uint32_t *n_done)
{
    model_llama *m = static_cast<model_llama *>(base);
    try {
        const std::lock_guard<std::mutex> turn(m->embedder.turn);
        const model_llama_opening refusing(nullptr); /* turns a failed assertion into an exception, as while a model is
                                                      * opened */
        const texts t = {tokens, n_tokens, n_fitting(m, n_tokens, n_texts)};
        try {
            if (m->embedder.context == nullptr) {
                m->embedder.context = context_open(m);
            }
            if (m->embedder.context == nullptr) {
                return LLM_NO_MEMORY;
            }
            m->embedder.cancel_flag = cancel_flag;
            const int status = embed(m, t, out);
            m->embedder.cancel_flag = nullptr; /* cancel_flag points to memory that the caller may free after this
                                                * call */
            if (status == LLM_OK) {
                *n_done = t.n;
            }
            if (status != LLM_STEP_FAILED) {
                return status;
            }
        } catch (const std::bad_alloc &) {
            drop_context(m);
            return LLM_NO_MEMORY;
        } catch (...) {
        }
        drop_context(m); /* the context's state after a failure is unknown; the next call makes a new context */
        return LLM_STEP_FAILED;
    } catch (...) {
        return LLM_NO_MEMORY;
    }
}
