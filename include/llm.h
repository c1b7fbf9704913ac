/* llm.h: the whole API of libllm, together with llm_wire.h and llm_session_table.h.
 *
 * libllm loads one language model and holds many independent sessions over it, each with one or more branches. A branch
 * is one history of tokens. libllm knows exactly which tokens a branch has consumed, and reuses a state only if the
 * tokens prove that it is the same state.
 *
 * llm_engine_open loads the model; llm_engine_start makes the decode thread, which owns the model and all sessions
 * until llm_engine_stop. Commands go in through llm_command_push, events come out through llm_events_drain; both are
 * MessagePack, specified in llm_wire.h.
 *
 * An open branch has an entry: a record of its own in the session table, with its tokens (llm_session_table.h). While
 * its state is in the model's memory it also has a slot, one of the model's sequences. A parked branch has an entry and
 * no slot.
 *
 * Conventions. Functions returning `int` return an llm_status: LLM_OK is 0, everything else is an error and leaves
 * all outputs untouched unless the function says otherwise. Strings are UTF-8 and NUL-terminated unless a length
 * is given. Nothing here calls back into the caller. No exception and no signal leaves the library. Token ids are
 * int32. Times are microseconds of CLOCK_MONOTONIC for durations, milliseconds of CLOCK_REALTIME for stamps.
 *
 * This file is read by cffi after the preprocessor, with LLM_CFFI defined.
 */
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
    LLM_SESSION_NAME_BYTES_MAX = 128, /* 1..128 printable ASCII characters without spaces; "" means scratch */
    LLM_STOPS_MAX = 24,               /* stop strings of one request, those of its template included */
    LLM_TEMPLATE_STOPS_MAX = 8, /* stop strings of a template; a request's own cannot use this part of LLM_STOPS_MAX */
    LLM_STOP_BYTES_MAX = 256,   /* bytes of one stop string */
    LLM_LOGIT_BIASES_MAX = 1024,
    LLM_STOP_TOKENS_MAX = 128,
    LLM_DRY_BREAKERS_MAX = 16,          /* texts that end a repetition, of at most LLM_STOP_BYTES_MAX bytes */
    LLM_CONSTRAINT_BYTES_MAX = 1 << 19, /* bytes of a constraint's document, its grammar included */
    LLM_SEQUENCES_MAX = 256,            /* slots in the model's memory: named + scratch */
    LLM_PARKED_MAX = 1024,              /* parked branches that can be open beyond those with slots */
    LLM_BOUNDARIES_MAX = 256,           /* boundaries of one prompt; if there are more, only the last ones are used */
    LLM_LABEL_BYTES_MAX = 128,          /* bytes of a label: printable ASCII without spaces */
    LLM_SAVED_MAX = 1024,               /* labels in one model's state directory */
    LLM_SAVED_PER_OWNER_MAX = 128,
    LLM_REQUESTS_MAX = 256,       /* live generations of one engine, waiting ones included */
    LLM_SESSION_QUEUE_MAX = 8,    /* requests waiting for one busy session */
    LLM_SCRATCH_QUEUE_MAX = 192,  /* requests waiting for a scratch session */
    LLM_OUTBOX_BYTES_MAX = 65536, /* undelivered text of one request; a request above it is not stepped */
    LLM_TEXT_BYTES_MAX = 256,
    LLM_LOGPROBS_MAX = 20,     /* most likely tokens that can be returned with each generated one */
    LLM_JSON_DEPTH_MAX = 1024, /* levels that llm_json_scan can follow */
};

#include "llm_words.h"

/* Versions of this library ("0.1.0") and of the llama.cpp inside it. Any thread; static strings. */
LLM_API const char *llm_version(void);
LLM_API const char *llm_backend_version(void);
/* Describes for people which processor features this build uses, which it does not and why, and whether the model that
 * was opened last uses flash attention. Any thread. */
LLM_API void llm_processor(char *out, size_t n_out);

/* Says why a library that was built for a GPU leaves all work to the CPU; "" if it uses the GPU. Known once an engine
 * has been opened on a model file. Any thread; a static string. */
LLM_API const char *llm_gpu_trouble(void);

/* ---- engine ----------------------------------------------------------------------------------------------- */

