/* llama_model.h: what the files of the llama.cpp model share. Private to them; everything else goes through model.h.
 *
 *   llama_model.cpp  sequences and text: the operations
 *   state.cpp        sequences as bytes: copies, checkpoints, parked states
 *   undo.cpp         calls that are given up
 *   embed.cpp        embeddings of texts
 *   open.cpp         loading, context, facts
 *   first_steps.cpp  steps made at opening, before the first request
 *   architecture.cpp architectures that are refused
 *   offload.cpp      which weights are put on devices
 *   mapped.cpp       which pages of the model's files stay in memory
 *   path.cpp         what a path names that is no model file
 *   file.cpp         the header of a model file, checked before llama.cpp reads it
 *   vocabulary.cpp   checks of the vocabulary
 *   crash.cpp        failed assertions and crashes of llama.cpp while a model is opened
 *   threads.cpp      the threads of its steps, and how many
 *   processor.cpp    the features of this processor, and which of them are used
 *   log.cpp          llama.cpp's log, and the global set-up of the backends
 *   memory.cpp       how many KV cells fit the memory
 *   identity.cpp     hashes that tell models, and layouts of their states, apart
 */
#ifndef LLM_MODEL_LLAMA_H
#define LLM_MODEL_LLAMA_H

#include <ggml-backend.h>
#include <llama.h>

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "machine/idle_cores.h"
#include "machine/team.h"
#include "model/model.h"

/* Declared as in the pinned source's src/llama-ext.h, which is not installed. */
struct llama_memory_breakdown_data {
    size_t model, context, compute;
};
std::map<ggml_backend_buffer_type_t, llama_memory_breakdown_data> llama_get_memory_breakdown(
    const llama_context *context);

/* The threads that compute a context's steps, together with the calling one. They spin for 0.2 ms at a barrier, then
 * sleep, and sleep between steps: OpenMP's threads spin for as long as a thread without a core takes. The number of
 * threads of small steps changes while others want the cores (machine/team.h). One user at a time. */
class model_llama_threads {
  public:
    model_llama_threads() = default;
    ~model_llama_threads(); /* the context is closed */
    model_llama_threads(const model_llama_threads &) = delete;
    model_llama_threads &operator=(const model_llama_threads &) = delete;

    void open(int32_t n); /* once; the threads inherit the caller's nice value */
    /* For llama_attach_threadpool. NULL: the caller is the only thread. */
    ggml_threadpool_t of_ggml() const
    {
        return pool;
    }
    void set(int32_t n) /* fixes the number for small steps */
    {
        team_open(&small, n, n);
    }
    /* From now on small steps use n threads, or fewer while other processes want the cores. n was fastest in the
     * measurement since `watch`. More than n are tried later only if other processes wanted the cores during that
     * measurement: then more may be faster when they are gone. */
    void adapt(int32_t n);
    void watch();
    int32_t begin(uint32_t n_tokens); /* returns the number of threads for the next step */
    void end(uint32_t n_tokens);      /* after a step that succeeded */

  private:
    ggml_threadpool_t pool = nullptr;
    team small{};
    idle_cores idle{};
    int32_t n_most = 0;
    bool is_adaptive = false;
    uint64_t begun_us = 0, begun_waited_ns = 0;     /* of a step */
    uint64_t watched_us = 0, watched_waited_ns = 0; /* since `watch` */
    std::vector<int> waits;                         /* schedstat files: how long each pool thread waited for a core, */
    int own_waits = -1;                             /* and the caller */
    pid_t own = 0;                                  /* the caller whose file own_waits is */

    uint64_t all_waited_ns();
};

/* The second context, which computes embeddings: embed.cpp. */
struct model_llama_embedder {
    std::mutex turn;                  /* held by the thread that uses the context */
    llama_context *context = nullptr; /* NULL until the first use, unless the model only embeds */
    model_llama_threads threads;
    const int32_t *cancel_flag = nullptr; /* the flag of the call that holds `turn`: see llm_embed */
    int pooling = 0;                      /* llama_pooling_type; fixed */
};

constexpr int32_t MODEL_LLAMA_STOPPED_CODE = 2; /* of llama_decode: the abort callback said true */
/* Tokens of a session where no size is given: a device's pool, which takes all its memory at once, is made for so many
 * of each session; and a model whose file states no context length gets no more. */
constexpr uint32_t MODEL_LLAMA_N_CTX_USUAL = 8192;
constexpr uint32_t MODEL_LLAMA_CELLS_STEP = 256; /* llama.cpp's own padding of a context */

