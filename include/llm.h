/* llm.h: the whole API of libllm, with llm_wire.h and llm_session_table.h. Not in these headers, not API.
 *
 * libllm loads one language model and holds many independent sessions over it, each with one or more branches. A branch is one
 * history of tokens: what it has consumed is known exactly, token by token, and state is reused only when the tokens prove
 * that it is the same state.
 *
 * llm_engine_open loads the model; llm_engine_start makes the decode thread, which owns the model and all sessions until
 * llm_engine_stop. Commands go in through llm_command_push, events come out through llm_events_drain; both are
 * MessagePack, specified in llm_wire.h.
 *
 * An open session has an entry: a record of its own in the session table, with its tokens (llm_session_table.h). While its state is in
 * the model's memory it also has a slot, one of the model's sequences. A parked session has an entry and no slot.
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
    LLM_STOPS_MAX = 24,               /* stop strings of one request, its template's among them */
    LLM_TEMPLATE_STOPS_MAX = 8,       /* of a template: room that nothing else takes */
    LLM_STOP_BYTES_MAX = 256,         /* bytes of one stop string */
    LLM_LOGIT_BIASES_MAX = 1024,
    LLM_STOP_TOKENS_MAX = 128,
    LLM_DRY_BREAKERS_MAX = 16,          /* texts that end a repetition, of at most LLM_STOP_BYTES_MAX bytes */
    LLM_CONSTRAINT_BYTES_MAX = 1 << 19, /* of a constraint's document, its grammar included */
    LLM_SEQUENCES_MAX = 256,            /* slots in the model's memory: named + scratch */
    LLM_PARKED_MAX = 1024,              /* sessions beyond them that may be parked */
    LLM_BOUNDARIES_MAX = 256,           /* of one prompt; of more the last ones count */
    LLM_LABEL_BYTES_MAX = 128,          /* of a saved session: printable ASCII without spaces */
    LLM_SAVED_MAX = 1024,               /* labels of one model's state directory */
    LLM_SAVED_PER_OWNER_MAX = 128,
    LLM_REQUESTS_MAX = 256,       /* live generations of one engine, waiting ones included */
    LLM_SESSION_QUEUE_MAX = 8,    /* requests waiting for one busy session */
    LLM_SCRATCH_QUEUE_MAX = 192,  /* requests waiting for a scratch session */
    LLM_OUTBOX_BYTES_MAX = 65536, /* undelivered text of one request; above it the request is not stepped */
    LLM_TEXT_BYTES_MAX = 256,
    LLM_LOGPROBS_MAX = 20,     /* likeliest tokens told beside each generated one */
    LLM_JSON_DEPTH_MAX = 1024, /* levels that llm_json_scan can follow */
};

#include "llm_words.h"

/* Version of this library ("0.1.0") and of the llama.cpp inside it. Any thread; static strings. */
LLM_API const char *llm_version(void);
LLM_API const char *llm_backend_version(void);
/* What this build uses of the processor, what it leaves out and why, for people; and whether the model that was opened last
 * has flash attention. Any thread. */
LLM_API void llm_processor(char *out, size_t n_out);

/* Why a library that was built for a GPU leaves all work to the CPU; "" where it does not. Known once an engine has been
 * opened on a model file. Any thread; a static string. */
LLM_API const char *llm_gpu_trouble(void);

/* ---- engine ----------------------------------------------------------------------------------------------- */

typedef struct llm_engine llm_engine;

