/* llm.h, llm_wire.h, llm_words.h and llm_session_table.h are the whole API of libllm.
 *
 * libllm loads one language model and serves many independent sessions with it. A session holds one or more branches. A
 * branch is one history of tokens. libllm records every token that a branch has consumed. The model's state after these
 * tokens is reused only for a prompt that begins with the same tokens.
 *
 * llm_engine_open loads the model. llm_engine_start starts the decode thread. This thread owns the model and all
 * sessions until llm_engine_stop. Callers send commands with llm_command_push and receive events with llm_events_drain.
 * Commands and events are MessagePack messages. llm_wire.h specifies these messages.
 *
 * An open branch has an entry in the session table (llm_session_table.h). An entry is a record and an array of tokens.
 * While the branch's state is in the model's memory, the branch also has a slot. A slot is one of the model's
 * sequences. A parked branch has an entry and no slot.
 *
 * Conventions. Functions returning `int` return an llm_status: LLM_OK is 0. Every other status is an error. After an
 * error, all outputs are unchanged, except where a function's comment says otherwise. Strings are UTF-8 and
 * NUL-terminated unless a length is given. libllm never calls back into the caller. No exception and no signal leaves
 * the library. Token ids are int32. Durations are microseconds of CLOCK_MONOTONIC. Times of day are milliseconds of
 * CLOCK_REALTIME.
 *
 * The daemon's cffi module is built from this file, after the preprocessor has run with LLM_CFFI defined. */
#ifndef LLM_H
#define LLM_H

#ifndef LLM_CFFI
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#define LLM_API __attribute__((visibility("default")))
#else
#define LLM_API
#endif

/* ---- limits ---------------------------------------------------------------------------------------------- */

enum {
    LLM_SESSION_NAME_BYTES_MAX = 128, /* a name has 1..128 printable ASCII characters without spaces. The empty
                                       * name means scratch */
    LLM_STOPS_MAX = 24,               /* stop strings of one request, including the stop strings of the chat template */
    LLM_TEMPLATE_STOPS_MAX = 8,       /* stop strings of a chat template. A request can add 16 more */
    LLM_STOP_BYTES_MAX = 256,         /* bytes of one stop string */
    LLM_LOGIT_BIASES_MAX = 1024,
    LLM_STOP_TOKENS_MAX = 128,
    /* sequence breakers of the DRY sampler, each of at most LLM_STOP_BYTES_MAX bytes */
    LLM_DRY_BREAKERS_MAX = 16,
    LLM_CONSTRAINT_BYTES_MAX = 1 << 19, /* bytes of the `constraint` of a GENERATE */
    LLM_SEQUENCES_MAX = 256,            /* slots in the model's memory, for named and scratch branches together */
    LLM_PARKED_MAX = 1024,              /* entries beyond the slots, for parked branches */
    LLM_BOUNDARIES_MAX = 256,           /* of the message boundaries of a prompt, only the last 256 are used */
    LLM_LABEL_BYTES_MAX = 128,          /* bytes of a saved session's label, which is printable ASCII without spaces */
    LLM_SAVED_MAX = 1024,               /* saved sessions in one model's state directory */
    LLM_SAVED_PER_OWNER_MAX = 128,
    LLM_REQUESTS_MAX = 256,       /* live generations of one engine, waiting generations included */
    LLM_SESSION_QUEUE_MAX = 8,    /* requests that wait for one busy session */
    LLM_SCRATCH_QUEUE_MAX = 192,  /* requests that wait for a scratch branch */
    LLM_OUTBOX_BYTES_MAX = 65536, /* a request with this many bytes of undelivered text takes part in no step */
    LLM_TEXT_BYTES_MAX = 256,
    LLM_LOGPROBS_MAX = 20,     /* how many of the most likely tokens can be reported for each generated token */
    LLM_JSON_DEPTH_MAX = 1024, /* nesting levels that llm_json_scan can follow */
};

#include "llm_words.h"

/* Version of this library ("0.1.0") and version of the llama.cpp inside it. Any thread. The functions return static
 * strings. */
LLM_API const char *llm_version(void);
LLM_API const char *llm_backend_version(void);
/* Writes a description for people. It lists the processor features that this build uses, and the features that the
 * build leaves out, with the reason. It also says whether the most recently opened model runs with flash attention. Any
 * thread. */
LLM_API void llm_processor(char *out, size_t n_out);