inline uint32_t model_llama_padded(uint32_t n)
{
    return (n + MODEL_LLAMA_CELLS_STEP - 1) / MODEL_LLAMA_CELLS_STEP * MODEL_LLAMA_CELLS_STEP;
}

/* Bytes that sequences take. Each token costs token_bytes; layers with a sliding window add window_token_bytes for each
 * of the last n_window_tokens. */
struct model_llama_cost {
    uint64_t fixed_bytes = 0;        /* running states of all sequences, however few tokens these have */
    uint64_t token_bytes = 0;        /* in layers that keep all tokens */
    uint64_t window_token_bytes = 0; /* in those that keep n_window_tokens */
    uint32_t n_window_tokens = 0;
    uint64_t of(uint64_t n_tokens) const /* of one sequence, beside what is fixed */
    {
        return n_tokens * token_bytes + std::min<uint64_t>(n_tokens, n_window_tokens) * window_token_bytes;
    }
};

/* How llama.cpp is to load the weights. `params` points into this object, so it must not be moved. */
struct model_llama_loading {
    llama_model_params params;
    std::vector<float> split; /* layers of each device */
    std::vector<llama_model_tensor_buft_override> overrides;

    model_llama_loading();
    model_llama_loading(const model_llama_loading &) = delete;
    model_llama_loading &operator=(const model_llama_loading &) = delete;

    void ask(int32_t n_gpu_layers, bool copies_weights); /* -1: all */

    /* If all layers are asked for, but the devices have no room for them beside this context: puts as many on the
     * devices as fit; the experts of a mixture make room first. The file has n_bytes. Not for concurrent use. */
    void fit(const char *path, uint64_t n_bytes, llama_context_params context);
    bool is_fitted() const
    {
        return params.tensor_buft_overrides != nullptr; /* the list may be empty */
    }
};

struct model_llama;

/* Undoes a decode call that is given up, or fails half-way. Attention can be truncated to where it was. A running state
 * cannot: it is copied before the call, which takes some milliseconds, and put back. So a prefill of a hybrid model can
 * be given up, too; before, a cancel had to wait for its end, and calls were kept short for that reason. */
class model_llama_undo {
  public:
    model_llama_undo(model_llama *m, const model_batch *b);
    ~model_llama_undo();
    model_llama_undo(const model_llama_undo &) = delete;
    model_llama_undo &operator=(const model_llama_undo &) = delete;

    bool is_possible() const
    {
        return can_undo;
    }
    bool undo(); /* false: the state of the sequences is invalid */

  private:
    model_llama *m;
    bool can_undo = false;
    void *state = nullptr; /* mapped, so that the memory goes back to the system after the call */
    size_t n_bytes = 0;
};

/* Owned by its opener; sequences belong to one thread (model.h). */
struct model_llama final : model {
    model_llama_loading loading;
    llama_model *weights = nullptr;
    llama_context *context = nullptr; /* NULL: the model only embeds */
    llama_memory_t memory = nullptr;  /* inside context */
    model_llama_threads threads;
    const llama_vocab *vocab = nullptr;
    std::string template_source, tool_template_source; /* empty: none */
    model_llama_embedder embedder;
    bool is_exact = false;      /* warm results equal cold ones to the bit, not only up to rounding */
    bool copies_weights = true; /* into the layouts that are fastest on this processor */
    model_llama_cost cost;      /* in a device's pool: a token's share of it */

    /* Tokens that each sequence has consumed. Counted here, because llama.cpp's own account is wrong after a failed
     * step. */
    std::vector<uint32_t> positions;

    /* The batch in llama.cpp's form, allocated once. */
    std::vector<llama_token> tokens;
    std::vector<llama_pos> batch_positions;
    std::vector<int32_t> n_seqs;
    std::vector<llama_seq_id> seqs;
    std::vector<llama_seq_id *> seq_pointers;
    std::vector<int8_t> output_flags; /* whether logits exist at this index of the last successful call */
    uint32_t n_output_flags = 0;   /* how many entries of `output_flags` are valid; 0 unless the last call succeeded */
    std::vector<uint16_t> touched; /* sequences of the batch, each once */
    std::vector<uint32_t> ends;    /* by sequence: its position after the batch; valid for those in `touched` */
    std::vector<uint8_t> is_touched;
    const model_batch *running = nullptr; /* the batch of the present call, if that can be given up */

