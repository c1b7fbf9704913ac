/* open.cpp: opens a model in steps (open_in_steps). Each step can refuse the model with a status and an error message.
 * Any thread can open a model; the models are opened one after the other. */
#include "model/llama/llama_model.h"

#include <ggml-backend.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>

#include "model/llama/crash.h"
#include "model/llama/file.h"

namespace {

constexpr uint32_t N_BATCH_DEFAULT = 512;
constexpr uint32_t N_BATCH_MIN = 32;
constexpr uint32_t CELLS_MAX = 1u << 30;
constexpr uint32_t TOKEN_BYTES_NORMALIZED = 1024; /* bytes of a prompt per token, if the tokenizer merges blanks */

/* The reason why a model cannot be opened: a status of llm.h and a sentence. */
struct refusal : std::runtime_error {
    refusal(int status_, const std::string &text) : std::runtime_error(text), status(status_) {}
    int status;
};

/* ---- check and load the file ------------------------------------------------------------------------------------- */

/* Checks everything that can be checked before llama.cpp reads the file. Returns the model's size in bytes. */
uint64_t check_file(const model_options &o, const std::vector<ggml_backend_dev_t> &devices)
{
    char error[512];
    model_file file;
    const std::string trouble = model_llama_path_trouble(o.path);
    if (!trouble.empty()) {
        throw refusal(LLM_MODEL_LOAD, std::string("cannot open the model ") + o.path + ": " + trouble);
    }
    const int status = model_file_check(o.path, &file, error, sizeof error);
    if (status != LLM_OK) {
        throw refusal(status, error);
    }
    const std::string unserved = model_llama_architecture_trouble(file.architecture, !devices.empty());
    if (!unserved.empty()) {
        throw refusal(LLM_MODEL_LOAD, std::string("cannot serve the model ") + o.path + ": " + unserved);
    }
    try {
        if (!o.allow_oversize) {
            model_llama_size_check(file.n_bytes, devices);
        }
    } catch (const model_llama_no_room &e) {
        throw refusal(LLM_NO_MEMORY, std::string("no memory for the model ") + o.path + ": " + e.what());
    }
    return file.n_bytes;
}

[[noreturn]] void refuse_load(const std::string &path, const std::string &advice = "")
{
    const std::string cause = model_llama_log_cause();
    throw refusal(LLM_MODEL_LOAD, "cannot load the model " + path + ": " +
                                      (cause.empty() ? "llama.cpp gave no reason" : cause) + advice);
}

/* Returns the devices on which layers are put. The exact configuration (o.exact) runs on the CPU only. */
std::vector<ggml_backend_dev_t> gpus_of(const model_options &o)
{
    return o.exact || o.n_gpu_layers == 0 ? std::vector<ggml_backend_dev_t>() : model_llama_devices();
}

/* The result of llm_loading_progress. Written by the thread that loads the model, read by any thread. */
std::atomic<uint32_t> loaded_thousandths;

bool on_progress(float share, void *)
{
    loaded_thousandths = static_cast<uint32_t>(1000 * std::clamp(share, 0.0f, 1.0f));
    return true;
}

/* Some older models (Command R, Hermes 2 and 3) have two templates in their file. Only the second, tool_use, supports
 * tools. A template from the options replaces both. */
void take_templates(model_llama *m, const model_options &o)
{
    const bool is_own = o.chat_template != nullptr;
    const char *usual = is_own ? o.chat_template : llama_model_chat_template(m->weights, nullptr);
    const char *with_tools = is_own ? nullptr : llama_model_chat_template(m->weights, "tool_use");
    m->tool_template_source = with_tools != nullptr ? with_tools : "";
    m->template_source = usual != nullptr ? usual : m->tool_template_source;
}

void load(model_llama *m, const model_options &o)
{
    llama_model_params params = m->loading.params;
    params.progress_callback = on_progress;
    loaded_thousandths = 0;
    m->weights = llama_model_load_from_file(o.path, params);
    if (m->weights == nullptr) {
        const bool was_asked = o.n_gpu_layers > 0 && !m->loading.is_fitted() && !gpus_of(o).empty();
        refuse_load(o.path, was_asked ? " (--gpu-layers -1: as many as fit)" : "");
    }
    if (m->copies_weights) {
        model_llama_drop_mapped(m->weights, o.path); /* copied weights are not read from the file again */
    }
    if (llama_model_has_encoder(m->weights) || !llama_model_has_decoder(m->weights) ||
        llama_model_is_diffusion(m->weights)) {
        throw refusal(LLM_MODEL_LOAD, std::string("cannot serve the model ") + o.path +
                                          ": it neither generates text token by token nor makes embeddings of texts (a "
                                          "model for translation, perhaps); choose another");
    }
    m->vocab = llama_model_get_vocab(m->weights);
    try {
        model_llama_vocabulary_check(m->vocab);
    } catch (const std::runtime_error &e) {
        throw refusal(LLM_MODEL_LOAD, std::string("cannot serve the model ") + o.path + ": " + e.what());
    }
    take_templates(m, o);
}

/* ---- fill model_info --------------------------------------------------------------------------------------------- */

template <size_t N> void copy_text(char (&out)[N], const std::string &text)
{
    size_t n = std::min(text.size(), N - 1);
    while (n < text.size() && n > 0 && (static_cast<unsigned char>(text[n]) & 0xc0) == 0x80) {
        n--; /* ends the text before a UTF-8 character that does not fit */
    }
    memcpy(out, text.data(), n);
    out[n] = '\0';
}

std::string stem_of(const std::string &path)
{
    const size_t slash = path.rfind('/');
    std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
    const size_t dot = name.rfind(".gguf");
    return dot == std::string::npos || dot == 0 ? name : name.substr(0, dot);
}

std::string backend_of(const model_options &o)
{
    std::string out;
    for (ggml_backend_dev_t device : gpus_of(o)) {
        out += (out.empty() ? "" : ", ") + std::string(ggml_backend_dev_name(device)) + " (" +
               ggml_backend_dev_description(device) + ")";
    }
    return out.empty() ? "CPU" : out;
}

/* A hybrid model with a sliding window counts as hybrid: its recurrent state already makes truncating impossible. */
llm_memory memory_of(const model_llama *m)
{
    if (model_llama_only_embeds(model_llama_metadata(m, "general.architecture").c_str())) {
        return LLM_MEMORY_NONE;
    }
    if (llama_model_is_recurrent(m->weights)) {
        return LLM_MEMORY_RECURRENT;
    }
    if (llama_model_is_hybrid(m->weights)) {
        return LLM_MEMORY_HYBRID;
    }
    return llama_model_n_swa(m->weights) > 0 ? LLM_MEMORY_WINDOW : LLM_MEMORY_DENSE;
}

/* Returns the context length of a session. If the options give no n_ctx, the length is at most MODEL_N_CTX_DEFAULT_MAX.
 * An n_ctx in the options can be as large as the context for which the model was trained. */
uint32_t n_ctx_of(const model_llama *m, const model_options &o)
{
    const int32_t n_train = llama_model_n_ctx_train(m->weights);
    const uint32_t most = n_train <= 0 ? CELLS_MAX : std::min(CELLS_MAX, static_cast<uint32_t>(n_train));
    if (o.n_ctx > most) {
        throw refusal(LLM_INVALID, "n_ctx is " + std::to_string(o.n_ctx) + ", but this model can hold at most " +
                                       std::to_string(most) + " tokens: it was trained for no more");
    }
    return o.n_ctx != 0   ? o.n_ctx
           : n_train <= 0 ? MODEL_LLAMA_N_CTX_USUAL
                          : std::min<uint32_t>(most, MODEL_N_CTX_DEFAULT_MAX);
}

/* Returns how many bytes of a prompt one token can stand for at most. This limit lets llmd refuse too long prompts
 * before they are tokenized. Some tokenizers turn a run of blanks into one token. Such a token can stand for more bytes
 * than the longest text in the vocabulary has. */
uint32_t token_bytes_max(const model_llama *m)
{
    const auto type = llama_vocab_type(m->vocab);
    const bool normalizes = type == LLAMA_VOCAB_TYPE_WPM || type == LLAMA_VOCAB_TYPE_UGM;
    int32_t longest = normalizes ? TOKEN_BYTES_NORMALIZED : 1;
    for (int32_t token = 0; token < llama_vocab_n_tokens(m->vocab); token++) {
        longest = std::max(longest, -llama_token_to_piece(m->vocab, token, nullptr, 0, 0, true));
    }
    return static_cast<uint32_t>(longest);
}

void fill_info(model_llama *m, const model_options &o)
{
    model_info &info = m->info;
    const int32_t n_train = llama_model_n_ctx_train(m->weights);
    info.n_ctx_train = n_train < 0 ? 0 : static_cast<uint32_t>(n_train);
    info.n_ctx = n_ctx_of(m, o);
    info.n_vocab = static_cast<uint32_t>(llama_vocab_n_tokens(m->vocab));
    info.token_bytes_max = token_bytes_max(m);
    info.n_seq = o.n_seq;
    info.memory = memory_of(m);
    info.kv_type = o.kv_type;
    info.n_window = static_cast<uint32_t>(std::max(0, llama_model_n_swa(m->weights)));
    const bool can_truncate = info.memory == LLM_MEMORY_DENSE || info.memory == LLM_MEMORY_NONE;
    info.checkpoint = can_truncate                          ? MODEL_CHECKPOINT_NONE
                      : info.memory == LLM_MEMORY_RECURRENT ? MODEL_CHECKPOINT_WHOLE
                                                            : MODEL_CHECKPOINT_ATTACHED;
    info.n_drafting =
        model_llama_n_drafting(info.memory, model_llama_metadata(m, "general.architecture").c_str(), o.n_seq);
    info.n_params = llama_model_n_params(m->weights);
    info.model_bytes = llama_model_size(m->weights);
    info.sampling_default = model_llama_sampling_default(m);
    const std::string name = model_llama_metadata(m, "general.name");
    copy_text(info.name, name.empty() ? stem_of(o.path) : name);
    copy_text(info.arch, model_llama_metadata(m, "general.architecture"));
    copy_text(info.description, model_llama_description(m));
    copy_text(info.backend, backend_of(o));
    info.is_on_gpu = !gpus_of(o).empty();
}

/* ---- make the context -------------------------------------------------------------------------------------------- */

bool attends_only(const model_llama *m)
{
    return m->info.memory == LLM_MEMORY_DENSE || m->info.memory == LLM_MEMORY_WINDOW;
}

/* Returns whether each sequence has its own KV cells, called a stream. Otherwise all sequences share the cells of one
 * pool. In both layouts one call can mix tokens of sequences (cmake/llama/0009-streams.patch).
 *
 * In one pool a copied sequence takes no cells, and a session takes only as many cells as it needs. But attention reads
 * all cells between a session's first and last cell. After the session has outgrown its part of the pool, this range
 * includes cells of other sessions (cmake/llama/0013-unified.patch). With separate streams no session slows down
 * another, but each session needs addresses for a full context. In host memory addresses cost nothing, so
 * attention-only models on a CPU have streams. All other models have a pool: GPU cells take memory from the start, and
 * hybrids have few attention layers.
 *
 * The exact configuration has separate streams and no flash attention, because results must not depend on other tokens
 * of the batch. Other configurations use flash attention if the model supports it. Without flash attention, the V cache
 * is transposed: a layer writes the V of a token into a thousand rows instead of one. */
bool wants_streams(const model_llama *m, const model_options &o)
{
    return o.exact || (attends_only(m) && gpus_of(o).empty());
}

llama_context_params context_params(const model_options &o, uint32_t n_ctx, bool is_unified)
{
    llama_context_params p = llama_context_default_params();
    p.n_ctx = n_ctx;
    p.n_batch = std::max({o.n_batch == 0 ? N_BATCH_DEFAULT : o.n_batch, N_BATCH_MIN, o.n_seq});
    p.n_ubatch = p.n_batch;
    p.n_seq_max = o.n_seq;
    p.n_outputs_max = std::min(p.n_batch, o.n_seq + MODEL_OUTPUTS_BESIDE);
    p.n_threads = o.n_threads > 0 ? o.n_threads : model_llama_cores();
    p.n_threads_batch = p.n_threads;
    p.flash_attn_type = o.exact ? LLAMA_FLASH_ATTN_TYPE_DISABLED : LLAMA_FLASH_ATTN_TYPE_AUTO;
    p.type_k = p.type_v = model_llama_kv_type(o.kv_type);
    p.kv_unified = is_unified;
    p.swa_full = false;
    p.embeddings = false;
    p.no_perf = true;
    return p;
}

/* Returns how many cells are tried first. On the host, unused cells take only addresses, so each session gets its full
 * context. On a device, each session gets n_ctx cells if the options give n_ctx. Otherwise each gets
 * MODEL_LLAMA_N_CTX_USUAL cells, and the pool has at least the cells of one full context. */
uint64_t wished_cells(const model_llama *m, const model_options &o)
{
    const uint64_t one = model_llama_padded(m->info.n_ctx);
    const bool is_asked = o.n_ctx != 0 || gpus_of(o).empty();
    return is_asked ? one * o.n_seq : std::max(one, std::min<uint64_t>(one, MODEL_LLAMA_N_CTX_USUAL) * o.n_seq);
}

llama_context_params wished_params(const model_llama *m, const model_options &o)
{
    const uint64_t wished = wished_cells(m, o);
    const bool is_fixed = m->info.memory == LLM_MEMORY_RECURRENT && !o.exact; /* a recurrent model has no cells */
    const uint64_t n = is_fixed ? model_llama_padded(m->info.n_ctx) : std::min<uint64_t>(wished, CELLS_MAX);
    return context_params(o, static_cast<uint32_t>(n), !wants_streams(m, o));
}

/* Decides, before the model is loaded, which weights go to devices. Returns how many layers go there, or -1 for all. */
int32_t place_weights(model_llama *m, const model_options &o, uint64_t n_bytes)
{
    m->loading.ask(o.exact ? 0 : o.n_gpu_layers, m->copies_weights);
    const uint32_t n_ctx = model_llama_padded(o.n_ctx != 0 ? o.n_ctx : MODEL_LLAMA_N_CTX_USUAL);
    m->loading.fit(o.path, n_bytes, context_params(o, n_ctx, true));
    return m->loading.params.n_gpu_layers;
}

model_llama_wish wish_of(const model_llama *m, const model_options &o)
{
    return {m->info.n_ctx, o.n_ctx != 0, m->info.n_window, o.kv_bytes_max, m->is_stateful()};
}

/* Chooses the number of cells in a device's memory, where all cells take memory from the start. */
void size_pool(model_llama *m, const model_options &o, llama_context_params *p)
{
    const bool has_cells = m->info.memory != LLM_MEMORY_RECURRENT;
    const model_llama_wish wish = wish_of(m, o);
    const model_llama_cells cells = model_llama_cells_plan(o.path, m->loading.params, *p, wish);
    p->n_ctx = cells.n_ctx;
    m->info.n_ctx = has_cells ? std::min(m->info.n_ctx, cells.n_ctx) : m->info.n_ctx;
    m->info.n_cells = has_cells ? cells.n_ctx : UINT32_MAX;
    m->info.state_bytes = cells.state_bytes;
    m->cost.token_bytes = has_cells ? cells.state_bytes / cells.n_ctx : 0;
    m->cost.fixed_bytes = has_cells ? 0 : cells.state_bytes;
}

/* Chooses the number of cells in host memory, where a cell takes memory only when it is first used. */
void size_reserve(model_llama *m, const model_options &o, llama_context_params *p)
{
    const model_llama_reserve reserve =
        model_llama_reserve_plan(o.path, m->loading.params, m->weights, *p, wish_of(m, o));
    m->cost = reserve.cost;
    m->info.n_ctx = reserve.n_ctx;
    m->info.state_bytes = reserve.budget;
    const bool has_cells = m->info.memory != LLM_MEMORY_RECURRENT;
    m->info.n_cells = has_cells ? reserve.n_tokens : UINT32_MAX;
    p->n_ctx = has_cells || !p->kv_unified ? reserve.n_pool : model_llama_padded(reserve.n_ctx);
}

void size_memory(model_llama *m, const model_options &o, llama_context_params *p)
{
    if (gpus_of(o).empty()) {
        size_reserve(m, o, p);
    } else {
        size_pool(m, o, p);
    }
    m->has_pool = p->kv_unified;
    m->info.mixed_calls =
        (attends_only(m) && !model_llama_splits_calls(m->info.arch)) || llama_model_takes_parts(m->weights);
    /* After a stop, the recurrent state of only one sequence can be restored (model_llama_undo). A device ignores the
     * abort callback, so no call can be stopped there. */
    m->info.n_stoppable = !gpus_of(o).empty() ? 0 : attends_only(m) ? o.n_seq : 1;
}

[[noreturn]] void refuse_room(const std::string &path, const model_llama_no_room &e)
{
    throw refusal(LLM_NO_MEMORY, "no memory for the model " + path + ": " + e.what());
}

/* Refuses a model whose context or first step fails. If the log names no cause, a device lacks memory. */
[[noreturn]] void refuse_steps(const model_options &o)
{
    if (gpus_of(o).empty() || !model_llama_log_cause().empty()) {
        refuse_load(o.path, o.kv_type == LLM_KV_F16 ? "" : " (--kv-type f16: this model may support no other type)");
    }
    throw refusal(LLM_NO_MEMORY,
                  std::string("no memory for the model ") + o.path +
                      ": the device has too little free memory to compute a step; set a smaller --gpu-layers");
}

/* Makes a context. On a device, also computes its largest step. Returns false if this failed; llama.cpp's log may say
 * why. */
bool open_context(model_llama *m, const model_options &o, llama_context_params *p)
{
    try {
        size_memory(m, o, p);
    } catch (const model_llama_no_room &e) {
        refuse_room(o.path, e);
    } catch (const std::runtime_error &) {
        return false;
    }
    m->context = llama_init_from_model(m->weights, *p);
    if (m->context != nullptr && !gpus_of(o).empty() && !model_llama_largest_step(m->context, p->n_outputs_max)) {
        llama_free(m->context);
        m->context = nullptr;
    }
    return m->context != nullptr;
}

/* A device's free memory may be in several pieces, and a driver may report more than it can allocate. So if a pool
 * cannot be made, a pool with half of the cells is tried, as long as one session fits. */
void make_context(model_llama *m, const model_options &o)
{
    llama_context_params p = wished_params(m, o);
    const bool is_pool = !gpus_of(o).empty() && m->info.memory != LLM_MEMORY_RECURRENT;
    while (!open_context(m, o, &p)) {
        if (!is_pool || !model_llama_cells_halve(wish_of(m, o), &p.n_ctx)) {
            refuse_steps(o);
        }
        model_llama_log_clear();
    }
    m->memory = llama_get_memory(m->context);
    if (m->memory == nullptr) {
        throw refusal(LLM_MODEL_LOAD,
                      std::string("cannot serve the model ") + o.path + ": it has no KV cache; choose a chat model");
    }
    if (m->info.memory == LLM_MEMORY_RECURRENT) {
        model_llama_log_clear(); /* llama.cpp logs "Flash Attention enabled" even without attention layers */
    }
    m->info.shares_cells = m->has_pool || llama_memory_is_shareable(m->memory);
    m->info.n_batch = llama_n_batch(m->context);
    m->info.n_outputs_max = std::min(m->info.n_batch, p.n_outputs_max);
    m->info.kv_token_bytes = m->cost.token_bytes;
    m->info.n_threads = llama_n_threads(m->context);
    m->threads.open(m->info.n_threads);
    llama_attach_threadpool(m->context, m->threads.of_ggml(), m->threads.of_ggml());
    llama_set_abort_callback(m->context, model_llama_is_stopped, m);
}

/* Makes the only context of a model that only computes embeddings. */
void make_embedder(model_llama *m, const model_options &o)
{
    m->info.n_batch = std::max(o.n_batch, N_BATCH_MIN); /* used only to size the engine's buffers */
    m->info.n_outputs_max = o.n_seq + MODEL_OUTPUTS_BESIDE;
    try {
        model_llama_embedder_open(m, o);
    } catch (const model_llama_no_room &e) {
        refuse_room(o.path, e);
    } catch (const std::runtime_error &e) {
        throw refusal(LLM_MODEL_LOAD, std::string("cannot serve the model ") + o.path + ": " + e.what());
    }
}

void allocate(model_llama *m)
{
    const uint32_t n_batch = m->info.n_batch;
    m->positions.assign(m->info.n_seq, 0);
    if (!shared_prefixes_open(&m->shared, m->info.shares_cells ? m->info.n_seq : 0)) {
        throw std::bad_alloc();
    }
    m->ends.assign(m->info.n_seq, 0);
    m->is_touched.assign(m->info.n_seq, 0);
    m->touched.reserve(m->info.n_seq);
    m->tokens.assign(n_batch, 0);
    m->batch_positions.assign(n_batch, 0);
    m->n_seqs.assign(n_batch, 1);
    m->seqs.assign(n_batch, 0);
    m->output_flags.assign(n_batch, 0);
    for (llama_seq_id &seq : m->seqs) {
        m->seq_pointers.push_back(&seq);
    }
}

/* A model that has_long_rope has two encodings of positions. Returns the longest context that uses the first one. */
uint32_t short_rope_tokens(const model_llama *m)
{
    char text[32] = "";
    const std::string key = std::string(m->info.arch) + ".rope.scaling.original_context_length";
    return llama_model_meta_val_str(m->weights, key.c_str(), text, sizeof text) > 0
               ? static_cast<uint32_t>(strtoul(text, nullptr, 10))
               : m->info.n_ctx_train;
}

/* Computes identity and geometry. The geometry is a hash of everything that changes the bytes of a state, or their
 * meaning: llama.cpp's version and state format, the type of keys and values and whether they are rotated, flash
 * attention, the encoding of positions, and the number of separate streams. Flash attention decides the layout of V. In
 * one pool, the number of sequences does not change a state. */
void identify(model_llama *m, const model_options &o)
{
    bool has_long_rope = false;
    if (!model_llama_identity(o.path, m->info.identity, &has_long_rope)) {
        throw refusal(LLM_MODEL_LOAD, std::string("cannot read the model ") + o.path + " to its end");
    }
    const bool is_long = has_long_rope && m->context != nullptr && llama_n_ctx_seq(m->context) > short_rope_tokens(m);
    model_llama_geometry(std::string("llama ") + llama_version() + " state " + std::to_string(LLAMA_STATE_SEQ_VERSION) +
                             " kv " + model_llama_kv_meaning(o.kv_type) + " flash " + (o.exact ? "off" : "auto") +
                             (is_long ? " rope long" : " rope short") +
                             (m->has_pool ? " unified" : " streams " + std::to_string(o.n_seq)),
                         m->info.geometry);
}

void check_options(const model_options &o)
{
    if (o.n_seq < 1 || o.n_seq > llama_max_parallel_sequences()) {
        throw refusal(LLM_INVALID, "n_seq is " + std::to_string(o.n_seq) + ", but must be between 1 and " +
                                       std::to_string(llama_max_parallel_sequences()));
    }
    if (o.n_batch > CELLS_MAX) {
        throw refusal(LLM_INVALID, "n_batch is " + std::to_string(o.n_batch) + ", which is too large");
    }
}

std::unique_ptr<model_llama> open_in_steps(model_options o)
{
    model_llama_backend_open();
    model_llama_log_clear();
    check_options(o);
    const model_llama_opening opening(o.crash_notice); /* comes first, because assertions of drivers can fail, too */
    const uint64_t n_bytes = check_file(o, gpus_of(o));
    auto m = std::make_unique<model_llama>();
    m->ops = &model_llama_ops;
    m->info = model_info();
    m->is_exact = o.exact;
    m->copies_weights = model_file_may_be_copied(n_bytes, model_llama_memory_free());
    o.n_gpu_layers = place_weights(m.get(), o, n_bytes);
    load(m.get(), o);
    fill_info(m.get(), o);
    const std::string kv_trouble = model_llama_kv_type_trouble(m.get(), o.exact);
    if (!kv_trouble.empty()) {
        throw refusal(LLM_INVALID, kv_trouble);
    }
    if (m->info.memory == LLM_MEMORY_NONE) {
        make_embedder(m.get(), o);
    } else {
        make_context(m.get(), o);
        model_llama_embedding_facts(m.get());
    }
    m->info.host_bytes =
        model_llama_host_bytes(m->weights, m->loading, m->context != nullptr ? m->context : m->embedder.context);
    allocate(m.get());
    identify(m.get(), o);
    if (m->info.memory != LLM_MEMORY_NONE && !model_llama_first_steps(m.get(), o)) {
        refuse_steps(o);
    }
    loaded_thousandths = 1000;
    return m;
}

} // namespace

