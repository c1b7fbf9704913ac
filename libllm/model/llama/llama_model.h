/* llama_model.h: declarations that the files of the llama.cpp model share. Other files use model.h.
 *
 *   llama_model.cpp  decodes, truncates and clears sequences, and converts text to tokens and back
 *   state.cpp        saves, loads and copies sequences
 *   undo.cpp         restores sequences after a decode call that was stopped or failed
 *   embed.cpp        computes embeddings of texts
 *   open.cpp         opens a model: checks and loads it, fills model_info, makes its context
 *   metadata.cpp     reads the metadata of a loaded model
 *   kv_type.cpp      decides whether a model can have quantized keys and values
 *   first_steps.cpp  computes steps before the first request
 *   architecture.cpp refuses models of unsupported architectures
 *   offload.cpp      chooses which weights are put on devices
 *   mapped.cpp       drops the mapped pages of the model's files from this process after the weights were copied
 *   path.cpp         says why a path is not the path of a GGUF file
 *   file.cpp         checks the header of a model file before llama.cpp reads the file
 *   vocabulary.cpp   checks the vocabulary
 *   crash.cpp        turns failed assertions of llama.cpp into errors where this is safe, and reports crashes
 *   threads.cpp      starts the threads that compute steps, and chooses how many of them compute the next step
 *   processor.cpp    describes the features of this processor
 *   log.cpp          stores the errors of llama.cpp's log, and initializes llama.cpp's backends
 *   memory.cpp       decides how many KV cells a context gets
 *   identity.cpp     computes a hash of the model's file, and a hash of the layout of saved states
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
#include "model/shared_prefixes.h"

/* A copy of the declaration in src/llama-ext.h of the pinned llama.cpp. That header is not installed. */
struct llama_memory_breakdown_data {
    size_t model, context, compute;
};
std::map<ggml_backend_buffer_type_t, llama_memory_breakdown_data> llama_get_memory_breakdown(
    const llama_context *context);

/* The threads that compute a context's steps, together with the calling thread. A thread that waits at a barrier spins
 * for 0.2 ms and then sleeps. The threads also sleep between steps. OpenMP's threads would spin until the last thread
 * arrives at the barrier, although that thread may wait for a core. While other processes use the cores, small steps
 * are computed with fewer threads (machine/team.h). Only one thread can use an object at a time. */
class model_llama_threads {
  public:
    model_llama_threads() = default;
    ~model_llama_threads(); /* the context that uses the threads must be closed before */
    model_llama_threads(const model_llama_threads &) = delete;
    model_llama_threads &operator=(const model_llama_threads &) = delete;

    void open(int32_t n); /* called once; the threads inherit the caller's nice value */
    /* Returns the argument of llama_attach_threadpool, or NULL if the caller is the only thread. */
    ggml_threadpool_t of_ggml() const
    {
        return pool;
    }
    void set(int32_t n) /* from now on, small steps use exactly n threads */
    {
        team_open(&small, n, n);
    }
    /* From now on, small steps use n threads, or fewer while other processes use the cores. n is the fastest number of
     * threads in the measurement that `watch` began. If other processes used the cores during that measurement, n may
     * be too small. In this case larger numbers are tried later. */
    void adapt(int32_t n);
    void watch();
    int32_t begin(uint32_t n_tokens); /* returns the number of threads for the next step */
    void end(uint32_t n_tokens);      /* called after a successful step */

  private:
    ggml_threadpool_t pool = nullptr;
    team small{};
    idle_cores idle{};
    int32_t n_most = 0;
    bool is_adaptive = false;
    uint64_t begun_us = 0, begun_waited_ns = 0;     /* time at which the step began, and how long the threads had waited
                                                     * for cores before the step */
    uint64_t watched_us = 0, watched_waited_ns = 0; /* time at which `watch` was called, and how long the threads had
                                                     * waited for cores before the call */
    std::vector<int> waits;                         /* open schedstat files of the pool's threads, which say how long
                                                     * each thread has waited for a core */
    int own_waits = -1;                             /* schedstat file of the thread that computes together with the
                                                     * pool's threads */
    pid_t own = 0;                                  /* id of the thread to which own_waits belongs */

    uint64_t all_waited_ns();
};

/* The second context, which computes embeddings (embed.cpp). */
struct model_llama_embedder {
    std::mutex turn;                  /* held by the thread that uses the embedding context */
    llama_context *context = nullptr; /* NULL until the first use, unless the model only computes embeddings */
    model_llama_threads threads;
    const int32_t *cancel_flag = nullptr; /* cancel flag (llm_embed) of the call that holds `turn` */
    int pooling = 0;                      /* llama_pooling_type, which never changes */
};

