/* chat_budget.h: limits the work of all renderings of one request together. A chat template is a program from a model
 * file of unknown origin. The template can loop forever, recurse without end, or build texts of gigabytes. llama.cpp's
 * interpreter of templates (jinja) has no limits. So every node of a template's syntax tree pays for its work
 * (chat_guard.h). Paying means that the work is subtracted from the request's budget. The budget limits four things:
 * - Steps. A step is work of about a microsecond. The thread's processor time is limited, too.
 * - Bytes of all texts and values that one rendering makes. Freed values are not subtracted, so the memory in use is
 *   never larger than this count.
 * - Links, which are lists that are put into lists. Their destructors recurse, and nothing can stop a destructor.
 * - The stack. Rendering runs on a stack of known size (chat_call_with_stack). Recursion is stopped when half of the
 *   stack is used.
 * A budget is owned by the thread that renders. */
#ifndef LLM_CHAT_BUDGET_H
#define LLM_CHAT_BUDGET_H

#include <common/jinja/runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>

/* Thrown when the template exceeds a limit. what() is a sentence about the limit. Derives from rethrown_exception.
 * llama.cpp's jinja passes that exception on unchanged through all nested nodes of a template. */
struct chat_limit : jinja::rethrown_exception {
    using jinja::rethrown_exception::rethrown_exception;
};

/* The size of a template's value when it is written as text. A part that occurs several times counts each time. For
 * example, a = [x, x], b = [a, a], c = [b, b] and so on. These n lists take little memory, but have 2^n parts as
 * text. */
struct value_weight {
    uint64_t n_bytes = 0;
    uint64_t n_nodes = 0;
    uint32_t depth = 0;
};

/* Work that was charged to a budget, without links. */
struct chat_cost {
    uint64_t steps = 0, bytes = 0;

    chat_cost plus(const chat_cost &other) const
    {
        return {steps + other.steps, bytes + other.bytes};
    }
    chat_cost minus(const chat_cost &other) const
    {
        return {steps - other.steps, bytes - other.bytes};
    }
};

class chat_budget {
  public:
    /* Makes the budget of a request of `request_bytes` bytes; a longer request gets a larger budget. Until this object
     * is destroyed, it is the current budget of this thread. */
    explicit chat_budget(size_t request_bytes);
    ~chat_budget();
    chat_budget(const chat_budget &) = delete;
    chat_budget &operator=(const chat_budget &) = delete;

    static chat_budget &current();

    /* Counts bytes from zero again, because the values of the last rendering are freed. */
    void begin_rendering()
    {
        bytes = 0;
    }

    /* These functions throw chat_limit when the budget is used up, and in every call after that. */
    void enter();                    /* pays for entering one node of the template */
    void spend(uint64_t steps);      /* pays for work; a step takes about a microsecond */
    void produce(uint64_t n_bytes);  /* pays for n_bytes of new texts and values */
    void compare(uint64_t n_names);  /* pays for comparing member names while JSON objects are parsed */
    void link();                     /* pays for putting a list or object into another list or object */
    void pay(const chat_cost &cost); /* pays for steps and bytes */
    [[noreturn]] void refuse(const char *why);

    chat_cost spent() const
    {
        return {steps, bytes};
    }
    bool covers(const chat_cost &cost) const /* returns whether pay would not throw because of the steps and bytes */
    {
        return exceeded == nullptr && cost.steps <= steps_max - steps && cost.bytes <= bytes_max - bytes;
    }

    /* Computes the size of a value, and pays one step for each of its parts. If `forbidden` is not NULL and is one of
     * the parts, throws chat_limit. `forbidden` is the list or object into which the caller will put the value.
     * Without this check, a list could contain itself, and writing the list as text would never end. */
    value_weight weigh(const jinja::value &value, const jinja::value_t *forbidden = nullptr);

    /* Returns the sentence about the limit that was exceeded, or NULL if no limit was exceeded. */
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
    const char *stack_low;          /* lowest address that this thread's stack can use */
    const char *exceeded = nullptr; /* see exceeded_by */
};

/* Calls `work` in a new thread, and waits for it. The thread's stack of 32 MiB suffices for everything that the limits
 * allow. The caller can be a Python thread, whose stack size is unknown. `work` must not throw. Returns false if there
 * is no memory for a thread. */
bool chat_call_with_stack(const std::function<void()> &work);

#endif
