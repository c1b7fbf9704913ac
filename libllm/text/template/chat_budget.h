/* chat_budget.h: the limits of one request's renderings, all of them together. A chat template is a program that came
 * with a model file from somewhere: it may loop for ever, recurse without end, or build texts of gigabytes. The engine
 * that runs it (llama.cpp's jinja) has no limits. So every node of a template pays for what it does (chat_guard.h):
 *   steps       about a microsecond each; the thread's processor time is looked at, too
 *   bytes       of all texts and values that one rendering makes, freed or not: that is never less than what is alive
 *   comparisons of names, where JSON is parsed (json_members.h)
 *   links       lists that are put into lists: their destructors recurse, and nobody can stop a destructor
 *   the stack   rendering runs on a stack of known size (chat_call_with_stack), and recursion ends half-way down
 * Owned by the thread that renders. */
#ifndef LLM_CHAT_BUDGET_H
#define LLM_CHAT_BUDGET_H

#include <common/jinja/runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>

/* The template went beyond a limit; what() is a sentence about it. It is of jinja's own kind, so that every level of
 * the template passes it on unchanged. */
struct chat_limit : jinja::rethrown_exception {
    using jinja::rethrown_exception::rethrown_exception;
};

/* The size of a value when it is written out: parts that are shared count each time. [x, x] of [x, x] of ... takes
 * little memory, and 2^n parts as text. */
struct value_weight {
    uint64_t n_bytes = 0;
    uint64_t n_nodes = 0;
    uint32_t depth = 0;
};

class chat_budget {
  public:
    /* Becomes the budget of this thread as long as it lives. A longer request may cost more. */
    explicit chat_budget(size_t request_bytes);
    ~chat_budget();
    chat_budget(const chat_budget &) = delete;
    chat_budget &operator=(const chat_budget &) = delete;

    static chat_budget &current();

    /* Counts bytes from zero: what the last rendering made is freed. */
    void begin_rendering()
    {
        bytes = 0;
    }

    /* All throw chat_limit when the budget is used up, and from then on always. */
    void enter();                   /* pays for entering one node of the template */
    void spend(uint64_t steps);     /* a step is about a microsecond */
    void produce(uint64_t n_bytes); /* pays for bytes that are made */
    void compare(uint64_t n_names); /* pays for parsing objects, in which so many names are compared */
    void link();                    /* pays for putting a list or object into another one */
    [[noreturn]] void refuse(const char *why);

    /* Computes the size of a value, and pays for it: one step for each part. `forbidden` must not be a part (NULL: none
     * is forbidden): a list that contains itself would never end. */
    value_weight weigh(const jinja::value &value, const jinja::value_t *forbidden = nullptr);

    /* Returns the sentence about the limit that was exceeded; NULL: none was. */
    const char *exceeded_by() const
    {
        return exceeded;
    }

  private:
    void weigh_into(const jinja::value &value, const jinja::value_t *forbidden, uint32_t depth, value_weight *out);

    uint64_t steps = 0, steps_max;
    uint64_t bytes = 0, bytes_max;
    uint64_t comparisons = 0;
    uint32_t links = 0;
    const char *stack_low;          /* the address down to which this thread's stack may grow */
    const char *exceeded = nullptr; /* see exceeded_by */
};

/* Calls `work` in a thread whose stack (32 MiB) is deep enough for all that the limits allow, and waits for it: nothing
 * is known of the stack of a caller, which may be a Python thread. `work` must not throw. False: there is no memory for
 * one. */
bool chat_call_with_stack(const std::function<void()> &work);

#endif