constexpr int32_t MODEL_LLAMA_STOPPED_CODE = 2; /* result of llama_decode if the abort callback returned true */
/* If the options give no n_ctx, a device's pool of KV cells is sized for this number of tokens per session. The pool
 * takes all its memory from the start. The same number is the n_ctx of a model whose file states no context length. */
constexpr uint32_t MODEL_LLAMA_N_CTX_USUAL = 8192;
constexpr uint32_t MODEL_LLAMA_CELLS_STEP = 256; /* llama.cpp pads contexts to a multiple of this number of cells */

inline uint32_t model_llama_padded(uint32_t n)
{
    return (n + MODEL_LLAMA_CELLS_STEP - 1) / MODEL_LLAMA_CELLS_STEP * MODEL_LLAMA_CELLS_STEP;
}

/* Bytes that sequences take. Each token costs token_bytes. Layers with a sliding window add window_token_bytes for each
 * of the last n_window_tokens tokens. */
struct model_llama_cost {
    uint64_t fixed_bytes = 0;        /* recurrent states of all sequences, whatever their number of tokens. In host
                                      * memory, includes one more state, for model_llama_before_drafts */
    uint64_t token_bytes = 0;        /* bytes of one token in the layers that keep all tokens */
    uint64_t window_token_bytes = 0; /* bytes of one token in the layers that keep only n_window_tokens tokens */
    uint32_t n_window_tokens = 0;
    uint64_t of(uint64_t n_tokens) const /* bytes of one sequence, without fixed_bytes */
    {
        return n_tokens * token_bytes + std::min<uint64_t>(n_tokens, n_window_tokens) * window_token_bytes;
    }
};

/* Parameters with which llama.cpp loads the weights. `params` points into this object, so the object must not be
 * moved. */
struct model_llama_loading {
    llama_model_params params;
    std::vector<float> split; /* for each device, the share of the layers that is put on it */
    std::vector<llama_model_tensor_buft_override> overrides;

    model_llama_loading();
    model_llama_loading(const model_llama_loading &) = delete;
    model_llama_loading &operator=(const model_llama_loading &) = delete;

    void ask(int32_t n_gpu_layers, bool copies_weights); /* requests that n_gpu_layers layers are put on devices. -1
                                                          * requests all layers */

    /* If all layers are requested, but do not fit into the devices' memory together with this context, puts as many
     * layers on the devices as fit. The weights of experts (MoE) are the first to stay on the host. n_bytes is the size
     * of the file. Not for concurrent use. */
    void fit(const char *path, uint64_t n_bytes, llama_context_params context);
    bool is_fitted() const
    {
        return params.tensor_buft_overrides != nullptr; /* fit() always sets this list, which can be empty */
    }
};

struct model_llama;

/* Undoes a decode call that is stopped or fails half-way. The KV cache of the attention layers is truncated to its
 * previous length. A recurrent state cannot be truncated. So the state is copied before the call, and copied back if
 * the call fails or is stopped. Making the copy takes some milliseconds. Because of the copy, even a prefill of a
 * hybrid model can be stopped. Without the copy, a cancel would have to wait for the end of the call, so calls would
 * have to be short. */
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
    bool undo(); /* returns false if the call could not be undone: the state of its sequences is invalid */

  private:
    model_llama *m;
    bool can_undo = false;
    void *state = nullptr; /* copy of the recurrent state, in mapped memory, which the system gets back after the
                            * call */
    size_t n_bytes = 0;
};

/* If fewer tokens are removed from a sequence, the pages of their cells are kept, because the pages will be needed
 * soon. */
enum { MODEL_LLAMA_TRIMMED_TOKENS_MIN = 256 };

/* The state of a sequence with recurrent states before a decode call that contains drafts. */
struct model_llama_before_drafts {
    std::vector<uint8_t> state; /* a buffer as large as the largest state so far */
    size_t n_bytes = 0;         /* 0 if the last call contained no drafts, or if its sequence has changed since */
    uint16_t seq = 0;
    uint32_t position = 0;
};

/* A model that llama.cpp runs. Owned by the thread that opens the model. Only one thread can use its sequences
 * (model.h). */