typedef struct llm_engine_options {
    const char *model;      /* path of a GGUF file, or "sim:CLASS[,option=value...]" (sim_model.h lists them) */
    const char *table_name; /* POSIX shared-memory name ("/llmd-...") that nobody has yet, or NULL: private memory */
    const char *dead_table_names;   /* of daemons that were killed, the newest first, separated by spaces; or NULL. The
                                  * sessions of the first one of this model are taken over, then all of this model are
                                  * removed. table_name is there when that is done: whoever dies before it leaves these */
    const char *chat_template;      /* Jinja source that replaces the model's own, or NULL */
    uint32_t n_ctx;                 /* tokens one session may hold; 0: the model's training context, or as much of it as
                                      kv_bytes_max pays for, at most 131072 (GPU: 8192) */
    uint32_t n_sessions;            /* slots for named sessions, >= 1 */
    uint32_t n_scratch;             /* slots for anonymous requests, >= 1 */
    uint64_t kv_bytes_max;          /* budget for the KV cache: what sessions use of it; 0: a fraction of free memory */
    uint32_t capacity_policy;       /* llm_policy */
    uint32_t n_parked_max;          /* entries beyond the slots, for parked sessions (policy park); 0: 64 */
    uint32_t branches_max;          /* branches of one session; 0: 3 */
    uint64_t parked_bytes_max;      /* host memory for parked sessions; 0: a tenth of what is free */
    uint64_t parked_disk_bytes_max; /* disk for states of sessions in state_dir; 0: half of what is free at the start,
                                     * and what they take there already */
    uint64_t checkpoint_bytes_max;  /* host memory for checkpoints; 0: a tenth of what is free */
    uint32_t checkpoint_every;      /* generated tokens between checkpoints; 0: 256 */
    uint32_t idle_s_max;            /* idle sessions are forgotten after that many seconds; 0: never */
    const char *state_dir;          /* existing directory for parked and saved sessions, or NULL: memory only */
    int32_t n_threads;              /* 0: with how many a step is fastest, at most one per physical core this process
                                      may use, and fewer while others want the cores */
    int32_t n_gpu_layers;           /* -1: as many as fit; ignored without a GPU */
    uint32_t n_batch;               /* most tokens of one model step; 0: 512 */
    uint32_t gap_ms_target;         /* gap between tokens of decoding sessions that prefill is cut up for, where
                                      its least step of 16 tokens fits; 0: 100 */
    uint32_t n_owners;              /* who share the engine; 0: 1. See llm_engine_set_owners */
    uint32_t exact;                 /* nonzero: bit-exact configuration (separate KV streams, no flash attention, and
                                      each position of a sliding window in a cell of its own) */
    uint32_t command_ring_bytes;    /* 0: sized for two prompts of n_ctx tokens, at least 1 MiB */
    uint32_t event_ring_bytes;      /* 0: 1 MiB */
    uint32_t allow_oversize;        /* nonzero: load a model that is larger than the memory that is available */
    const char *crash_notice;       /* written to stderr before the process ends with status 1, when llama.cpp crashes
                                      while it opens the model; NULL: crashes stay crashes */
} llm_engine_options;

/* Every sampling parameter: X(type, name, least, most, default, what switches it off or what it means). llm_sampling, the
 * wire's reader and the daemon's Sampling are made from this table; a parameter outside its range is refused. The ranges
 * are wider than any useful value, and narrow enough that nothing overflows behind them; repeat_penalty is divided by. */
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
    X(int32_t, mirostat, 0, 2, 0, "0: off; else it and the temperature alone decide")                                  \
    X(float, mirostat_tau, 0, 100, 5, "surprise that it aims at")                                                      \
    X(float, mirostat_eta, 0, 1, 0.1f, "how fast it learns")                                                           \
    X(float, adaptive_target, -1, 1, -1, "average probability that adaptive_p aims at; negative: off")                 \
    X(float, adaptive_decay, 0, 0.99f, 0.9f, "adaptive_p averages about 1 / (1 - this) tokens")                        \
    X(int32_t, min_keep, 0, INT32_MAX, 0, "candidates that no sampler goes below")                                     \
    X(uint64_t, samplers, 0, UINT64_MAX, 0,                                                                            \
      "llm_sampler numbers in their order, four bits each; 0: the usual ones, 15: none")

#define LLM_SAMPLING_MEMBER(type, name, least, most, otherwise, text) type name;

/* NaN, or a negative count, in a default (llm_info.sampling_default) means that the model states none. */
typedef struct llm_sampling {
    LLM_SAMPLING_TABLE(LLM_SAMPLING_MEMBER)
} llm_sampling;

