/* Tests MessagePack: single values, and the exact bytes of events. */
#include "boundary/wire.h"

#include "check.h"
#include "command_writer.h"
#include "random.h"

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
        CHECK_INT(wire_is_done(&r), rows[i].value >= 0); /* a negative number is not read as unsigned */
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
    CHECK_INT(wire_read_uint(&r, 10), 0); /* the value is a bool */
    CHECK(r.failed);
    CHECK_INT(wire_read_uint(&r, 10), 0);
    CHECK(!wire_read_bool(&r));
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
    enum { N_MISSING = 140000 };
    random_source random = {21};
    static uint8_t message[140000 + N_MISSING], payload[70000];
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
        wire_write_map(&w, (uint32_t)length);
        wire_write_array(&w, (uint32_t)length);
        wire_write_str(&w, (const char *)payload, length);
        wire_write_bin(&w, payload, length);
        CHECK(!w.failed);
        /* map and array compare their numbers of elements with the bytes that follow, so some bytes must follow */
        memset(w.at, 0, N_MISSING);
        wire_reader r = wire_reader_open(message, wire_size(&w) + N_MISSING);
        CHECK(wire_read_uint(&r, UINT64_MAX) == unsigned_value);
        CHECK(wire_read_int(&r, INT64_MIN, INT64_MAX) == signed_value);
        CHECK(wire_read_float(&r, -1e19, 1e19) == real);
        CHECK_INT(wire_read_bool(&r), round % 2 == 0);
        CHECK_INT(wire_read_map(&r, UINT32_MAX), length);
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
    r = wire_reader_open("\x93\x01\x02", 3); /* three elements need at least three bytes */
    CHECK(wire_read_array(&r, 9) == 0 && r.failed);
    r = wire_reader_open("\x82\x01\x02\x03\x04", 5);
    CHECK(wire_read_map(&r, 1) == 0 && r.failed);
    r = wire_reader_open("\x82\x01\x02\x03", 4); /* two entries need at least four bytes */
    CHECK(wire_read_map(&r, 9) == 0 && r.failed);
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
        wire_write_bool(&w, true); /* this would fit, but the failure stays */
        CHECK(w.failed && wire_size(&w) == 0);
        CHECK(message[0] == 0xee);
    }
    wire_writer w = wire_writer_open(message, 15);
    wire_write_str(&w, "fourteen bytes", 14);
    CHECK(!w.failed && wire_size(&w) == 15);
}

/* The following tables of bytes keep their format. */
/* clang-format off */

/* ---- events ---- */

