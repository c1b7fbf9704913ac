/* thinking.h: whether an answer is thinking, for how long it has been, and the tokens that end it when it has been for too long.
 * There may be a mark for each tool, so a token costs little that could not complete one. One for each answer; the thread that
 * samples it owns it. */
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
    /* Ends thinking, as these tokens or as this text in any tokens. A mark may open a call. */
    struct mark {
        std::vector<int32_t> tokens;
        std::string text;
    };

    std::vector<int32_t> start;  /* opens it; empty: the prompt alone can */
    std::vector<int32_t> forced; /* what is said at the budget */
    int64_t max = -1;            /* tokens of one stretch; -1: no budget */
    bool is_inside = false;

    /* Without any, the model never thinks. */
    void add_end(mark end);

    /* The token that comes next, whatever the model says; -1: the model's. */
    int32_t due() const;
    /* A token of the answer; `is_whole`: its text ends with a character. */
    void accept(int32_t token, const std::string &text, bool is_whole);
    /* The last token was thought, or a blank between that and the answer. */
    bool is_before_answer() const
    {
        return is_inside || is_between;
    }
    /* What is forced cannot be said here: the model goes on. */
    void give_up();

    /* The tokens that hold the mark which the last token completed; the first may begin with other text. Empty: the last
     * token did not end thinking. */
    const std::vector<trigger::piece> &ending() const
    {
        return last_ending;
    }

  private:
    std::vector<mark> ends;
    size_t longest_tokens = 0, longest_text = 0; /* of a mark */
    std::unordered_set<int32_t> last_tokens;     /* of marks */
    bool is_last_byte[256] = {};                 /* of a mark */

    std::deque<trigger::piece> recent; /* since thinking began or ended; as many as a mark can have */
    size_t n_recent_bytes = 0;
    std::vector<trigger::piece> last_ending;
    bool has_ended = false;  /* and nothing but blanks has been said since */
    bool is_between = false; /* the last token was such a blank */
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
