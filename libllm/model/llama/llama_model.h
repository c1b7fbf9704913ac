/* llama_model.h: what the files of the llama.cpp model share. Private to them; everything else goes through model.h.
 *
 *   llama_model.cpp  sequences and text: the operations
 *   state.cpp        sequences as bytes: copies, checkpoints, parked states
 *   undo.cpp         calls that are given up
 *   embed.cpp        texts as vectors
 *   open.cpp         loading, context, warm-up, facts
 *   offload.cpp      which weights lie on devices
 *   mapped.cpp       what of the model's files stays in memory
 *   path.cpp         what is named instead of a model file
 *   file.cpp         the header of a model file, read before llama.cpp does
 *   vocabulary.cpp   what a vocabulary must be able to do
 *   crash.cpp        failed assertions and crashes of llama.cpp while a model is opened
 *   threads.cpp      the threads of its steps, and how many
 *   processor.cpp    what this processor has, and which of it is used
 *   log.cpp          llama.cpp's log, and the global set-up of the backends
 *   memory.cpp       how many KV cells the machine pays for
 *   identity.cpp     what tells models, and layouts of their states, apart
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

/* Of the pinned source's src/llama-ext.h, which is not installed. */
struct llama_memory_breakdown_data {
    size_t model, context, compute;
};
std::map<ggml_backend_buffer_type_t, llama_memory_breakdown_data> llama_get_memory_breakdown(
    const llama_context *context);

/* The threads that make a context's steps, with the thread that calls: they spin while a step goes on, sleep soon when one
 * of them has no core, and sleep between steps. One user at a time. */
class model_llama_threads {
  public:
    model_llama_threads() = default;
    ~model_llama_threads(); /* the context is closed */
    model_llama_threads(const model_llama_threads &) = delete;
    model_llama_threads &operator=(const model_llama_threads &) = delete;

    void open(int32_t n); /* once; they are as nice as who calls */
    /* For llama_attach_threadpool. NULL: the caller is the only one. */
    ggml_threadpool_t of_ggml() const
    {
        return pool;
    }
    void set(int32_t n) /* so many for small steps */
    {
        team_open(&small, n, n);
    }
    /* A thread less while others want its core, and back. The n that were best since `watch`: never more, unless others
     * wanted the cores then, too. */
    void adapt(int32_t n);
    void watch();
    int32_t begin(uint32_t n_tokens); /* threads of the step that comes now */
    void end(uint32_t n_tokens);      /* it went well */

  private:
    ggml_threadpool_t pool = nullptr;
    team small{};
    idle_cores idle{};
    int32_t n_most = 0;
    bool is_adaptive = false;
    uint64_t begun_us = 0, begun_waited_ns = 0;     /* of a step */
    uint64_t watched_us = 0, watched_waited_ns = 0; /* since `watch` */
    std::vector<int> waits;                         /* files that tell how long each of them waited for a core, */
    int own_waits = -1;                             /* and the caller */
    pid_t own = 0;

    uint64_t all_waited_ns();
};

/* What embeds: embed.cpp. */
struct model_llama_embedder {
    std::mutex turn;                  /* of who uses the context */
    llama_context *context = nullptr; /* NULL: nobody has asked yet, of a model that does not only embed */
    model_llama_threads threads;
    const int32_t *given_up = nullptr; /* of the call that has the turn: see llm_embed */
    int pooling = 0;                   /* llama_pooling_type; fixed */
};

constexpr int32_t MODEL_LLAMA_STOPPED_CODE = 2; /* of llama_decode */
/* Tokens of a session: there is room for as many of each, where memory is taken at once and nobody says how much; and no
 * more for a model that does not say what it can. */
constexpr uint32_t MODEL_LLAMA_N_CTX_USUAL = 8192;
constexpr uint32_t MODEL_LLAMA_CELLS_STEP = 256; /* llama.cpp's own padding of a context */