typedef struct llm_engine llm_engine;

typedef struct llm_engine_options {
    const char *model; /* path of a GGUF file, or "sim:CLASS[,option=value...]" (sim_model.h lists them) */
    /* POSIX shared-memory name ("/llmd-...") that does not exist yet, or NULL: private memory */
    const char *table_name;
    /* Segments of killed daemons, newest first, separated by spaces; or NULL. The sessions of the first segment of this
     * model are adopted, then all segments of this model are removed, but only after table_name is complete: a process
     * that dies before that loses nothing */
    const char *dead_table_names;
    const char *chat_template; /* Jinja source that replaces the model's own, or NULL */
    /* tokens one session can hold; 0: the model's training context, or as much of it as kv_bytes_max holds, at most
     * 131072 (GPU: 8192) */
    uint32_t n_ctx;
    uint32_t n_sessions;       /* slots for named sessions, >= 1 */
    uint32_t n_scratch;        /* slots for anonymous requests, >= 1 */
    uint64_t kv_bytes_max;     /* limit on KV cache in use; 0: a fraction of free memory */
    uint32_t capacity_policy;  /* llm_policy */
    uint32_t n_parked_max;     /* entries beyond the slots, for parked sessions (policy park); 0: 64 */
    uint32_t branches_max;     /* branches that one session can have; 0: 3 */
    uint64_t parked_bytes_max; /* host memory for parked sessions; 0: a tenth of what is free */
    /* disk for states of sessions in state_dir; 0: half of the disk space that is free at the start or used by such
     * states */
    uint64_t parked_disk_bytes_max;
    uint64_t checkpoint_bytes_max; /* host memory for checkpoints; 0: a tenth of what is free */
    uint32_t checkpoint_every;     /* generated tokens between checkpoints; 0: 256 */
    uint32_t idle_s_max;           /* idle sessions are forgotten after that many seconds; 0: never */
    const char *state_dir;         /* existing directory for parked and saved sessions, or NULL: memory only */
    /* 0: the number with which a step is fastest, at most one per physical core that this process may use, and fewer
     * while other processes use the cores */
    int32_t n_threads;
    int32_t n_gpu_layers; /* -1: as many as fit; ignored without a GPU */
    uint32_t n_batch;     /* tokens of one model step, at most; 0: 512 */
    /* target for the time between two tokens of a decoding session: prefill is cut into pieces that keep it, of 16
     * tokens at least; 0: 100 */
    uint32_t gap_ms_target;
    uint32_t n_owners; /* number of owners that share the engine; 0: 1. See llm_engine_set_owners */
    /* nonzero: bit-exact configuration (separate KV streams, no flash attention, and a cell of its own for each
     * position of a sliding window) */
    uint32_t exact;
    uint32_t command_ring_bytes; /* 0: sized for two prompts of n_ctx tokens, at least 1 MiB */
    uint32_t event_ring_bytes;   /* 0: 1 MiB */
    uint32_t allow_oversize;     /* nonzero: load a model that is larger than the available memory */
    /* text written to stderr before the process ends with status 1, if llama.cpp crashes while it opens the model;
     * NULL: such a crash is not caught */
    const char *crash_notice;
} llm_engine_options;

/* Every sampling parameter: X(type, name, least, most, default, what switches it off or what it means). llm_sampling,
 * the wire's reader and the daemon's Sampling are made from this table; a parameter outside its range is refused. The
 * ranges are wider than any useful value, and narrow enough that no later computation overflows; repeat_penalty is a
 * divisor and therefore not 0. */
