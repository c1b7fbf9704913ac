/* model.h: the interface to a model. The interface has two implementations. model_llama uses llama.cpp. model_sim is a
 * deterministic simulation with the same memory rules. No other part of libllm depends on which implementation runs.
 *
 * A model holds up to info.n_seq sequences. The model stores only the state of a sequence. The caller (branch.c) stores
 * the tokens that the sequence has consumed. The position of a sequence is the number of these tokens.
 *
 * Threads: only the decode thread calls functions that use sequences. The text operations (tokenize, piece, is_end) use
 * immutable tables, so any thread can call them.
 */
#ifndef LLM_MODEL_H
#define LLM_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct model model;

/* A decode call can return one row of logits per sequence and this many more. So a call can return the logits after
 * several tokens of one sequence. A row has one float for each token of the vocabulary. */
enum { MODEL_OUTPUTS_BESIDE = 16 };
/* Limits the default n_ctx, because each session table entry takes 4 * n_ctx bytes. */
enum { MODEL_N_CTX_DEFAULT_MAX = 131072 };
enum { MODEL_PIECE_BYTES_MAX = 1024 }; /* most bytes of one token's text; a model with a longer token is refused */

typedef struct model_options {
    const char *path;          /* path of the file, or the text after "sim:" for the simulated model */
    const char *chat_template; /* used instead of the template in the model's file. NULL means the template in the
                                * file */
    uint32_t n_ctx;            /* tokens per sequence. 0 means the training context length, or fewer if kv_bytes_max
                                * requires it */
    uint32_t n_seq;
    uint32_t n_batch;      /* most tokens of one decode call */
    uint64_t kv_bytes_max; /* most bytes for the tokens of all sequences. 0 means a fraction of the free memory */
    llm_kv_type kv_type;
    int32_t n_threads; /* threads of a step. 0 means that model_open measures which number is fastest */
    int32_t n_gpu_layers;
    bool exact;
    bool allow_oversize;
    const char *crash_notice; /* see llm_engine_options */
} model_options;

/* The two kinds of saved states. */
typedef enum model_state_kind {
    MODEL_STATE_FULL, /* the whole state of a sequence */
    /* Only the parts of the state that truncating a sequence cannot restore. These are the recurrent state and the KV
     * cells of layers with a sliding window. See model_checkpoint_kind. */
    MODEL_STATE_CHECKPOINT,
} model_state_kind;

/* What a MODEL_STATE_CHECKPOINT of this model contains, and on which sequences it can be loaded. */
typedef enum model_checkpoint_kind {
    MODEL_CHECKPOINT_NONE,     /* no checkpoints are needed, because a sequence can be truncated anywhere (dense) */
    MODEL_CHECKPOINT_ATTACHED, /* a small checkpoint, for memory classes window and hybrid. This checkpoint can be
                                * loaded only on a sequence whose attention layers hold the same prefix */
    MODEL_CHECKPOINT_WHOLE,    /* a checkpoint contains the same as a MODEL_STATE_FULL (recurrent) */
} model_checkpoint_kind;

typedef struct model_info {
    LLM_MODEL_FACT_TABLE(LLM_MODEL_FACT_MEMBER)
    LLM_MODEL_TEXT_TABLE(LLM_MODEL_TEXT_MEMBER)
    llm_memory memory;
    llm_kv_type kv_type;
    uint32_t n_seq;
    uint32_t n_outputs_max; /* most rows of logits of one decode call: one per sequence, and MODEL_OUTPUTS_BESIDE
                             * more */
    model_checkpoint_kind checkpoint;
    bool is_on_gpu;    /* at least one layer is on a GPU, so prompts are prefilled on the GPU */
    bool shares_cells; /* a copy of a sequence takes no memory of its own until one of the two grows */
    bool mixed_calls;  /* decode and prefill tokens in one call cost no more than in separate calls */
    /* A decode call with at most this many sequences can contain drafts. A draft has at most MODEL_OUTPUTS_BESIDE
     * tokens, and follows the first token of a sequence in this call. Before the next call, `remove_drafts` can remove
     * any number of tokens from the end of the draft. 0 means that no call can contain drafts */
    uint32_t n_drafting;
    uint32_t n_stoppable; /* model_batch.stop can stop calls with at most this many sequences. 0 means that no call can
                           * be stopped */
    uint8_t identity[16]; /* hash of the model's file. In two models of the same identity, each token id stands for the
                           * same text, even if the models were opened with different options */
    uint8_t geometry[16]; /* hash of everything else on which the bytes of a saved state depend: see state_load */
} model_info;

