/* trigger.h: finds the position in an answer at which a lazy grammar begins. A trigger is a word, a token, or a pattern
 * (regular expression). Even in a long answer, each byte is examined a limited number of times. llama.cpp instead
 * searches the whole answer again after each token. One object per answer, owned by the thread that samples the
 * answer. */
#ifndef LLM_TRIGGER_H
#define LLM_TRIGGER_H

#include <cstdint>
#include <regex>
#include <string>
#include <vector>

class trigger {
  public:
    /* A token that the grammar receives, and its text. If the trigger begins in the middle of the first token, the
     * `text` of this token has only the part after that point. */
    struct piece {
        int32_t token;
        std::string text;
    };

    void add_word(std::string word);
    void add_token(int32_t token);
    /* Adds a pattern. If `is_whole`, the pattern must match the whole answer so far; otherwise any part of it. Throws
     * std::regex_error. */
    void add_pattern(const std::string &pattern, bool is_whole);

    bool has_patterns() const
    {
        return !patterns.empty();
    }

    /* Adds the answer's next token. Returns true if this token completes a trigger. After that, found() returns the
     * tokens from the trigger on. */
    bool accept(int32_t token, const std::string &text);
    const std::vector<piece> &found() const
    {
        return pieces;
    }
    /* Forgets all tokens so far. */
    void forget();

  private:
    struct pattern {
        std::regex expression;
        bool is_whole;
    };
    std::vector<std::string> words;
    std::vector<int32_t> tokens;
    std::vector<pattern> patterns;
    size_t longest_word = 0;

    std::string text;                             /* the end of the answer so far */
    bool is_cut = false;                          /* `text` no longer has the answer's beginning */
    std::vector<std::pair<int32_t, size_t>> ends; /* the tokens of `text` and the position of each token's end */
    std::vector<piece> pieces;

    size_t find_word(size_t n_before) const;
    size_t find_pattern() const;
    void take_from(size_t at);
    void cut();
};

#endif
