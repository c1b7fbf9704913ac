/* thinking.h: follows whether an answer is reasoning and for how many tokens, and forces tokens when the reasoning
 * budget is used up. Reasoning ends at a mark. A mark is the closing tag of the model family, or the text with which a
 * call of a known tool begins, because some models begin a call without closing the reasoning. With 256 tools there are
 * 256 marks. Most tokens are not compared with the marks, because they contain no byte that is the last byte of a mark.
 * This reduced the cost per token from 17.4 to 1.6 us. One object per answer, owned by the thread that samples the
 * answer. */
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
    /* A mark that ends the reasoning: a sequence of tokens, or a text, whatever tokens it consists of. A mark can be
     * the beginning of a tool call. */
    struct mark {
        std::vector<int32_t> tokens;
        std::string text;
    };

    std::vector<int32_t> start;  /* tokens that open reasoning; empty if only the prompt can open reasoning */
    std::vector<int32_t> forced; /* tokens that are forced when the budget is used up */
    int64_t max = -1;            /* budget of one passage of reasoning, in tokens; -1 if there is no limit */
    bool is_inside = false;

    /* Adds a mark that ends the reasoning. */
    void add_end(mark end);

    /* If the budget is used up, returns the token that must come next, whatever the model predicts. Returns -1 if the
     * model decides. */
    int32_t due() const;
    /* Adds a token of the answer. `is_whole` says that the token's text ends with a complete character. */
    void accept(int32_t token, const std::string &text, bool is_whole);
    /* Returns whether the last token is reasoning, or a blank between reasoning and answer. */
    bool is_before_answer() const
    {
        return is_inside || is_between;
    }
    /* Drops the budget. Called if the grammar does not allow the forced token. */
    void give_up();

    /* Returns the tokens of the mark that the last token completed. The first of these tokens can begin with text that
     * is not part of the mark. The list is empty if the last token completed no mark. */
    const std::vector<trigger::piece> &ending() const
    {
        return last_ending;
    }

  private:
    std::vector<mark> ends;
    size_t longest_tokens = 0, longest_text = 0; /* lengths of the longest mark in tokens and bytes */
    std::unordered_set<int32_t> last_tokens;     /* the last token of each mark */
    bool is_last_byte[256] = {};                 /* true if the text of some mark ends with this byte */

    /* the last tokens since reasoning began or ended, but at most as many as a mark can have */
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