uint32_t model_llama_progress(void)
{
    return loaded_thousandths;
}

int model_llama_open(const model_options *options, model **out, char *error, size_t error_bytes)
{
    static std::mutex one_at_a_time; /* llama.cpp's log and its measurements of memory concern the whole process */
    const auto refuse = [&](int status, const char *text) {
        if (error != nullptr && error_bytes > 0) {
            snprintf(error, error_bytes, "%s", text);
        }
        return status;
    };
    const auto fail = [&](const char *why) { /* allocates nothing, because the cause may be a lack of memory */
                                             if (error != nullptr && error_bytes > 0) {
                                                 snprintf(error, error_bytes, "cannot load the model %s: %s",
                                                          options->path, why);
                                             }
                                             return LLM_MODEL_LOAD;
    };
    *out = nullptr;
    try {
        const std::lock_guard<std::mutex> hold(one_at_a_time);
        *out = open_in_steps(*options).release();
        return LLM_OK;
    } catch (const refusal &r) {
        return refuse(r.status, r.what());
    } catch (const std::bad_alloc &) {
        return refuse(LLM_NO_MEMORY, "out of memory while opening the model");
    } catch (const std::exception &e) {
        return fail(e.what());
    } catch (...) {
        return fail("llama.cpp failed in an unknown way");
    }
}
