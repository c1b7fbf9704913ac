/* picking: what it costs to pick a token from a large vocabulary.
 *
 *   picking VOCABULARY N_TOKENS          VOCABULARY is "made", or a file with a token in base64 at the begin of each line
 *
 * Prints one line per case: what,case,sampling,p50_us,p99_us,max_us, processor time of the thread that picks. The logits are
 * random: what a form forbids is nearly always wanted, which is the worst case. The first token of each answer, where its
 * form is read, has a line of its own. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model/model.h"
#include "text/constraint/constraint_make.h"
#include "text/sampling/logprobs.h"
#include "text/sampling/sampler.h"

enum {
    N_VOCAB = 151936,
    N_CONTROL = 293,
    WORD_BYTES_MAX = 128,
    ANSWER_TOKENS = 150, /* before another answer of the same form begins */
    N_NUMBERS = 1 << 20, /* logits are a part of these, from a random place on */
    N_LIKELIEST = 20,
    FILE_BYTES_MAX = 64 << 20,
};

static const float SPREAD = 2.5f; /* standard deviation of the logits */

static void die(const char *what)
{
    fprintf(stderr, "picking: %s\n", what);
    exit(1);
}

static uint64_t random_state = 88172645463325252u;

static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* ---- a model that is only a vocabulary ---- */

static char words[N_VOCAB][WORD_BYTES_MAX];
static uint8_t word_bytes[N_VOCAB];

static bool is_control(const model *m, int32_t token)
{
    (void)m;
    return token >= N_VOCAB - N_CONTROL;
}

static bool is_end(const model *m, int32_t token)
{
    (void)m;
    return token == N_VOCAB - 1;
}

static int32_t piece(const model *m, int32_t token, bool special, char *out, size_t n_bytes)
{
    (void)special;
    const size_t n = is_control(m, token) ? 0 : word_bytes[token];
    memcpy(out, words[token], n < n_bytes ? n : n_bytes);
    return (int32_t)n;
}

static const model_ops vocabulary_ops = {.piece = piece, .is_end = is_end, .is_control = is_control};
static model vocabulary = {.ops = &vocabulary_ops, .info = {.n_vocab = N_VOCAB, .n_ctx = 4096}};

static void add_word(uint32_t token, const char *text, size_t n_bytes)
{
    n_bytes = n_bytes < WORD_BYTES_MAX ? n_bytes : WORD_BYTES_MAX;
    memcpy(words[token], text, n_bytes);
    word_bytes[token] = (uint8_t)n_bytes;
}

/* Some of the parts, one behind the other. */
static size_t joined(char *out, const char *const *parts, size_t n_parts, uint64_t n)
{
    size_t n_bytes = 0;
    for (; n > 0; n--) {
        const char *part = parts[random_next() % n_parts];
        memcpy(out + n_bytes, part, strlen(part));
        n_bytes += strlen(part);
    }
    return n_bytes;
}

/* As those that are learnt from text: bytes, words, words of other scripts, and signs as they are in code. */
static void make_words(void)
{
    static const char *const syllables[] = {
        "a",  "e",  "in", "th", "er", "on", "re", "st",  "ing", "tion", "able", "con", "pro", "un",   "de", "ma",
        "lo", "ti", "se", "x",  "ly", "io", "ch", "us",  "ra",  "get",  "set",  "Da",  "ta",  "Name", "_",  "é",
        "ö",  "ck", "ß",  "w",  "qu", "y",  "ou", "ent", "A",   "Be",   "Ch",   "Re",  "St",  "Un",   "f",  "v",
    };
    static const char *const others[] = {"中", "文", "的", "不", "是", "人", "在", "は", "の", "ン", "ー",
                                         "н",  "ов", "ст", "ен", "ра", "и",  "ת",  "ה",  "ال", "م",  "한",
                                         "국", "어", "α",  "ς",  "ไ",  "ท",  "😀", "，", "。"};
    static const char *const signs[] = {
        "\"", "'", "(", ")", "{", "}",  "[",  "]",  ";", ":", ",", ".",
        "=",  "-", ">", "<", "/", "\\", "\n", "\t", " ", "*", "#",
    };
    for (uint32_t token = 0; token < N_VOCAB - N_CONTROL; token++) {
        char word[WORD_BYTES_MAX] = {(char)token};
        size_t n = token < 256;
        const uint64_t kind = random_next() % 100;
        if (token >= 256 && kind % 2 == 0) {
            word[n++] = ' ';
        }
        if (token >= 256 && kind < 60) {
            n += joined(word + n, syllables, sizeof syllables / sizeof *syllables, 1 + random_next() % 4);
        } else if (token >= 256 && kind < 94) {
            n += joined(word + n, others, sizeof others / sizeof *others, 1 + random_next() % 4);
            n -= kind == 93; /* in the middle of a character */
        } else if (token >= 256) {
            n += joined(word + n, signs, sizeof signs / sizeof *signs, 1 + random_next() % 5);
        }
        add_word(token, word, n);
    }
}