    bool is_stateful() const /* some layers keep a running state instead of one cell for each token */
    {
        return info.memory == LLM_MEMORY_RECURRENT || info.memory == LLM_MEMORY_HYBRID;
    }

    bool has(uint16_t seq) const /* a model that only embeds has none */
    {
        return context != nullptr && seq < info.n_seq;
    }

    ~model_llama();
};

extern const model_ops model_llama_ops;

bool model_llama_is_stopped(void *m); /* llama.cpp's abort callback: called between two operations of a call */

/* Tokens that llama.cpp's memory holds for the sequence. */
uint32_t model_llama_memory_position(const model_llama *m, uint16_t seq);

/* ---- state.cpp: operations of model.h ---------------------------------------------------------------------------- */

bool model_llama_copy(model *base, uint16_t src, uint16_t dst);
size_t model_llama_state_bytes(model *base, uint16_t seq, model_state_kind kind);
size_t model_llama_state_save(model *base, uint16_t seq, model_state_kind kind, void *out, size_t n_bytes);
model_result model_llama_state_load(model *base, uint16_t seq, model_state_kind kind, uint32_t k, const void *bytes,
                                    size_t n_bytes);

/* ---- embed.cpp --------------------------------------------------------------------------------------------------- */

bool model_llama_only_embeds(const char *arch);   /* an encoder: it has no memory of texts */
void model_llama_embedding_facts(model_llama *m); /* for a model with memory, after its other facts */

/* For a model that only embeds: facts, context, and a first pass. Throws model_llama_no_room, or std::runtime_error
 * with what the model lacks. */
void model_llama_embedder_open(model_llama *m, const model_options &o);
int model_llama_embed(model *base, const int32_t *tokens, const uint32_t *n_tokens, uint32_t n_texts,
                      const int32_t *cancel_flag, float *out, uint32_t *n_done);

/* ---- log.cpp ----------------------------------------------------------------------------------------------------- */

void model_llama_backend_open(); /* once per process; any number of calls, any thread */
void model_llama_log_clear();
std::string model_llama_log_device_error(); /* the last error of a device's driver; "": none */
bool model_llama_log_has_flash();           /* whether a context with flash attention was made since the last clear */
std::string model_llama_log_cause();        /* llama.cpp's first error since the last clear, for people; may be "" */

/* ---- path.cpp ---------------------------------------------------------------------------------------------------- */

/* Why this is no GGUF file, and what to do; "": it is one. */
std::string model_llama_path_trouble(const std::string &path);

/* ---- architecture.cpp -------------------------------------------------------------------------------------------- */

/* Why models of this architecture are not supported, with layers on a GPU or without; "": they are. */
std::string model_llama_architecture_trouble(const char *architecture, bool is_on_gpu);

/* Returns whether a call is one pass only if each of its sequences has equally many tokens: an indexer picks tokens for
 * whole streams. */
bool model_llama_splits_calls(const char *architecture);

/* ---- vocabulary.cpp ---------------------------------------------------------------------------------------------- */

void model_llama_vocabulary_check(const llama_vocab *vocab); /* throws std::runtime_error with a reason */

/* ---- offload.cpp ------------------------------------------------------------------------------------------------- */

std::vector<ggml_backend_dev_t> model_llama_devices();     /* all devices that layers can be put on */
bool model_llama_is_integrated(ggml_backend_dev_t device); /* its memory is the host's */

/* Bytes of weights that the CPU computes with although there is a device; 0: none. */
uint64_t model_llama_host_bytes(const llama_model *weights, const model_llama_loading &loading,
                                const llama_context *context);

/* ---- memory.cpp -------------------------------------------------------------------------------------------------- */

struct model_llama_cells {
    uint32_t n_ctx;       /* for llama_context_params: cells of the whole pool */
    uint64_t state_bytes; /* what they and the recurrent states take */
};

struct model_llama_wish {
    uint32_t n_ctx; /* tokens of one sequence */
    bool is_exact;  /* true: exactly n_ctx, or a refusal; false: at most n_ctx */
    uint32_t n_window;
    uint64_t budget; /* bytes; 0: a share of the free memory */
};

struct model_llama_reserve {
    uint32_t n_ctx;    /* tokens of one sequence */
    uint32_t n_pool;   /* for llama_context_params: the cells of all sequences, which are only addresses */
    uint64_t budget;   /* bytes of them that may be used; no more than there are */
    uint32_t n_tokens; /* the longest sequence that the budget allows; no more than there are cells */
    model_llama_cost cost;
};