/* Facts of the model, as it was opened: X(type, member, text), and texts: X(member, bytes, text). They are the same in
 * model.h; tests/test_travels.py says where else a new one is to be told. */
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
    uint32_t n_sessions; /* slots; none of a model that only embeds, as of what follows */
    uint32_t n_scratch;
    uint32_t n_entries;  /* one for each slot, and those for parked sessions */
    uint32_t n_pins_max; /* histories that may be pinned in all */
    uint64_t parked_bytes_max;
    uint64_t parked_disk_bytes_max; /* 0: there is no state directory */
    uint64_t checkpoint_bytes_max;
    char fingerprint[33]; /* hex of 128 bits over the model's file: whatever the options, the same model has the same */
} llm_info;

/* Loads the model and opens everything. The calling thread is the engine's owner. Takes seconds for a large file. On error
 * *out is NULL and `error` (capacity `error_bytes`, may be NULL) says what and why.
 * A model that only makes embeddings (its memory is LLM_MEMORY_NONE) has no sessions: n_ctx is for a text's tokens.
 * LLM_INVALID (an option is out of range), LLM_MODEL_LOAD (the file is missing, damaged, or no model for text: it is
 * checked before llama.cpp sees it, and llama.cpp's failed assertions are refusals, too), LLM_IO (the segment: name and
 * errno), LLM_NO_MEMORY (the weights or the state are larger than what is available). */
LLM_API int llm_engine_open(const llm_engine_options *options, llm_engine **out, char *error, size_t error_bytes);

/* How much of the model that is being opened has been loaded, in thousandths; 0 before, 1000 when all of it is there. One
 * model of the process at a time. Any thread. */
LLM_API uint32_t llm_loading_progress(void);

/* Starts the decode thread: from here commands are served. Owner thread.
 * LLM_MISUSE if the engine was started before, LLM_IO if no thread can be made. */
LLM_API int llm_engine_start(llm_engine *engine);

/* Ends serving: cancels what runs (each request still gets its FINISHED), joins the decode thread, and writes all named
 * sessions to the state directory, if there is one. Events not yet drained can still be drained. Owner thread;
 * idempotent. */
LLM_API int llm_engine_stop(llm_engine *engine);

/* Stops if needed and frees everything, the segment's name included. NULL is allowed. Owner thread. */
LLM_API void llm_engine_close(llm_engine *engine);

/* How many owners there are to be fair between: while there are several, none of them takes all entries, queues or pins, and
 * what is given up for lack of room is taken from the one who holds most (share.h). Any thread; holds from the next
 * decision on. 0 counts as 1. */
LLM_API void llm_engine_set_owners(llm_engine *engine, uint32_t n_owners);

/* Fixed facts about the open engine. Any thread. */
LLM_API void llm_engine_info(const llm_engine *engine, llm_info *out);

/* Counts completed loops of the decode thread. It stands still while the thread sleeps, for want of work, and while a step
 * goes on: `busy` (may be NULL) tells whether the thread is inside one. Any thread. */
LLM_API uint64_t llm_engine_heartbeat(const llm_engine *engine, uint32_t *busy);

/* ---- text ------------------------------------------------------------------------------------------------- *
 * Any thread, also while the decode thread runs. Where a count is returned, a negative value -n means that the
 * buffer is too small and n are needed; INT64_MIN means an error (invalid token id, out of memory).
 */

/* Text to tokens. `parse_special`: text may contain control tokens (only for trusted text). `add_special`: put the
 * model's BOS/EOS where the model wants them. */
LLM_API int64_t llm_tokenize(const llm_engine *engine, const char *text, size_t n_bytes, int add_special,
                             int parse_special, int32_t *out, size_t n_out);

/* Tokens to bytes (not necessarily whole UTF-8 characters). `special`: control tokens are shown, not dropped. */
LLM_API int64_t llm_detokenize(const llm_engine *engine, const int32_t *tokens, size_t n_tokens, int special, char *out,
                               size_t n_out);

