/* Tests commands as msgspec writes them, and every kind of malformed command, with the name of the refused entry. Each
 * message is in an allocation of exactly its size, so that AddressSanitizer detects reads beyond the message. */
#include "boundary/wire.h"

#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "command_writer.h"

/* Reads a command from a copy of exactly its size. Afterwards, pointers in *out are invalid, so only counts and numbers
 * may be used. */
static int read_exact(const void *bytes, size_t n, wire_command *out, wire_refusal *refused)
{
    uint8_t *copy = malloc(n > 0 ? n : 1);
    memcpy(copy, bytes, n);
    wire_refusal ignored;
    int status = wire_command_read(copy, n, out, refused != NULL ? refused : &ignored);
    free(copy);
    return status;
}

/* The following tables of bytes keep their format. */
/* clang-format off */

typedef struct bytes {
    const char *at;
    size_t n;
} bytes;

#define BYTES(literal) {literal, sizeof(literal) - 1}

/* ---- commands as msgspec writes them ---- */

/* Generate(request=7, owner=3, prompt=[1, -2, 70000], session="chat-1", max_tokens=256, sampling=Sampling(temperature=0.7,
 * top_p=0.9, min_p=0.05, repeat_penalty=1.1, presence_penalty=-0.5, frequency_penalty=0.25, top_k=40, penalty_last_n=100,
 * seed=1234567890123), logit_bias=[(5, -1.5)], stop=["\n\n", "é"], flags=1, boundaries=[1, 3], parent="p", n_head=2,
 * n_logprobs=5, after=6) */
static const char generate_message[] =
    "\x8f\xa2op\x01\xa7request\x07\xa5owner\x03\xa6prompt\xc4\x0c\x01\x00\x00\x00\xfe\xff\xff\xffp\x11\x01"
    "\x00\xa7session\xa6" "chat-1\xaamax_tokens\xcd\x01\x00\xa8sampling\x89\xabtemperature\xcb\x3f\xe6" "fff"
    "fff\xa5top_p\xcb\x3f\xec\xcc\xcc\xcc\xcc\xcc\xcd\xa5min_p\xcb\x3f\xa9\x99\x99\x99\x99\x99\x9a\xaerepeat"
    "_penalty\xcb\x3f\xf1\x99\x99\x99\x99\x99\x9a\xb0presence_penalty\xcb\xbf\xe0\x00\x00\x00\x00\x00\x00"
    "\xb1" "frequency_penalty\xcb\x3f\xd0\x00\x00\x00\x00\x00\x00\xa5top_k(\xaepenalty_last_nd\xa4seed\xcf"
    "\x00\x00\x01\x1fq\xfb\x04\xcb\xaalogit_bias\xc4\x08\x05\x00\x00\x00\x00\x00\xc0\xbf\xa4stop\x92\xa2\x0a"
    "\x0a\xa2\xc3\xa9\xa5" "flags\x01\xaa" "boundaries\xc4\x08\x01\x00\x00\x00\x03\x00\x00\x00\xa6parent\xa1"
    "p\xa6n_head\x02\xaan_logprobs\x05\xa5" "after\x06";
static const char cancel_message[] =
    "\x82\xa2op\x02\xa7request\xcd\x01,";
static const char reset_message[] =
    "\x84\xa2op\x03\xa7request\xce\x00\x01\x00\x00\xa5owner\x01\xa7session\xa1" "a";
static const char close_message[] =
    "\x84\xa2op\x04\xa7request\xcf\x00\x00\x00\x01\x00\x00\x00\x00\xa5owner\x01\xa7session\xa1" "a";
static const char pause_message[] =
    "\x83\xa2op\x05\xa7request\x01\xa6paused\xc3";
static const char fork_message[] =
    "\x87\xa2op\x06\xa7request\x02\xa5owner\x00\xa7session\xa1" "a\xabnew_session\xa1" "b\xa2" "at\xcd\x03"
    "\xe8\xa7replace\xc3";
static const char park_message[] =
    "\x84\xa2op\x07\xa7request\x02\xa5owner\x00\xa7session\xa1" "a";
static const char pin_message[] =
    "\x85\xa2op\x08\xa7request\x02\xa5owner\x00\xa7session\xa1" "a\xa6pinned\xc3";
static const char rename_message[] =
    "\x85\xa2op\x09\xa7request\x02\xa5owner\x00\xa7session\xa1" "a\xabnew_session\xa1" "b";