static void events_are_exact_to_the_byte(void)
{
    uint8_t message[512];
    wire_writer w = wire_writer_open(message, sizeof message);
    wire_write_admitted(&w, 300, 2);
    wire_write_started(&w, 7, LLM_REASON_REWIND, 1000, 900, -1);
    wire_write_text(&w, 7, "h\xc3\xa9", 3, 4, NULL);
    static const int32_t tokens[] = {5, 70000};
    static const uint32_t ends[] = {1, 2};
    static const float logprobs[] = {-0.5f, -2};
    static const token_logprob likeliest[] = {{5, -0.5f}, {6, -1}};
    wire_tokens details = {2, -1, tokens, ends, NULL, NULL};
    wire_write_text(&w, 7, "h\xc3\xa9", 3, 4, &details);
    details = (wire_tokens){2, 1, tokens, ends, logprobs, likeliest};
    wire_write_text(&w, 7, "", 0, 4, &details);
    wire_write_reply(&w, 8, LLM_NOT_FOUND, 0, 5, 2);
    wire_write_forgotten(&w, session_name_from(300, "ab"));
    wire_write_consumed(&w, 7, 512, 70000);
    const wire_finished f = {.request = 7, .outcome = LLM_OUTCOME_STOP, .status = LLM_OK, .n_prompt = 1000,
                             .n_reused = 900, .n_prefilled = 100, .n_generated = 5, .n_resident = 1004,
                             .n_visible = 1003, .stop_index = 0, .queue_us = 1, .prefill_us = 70000,
                             .decode_us = 5000000000, .seed = UINT64_MAX, .n_drafted = 16, .n_accepted = 300,
                             .n_grammar_drafted = 8, .n_grammar_accepted = 7,
                             .n_model_drafted = 6, .n_model_accepted = 5};
    wire_write_finished(&w, &f);
    static const uint8_t expected[] = {
        0x93, 0x01, 0xcd, 0x01, 0x2c, 0x02, /* ADMITTED */
        0x96, 0x02, 0x07, 0x03, 0xcd, 0x03, 0xe8, 0xcd, 0x03, 0x84, 0xff, /* STARTED */
        0x94, 0x03, 0x07, 0xa3, 0x68, 0xc3, 0xa9, 0x04, /* TEXT */
        0x98, 0x03, 0x07, 0xa3, 0x68, 0xc3, 0xa9, 0x04, 0xc4, 0x08, 0x05, 0x00, 0x00, 0x00, 0x70, 0x11, 0x01, 0x00,
        0xc4, 0x08, 0x01, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0xc4, 0x00, 0xc4, 0x00, /* TEXT with tokens */
        0x98, 0x03, 0x07, 0xa0, 0x04, 0xc4, 0x08, 0x05, 0x00, 0x00, 0x00, 0x70, 0x11, 0x01, 0x00, 0xc4, 0x08, 0x01,
        0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0xc4, 0x08, 0x00, 0x00, 0x00, 0xbf, 0x00, 0x00, 0x00, 0xc0, 0xc4,
        0x10, 0x05, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xbf, 0x06, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80, 0xbf, /* all */
        0x96, 0x05, 0x08, 0x03, 0x00, 0x05, 0x02, /* REPLY */
        0x93, 0x06, 0xcd, 0x01, 0x2c, 0xa2, 0x61, 0x62, /* FORGOTTEN */
        0x94, 0x07, 0x07, 0xcd, 0x02, 0x00, 0xce, 0x00, 0x01, 0x11, 0x70, /* CONSUMED */
        0xdc, 0x00, 0x15, 0x04, 0x07, 0x01, 0x00, 0xcd, 0x03, 0xe8, 0xcd, 0x03, 0x84, 0x64, 0x05, 0xcd, 0x03, 0xec, 0xcd, 0x03,
        0xeb, 0x00, 0x01, 0xce, 0x00, 0x01, 0x11, 0x70, 0xcf, 0x00, 0x00, 0x00, 0x01, 0x2a, 0x05, 0xf2, 0x00, 0xcf,
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x10, 0xcd, 0x01, 0x2c, 0x08, 0x07, 0x06, 0x05}; /* FINISHED */
    CHECK(!w.failed);
    CHECK_INT(wire_size(&w), sizeof expected);
    CHECK(memcmp(message, expected, sizeof expected) == 0);
}

static void write_largest(wire_writer *w, int which)
{
    const wire_finished f = {UINT64_MAX, LLM_OUTCOME_SHUTDOWN, LLM_SMALL_BUFFER, UINT32_MAX, UINT32_MAX, UINT32_MAX,
                             UINT32_MAX, UINT32_MAX, UINT32_MAX, INT32_MIN, UINT64_MAX, UINT64_MAX, UINT64_MAX,
                             UINT64_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};
    static const char text[70000];
    static const token_logprob likeliest[20];
    const wire_tokens details = {1, 20, &(int32_t){7}, &(uint32_t){8}, &(float){9}, likeliest};
    switch (which) {
    case 0: wire_write_admitted(w, UINT64_MAX, UINT32_MAX); break;
    case 1: wire_write_started(w, UINT64_MAX, LLM_REASON_TORN, UINT32_MAX, UINT32_MAX, INT32_MIN); break;
    case 2: wire_write_text(w, UINT64_MAX, text, sizeof text, UINT32_MAX, &details); break;
    case 3: wire_write_finished(w, &f); break;
    case 4: wire_write_forgotten(w, (session_name){UINT32_MAX, text, LLM_SESSION_NAME_BYTES_MAX}); break;
    case 5: wire_write_consumed(w, UINT64_MAX, UINT32_MAX, UINT64_MAX); break;
    default: wire_write_reply(w, UINT64_MAX, LLM_SMALL_BUFFER, UINT32_MAX, UINT32_MAX, UINT32_MAX); break;
    }
}

static void events_fit_their_stated_size_or_are_not_written(void)
{
    static uint8_t message[71000];
    for (int which = 0; which < 7; which++) {
        size_t text = which == 2 ? 70000 + 12 + 20 * sizeof(token_logprob) : 0;
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
    RUN(events_are_exact_to_the_byte);
    RUN(events_fit_their_stated_size_or_are_not_written);
    return CHECK_RESULT();
}
