/* trigger.h: finds where in an answer its grammar begins to hold. Looks at each byte a bounded number of times, however long
 * the answer is. One for each answer; owned by who samples it. */
#ifndef LLM_TRIGGER_H
#define LLM_TRIGGER_H

#include <cstdint>
#include <regex>
#include <string>
#include <vector>

class trigger {
  public:
    /* What the grammar is to be told, a token after the other: of the first one perhaps only the end. */
    struct piece {
        int32_t token;
        std::string text;
    };

    void add_word(std::string word);
    void add_token(int32_t token);
    /* Throws std::regex_error. is_whole: it has to match all of the answer so far. */
    void add_pattern(const std::string &pattern, bool is_whole);

    bool has_patterns() const
    {
        return !patterns.empty();
    }

    /* The answer's next token. True: the grammar begins, with found(). */
    bool accept(int32_t token, const std::string &text);
    const std::vector<piece> &found() const
    {
        return pieces;
    }
    /* Nothing of what has come counts any more. */
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

    std::string text; /* the answer's end */
    bool is_cut = false;
    std::vector<std::pair<int32_t, size_t>> ends; /* its tokens, and where they end in `text` */
    std::vector<piece> pieces;

    size_t find_word(size_t n_before) const;
    size_t find_pattern() const;
    void take_from(size_t at);
    void cut();
};

#endif