static const char save_message[] =
    "\x85\xa2op\x0a\xa7request\x02\xa5owner\x00\xa7session\xa1" "a\xa5label\xa1" "b";
static const char load_message[] =
    "\x85\xa2op\x0b\xa7request\x02\xa5owner\x00\xa7session\xa1" "a\xa5label\xa1" "b";
static const char unsave_message[] =
    "\x84\xa2op\x0c\xa7request\x02\xa5owner\x00\xa5label\xa1" "a";

static const struct {
    bytes message;
    int n_alike; /* number of commands with the same entries, including this one */
} messages[] = {{BYTES(generate_message), 1}, {BYTES(cancel_message), 1}, {BYTES(reset_message), 3},
                {BYTES(close_message), 3},    {BYTES(pause_message), 1},  {BYTES(fork_message), 1},
                {BYTES(park_message), 3},     {BYTES(pin_message), 1},    {BYTES(rename_message), 2},
                {BYTES(save_message), 2},     {BYTES(load_message), 2},   {BYTES(unsave_message), 1}};

enum { N_MESSAGES = sizeof messages / sizeof messages[0], OP_AT = 4 };
_Static_assert((int)N_MESSAGES + 1 == (int)LLM_COMMAND_END, "one of each");

static int read_message(const char *message, size_t n, wire_command *out)
{
    wire_refusal refused;
    return wire_command_read(message, n, out, &refused);
}

static void a_generate_is_understood(void)
{
    wire_command c;
    CHECK_INT(read_message(generate_message, sizeof generate_message - 1, &c), LLM_OK);
    CHECK_INT(c.op, LLM_COMMAND_GENERATE);
    CHECK(c.request == 7 && c.session.owner == 3 && c.max_tokens == 256 && c.flags == LLM_GENERATE_IGNORE_END);
    CHECK(c.session.n_bytes == 6 && memcmp(c.session.bytes, "chat-1", 6) == 0);
    CHECK_INT(c.prompt.n, 3);
    CHECK_INT(wire_number(&c.prompt, 0), 1);
    CHECK_INT(wire_number(&c.prompt, 1), -2);
    CHECK_INT(wire_number(&c.prompt, 2), 70000);
    CHECK(c.sampling.temperature == 0.7f && c.sampling.top_p == 0.9f && c.sampling.min_p == 0.05f);
    CHECK(c.sampling.repeat_penalty == 1.1f && c.sampling.presence_penalty == -0.5f);
    CHECK(c.sampling.frequency_penalty == 0.25f && c.sampling.top_k == 40 && c.sampling.penalty_last_n == 100);
    CHECK(c.sampling.seed == 1234567890123u);
    CHECK_INT(c.n_biases, 1);
    CHECK(wire_logit_bias(&c, 0).token == 5 && wire_logit_bias(&c, 0).bias == -1.5f);
    CHECK_INT(c.stops.n, 2);
    CHECK(c.stops.n_bytes[0] == 2 && memcmp(c.stops.at[0], "\n\n", 2) == 0);
    CHECK(c.stops.n_bytes[1] == 2 && memcmp(c.stops.at[1], "\xc3\xa9", 2) == 0);
    CHECK_INT(c.boundaries.n, 2);
    CHECK(wire_number(&c.boundaries, 0) == 1 && wire_number(&c.boundaries, 1) == 3);
    CHECK(c.other.n_bytes == 1 && c.other.bytes[0] == 'p');
    CHECK(c.n_head == 2 && c.n_logprobs == 5 && c.after == 6);
}

static void what_is_left_out_has_its_default(void)
{
    wire_command c;
    CHECK_INT(read_message("\x84\xa2op\x01\xa7request\x07\xa5owner\x03\xa6prompt\xc4\x04\x01\x00\x00\x00", 34, &c), LLM_OK);
    CHECK(c.session.n_bytes == 0 && c.other.n_bytes == 0 && c.max_tokens == 0 && c.flags == 0 && c.n_head == 0);
    CHECK(c.n_biases == 0 && c.stops.n == 0 && c.boundaries.n == 0 && c.n_logprobs == -1 && c.after == 0);
    const llm_sampling *s = &c.sampling;
    CHECK(s->temperature == 0 && s->top_p == 1 && s->min_p == 0 && s->repeat_penalty == 1 && s->presence_penalty == 0);
    CHECK(s->frequency_penalty == 0 && s->top_k == 0 && s->penalty_last_n == 64 && s->seed == UINT64_MAX);
    CHECK_INT(read_message("\x85\xa2op\x06\xa7request\x02\xa5owner\x00\xa7session\xa1" "a\xabnew_session\xa1" "b", 45, &c),
              LLM_OK);
    CHECK(c.at == UINT32_MAX && !c.is_on);
}

