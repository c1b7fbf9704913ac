/* thinking.h: how long an answer has been thinking, and the tokens that end it when it has been for too long. One for each
 * answer; owned by who samples it. */
#ifndef LLM_THINKING_H
#define LLM_THINKING_H

#include <cstddef>
#include <cstdint>
#include <vector>

struct thinking {
    std::vector<int32_t> start, end; /* sequences of tokens between which it thinks; empty: it never does */
    std::vector<int32_t> forced;     /* what is said at the budget */
    int64_t max = -1;                /* tokens of one stretch; -1: no budget */
    bool is_inside = false;

    /* The token that comes next, whatever the model says; -1: the model's. */
    int32_t due() const;
    /* A token of the answer; `is_whole`: its text ends with a character. */
    void accept(int32_t token, bool is_whole);
    /* What is forced cannot be said here: the model goes on. */
    void give_up();

  private:
    std::vector<int32_t> recent;
    int64_t n_inside = 0;
    size_t n_forced = 0;
    bool ends_whole = true;

    bool ends_with(const std::vector<int32_t> &sequence) const;
};

#endif