inline uint32_t model_llama_padded(uint32_t n)
{
    return (n + MODEL_LLAMA_CELLS_STEP - 1) / MODEL_LLAMA_CELLS_STEP * MODEL_LLAMA_CELLS_STEP;
}

/* What sequences take of the memory: so much for each token, and more for each of the last ones where some layers keep
 * only these. */
struct model_llama_cost {
    uint64_t fixed_bytes = 0;        /* running states, whatever has been consumed */
    uint64_t token_bytes = 0;        /* in layers that keep all tokens */
    uint64_t window_token_bytes = 0; /* in those that keep n_window_tokens */
    uint32_t n_window_tokens = 0;
    uint64_t of(uint64_t n_tokens) const /* of one sequence, beside what is fixed */
    {
        return n_tokens * token_bytes + std::min<uint64_t>(n_tokens, n_window_tokens) * window_token_bytes;
    }
};

/* How llama.cpp is to load the weights. Its parameters point into this. */
struct model_llama_loading {
    llama_model_params params;
    std::vector<float> split; /* layers of each device */
    std::vector<llama_model_tensor_buft_override> overrides;

    model_llama_loading();
    model_llama_loading(const model_llama_loading &) = delete;
    model_llama_loading &operator=(const model_llama_loading &) = delete;

    void ask(int32_t n_gpu_layers, bool copies_weights); /* -1: all */

    /* Where all layers are asked for and devices have no room for them beside this context: as many as they have room for,
     * the experts of a mixture last. A file of n_bytes in all. Not for concurrent use. */
    void fit(const char *path, uint64_t n_bytes, llama_context_params context);
    bool is_fitted() const
    {
        return params.tensor_buft_overrides != nullptr; /* none of them, perhaps */
    }
};

struct model_llama;

/* What a call changes of its sequences, for the case that it is given up. Attention can be cut back; of a running state,
 * which cannot, there is a copy as long as the call takes. */
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
    bool undo(); /* false: the state of the sequences is not trusted */

  private:
    model_llama *m;
    bool can_undo = false;
    void *state = nullptr; /* mapped: it goes back to the system */
    size_t n_bytes = 0;
};

/* Owned by whoever opened it; sequences belong to one thread (model.h). */
struct model_llama final : model {
    model_llama_loading loading;
    llama_model *weights = nullptr;
    llama_context *context = nullptr; /* NULL: it only embeds */
    llama_memory_t memory = nullptr;  /* inside context */
    model_llama_threads threads;
    const llama_vocab *vocab = nullptr;
    std::string template_source, tool_template_source; /* empty: none */
    model_llama_embedder embedder;
    bool is_exact = false;      /* equal to the bit, not to rounding */
    bool copies_weights = true; /* into the layouts that the processor's kernels like best */
    model_llama_cost cost;      /* of a pool in a device's memory: its share */

    /* Tokens each sequence has consumed. Counted here, because llama.cpp's own account lies after a failed step. */
    std::vector<uint32_t> positions;

    /* The batch in llama.cpp's form, allocated once. */
    std::vector<llama_token> tokens;
    std::vector<llama_pos> batch_positions;
    std::vector<int32_t> n_seqs;
    std::vector<llama_seq_id> seqs;
    std::vector<llama_seq_id *> seq_pointers;
    std::vector<int8_t> wanted;    /* logits exist at this index of the last successful call */
    uint32_t n_wanted = 0;         /* how many entries of `wanted` are valid; 0 after anything else than success */
    std::vector<uint16_t> touched; /* sequences of the batch, each once */
    std::vector<uint32_t> ends;    /* by sequence: its position after the batch; valid for those in `touched` */
    std::vector<uint8_t> is_touched;
    const model_batch *running = nullptr; /* the batch of the call in hand, if that can be given up */

