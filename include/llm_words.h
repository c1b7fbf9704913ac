/* llm_words.h has the words for the statuses, reasons, states and so on of libllm. Each word has a sentence that
 * explains it. llm.h includes this file.
 *
 * There is one table per vocabulary. A row is X(NAME, number, word, sentence). Responses, logs, metrics and tests use
 * the word. People read the sentence. llm_word() returns the word of a number. llm_sentence() returns the sentence of a
 * number. Numbers are part of the wire format and never change meaning. */
#ifndef LLM_WORDS_H
#define LLM_WORDS_H

#define LLM_STATUS_TABLE(X)                                                                                            \
    X(OK, 0, "ok", "Success.")                                                                                         \
    X(INVALID, 1, "invalid", "An argument or message is malformed.")                                                   \
    X(FULL, 2, "full", "The ring has no room for this message; try again after the other side has drained it.")        \
    X(NOT_FOUND, 3, "not_found", "There is no such session, request or session table.")                                \
    X(MISUSE, 4, "misuse", "The engine is not in a state that allows this call.")                                      \
    X(NO_MEMORY, 5, "no_memory", "The host is out of memory.")                                                         \
    X(IO, 6, "io_error", "The operating system could not open, read or write a file or session table.")                \
    X(MODEL_LOAD, 7, "model_load_failed", "The model file could not be loaded.")                                       \
    X(TEMPLATE, 8, "template_failed", "The model's chat template could not be rendered for these messages.")           \
    X(CONTEXT_LENGTH, 9, "context_length_exceeded", "The prompt does not fit the session's context.")                  \
    X(CAPACITY, 10, "capacity_exhausted", "All session entries are taken, and the capacity policy frees none.")        \
    X(QUEUE_FULL, 11, "queue_full", "Too many requests are waiting for this session.")                                 \
    X(OVERLOADED, 12, "overloaded", "The limit on live requests, or on commands that wait for the disk, is reached.")  \
    X(NO_CELLS, 13, "kv_cache_full", "The KV cache (--kv-memory) has no room left for this session to grow.")          \
    X(STEP_FAILED, 14, "step_failed",                                                                                  \
      "The model failed a step. The next request prefills the session's tokens again.")                                \
    X(TORN, 15, "torn", "The session's state is invalid. Reset the session.")                                          \
    X(SHUTDOWN, 16, "shutting_down", "The engine is stopping.")                                                        \
    X(CANCELLED, 17, "cancelled", "The request was cancelled.")                                                        \
    X(TOKEN, 18, "invalid_token", "A token id is outside the model's vocabulary.")                                     \
    X(VERSION, 19, "version_mismatch", "The session table was written by another version of llmd.")                    \
    X(SMALL_BUFFER, 20, "small_buffer", "The caller's buffer is too small.")                                           \
    X(BUSY, 21, "session_busy", "A generation is using the session.")                                                  \
    X(EXISTS, 22, "session_exists", "Another session has that name.")                                                  \
    X(PINS, 23, "pins_exhausted", "The limit on pinned branches is reached. Unpin one first.")                         \
    X(SAVED_FULL, 24, "saved_full", "The limit on saved sessions is reached. Remove one first.")                       \
    X(CONSTRAINT, 25, "constraint_failed",                                                                             \
      "The output format of the request is invalid, too large, or allows no answer.")                                  \
    X(NO_GENERATION, 26, "no_generation", "This model makes embeddings and cannot generate text.")

/* The source of the state with which a request started (the resume decision). */
#define LLM_REASON_TABLE(X)                                                                                            \
    X(NEW, 0, "new", "The session had no tokens.")                                                                     \
    X(EXACT_PREFIX, 1, "exact_prefix", "The prompt begins with the session's tokens: only new tokens are prefilled.")  \
    X(EQUAL, 2, "equal", "The prompt equals the session's tokens.")                                                    \
    X(REWIND, 3, "rewind", "The session was truncated to its common prefix with the prompt.")                          \
    X(CHECKPOINT, 4, "checkpoint", "The latest checkpoint whose tokens begin the prompt was restored.")                \
    X(SHARED, 5, "shared", "Another session held a longer prefix of the prompt and was copied.")                       \
    X(RESTORED, 6, "restored", "The session's state was loaded from host memory or from disk.")                        \
    X(MISMATCH, 7, "mismatch", "No tokens could be reused: the whole prompt is prefilled.")                            \
    X(TORN, 8, "torn", "The session's state was invalid: the whole prompt is prefilled.")

/* How a generation ended. Each accepted GENERATE has exactly one FINISHED event, which carries one of these
 * outcomes. */
