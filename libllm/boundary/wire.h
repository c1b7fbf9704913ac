/* wire.h: parses and writes MessagePack, strictly and without allocation. Specification:
 * https://github.com/msgpack/msgpack/blob/master/spec.md. Also parses and writes the commands and events of llm_wire.h
 * in MessagePack. MessagePack's extension types are refused. Any thread may open a reader or writer, but no other
 * thread may use the same one. */
#ifndef LLM_WIRE_FORMAT_H
#define LLM_WIRE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "boundary/session_name.h"
#include "llm_wire.h"
#include "text/sampling/logprobs.h"
#include "text/sampling/sampler.h"

/* ---- reader: a cursor over a message; every read is bounds-checked -------------------------------------------
 * After an error, `failed` stays set and every read returns 0. So a caller may read a whole message and check for
 * errors once, at its end. */

typedef struct wire_reader {
    const uint8_t *at;
    const uint8_t *end;
    bool failed;
} wire_reader;

wire_reader wire_reader_open(const void *bytes, size_t n_bytes);
bool wire_is_done(const wire_reader *r); /* returns whether no error has occurred and no bytes are left */
bool wire_read_bool(wire_reader *r);
uint64_t wire_read_uint(wire_reader *r, uint64_t max); /* accepts every integer encoding of a value in 0..max */
int64_t wire_read_int(wire_reader *r, int64_t min, int64_t max);
double wire_read_float(wire_reader *r, double min, double max); /* accepts integers, too; refuses NaN and infinity */
/* returns the number of elements; fails if fewer bytes than elements are left */
uint32_t wire_read_array(wire_reader *r, uint32_t max);
/* returns the number of entries; fails if fewer than two bytes per entry are left */
uint32_t wire_read_map(wire_reader *r, uint32_t max);
const char *wire_read_str(wire_reader *r, size_t max, size_t *n_bytes); /* the text is valid UTF-8; the result points
                                                                         * into the message */
const void *wire_read_bin(wire_reader *r, size_t max, size_t *n_bytes); /* points into the message */

/* ---- writer: appends to a buffer. A write that does not fit sets `failed` and writes nothing ---------------- */

typedef struct wire_writer {
    uint8_t *at;
    uint8_t *end;
    uint8_t *begin;
    bool failed;
} wire_writer;

wire_writer wire_writer_open(void *bytes, size_t n_bytes);
size_t wire_size(const wire_writer *w);
void wire_write_uint(wire_writer *w, uint64_t value);
void wire_write_int(wire_writer *w, int64_t value);
void wire_write_array(wire_writer *w, uint32_t count);
void wire_write_str(wire_writer *w, const char *text, size_t n_bytes);
void wire_write_bin(wire_writer *w, const void *bytes, size_t n_bytes);

/* ---- commands -------------------------------------------------------------------------------------------------- */

/* Strings, none of which is empty. */
typedef struct wire_texts {
    uint32_t n;
    const char *at[LLM_STOPS_MAX];
    size_t n_bytes[LLM_STOPS_MAX];
} wire_texts;

/* Unaligned little-endian int32 numbers: tokens, or counts of tokens. */
typedef struct wire_numbers {
    const uint8_t *bytes;
    size_t n;
} wire_numbers;

/* A parsed command. Its pointers point into the message, or to "", so the message must live as long as the command. A
 * member that the message does not contain has its default. */
typedef struct wire_command {
    llm_command_op op;
    uint64_t request;
    session_name session; /* owner and name of the session; "" for scratch, or if the command names no session */
    wire_numbers prompt;
    uint32_t max_tokens;
    llm_sampling sampling;
    const uint8_t *biases; /* pairs of token and bias, 8 bytes each, unaligned */
    size_t n_biases;
    wire_texts stops;
    uint32_t flags;
    wire_numbers boundaries;
    session_name other; /* a second name: parent in GENERATE, new_session in FORK and RENAME, label in SAVE, LOAD and
                         * UNSAVE */
    uint32_t n_head;
    int32_t n_logprobs;
    uint64_t after;
    wire_numbers stop_tokens;
    uint32_t min_tokens;
    uint32_t n_answer_stops;
    const char *constraint;
    size_t n_constraint_bytes;
    bool has_breakers; /* the command has sequence breakers for DRY; else the default ones apply */
    wire_texts breakers;
    uint32_t at;
    bool is_on; /* value of paused in PAUSE, of pinned in PIN, of replace in FORK */
} wire_command;