static size_t decode_base64(const char *text, char *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0, n_bits = 0;
    size_t n = 0;
    for (const char *digit; *text != '\0' && (digit = strchr(digits, *text)) != NULL && n < WORD_BYTES_MAX; text++) {
        bits = bits << 6 | (uint32_t)(digit - digits);
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            out[n++] = (char)(bits >> n_bits);
        }
    }
    return n;
}

static void read_words(const char *path)
{
    FILE *file = fopen(path, "r");
    char line[512];
    if (file == NULL) {
        die("there is no such vocabulary");
    }
    for (uint32_t token = 0; token < N_VOCAB - N_CONTROL && fgets(line, sizeof line, file) != NULL; token++) {
        char word[WORD_BYTES_MAX];
        add_word(token, word, decode_base64(line, word));
    }
    fclose(file);
}

/* ---- logits ---- */

static float numbers[N_NUMBERS + N_VOCAB];
static float logits[N_VOCAB];

static void make_numbers(void)
{
    for (uint32_t i = 0; i < N_NUMBERS + N_VOCAB; i++) {
        const double radius = sqrt(-2 * log((double)(1 + random_next() % 1000000) / 1000001));
        numbers[i] = SPREAD * (float)(radius * cos((double)(random_next() % 1000000) * 6.283185307e-6));
    }
}

static void make_logits(void)
{
    memcpy(logits, numbers + random_next() % N_NUMBERS, sizeof logits);
}

/* ---- times ---- */