#define LLM_SAMPLING_TABLE(X)                                                                                          \
    X(float, temperature, 0, 100, 0, "0: greedy")                                                                      \
    X(float, top_p, 0, 1, 1, "1: off")                                                                                 \
    X(float, min_p, 0, 1, 0, "0: off")                                                                                 \
    X(float, repeat_penalty, 0.001, 100, 1, "1: off")                                                                  \
    X(float, presence_penalty, -100, 100, 0, "0: off")                                                                 \
    X(float, frequency_penalty, -100, 100, 0, "0: off")                                                                \
    X(int32_t, top_k, 0, INT32_MAX, 0, "0: off")                                                                       \
    X(int32_t, penalty_last_n, 0, 16777216, 64, "tokens the penalties look back over, prompt included")                \
    X(uint64_t, seed, 0, UINT64_MAX, UINT64_MAX, "18446744073709551615: draw one")                                     \
    X(float, typical_p, 0, 1, 1, "1: off")                                                                             \
    X(float, top_n_sigma, -1, 1000, -1, "0 or less: off")                                                              \
    X(float, dynatemp_range, 0, 100, 0, "0: the temperature does not move")                                            \
    X(float, dynatemp_exponent, 0, 100, 1, "how the entropy moves it")                                                 \
    X(float, xtc_probability, 0, 1, 0, "0: off")                                                                       \
    X(float, xtc_threshold, 0, 1, 0.1f, "above 0.5: off")                                                              \
    X(float, dry_multiplier, 0, 100, 0, "0: off")                                                                      \
    X(float, dry_base, 0, 100, 1.75, "below 1: off")                                                                   \
    X(int32_t, dry_allowed_length, 0, 16777216, 2, "tokens that may repeat unpunished")                                \
    X(int32_t, dry_penalty_last_n, 0, 16777216, 64, "tokens it looks back over, prompt included; 0: off")              \
    X(int32_t, mirostat, 0, 2, 0, "0: off; else only mirostat and the temperature apply")                              \
    X(float, mirostat_tau, 0, 100, 5, "target surprise")                                                               \
    X(float, mirostat_eta, 0, 1, 0.1f, "how fast it learns")                                                           \
    X(float, adaptive_target, -1, 1, -1, "average probability that adaptive_p approaches; negative: off")              \
    X(float, adaptive_decay, 0, 0.99f, 0.9f, "adaptive_p averages about 1 / (1 - this) tokens")                        \
    X(int32_t, min_keep, 0, INT32_MAX, 0, "candidates that no sampler goes below")                                     \
    X(uint64_t, samplers, 0, UINT64_MAX, 0,                                                                            \
      "llm_sampler numbers in their order, four bits each; 0: the usual ones, 15: none")

#define LLM_SAMPLING_MEMBER(type, name, least, most, otherwise, text) type name;

/* In a default (llm_info.sampling_default), NaN or a negative count means that the model recommends no value. */
typedef struct llm_sampling {
    LLM_SAMPLING_TABLE(LLM_SAMPLING_MEMBER)
} llm_sampling;

/* Facts about the open model: X(type, member, text), and texts: X(member, bytes, text). model.h has the same ones;
 * tests/test_travels.py lists the other places where a new one must be added. */
#define LLM_MODEL_FACT_TABLE(X)                                                                                        \
    X(uint32_t, n_ctx, "tokens one session may hold")                                                                  \
    X(uint32_t, n_ctx_train, "what the model was trained for")                                                         \
    X(uint32_t, n_vocab, "tokens that there are")                                                                      \
    X(uint32_t, n_cells, "tokens that the KV cache's budget pays for; UINT32_MAX: not limited")                        \
    X(uint32_t, n_batch, "tokens of one step at most")                                                                 \
    X(uint32_t, n_window, "sliding window in tokens; 0: none")                                                         \
    X(int32_t, n_threads, "threads of a step, while nobody else wants the cores")                                      \
    X(uint64_t, n_params, "parameters")                                                                                \
    X(uint64_t, model_bytes, "of the weights")                                                                         \
    X(uint64_t, host_bytes, "of these, what the CPU computes with although there is a GPU")                            \
    X(uint64_t, state_bytes, "KV cache and recurrent state at most")                                                   \
    X(uint32_t, token_bytes_max, "of a token's text: n bytes are at least n / this tokens")                            \
    X(uint32_t, n_embedding, "numbers of an embedding; 0: the model makes none")                                       \
    X(uint32_t, n_embedding_tokens, "of a text to embed, at most")                                                     \
    X(llm_sampling, sampling_default, "what the model recommends")
#define LLM_MODEL_TEXT_TABLE(X)                                                                                        \
    X(name, 128, "general.name, or the file's stem")                                                                   \
    X(arch, 64, "general.architecture")                                                                                \
    X(description, 128, "qwen3 0.6B Q8_0")                                                                             \
    X(backend, 128, "devices in use: CPU, CUDA0 (NVIDIA ...)")