/* Returns why everything is computed on the CPU although the library was built for a GPU. Returns "" if the library
 * uses the GPU or was not built for one. The reason is known after an engine has opened a model file. Any thread. The
 * string is static. */
LLM_API const char *llm_gpu_trouble(void);

typedef struct llm_machine {
    uint64_t free_bytes;    /* host memory that this process can still use: free on the machine, and within the limits
                             * of the process */
    uint64_t allowed_bytes; /* host memory that the control groups still allow. UINT64_MAX means no limit */
    int32_t n_cores;        /* physical cores that this process may use, at most the quota of the process */
    int32_t n_allowed;      /* processors that the control groups' quota allows. INT32_MAX means no quota */
} llm_machine;

typedef struct llm_device {
    char name[64];
    char description[128];
    uint64_t free_bytes, total_bytes;
    int32_t is_gpu; /* 0 for the processor, and for an accelerator that uses the host's memory */
} llm_device;

/* Measures this machine. Any thread. */
LLM_API void llm_machine_measure(llm_machine *out);

/* Stores up to n_out of the devices on which this build can compute. Returns the number of all such devices. Loads
 * llama.cpp's backends, which takes a second if there is a GPU. Any thread. */
LLM_API size_t llm_devices(llm_device *out, size_t n_out);

/* ---- engine ----------------------------------------------------------------------------------------------- */

typedef struct llm_engine llm_engine;

typedef struct llm_engine_options {
    const char *model;      /* path of a GGUF file, or "sim:CLASS[,option=value...]" (sim_model.h lists the options) */
    const char *table_name; /* POSIX shared-memory name ("/llmd-...") that is not in use yet, or NULL for private
                             * memory */
    /* Names of session tables that killed daemons have left, newest first, separated by spaces, or NULL. The engine
     * takes over the sessions of the newest table that belongs to this model, and publishes its own table under
     * table_name. After that, the engine removes the old tables. So if a daemon is killed while it starts, the old
     * tables are still there. */
    const char *dead_table_names;
    const char *chat_template; /* Jinja source that replaces the model's own template, or NULL */
    /* Tokens that one branch can hold. 0 stands for the context length of the model's training, at most 131072 (8192 on
     * a GPU). If kv_bytes_max is too small for this number, the branch can hold fewer tokens. */
    uint32_t n_ctx;
    uint32_t n_sessions;   /* slots for branches of named sessions, at least 1 */
    uint32_t n_scratch;    /* slots for scratch branches, at least 1 */
    uint64_t kv_bytes_max; /* bytes of the KV cache for all sessions. 0 means a fraction of free memory */
    /* llm_kv_type. A saved state of another type is not used. LLM_INVALID if the model cannot store its keys and values
     * in this type */
    uint32_t kv_type;
    uint32_t capacity_policy;  /* llm_policy */
    uint32_t n_parked_max;     /* policy park: entries beyond the slots, for parked branches. 0 means 64 */
    uint32_t branches_max;     /* maximum number of branches of a session. 0 means 3 */
    uint64_t parked_bytes_max; /* host memory for parked states. 0 means a tenth of free memory */
    /* Limit on the bytes of states in state_dir. 0 stands for half of the space that is free at the start, plus the
     * bytes of the states that are already there. */
    uint64_t parked_disk_bytes_max;
    uint64_t checkpoint_bytes_max; /* host memory for checkpoints. 0 means a tenth of free memory */
    uint32_t checkpoint_every;     /* generated tokens between checkpoints. 0 means 256 */
    uint32_t idle_s_max;           /* an idle session is forgotten after this many seconds. 0 means never */
    const char *state_dir; /* existing directory for parked and saved sessions. With NULL, nothing is written to disk */
    /* Threads of a step. With 0, a measurement at the start chooses the fastest number, at most one thread for each
     * physical core that this process can use. With 0, steps also use fewer threads while other processes use the
     * cores. */
    int32_t n_threads;
    int32_t n_gpu_layers; /* layers on the GPU. -1 means as many as fit. Ignored without a GPU */
    uint32_t n_batch;     /* maximum number of tokens of a model step. 0 means 512 */
    /* Maximum gap between two tokens of a decoding session, in milliseconds. 0 stands for 100. Each step prefills only
     * as many prompt tokens as fit into the gap, but at least 16. */
    uint32_t gap_ms_target;
    uint32_t n_owners; /* number of owners that share the engine (llm_engine_set_owners). 0 counts as 1 */
    /* If nonzero, an answer from reused state equals the answer after a full prefill exactly, not only up to
     * rounding. For this, nothing runs on a GPU, each sequence has its own KV stream, flash attention is off, and a
     * sliding window has a cell for each position. */
    uint32_t exact;
    /* Nonzero turns drafts off: no model call verifies any. Drafts make answers faster, and never change them: see
     * drafting.h. */
    uint32_t no_drafts;
    /* A smaller model with the same vocabulary, which guesses drafts while one request decodes, or NULL. LLM_INVALID if
     * its vocabulary is another one */
    const char *draft_model;
    uint32_t command_ring_bytes; /* 0: enough for two prompts of n_ctx tokens, at least 1 MiB */
    uint32_t event_ring_bytes;   /* 0: 1 MiB */
    uint32_t allow_oversize;     /* nonzero allows a model that is larger than the available memory */
    /* Text that is written to stderr if llama.cpp crashes during llm_engine_open. After the text, the process ends with
     * status 1. With NULL, crashes are not caught. */
    const char *crash_notice;
} llm_engine_options;