typedef struct times {
    size_t n;
    double *us;
} times;

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int in_order(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_times(const char *what, const char *name, const char *sampling, times *t)
{
    qsort(t->us, t->n, sizeof *t->us, in_order);
    printf("%s,%s,%s,%.0f,%.0f,%.0f\n", what, name, sampling, t->us[t->n / 2], t->us[t->n * 99 / 100], t->us[t->n - 1]);
    fflush(stdout);
}

/* ---- ways to pick ---- */

typedef struct way {
    const char *name;
    llm_sampling sampling;
    bool has_logprobs;
} way;

static const way ways[] = {
    {"greedy", {.top_p = 1}, false},
    {"default", {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f}, false},
    {"plain", {.temperature = 1, .top_p = 1}, false},
    {"min_p", {.temperature = 1, .top_p = 1, .min_p = 0.05f}, false},
    {"top_p", {.temperature = 1, .top_p = 0.95f}, false},
    {"penalties",
     {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .presence_penalty = 0.5f, .penalty_last_n = 64},
     false},
    {"logprobs", {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f}, true},
};

static sampler *opened(const way *w, const llm_document *form, uint64_t seed)
{
    sampler *s = NULL;
    sampler_options options = {.sampling = w->sampling, .constraint = form->text, .n_constraint_bytes = form->n_bytes};
    options.sampling.seed = seed;
    options.sampling.typical_p = 1;
    options.sampling.repeat_penalty = 1;
    if (sampler_open(&vocabulary, &options, &s) != LLM_OK) {
        die("no sampler");
    }
    return s;
}

/* ---- forms ---- */

static const struct {
    const char *name, *kind, *text;
} forms[] = {
    {"json_object", "json", ""},
    {"schema", "json_schema",
     "{'type':'object','properties':{'name':{'type':'string'},'age':{'type':'integer'},'tags':{'type':'array','items':"
     "{'type':'string'}},'kind':{'enum':['red','green','blue']}},'required':['name','age','tags','kind'],"
     "'additionalProperties':false}"},
    {"nasty schema", "json_schema",
     "{'type':'object','$defs':{'node':{'type':'object','properties':{'id':{'type':'string','format':'uuid'},'label':"
     "{'type':'string','maxLength':200},'at':{'type':'string','format':'date-time'},'children':{'type':'array','items':"
     "{'$ref':'#/$defs/node'}}},'required':['id','label','at'],'additionalProperties':false},'state':{'enum':['open',"
     "'opened','opening','closed','closing','close','pending','paused','part','partial','partially','new','newer',"
     "'newest','none','null','Zürich','中文','a b','a  b','a,b','1','12','123','1234','true','false','x','xy','xyz']}},"
     "'properties':{'code':{'type':'string','pattern':'^[A-Z]{2,4}-(?:[0-9a-f]{8}|[g-z]+)-[^\\\\s]{1,40}$'},'state':"
     "{'$ref':'#/$defs/state'},'states':{'type':'array','items':{'$ref':'#/$defs/"
     "state'},'maxItems':9},'value':{'anyOf':"
     "[{'type':'string','minLength':3,'maxLength':60},{'type':'number'},{'type':'boolean'},{'type':'null'},{'type':"
     "'array','items':{'type':'integer','minimum':-5,'maximum':12345}},{'$ref':'#/$defs/node'}]},'tree':{'$ref':"
     "'#/$defs/node'},'extra':{'type':'object','additionalProperties':{'type':'string'}},'map':{'type':'object',"
     "'properties':{'a':{'type':'string'},'ab':{'type':'string'},'abc':{'type':'string'},'b':{'type':'string'},'ba':"
     "{'type':'string'}}}},'required':['code','state','states','value','tree'],'additionalProperties':false}"},
    {"tool call", "grammar",
     "root ::= '<tool_call>\\n' call ('\\n</tool_call>\\n<tool_call>\\n' call)* '\\n</tool_call>'\n"
     "call ::= '{\\'name\\': \\'' (read | write | search) '}'\n"
     "read ::= 'read\\', \\'arguments\\': {\\'path\\': ' text (', \\'limit\\': ' number)? '}'\n"
     "write ::= 'write\\', \\'arguments\\': {\\'path\\': ' text ', \\'content\\': ' text '}'\n"
     "search ::= 'search\\', \\'arguments\\': {\\'pattern\\': ' text (', \\'all\\': ' ('true' | 'false'))? '}'\n"
     "text ::= '\\'' letter* '\\''\nnumber ::= '-'? ([0-9] | [1-9] [0-9]{1,15})\n"
     "letter ::= [^'\\\\\\x7F\\x00-\\x1F] | [\\\\] (['\\\\bfnrt] | 'u' [0-9a-fA-F]{4})"},
    {"GBNF", "grammar",
     "root ::= line+ '.'\nline ::= '- ' sum ' = ' number '\\n' note?\nsum ::= term (' ' [-+*/] ' ' term)*\n"
     "term ::= number | '(' sum ')' | name\nnumber ::= [0-9]+ ('.' [0-9]{1,3})?\nname ::= [a-zà-ÿ] [a-zà-ÿ0-9_]{0,30}\n"
     "note ::= '# ' [^\\n]* '\\n'"},
};

/* With ' for every ", as texts of texts are unreadable otherwise. */
static llm_document form_of(size_t i)
{
    llm_document form = {0};
    char request[8192], error[512] = "";
    int n = snprintf(request, sizeof request, "{\"kind\":\"%s\",\"text\":\"", forms[i].kind);
    for (const char *c = forms[i].text; *c != '\0'; c++) {
        const char byte = *c == '\'' ? '"' : *c;
        if (byte == '"' || byte == '\\' || byte == '\n') {
            request[n++] = '\\';
        }
        request[n++] = (char)(byte == '\n' ? 'n' : byte);
    }
    n += snprintf(request + n, sizeof request - (size_t)n, "\"}");
    if (constraint_make(&vocabulary, request, (size_t)n, &form, error, sizeof error) != LLM_OK) {
        die(error);
    }
    return form;
}

static void measure_form(size_t i, const way *w, size_t n_tokens)
{
    llm_document form = form_of(i);
    times first = {0, malloc(n_tokens * sizeof(double))}, next = {0, malloc(n_tokens * sizeof(double))};
    for (uint64_t seed = 1; next.n < n_tokens && first.n < n_tokens; seed++) {
        sampler *s = opened(w, &form, seed);
        int32_t token = -1;
        for (int k = 0; k < ANSWER_TOKENS && next.n < n_tokens && (k == 0 || !sampler_ends(s, token)); k++) {
            make_logits();
            const double begin_us = now_us();
            if (sampler_next(s, logits, &token) != LLM_OK) {
                die("an answer failed");
            }
            times *t = k == 0 ? &first : &next;
            t->us[t->n++] = now_us() - begin_us;
        }
        sampler_close(s);
    }
    print_times("form", forms[i].name, w->name, &next);
    print_times("first token of form", forms[i].name, w->name, &first);
    free(first.us);
    free(next.us);
    free(form.text);
}

/* ---- one stream without a form ---- */

static void measure_stream(const way *w, size_t n_tokens)
{
    static float raw[N_VOCAB];
    token_logprob likeliest[N_LIKELIEST];
    times t = {0, malloc(n_tokens * sizeof(double))};
    sampler *s = opened(w, &(llm_document){0}, 1);
    for (; t.n < n_tokens; t.n++) {
        int32_t token = -1;
        make_logits();
        const double begin_us = now_us();
        if (w->has_logprobs) {
            memcpy(raw, logits, sizeof raw);
        }
        if (sampler_next(s, logits, &token) != LLM_OK) {
            die("a stream failed");
        }
        if (w->has_logprobs) {
            (void)logprobs_read(raw, N_VOCAB, token, N_LIKELIEST, likeliest);
        }
        t.us[t.n] = now_us() - begin_us;
    }
    print_times("stream", "free", w->name, &t);
    sampler_close(s);
    free(t.us);
}

int main(int argc, char **argv)
{
    if (argc != 3 || atoi(argv[2]) <= 0) {
        fprintf(stderr, "usage: picking VOCABULARY N_TOKENS\n");
        return 2;
    }
    const size_t n_tokens = (size_t)atoi(argv[2]);
    if (strcmp(argv[1], "made") == 0) {
        make_words();
    } else {
        read_words(argv[1]);
    }
    make_numbers();
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        measure_form(i, &ways[0], n_tokens);
        measure_form(i, &ways[1], n_tokens);
    }
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        measure_stream(&ways[i], n_tokens);
    }
    return 0;
}