struct model_llama final : model {
    model_llama_loading loading;
    llama_model *weights = nullptr;
    llama_context *context = nullptr; /* NULL if the model only computes embeddings */
    llama_memory_t memory = nullptr;  /* owned by `context` */
    model_llama_threads threads;
    const llama_vocab *vocab = nullptr;
    std::string template_source, tool_template_source; /* empty if the model has no such template */
    model_llama_embedder embedder;
    bool is_exact = false; /* results with a reused state equal those of a full prefill exactly, and not only up to
                                 * rounding */
    bool has_pool = false; /* the cells of all sequences are in one stream; otherwise each has a stream of its own */
    bool copies_weights = true; /* weights are copied into the layouts that are fastest on this processor */
    model_llama_cost cost;      /* on a device, the bytes of a token are the bytes of the pool divided by the number of
                                 * cells in the pool */

    /* Number of tokens that each sequence has consumed. llama.cpp's own positions are wrong after a failed step, and
     * are not used. */
    std::vector<uint32_t> positions;
    shared_prefixes shared{}; /* has no sequences if the model's sequences share no cells */

    /* The arrays of the llama_batch, allocated once. */
    std::vector<llama_token> tokens;
    std::vector<llama_pos> batch_positions;
    std::vector<int32_t> n_seqs;
    std::vector<llama_seq_id> seqs;
    std::vector<llama_seq_id *> seq_pointers;
    std::vector<int8_t> output_flags; /* for each index of the last successful call, whether there are logits */
    uint32_t n_output_flags = 0;      /* number of valid entries of `output_flags`; 0 unless the last call succeeded */
    std::vector<uint16_t> touched;    /* sequences in the batch, without duplicates */
    std::vector<uint32_t> ends;       /* position of each sequence after the batch; valid for sequences in `touched` */
    std::vector<uint8_t> is_touched;
    model_llama_before_drafts before_drafts;
    const model_batch *running = nullptr; /* the batch of the current call, if the call can be stopped */

    bool is_stateful() const /* returns whether some layers have a recurrent state instead of one cell per token */
    {
        return info.memory == LLM_MEMORY_RECURRENT || info.memory == LLM_MEMORY_HYBRID;
    }

    bool has(uint16_t seq) const /* false if the model only computes embeddings */
    {
        return context != nullptr && seq < info.n_seq;
    }

    ~model_llama();
};

extern const model_ops model_llama_ops;

bool model_llama_is_stopped(void *m); /* the abort callback, which llama.cpp calls between two operations of a decode
                                       * call */

/* Returns the number of tokens that llama.cpp's memory holds for the sequence. */
uint32_t model_llama_memory_position(const model_llama *m, uint16_t seq);

/* ---- state.cpp: operations of model.h ---------------------------------------------------------------------------- */

bool model_llama_copy(model *base, uint16_t src, uint16_t dst);
size_t model_llama_state_bytes(model *base, uint16_t seq, model_state_kind kind);
size_t model_llama_state_save(model *base, uint16_t seq, model_state_kind kind, void *out, size_t n_bytes);
model_result model_llama_state_load(model *base, uint16_t seq, model_state_kind kind, uint32_t k, const void *bytes,
                                    size_t n_bytes);

/* ---- embed.cpp --------------------------------------------------------------------------------------------------- */

bool model_llama_only_embeds(const char *arch);   /* returns whether models of this architecture are encoders, which
                                                   * have no KV cache */
void model_llama_embedding_facts(model_llama *m); /* for a model with a KV cache, sets the members of model_info about
                                                   * embeddings. Called after all other members of model_info are set */

/* Fills model_info for a model that only computes embeddings, makes its context and computes a first step. Throws
 * model_llama_no_room if memory is missing. If the model cannot compute embeddings of texts, throws std::runtime_error
 * with the reason. */
void model_llama_embedder_open(model_llama *m, const model_options &o);
int model_llama_embed(model *base, const int32_t *tokens, const uint32_t *n_tokens, uint32_t n_texts,
                      const int32_t *cancel_flag, float *out, uint32_t *n_done);

/* ---- log.cpp ----------------------------------------------------------------------------------------------------- */

void model_llama_backend_open(); /* only the first call of the process has an effect; any thread */
void model_llama_log_clear();
std::string model_llama_log_device_error(); /* returns the last error that a device's driver has logged, or "" */
bool model_llama_log_has_flash();           /* returns whether a context with flash attention was made since the last
                                             * model_llama_log_clear */
std::string model_llama_log_cause();        /* returns the first error in llama.cpp's log since the last
                                             * model_llama_log_clear, for error messages, or "" */

