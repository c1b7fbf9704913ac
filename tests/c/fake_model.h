/* fake_model.h: a model that has only a vocabulary and a template. The vocabulary has 256 bytes, one longer word, and
 * control tokens. For tests of code that uses only the model's operations on text. */
#ifndef FAKE_MODEL_H
#define FAKE_MODEL_H

#include <stdint.h>
#include <string.h>

#include "model/model.h"

enum {
    FAKE_BOS = 256,
    FAKE_EOS,
    FAKE_START,
    FAKE_END,
    FAKE_USER,
    FAKE_ASSISTANT,
    FAKE_WORD, /* "\nhello": an ordinary token whose text can begin in the template and end in a message */
    FAKE_VOCABULARY,
};

typedef struct fake_model {
    model base;
    const char *chat_template, *tool_template;
    bool adds_bos;
} fake_model;

static const char *const fake_words[] = {"<s>",      "</s>",          "<|im_start|>", "<|im_end|>",
                                         "<|user|>", "<|assistant|>", "\nhello"};

static bool fake_is_control(const model *m, int32_t token)
{
    (void)m;
    return token >= FAKE_BOS && token < FAKE_WORD;
}

static int64_t fake_tokenize(const model *m, const char *text, size_t n_bytes, bool add_special, bool parse_special,
                             int32_t *out, size_t n_out)
{
    size_t n = 0;
    if (add_special && ((const fake_model *)m)->adds_bos) {
        if (n < n_out) {
            out[n] = FAKE_BOS;
        }
        n++;
    }
    for (size_t at = 0; at < n_bytes;) {
        int32_t token = (unsigned char)text[at];
        size_t bytes = 1;
        for (int32_t t = FAKE_BOS; t <= FAKE_WORD; t++) {
            const char *word = fake_words[t - FAKE_BOS];
            if ((parse_special || !fake_is_control(m, t)) && n_bytes - at >= strlen(word) &&
                memcmp(text + at, word, strlen(word)) == 0) {
                token = t;
                bytes = strlen(word);
            }
        }
        if (n < n_out) {
            out[n] = token;
        }
        n++;
        at += bytes;
    }
    return n <= n_out ? (int64_t)n : -(int64_t)n;
}

static int32_t fake_piece(const model *m, int32_t token, bool special, char *out, size_t n_out)
{
    char byte = (char)token;
    const char *text = token >= FAKE_BOS ? fake_words[token - FAKE_BOS] : &byte;
    size_t n = token >= FAKE_BOS ? strlen(text) : 1;
    if (fake_is_control(m, token) && !special) {
        return 0;
    }
    if (n > n_out) {
        return -(int32_t)n;
    }
    memcpy(out, text, n);
    return (int32_t)n;
}

static bool fake_is_end(const model *m, int32_t token)
{
    (void)m;
    return token == FAKE_EOS || token == FAKE_END;
}

static const char *fake_template(const model *m)
{
    return ((const fake_model *)m)->chat_template;
}

static const char *fake_tool_template(const model *m)
{
    return ((const fake_model *)m)->tool_template;
}

static int32_t fake_bos(const model *m)
{
    (void)m;
    return FAKE_BOS;
}

static int32_t fake_eos(const model *m)
{
    (void)m;
    return FAKE_EOS;
}

static const model_ops fake_ops = {
    .tokenize = fake_tokenize,
    .piece = fake_piece,
    .is_end = fake_is_end,
    .is_control = fake_is_control,
    .chat_template = fake_template,
    .tool_template = fake_tool_template,
    .bos = fake_bos,
    .eos = fake_eos,
};

static inline fake_model fake_model_open(const char *chat_template)
{
    fake_model m;
    memset(&m, 0, sizeof m);
    m.base.ops = &fake_ops;
    m.base.info.n_vocab = FAKE_VOCABULARY;
    m.base.info.n_ctx = 4096;
    m.chat_template = chat_template;
    return m;
}

#endif