/* The Jinja source that chats are rendered with; NULL: there is none. Valid until the engine is closed. */
LLM_API const char *llm_chat_template(const llm_engine *engine);

/* Marks of a prompt whose middle the model fills in. */
typedef enum llm_fim {
    LLM_FIM_PREFIX,     /* before what stands before the middle */
    LLM_FIM_SUFFIX,     /* before what stands behind it */
    LLM_FIM_MIDDLE,     /* before the middle: the answer follows */
    LLM_FIM_REPOSITORY, /* before a repository's name, in front of its files */
    LLM_FIM_FILE,       /* before each file of it */
    LLM_FIM_N,
} llm_fim;

/* The token of such a mark, which only these prompts can contain; -1: the model has none. A model that has the first three
 * can fill in. */
LLM_API int32_t llm_fim_token(const llm_engine *engine, uint32_t mark);

typedef struct llm_prompt {
    int32_t *tokens; /* owned by the prompt */
    size_t n_tokens;
    char *text; /* the rendered prompt, for people and logs; owned; not NUL-terminated */
    size_t n_text_bytes;
    int32_t *boundaries; /* ascending token counts: [0, boundary) is a whole number of messages; owned */
    size_t n_boundaries;
    size_t n_history; /* tokens before the generation prompt: the last boundary; 0: they cannot be told apart */
    size_t n_head; /* tokens of the system messages in front and of the tools, which many conversations share; 0: there
                       * are none, or the template does not say where they end */
    uint32_t is_after; /* nonzero: it is what follows the answer that the request named, and all counts begin there */
    char *syntax; /* what llm_answer_parser_open needs to read the answer; 0 bytes: the answer is plain text; owned */
    size_t n_syntax_bytes;
    char
        *constraint; /* what the sampler has to know, for the entry `constraint` of GENERATE; 0 bytes: nothing; owned */
    size_t n_constraint_bytes;
    int32_t *preserved; /* control tokens whose text is a part of the answer's text; owned */
    size_t n_preserved;
    char *stops; /* JSON list of texts that end this template's answers, besides its end tokens; 0 bytes: none; owned */
    size_t n_stops_bytes;
} llm_prompt;

/* Renders a chat with the model's template and tokenizes it. `request` is JSON; all but "messages" may be missing:
 *   messages               list, in OpenAI's form
 *   add_generation_prompt  bool, default true
 *   chat_template_kwargs   object: variables of the template
 *   after                  {"message": index, "rest": text, "last": [...]}: only what follows that answer is wanted
 *   tools                  list, in OpenAI's form; a function with is_deferred true may be called, but the template is not
 *                          told of it: a message tells of it
 *   tool_choice            {"mode": "auto" | "none" | "required", "names": [only these may be called]}
 *   parallel_tool_calls    bool: one answer may call several; null: as the template has it. false: what an answer calls
 *                          beyond the first is read as text
 *   constraint             {"kind": ..., "text": ...}: a form that text must have; with tools, an answer has it or calls.
 *                          With mode required only the calls count
 *   reasoning_apart        bool, default true; false: what is thought is a part of the text
 *   continues              bool: the last message is the assistant's, and the answer goes on with it
 *   thinking_tokens_max    the budget of thinking; -1: none
 *   follows_thinking       true: the constraint tells of thinking without a budget, too (llm_wire.h: n_answer_stops)
 * Only the template's own text can become control tokens; text from messages and tools never does.
 * Tools of a template that does not describe them are described in a system message; calls of a template that has no form
 * for them have one of ours. Of a tool's schema, what llama.cpp cannot express is not enforced. Ids of calls that a
 * template refuses become nine letters and digits; arguments of past calls that are no JSON, a member of an object.
 * `after` names an assistant's message whose tokens the caller has, with those of all before it: only what follows it is
 * made, to be put behind them. However the template would write the past now (it may leave out old reasoning, write calls
 * anew), it stays what it was. `rest` is what of the answer's text its tokens do not cover, `last` are the last of them, 32
 * are enough. Where the template does not let the answer's end be told, all is made, and is_after is 0.
 * A template is a program from somewhere: all renderings of one request together have a bound in time and memory that
 * grows with the request, and their recursion has one.
 * LLM_INVALID (not such JSON), LLM_TEMPLATE (the template refused, failed or went beyond the bound, or there is none):
 * `error` says why.
 * Free with llm_prompt_free, which allows NULL members and clears the struct. */
