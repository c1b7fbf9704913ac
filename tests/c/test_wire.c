/* MessagePack: primitives, commands as msgspec writes them, every kind of malformed command, and events to the byte.
 * Messages are read from allocations of exactly their size, so that AddressSanitizer sees any byte read beyond. */
#include "boundary/wire.h"

#include <stdlib.h>

#include "check.h"
#include "random.h"

/* Reads a command from an exact copy. Pointers in *out are into freed memory: only for counts and numbers. */
static int read_exact(const void *bytes, size_t n, wire_command *out)
{
    uint8_t *copy = malloc(n > 0 ? n : 1);
    memcpy(copy, bytes, n);
    int status = wire_command_read(copy, n, out);
    free(copy);
    return status;
}

/* ---- primitives ---- */

typedef struct bytes {
    const char *at;
    size_t n;
} bytes;

#define BYTES(literal) {literal, sizeof(literal) - 1}

static void every_integer_encoding_is_read(void)
{
    static const struct {
        bytes encoding;
        int64_t value;
    } rows[] = {
        {BYTES("\x00"), 0},
        {BYTES("\x7f"), 127},
        {BYTES("\xff"), -1},
        {BYTES("\xe0"), -32},
        {BYTES("\xcc\x05"), 5},
        {BYTES("\xcc\xff"), 255},
        {BYTES("\xcd\x00\x05"), 5},
        {BYTES("\xcd\xff\xff"), 65535},
        {BYTES("\xce\x00\x00\x00\x05"), 5},
        {BYTES("\xce\xff\xff\xff\xff"), 4294967295},
        {BYTES("\xcf\x00\x00\x00\x00\x00\x00\x00\x05"), 5},
        {BYTES("\xcf\x7f\xff\xff\xff\xff\xff\xff\xff"), INT64_MAX},
        {BYTES("\xd0\x05"), 5},
        {BYTES("\xd0\x80"), -128},
        {BYTES("\xd1\x00\x05"), 5},
        {BYTES("\xd1\x80\x00"), -32768},
        {BYTES("\xd2\x00\x00\x00\x05"), 5},
        {BYTES("\xd2\x80\x00\x00\x00"), INT32_MIN},
        {BYTES("\xd3\x00\x00\x00\x00\x00\x00\x00\x05"), 5},
        {BYTES("\xd3\x80\x00\x00\x00\x00\x00\x00\x00"), INT64_MIN},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        wire_reader r = wire_reader_open(rows[i].encoding.at, rows[i].encoding.n);
        CHECK_INT(wire_read_int(&r, INT64_MIN, INT64_MAX), rows[i].value);
        CHECK(wire_is_done(&r));
        r = wire_reader_open(rows[i].encoding.at, rows[i].encoding.n);
        CHECK_INT(wire_read_uint(&r, UINT64_MAX), rows[i].value < 0 ? 0 : rows[i].value);
        CHECK_INT(wire_is_done(&r), rows[i].value >= 0); /* a negative number is no uint, whatever its bits */
        r = wire_reader_open(rows[i].encoding.at, rows[i].encoding.n);
        CHECK(wire_read_float(&r, -1e19, 1e19) == (double)rows[i].value);
        CHECK(wire_is_done(&r));
    }
    wire_reader r = wire_reader_open("\xcf\xff\xff\xff\xff\xff\xff\xff\xff", 9);
    CHECK(wire_read_uint(&r, UINT64_MAX) == UINT64_MAX);
    r = wire_reader_open("\xcf\x80\x00\x00\x00\x00\x00\x00\x00", 9);
    wire_read_int(&r, INT64_MIN, INT64_MAX);
    CHECK(r.failed);
}

static void a_failure_sticks(void)
{
    wire_reader r = wire_reader_open("\xc3\x05\x06", 3);
    CHECK_INT(wire_read_uint(&r, 10), 0); /* a bool */
    CHECK(r.failed);
    CHECK_INT(wire_read_uint(&r, 10), 0);
    CHECK(!wire_read_bool(&r));
    CHECK(!wire_is_nil(&r));
    CHECK(!wire_is_done(&r));
}