static void the_short_commands_are_understood(void)
{
    wire_command c;
    CHECK_INT(read_message(cancel_message, sizeof cancel_message - 1, &c), LLM_OK);
    CHECK(c.op == LLM_COMMAND_CANCEL && c.request == 300);
    CHECK_INT(read_message(reset_message, sizeof reset_message - 1, &c), LLM_OK);
    CHECK(c.op == LLM_COMMAND_RESET && c.request == 65536 && c.session.owner == 1 && c.session.bytes[0] == 'a');
    CHECK_INT(read_message(close_message, sizeof close_message - 1, &c), LLM_OK);
    CHECK(c.op == LLM_COMMAND_CLOSE && c.request == UINT64_C(1) << 32 && c.session.n_bytes == 1);
    CHECK_INT(read_message(pause_message, sizeof pause_message - 1, &c), LLM_OK);
    CHECK(c.op == LLM_COMMAND_PAUSE && c.request == 1 && c.is_on);
    CHECK_INT(read_message(fork_message, sizeof fork_message - 1, &c), LLM_OK);
    CHECK(c.op == LLM_COMMAND_FORK && c.session.bytes[0] == 'a' && c.other.bytes[0] == 'b' && c.at == 1000 && c.is_on);
    CHECK_INT(read_message(pin_message, sizeof pin_message - 1, &c), LLM_OK);
    CHECK(c.op == LLM_COMMAND_PIN && c.session.bytes[0] == 'a' && c.is_on);
    CHECK_INT(read_message(save_message, sizeof save_message - 1, &c), LLM_OK);
    CHECK(c.op == LLM_COMMAND_SAVE && c.session.bytes[0] == 'a' && c.other.n_bytes == 1 && c.other.bytes[0] == 'b');
    CHECK_INT(read_message(unsave_message, sizeof unsave_message - 1, &c), LLM_OK);
    CHECK(c.op == LLM_COMMAND_UNSAVE && c.session.n_bytes == 0 && c.other.n_bytes == 1 && c.other.bytes[0] == 'a');
}

/* ---- malformed as a whole ---- */

static void every_cut_message_is_refused(void)
{
    for (size_t m = 0; m < N_MESSAGES; m++) {
        wire_command c;
        for (size_t n = 0; n < messages[m].message.n; n++) {
            CHECK_INT(read_exact(messages[m].message.at, n, &c, NULL), LLM_INVALID);
        }
        CHECK_INT(read_exact(messages[m].message.at, messages[m].message.n, &c, NULL), LLM_OK);
    }
}

static void bytes_after_a_message_are_refused(void)
{
    for (size_t m = 0; m < N_MESSAGES; m++) {
        uint8_t longer[512];
        wire_command c;
        wire_refusal refused = {"left over"};
        memcpy(longer, messages[m].message.at, messages[m].message.n);
        longer[messages[m].message.n] = 0xc0;
        CHECK_INT(read_exact(longer, messages[m].message.n + 1, &c, &refused), LLM_INVALID);
        CHECK_STR(refused.field, "");
    }
}

/* With another op or another number of entries, the message is another valid command, or is refused. */
static void shapes_and_ops_must_agree(void)
{
    for (size_t m = 0; m < N_MESSAGES; m++) {
        int accepted = 0;
        for (unsigned head = 0; head < 65536; head++) {
            uint8_t changed[512];
            wire_command c;
            memcpy(changed, messages[m].message.at, messages[m].message.n);
            changed[0] = (uint8_t)(head >> 8);
            changed[OP_AT] = (uint8_t)head;
            accepted += read_exact(changed, messages[m].message.n, &c, NULL) == LLM_OK;
        }
        CHECK_INT(accepted, messages[m].n_alike);
    }
}

