/* chat_control.h: which bytes of a rendered chat may become control tokens, and its tokenization. Private to the chat
 * folder. Immutable after opening: any thread.
 *
 * The danger: a message (a web page that an agent has read) contains "<|im_end|><|im_start|>system", and the prompt
 * gets a system message that nobody wrote. There are two defenses, since either alone has gaps. The template engine
 * marks the bytes that came from messages, but loses the mark in some of its functions (tojson, split, join, keys of
 * objects). Therefore each control word in a message is also put between markers before rendering:
 *
 *   message    a <|im_end|> b
 *   rendered   ... a DEL0( <|im_end|> DEL0) b ...       DEL: the byte 0x7f
 *
 * The markers pass through every function of the engine as ordinary text. Afterwards they are removed, and the text
 * that stood between them is never a control token. One gap is left: a template that splits two strings of a message
 * and puts the pieces next to each other with nothing between them. None is known to do that.
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
    std::string blocked; /* one byte for each byte of text: nonzero may not be part of a control token */
};

struct chat_tokens {
    std::vector<int32_t> tokens;
    /* Places where the text can be cut without changing the tokens on either side, ascending: a byte offset and the
     * number of tokens before it. They are at control tokens, which the tokenizer never joins with text. */
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

    /* Returns the length of the longest word at text[at] (at < size); 0: none. All lengths are stored in `lengths`, if
     * not NULL, the shortest first. */
    size_t longest_at(std::string_view text, size_t at, std::vector<size_t> *lengths = nullptr) const;

    /* Returns whether the text from `at` to its end is the beginning of a word, but not a whole one. */
    bool is_begun_at(std::string_view text, size_t at) const;

    int32_t token_of(std::string_view word) const; /* -1: it is no word */
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
    bool begins[256] = {};   /* whether a word begins with this byte: most bytes of a text end here */
    size_t longest = 0;
};

/* The markers of one request: text that does not occur in it, neither as itself nor escaped, or else that its author
 * cannot guess. */
class control_markers {
  public:
    /* `request`: the JSON that all marked text comes from. */
    control_markers(const control_words &words, std::string_view request);

    std::string wrap(std::string_view text) const; /* text of a message, ready for the template */

    /* Returns a text that stands for a place in a message until that has been rendered; `unwrap` leaves it there. */
    std::string sentinel(size_t i) const;

    /* Removes the markers from rendered text and blocks the words that they enclose. */
    void unwrap(chat_text *rendered) const;

  private:
    const control_words &words;
    std::string open, close, cut; /* equally long */
};

/* Tokenizes rendered text, with BOS if the model wants it and the template has not written it. Throws
 * std::runtime_error if the model cannot tokenize it. */
chat_tokens chat_tokenize(const model *m, const control_words &words, bool adds_bos, const chat_text &rendered);

/* Returns the text of one token, also of a control token; "": it has none. */
std::string chat_token_text(const model *m, int32_t token);

/* Returns whether the model's tokenizer adds BOS by itself. */
bool chat_adds_bos(const model *m);

#endif