/* ---- path.cpp ---------------------------------------------------------------------------------------------------- */

/* Returns why the file at this path is not a GGUF file, and what to do, or "" if it is a GGUF file. */
std::string model_llama_path_trouble(const std::string &path);

/* ---- architecture.cpp -------------------------------------------------------------------------------------------- */

/* Returns why models of this architecture are not supported, or "". is_on_gpu says whether the model is on a GPU. */
std::string model_llama_architecture_trouble(const char *architecture, bool is_on_gpu);

/* Returns whether llama.cpp may compute a decode call in several passes. This is so for models with an indexer. An
 * indexer is the part of a model that selects the tokens to attend to. In one pass, an indexer needs the same number of
 * tokens from each sequence. So a call with different numbers of tokens takes several passes. */
bool model_llama_splits_calls(const char *architecture);

/* Returns model_info.n_drafting. */
uint32_t model_llama_n_drafting(llm_memory memory, const char *architecture, uint32_t n_seq);

/* ---- metadata.cpp ------------------------------------------------------------------------------------------------ */

std::string model_llama_metadata(const model_llama *m, const char *key); /* returns "" if the file lacks the key */
llm_sampling model_llama_sampling_default(const model_llama *m); /* returns the sampling parameters that the file
                                                                  * recommends. The other parameters are "not stated" */
/* Returns for example "qwen3 0.6B Q8_0". llama.cpp writes "?B" instead of the size if the size is not in its table. */
std::string model_llama_description(const model_llama *m);

/* ---- kv_type.cpp ------------------------------------------------------------------------------------------------- */

ggml_type model_llama_kv_type(llm_kv_type type);
/* Returns the type of keys and values as it decides the meaning of a state. */
std::string model_llama_kv_meaning(llm_kv_type type);
/* Returns why this model cannot have a KV cache of the type info.kv_type, and what to do, or "". */
std::string model_llama_kv_type_trouble(const model_llama *m, bool is_exact);

/* ---- vocabulary.cpp ---------------------------------------------------------------------------------------------- */

void model_llama_vocabulary_check(const llama_vocab *vocab); /* if the vocabulary is unusable, throws std::runtime_error
                                                              * with the reason */

/* ---- offload.cpp ------------------------------------------------------------------------------------------------- */

std::vector<ggml_backend_dev_t> model_llama_devices();     /* all devices on which layers can be put */
bool model_llama_is_integrated(ggml_backend_dev_t device); /* returns whether the device uses the host's memory */

/* Returns the bytes of the weights that stay on the host although there is a device. The CPU computes with these
 * weights. */
uint64_t model_llama_host_bytes(const llama_model *weights, const model_llama_loading &loading,
                                const llama_context *context);

/* ---- memory.cpp -------------------------------------------------------------------------------------------------- */

struct model_llama_cells {
    uint32_t n_ctx;       /* cells of the whole pool, for llama_context_params */
    uint64_t state_bytes; /* bytes of the cells and the recurrent states */
};

/* The size of the context that the options ask for. */
struct model_llama_wish {
    uint32_t n_ctx; /* tokens of one sequence */
    bool is_exact;  /* true if n_ctx tokens must fit, otherwise fewer tokens are allowed */
    uint32_t n_window;
    uint64_t budget;  /* most bytes of the state. 0 means a share of the free memory */
    bool is_stateful; /* some layers have a recurrent state */
};

struct model_llama_reserve {
    uint32_t n_ctx;    /* tokens of one sequence */
    uint32_t n_pool;   /* cells of all sequences, for llama_context_params; an unused cell takes only address space */
    uint64_t budget;   /* most bytes that used cells may take together; at most the bytes of all cells */
    uint32_t n_tokens; /* length of the longest sequence that the budget and the cells allow */
    model_llama_cost cost;
};

/* Thrown if not even the smallest pool fits. The text says how many bytes are needed and how many are free. */
struct model_llama_no_room : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/* Chooses the number of cells of the pool on a device, where all cells take memory from the start. The pool is about
 * the largest that the budget allows, with at most params.n_ctx cells. If wish.is_exact, the pool has at least
 * wish.n_ctx cells. Throws model_llama_no_room if the pool does not fit. Throws std::runtime_error if llama.cpp cannot
 * make such a context. In this case, the reason is in llama.cpp's log. Not for concurrent use. */
model_llama_cells model_llama_cells_plan(const char *path, const llama_model_params &weights,
                                         const llama_context_params &params, const model_llama_wish &wish);