/* Every sampling parameter: X(type, name, least value, most, default, text). The text says what the value means, or
 * which value switches the parameter off. This table is the source of the struct llm_sampling, the parser of commands
 * and the daemon's class Sampling. The function llm_command_push refuses a parameter outside its range. The ranges
 * allow more than the useful values. Still, no value in a range can overflow a computation. The minimum of
 * repeat_penalty is positive because the sampler divides by repeat_penalty. */
#define LLM_SAMPLING_TABLE(X)                                                                                          \
    X(float, temperature, 0, 100, 0, "0: greedy")                                                                      \
    X(float, top_p, 0, 1, 1, "1: off")                                                                                 \
    X(float, min_p, 0, 1, 0, "0: off")                                                                                 \
    X(float, repeat_penalty, 0.001, 100, 1, "1: off")                                                                  \
    X(float, presence_penalty, -100, 100, 0, "0: off")                                                                 \
    X(float, frequency_penalty, -100, 100, 0, "0: off")                                                                \
    X(int32_t, top_k, 0, INT32_MAX, 0, "0: off")                                                                       \
    X(int32_t, penalty_last_n, 0, 16777216, 64, "number of last tokens, prompt included, that are penalized")          \
    X(uint64_t, seed, 0, UINT64_MAX, UINT64_MAX, "18446744073709551615: a random seed")                                \
    X(float, typical_p, 0, 1, 1, "1: off")                                                                             \
    X(float, top_n_sigma, -1, 1000, -1, "0 or less: off")                                                              \
    X(float, dynatemp_range, 0, 100, 0, "0: constant temperature")                                                     \
    X(float, dynatemp_exponent, 0, 100, 1, "exponent of the entropy in dynamic temperature")                           \
    X(float, xtc_probability, 0, 1, 0, "0: off")                                                                       \
    X(float, xtc_threshold, 0, 1, 0.1f, "above 0.5: off")                                                              \
    X(float, dry_multiplier, 0, 100, 0, "0: off")                                                                      \
    X(float, dry_base, 0, 100, 1.75, "below 1: off")                                                                   \
    X(int32_t, dry_allowed_length, 0, 16777216, 2, "longest repetition that is not penalized")                         \
    X(int32_t, dry_penalty_last_n, 0, 16777216, 64,                                                                    \
      "number of last tokens, prompt included, that DRY searches; 0: off")                                             \
    X(int32_t, mirostat, 0, 2, 0, "0: off; otherwise mirostat and temperature replace all samplers")                   \
    X(float, mirostat_tau, 0, 100, 5, "target surprise of mirostat")                                                   \
    X(float, mirostat_eta, 0, 1, 0.1f, "learning rate of mirostat")                                                    \
    X(float, adaptive_target, -1, 1, -1, "average probability that adaptive_p aims at; negative: off")                 \
    X(float, adaptive_decay, 0, 0.99f, 0.9f, "adaptive_p averages about 1 / (1 - this) tokens")                        \
    X(int32_t, min_keep, 0, INT32_MAX, 0, "candidates that every sampler leaves")                                      \
    X(uint64_t, samplers, 0, UINT64_MAX, 0,                                                                            \
      "llm_sampler numbers in the order of use, four bits each; 0: the default ones, 15: none")

#define LLM_SAMPLING_MEMBER(type, name, least, most, otherwise, text) type name;

/* A set of sampling parameters. In llm_info.sampling_default, a parameter is NaN if the model recommends no value for
 * it. A parameter of type int32_t cannot be NaN. It is negative instead. */