#define LLM_MODEL_FACT_MEMBER(type, member, text) type member;
#define LLM_MODEL_TEXT_MEMBER(member, bytes, text) char member[bytes];

typedef struct llm_info {
    LLM_MODEL_FACT_TABLE(LLM_MODEL_FACT_MEMBER)
    LLM_MODEL_TEXT_TABLE(LLM_MODEL_TEXT_MEMBER)
    uint32_t memory; /* llm_memory */
    uint32_t has_chat_template;
    uint32_t n_sessions; /* slots; 0, like the counts that follow, if the model only makes embeddings */
    uint32_t n_scratch;
    uint32_t n_entries;  /* one for each slot, and n_parked_max for parked branches */
    uint32_t n_pins_max; /* branches that can be pinned in all */
    uint64_t parked_bytes_max;
    uint64_t parked_disk_bytes_max; /* 0: there is no state directory */
    uint64_t checkpoint_bytes_max;
    char fingerprint[33]; /* hex of 128 bits computed from the model's file; independent of the options */
} llm_info;

/* Loads the model and opens everything. The calling thread is the engine's owner. Takes seconds for a large file. On
 * error *out is NULL and `error` (capacity `error_bytes`, may be NULL) says what and why.
 * A model that only makes embeddings (its memory is LLM_MEMORY_NONE) has no sessions: n_ctx limits the tokens of a
 * text. LLM_INVALID (an option is out of range), LLM_MODEL_LOAD (the file is missing, damaged, or no text model: libllm
 * checks it before llama.cpp reads it, and turns failed assertions of llama.cpp into this error), LLM_IO (the segment:
 * name and errno), LLM_NO_MEMORY (the weights or the state are larger than the available memory). */
LLM_API int llm_engine_open(const llm_engine_options *options, llm_engine **out, char *error, size_t error_bytes);

/* Returns how much of the model that is being opened has been loaded, in thousandths: 0 before, 1000 when it is loaded.
 * A process opens one model at a time. Any thread. */
LLM_API uint32_t llm_loading_progress(void);

/* Starts the decode thread, which serves commands from then on. Owner thread.
 * LLM_MISUSE if the engine was started before, LLM_IO if the thread cannot be created. */
LLM_API int llm_engine_start(llm_engine *engine);

/* Ends serving: cancels all requests (each still gets its FINISHED), joins the decode thread, and writes all named
 * sessions to the state directory, if there is one. Events that were not drained can still be drained. Owner thread;
 * idempotent. */
LLM_API int llm_engine_stop(llm_engine *engine);

/* Stops the engine if needed, frees everything and removes the segment's name. NULL is allowed. Owner thread. */
LLM_API void llm_engine_close(llm_engine *engine);

/* Sets the number of owners that share the engine. With more than one, no owner can take all entries, queues or pins,
 * and a branch that must make way is taken from the owner that holds most (share.h). Takes effect with the next
 * decision. 0 counts as 1. Any thread. */
LLM_API void llm_engine_set_owners(llm_engine *engine, uint32_t n_owners);

/* Returns fixed facts about the open engine. Any thread. */
LLM_API void llm_engine_info(const llm_engine *engine, llm_info *out);

/* Counts completed loops of the decode thread. The count does not change while the thread sleeps because it has no
 * work, or while a step runs: `busy` (may be NULL) is 1 during a step. Any thread. */
LLM_API uint64_t llm_engine_heartbeat(const llm_engine *engine, uint32_t *busy);

/* ---- text ------------------------------------------------------------------------------------------------- *
 * Any thread, also while the decode thread runs. A count that is negative, -n, means that the buffer is too small and
 * n are needed; INT64_MIN means an error (invalid token id, out of memory). */

/* Converts text to tokens. `parse_special`: text can contain control tokens (only for trusted text). `add_special`: add
 * BOS and EOS where the model requires them. */
LLM_API int64_t llm_tokenize(const llm_engine *engine, const char *text, size_t n_bytes, int add_special,
                             int parse_special, int32_t *out, size_t n_out);