#define LLM_OUTCOME_TABLE(X)                                                                                           \
    X(END, 0, "end", "The model ended its turn.")                                                                      \
    X(STOP, 1, "stop", "A stop string was found.")                                                                     \
    X(LENGTH, 2, "length", "max_tokens or the context's end was reached.")                                             \
    X(CANCELLED, 3, "cancelled", "The client left or cancelled, or the session was reset or closed.")                  \
    X(REFUSED, 4, "refused", "The request was not accepted; the status says why.")                                     \
    X(FAILED, 5, "failed", "The model failed; the status says how.")                                                   \
    X(SHUTDOWN, 6, "shutdown", "The engine stopped before the end.")

/* States of a session. branch.h draws the transitions. */
#define LLM_STATE_TABLE(X)                                                                                             \
    X(EMPTY, 0, "empty", "Open, without tokens.")                                                                      \
    X(PREFILL, 1, "prefill", "Consuming prompt tokens.")                                                               \
    X(DECODE, 2, "decode", "Producing tokens.")                                                                        \
    X(IDLE, 3, "idle", "Warm, waiting for the next request.")                                                          \
    X(PARKED, 4, "parked", "Its state is in host memory or on disk.")                                                  \
    X(TORN, 5, "torn", "Its state is invalid; the next request prefills its tokens again, a reset clears it.")

/* Where the state of a branch is kept. */
#define LLM_PLACE_TABLE(X)                                                                                             \
    X(NONE, 0, "none", "No state is kept: the next request prefills the tokens.")                                      \
    X(SLOT, 1, "slot", "In a slot of the model's memory.")                                                             \
    X(MEMORY, 2, "memory", "In host memory.")                                                                          \
    X(DISK, 3, "disk", "On disk.")

/* The kind of memory that the model has. The kind decides how a branch can be truncated. */
#define LLM_MEMORY_TABLE(X)                                                                                            \
    X(DENSE, 0, "dense", "Attention over all tokens: any prefix can be kept.")                                         \
    X(WINDOW, 1, "window", "Some layers keep a sliding window: only a short truncation.")                              \
    X(RECURRENT, 2, "recurrent", "One running state: no truncation without a checkpoint.")                             \
    X(HYBRID, 3, "hybrid", "Attention and running state: no truncation without a checkpoint.")                         \
    X(NONE, 4, "none", "No state: it makes embeddings of whole texts and cannot generate text.")

/* The capacity policy decides what the engine does if a named session needs a slot and all slots are taken. */
#define LLM_POLICY_TABLE(X)                                                                                            \
    X(REFUSE, 0, "refuse", "Refuse the request, and name the sessions that have the slots.")                           \
    X(EVICT, 1, "evict", "Forget the least recently used idle session.")                                               \
    X(PARK, 2, "park", "Move the least recently used idle session to host memory, then to disk.")

/* The type of the keys and values in the KV cache. */
#define LLM_KV_TYPE_TABLE(X)                                                                                           \
    X(F16, 0, "f16", "Floating point numbers of 16 bits.")                                                             \
    X(Q8_0, 1, "q8_0", "Integers of 8 bits, with a scale for each 32 of them: 34 bytes instead of 64.")

/* Samplers that narrow the choice of a token. By default, the samplers up to LLM_SAMPLER_USUAL_LAST run, in the order
 * of the table. The others run only if a request names them. */
#define LLM_SAMPLER_TABLE(X)                                                                                           \
    X(PENALTIES, 1, "penalties", "Apply repeat_penalty, presence_penalty and frequency_penalty.")                      \
    X(DRY, 2, "dry", "Lower the probability of tokens that would extend a repetition.")                                \
    X(TOP_N_SIGMA, 3, "top_n_sigma", "Keep tokens whose logit is within n standard deviations of the largest.")        \
    X(TOP_K, 4, "top_k", "Keep the k most likely tokens.")                                                             \
    X(TYPICAL_P, 5, "typ_p", "Keep the tokens closest to the expected information, up to probability p.")              \
    X(TOP_P, 6, "top_p", "Keep the most likely tokens that together reach probability p.")                             \
    X(MIN_P, 7, "min_p", "Keep tokens at least min_p times as likely as the most likely one.")                         \
    X(XTC, 8, "xtc", "Sometimes remove all tokens above xtc_threshold except the least likely.")                       \
    X(TEMPERATURE, 9, "temperature", "Apply temperature, dynatemp_range and dynatemp_exponent.")                       \
    X(INFILL, 10, "infill", "For infill: merge candidates that begin alike; end the answer if its end is likely.")     \
    X(ADAPTIVE_P, 11, "adaptive_p", "Choose tokens so that their average probability approaches adaptive_target.")

/* Verdicts of llm_json_scan. The verdicts up to TRAILING are errors in the JSON. The verdicts from VALUES on are limits
 * that the JSON exceeds. */