typedef struct llm_sampling {
    LLM_SAMPLING_TABLE(LLM_SAMPLING_MEMBER)
} llm_sampling;

/* Facts about the opened model. A row of LLM_MODEL_FACT_TABLE is X(type, member, text). Facts that are strings are in
 * LLM_MODEL_TEXT_TABLE, whose rows are X(member, bytes, text). The header model.h uses the same tables. To add a fact,
 * change every place that tests/test_travels.py lists. */
#define LLM_MODEL_FACT_TABLE(X)                                                                                        \
    X(uint32_t, n_ctx, "tokens one branch can hold")                                                                   \
    X(uint32_t, n_ctx_train, "context length of the model's training, in tokens")                                      \
    X(uint32_t, n_vocab, "tokens in the vocabulary")                                                                   \
    X(uint32_t, n_cells, "tokens that fit the KV cache; UINT32_MAX: not limited")                                      \
    X(uint32_t, n_batch, "most tokens of one step")                                                                    \
    X(uint32_t, n_window, "sliding window in tokens; 0: none")                                                         \
    X(int32_t, n_threads, "threads of a step while no other process uses the cores")                                   \
    X(uint64_t, n_params, "parameters of the model")                                                                   \
    X(uint64_t, model_bytes, "bytes of the weights")                                                                   \
    X(uint64_t, host_bytes, "bytes of the weights that are not on the GPU, if there is a GPU")                         \
    X(uint64_t, state_bytes, "most bytes of KV cache and recurrent state")                                             \
    X(uint64_t, kv_token_bytes,                                                                                        \
      "bytes of KV cache of a token, except in layers with a sliding window; 0: no KV cache")                          \
    X(uint32_t, token_bytes_max, "bytes of the longest token: a text of n bytes has at least n / this tokens")         \
    X(uint32_t, n_embedding, "dimensions of an embedding; 0: the model makes none")                                    \
    X(uint32_t, n_embedding_tokens, "most tokens of a text to embed")                                                  \
    X(llm_sampling, sampling_default, "sampling parameters that the model recommends")
#define LLM_MODEL_TEXT_TABLE(X)                                                                                        \
    X(name, 128, "general.name, or the file's stem")                                                                   \
    X(arch, 64, "general.architecture")                                                                                \
    X(description, 128, "architecture, size and quantization: qwen3 0.6B Q8_0")                                        \
    X(backend, 128, "devices in use: CPU, CUDA0 (NVIDIA ...)")

#define LLM_MODEL_FACT_MEMBER(type, member, text) type member;
#define LLM_MODEL_TEXT_MEMBER(member, bytes, text) char member[bytes];

typedef struct llm_info {
    LLM_MODEL_FACT_TABLE(LLM_MODEL_FACT_MEMBER)
    LLM_MODEL_TEXT_TABLE(LLM_MODEL_TEXT_MEMBER)
    uint32_t memory;  /* llm_memory */
    uint32_t kv_type; /* llm_kv_type */
    uint32_t has_chat_template;
    /* slots for named branches. n_sessions, n_scratch, n_entries and n_pins_max are 0 for an embedding-only model */
    uint32_t n_sessions;
    uint32_t n_scratch;
    uint32_t n_entries;  /* entries of the session table: one for each slot, and the entries for parked branches */
    uint32_t n_pins_max; /* limit on pinned branches, all owners together */
    uint64_t parked_bytes_max;
    uint64_t parked_disk_bytes_max; /* limit on disk use. 0 means that there is no state directory */
    uint64_t checkpoint_bytes_max;
    char fingerprint[33]; /* hash of the model's file: 128 bits in hexadecimal. It does not depend on the options */
} llm_info;

/* Loads the model and opens all other parts of the engine. The calling thread becomes the engine's owner. Opening a
 * large file takes seconds. On error *out is NULL, and `error` (capacity `error_bytes`, may be NULL) names the cause. A
 * model that only makes embeddings has no sessions, and its kind of memory is LLM_MEMORY_NONE. For such a model, n_ctx
 * limits the tokens of one text.
 *
 *   LLM_INVALID     an option is out of range.
 *   LLM_MODEL_LOAD  the file is missing, damaged, or not a text model (libllm checks the file before llama.cpp reads
 *                   it), or an assertion of llama.cpp failed.
 *   LLM_IO          the shared memory cannot be made. `error` has the name of the memory and the errno.
 *   LLM_NO_MEMORY   the weights or the state are larger than the available memory. */