/* Converts tokens to bytes (not necessarily whole UTF-8 characters). `special`: control tokens are written, not left
 * out. */
LLM_API int64_t llm_detokenize(const llm_engine *engine, const int32_t *tokens, size_t n_tokens, int special, char *out,
                               size_t n_out);

/* Returns the Jinja source that renders chats; NULL: the model has none. Valid until the engine is closed. */
LLM_API const char *llm_chat_template(const llm_engine *engine);

/* Marks of a fill-in-the-middle prompt. */
typedef enum llm_fim {
    LLM_FIM_PREFIX,     /* before the text that precedes the middle */
    LLM_FIM_SUFFIX,     /* before the text that follows the middle */
    LLM_FIM_MIDDLE,     /* before the middle: the model generates from here */
    LLM_FIM_REPOSITORY, /* before a repository's name, which precedes its files */
    LLM_FIM_FILE,       /* before each file of the repository */
    LLM_FIM_N,
} llm_fim;

/* Returns the token of such a mark; -1: the model has none. No text of a client becomes one of these tokens. A model
 * that has the first three can fill in. */
LLM_API int32_t llm_fim_token(const llm_engine *engine, uint32_t mark);

typedef struct llm_prompt {
    int32_t *tokens; /* owned by the prompt */
    size_t n_tokens;
    char *text; /* the rendered prompt, for logs; owned; not NUL-terminated */
    size_t n_text_bytes;
    int32_t *boundaries; /* ascending token counts: [0, boundary) is a whole number of messages; owned */
    size_t n_boundaries;
    size_t n_history; /* tokens before the generation prompt: the last boundary; 0: unknown */
    /* tokens of the leading system messages and of the tools, which many conversations share; 0: there are none, or the
     * template does not show where they end */
    size_t n_head;
    /* nonzero: the prompt has only what follows the answer that `after` named, and all counts begin there */
    uint32_t is_after;
    char *syntax; /* input of llm_answer_parser_open; 0 bytes: the answer is plain text; owned */
    size_t n_syntax_bytes;
    char *constraint; /* value of GENERATE's entry `constraint`; 0 bytes: none; owned */
    size_t n_constraint_bytes;
    int32_t *preserved; /* control tokens whose text belongs to the answer's text; owned */
    size_t n_preserved;
    /* JSON list of texts that end this template's answers, in addition to its end tokens; 0 bytes: none; owned */
    char *stops;
    size_t n_stops_bytes;
} llm_prompt;

/* Renders a chat with the model's template and tokenizes it. `request` is JSON; all but "messages" may be missing:
 *   messages               list, in OpenAI's form
 *   add_generation_prompt  bool, default true
 *   chat_template_kwargs   object: variables of the template
 *   after                  {"message": index, "rest": text, "last": [...]}: render only what follows that answer
 *   tools                  list, in OpenAI's form; a function with is_deferred true can be called, but is not given to the
 *                          template, because a message defines it
 *   tool_choice            {"mode": "auto" | "none" | "required", "names": [only these may be called]}
 *   parallel_tool_calls    bool: an answer can have several calls; null: the template decides. false: further calls are
 *                          read as text
 *   constraint             {"kind": ..., "text": ...}: a form that text must have; with tools, an answer has it or
 *                          calls tools. With mode required it is ignored
 *   reasoning_apart        bool, default true; false: reasoning is a part of the text
 *   continues              bool: the last message is the assistant's, and the answer goes on with it
 *   thinking_tokens_max    the limit on reasoning tokens; -1: none
 *   follows_thinking       true: the constraint describes reasoning also without this limit (llm_wire.h: n_answer_stops)
 * Only the template's own text can become control tokens; text from messages and tools never does.
 * If a template cannot describe tools, a system message describes them; if it has no form for calls, libllm uses its
 * own form. Keywords of a tool's schema that llama.cpp cannot express are not enforced. If a template refuses the ids
 * of calls, they are replaced by nine letters and digits; arguments of past calls that are not JSON become a member of
 * an object.
 * `after` names an assistant message. The caller already has its tokens and all before them, so only the text that
 * follows is rendered, to be appended to those tokens. The past stays as it was generated, even if the template would
 * now write it differently (leave out old reasoning, format calls anew). `rest` is the part of the answer's text that
 * its tokens do not cover; `last` are the answer's last tokens, 32 are enough. If the template does not show where the
 * answer ends, everything is rendered, and is_after is 0.
 * A template is a program that nobody here has reviewed: all renderings of one request together are limited in time and
 * memory, in proportion to the request, and in recursion.
 * LLM_INVALID (the JSON has another form), LLM_TEMPLATE (there is no template, or it refused, failed or exceeded a
 * limit): `error` says why.
 * Free with llm_prompt_free, which allows NULL members and clears the struct. */
