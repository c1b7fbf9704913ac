/* trigger.h: finds the place in an answer from which its grammar holds: a word, a token, or a pattern. It looks at each
 * byte a bounded number of times, however long the answer is: llama.cpp's search begins anew at the first byte with
 * each token. One for each answer; owned by the thread that samples it. */
#ifndef LLM_TRIGGER_H
#define LLM_TRIGGER_H

#include <cstdint>
#include <regex>
#include <string>
#include <vector>

class trigger {
  public:
    /* A token for the grammar, with its text; of the first one, the text may be only the end. */
    struct piece {
        int32_t token;
        std::string text;
    };

    void add_word(std::string word);
    void add_token(int32_t token);
    /* Throws std::regex_error. is_whole: the pattern must match all of the answer so far. */
    void add_pattern(const std::string &pattern, bool is_whole);

    bool has_patterns() const
    {
        return !patterns.empty();
    }

    /* Takes the answer's next token. True: the grammar begins, with found(). */
    bool accept(int32_t token, const std::string &text);
    const std::vector<piece> &found() const
    {
        return pieces;
    }
    /* Forgets all that has come so far. */
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

    std::string text;                             /* the end of the answer */
    bool is_cut = false;                          /* its beginning is not in `text` any more */
    std::vector<std::pair<int32_t, size_t>> ends; /* the tokens of `text`, and where each ends in it */
    std::vector<piece> pieces;

    size_t find_word(size_t n_before) const;
    size_t find_pattern() const;
    void take_from(size_t at);
    void cut();
};

#endif
