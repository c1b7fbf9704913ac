/* json_scan.c: see json_scan.h. Each value is checked and copied in one step. There is no recursion: a document of a
 * million '[' must not need a million stack frames. Instead, one bit for each open container (object or list) keeps
 * track of the nesting. The copy has no blanks between values. A \u escape becomes the character itself if JSON allows
 * that character unescaped. Every byte written stands for at least one byte read, so the copy is never longer than the
 * original. Therefore no write needs a check against the end of `out`. */
#include "boundary/json_scan.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "policy/utf8.h"

enum {
    REPLACEMENT = 0xFFFD,
    UNICODE_ESCAPE_BYTES = 6, /* length of an escape \uXXXX */
    SHORT_INTEGER_DIGITS = 18,
};

typedef struct scan {
    const uint8_t *begin, *at, *end;
    uint8_t *out;
    const llm_json_limits *limits;
    llm_json *document;
    uint64_t is_object[LLM_JSON_DEPTH_MAX / 64]; /* one bit for each open container: 1 for an object, 0 for a list */
} scan;

/* Returns the next byte of the text, or 0 at its end. JSON allows a byte of 0 nowhere, so callers need no other check
 * for the end. */
static uint8_t peek(const scan *s)
{
    return s->at < s->end ? *s->at : 0;
}

/* Called if the next byte is not allowed. Returns LLM_JSON_END at the end of the text, and `otherwise` before the
 * end. */
static int unexpected(const scan *s, int otherwise)
{
    return s->at < s->end ? otherwise : LLM_JSON_END;
}

static void copy(scan *s, const uint8_t *from, size_t n)
{
    memcpy(s->out, from, n);
    s->out += n;
}

static void copy_byte(scan *s)
{
    *s->out++ = *s->at++;
}

static void skip_space(scan *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\r' || *s->at == '\t')) {
        s->at++;
    }
}

/* ---- strings --------------------------------------------------------------------------------------------- */

static bool is_plain(uint8_t byte)
{
    return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
}

static int hex_digit(uint8_t byte)
{
    if (byte >= '0' && byte <= '9') {
        return byte - '0';
    }
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

/* Returns the UTF-16 unit of the \uXXXX at `at`; -1 if there is none. */
static int32_t escaped_unit(const uint8_t *at, const uint8_t *end)
{
    if (end - at < UNICODE_ESCAPE_BYTES || at[0] != '\\' || at[1] != 'u') {
        return -1;
    }
    int32_t unit = 0;
    for (int i = 2; i < UNICODE_ESCAPE_BYTES; i++) {
        const int digit = hex_digit(at[i]);
        if (digit < 0) {
            return -1;
        }
        unit = unit << 4 | digit;
    }
    return unit;
}

static void write_character(scan *s, uint32_t c)
{
    if (c < 0x80) {
        *s->out++ = (uint8_t)c;
        return;
    }
    if (c < 0x800) {
        *s->out++ = (uint8_t)(0xC0 | c >> 6);
    } else {
        if (c < 0x10000) {
            *s->out++ = (uint8_t)(0xE0 | c >> 12);
        } else {
            *s->out++ = (uint8_t)(0xF0 | c >> 18);
            *s->out++ = (uint8_t)(0x80 | (c >> 12 & 0x3F));
        }
        *s->out++ = (uint8_t)(0x80 | (c >> 6 & 0x3F));
    }
    *s->out++ = (uint8_t)(0x80 | (c & 0x3F));
}

/* Replaces \uXXXX by the character itself, if JSON allows that. Six bytes become at most 3. The 12 bytes of a pair of
 * surrogates become 4. A lone half of a surrogate pair becomes U+FFFD. JavaScript leaves such a half if it cuts a
 * string inside a pair. Refusing the document would refuse a client's whole conversation because of one broken
 * emoji. */
static int copy_unicode_escape(scan *s)
{
    const int32_t unit = escaped_unit(s->at, s->end);
    if (unit < 0) {
        return s->end - s->at < UNICODE_ESCAPE_BYTES ? LLM_JSON_END : LLM_JSON_ESCAPE;
    }
    if (unit < 0x20) {
        copy(s, s->at, UNICODE_ESCAPE_BYTES);
    } else if (unit == '"' || unit == '\\') {
        *s->out++ = '\\';
        *s->out++ = (uint8_t)unit;
    } else if (unit < 0xD800 || unit > 0xDFFF) {
        write_character(s, (uint32_t)unit);
    } else {
        const int32_t next = unit < 0xDC00 ? escaped_unit(s->at + UNICODE_ESCAPE_BYTES, s->end) : -1;
        const bool is_pair = next >= 0xDC00 && next <= 0xDFFF;
        write_character(s, is_pair ? 0x10000 + (uint32_t)((unit & 0x3FF) << 10 | (next & 0x3FF)) : REPLACEMENT);
        s->at += is_pair ? UNICODE_ESCAPE_BYTES : 0;
    }
    s->at += UNICODE_ESCAPE_BYTES;
    return LLM_JSON_OK;
}

static int copy_escape(scan *s)
{
    if (s->end - s->at < 2) {
        return LLM_JSON_END;
    }
    if (s->at[1] == 'u') {
        return copy_unicode_escape(s);
    }
    if (strchr("\"\\/bfnrt", s->at[1]) == NULL || s->at[1] == 0) {
        s->at++;
        return LLM_JSON_ESCAPE;
    }
    copy(s, s->at, 2);
    s->at += 2;
    return LLM_JSON_OK;
}

/* Copies the characters of a string up to the closing quote. Most strings are long runs of plain characters, so each
 * run is copied with one call. */
static int copy_characters(scan *s, const uint8_t *out_begin, uint64_t n_bytes_max, int too_many)
{
    for (;;) {
        const uint8_t *run = s->at;
        while (s->at < s->end && is_plain(*s->at)) {
            s->at++;
        }
        copy(s, run, (size_t)(s->at - run));
        if ((uint64_t)(s->out - out_begin) > n_bytes_max) {
            return too_many;
        }
        const uint8_t byte = peek(s);
        if (byte == '"') {
            return LLM_JSON_OK;
        }
        if (byte == '\\') {
            const int verdict = copy_escape(s);
            if (verdict != LLM_JSON_OK) {
                return verdict;
            }
        } else if (byte < 0x20) {
            return unexpected(s, LLM_JSON_CONTROL);
        } else {
            const utf8_part c = utf8_part_of(s->at, (size_t)(s->end - s->at));
            if (!c.is_valid) {
                return LLM_JSON_UTF8;
            }
            copy(s, s->at, c.n_bytes);
            s->at += c.n_bytes;
        }
    }
}

/* Copies a string, if the limit on all strings together (n_text_bytes) leaves room for it. The name of an object's
 * member must also be within n_key_bytes. */
static int copy_string(scan *s, bool is_key)
{
    const llm_json_limits *limits = s->limits;
    const uint64_t n_left = limits->n_text_bytes - s->document->n_text_bytes;
    const bool is_short = is_key && limits->n_key_bytes < n_left;
    copy_byte(s);
    const uint8_t *begin = s->out;
    const int verdict = copy_characters(s, begin, is_short ? limits->n_key_bytes : n_left,
                                        is_short ? LLM_JSON_KEY_BYTES : LLM_JSON_TEXT_BYTES);
    if (verdict != LLM_JSON_OK) {
        return verdict;
    }
    s->document->n_text_bytes += (uint64_t)(s->out - begin);
    copy_byte(s);
    return LLM_JSON_OK;
}

/* ---- numbers, true, false and null ----------------------------------------------------------------------- */

static bool skip_digits(scan *s)
{
    const uint8_t *begin = s->at;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9') {
        s->at++;
    }
    return s->at > begin;
}