/* Not even the smallest pool fits; the text says what is needed and what is free. */
struct model_llama_no_room : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/* Sizes the pool on a device, where all cells take memory at once: about the largest pool that the budget allows, with
 * at most params.n_ctx cells, and at least wish.n_ctx if that is asked for. Throws model_llama_no_room, or
 * std::runtime_error if llama.cpp makes no such context (its log says why). Not for concurrent use. */
model_llama_cells model_llama_cells_plan(const char *path, const llama_model_params &weights,
                                         const llama_context_params &params, const model_llama_wish &wish);

/* Halves the cells, for a device that gives no more memory in one piece. False: they would not be enough for one
 * session. */
bool model_llama_cells_halve(const model_llama_wish &wish, uint32_t *n_cells);

/* Sizes the cells on the host, where they take memory when they are used. Throws as model_llama_cells_plan; if one
 * sequence alone would exceed the budget, the text names the option to change. */
model_llama_reserve model_llama_reserve_plan(const char *path, const llama_model_params &loading, llama_model *weights,
                                             const llama_context_params &params, const model_llama_wish &wish);

/* Tokens of one text that fit the memory in a context of these `params`, which takes the whole text at once; exactly
 * wish.n_ctx if that is asked for. Throws as model_llama_cells_plan. */
uint32_t model_llama_text_plan(const char *path, const llama_model_params &weights, llama_context_params params,
                               const model_llama_wish &wish);

/* Throws model_llama_no_room if a model of so many bytes is larger than the memory of the host and of these devices. */
void model_llama_size_check(uint64_t model_bytes, const std::vector<ggml_backend_dev_t> &devices);

/* Bytes that the sequences would use if `seq` had k tokens; and whether the budget allows that. */
uint64_t model_llama_used(const model_llama *m, uint32_t seq, uint32_t k);
bool model_llama_may_hold(const model_llama *m, uint32_t seq, uint32_t k);

uint64_t model_llama_memory_free(); /* bytes of host memory that can be had without swapping */
int32_t model_llama_cores();        /* physical cores that this process may use */

/* After weights were copied into other layouts: drops the pages of the model's mapped files from this process; a page
 * that is read again is mapped again. Norms and biases are not copied: every step reads them from the file. Linux 6.18
 * and later map a whole large page of the file around each of them, so they get pages of their own. An idle daemon
 * of a 0.6B model took 299 MiB beyond its weights, 111 of them for this; now 180. Throws std::runtime_error.
 * (mapped.cpp) */
void model_llama_drop_mapped(const llama_model *weights, const char *path);

/* Returns a function of the CPU's backend by its name: a backend that is loaded at run time cannot be linked. NULL: it
 * has none. */
template <typename F> F *model_llama_of_cpu(const char *name)
{
    ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    ggml_backend_reg_t backend = device == nullptr ? nullptr : ggml_backend_dev_backend_reg(device);
    return backend == nullptr ? nullptr : reinterpret_cast<F *>(ggml_backend_reg_get_proc_address(backend, name));
}

/* ---- first_steps.cpp: steps before the first request ------------------------------------------------------------- */

/* Computes the largest step that there can be. Backends take a step's scratch memory, and compile what it runs, with
 * the first step of its kind. If another program filled the device after the start, the first long prompt would fail,
 * and every step after it. False: the device is full already, or fails. Afterwards the context is empty. */
bool model_llama_largest_step(llama_context *context, uint32_t n_outputs);

/* Computes a step, which maps the weights into memory: no request should wait for that. If no number of threads is
 * given, more steps measure which one is fastest; not in the exact configuration, where the number is fixed. False: a
 * step failed. */
bool model_llama_first_steps(model_llama *m, const model_options &o);

/* ---- threads.cpp ------------------------------------------------------------------------------------------------- */

/* Returns the number of threads, at most n_most, with which a step is fastest; step(n) computes one with n threads, or
 * returns false. */
int32_t model_llama_best_size(int32_t n_most, const std::function<bool(int32_t)> &step);

/* ---- identity.cpp ------------------------------------------------------------------------------------------------ */

/* A hash of 128 bits over the file: all of its metadata, samples of its weights, every part of a split model. False: a
 * part cannot be read. `has_long_rope`: the model encodes positions in another way if the context is longer than that
 * of its first training. */
bool model_llama_identity(const char *path, uint8_t out[16], bool *has_long_rope);

/* A hash of 128 bits over the configuration, which a saved state depends on beside the model. */
void model_llama_geometry(const std::string &configuration, uint8_t out[16]);

#endif