/* Tokens of one decode call. The tokens of each sequence are contiguous and in order, and the first of them is at the
 * sequence's position. A batch can contain any sequences, in any order. */
typedef struct model_batch {
    uint32_t n;
    const int32_t *tokens;
    const int32_t *positions;
    const uint16_t *seqs;
    const uint8_t *outputs; /* 1 if logits are requested after this token, which is allowed for at most
                             * info.n_outputs_max tokens */
    /* NULL, or a function that is called often during a long decode call. If stop() returns true, the decode call is
     * stopped. So a cancel does not have to wait for the end of a long prefill. Not every call can be stopped
     * (info.n_stoppable). */
    bool (*stop)(void *context);
    void *stop_context;
    uint32_t n_drafts; /* how many of the tokens are drafts (info.n_drafting) */
} model_batch;

/* The result of a decode call, and what the call did to the state of the sequences. */
typedef enum model_result {
    MODEL_OK,           /* all tokens have been consumed */
    MODEL_NO_CELLS,     /* the KV cache is full, or its budget is used up; nothing has changed */
    MODEL_STOPPED,      /* stop() returned true; nothing has changed */
    MODEL_INVALID,      /* the batch breaks a rule (ids, positions, sizes); nothing has changed */
    MODEL_FAILED_BATCH, /* the state of the sequences in the batch is invalid; other sequences are unchanged */
    MODEL_FAILED_ALL,   /* the state of every sequence is invalid */
} model_result;