    bool is_stateful() const /* what has been consumed lies, at least in part, in a running state */
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

bool model_llama_is_stopped(void *m); /* asked by llama.cpp between two operations of a call */

/* Tokens that llama.cpp's memory holds for the sequence. */
uint32_t model_llama_memory_position(const model_llama *m, uint16_t seq);

/* ---- state.cpp: operations of model.h -------------------------------------------------------------------------------- */

bool model_llama_copy(model *base, uint16_t src, uint16_t dst);
size_t model_llama_state_bytes(model *base, uint16_t seq, model_state_kind kind);
size_t model_llama_state_save(model *base, uint16_t seq, model_state_kind kind, void *out, size_t n_bytes);
model_result model_llama_state_load(model *base, uint16_t seq, model_state_kind kind, uint32_t k, const void *bytes,
                                    size_t n_bytes);

/* ---- embed.cpp ----------------------------------------------------------------------------------------------------- */

bool model_llama_only_embeds(const char *arch);   /* looks at whole texts and keeps nothing of them */
void model_llama_embedding_facts(model_llama *m); /* of a model that does more, whose other facts are there */

/* Of one that only embeds: facts, context, and a first pass. Throws model_llama_no_room, or std::runtime_error with what
 * the model lacks. */
void model_llama_embedder_open(model_llama *m, const model_options &o);
int model_llama_embed(model *base, const int32_t *tokens, const uint32_t *n_tokens, uint32_t n_texts,
                      const int32_t *given_up, float *out, uint32_t *n_done);

/* ---- log.cpp ------------------------------------------------------------------------------------------------------- */

void model_llama_backend_open(); /* once per process; any number of calls, any thread */
void model_llama_log_clear();
std::string model_llama_log_device_error(); /* the last one that a driver told; "": none */
bool model_llama_log_has_flash();           /* a context with flash attention has been made since */
std::string model_llama_log_cause(); /* the error llama.cpp logged since the last clear, for people; may be empty */

/* ---- path.cpp ------------------------------------------------------------------------------------------------------ */

std::string model_llama_path_trouble(
    const std::string &path); /* why this is no GGUF file, and what to do; "": it is one */

/* ---- architecture.cpp ---------------------------------------------------------------------------------------------- */

/* Why none of its models is served, with layers on a GPU or without; "": one is. */
std::string model_llama_architecture_trouble(const char *architecture, bool is_on_gpu);

/* Its streams attend together or not at all: a call is one pass only if each of its sequences has as many tokens. */
bool model_llama_splits_calls(const char *architecture);

/* ---- vocabulary.cpp ------------------------------------------------------------------------------------------------ */

void model_llama_vocabulary_check(const llama_vocab *vocab); /* throws std::runtime_error with a reason */

/* ---- offload.cpp --------------------------------------------------------------------------------------------------- */

std::vector<ggml_backend_dev_t> model_llama_devices();     /* all that layers can be put on */
bool model_llama_is_integrated(ggml_backend_dev_t device); /* its memory is the host's */

/* Of the weights, what the CPU computes with although there is a device. */
uint64_t model_llama_host_bytes(const llama_model *weights, const model_llama_loading &loading,
                                const llama_context *context);

/* ---- memory.cpp ---------------------------------------------------------------------------------------------------- */

struct model_llama_cells {
    uint32_t n_ctx;       /* for llama_context_params: cells of the whole pool */
    uint64_t state_bytes; /* what they and the recurrent states take */
};

struct model_llama_wish {
    uint32_t n_ctx; /* tokens of one sequence */
    bool is_asked;  /* neither more nor fewer; otherwise at most so many */
    uint32_t n_window;
    uint64_t budget; /* 0: a share of what is free */
};

struct model_llama_reserve {
    uint32_t n_ctx;    /* tokens of one sequence */
    uint32_t n_pool;   /* for llama_context_params: the cells of all, which are addresses only */
    uint64_t budget;   /* what may be used of them; no more than there is */
    uint32_t n_tokens; /* that it pays for, if they are one sequence's; no more than there are cells */
    model_llama_cost cost;
};

/* Not even the smallest pool fits; the text says what is needed and what is free. */
struct model_llama_no_room : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/* On a device, where all cells take memory at once: about the largest pool that the budget pays for, of at most params.n_ctx
 * cells, and with one sequence's wish.n_ctx at least where that is asked for. Throws model_llama_no_room, or
 * std::runtime_error when llama.cpp makes no such context (its log says why). Not for concurrent use. */
model_llama_cells model_llama_cells_plan(const char *path, const llama_model_params &weights,
                                         const llama_context_params &params, const model_llama_wish &wish);

/* Half of the cells, for a device that gives no more in one piece. False: they would not be enough for one session. */
bool model_llama_cells_halve(const model_llama_wish &wish, uint32_t *n_cells);

/* On the host, where cells take memory when they are used. Throws as model_llama_cells_plan; with the option to change in
 * the text when one sequence alone would exceed the budget. */
model_llama_reserve model_llama_reserve_plan(const char *path, const llama_model_params &loading, llama_model *weights,
                                             const llama_context_params &params, const model_llama_wish &wish);

/* Tokens of one text that a context of these `params`, which looks at all of it at once, has memory for: as many as
 * wish.n_ctx where that is asked for. Throws as model_llama_cells_plan. */
uint32_t model_llama_text_plan(const char *path, const llama_model_params &weights, llama_context_params params,
                               const model_llama_wish &wish);

/* Throws model_llama_no_room when a model of so many bytes is larger than the memory of the host and of these devices. */
void model_llama_size_check(uint64_t model_bytes, const std::vector<ggml_backend_dev_t> &devices);

/* What the sequences use, if `seq` had k tokens instead of its own; and whether the budget pays for that. */
uint64_t model_llama_used(const model_llama *m, uint32_t seq, uint32_t k);
bool model_llama_may_hold(const model_llama *m, uint32_t seq, uint32_t k);

uint64_t model_llama_memory_free(); /* bytes of host memory that can be had without swapping */
int32_t model_llama_cores();        /* physical cores that this process may use */

/* For weights that were copied elsewhere: the pages of the model's mapped files count as ours no more, what is read again is
 * mapped again. Norms and biases, which are read from there, get pages of their own: around each of them Linux maps all of a
 * large page of the file, since 6.18. Throws std::runtime_error. (mapped.cpp) */
void model_llama_drop_mapped(const llama_model *weights, const char *path);

/* A function of the CPU's backend, which is not linked where it is loaded at run time; NULL: it has none. */
template <typename F> F *model_llama_of_cpu(const char *name)
{
    ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    ggml_backend_reg_t backend = device == nullptr ? nullptr : ggml_backend_dev_backend_reg(device);
    return backend == nullptr ? nullptr : reinterpret_cast<F *>(ggml_backend_reg_get_proc_address(backend, name));
}

/* ---- first_steps.cpp: what nobody asks for ------------------------------------------------------------------------- */

/* Backends take the memory that a step needs beside the context, and compile what it runs, when the first of its kind is
 * made: a device that is full by then would fail a request, and all after it. False: it is full already, or fails. What the
 * context holds is gone. */
bool model_llama_largest_step(llama_context *context, uint32_t n_outputs);

/* The first step maps weights: it must not be a request's. Where nobody says how many threads there are to be, some more of
 * them tell. The exact configuration keeps to what was asked for. False: none can be made. */
bool model_llama_first_steps(model_llama *m, const model_options &o);

/* ---- threads.cpp --------------------------------------------------------------------------------------------------- */

/* With how many threads, at most n_most, a step is fastest; `step` makes one, or says false. */
int32_t model_llama_best_size(int32_t n_most, const std::function<bool(int32_t)> &step);

/* ---- identity.cpp -------------------------------------------------------------------------------------------------- */

/* 128 bits over the file: all of its metadata, samples of its weights, every part of a split model. False if a part cannot
 * be read. `has_long_rope`: the model encodes positions in another way where the context is longer than what it was first
 * trained for. */
bool model_llama_identity(const char *path, uint8_t out[16], bool *has_long_rope);

/* 128 bits over what a saved state depends on beside the model. */
void model_llama_geometry(const std::string &configuration, uint8_t out[16]);

#endif
