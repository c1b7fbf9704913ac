/* thinking.h: whether an answer is thinking, for how long it has been, and the tokens that end it when it has been for too long.
 * One for each answer; owned by who samples it. */
#ifndef LLM_THINKING_H
#define LLM_THINKING_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

struct thinking {
    std::vector<int32_t> start, end; /* sequences of tokens between which it thinks; empty: it never does */
    std::string end_text;            /* `end` as it may also be written: with other tokens */
    std::vector<int32_t> forced;     /* what is said at the budget */
    int64_t max = -1;                /* tokens of one stretch; -1: no budget */
    bool is_inside = false;

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

  private:
    std::vector<int32_t> recent;
    std::string recent_text;
    bool has_ended = false;  /* and nothing but blanks has been said since */
    bool is_between = false; /* the last token was such a blank */
    int64_t n_inside = 0;
    size_t n_forced = 0;
    bool ends_whole = true;

    bool ends_with(const std::vector<int32_t> &sequence) const;
    bool has_end_text(const std::string &text);
};

#endif
