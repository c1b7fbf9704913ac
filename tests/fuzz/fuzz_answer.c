/* fuzz_answer.c: what models write. The first byte of an input chooses the family of templates, the second whether one call
 * is the most, and where the answer is cut; the others are bytes, or name pieces of forms. However the answer is cut, the
 * parser reports the same. It also reports all digits 7 of the answer, which no form has, unless it drops a part of an
 * unfinished or malformed call. */
#include "../c/answer_fragments.h"
#include "../c/answer_transcript.h"
#include "../c/chat_families.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { ANSWER_MAX = 16384, N_FAMILIES = sizeof chat_families / sizeof chat_families[0] };

#define TOOLS                                                                                                          \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\","    \
    "\"properties\":{\"city\":{\"type\":\"string\"}},\"required\":[\"city\"]}}}]"
#define REQUEST(more) "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]," TOOLS more "}"

static const char *const requests[] = {REQUEST(""), REQUEST(",\"parallel_tool_calls\":false")};

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

static const answerer *opened(size_t family, bool calls_once)
{
    static answerer all[2][N_FAMILIES];
    answerer *a = &all[calls_once][family];
    if (a->chat == NULL) {
        require(answerer_open(a, chat_families[family].source));
        require(answerer_render(a, requests[calls_once]) == LLM_OK);
    }
    return a;
}

/* Bytes from 128 on name pieces: of any form, or what the family's models write. */
static size_t spell(const chat_family *f, const uint8_t *data, size_t n_bytes, char *out)
{
    const char *const own[] = {f->call, f->twice, f->thought, f->before_text, f->after_text, "7", "city\": \"7", "<"};
    enum { N_OWN = sizeof own / sizeof *own };
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        const char byte[2] = {(char)data[i], '\0'};
        const size_t named = data[i] & 127U;
        const char *text = data[i] < 128                        ? byte
                           : named < N_ANSWER_FRAGMENTS         ? answer_fragments[named]
                           : named - N_ANSWER_FRAGMENTS < N_OWN ? own[named - N_ANSWER_FRAGMENTS]
                                                                : byte;
        const size_t n_text = data[i] < 128 ? 1 : text == NULL ? 0 : strlen(text);
        if (n + n_text > ANSWER_MAX) {
            break;
        }
        memcpy(out + n, text == NULL ? "" : text, n_text);
        n += n_text;
    }
    return n;
}

static size_t sevens(const char *text, size_t n)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        found += text[i] == '7';
    }
    return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static char answer[ANSWER_MAX];
    if (n_bytes < 2) {
        return 0;
    }
    const size_t family = data[0] % N_FAMILIES;
    const bool calls_once = data[1] % 2 == 1;
    const answerer *a = opened(family, calls_once);
    const size_t n = spell(&chat_families[family], data + 2, n_bytes - 2, answer);
    transcript whole = transcript_of(&a->prompt, answer, n, n + 1, NULL);
    transcript cut = transcript_of(&a->prompt, answer, n, 1 + data[1] / 2, NULL);
    require(strcmp(whole.text, cut.text) == 0);
    require(whole.has_dropped == cut.has_dropped);
    require(whole.has_dropped || sevens(whole.text, whole.n) >= sevens(answer, n)); /* an escape may spell one more */
    require(!calls_once || strchr(whole.ids, ' ') == strrchr(whole.ids, ' '));
    require(whole.work <= 4096 + 200 * (uint64_t)n);
    free(whole.text);
    free(cut.text);
    return 0;
}
