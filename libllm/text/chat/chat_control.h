/* chat_control.h: which bytes of a rendered chat may become control tokens, and its tokenization. Private to the chat
 * door. Immutable after opening: any thread.
 *
 * Two defences, since either alone has gaps. The template engine marks what came from messages, but loses the mark in
 * some of its functions (tojson, split, join, keys of objects). Hence each control word found in a message is also put
 * between markers before rendering. The markers pass through every function of the engine as ordinary text, are taken
 * out afterwards, and what stood between them stays text. (What is left open: a template that splits two strings of a
 * message and puts the pieces next to each other with nothing in between. None is known to do that.)
 */
#ifndef LLM_CHAT_CONTROL_H
#define LLM_CHAT_CONTROL_H

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/model.h"

/* A rendered chat. */
struct chat_text {
    std::string text;
    std::string blocked; /* per byte: nonzero may not be part of a control token */
};

struct chat_tokens {
    std::vector<int32_t> tokens;
    /* Places where the text can be cut without changing the tokens on either side, ascending: a byte offset and the
     * number of tokens before it. They lie at control tokens. */
    struct cut {
        size_t byte;
        size_t token;
    };
    std::vector<cut> cuts;
};

/* The texts of a model's control tokens. */
class control_words {
  public:
    explicit control_words(const model *m);

    /* Length of the longest word at text[at] (at < size), 0 for none; all lengths go to `lengths`, shortest first, if not NULL. */
    size_t longest_at(std::string_view text, size_t at, std::vector<size_t> *lengths = nullptr) const;

    /* The text from `at` to its end is the beginning of a word, but not a whole one. */
    bool is_begun_at(std::string_view text, size_t at) const;

    int32_t token_of(std::string_view word) const; /* -1: no word */
    size_t bytes_max() const
    {
        return longest;
    }

  private:
    struct word {
        std::string text;
        int32_t token;
    };
    bool narrow(std::string_view text, size_t at, size_t depth, size_t *low, size_t *high) const;

    std::vector<word> words; /* sorted by text */
    bool begins[256] = {};   /* some word begins with this byte: most do not get past this */
    size_t longest = 0;
};

/* The markers of one request: text that does not occur in it, as itself or escaped, or that its author cannot guess. */
class control_markers {
  public:
    /* `request`: the JSON that all marked text comes from. */
    control_markers(const control_words &words, std::string_view request);

    std::string wrap(std::string_view text) const; /* text of a message, ready for the template */

    /* Stands for the end of a message's text until it has been rendered; `unwrap` leaves it. */
    std::string sentinel(size_t i) const;

    /* Takes the markers out of rendered text and blocks what they enclose. `blocked` has one byte per byte of text. */
    void unwrap(chat_text *rendered) const;

  private:
    const control_words &words;
    std::string open, close, cut; /* equally long */
};

/* Tokens of rendered text, with BOS where the model wants it and the template has not written it. Throws
 * std::runtime_error if the model cannot tokenize it. */
chat_tokens chat_tokenize(const model *m, const control_words &words, bool adds_bos, const chat_text &rendered);

/* The text of one token, control tokens included; "" for what has none. */
std::string chat_token_text(const model *m, int32_t token);

/* Whether the model's tokenizer puts BOS in front by itself. */
bool chat_adds_bos(const model *m);

#endif
