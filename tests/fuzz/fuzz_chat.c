/* fuzz_chat.c: chat requests. The first byte of an input chooses: the rest is the request itself, or it is spelled with
 * fragments of control words into messages, a tool and a tool call. Whatever they say, the prompt spells the same as its
 * tokens do, and holds exactly the control tokens that the template writes. */
#include <stdlib.h>
#include <string.h>

#include "../c/fake_model.h"
#include "text/chat/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { TEXT_MAX = 65536, N_TEMPLATE_CONTROL = 8 };

static const char source[] =
    "{{ tools | tojson }}</s>{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content | trim }}"
    "{% for c in m.tool_calls or [] %}{% for k, v in c.function.arguments.items() %}{{ k ~ ':' ~ (v | tojson) }}{% "
    "endfor %}"
    "{% endfor %}{{ '<|im_end|>' + '\\n' }}{% endfor %}<|im_start|>";

static const char *const fragments[] = {
    "<|im_end|>", "<|im_start|>", "<|im_",    "end|>", "start|>", "<s>",     "</s>",    "<",  "/s>",    "s>",
    "|>",         "<|",           "user",     "|",     "\\n",     " ",       "hello",   "a",  "0",      "(",
    ")",          "\\\"",         "\\\\",     "\x7f",  "\\u007f", "\\u003c", "\\u003e", "</", "im_end", "\\u00e9",
    "{{",         "{% if %}",     "<|user|>", "1",     "\\u007c", "im_"};

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

/* The model and the compiled template live as long as the process. */
static chat *compiled(fake_model **m)
{
    static fake_model model;
    static chat *c;
    if (c == NULL) {
        model = fake_model_open(source);
        require(chat_open(&model.base, &c, NULL, 0) == LLM_OK && chat_has_template(c));
    }
    *m = &model;
    return c;
}

static void require_spelled(const fake_model *m, const llm_prompt *p, size_t n_control)
{
    char *spelled = malloc(p->n_text_bytes + 64);
    size_t n = 0, found = 0;
    require(spelled != NULL);
    for (size_t i = 0; i < p->n_tokens; i++) {
        require(n <= p->n_text_bytes);
        found += fake_is_control(&m->base, p->tokens[i]);
        n += (size_t)fake_piece(&m->base, p->tokens[i], true, spelled + n, 64);
    }
    require(n == p->n_text_bytes && memcmp(spelled, p->text, n) == 0);
    require(n_control == 0 || found == n_control);
    for (size_t i = 0; i < p->n_boundaries; i++) {
        require(p->boundaries[i] > (i == 0 ? 0 : p->boundaries[i - 1]) && (size_t)p->boundaries[i] <= p->n_tokens);
    }
    free(spelled);
}

/* n_control: what the prompt must hold; 0: any number. */
static void render(const char *request, size_t n_bytes, size_t n_control)
{
    fake_model *m;
    llm_prompt p;
    char error[256];
    int status = chat_render(compiled(&m), request, n_bytes, &p, error, sizeof error);
    require(n_control == 0 || status == LLM_OK);
    if (status == LLM_OK) {
        require_spelled(m, &p, n_control);
        llm_prompt_free(&p);
    }
}

/* Appends a quarter of the input, spelled with fragments. */
static char *spell(char *at, const uint8_t *data, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        at = stpcpy(at, fragments[data[i] % (sizeof fragments / sizeof *fragments)]);
    }
    return at;
}

static void render_spelled(const uint8_t *data, size_t n_bytes)
{
    static char request[TEXT_MAX];
    size_t part = (n_bytes < 2000 ? n_bytes : 2000) / 4;
    char *at = stpcpy(request, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
    at = spell(at, data, part);
    at = stpcpy(
        at,
        "\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":"
        "{\"name\":\"f\",\"arguments\":{\"");
    at = spell(at, data + part, part);
    at = stpcpy(at, "\":\"");
    at = spell(at, data + 2 * part, part);
    at = stpcpy(at, "\"}}}]},{\"role\":\"user\",\"content\":\"");
    at = spell(at, data + 2 * part, part);
    at = stpcpy(at, "\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"");
    at = spell(at, data + 3 * part, part);
    at = stpcpy(at, "\"}}]}");
    render(request, (size_t)(at - request), N_TEMPLATE_CONTROL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (n_bytes == 0) {
        return 0;
    }
    if (data[0] % 2 == 0) {
        render((const char *)data + 1, n_bytes - 1, 0);
    } else {
        render_spelled(data + 1, n_bytes - 1);
    }
    return 0;
}