typedef struct model_ops {
    void (*close)(model *m);

    /* ---- sequences: owner thread ---- */

    model_result (*decode)(model *m, const model_batch *batch);

    /* Returns the logits after the token at index i of the last batch. Returns NULL if no logits were requested after
     * this token. Also returns NULL if the decode call did not return MODEL_OK. The n_vocab floats are valid until the
     * next decode call or close. Truncating or clearing a sequence does not change the logits. The caller can modify
     * the logits in place. */
    float *(*logits)(model *m, uint32_t i);

    /* Returns the smallest number of tokens k > 0 to which the sequence can be truncated exactly.
     * - Dense memory: 1.
     * - Recurrent and hybrid memory: the sequence's position, so the sequence cannot be truncated.
     * - Sliding window: a number between 1 and the position. */
    uint32_t (*truncate_floor)(const model *m, uint16_t seq);

    /* Truncates the sequence to its first k tokens, with 0 < k <= position and k >= truncate_floor. Returns false if
     * the truncation failed. Then the sequence's state is invalid, and the caller must mark its branch as invalid. */
    bool (*truncate)(model *m, uint16_t seq, uint32_t k);

    /* Truncates the sequence to its first k tokens. All tokens after these must be drafts of the latest decode call.
     * Returns MODEL_OK, MODEL_FAILED_BATCH if the sequence's state is invalid, or MODEL_FAILED_ALL. Recurrent and
     * hybrid memory goes back to the state before the call, and computes the call's other tokens again. So this takes
     * the time of a short decode call, and overwrites the logits of the latest call. */
    model_result (*remove_drafts)(model *m, uint16_t seq, uint32_t k);

    void (*clear)(model *m, uint16_t seq);              /* empties the sequence, even if it is invalid; always
                                                         * succeeds */
    uint32_t (*position)(const model *m, uint16_t seq); /* number of tokens of the sequence that the model's memory
                                                         * holds */
    uint64_t (*used_bytes)(const model *m);             /* how many of the info.state_bytes all sequences take
                                                         * together */
    /* Returns how many of the info.state_bytes a sequence of n_tokens takes if it shares no cells. Apart from rounding,
     * the bytes of all sequences add up to used_bytes. */
    uint64_t (*sequence_bytes)(const model *m, uint32_t n_tokens);
    /* Returns how many leading tokens of the sequence are in cells that used_bytes counts for a sequence with a lower
     * number. 0 if sequences share no cells. */
    uint32_t (*shared_tokens)(const model *m, uint16_t seq);

    /* ---- saved states: owner thread, between decode calls. Only a model of the same identity and geometry may load a
     * saved state ---- */

    /* Makes dst, which must be empty, an exact copy of src. Returns false if the copy failed; dst is then empty. Only
     * called if sequences can share cells (info.shares_cells). Otherwise a copy takes memory of its own. The caller
     * then saves src and loads the saved state into dst, because saved states are counted in the limits on memory. */
    bool (*copy)(model *m, uint16_t src, uint16_t dst);

    size_t (*state_bytes)(model *m, uint16_t seq, model_state_kind kind);
    /* Returns the number of bytes written, or 0 on failure. */
    size_t (*state_save)(model *m, uint16_t seq, model_state_kind kind, void *out, size_t n_bytes);
    /* Replaces the contents of the sequence by a saved state of k tokens. A FULL state can be loaded into any sequence.
     * A CHECKPOINT can be loaded only into a sequence whose attention layers hold at least the same first k tokens. If
     * info.checkpoint is MODEL_CHECKPOINT_WHOLE, a CHECKPOINT can be loaded into any sequence, too. Returns MODEL_OK,
     * MODEL_NO_CELLS, or MODEL_INVALID if the bytes are not a saved state of this kind with k tokens. On failure the
     * sequence is empty. */
    model_result (*state_load)(model *m, uint16_t seq, model_state_kind kind, uint32_t k, const void *bytes,
                               size_t n_bytes);

    /* ---- embeddings: any thread, one call at a time; further calls wait ---- */

    /* Implements llm_embed (llm.h), which has checked the arguments. The vectors are not normalized. Not called for
     * models without embeddings (info.n_embedding 0). */
    int (*embed)(model *m, const int32_t *tokens, const uint32_t *n_tokens, uint32_t n_texts,
                 const int32_t *cancel_flag, float *out, uint32_t *n_done);

    /* ---- text: any thread ---- */

    /* Returns the number of tokens, or minus this number if n_out is too small, or INT64_MIN on error. `text` needs no
     * NUL at its end. */
    int64_t (*tokenize)(const model *m, const char *text, size_t n_bytes, bool add_special, bool parse_special,
                        int32_t *out, size_t n_out);
    /* Returns the number of bytes of one token's text, or minus this number if n_out is too small. The text of control
     * tokens is empty unless `special`. */
    int32_t (*piece)(const model *m, int32_t token, bool special, char *out, size_t n_out);
    bool (*is_end)(const model *m, int32_t token);     /* returns whether the token ends a turn or the text */
    bool (*is_control)(const model *m, int32_t token); /* returns whether the token is a control token, which only a
                                                        * template may produce */
    const char *(*chat_template)(const model *m);      /* returns the Jinja source, or NULL */
    int32_t (*bos)(const model *m);                    /* returns -1 if the model has no such token */
    int32_t (*eos)(const model *m);                    /* returns -1 if the model has no such token */
    int32_t (*fim)(const model *m, llm_fim mark);      /* returns -1 if the model has no such token */
    const char *(*tool_template)(const model *m);      /* Jinja source of a second template, which is for conversations
                                                        * with tools, or NULL */
} model_ops;

/* Returns whether the embedding has been cancelled. Another thread sets the flag. A relaxed load suffices, because no
 * other memory depends on the flag. */
static inline bool model_embedding_is_cancelled(const int32_t *cancel_flag)
{
    return cancel_flag != NULL && __atomic_load_n(cancel_flag, __ATOMIC_RELAXED) != 0;
}

struct model {
    const model_ops *ops; /* `struct model` is the first member of each implementation's struct */
    model_info info;
};

/* Opens "sim:..." with model_sim and any other name with model_llama. Returns LLM_OK, or LLM_INVALID, LLM_MODEL_LOAD or
 * LLM_NO_MEMORY with an error message in `error`. */
int model_open(const char *name, const model_options *options, model **out, char *error, size_t error_bytes);

/* Returns sampling parameters whose values all mean "not stated", for a model whose file recommends none. */
llm_sampling model_sampling_unstated(void);

int model_llama_open(const model_options *options, model **out, char *error, size_t error_bytes);
uint32_t model_llama_progress(void);                   /* see llm_loading_progress */
const char *model_llama_gpu_trouble(void);             /* see llm_gpu_trouble */
size_t model_llama_processor(char *out, size_t n_out); /* see llm_processor */
void model_llama_machine(llm_machine *out);            /* see llm_machine_measure */
size_t model_llama_devices(llm_device *out, size_t n_out);
int model_sim_open(const model_options *options, model **out, char *error, size_t error_bytes);

#ifdef __cplusplus
}
#endif
#endif