static void the_op_comes_first(void)
{
    static const struct {
        bytes message;
        const char *refused;
    } rows[] = {
        {BYTES("\x80"), ""},
        {BYTES("\x90"), ""},
        {BYTES("\x92\x02\x01"), ""},
        {BYTES("\xc0"), ""},
        {BYTES("\x81\xa2op\x02"), "request"},
        {BYTES("\x82\xa7request\x01\xa2op\x02"), "request"},
        {BYTES("\x82\xa2op\x00\xa7request\x01"), "op"},
        {BYTES("\x82\xa2op\x0d\xa7request\x01"), "op"},
        {BYTES("\x82\xa2op\xa6" "CANCEL\xa7request\x01"), "op"},
        {BYTES("\x83\xa2op\x02\xa7request\x01\xa2op\x02"), "op"},
        {BYTES("\x82\xa2op\x02\x05\x01"), ""},         /* a name that is not a string */
        {BYTES("\x82\xa2op\x02\xa2\xc3\xa9\x01"), ""}, /* a name that is not ASCII */
        {BYTES("\x82\xa2op\x02\xa7" "Request\x01"), "Request"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        wire_command c;
        wire_refusal refused = {"left over"};
        CHECK_INT(read_exact(rows[i].message.at, rows[i].message.n, &c, &refused), LLM_INVALID);
        CHECK_STR(refused.field, rows[i].refused);
    }
}

/* ---- entry by entry ---- */

/* A value for each field that is valid in all commands that have the field. */
static const struct {
    const char *name;
    bytes value;
} good[] = {
    {"request", BYTES("\x07")},       {"owner", BYTES("\x03")},        {"session", BYTES("\xa1s")},
    {"prompt", BYTES("\xc4\x04\x01\x00\x00\x00")},                     {"max_tokens", BYTES("\x09")},
    {"sampling", BYTES("\x80")},      {"logit_bias", BYTES("\xc4\x00")}, {"stop", BYTES("\x90")},
    {"flags", BYTES("\x00")},         {"boundaries", BYTES("\xc4\x00")}, {"parent", BYTES("\xa0")},
    {"n_head", BYTES("\x00")},        {"n_logprobs", BYTES("\xff")},   {"after", BYTES("\x00")},
    {"paused", BYTES("\xc2")},        {"new_session", BYTES("\xa1n")}, {"at", BYTES("\x00")},
    {"replace", BYTES("\xc3")},       {"pinned", BYTES("\xc3")},       {"label", BYTES("\xa1l")},
    {"stop_tokens", BYTES("\xc4\x00")}, {"min_tokens", BYTES("\x00")}, {"constraint", BYTES("\xc4\x00")},
    {"dry_sequence_breakers", BYTES("\x90")}, {"n_answer_stops", BYTES("\x00")},
};

enum { N_GOOD = sizeof good / sizeof good[0] };
_Static_assert((int)N_GOOD == (int)WIRE_FIELDS, "one of each");

static bytes good_value(const char *name)
{
    for (size_t i = 0; i < N_GOOD; i++) {
        if (strcmp(good[i].name, name) == 0) {
            return good[i].value;
        }
    }
    return (bytes){"\xc0", 1};
}

static void put(wire_writer *w, const char *name, bytes value)
{
    wire_write_str(w, name, strlen(name));
    memcpy(w->at, value.at, value.n);
    w->at += value.n;
}

/* Describes how a command differs from a command with each of its entries once. */
typedef struct twist {
    const char *without; /* NULL: none; likewise: */
    const char *with;    /* a further entry */
    const char *replaced;
    bytes value;
    uint32_t rotated; /* this number of entries move from the beginning to the end */
} twist;

static int read_twisted(int op, const twist *t, wire_command *out, wire_refusal *refused)
{
    static uint8_t message[70000];
    const char *names[WIRE_FIELDS + 1];
    uint32_t n = 0;
    llm_field f;
    for (int i = 0; llm_command_field(op, i, &f) == LLM_OK; i++) {
        if (t->without == NULL || strcmp(f.name, t->without) != 0) {
            names[n++] = f.name;
        }
    }
    if (t->with != NULL) {
        names[n++] = t->with;
    }
    wire_writer w = wire_writer_open(message, sizeof message);
    wire_write_map(&w, 1 + n);
    put(&w, "op", (bytes){&(char){(char)op}, 1});
    for (uint32_t i = 0; i < n; i++) {
        const char *name = names[(i + t->rotated) % n];
        put(&w, name, t->replaced != NULL && strcmp(name, t->replaced) == 0 ? t->value : good_value(name));
    }
    return read_exact(message, wire_size(&w), out, refused);
}

static void entries_come_in_any_order(void)
{
    for (int op = 1; op < LLM_COMMAND_END; op++) {
        for (uint32_t rotated = 0; rotated < WIRE_FIELDS; rotated++) {
            wire_command c;
            CHECK_INT(read_twisted(op, &(twist){.rotated = rotated}, &c, NULL), LLM_OK);
            CHECK(c.op == (llm_command_op)op && c.request == 7);
        }
    }
}

static void what_is_needed_must_be_there_and_the_rest_may(void)
{
    for (int op = 1; op < LLM_COMMAND_END; op++) {
        llm_field f;
        for (int i = 0; llm_command_field(op, i, &f) == LLM_OK; i++) {
            wire_command c;
            wire_refusal refused = {""};
            const int status = read_twisted(op, &(twist){.without = f.name}, &c, &refused);
            CHECK_INT(status, f.is_needed ? LLM_INVALID : LLM_OK);
            CHECK_STR(refused.field, f.is_needed ? f.name : "");
        }
    }
}

static bool has_field(int op, const char *name)
{
    llm_field f;
    for (int i = 0; llm_command_field(op, i, &f) == LLM_OK; i++) {
        if (strcmp(f.name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* A duplicate entry, an entry of another command, or an unknown entry is refused. */
static void nothing_is_doubled_or_unknown(void)
{
    uint32_t n_doubled = 0;
    for (int op = 1; op < LLM_COMMAND_END; op++) {
        for (size_t i = 0; i <= N_GOOD; i++) {
            wire_command c;
            wire_refusal refused;
            const char *name = i < N_GOOD ? good[i].name : "color";
            CHECK_INT(read_twisted(op, &(twist){.with = name}, &c, &refused), LLM_INVALID);
            CHECK_STR(refused.field, name);
            n_doubled += has_field(op, name);
        }
    }
    CHECK_INT(n_doubled, 19 + 1 + 3 + 3 + 2 + 6 + 3 + 4 + 4 + 4 + 4 + 3);
}

static void every_value_is_checked(void)
{
    static const struct {
        const char *name;
        bytes value;
        int status;
    } rows[] = {
        {"request", BYTES("\x00"), LLM_INVALID}, {"request", BYTES("\xff"), LLM_INVALID},
        {"request", BYTES("\xc0"), LLM_INVALID}, {"request", BYTES("\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00"), LLM_INVALID},
        {"request", BYTES("\xcf\xff\xff\xff\xff\xff\xff\xff\xff"), LLM_OK},
        {"owner", BYTES("\xce\xff\xff\xff\xff"), LLM_OK},
        {"owner", BYTES("\xcf\x00\x00\x00\x01\x00\x00\x00\x00"), LLM_INVALID},
        {"session", BYTES("\xa0"), LLM_OK}, {"session", BYTES("\xa3" "a b"), LLM_INVALID},
        {"session", BYTES("\xa2" "a\x7f"), LLM_INVALID}, {"session", BYTES("\xa2\xc3\xa9"), LLM_INVALID},
        {"session", BYTES("\xa1\x00"), LLM_INVALID}, {"session", BYTES("\xc4\x01s"), LLM_INVALID},
        {"session", BYTES("\xc0"), LLM_INVALID}, {"session", BYTES("\xa2!~"), LLM_OK},
        {"prompt", BYTES("\xc4\x00"), LLM_INVALID}, {"prompt", BYTES("\xc4\x05\x01\x00\x00\x00\x00"), LLM_INVALID},
        {"prompt", BYTES("\xc5\x00\x04\x01\x00\x00\x00"), LLM_OK},
        {"prompt", BYTES("\xc6\x00\x00\x00\x04\x01\x00\x00\x00"), LLM_OK},
        {"prompt", BYTES("\xa4\x01\x00\x00\x00"), LLM_INVALID}, {"prompt", BYTES("\x91\x01"), LLM_INVALID},
        {"prompt", BYTES("\xc6\xff\xff\xff\xfc\x01\x00\x00\x00"), LLM_INVALID},
        {"prompt", BYTES("\xd6\x01\x01\x00\x00\x00"), LLM_INVALID}, /* an ext value */
        {"max_tokens", BYTES("\xff"), LLM_INVALID}, {"max_tokens", BYTES("\xce\xff\xff\xff\xff"), LLM_OK},
        {"sampling", BYTES("\x90"), LLM_INVALID}, {"sampling", BYTES("\xc0"), LLM_INVALID},
        {"sampling", BYTES("\xde\x00\x00"), LLM_OK}, {"sampling", BYTES("\xdf\xff\xff\xff\xff"), LLM_INVALID},
        {"logit_bias", BYTES("\xc4\x08\x01\x00\x00\x00\x00\x00\x80\x3f"), LLM_OK},
        {"logit_bias", BYTES("\xc4\x04\x01\x00\x00\x00"), LLM_INVALID}, {"logit_bias", BYTES("\xc0"), LLM_INVALID},
        {"logit_bias", BYTES("\xc4\x08\x01\x00\x00\x00\x00\x00\xc0\x7f"), LLM_INVALID}, /* NaN */
        {"logit_bias", BYTES("\xc4\x08\x01\x00\x00\x00\x00\x00\x80\xff"), LLM_INVALID}, /* -infinity */
        {"stop", BYTES("\x91\xa1x"), LLM_OK}, {"stop", BYTES("\x91\xa0"), LLM_INVALID},
        {"stop", BYTES("\xa1x"), LLM_INVALID}, {"stop", BYTES("\x91\xa1\xff"), LLM_INVALID},
        {"stop", BYTES("\x91\x91\xa1x"), LLM_INVALID}, {"stop", BYTES("\xc0"), LLM_INVALID},
        {"stop", BYTES("\x91\xc4\x01x"), LLM_INVALID}, {"stop", BYTES("\x91\xc0"), LLM_INVALID},
        {"flags", BYTES("\x1f"), LLM_OK}, {"flags", BYTES("\x20"), LLM_INVALID}, {"flags", BYTES("\xff"), LLM_INVALID},
        {"stop_tokens", BYTES("\xc4\x04\x01\x00\x00\x00"), LLM_OK},
        {"stop_tokens", BYTES("\xc4\x03\x01\x00\x00"), LLM_INVALID}, {"stop_tokens", BYTES("\xc0"), LLM_INVALID},
        {"min_tokens", BYTES("\xff"), LLM_INVALID}, {"min_tokens", BYTES("\xce\xff\xff\xff\xff"), LLM_OK},
        {"constraint", BYTES("\xc4\x02{}"), LLM_OK}, {"constraint", BYTES("\xa2{}"), LLM_INVALID},
        {"dry_sequence_breakers", BYTES("\x91\xa1x"), LLM_OK}, {"dry_sequence_breakers", BYTES("\x91\x01"), LLM_INVALID},
        {"boundaries", BYTES("\xc4\x04\x01\x00\x00\x00"), LLM_OK},
        {"boundaries", BYTES("\xc4\x04\x02\x00\x00\x00"), LLM_INVALID}, /* larger than the prompt */
        {"boundaries", BYTES("\xc4\x04\x00\x00\x00\x00"), LLM_INVALID},
        {"boundaries", BYTES("\xc4\x04\xff\xff\xff\xff"), LLM_INVALID},
        {"boundaries", BYTES("\xc4\x08\x01\x00\x00\x00\x01\x00\x00\x00"), LLM_INVALID},
        {"boundaries", BYTES("\xc4\x03\x01\x00\x00"), LLM_INVALID},
        {"parent", BYTES("\xa1p"), LLM_OK}, {"parent", BYTES("\xa1 "), LLM_INVALID},
        {"n_head", BYTES("\x01"), LLM_OK}, {"n_head", BYTES("\x02"), LLM_INVALID}, /* larger than the prompt */
        {"n_head", BYTES("\xff"), LLM_INVALID}, {"n_head", BYTES("\xc0"), LLM_INVALID},
        {"n_logprobs", BYTES("\x14"), LLM_OK}, {"n_logprobs", BYTES("\x15"), LLM_INVALID},
        {"n_logprobs", BYTES("\xfe"), LLM_INVALID}, {"n_logprobs", BYTES("\xc3"), LLM_INVALID},
        {"after", BYTES("\x06"), LLM_OK}, {"after", BYTES("\x07"), LLM_INVALID}, /* the request itself */
        {"after", BYTES("\xff"), LLM_INVALID},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        wire_command c;
        wire_refusal refused = {""};
        const twist t = {.replaced = rows[i].name, .value = rows[i].value};
        const int status = read_twisted(LLM_COMMAND_GENERATE, &t, &c, &refused);
        if (status != rows[i].status) {
            printf("row %zu, %s\n", i, rows[i].name);
        }
        CHECK_INT(status, rows[i].status);
        CHECK_STR(refused.field, status == LLM_OK ? "" : rows[i].name);
    }
}

static void commands_about_a_session_need_its_name(void)
{
    static const char *const names[] = {"session", "new_session", "label"};
    for (int op = 1; op < LLM_COMMAND_END; op++) {
        for (size_t i = 0; i < 3; i++) {
            wire_command c;
            const twist t = {.replaced = names[i], .value = BYTES("\xa0")};
            if (has_field(op, names[i])) {
                CHECK_INT(read_twisted(op, &t, &c, NULL), op == LLM_COMMAND_GENERATE ? LLM_OK : LLM_INVALID);
            }
        }
    }
    wire_command c;
    CHECK_INT(read_twisted(LLM_COMMAND_PAUSE, &(twist){.replaced = "paused", .value = BYTES("\x01")}, &c, NULL),
              LLM_INVALID); /* 1 is not accepted as true */
}

/* Reads a command in which the value is a string or bin of n bytes, or an array of n one-byte strings. */
static int read_with_length(const char *name, char kind, size_t n)
{
    static uint8_t payload[20000], encoded[20010];
    memset(payload, kind == 'b' ? 0 : 'x', sizeof payload);
    wire_writer w = wire_writer_open(encoded, sizeof encoded);
    if (kind == 'a') {
        wire_write_array(&w, (uint32_t)n);
        for (size_t i = 0; i < n; i++) {
            wire_write_str(&w, "x", 1);
        }
    } else if (kind == 'b') {
        wire_write_bin(&w, payload, n);
    } else {
        if (strcmp(name, "stop") == 0) {
            wire_write_array(&w, 1);
        }
        wire_write_str(&w, (const char *)payload, n);
    }
    wire_command c;
    const twist t = {.replaced = name, .value = {(const char *)encoded, wire_size(&w)}};
    return read_twisted(LLM_COMMAND_GENERATE, &t, &c, NULL);
}

static void lengths_are_limited(void)
{
    CHECK_INT(read_with_length("session", 's', LLM_SESSION_NAME_BYTES_MAX), LLM_OK);
    CHECK_INT(read_with_length("session", 's', LLM_SESSION_NAME_BYTES_MAX + 1), LLM_INVALID);
    CHECK_INT(read_with_length("stop", 's', LLM_STOP_BYTES_MAX), LLM_OK);
    CHECK_INT(read_with_length("stop", 's', LLM_STOP_BYTES_MAX + 1), LLM_INVALID);
    CHECK_INT(read_with_length("stop", 'a', LLM_STOPS_MAX), LLM_OK);
    CHECK_INT(read_with_length("stop", 'a', LLM_STOPS_MAX + 1), LLM_INVALID);
    CHECK_INT(read_with_length("logit_bias", 'b', 8 * LLM_LOGIT_BIASES_MAX), LLM_OK);
    CHECK_INT(read_with_length("logit_bias", 'b', 8 * LLM_LOGIT_BIASES_MAX + 8), LLM_INVALID);
    CHECK_INT(read_with_length("prompt", 'b', 16000), LLM_OK);
}

/* ---- sampling ---- */

static int read_sampling(const void *map, size_t n, wire_command *out, wire_refusal *refused)
{
    const twist t = {.replaced = "sampling", .value = {map, n}};
    return read_twisted(LLM_COMMAND_GENERATE, &t, out, refused);
}

/* Reads a command with one sampling parameter, as a float or as an integer. */
static int read_parameter(const char *name, bool is_float, double value, wire_refusal *refused)
{
    uint8_t map[64];
    wire_command c;
    wire_writer w = wire_writer_open(map, sizeof map);
    wire_write_map(&w, 1);
    wire_write_str(&w, name, strlen(name));
    if (is_float) {
        wire_write_float(&w, value);
    } else {
        wire_write_int(&w, (int64_t)value);
    }
    return read_sampling(map, wire_size(&w), &c, refused);
}

/* Tests each parameter of the table at the ends of its range, and beyond them. */
static void parameters_have_ranges(void)
{
    llm_field f;
    int i = 0;
    for (; llm_sampling_field(i, &f) == LLM_OK; i++) {
        const bool is_float = f.type == LLM_FIELD_FLOAT;
        const double step = is_float ? 0.0001 : 1;
        char path[64];
        snprintf(path, sizeof path, "sampling.%s", f.name);
        wire_refusal refused = {""};
        CHECK_INT(read_parameter(f.name, is_float, f.least, &refused), LLM_OK);
        CHECK_INT(read_parameter(f.name, is_float, f.least - step, &refused), LLM_INVALID);
        CHECK_STR(refused.field, path);
        if (f.most < (double)INT64_MAX) {
            CHECK_INT(read_parameter(f.name, is_float, f.most, &refused), LLM_OK);
            CHECK_INT(read_parameter(f.name, is_float, f.most + step, &refused), LLM_INVALID);
        }
        CHECK_INT(read_parameter(f.name, true, NAN, &refused), LLM_INVALID);
        CHECK_INT(read_parameter(f.name, true, INFINITY, &refused), LLM_INVALID);
        const double whole = f.most < 1 ? 0 : 1; /* a float is not accepted as an integer */
        CHECK_INT(read_parameter(f.name, true, whole, &refused), is_float ? LLM_OK : LLM_INVALID);
        CHECK_INT(f.is_needed, 0);
        CHECK((f.otherwise >= f.least && f.otherwise <= f.most));
    }
    CHECK_INT(i, WIRE_PARAMETERS);
    CHECK_INT(llm_sampling_field(-1, &f), LLM_NOT_FOUND);
}

static void sampling_is_as_strict(void)
{
    static const struct {
        bytes map;
        int status;
        const char *refused;
    } rows[] = {
        {BYTES("\x82\xa5top_k\x01\xa5min_p\x00"), LLM_OK, ""},
        {BYTES("\x82\xa5top_k\x01\xa5top_k\x01"), LLM_INVALID, "sampling.top_k"},
        {BYTES("\x81\xa5top_q\x01"), LLM_INVALID, "sampling.top_q"},
        {BYTES("\x81\xa5top_p\xc0"), LLM_INVALID, "sampling.top_p"},
        {BYTES("\x81\xa5top_p\xa1" "1"), LLM_INVALID, "sampling.top_p"},
        {BYTES("\x81\xa5top_p\xca\x3f\x00\x00\x00"), LLM_OK, ""},
        {BYTES("\x81\xabtemperature\xcb\x7f\xef\xff\xff\xff\xff\xff\xff"), LLM_INVALID, "sampling.temperature"},
        {BYTES("\x81\xa4seed\xcf\xff\xff\xff\xff\xff\xff\xff\xff"), LLM_OK, ""},
        {BYTES("\x81\xa4seed\xc2"), LLM_INVALID, "sampling.seed"},
        {BYTES("\x81\x01\x01"), LLM_INVALID, "sampling"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        wire_command c;
        wire_refusal refused = {""};
        CHECK_INT(read_sampling(rows[i].map.at, rows[i].map.n, &c, &refused), rows[i].status);
        CHECK_STR(refused.field, rows[i].refused);
    }
}

/* ---- the tables ---- */

static void the_tables_end(void)
{
    llm_field f;
    CHECK_INT(llm_command_field(0, 0, &f), LLM_NOT_FOUND);
    CHECK_INT(llm_command_field(LLM_COMMAND_END, 0, &f), LLM_NOT_FOUND);
    CHECK_INT(llm_command_field(LLM_COMMAND_CANCEL, 1, &f), LLM_NOT_FOUND);
    CHECK_INT(llm_command_field(LLM_COMMAND_CANCEL, -1, &f), LLM_NOT_FOUND);
    CHECK_STR(llm_event_member(LLM_EVENT_TEXT, 6), "likeliest");
    CHECK(llm_event_member(LLM_EVENT_TEXT, 7) == NULL && llm_event_member(LLM_EVENT_TEXT, -1) == NULL);
    CHECK(llm_event_member(0, 0) == NULL && llm_event_member(99, 0) == NULL);
}

/* clang-format on */

int main(void)
{
    RUN(a_generate_is_understood);
    RUN(what_is_left_out_has_its_default);
    RUN(the_short_commands_are_understood);
    RUN(every_cut_message_is_refused);
    RUN(bytes_after_a_message_are_refused);
    RUN(shapes_and_ops_must_agree);
    RUN(the_op_comes_first);
    RUN(entries_come_in_any_order);
    RUN(what_is_needed_must_be_there_and_the_rest_may);
    RUN(nothing_is_doubled_or_unknown);
    RUN(every_value_is_checked);
    RUN(commands_about_a_session_need_its_name);
    RUN(lengths_are_limited);
    RUN(parameters_have_ranges);
    RUN(sampling_is_as_strict);
    RUN(the_tables_end);
    return CHECK_RESULT();
}