LLM_API int llm_chat_render(const llm_engine *engine, const char *request, size_t n_bytes, llm_prompt *out, char *error,
                            size_t error_bytes);
LLM_API void llm_prompt_free(llm_prompt *prompt);

/* Reads an answer while it is generated. One parser for one answer; any thread, one at a time. */
typedef struct llm_answer_parser llm_answer_parser;

/* `syntax` is a prompt's; nothing of it or of the engine is kept. LLM_INVALID (it is none; `error` says why),
 * LLM_NO_MEMORY. */
LLM_API int llm_answer_parser_open(const llm_engine *engine, const char *syntax, size_t n_bytes,
                                   llm_answer_parser **out, char *error, size_t error_bytes);

/* Takes more of the answer's text, UTF-8 in any pieces, with the text of the prompt's preserved tokens.
 * *diffs is what is new, a JSON list, the parser's until its next call:
 *   {"kind": "text" | "reasoning", "text": ...}
 *   {"kind": "call", "text": more of its arguments, "call": 0, 1, ..., and in its first diff "name", "id"}
 * All diffs together depend on the whole text alone. What does not begin as a call is text: nothing is lost or reported
 * twice but blanks around calls, and the rest of a call that breaks its form, up to what closes calls. The arguments of a
 * call are the beginning of a JSON object, not checked against the tool's schema; they are the whole object if and only if
 * the call is whole. Costs the same for each token, however long the answer is. `is_final`: no
 * more will come; and `is_cut`: more would have: what is there of a call without its whole name is no text, then. LLM_MISUSE
 * after that, LLM_NO_MEMORY. */
LLM_API int llm_answer_parser_feed(llm_answer_parser *parser, const char *text, size_t n_bytes, int is_final,
                                   int is_cut, const char **diffs, size_t *n_diffs_bytes);

/* Bytes of the answer that the next feed may look at again: few, wherever in an answer it is. Only a call of a form that
 * cannot be shortened makes it many; then the next feeds may take long. */
LLM_API size_t llm_answer_parser_rescan_bytes(const llm_answer_parser *parser);
LLM_API void llm_answer_parser_close(llm_answer_parser *parser); /* NULL is allowed */

typedef struct llm_document {
    char *text; /* owned; NUL-terminated */
    size_t n_bytes;
} llm_document;

/* Makes of the form that an answer is to have the document that a GENERATE's `constraint` carries (llm_wire.h). `request` is
 * JSON: {"kind": ..., "text": ..., "strict": bool (default true)}:
 *
 *   json         any JSON object
 *   json_schema  `text` is a schema. What of it cannot be enforced is refused, if strict; otherwise the answer may be more
 *                than it allows there. Never enforced: formats but date, time, date-time, duration, email and uuid, that
 *                only one of oneOf matches, and maxLength and maxItems above 2000. In a pattern, a set of characters means
 *                those that JSON does not escape
 *   grammar      `text` is GBNF, with a rule named root
 *   regex        `text` is an expression that the whole answer matches
 *   choice       `text` is a JSON list of texts, of which the answer is one
 *
 * The work is bounded, before it is done. LLM_INVALID: `error` says what it cannot express, or how large it may be.
 * LLM_NO_MEMORY. Free with llm_document_free, which allows NULL members. Any thread. */
LLM_API int llm_constraint_make(const llm_engine *engine, const char *request, size_t n_bytes, llm_document *out,
                                char *error, size_t error_bytes);
LLM_API void llm_document_free(llm_document *document);

/* ---- embeddings ------------------------------------------------------------------------------------------- */