LLM_API int llm_chat_render(const llm_engine *engine, const char *request, size_t n_bytes, llm_prompt *out, char *error,
                            size_t error_bytes);
LLM_API void llm_prompt_free(llm_prompt *prompt);

/* Parses an answer while it is generated. One parser serves one answer; any thread, one at a time. */
typedef struct llm_answer_parser llm_answer_parser;

/* `syntax` is that of an llm_prompt; the parser keeps no pointer to it or to the engine. LLM_INVALID (malformed syntax;
 * `error` says why), LLM_NO_MEMORY. */
LLM_API int llm_answer_parser_open(const llm_engine *engine, const char *syntax, size_t n_bytes,
                                   llm_answer_parser **out, char *error, size_t error_bytes);

/* Takes the next piece of the answer's text (UTF-8, split anywhere), including the text of the prompt's preserved
 * tokens. *diffs is a JSON list of what was added, valid until the next call:
 *   {"kind": "text" | "reasoning", "text": ...}
 *   {"kind": "call", "text": more of its arguments, "call": 0, 1, ..., and in its first diff "name", "id"}
 * The joined diffs depend only on the whole text, not on how it was split. Anything that does not begin as a call is
 * text. Nothing is lost or reported twice except blanks around calls, and the rest of a call that breaks its form, up
 * to the text that closes calls. The arguments of a call are the beginning of a JSON object, not checked against the
 * tool's schema; they are a complete object if and only if the call is complete. The cost per token does not grow with
 * the answer. `is_final`: this is the last piece. `is_cut`, with is_final: the answer was cut off, so that a call whose
 * name is incomplete is dropped and not returned as text. LLM_MISUSE (a call after is_final), LLM_NO_MEMORY. */
LLM_API int llm_answer_parser_feed(llm_answer_parser *parser, const char *text, size_t n_bytes, int is_final,
                                   int is_cut, const char **diffs, size_t *n_diffs_bytes);

/* Returns how many bytes of the answer the next feed may parse again. They are few, except within a call whose form
 * cannot be parsed in pieces; then the next feeds may take long. */
LLM_API size_t llm_answer_parser_rescan_bytes(const llm_answer_parser *parser);
LLM_API void llm_answer_parser_close(llm_answer_parser *parser); /* NULL is allowed */

typedef struct llm_document {
    char *text; /* owned; NUL-terminated */
    size_t n_bytes;
} llm_document;

/* Compiles the form that an answer must have into the value of GENERATE's `constraint` (llm_wire.h). `request` is JSON:
 * {"kind": ..., "text": ..., "strict": bool (default true)}:
 *
 *   json         any JSON object
 *   json_schema  `text` is a schema. Keywords that cannot be enforced are an error if strict, otherwise ignored.
 *                Never enforced: formats other than date, time, date-time, duration, email and uuid; that only one
 *                alternative of oneOf matches; maxLength and maxItems above 2000. In a pattern, a set of characters has
 *                only characters that JSON does not escape
 *   grammar      `text` is GBNF, with a rule named root
 *   regex        `text` is an expression that the whole answer matches
 *   choice       `text` is a JSON list of texts; the answer is one of them
 *
 * The work has a limit, checked before it is done. LLM_INVALID: `error` says what cannot be expressed, or names the
 * limit. LLM_NO_MEMORY. Free with llm_document_free, which allows NULL members. Any thread. */
LLM_API int llm_constraint_make(const llm_engine *engine, const char *request, size_t n_bytes, llm_document *out,
                                char *error, size_t error_bytes);
LLM_API void llm_document_free(llm_document *document);

/* ---- embeddings ------------------------------------------------------------------------------------------- */

