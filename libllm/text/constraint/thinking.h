/* thinking.h: tracks which tokens of an answer are reasoning, and counts these tokens. Forces tokens when the reasoning
 * budget is used up. Reasoning ends at an end delimiter (struct mark). An end delimiter is the closing tag of the model
 * family, or the text with which a call of a known tool begins. Some models begin a call without closing the reasoning.
 * With 256 tools there are 256 end delimiters. Most tokens are not compared with the delimiters. Only a token whose
 * text contains the last byte of some end delimiter can complete a delimiter. Not comparing all other tokens reduced
 * the cost per token from 17.4 to 1.6 us. One object per answer, owned by the thread that samples the answer. */
#ifndef LLM_THINKING_H
#define LLM_THINKING_H

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_set>
#include <vector>

#include "text/constraint/trigger.h"

struct thinking {
    /* A delimiter that ends the reasoning, for example the beginning of a tool call. The delimiter is found in the
     * answer as this sequence of tokens, or as this text, whatever the tokens are. */
    struct mark {
        std::vector<int32_t> tokens;
        std::string text;
    };

    std::vector<int32_t> start;  /* tokens that open reasoning. Empty if only the prompt can open reasoning */
    std::vector<int32_t> forced; /* tokens that are forced when the reasoning budget is used up */
    int64_t max = -1;            /* budget of one passage of reasoning, in tokens; -1 if there is no limit */
    bool is_inside = false;

    /* Adds an end delimiter. */
    void add_end(mark end);

    /* If the reasoning budget is used up, returns the token that must come next, whatever the model predicts. Returns
     * -1 if the model decides. */
    int32_t due() const;
    /* Adds a token of the answer. `is_whole` is true if the token's text ends with a complete character. */
    void accept(int32_t token, const std::string &text, bool is_whole);
    /* Returns whether the last token is reasoning, or a blank between reasoning and answer. */
    bool is_before_answer() const
    {
        return is_inside || is_between;
    }
    /* Removes the limit on reasoning. Called if the grammar does not allow the forced token. */
    void give_up();

    /* Returns the tokens of the end delimiter that the last token completed. The first of these tokens can begin with
     * text before the delimiter. The list is empty if the last token completed no end delimiter. */
    const std::vector<trigger::piece> &ending() const
    {
        return last_ending;
    }

  private:
    std::vector<mark> ends;
    size_t longest_tokens = 0, longest_text = 0; /* length of the longest end delimiter, in tokens and in bytes */
    std::unordered_set<int32_t> last_tokens;     /* the last token of each end delimiter */
    bool is_last_byte[256] = {};                 /* true if the text of some end delimiter ends with this byte */

    /* the last tokens of the answer, in which delimiters are searched for. At most as many tokens are kept as the
     * longest end delimiter can have. When reasoning begins or ends, all tokens so far are removed */
    std::deque<trigger::piece> recent;
    size_t n_recent_bytes = 0;
    std::vector<trigger::piece> last_ending;
    bool has_ended = false;  /* reasoning has ended, and only blanks have followed */
    bool is_between = false; /* the last token was a blank after reasoning */
    int64_t n_inside = 0;
    size_t n_forced = 0;
    bool ends_whole = true;

    size_t longest() const;
    std::string recent_text() const;
    void remember(int32_t token, const std::string &text);
    void forget();
    bool ends_with(const std::vector<int32_t> &sequence) const;
    bool is_amid_mark() const;
    size_t ending_bytes() const;
    bool find_ending();
};

#endif
