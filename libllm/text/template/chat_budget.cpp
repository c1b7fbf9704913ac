#include "text/template/chat_budget.h"

#include <pthread.h>
#include <time.h>

#include <algorithm>

#include "text/template/json_size.h"

namespace {

/* A step is work of about a microsecond. Rendering a few messages takes some hundreds of steps, rendering a megabyte
 * some hundred thousands. */
constexpr uint64_t STEPS_MIN = 500'000, STEPS_PER_BYTE = 256, STEPS_MAX = 20'000'000;
constexpr uint64_t BYTES_MIN = 64ull << 20, BYTES_PER_BYTE = 512, BYTES_MAX = 2ull << 30;

/* Maximum number of comparisons of member names for the JSON texts of a request (json_size.h). So many comparisons take
 * about a second. Each attempt to render the request parses the texts again, and the templates that llama.cpp ships
 * need up to 9 attempts. */
constexpr uint64_t COMPARISONS_MAX = 12 * JSON_COMPARISONS_MAX;

constexpr uint32_t LINKS_MAX = 20'000;
constexpr uint32_t DEPTH_MAX = 256; /* limit on the levels of nested values in a template; the values of a request have
                                     * at most half as many levels */
constexpr uint64_t CPU_SECONDS_MAX = 60;
constexpr uint64_t CLOCK_EVERY = 256; /* number of steps after which the processor time is checked */

/* Half of the stack is for recursion of the template. Recursion beyond this half is stopped. The other half is for the
 * destructors of long chains of values and nodes, because destructors cannot be stopped. LINKS_MAX and the limits of
 * chat_compile.cpp keep these chains short enough. */
constexpr size_t STACK_BYTES = 32 << 20, RECURSION_BYTES = 16 << 20;

constexpr uint64_t PART_BYTES = sizeof(jinja::string_part), VALUE_BYTES = sizeof(jinja::value_int_t) + 16;

thread_local chat_budget *budget_of_thread;

uint64_t scaled(uint64_t least, uint64_t each, size_t n, uint64_t most)
{
    return n >= most / each ? most : std::min(most, least + each * n);
}

uint64_t cpu_seconds()
{
    timespec now;
    return clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0 ? static_cast<uint64_t>(now.tv_sec) : 0;
}

} // namespace

chat_budget::chat_budget(size_t request_bytes)
    : steps_max(scaled(STEPS_MIN, STEPS_PER_BYTE, request_bytes, STEPS_MAX)),
      bytes_max(scaled(BYTES_MIN, BYTES_PER_BYTE, request_bytes, BYTES_MAX)),
      stack_low(static_cast<const char *>(__builtin_frame_address(0)) - RECURSION_BYTES)
{
    budget_of_thread = this;
}

chat_budget::~chat_budget()
{
    budget_of_thread = nullptr;
}

chat_budget &chat_budget::current()
{
    return *budget_of_thread;
}

void chat_budget::refuse(const char *why)
{
    exceeded = exceeded == nullptr ? why : exceeded;
    throw chat_limit(exceeded);
}

void chat_budget::enter()
{
    if (static_cast<const char *>(__builtin_frame_address(0)) < stack_low) {
        refuse("the chat template calls itself too deeply");
    }
    spend(1);
}

void chat_budget::spend(uint64_t n)
{
    if (exceeded != nullptr || n > steps_max - steps) {
        refuse("the chat template does too much: it may loop for ever");
    }
    const bool is_time_to_look = (steps + n) / CLOCK_EVERY != steps / CLOCK_EVERY;
    steps += n;
    if (is_time_to_look && cpu_seconds() >= CPU_SECONDS_MAX) {
        refuse("the chat template takes too long");
    }
}

void chat_budget::produce(uint64_t n)
{
    if (exceeded != nullptr || n > bytes_max - bytes) {
        refuse("the chat template makes too much text");
    }
    bytes += n;
}

void chat_budget::compare(uint64_t n_names)
{
    if (exceeded != nullptr || n_names > COMPARISONS_MAX - comparisons) {
        refuse("the objects in all arguments of tool calls together have too many members");
    }
    comparisons += n_names;
}

void chat_budget::pay(const chat_cost &cost)
{
    spend(cost.steps);
    produce(cost.bytes);
}

void chat_budget::link()
{
    if (++links > LINKS_MAX) {
        refuse("the chat template puts too many lists into each other");
    }
}

value_weight chat_budget::weigh(const jinja::value &value, const jinja::value_t *forbidden)
{
    value_weight out;
    weigh_into(value, forbidden, 1, &out);
    produce(out.n_bytes);
    return out;
}

void chat_budget::weigh_into(const jinja::value &value, const jinja::value_t *forbidden, uint32_t depth,
                             value_weight *out)
{
    spend(1);
    out->n_nodes++;
    out->depth = std::max(out->depth, depth);
    out->n_bytes += VALUE_BYTES;
    if (depth > DEPTH_MAX || out->n_bytes > bytes_max) {
        refuse("the chat template nests lists or objects too deeply");
    }
    const jinja::value_t *one = value.get();
    if (one == nullptr) {
        return;
    }
    if (one == forbidden) {
        refuse("the chat template puts a list or an object into itself");
    }
    if (const auto *function = jinja::cast_val<jinja::value_func>(value)) {
        if (forbidden != nullptr &&
            function->name == "caller") { /* `caller` refers to all variables, which can include `forbidden` */
            refuse("the chat template stores `caller` in a variable");
        }
        return;
    }
    out->n_bytes += one->val_str.length() + PART_BYTES * one->val_str.parts.size();
    if (const auto *named = jinja::cast_val<jinja::value_kwarg>(value)) {
        weigh_into(named->val, forbidden, depth, out);
    }
    for (const jinja::value &item : one->val_arr) {
        weigh_into(item, forbidden, depth + 1, out);
    }
    for (const auto &[key, item] : one->val_obj) {
        weigh_into(key, forbidden, depth + 1, out);
        weigh_into(item, forbidden, depth + 1, out);
    }
}

/* ---- the stack --------------------------------------------------------------------------------------------------- */

bool chat_call_with_stack(const std::function<void()> &work)
{
    pthread_t thread;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) {
        return false;
    }
    const auto run = [](void *call) -> void * {
        (*static_cast<const std::function<void()> *>(call))();
        return nullptr;
    };
    const bool is_made = pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0 &&
                         pthread_create(&thread, &attributes, run, const_cast<std::function<void()> *>(&work)) == 0;
    pthread_attr_destroy(&attributes);
    return is_made && pthread_join(thread, nullptr) == 0;
}