LLM_API int llm_engine_open(const llm_engine_options *options, llm_engine **out, char *error, size_t error_bytes);

/* Returns the loaded part of the model in thousandths. The value is 0 before loading begins, and 1000 for a loaded
 * model. A process opens one model at a time. Any thread. */
LLM_API uint32_t llm_loading_progress(void);

/* Starts the decode thread, which then serves commands. Owner thread. Returns LLM_MISUSE if the engine was started
 * before. Returns LLM_IO if the system cannot make a thread. */
LLM_API int llm_engine_start(llm_engine *engine);

/* Stops serving. Cancels all requests, and each request still gets its FINISHED. Joins the decode thread. Then writes
 * all named sessions to the state directory, if there is one. Afterwards the caller can still drain the remaining
 * events. Owner thread. Idempotent. */
LLM_API int llm_engine_stop(llm_engine *engine);

/* Stops the engine if needed, frees everything and removes the session table's name. NULL is allowed. Owner thread. */
LLM_API void llm_engine_close(llm_engine *engine);

/* Sets how many owners share the engine. With several owners, no owner can take all entries, all pins or a whole queue.
 * If something must be evicted, it is taken from the owner who holds the most. share.h has these rules. 0 counts as 1.
 * Any thread. The engine's next decision uses the new number. */
LLM_API void llm_engine_set_owners(llm_engine *engine, uint32_t n_owners);

/* Copies facts about the open engine. The facts never change. Any thread. */
LLM_API void llm_engine_info(const llm_engine *engine, llm_info *out);

/* Returns how many loops the decode thread has completed. The number does not change during a step, nor while the
 * thread sleeps for lack of work. *busy is 1 during a step, otherwise 0. `busy` may be NULL. Any thread. */
LLM_API uint64_t llm_engine_heartbeat(const llm_engine *engine, uint32_t *busy);

/* Finds this owner's checkpoints for a prompt. A checkpoint counts if it was saved after exactly the first k of
 * `tokens`. Writes the values of k in ascending order, at most n_out of them. Returns how many values were written. Any
 * thread. Never waits for the decode thread, so a checkpoint that changes during the call may be missing. */
LLM_API size_t llm_engine_checkpoints(const llm_engine *engine, uint32_t owner, const int32_t *tokens, size_t n_tokens,
                                      uint32_t *out, size_t n_out);

/* ---- text ------------------------------------------------------------------------------------------------- *
 * Any thread can call these functions, also while the decode thread runs. Some functions return a count. If the buffer
 * is too small for the n elements of the result, such a function returns -n. On an error (invalid token id, out of
 * memory), the function returns INT64_MIN.
 */

/* Converts text to tokens. With `parse_special`, the text of a control token becomes this token. That is safe only for
 * trusted text. `add_special` adds the model's BOS and EOS where the model expects them. */
LLM_API int64_t llm_tokenize(const llm_engine *engine, const char *text, size_t n_bytes, int add_special,
                             int parse_special, int32_t *out, size_t n_out);

/* Converts tokens to bytes, which can begin or end inside a UTF-8 character. If `special` is nonzero, the bytes include
 * the text of control tokens. */
LLM_API int64_t llm_detokenize(const llm_engine *engine, const int32_t *tokens, size_t n_tokens, int special, char *out,
                               size_t n_out);

/* Returns the Jinja source of the chat template in use, or NULL if the model has no template. Valid until the engine is
 * closed. */
LLM_API const char *llm_chat_template(const llm_engine *engine);

/* Control tokens of a fill-in-the-middle prompt. */
typedef enum llm_fim {
    LLM_FIM_PREFIX,     /* precedes the text before the gap */
    LLM_FIM_SUFFIX,     /* precedes the text after the gap */
    LLM_FIM_MIDDLE,     /* ends the prompt. The answer that fills the gap follows */
    LLM_FIM_REPOSITORY, /* precedes the repository's name. The name comes before the repository's files */
    LLM_FIM_FILE,       /* precedes each file of the repository */
    LLM_FIM_N,
} llm_fim;

/* Returns the model's token for `mark`, an llm_fim, or -1 if the model has no such token. Text from a client can never
 * become this token. A model that has tokens for LLM_FIM_PREFIX, LLM_FIM_SUFFIX and LLM_FIM_MIDDLE can fill a gap. */
LLM_API int32_t llm_fim_token(const llm_engine *engine, uint32_t mark);