/* Embeds as many of the n_texts texts as the model takes in one call, at least the first one; *n_done says how many.
 * `tokens` are the tokens of all texts, one text after the other, n_tokens[i] of the i-th: 1 to
 * llm_info.n_embedding_tokens. `out` has room for llm_info.n_embedding floats per text; each vector has length 1. Runs
 * next to the decode thread in memory of its own, which is allocated by the first call, or at the start if the model
 * only makes embeddings. Any thread; one caller works at a time, others wait. `cancel_flag`: NULL, or a flag that is
 * read often: once any thread sets it, the call ends soon (on a GPU, after the current step). LLM_CANCELLED,
 * LLM_INVALID (no texts, or the model makes no embeddings), LLM_CONTEXT_LENGTH (a text is too long), LLM_TOKEN,
 * LLM_NO_MEMORY, LLM_STEP_FAILED: then the contents of `out` are undefined. */
LLM_API int llm_embed(const llm_engine *engine, const int32_t *tokens, const uint32_t *n_tokens, size_t n_texts,
                      const int32_t *cancel_flag, float *out, size_t *n_done);

/* ---- JSON ------------------------------------------------------------------------------------------------- */

/* Upper limits for one document. */
typedef struct llm_json_limits {
    uint64_t n_values;       /* values of every kind, names in objects not counted */
    uint64_t n_containers;   /* objects and lists */
    uint64_t n_keys;         /* names in objects */
    uint64_t depth;          /* levels of objects and lists; at most LLM_JSON_DEPTH_MAX */
    uint64_t n_key_bytes;    /* bytes of one name, as it is copied */
    uint64_t n_number_bytes; /* bytes of one number */
    uint64_t n_floats;       /* numbers other than integers of up to 18 digits: slow to decode */
    uint64_t n_text_bytes;   /* bytes of all names and strings together, as they are copied */
} llm_json_limits;

typedef struct llm_json {
    char *text; /* the copy; owned; not NUL-terminated */
    size_t n_bytes;
    uint32_t verdict; /* llm_json_verdict */
    uint32_t depth;   /* levels still open where the scan ended: 0 for a whole document */
    size_t offset;    /* bytes read up to the fault or limit */
    uint64_t n_values;
    uint64_t n_containers;
    uint64_t n_keys;
    uint64_t n_floats;
    uint64_t n_text_bytes;
} llm_json;

/* Checks JSON (RFC 8259, strictly, in UTF-8) in one pass, and copies it in a form that is quick to decode: no space
 * between values, \uXXXX replaced by the character itself where JSON allows it, half a surrogate pair by U+FFFD;
 * everything else is unchanged. Stops at the first fault or limit. Takes time and memory linear in n_bytes, and no
 * stack per level. Any thread. LLM_INVALID (`out` says what and where, and has no text), LLM_NO_MEMORY. Free with
 * llm_json_free, which allows NULL. */
LLM_API int llm_json_scan(const char *text, size_t n_bytes, const llm_json_limits *limits, llm_json *out);
LLM_API void llm_json_free(llm_json *document);

/* ---- saved sessions --------------------------------------------------------------------------------------- */

/* A session that was saved under a label (SAVE). */
typedef struct llm_saved {
    uint32_t owner;
    uint32_t n_tokens;
    uint64_t n_bytes;  /* bytes of its state; 0: only tokens were saved, or this engine cannot use the state */
    uint64_t saved_ms; /* CLOCK_REALTIME */
    char label[LLM_LABEL_BYTES_MAX + 8];
} llm_saved;

/* Copies the list of sessions saved for this model, of all owners, in no order. Returns how many there are, at most
 * LLM_SAVED_MAX, even if only n_out were copied; 0 without a state directory. Any thread. */
LLM_API int64_t llm_engine_saved(llm_engine *engine, llm_saved *out, size_t n_out);

/* Copies the oldest unread message for the operator about parked and saved sessions, for example a full disk or a
 * refused file; LLM_NOT_FOUND: there is none. Any thread. */
LLM_API int llm_engine_complaint(llm_engine *engine, char *out, size_t n_bytes);

#ifndef LLM_CFFI
#ifdef __cplusplus
}
#endif
#endif
#endif
