/* chat_budget.h: what one request's renderings may cost, all of them together. A model's template is a program that came with
 * a file from somewhere: it may loop for ever, recurse, or build texts without end. Owned by the thread that renders. */
#ifndef LLM_CHAT_BUDGET_H
#define LLM_CHAT_BUDGET_H

#include <common/jinja/runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>

/* The template went beyond a limit; what() is a sentence about it. Of jinja's own kind, so that every level of the template
 * lets it through as it is. */
struct chat_limit : jinja::rethrown_exception {
    using jinja::rethrown_exception::rethrown_exception;
};

/* How large a value becomes when it is written out: what is shared counts each time. */
struct value_weight {
    uint64_t n_bytes = 0;
    uint64_t n_nodes = 0;
    uint32_t depth = 0;
};

class chat_budget {
  public:
    /* Of this thread, as long as it lives. A longer request may cost more. */
    explicit chat_budget(size_t request_bytes);
    ~chat_budget();
    chat_budget(const chat_budget &) = delete;
    chat_budget &operator=(const chat_budget &) = delete;

    static chat_budget &current();

    /* All throw chat_limit when there is no more, and from then on always. */
    void enter();                   /* one node of the template */
    void spend(uint64_t steps);     /* a step is about a microsecond */
    void produce(uint64_t n_bytes); /* freed or not: what is alive is never more */
    void link();                    /* a list or object is put into another one */
    [[noreturn]] void refuse(const char *why);

    /* Spends one step for each part. `forbidden` must not be a part (NULL: anything may). */
    value_weight weigh(const jinja::value &value, const jinja::value_t *forbidden = nullptr);

    /* The sentence; NULL: no limit was. */
    const char *exceeded_by() const
    {
        return exceeded;
    }

  private:
    void weigh_into(const jinja::value &value, const jinja::value_t *forbidden, uint32_t depth, value_weight *out);

    uint64_t steps = 0, steps_max;
    uint64_t bytes = 0, bytes_max;
    uint32_t links = 0;
    const char *stack_low;          /* of this thread; the stack grows down to here */
    const char *exceeded = nullptr; /* the sentence */
};

/* Calls `work` on a stack that is deep enough for what the limits allow, and waits for it. `work` must not throw. False: there
 * is no memory for one. */
bool chat_call_with_stack(const std::function<void()> &work);

#endif