/* Unicode 15, table 3-7, at its edges. */
static void strings_are_utf8(void)
{
    static const struct {
        const char *text;
        bool is_valid;
    } rows[] = {
        {"plain", true},
        {"\xc2\x80", true},
        {"\xdf\xbf", true},
        {"\xe0\xa0\x80", true},
        {"\xed\x9f\xbf", true},
        {"\xee\x80\x80", true},
        {"\xef\xbf\xbf", true},
        {"\xf0\x90\x80\x80", true},
        {"\xf4\x8f\xbf\xbf", true},
        {"\x80", false},
        {"\xc0\x80", false},
        {"\xc1\xbf", false},
        {"\xc3", false},
        {"\xc3(", false},
        {"\xe0\x9f\xbf", false},
        {"\xe2\x82", false},
        {"\xe2\x82(", false},
        {"\xed\xa0\x80", false},
        {"\xf0\x8f\xbf\xbf", false},
        {"\xf0\x9f\x98", false},
        {"\xf4\x90\x80\x80", false},
        {"\xf5\x80\x80\x80", false},
        {"\xff", false},
        {"ok\xc3", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t message[16];
        size_t n;
        wire_writer w = wire_writer_open(message, sizeof message);
        wire_write_str(&w, rows[i].text, strlen(rows[i].text));
        wire_reader r = wire_reader_open(message, wire_size(&w));
        const char *text = wire_read_str(&r, 16, &n);
        CHECK_INT(text != NULL && wire_is_done(&r), rows[i].is_valid);
    }
}

static void what_is_written_is_read(void)
{
    random_source random = {21};
    static uint8_t message[210000], payload[70000];
    static const size_t lengths[] = {0, 1, 31, 32, 255, 256, 65535, 65536};
    memset(payload, 'p', sizeof payload);
    for (int round = 0; round < 1000; round++) {
        uint64_t unsigned_value = random_next(&random) >> random_below(&random, 64);
        int64_t signed_value = (int64_t)random_next(&random) >> random_below(&random, 64);
        size_t length = lengths[random_below(&random, 8)];
        double real = (double)signed_value / 3.0;
        size_t n = 0;
        wire_writer w = wire_writer_open(message, sizeof message);
        wire_write_uint(&w, unsigned_value);
        wire_write_int(&w, signed_value);
        wire_write_float(&w, real);
        wire_write_bool(&w, round % 2 == 0);
        wire_write_nil(&w);
        wire_write_array(&w, (uint32_t)length);
        wire_write_str(&w, (const char *)payload, length);
        wire_write_bin(&w, payload, length);
        CHECK(!w.failed);
        memset(w.at, 0, 70000); /* the array counts elements that are not there: give it bytes to count */
        wire_reader r = wire_reader_open(message, wire_size(&w) + 70000);
        CHECK(wire_read_uint(&r, UINT64_MAX) == unsigned_value);
        CHECK(wire_read_int(&r, INT64_MIN, INT64_MAX) == signed_value);
        CHECK(wire_read_float(&r, -1e19, 1e19) == real);
        CHECK_INT(wire_read_bool(&r), round % 2 == 0);
        CHECK(wire_is_nil(&r));
        wire_read_nil(&r);
        CHECK_INT(wire_read_array(&r, UINT32_MAX), length);
        CHECK(wire_read_str(&r, length, &n) != NULL);
        CHECK_INT(n, length);
        CHECK(memcmp(wire_read_bin(&r, length, &n), payload, length) == 0);
        CHECK(!r.failed && r.at == w.at);
    }
}

static void limits_of_the_caller_hold(void)
{
    size_t n;
    wire_reader r = wire_reader_open("\xa3"
                                     "abc",
                                     4);
    CHECK(wire_read_str(&r, 2, &n) == NULL && n == 0 && r.failed);
    r = wire_reader_open("\xc4\x03"
                         "abc",
                         5);
    CHECK(wire_read_bin(&r, 2, &n) == NULL && n == 0 && r.failed);
    r = wire_reader_open("\x93\x01\x02\x03", 4);
    CHECK(wire_read_array(&r, 2) == 0 && r.failed);
    r = wire_reader_open("\x93\x01\x02", 3); /* three elements in two bytes */
    CHECK(wire_read_array(&r, 9) == 0 && r.failed);
    r = wire_reader_open("\x05", 1);
    CHECK(wire_read_uint(&r, 4) == 0 && r.failed);
    r = wire_reader_open("\x05", 1);
    CHECK(wire_read_int(&r, 6, 9) == 0 && r.failed);
    r = wire_reader_open("\x05", 1);
    CHECK(wire_read_float(&r, 0, 4.9) == 0 && r.failed);
}

static void a_value_that_does_not_fit_is_not_written(void)
{
    uint8_t message[64];
    for (size_t room = 0; room < 15; room++) {
        memset(message, 0xee, sizeof message);
        wire_writer w = wire_writer_open(message, room);
        wire_write_str(&w, "fourteen bytes", 14);
        CHECK(w.failed);
        CHECK_INT(wire_size(&w), 0);
        wire_write_nil(&w); /* sticks, though this would fit */
        CHECK(w.failed && wire_size(&w) == 0);
        CHECK(message[0] == 0xee);
    }
    wire_writer w = wire_writer_open(message, 15);
    wire_write_str(&w, "fourteen bytes", 14);
    CHECK(!w.failed && wire_size(&w) == 15);
}

/* From here on tables of bytes, which read best as they stand. */
/* clang-format off */

/* ---- commands as msgspec writes them ---- */

/* Generate(7, 3, "chat-1", [1, -2, 70000], 256, Sampling(0.7, 0.9, 0.05, 1.1, -0.5, 0.25, 40, 64, 1234567890123),
 * [(5, -1.5)], ["\n\n", "é"], 1, [1, 3], "p", 2) */
static const uint8_t generate_message[] = {
    0x9d, 0x01, 0x07, 0x03, 0xa6, 0x63, 0x68, 0x61, 0x74, 0x2d, 0x31, 0xc4, 0x0c, 0x01, 0x00, 0x00, 0x00, 0xfe, 0xff,
    0xff, 0xff, 0x70, 0x11, 0x01, 0x00, 0xcd, 0x01, 0x00, 0x99, 0xcb, 0x3f, 0xe6, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66,
    0xcb, 0x3f, 0xec, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcd, 0xcb, 0x3f, 0xa9, 0x99, 0x99, 0x99, 0x99, 0x99, 0x9a, 0xcb,
    0x3f, 0xf1, 0x99, 0x99, 0x99, 0x99, 0x99, 0x9a, 0xcb, 0xbf, 0xe0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xcb, 0x3f,
    0xd0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x28, 0x40, 0xcf, 0x00, 0x00, 0x01, 0x1f, 0x71, 0xfb, 0x04, 0xcb, 0xc4,
    0x08, 0x05, 0x00, 0x00, 0x00, 0x00, 0x00, 0xc0, 0xbf, 0x92, 0xa2, 0x0a, 0x0a, 0xa2, 0xc3, 0xa9, 0x01,
    0xc4, 0x08, 0x01, 0x00, 0x00, 0x00, 0x03, 0x00, 0x00, 0x00, 0xa1, 0x70, 0x02};

static const uint8_t cancel_message[] = {0x92, 0x02, 0xcd, 0x01, 0x2c};
static const uint8_t reset_message[] = {0x94, 0x03, 0xce, 0x00, 0x01, 0x00, 0x00, 0x01, 0xa1, 0x61};
static const uint8_t close_message[] = {0x94, 0x04, 0xcf, 0x00, 0x00, 0x00, 0x01,
                                        0x00, 0x00, 0x00, 0x00, 0x01, 0xa1, 0x61};
static const uint8_t pause_message[] = {0x93, 0x05, 0x01, 0xc3};
static const uint8_t fork_message[] = {0x97, 0x06, 0x02, 0x00, 0xa1, 0x61, 0xa1, 0x62, 0xcd, 0x03, 0xe8, 0xc3};
static const uint8_t park_message[] = {0x94, 0x07, 0x02, 0x00, 0xa1, 0x61};
static const uint8_t pin_message[] = {0x95, 0x08, 0x02, 0x00, 0xa1, 0x61, 0xc3};
static const uint8_t rename_message[] = {0x95, 0x09, 0x02, 0x00, 0xa1, 0x61, 0xa1, 0x62};
static const uint8_t save_message[] = {0x95, 0x0a, 0x02, 0x00, 0xa1, 0x61, 0xa1, 0x62};
static const uint8_t load_message[] = {0x95, 0x0b, 0x02, 0x00, 0xa1, 0x61, 0xa1, 0x62};

static const uint8_t unsave_message[] = {0x94, 0x0c, 0x02, 0x00, 0xa1, 0x61};

static const struct {
    const uint8_t *at;
    size_t n;
    int n_alike; /* commands of the same shape, itself included */
} messages[] = {{generate_message, sizeof generate_message, 1},
                {cancel_message, sizeof cancel_message, 1},
                {reset_message, sizeof reset_message, 4},
                {close_message, sizeof close_message, 4},
                {pause_message, sizeof pause_message, 1},
                {fork_message, sizeof fork_message, 1},
                {park_message, sizeof park_message, 4},
                {pin_message, sizeof pin_message, 1},
                {rename_message, sizeof rename_message, 3},
                {save_message, sizeof save_message, 3},
                {load_message, sizeof load_message, 3},
                {unsave_message, sizeof unsave_message, 4}};

static void a_generate_is_understood(void)
{
    wire_command c;
    CHECK_INT(wire_command_read(generate_message, sizeof generate_message, &c), LLM_OK);
    CHECK_INT(c.op, LLM_COMMAND_GENERATE);
    CHECK(c.request == 7 && c.owner == 3 && c.max_tokens == 256 && c.flags == LLM_GENERATE_IGNORE_END);
    CHECK(c.n_session_bytes == 6 && memcmp(c.session, "chat-1", 6) == 0);
    CHECK_INT(c.n_prompt, 3);
    CHECK_INT(wire_prompt_token(&c, 0), 1);
    CHECK_INT(wire_prompt_token(&c, 1), -2);
    CHECK_INT(wire_prompt_token(&c, 2), 70000);
    CHECK(c.sampling.temperature == 0.7f && c.sampling.top_p == 0.9f && c.sampling.min_p == 0.05f);
    CHECK(c.sampling.repeat_penalty == 1.1f && c.sampling.presence_penalty == -0.5f);
    CHECK(c.sampling.frequency_penalty == 0.25f && c.sampling.top_k == 40 && c.sampling.penalty_last_n == 64);
    CHECK(c.sampling.seed == 1234567890123u);
    CHECK_INT(c.n_biases, 1);
    CHECK(wire_logit_bias(&c, 0).token == 5 && wire_logit_bias(&c, 0).bias == -1.5f);
    CHECK_INT(c.n_stops, 2);
    CHECK(c.stop_bytes[0] == 2 && memcmp(c.stops[0], "\n\n", 2) == 0);
    CHECK(c.stop_bytes[1] == 2 && memcmp(c.stops[1], "\xc3\xa9", 2) == 0);
    CHECK_INT(c.n_boundaries, 2);
    CHECK(wire_boundary(&c, 0) == 1 && wire_boundary(&c, 1) == 3);
    CHECK(c.n_other_bytes == 1 && c.other[0] == 'p');
    CHECK_INT(c.n_head, 2);
}

static void the_short_commands_are_understood(void)
{
    wire_command c;
    CHECK_INT(wire_command_read(cancel_message, sizeof cancel_message, &c), LLM_OK);
    CHECK(c.op == LLM_COMMAND_CANCEL && c.request == 300);
    CHECK_INT(wire_command_read(reset_message, sizeof reset_message, &c), LLM_OK);
    CHECK(c.op == LLM_COMMAND_RESET && c.request == 65536 && c.owner == 1 && c.session[0] == 'a');
    CHECK_INT(wire_command_read(close_message, sizeof close_message, &c), LLM_OK);
    CHECK(c.op == LLM_COMMAND_CLOSE && c.request == UINT64_C(1) << 32 && c.n_session_bytes == 1);
    CHECK_INT(wire_command_read(pause_message, sizeof pause_message, &c), LLM_OK);
    CHECK(c.op == LLM_COMMAND_PAUSE && c.request == 1 && c.is_on);
    CHECK_INT(wire_command_read(fork_message, sizeof fork_message, &c), LLM_OK);
    CHECK(c.op == LLM_COMMAND_FORK && c.session[0] == 'a' && c.other[0] == 'b' && c.at == 1000 && c.is_on);
    CHECK_INT(wire_command_read(pin_message, sizeof pin_message, &c), LLM_OK);
    CHECK(c.op == LLM_COMMAND_PIN && c.session[0] == 'a' && c.is_on);
    CHECK_INT(wire_command_read(save_message, sizeof save_message, &c), LLM_OK);
    CHECK(c.op == LLM_COMMAND_SAVE && c.session[0] == 'a' && c.n_other_bytes == 1 && c.other[0] == 'b');
    CHECK_INT(wire_command_read(unsave_message, sizeof unsave_message, &c), LLM_OK);
    CHECK(c.op == LLM_COMMAND_UNSAVE && c.n_other_bytes == 1 && c.other[0] == 'a');
}

/* ---- malformed commands ---- */

/* 0 stands for no request: nobody could be answered. */
static void a_request_without_a_number_is_refused(void)
{
    static const size_t number_at[] = {0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2}; /* 0: not one byte long */
    _Static_assert(sizeof number_at / sizeof number_at[0] == sizeof messages / sizeof messages[0], "one for each");
    uint32_t n_tried = 0;
    for (size_t m = 0; m < sizeof messages / sizeof messages[0]; m++) {
        uint8_t changed[256];
        wire_command c;
        memcpy(changed, messages[m].at, messages[m].n);
        changed[2] = number_at[m] == 0 ? changed[2] : 0;
        n_tried += number_at[m] != 0;
        CHECK_INT(read_exact(changed, messages[m].n, &c), number_at[m] == 0 ? LLM_OK : LLM_INVALID);
    }
    CHECK_INT(n_tried, 8);
}

static void every_cut_message_is_refused(void)
{
    for (size_t m = 0; m < sizeof messages / sizeof messages[0]; m++) {
        wire_command c = {.request = 99};
        for (size_t n = 0; n < messages[m].n; n++) {
            CHECK_INT(read_exact(messages[m].at, n, &c), LLM_INVALID);
            CHECK_INT(c.request, 99); /* untouched */
        }
        CHECK_INT(read_exact(messages[m].at, messages[m].n, &c), LLM_OK);
    }
}

static void bytes_after_a_message_are_refused(void)
{
    for (size_t m = 0; m < sizeof messages / sizeof messages[0]; m++) {
        uint8_t longer[256];
        wire_command c;
        memcpy(longer, messages[m].at, messages[m].n);
        longer[messages[m].n] = 0xc0;
        CHECK_INT(read_exact(longer, messages[m].n + 1, &c), LLM_INVALID);
    }
}

/* Any change of the first two bytes, the shape and the op, is another message or none. */
static void shapes_and_ops_must_agree(void)
{
    for (size_t m = 0; m < sizeof messages / sizeof messages[0]; m++) {
        int accepted = 0;
        for (unsigned head = 0; head < 65536; head++) {
            uint8_t changed[256];
            wire_command c;
            memcpy(changed, messages[m].at, messages[m].n);
            changed[0] = (uint8_t)(head >> 8);
            changed[1] = (uint8_t)head;
            accepted += read_exact(changed, messages[m].n, &c) == LLM_OK;
        }
        CHECK_INT(accepted, messages[m].n_alike);
    }
}

/* A command put together from encoded parts, of which one may be replaced. */
enum { PART_REQUEST = 2, PART_OWNER, PART_SESSION, PART_PROMPT, PART_MAX_TOKENS, PART_SAMPLING, PART_TEMPERATURE,
       PART_TOP_P, PART_MIN_P, PART_REPEAT, PART_PRESENCE, PART_FREQUENCY, PART_TOP_K, PART_LAST_N, PART_SEED,
       PART_BIASES, PART_STOPS, PART_FLAGS, PART_BOUNDARIES, PART_PARENT, PART_HEAD, PARTS };

static const bytes good_parts[PARTS] = {
    BYTES("\x9d"), BYTES("\x01"), BYTES("\x07"), BYTES("\x03"), BYTES("\xa1" "s"), BYTES("\xc4\x04\x01\x00\x00\x00"),
    BYTES("\x09"), BYTES("\x99"), BYTES("\x00"), BYTES("\x01"), BYTES("\x00"), BYTES("\x01"), BYTES("\x00"),
    BYTES("\x00"), BYTES("\x00"), BYTES("\x40"), BYTES("\xc0"), BYTES("\xc4\x00"), BYTES("\x90"), BYTES("\x00"),
    BYTES("\xc4\x00"), BYTES("\xa0"), BYTES("\x00"),
};

static int read_with(size_t part, const void *replacement, size_t n_replacement)
{
    static uint8_t message[70000];
    size_t n = 0;
    for (size_t i = 0; i < PARTS; i++) {
        const void *at = i == part ? replacement : good_parts[i].at;
        size_t n_at = i == part ? n_replacement : good_parts[i].n;
        memcpy(message + n, at, n_at);
        n += n_at;
    }
    wire_command c;
    return read_exact(message, n, &c);
}

static void every_part_is_checked(void)
{
    static const struct {
        size_t part;
        bytes replacement;
        int status;
    } rows[] = {
        {0, BYTES("\xdc\x00\x0d"), LLM_OK}, {0, BYTES("\xdd\x00\x00\x00\x0d"), LLM_OK}, {0, BYTES("\x99"), LLM_INVALID},
        {0, BYTES("\x9b"), LLM_INVALID}, {0, BYTES("\x8a"), LLM_INVALID},
        {0, BYTES("\xdd\xff\xff\xff\xff"), LLM_INVALID},
        {1, BYTES("\xcc\x01"), LLM_OK}, {1, BYTES("\xd3\x00\x00\x00\x00\x00\x00\x00\x01"), LLM_OK},
        {1, BYTES("\x00"), LLM_INVALID}, {1, BYTES("\x06"), LLM_INVALID}, {1, BYTES("\xc3"), LLM_INVALID},
        {PART_REQUEST, BYTES("\xff"), LLM_INVALID}, {PART_REQUEST, BYTES("\xc0"), LLM_INVALID},
        {PART_REQUEST, BYTES("\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00"), LLM_INVALID},
        {PART_REQUEST, BYTES("\xcf\xff\xff\xff\xff\xff\xff\xff\xff"), LLM_OK},
        {PART_OWNER, BYTES("\xce\xff\xff\xff\xff"), LLM_OK},
        {PART_OWNER, BYTES("\xcf\x00\x00\x00\x01\x00\x00\x00\x00"), LLM_INVALID},
        {PART_SESSION, BYTES("\xa0"), LLM_OK}, {PART_SESSION, BYTES("\xa3" "a b"), LLM_INVALID},
        {PART_SESSION, BYTES("\xa2" "a\x7f"), LLM_INVALID}, {PART_SESSION, BYTES("\xa2\xc3\xa9"), LLM_INVALID},
        {PART_SESSION, BYTES("\xa1\x00"), LLM_INVALID}, {PART_SESSION, BYTES("\xc4\x01" "s"), LLM_INVALID},
        {PART_SESSION, BYTES("\xc0"), LLM_INVALID}, {PART_SESSION, BYTES("\xa2!~"), LLM_OK},
        {PART_PROMPT, BYTES("\xc4\x00"), LLM_INVALID},
        {PART_PROMPT, BYTES("\xc4\x05\x01\x00\x00\x00\x00"), LLM_INVALID},
        {PART_PROMPT, BYTES("\xc5\x00\x04\x01\x00\x00\x00"), LLM_OK},
        {PART_PROMPT, BYTES("\xc6\x00\x00\x00\x04\x01\x00\x00\x00"), LLM_OK},
        {PART_PROMPT, BYTES("\xa4\x01\x00\x00\x00"), LLM_INVALID}, {PART_PROMPT, BYTES("\x91\x01"), LLM_INVALID},
        {PART_PROMPT, BYTES("\xc6\xff\xff\xff\xfc\x01\x00\x00\x00"), LLM_INVALID},
        {PART_PROMPT, BYTES("\xd6\x01\x01\x00\x00\x00"), LLM_INVALID}, /* an ext */
        {PART_MAX_TOKENS, BYTES("\xff"), LLM_INVALID}, {PART_MAX_TOKENS, BYTES("\xce\xff\xff\xff\xff"), LLM_OK},
        {PART_SAMPLING, BYTES("\x98"), LLM_INVALID}, {PART_SAMPLING, BYTES("\xc0"), LLM_INVALID},
        {PART_TEMPERATURE, BYTES("\x64"), LLM_OK}, {PART_TEMPERATURE, BYTES("\x65"), LLM_INVALID},
        {PART_TEMPERATURE, BYTES("\xff"), LLM_INVALID}, {PART_TEMPERATURE, BYTES("\xca\x3f\x00\x00\x00"), LLM_OK},
        {PART_TEMPERATURE, BYTES("\xca\x7f\xc0\x00\x00"), LLM_INVALID}, /* NaN */
        {PART_TEMPERATURE, BYTES("\xca\x7f\x80\x00\x00"), LLM_INVALID}, /* infinity */
        {PART_TEMPERATURE, BYTES("\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"), LLM_INVALID},
        {PART_TEMPERATURE, BYTES("\xcb\xff\xf0\x00\x00\x00\x00\x00\x00"), LLM_INVALID},
        {PART_TEMPERATURE, BYTES("\xcb\x7f\xef\xff\xff\xff\xff\xff\xff"), LLM_INVALID}, /* the largest double */
        {PART_TEMPERATURE, BYTES("\xc0"), LLM_INVALID}, {PART_TEMPERATURE, BYTES("\xa1" "1"), LLM_INVALID},
        {PART_TOP_P, BYTES("\x00"), LLM_OK}, {PART_TOP_P, BYTES("\x02"), LLM_INVALID},
        {PART_MIN_P, BYTES("\x01"), LLM_OK}, {PART_MIN_P, BYTES("\x02"), LLM_INVALID},
        {PART_REPEAT, BYTES("\x64"), LLM_OK}, {PART_REPEAT, BYTES("\x00"), LLM_INVALID},
        {PART_REPEAT, BYTES("\x65"), LLM_INVALID}, {PART_PRESENCE, BYTES("\xd0\x9c"), LLM_OK},
        {PART_PRESENCE, BYTES("\xd0\x9b"), LLM_INVALID}, {PART_FREQUENCY, BYTES("\x64"), LLM_OK},
        {PART_FREQUENCY, BYTES("\x65"), LLM_INVALID}, {PART_TOP_K, BYTES("\xce\x7f\xff\xff\xff"), LLM_OK},
        {PART_TOP_K, BYTES("\xce\x80\x00\x00\x00"), LLM_INVALID}, {PART_TOP_K, BYTES("\xff"), LLM_INVALID},
        {PART_TOP_K, BYTES("\xca\x3f\x80\x00\x00"), LLM_INVALID}, /* 1.0 is no count */
        {PART_LAST_N, BYTES("\xce\x01\x00\x00\x00"), LLM_OK}, {PART_LAST_N, BYTES("\xce\x01\x00\x00\x01"), LLM_INVALID},
        {PART_SEED, BYTES("\x00"), LLM_OK}, {PART_SEED, BYTES("\xff"), LLM_INVALID},
        {PART_SEED, BYTES("\xcf\xff\xff\xff\xff\xff\xff\xff\xff"), LLM_OK}, {PART_SEED, BYTES("\xc2"), LLM_INVALID},
        {PART_BIASES, BYTES("\xc4\x08\x01\x00\x00\x00\x00\x00\x80\x3f"), LLM_OK},
        {PART_BIASES, BYTES("\xc4\x04\x01\x00\x00\x00"), LLM_INVALID}, {PART_BIASES, BYTES("\xc0"), LLM_INVALID},
        {PART_BIASES, BYTES("\xc4\x08\x01\x00\x00\x00\x00\x00\xc0\x7f"), LLM_INVALID}, /* NaN */
        {PART_BIASES, BYTES("\xc4\x08\x01\x00\x00\x00\x00\x00\x80\xff"), LLM_INVALID}, /* -infinity */
        {PART_STOPS, BYTES("\x91\xa1" "x"), LLM_OK}, {PART_STOPS, BYTES("\x91\xa0"), LLM_INVALID},
        {PART_STOPS, BYTES("\xa1" "x"), LLM_INVALID}, {PART_STOPS, BYTES("\x91\xa1\xff"), LLM_INVALID},
        {PART_STOPS, BYTES("\x91\x91\xa1" "x"), LLM_INVALID}, {PART_STOPS, BYTES("\xc0"), LLM_INVALID},
        {PART_STOPS, BYTES("\x91\xc4\x01" "x"), LLM_INVALID}, {PART_STOPS, BYTES("\x91\xc0"), LLM_INVALID},
        {PART_FLAGS, BYTES("\x03"), LLM_OK}, {PART_FLAGS, BYTES("\x04"), LLM_INVALID},
        {PART_FLAGS, BYTES("\xff"), LLM_INVALID},
        {PART_HEAD, BYTES("\x01"), LLM_OK}, {PART_HEAD, BYTES("\x02"), LLM_INVALID}, /* more than the prompt */
        {PART_HEAD, BYTES("\xff"), LLM_INVALID}, {PART_HEAD, BYTES("\xc0"), LLM_INVALID},
    };
    CHECK_INT(read_with(PARTS, NULL, 0), LLM_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int status = read_with(rows[i].part, rows[i].replacement.at, rows[i].replacement.n);
        if (status != rows[i].status) {
            printf("row %zu, part %zu\n", i, rows[i].part);
        }
        CHECK_INT(status, rows[i].status);
    }
}

/* A string or bin of n bytes, or an array of n one-byte strings, in place of a part. */
static int read_with_length(size_t part, char kind, size_t n)
{
    static uint8_t payload[20000], encoded[20010];
    memset(payload, part == PART_SESSION || part == PART_STOPS ? 'x' : 0, sizeof payload);
    wire_writer w = wire_writer_open(encoded, sizeof encoded);
    if (kind == 'a') {
        wire_write_array(&w, (uint32_t)n);
        for (size_t i = 0; i < n; i++) {
            wire_write_str(&w, "x", 1);
        }
    } else if (kind == 'b') {
        wire_write_bin(&w, payload, n);
    } else {
        if (part == PART_STOPS) {
            wire_write_array(&w, 1);
        }
        wire_write_str(&w, (const char *)payload, n);
    }
    return read_with(part, encoded, wire_size(&w));
}

static void lengths_are_limited(void)
{
    CHECK_INT(read_with_length(PART_SESSION, 's', LLM_SESSION_NAME_BYTES_MAX), LLM_OK);
    CHECK_INT(read_with_length(PART_SESSION, 's', LLM_SESSION_NAME_BYTES_MAX + 1), LLM_INVALID);
    CHECK_INT(read_with_length(PART_STOPS, 's', LLM_STOP_BYTES_MAX), LLM_OK);
    CHECK_INT(read_with_length(PART_STOPS, 's', LLM_STOP_BYTES_MAX + 1), LLM_INVALID);
    CHECK_INT(read_with_length(PART_STOPS, 'a', LLM_STOPS_MAX), LLM_OK);
    CHECK_INT(read_with_length(PART_STOPS, 'a', LLM_STOPS_MAX + 1), LLM_INVALID);
    CHECK_INT(read_with_length(PART_BIASES, 'b', 8 * LLM_LOGIT_BIASES_MAX), LLM_OK);
    CHECK_INT(read_with_length(PART_BIASES, 'b', 8 * LLM_LOGIT_BIASES_MAX + 8), LLM_INVALID);
    CHECK_INT(read_with_length(PART_PROMPT, 'b', 16000), LLM_OK);
}

/* An array of nothing has no op, and an op that does not exist has no fields: the two must not agree. */
static void an_empty_array_is_no_command(void)
{
    wire_command c;
    CHECK_INT(read_exact("\x90", 1, &c), LLM_INVALID);
    CHECK_INT(read_exact("\x90\x00", 2, &c), LLM_INVALID);
    CHECK_INT(read_exact("\x91\x00", 2, &c), LLM_INVALID);
}

static void reset_and_close_need_a_name(void)
{
    wire_command c;
    CHECK_INT(read_exact("\x94\x03\x01\x01\xa0", 5, &c), LLM_INVALID);
    CHECK_INT(read_exact("\x94\x04\x01\x01\xa0", 5, &c), LLM_INVALID);
    CHECK_INT(read_exact("\x93\x05\x01\x01", 4, &c), LLM_INVALID); /* 1 is not true */
}

static void no_seed_means_draw_one(void)
{
    uint8_t message[64];
    size_t n = 0;
    for (size_t i = 0; i < PARTS; i++) {
        memcpy(message + n, good_parts[i].at, good_parts[i].n);
        n += good_parts[i].n;
    }
    wire_command c;
    CHECK_INT(wire_command_read(message, n, &c), LLM_OK);
    CHECK(c.sampling.seed == UINT64_MAX);
}

/* ---- events ---- */

static void events_are_exact_to_the_byte(void)
{
    uint8_t message[512];
    wire_writer w = wire_writer_open(message, sizeof message);
    wire_write_admitted(&w, 300, 2);
    wire_write_started(&w, 7, LLM_REASON_REWIND, 1000, 900, -1);
    wire_write_text(&w, 7, "h\xc3\xa9", 3, 4);
    wire_write_reply(&w, 8, LLM_NOT_FOUND, 0, 5);
    wire_write_forgotten(&w, 300, "ab", 2);
    const wire_finished f = {.request = 7, .outcome = LLM_OUTCOME_STOP, .status = LLM_OK, .n_prompt = 1000,
                             .n_reused = 900, .n_prefilled = 100, .n_generated = 5, .n_resident = 1004,
                             .n_visible = 1003, .stop_index = 0, .queue_us = 1, .prefill_us = 70000,
                             .decode_us = 5000000000, .seed = UINT64_MAX};
    wire_write_finished(&w, &f);
    static const uint8_t expected[] = {
        0x93, 0x01, 0xcd, 0x01, 0x2c, 0x02, /* ADMITTED */
        0x96, 0x02, 0x07, 0x03, 0xcd, 0x03, 0xe8, 0xcd, 0x03, 0x84, 0xff, /* STARTED */
        0x94, 0x03, 0x07, 0xa3, 0x68, 0xc3, 0xa9, 0x04, /* TEXT */
        0x95, 0x05, 0x08, 0x03, 0x00, 0x05, /* REPLY */
        0x93, 0x06, 0xcd, 0x01, 0x2c, 0xa2, 0x61, 0x62, /* FORGOTTEN */
        0x9f, 0x04, 0x07, 0x01, 0x00, 0xcd, 0x03, 0xe8, 0xcd, 0x03, 0x84, 0x64, 0x05, 0xcd, 0x03, 0xec, 0xcd, 0x03,
        0xeb, 0x00, 0x01, 0xce, 0x00, 0x01, 0x11, 0x70, 0xcf, 0x00, 0x00, 0x00, 0x01, 0x2a, 0x05, 0xf2, 0x00, 0xcf,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}; /* FINISHED */
    CHECK(!w.failed);
    CHECK_INT(wire_size(&w), sizeof expected);
    CHECK(memcmp(message, expected, sizeof expected) == 0);
}

static void write_largest(wire_writer *w, int which)
{
    const wire_finished f = {UINT64_MAX, LLM_OUTCOME_SHUTDOWN, LLM_SMALL_BUFFER, UINT32_MAX, UINT32_MAX, UINT32_MAX,
                             UINT32_MAX, UINT32_MAX, UINT32_MAX, INT32_MIN, UINT64_MAX, UINT64_MAX, UINT64_MAX,
                             UINT64_MAX};
    static const char text[70000];
    switch (which) {
    case 0: wire_write_admitted(w, UINT64_MAX, UINT32_MAX); break;
    case 1: wire_write_started(w, UINT64_MAX, LLM_REASON_TORN, UINT32_MAX, UINT32_MAX, INT32_MIN); break;
    case 2: wire_write_text(w, UINT64_MAX, text, sizeof text, UINT32_MAX); break;
    case 3: wire_write_finished(w, &f); break;
    case 4: wire_write_forgotten(w, UINT32_MAX, text, LLM_SESSION_NAME_BYTES_MAX); break;
    default: wire_write_reply(w, UINT64_MAX, LLM_SMALL_BUFFER, UINT32_MAX, UINT32_MAX); break;
    }
}

static void events_fit_their_stated_size_or_are_not_written(void)
{
    static uint8_t message[71000];
    for (int which = 0; which < 6; which++) {
        size_t text = which == 2 ? 70000 : 0;
        wire_writer w = wire_writer_open(message, text + WIRE_EVENT_BYTES_MAX);
        write_largest(&w, which);
        CHECK(!w.failed);
        size_t n = wire_size(&w);
        for (size_t room = which == 2 ? n - 20 : 0; room < n; room++) {
            w = wire_writer_open(message, room);
            write_largest(&w, which);
            CHECK(w.failed);
            CHECK_INT(wire_size(&w), 0);
        }
        w = wire_writer_open(message, n);
        write_largest(&w, which);
        CHECK(!w.failed);
    }
}

/* clang-format on */

int main(void)
{
    RUN(every_integer_encoding_is_read);
    RUN(a_failure_sticks);
    RUN(strings_are_utf8);
    RUN(what_is_written_is_read);
    RUN(limits_of_the_caller_hold);
    RUN(a_value_that_does_not_fit_is_not_written);
    RUN(a_generate_is_understood);
    RUN(the_short_commands_are_understood);
    RUN(a_request_without_a_number_is_refused);
    RUN(every_cut_message_is_refused);
    RUN(bytes_after_a_message_are_refused);
    RUN(shapes_and_ops_must_agree);
    RUN(every_part_is_checked);
    RUN(lengths_are_limited);
    RUN(an_empty_array_is_no_command);
    RUN(reset_and_close_need_a_name);
    RUN(no_seed_means_draw_one);
    RUN(events_are_exact_to_the_byte);
    RUN(events_fit_their_stated_size_or_are_not_written);
    return CHECK_RESULT();
}
