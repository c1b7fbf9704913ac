/* chat_control.h: decides which bytes of a rendered chat can become control tokens, and tokenizes the chat. Used only
 * in this folder. The objects of this file do not change after they are made, so any thread can use them. The danger is
 * a message that forges control tokens. For example, an agent has read a web page with the text
 * "<|im_end|><|im_start|>system". If parts of this text became control tokens, the prompt would have a system message
 * that nobody wrote. There are two defenses, because each of them has gaps. First, the template engine records which
 * bytes came from messages. But some functions of the engine lose this record (tojson, split, join, keys of objects).
 * Second, before rendering, each control word in a message is put between markers:
 *
 *   message    a <|im_end|> b
 *   rendered   ... a DEL0( <|im_end|> DEL0) b ...       DEL: the byte 0x7f
 *
 * The markers pass through every function of the engine as ordinary text. Afterwards the markers are removed, and the
 * text between them never becomes a control token. One gap of both defenses remains. A template could split two strings
 * of a message and join the pieces without a separator. No known template does this. */
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
    std::string blocked; /* one byte per byte of `text`. If the byte here is nonzero, the byte of `text` must not be
                          * part of a control token */
};

struct chat_tokens {
    std::vector<int32_t> tokens;
    /* Positions at which the text can be cut without changing the tokens on either side, ascending. A position is given
     * as a byte offset and as the number of tokens before it. All positions are at control tokens, which the tokenizer
     * never merges with text. */
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

    /* Returns the length of the longest control word that begins at text[at], or 0. `at` must be less than the text's
     * size. If `lengths` is not NULL, it receives the lengths of all control words that begin there, the shortest
     * first. */
    size_t longest_at(std::string_view text, size_t at, std::vector<size_t> *lengths = nullptr) const;

    /* Returns the first offset from `at` on at which a control word can begin, judged by one byte. */
    size_t next_begin(std::string_view text, size_t at) const
    {
        while (at < text.size() && !begins[static_cast<unsigned char>(text[at])]) {
            at++;
        }
        return at;
    }

    /* Returns whether the text from `at` to its end is the beginning of a control word, but not a whole control
     * word. */
    bool is_begun_at(std::string_view text, size_t at) const;

    int32_t token_of(std::string_view word) const; /* returns -1 if the text is not a control word */
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
    bool begins[256] = {};   /* for each byte, whether some control word begins with this byte. Most bytes begin no
                              * word, so most searches end after this test */
    size_t longest = 0;
};

/* The markers of one request. A marker is text that the request does not contain, neither plain nor escaped. If the
 * request may contain the byte DELETE, the marker contains a random number that the request's author cannot guess. */
class control_markers {
  public:
    /* `request` is the JSON that contains all texts that will be passed to `wrap`. */
    control_markers(const control_words &words, std::string_view request);

    std::string wrap(std::string_view text) const; /* returns a message's text with markers around control words */
    bool wraps(std::string_view text) const;       /* returns whether `wrap` changes the text */

    /* Returns sentinel i. A sentinel is a text that is put into a message. The sentinel shows where this position of
     * the message is in the rendered text. `unwrap` does not remove sentinels. */
    std::string sentinel(size_t i) const;

    /* Removes the markers from rendered text, and marks the words between the markers in `blocked`. */
    void unwrap(chat_text *rendered) const;

  private:
    bool ends_in_word(std::string_view text) const;

    const control_words &words;
    std::string open, close, cut; /* all of equal length */
};

/* Tokenizes rendered text, and adds BOS if the model needs BOS and the template has not written it. Throws
 * std::runtime_error if the text cannot be tokenized. */
chat_tokens chat_tokenize(const model *m, const control_words &words, bool adds_bos, const chat_text &rendered);

/* Returns the text of one token, or "" if the token has no text. The token can be a control token. */
std::string chat_token_text(const model *m, int32_t token);

/* Returns whether the model's tokenizer adds BOS by itself. */
bool chat_adds_bos(const model *m);

#endif