typedef struct llm_prompt {
    int32_t *tokens; /* owned by the prompt */
    size_t n_tokens;
    char *text; /* the rendered prompt, for logs; owned; not NUL-terminated */
    size_t n_text_bytes;
    int32_t *boundaries; /* ascending token counts at which messages end; owned */
    size_t n_boundaries;
    size_t n_history; /* tokens before the generation prompt. Equals the last boundary. 0 means unknown */
    /* Tokens of the prompt's head. The head is the leading system messages and the tools, which many conversations
     * share. 0 means that the prompt has no head, or that the end of the head is not known. */
    size_t n_head;
    /* Nonzero means that `tokens` begins after an assistant message: the one whose index the request gave in `after`.
     * All counts of tokens then start at the end of this message. */
    uint32_t is_after;
    /* Input of llm_answer_parser_open for the answer to this prompt. 0 bytes mean that the answer is plain text.
     * Owned. */
    char *syntax;
    size_t n_syntax_bytes;
    char *constraint; /* value of the GENERATE entry `constraint`. 0 bytes mean no constraint. Owned */
    size_t n_constraint_bytes;
    int32_t *preserved; /* control tokens whose text belongs to the answer's text; owned */
    size_t n_preserved;
    /* JSON list of the stop strings that end answers of this template, in addition to the end tokens. 0 bytes mean
     * none. Owned. */
    char *stops;
    size_t n_stops_bytes;
} llm_prompt;

/* The JSON `request` of llm_chat_render. Only "messages" is required:
 *   `messages`               list, in OpenAI's format.
 *   `add_generation_prompt`  bool, default true.
 *   `chat_template_kwargs`   object: variables of the template.
 *   `after`                  {"message": index, "rest": text, "last": [...]}. Render only what follows the assistant
 *                            message with this index. llm_chat_render describes this below.
 *   `tools`                  list, in OpenAI's format. A function with is_deferred true can be called. The template
 *                            does not list this function, because a message describes it.
 *   `tool_choice`            {"mode": "auto" | "none" | "required", "names": [the only functions that can be called]}
 *   `parallel_tool_calls`    bool. true allows several calls in one answer. false returns calls after the first as
 *                            text. null lets the template decide.
 *   `constraint`             {"kind": ..., "text": ...}. The output format of the answer's text. With tools, the answer
 *                            has this format or is a tool call. With mode "required" only calls are possible, and
 *                            `constraint` is ignored.
 *   `reasoning_apart`        bool, default true. false makes reasoning part of the text.
 *   `continues`              bool. true means that the last message is the assistant's, and that the answer continues
 *                            this message.
 *   `thinking_tokens_max`    maximum number of reasoning tokens. -1 means no limit.
 *   `follows_thinking`       bool. true makes the prompt's constraint say where reasoning ends. With false, the
 *                            constraint says so only if thinking_tokens_max is set. A command with n_answer_stops
 *                            (llm_wire.h) needs such a constraint.
 */

/* Renders a chat with the model's template and tokenizes it. `request` is described above.
 *
 * Only the template's own text can become control tokens. Text from messages and tools never becomes control tokens.
 *
 * If a template does not describe tools, libllm describes them in a system message. If a template has no format for
 * tool calls, libllm uses a format of its own. Some parts of a tool's schema cannot be enforced and are ignored.
 * docs/limits.md lists these parts. If a template refuses the id of a tool call, libllm replaces the id with nine
 * letters and digits. If the arguments of a past tool call are not JSON, the template gets an object instead. The only
 * member of this object contains the text of the arguments.
 *
 * `after` names an assistant message. The caller already has the tokens of this answer and of all messages before it.
 * Only what follows the answer is rendered, and the caller appends the new tokens to its own. So the earlier tokens
 * stay unchanged. Without `after`, the template might now render the earlier messages differently, for example without
 * old reasoning. `rest` is the part of the answer's text that the caller's tokens do not cover. `last` has the last
 * tokens of the answer. 32 tokens suffice. If libllm cannot find the end of the answer in the rendered text, libllm
 * renders the whole chat and sets is_after to 0.
 *
 * A template is a program of unknown origin. All renderings of one request together have limits on time, on memory and
 * on recursion. The limits on time and on memory grow with the size of the request.
 *
 * Returns LLM_INVALID if `request` is not JSON as described above. Returns LLM_TEMPLATE if the template refused the
 * chat, failed or exceeded a limit. A missing template is also LLM_TEMPLATE. `error` names the cause. Free with
 * llm_prompt_free, which allows NULL members and clears the struct. */