/* Embeds the first of n_texts texts, as many as the model takes at once: at least one; *n_done says how many. `tokens` are
 * those of all texts, one behind the other, n_tokens[i] of the i-th: 1 to llm_info.n_embedding_tokens. `out` has room for
 * llm_info.n_embedding floats of each text; each vector has length 1. Works beside the decode thread, in memory of its own,
 * which the first call takes, or the start where the model does nothing else. Any thread; of several callers one works and the others wait.
 * `cancel_flag`: NULL, or what is looked at often: once any thread makes it other than 0, the call ends soon (on a GPU, after
 * the step it is in). LLM_CANCELLED (it was), LLM_INVALID (no texts, or a model that makes no embeddings), LLM_CONTEXT_LENGTH
 * (of a text), LLM_TOKEN, LLM_NO_MEMORY, LLM_STEP_FAILED: nothing of `out` counts. */
LLM_API int llm_embed(const llm_engine *engine, const int32_t *tokens, const uint32_t *n_tokens, size_t n_texts,
                      const int32_t *cancel_flag, float *out, size_t *n_done);

/* ---- JSON ------------------------------------------------------------------------------------------------- */

/* Most that may be in one document. */
typedef struct llm_json_limits {
    uint64_t n_values;       /* of every kind, names in objects not counted */
    uint64_t n_containers;   /* objects and lists */
    uint64_t n_keys;         /* names in objects */
    uint64_t depth;          /* levels of objects and lists; never more than LLM_JSON_DEPTH_MAX */
    uint64_t n_key_bytes;    /* of one name, as it is copied */
    uint64_t n_number_bytes; /* of one number */
    uint64_t n_floats;       /* numbers that are no integers of up to 18 digits: slow to decode */
    uint64_t n_text_bytes;   /* of all names and strings together, as they are copied */
} llm_json_limits;

typedef struct llm_json {
    char *text; /* the copy; owned; not NUL-terminated */
    size_t n_bytes;
    uint32_t verdict; /* llm_json_verdict */
    uint32_t depth;   /* levels still open where the scan ended: 0 for a whole document */
    size_t offset;    /* bytes read: where the verdict was found */
    uint64_t n_values;
    uint64_t n_containers;
    uint64_t n_keys;
    uint64_t n_floats;
    uint64_t n_text_bytes;
} llm_json;

/* Reads JSON (RFC 8259, strictly, in UTF-8) in one pass, and copies it so that a decoder has little to do: no space
 * between values, \uXXXX as the character itself where it may stand so, half a surrogate pair as U+FFFD; everything else
 * as it came. Stops at the first fault or limit. Takes time and memory linear in n_bytes, and no stack per level.
 * Any thread. LLM_INVALID (`out` says what and where, and has no text), LLM_NO_MEMORY. Free with llm_json_free, which
 * allows NULL. */
LLM_API int llm_json_scan(const char *text, size_t n_bytes, const llm_json_limits *limits, llm_json *out);
LLM_API void llm_json_free(llm_json *document);

/* ---- saved sessions --------------------------------------------------------------------------------------- */

/* What was saved under a label (SAVE). */
typedef struct llm_saved {
    uint32_t owner;
    uint32_t n_tokens;
    uint64_t n_bytes;  /* of its state; 0: its tokens only, or a state that is of no use to this engine */
    uint64_t saved_ms; /* CLOCK_REALTIME */
    char label[LLM_LABEL_BYTES_MAX + 8];
} llm_saved;

/* Copies what is saved for this model, of all owners, in no order. Returns how many there are, at most LLM_SAVED_MAX; of
 * more than n_out, n_out were copied. 0 without a state directory. Any thread. */
LLM_API int64_t llm_engine_saved(llm_engine *engine, llm_saved *out, size_t n_out);

/* What a person should know about parked and saved sessions: a full disk, a refused file. Copies the oldest message not
 * yet read; LLM_NOT_FOUND when there is none. Any thread. */
LLM_API int llm_engine_complaint(llm_engine *engine, char *out, size_t n_bytes);

#ifndef LLM_CFFI
#ifdef __cplusplus
}
#endif
#endif
#endif