/* Halves the number of cells, for a device that could not allocate the memory in one piece. Returns false if half of
 * the cells are too few for one session. */
bool model_llama_cells_halve(const model_llama_wish &wish, uint32_t *n_cells);

/* Chooses the number of cells in host memory. There, an unused cell is only reserved address space. A cell takes memory
 * when it is first used. Throws the same exceptions as model_llama_cells_plan. If one sequence alone would exceed the
 * budget, the text of the exception names the option to change. */
model_llama_reserve model_llama_reserve_plan(const char *path, const llama_model_params &loading, llama_model *weights,
                                             const llama_context_params &params, const model_llama_wish &wish);

/* Returns the most tokens that a text can have. A context with these `params` processes the text in one step, and the
 * free memory must suffice for this step. If wish.is_exact, returns wish.n_ctx or throws an exception. Throws the same
 * exceptions as model_llama_cells_plan. */
uint32_t model_llama_text_plan(const char *path, const llama_model_params &weights, llama_context_params params,
                               const model_llama_wish &wish);

/* Throws model_llama_no_room if a model of model_bytes is larger than the memory of the host and these devices
 * together. */
void model_llama_size_check(uint64_t model_bytes, const std::vector<ggml_backend_dev_t> &devices);

/* The first function returns the bytes that all sequences would use if `seq` had k tokens. The second returns whether
 * the budget allows these bytes. */
uint64_t model_llama_used(const model_llama *m, uint32_t seq, uint32_t k);
bool model_llama_may_hold(const model_llama *m, uint32_t seq, uint32_t k);

uint64_t model_llama_memory_free(); /* bytes of host memory that are available without swapping */
int32_t model_llama_cores();        /* number of physical cores that this process may use */

/* Drops the pages of the model's mapped files from this process after weights were copied into other layouts. The
 * kernel maps a dropped page again when it is read. Norms and biases were not copied into other layouts, so every step
 * reads them from the mapped file. Linux 6.18 and later would map a whole large page of the file around each norm and
 * bias. So norms and biases are moved to separate pages. With separate pages, an idle daemon of a 0.6B model needs 180
 * MiB of memory beyond the model's weights. Otherwise it would need 299 MiB. Throws std::runtime_error. (mapped.cpp) */
void model_llama_drop_mapped(const llama_model *weights, const char *path);

/* Returns the function with this name from the CPU's backend, or NULL if the backend has no such function. The backend
 * is loaded at run time, so its functions cannot be linked. */
template <typename F> F *model_llama_of_cpu(const char *name)
{
    ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    ggml_backend_reg_t backend = device == nullptr ? nullptr : ggml_backend_dev_backend_reg(device);
    return backend == nullptr ? nullptr : reinterpret_cast<F *>(ggml_backend_reg_get_proc_address(backend, name));
}

/* ---- first_steps.cpp: steps before the first request ------------------------------------------------------------- */

/* Computes the largest possible step. Backends allocate a step's scratch memory and compile its kernels in the first
 * step of its kind. If the largest step came later, and another program had filled the device's memory, this step and
 * every later step would fail. Returns false if the step fails, for example because the device has no free memory.
 * Afterwards the context is empty. */
bool model_llama_largest_step(llama_context *context, uint32_t n_outputs);

/* Computes a step. This step maps the weights into memory, so no request has to wait for the mapping. If the options
 * give no number of threads, further steps measure which number is fastest. In the exact configuration nothing is
 * measured, and the number is fixed. Returns false if a step failed. */
bool model_llama_first_steps(model_llama *m, const model_options &o);

/* ---- threads.cpp ------------------------------------------------------------------------------------------------- */

/* Returns the number of threads, at most n_most, with which a step is fastest. The function `step` computes a step with
 * n threads, and returns false if the step failed. */
int32_t model_llama_best_size(int32_t n_most, const std::function<bool(int32_t)> &step);

/* ---- identity.cpp ------------------------------------------------------------------------------------------------ */

/* Computes a hash of 128 bits over the file: all metadata and samples of the weights, of every part of a split model.
 * Returns false if a part cannot be read. Some models have a second encoding of positions, for contexts longer than in
 * their first training. *has_long_rope reports whether this model has one. */
bool model_llama_identity(const char *path, uint8_t out[16], bool *has_long_rope);

/* Computes a hash of 128 bits over the text `configuration`. The bytes of a saved state depend on everything in this
 * text, and on the model itself. */
void model_llama_geometry(const std::string &configuration, uint8_t out[16]);

#endif