LLM_API int llm_chat_render(const llm_engine *engine, const char *request, size_t n_bytes, llm_prompt *out, char *error,
                            size_t error_bytes);
LLM_API void llm_prompt_free(llm_prompt *prompt);

/* A parser of one answer. It parses while the answer is generated. Any thread can use a parser, but only one thread at
 * a time. */
typedef struct llm_answer_parser llm_answer_parser;

/* Opens a parser for `syntax`, which is llm_prompt.syntax. The parser keeps no reference to `syntax` or to the engine.
 * Returns LLM_INVALID if `syntax` is malformed (`error` says why), or LLM_NO_MEMORY. */
LLM_API int llm_answer_parser_open(const llm_engine *engine, const char *syntax, size_t n_bytes,
                                   llm_answer_parser **out, char *error, size_t error_bytes);

/* Parses more of the answer's text: UTF-8 in pieces of any length. The pieces include the text of the prompt's
 * preserved tokens. *diffs receives the newly parsed parts as a JSON list. The parser owns the list, which is valid
 * until the parser's next call. The elements of the list are called diffs. A diff is one of:
 *   {"kind": "text" | "reasoning", "text": ...}
 *   {"kind": "call", "text": more of the arguments, "call": 0, 1, ...}. A call's first diff also has "name" and "id".
 * The diffs of an answer, taken together, do not depend on how the text was divided. Text that does not begin a call
 * is returned as text. No text is returned twice. Only two kinds of text are lost:
 * - Blanks and delimiters next to a tool call are lost.
 * - A tool call can have a syntax error after its name. The text from the error to the closing delimiter is lost.
 * The arguments of a complete call are a JSON object. The arguments of an incomplete call are the beginning of a JSON
 * object. Arguments are not checked against the tool's schema. The cost per token does not grow with the answer.
 *
 * `is_final` says that the answer ends with this text. `is_cut` says that a limit cut the answer off. In such an
 * answer, a tool call with an incomplete name is dropped instead of returned as text. Errors: LLM_MISUSE if an earlier
 * feed had `is_final`, and LLM_NO_MEMORY. */
LLM_API int llm_answer_parser_feed(llm_answer_parser *parser, const char *text, size_t n_bytes, int is_final,
                                   int is_cut, const char **diffs, size_t *n_diffs_bytes);

/* Returns how many bytes of the answer the next feed may parse again. The number is usually small. It is large inside a
 * tool call if the call's format does not allow the parser to forget parsed text. Then the next feeds can take long.
 * Any thread, one at a time. */
LLM_API size_t llm_answer_parser_rescan_bytes(const llm_answer_parser *parser);
LLM_API void llm_answer_parser_close(llm_answer_parser *parser); /* NULL is allowed */

typedef struct llm_document {
    char *text; /* owned; NUL-terminated */
    size_t n_bytes;
} llm_document;

/* Makes a constraint document. The document describes to the sampler which answers are allowed. A GENERATE carries the
 * document as `constraint` (llm_wire.h). `request` is a JSON object with the members `kind`, `text` and `strict`.
 * `strict` is a bool, by default true. The kinds are:
 *   `json`         any JSON object.
 *   `json_schema`  `text` is a schema. If strict, a schema with keywords that cannot be enforced is refused. Otherwise
 *                  these keywords are ignored, and the answer can violate them. docs/limits.md lists them. A `format`
 *                  that JSON Schema does not define is always ignored.
 *   `grammar`      `text` is GBNF, with a rule named root.
 *   `regex`        `text` is a regular expression that the whole answer matches.
 *   `choice`       `text` is a JSON list of texts, and the answer is one of them.
 *
 * An input that is too large is refused before it is processed. Errors: LLM_INVALID, LLM_NO_MEMORY. With LLM_INVALID,
 * `error` says what cannot be expressed or which size is too large. Free with llm_document_free, which allows NULL
 * members. Any thread. */
LLM_API int llm_constraint_make(const llm_engine *engine, const char *request, size_t n_bytes, llm_document *out,
                                char *error, size_t error_bytes);
LLM_API void llm_document_free(llm_document *document);

/* ---- embeddings ------------------------------------------------------------------------------------------- */