/* Sets *is_float if the number is slow to decode. Slow numbers are floats, and integers of more than 18 digits, which
 * may not fit into 64 bits. */
static bool skip_number(scan *s, bool *is_float)
{
    s->at += peek(s) == '-';
    const uint8_t *digits = s->at;
    if (peek(s) == '0') {
        s->at++;
    } else if (!skip_digits(s)) {
        return false;
    }
    *is_float = s->at - digits > SHORT_INTEGER_DIGITS || peek(s) == '.' || peek(s) == 'e' || peek(s) == 'E';
    if (peek(s) == '.') {
        s->at++;
        if (!skip_digits(s)) {
            return false;
        }
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->at++;
        s->at += peek(s) == '+' || peek(s) == '-';
        return skip_digits(s);
    }
    return true;
}

static int copy_number(scan *s)
{
    const uint8_t *begin = s->at;
    bool is_float = false;
    if (!skip_number(s, &is_float)) {
        return unexpected(s, LLM_JSON_NUMBER);
    }
    const size_t n = (size_t)(s->at - begin);
    const bool is_too_long = n > s->limits->n_number_bytes;
    if (is_too_long || (is_float && s->document->n_floats == s->limits->n_floats)) {
        s->at = begin;
        return is_too_long ? LLM_JSON_NUMBER_BYTES : LLM_JSON_FLOATS;
    }
    s->document->n_floats += is_float;
    copy(s, begin, n);
    return LLM_JSON_OK;
}

static int copy_word(scan *s, const char *word)
{
    for (; *word != 0; word++) {
        if (peek(s) != (uint8_t)*word) {
            return unexpected(s, LLM_JSON_VALUE);
        }
        copy_byte(s);
    }
    return LLM_JSON_OK;
}

static int copy_scalar(scan *s)
{
    switch (peek(s)) {
    case '"': return copy_string(s, false);
    case 't': return copy_word(s, "true");
    case 'f': return copy_word(s, "false");
    case 'n': return copy_word(s, "null");
    default: break;
    }
    const uint8_t byte = peek(s);
    return byte == '-' || (byte >= '0' && byte <= '9') ? copy_number(s) : unexpected(s, LLM_JSON_VALUE);
}