/* A number for each row of LLM_FIELD_TABLE and of LLM_SAMPLING_TABLE, in the order of the rows. */
#define WIRE_FIELD_ID(type, name, needed, allowed, least, most, otherwise) WIRE_FIELD_##name,
#define WIRE_PARAMETER_ID(type, name, least, most, otherwise, text) WIRE_PARAMETER_##name,
typedef enum wire_field_id { LLM_FIELD_TABLE(WIRE_FIELD_ID) WIRE_FIELDS } wire_field_id;
typedef enum wire_parameter_id { LLM_SAMPLING_TABLE(WIRE_PARAMETER_ID) WIRE_PARAMETERS } wire_parameter_id;

typedef struct wire_field {
    const char *name;
    llm_field_type type;
    uint32_t needed, allowed; /* sets of commands */
    int64_t least;
    uint64_t most;
    int64_t otherwise;
} wire_field;

enum { WIRE_NAME_BYTES_MAX = 32 };

const wire_field *wire_field_of(wire_field_id id);
int wire_field_find(const char *name, size_t n_bytes);     /* returns a wire_field_id, or -1 for an unknown name */
int wire_parameter_find(const char *name, size_t n_bytes); /* returns a wire_parameter_id, or -1 for an unknown name */

/* Names the entry for which a command was refused (llm_command_refused). */
typedef struct wire_refusal {
    char field[2 * WIRE_NAME_BYTES_MAX];
} wire_refusal;

/* Parses a command. Checks the names, types and ranges of its entries, and the characters of session names. Also checks
 * that no bytes follow the command. Returns LLM_OK and fills `out`, or returns LLM_INVALID and fills `refused`. The
 * engine, which knows the vocabulary, checks token ids later. This function is called once for each command, before the
 * command enters the ring. Thus the decode thread never sees a malformed command. */
int wire_command_read(const void *message, size_t n_bytes, wire_command *out, wire_refusal *refused);

/* Return the i-th element of an unaligned little-endian array in a command. */
int32_t wire_number(const wire_numbers *numbers, size_t i);
logit_bias wire_logit_bias(const wire_command *c, size_t i);

/* ---- events ------------------------------------------------------------------------------------------------------ */

typedef struct wire_finished {
    uint64_t request;
    llm_outcome outcome;
    llm_status status;
    uint32_t n_prompt, n_reused, n_prefilled, n_generated, n_resident, n_visible;
    int32_t stop_index;
    uint64_t queue_us, prefill_us, decode_us, seed;
    uint32_t n_drafted, n_accepted;
    uint32_t n_grammar_drafted, n_grammar_accepted; /* included in n_drafted and n_accepted */
    uint32_t n_model_drafted, n_model_accepted;     /* included in n_drafted and n_accepted */
} wire_finished;

/* Each of the following functions writes a whole event. If the event does not fit, the function writes nothing, because
 * a reader would take a part of an event for another event. */

/* The token details of a TEXT event. Each array has n members. logprobs and likeliest are used only if n_likeliest is
 * not negative. */
typedef struct wire_tokens {
    uint32_t n;
    int32_t n_likeliest; /* number of most likely tokens reported per token; -1: no log probabilities */
    const int32_t *tokens;
    const uint32_t *ends;
    const float *logprobs;
    const token_logprob *likeliest; /* n * n_likeliest elements */
} wire_tokens;

/* Size of the largest encoding of an event other than TEXT, and of a TEXT without its text and token details. */
enum { WIRE_EVENT_BYTES_MAX = LLM_SESSION_NAME_BYTES_MAX + 32 };

void wire_write_admitted(wire_writer *w, uint64_t request, uint32_t entry);
void wire_write_started(wire_writer *w, uint64_t request, llm_reason reason, uint32_t n_prompt, uint32_t n_reused,
                        int32_t diverged_at);
/* `tokens` may be NULL. */
void wire_write_text(wire_writer *w, uint64_t request, const char *text, size_t n_bytes, uint32_t n_tokens,
                     const wire_tokens *tokens);
void wire_write_finished(wire_writer *w, const wire_finished *f);
void wire_write_forgotten(wire_writer *w, session_name session);
void wire_write_consumed(wire_writer *w, uint64_t request, uint32_t n_tokens, uint64_t prefill_us);
void wire_write_reply(wire_writer *w, uint64_t request, llm_status status, uint32_t entry, uint32_t n_tokens,
                      uint32_t os_error);

#endif