/* Embeds the first of the n_texts texts, and as many of the next texts as fit into the same batch. *n_done receives the
 * number of embedded texts. `tokens` has the tokens of all texts in order. Text i has n_tokens[i] tokens, from 1 to
 * llm_info.n_embedding_tokens. `out` has room for llm_info.n_embedding floats per text. Each vector has length 1. The
 * call runs concurrently with the decode thread, in memory that only embeddings use. The first call allocates this
 * memory. For an embedding-only model, llm_engine_open has already allocated this memory. Any thread. Concurrent calls
 * run one after the other. `cancel_flag` is NULL or points to a flag that the call checks often. After any thread has
 * set the flag to nonzero, the call ends soon (on a GPU, after the current step).
 *
 * On error the contents of `out` are undefined. Errors:
 * - LLM_CANCELLED: the flag was set.
 * - LLM_INVALID: there are no texts, or the model makes no embeddings.
 * - LLM_CONTEXT_LENGTH: a text has too many tokens.
 * - LLM_TOKEN, LLM_NO_MEMORY, LLM_STEP_FAILED. */
LLM_API int llm_embed(const llm_engine *engine, const int32_t *tokens, const uint32_t *n_tokens, size_t n_texts,
                      const int32_t *cancel_flag, float *out, size_t *n_done);

/* ---- JSON ------------------------------------------------------------------------------------------------- */

/* Limits on one JSON document. */
typedef struct llm_json_limits {
    uint64_t n_values;       /* values of every kind, without the names in objects */
    uint64_t n_containers;   /* objects and lists */
    uint64_t n_keys;         /* names in objects */
    uint64_t depth;          /* levels of objects and lists, at most LLM_JSON_DEPTH_MAX */
    uint64_t n_key_bytes;    /* bytes of one name in the copy that llm_json_scan makes */
    uint64_t n_number_bytes; /* bytes of one number */
    uint64_t n_floats;       /* numbers that are slow to decode: all except integers of up to 18 digits */
    uint64_t n_text_bytes;   /* bytes of all names and strings together, in the same copy */
} llm_json_limits;

typedef struct llm_json {
    char *text; /* the copy of the JSON, which is cheap to decode; owned; not NUL-terminated */
    size_t n_bytes;
    uint32_t verdict; /* llm_json_verdict */
    uint32_t depth;   /* number of open objects and lists where the scan ended */
    size_t offset;    /* number of bytes scanned. After an error or an exceeded limit, the position of the error */
    uint64_t n_values;
    uint64_t n_containers;
    uint64_t n_keys;
    uint64_t n_floats;
    uint64_t n_text_bytes;
} llm_json;

/* Checks in one pass whether the text is strict JSON (RFC 8259, UTF-8). Also makes a copy of the JSON that is cheap to
 * decode. The copy has no blanks between values. Where JSON allows it, the copy has the character itself instead of
 * \uXXXX. An unpaired half of a surrogate pair becomes U+FFFD. Everything else is copied unchanged. The scan stops at
 * the first error or exceeded limit. Time and memory are linear in n_bytes, and nesting uses no stack. Any thread.
 * Errors: LLM_NO_MEMORY, LLM_INVALID. LLM_INVALID means that the JSON is malformed or exceeds a limit. Then
 * out->verdict says why, out->offset says where, and out->text is NULL. Free with llm_json_free, which allows NULL. */
LLM_API int llm_json_scan(const char *text, size_t n_bytes, const llm_json_limits *limits, llm_json *out);
LLM_API void llm_json_free(llm_json *document);

/* ---- saved sessions --------------------------------------------------------------------------------------- */

/* A session saved under a label (command SAVE). */
typedef struct llm_saved {
    uint32_t owner;
    uint32_t n_tokens;
    uint64_t n_bytes;  /* bytes of the state. 0 means that only tokens were saved, or that this engine cannot use the
                        * state */
    uint64_t saved_ms; /* CLOCK_REALTIME */
    char label[LLM_LABEL_BYTES_MAX + 8];
} llm_saved;

/* Copies the list of the sessions that any owner has saved for this model, in no particular order. At most n_out of
 * them are copied. Returns the number of saved sessions, at most LLM_SAVED_MAX. Without a state directory, this number
 * is 0. Any thread. */
LLM_API int64_t llm_engine_saved(llm_engine *engine, llm_saved *out, size_t n_out);

/* Copies the oldest unread log message about parked and saved sessions, for example about a full disk or a refused
 * file. Returns LLM_NOT_FOUND if all messages have been read. Any thread. */
LLM_API int llm_engine_complaint(llm_engine *engine, char *out, size_t n_bytes);

#ifndef LLM_CFFI
#ifdef __cplusplus
}
#endif
#endif
#endif