/* ---- containers ------------------------------------------------------------------------------------------ */

/* Returns whether the innermost open container is an object. */
static bool in_object(const scan *s)
{
    const uint32_t top = s->document->depth - 1;
    return (s->is_object[top / 64] >> top % 64 & 1) != 0;
}

static int open_container(scan *s, bool is_object)
{
    llm_json *document = s->document;
    const uint64_t depth_max = s->limits->depth < LLM_JSON_DEPTH_MAX ? s->limits->depth : LLM_JSON_DEPTH_MAX;
    if (document->depth == depth_max) {
        return LLM_JSON_DEPTH;
    }
    if (document->n_containers == s->limits->n_containers) {
        return LLM_JSON_CONTAINERS;
    }
    document->n_containers++;
    const uint32_t top = document->depth++;
    const uint64_t bit = (uint64_t)1 << top % 64;
    s->is_object[top / 64] = (s->is_object[top / 64] & ~bit) | (is_object ? bit : 0);
    copy_byte(s);
    return LLM_JSON_OK;
}

/* Copies the name of an object's member, and the colon after the name. */
static int copy_key(scan *s)
{
    skip_space(s);
    if (peek(s) != '"') {
        return unexpected(s, LLM_JSON_KEY);
    }
    if (s->document->n_keys == s->limits->n_keys) {
        return LLM_JSON_KEYS;
    }
    s->document->n_keys++;
    const int verdict = copy_string(s, true);
    if (verdict != LLM_JSON_OK) {
        return verdict;
    }
    skip_space(s);
    if (peek(s) != ':') {
        return unexpected(s, LLM_JSON_COLON);
    }
    copy_byte(s);
    return LLM_JSON_OK;
}

/* Called after a value: closes the containers that end directly after the value. Sets *more if another value follows in
 * the innermost container that is still open. */
static int close_containers(scan *s, bool *more)
{
    while (s->document->depth > 0) {
        skip_space(s);
        const bool is_object = in_object(s);
        if (peek(s) == ',') {
            copy_byte(s);
            *more = true;
            return is_object ? copy_key(s) : LLM_JSON_OK;
        }
        if (peek(s) != (is_object ? '}' : ']')) {
            return unexpected(s, LLM_JSON_COMMA);
        }
        copy_byte(s);
        s->document->depth--;
    }
    *more = false;
    return LLM_JSON_OK;
}

/* Copies one value. If the value is a container that is not empty, copies only its beginning and sets *opened. The
 * caller then copies the first value in the container. */
static int copy_value(scan *s, bool *opened)
{
    *opened = false;
    skip_space(s);
    if (s->document->n_values == s->limits->n_values) {
        return LLM_JSON_VALUES;
    }
    s->document->n_values++;
    const bool is_object = peek(s) == '{';
    if (!is_object && peek(s) != '[') {
        return copy_scalar(s);
    }
    const int verdict = open_container(s, is_object);
    if (verdict != LLM_JSON_OK) {
        return verdict;
    }
    skip_space(s);
    if (peek(s) == (is_object ? '}' : ']')) {
        return LLM_JSON_OK;
    }
    *opened = true;
    return is_object ? copy_key(s) : LLM_JSON_OK;
}

static int copy_document(scan *s)
{
    bool more = true;
    while (more) {
        bool opened;
        int verdict = copy_value(s, &opened);
        if (verdict == LLM_JSON_OK && !opened) {
            verdict = close_containers(s, &more);
        }
        if (verdict != LLM_JSON_OK) {
            return verdict;
        }
    }
    skip_space(s);
    return s->at == s->end ? LLM_JSON_OK : LLM_JSON_TRAILING;
}

int json_scan(const char *text, size_t n_bytes, const llm_json_limits *limits, char *out, llm_json *document)
{
    const uint8_t *begin = (const uint8_t *)text;
    scan s = {.begin = begin,
              .at = begin,
              .end = begin + n_bytes,
              .out = (uint8_t *)out,
              .limits = limits,
              .document = document};
    *document = (llm_json){0};
    document->verdict = (uint32_t)copy_document(&s);
    document->offset = (size_t)(s.at - s.begin);
    document->n_bytes = (size_t)(s.out - (uint8_t *)out);
    return (int)document->verdict;
}

int llm_json_scan(const char *text, size_t n_bytes, const llm_json_limits *limits, llm_json *out)
{
    /* the copy may be much shorter than n_bytes. A large block takes memory only for the pages that are written */
    char *copied = malloc(n_bytes > 0 ? n_bytes : 1);
    if (copied == NULL) {
        *out = (llm_json){0};
        return LLM_NO_MEMORY;
    }
    if (json_scan(text, n_bytes, limits, copied, out) != LLM_JSON_OK) {
        free(copied);
        return LLM_INVALID;
    }
    out->text = copied;
    return LLM_OK;
}

void llm_json_free(llm_json *document)
{
    free(document->text);
    document->text = NULL;
}