#define LLM_JSON_TABLE(X)                                                                                              \
    X(OK, 0, "ok", "JSON within the limits.")                                                                          \
    X(END, 1, "truncated", "it ends too early")                                                                        \
    X(VALUE, 2, "value", "a value is expected")                                                                        \
    X(KEY, 3, "key", "a name in quotes is expected")                                                                   \
    X(COLON, 4, "colon", "a colon is expected")                                                                        \
    X(COMMA, 5, "comma", "a comma or the closing bracket is expected")                                                 \
    X(NUMBER, 6, "number", "a digit is expected")                                                                      \
    X(ESCAPE, 7, "escape", "there is no such escape")                                                                  \
    X(CONTROL, 8, "control", "a control character must be escaped")                                                    \
    X(UTF8, 9, "utf8", "the bytes are not UTF-8")                                                                      \
    X(TRAILING, 10, "trailing", "something follows the value")                                                         \
    X(VALUES, 11, "values", "values")                                                                                  \
    X(CONTAINERS, 12, "containers", "objects and lists")                                                               \
    X(KEYS, 13, "keys", "names in objects")                                                                            \
    X(DEPTH, 14, "depth", "levels of objects and lists")                                                               \
    X(KEY_BYTES, 15, "key_bytes", "bytes in a name")                                                                   \
    X(NUMBER_BYTES, 16, "number_bytes", "bytes in a number")                                                           \
    X(FLOATS, 17, "floats", "numbers other than integers of up to 18 digits")                                          \
    X(TEXT_BYTES, 18, "text_bytes", "bytes in all texts")

#define LLM_STATUS_ENUM(name, number, word, text) LLM_##name = number,
#define LLM_REASON_ENUM(name, number, word, text) LLM_REASON_##name = number,
#define LLM_OUTCOME_ENUM(name, number, word, text) LLM_OUTCOME_##name = number,
#define LLM_STATE_ENUM(name, number, word, text) LLM_STATE_##name = number,
#define LLM_PLACE_ENUM(name, number, word, text) LLM_PLACE_##name = number,
#define LLM_MEMORY_ENUM(name, number, word, text) LLM_MEMORY_##name = number,
#define LLM_POLICY_ENUM(name, number, word, text) LLM_POLICY_##name = number,
#define LLM_KV_TYPE_ENUM(name, number, word, text) LLM_KV_##name = number,
#define LLM_SAMPLER_ENUM(name, number, word, text) LLM_SAMPLER_##name = number,
#define LLM_JSON_ENUM(name, number, word, text) LLM_JSON_##name = number,

typedef enum llm_status { LLM_STATUS_TABLE(LLM_STATUS_ENUM) LLM_STATUS_N } llm_status;
typedef enum llm_reason { LLM_REASON_TABLE(LLM_REASON_ENUM) LLM_REASON_N } llm_reason;
typedef enum llm_outcome { LLM_OUTCOME_TABLE(LLM_OUTCOME_ENUM) LLM_OUTCOME_N } llm_outcome;
typedef enum llm_state { LLM_STATE_TABLE(LLM_STATE_ENUM) LLM_STATE_N } llm_state;
typedef enum llm_place { LLM_PLACE_TABLE(LLM_PLACE_ENUM) LLM_PLACE_N } llm_place;
typedef enum llm_memory { LLM_MEMORY_TABLE(LLM_MEMORY_ENUM) LLM_MEMORY_N } llm_memory;
typedef enum llm_policy { LLM_POLICY_TABLE(LLM_POLICY_ENUM) LLM_POLICY_N } llm_policy;
typedef enum llm_kv_type { LLM_KV_TYPE_TABLE(LLM_KV_TYPE_ENUM) LLM_KV_TYPE_N } llm_kv_type;
typedef enum llm_sampler { LLM_SAMPLER_NONE, LLM_SAMPLER_TABLE(LLM_SAMPLER_ENUM) LLM_SAMPLER_N } llm_sampler;
enum { LLM_SAMPLER_USUAL_LAST = LLM_SAMPLER_TEMPERATURE };
typedef enum llm_json_verdict { LLM_JSON_TABLE(LLM_JSON_ENUM) LLM_JSON_N } llm_json_verdict;

/* The vocabularies, one for each table. */
typedef enum llm_vocabulary {
    LLM_STATUSES,
    LLM_REASONS,
    LLM_OUTCOMES,
    LLM_STATES,
    LLM_MEMORIES,
    LLM_POLICIES,
    LLM_SAMPLERS,
    LLM_JSON_VERDICTS,
    LLM_PLACES,
    LLM_KV_TYPES,
} llm_vocabulary;

/* Return the word and the sentence of a number. If the vocabulary has no such number, the word is "unknown", and the
 * sentence is "". Any thread. The strings are static. */
LLM_API const char *llm_word(llm_vocabulary vocabulary, int number);
LLM_API const char *llm_sentence(llm_vocabulary vocabulary, int number);

#endif
