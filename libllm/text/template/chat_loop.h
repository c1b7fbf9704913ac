/* chat_loop.h: runs the loops of a chat template. Some templates look at all later messages for each message. For
 * example, gpt-oss's template does so for each tool call:
 *
 *   {%- for later in messages[loop.index:] %}
 *       {%- if later.role == 'assistant' and "tool_calls" not in later %}{%- set answer.found = true %}{%- endif %}
 *   {%- endfor %}
 *
 * With 400 messages, these are 38,000 iterations. But an iteration of this loop depends only on its item: it reads
 * nothing else, writes no text, and only sets members of an object. So each item's iteration runs once, and its outcome
 * is kept for the rest of the request. A later iteration with this item sets the same members, and is charged to the
 * budget (chat_budget.h) as if it ran. A loop qualifies by its syntax: its body has only conditions on the item and on
 * plain variables, and assignments to members. All other loops run in llama.cpp's code. */
#ifndef LLM_CHAT_LOOP_H
#define LLM_CHAT_LOOP_H

#include <common/jinja/runtime.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/template/chat_budget.h"

/* The outcomes of iterations over the values of one request. One thread uses an object at a time. */
class chat_outcomes {
  public:
    struct write {
        const std::string *variable, *member; /* texts of the template, which outlives the request */
        jinja::value item;                    /* a number, text, boolean or none */
    };
    struct outcome {
        jinja::value item; /* keeps the item alive, so that no other item gets its address */
        chat_cost cost;
        std::vector<write> writes;
    };
    struct loop {
        bool has_plan = false;             /* the loop's syntax allows keeping outcomes */
        const std::string *list = nullptr; /* variable with the list over which the loop runs, or with the list of its
                                            * slice */
        std::vector<const std::string *> variables; /* variables that the body reads. jinja also looks up words such as
                                                     * `true` as variables */
        std::vector<jinja::value> values;           /* the values of these variables when the outcomes were kept */
        std::vector<const std::string *> targets;   /* variables whose members the body sets */
        std::unordered_map<const jinja::value_t *, outcome> outcomes;
    };

    /* Returns the outcomes that the running rendering of this thread uses, or NULL. */
    static chat_outcomes *&current();

    /* Called before each rendering. */
    void begin_rendering();

    /* Returns whether no value of the request was changed since begin_rendering. */
    bool is_usable() const;

    loop &of(const jinja::for_statement &node);

    uint64_t n_repeated = 0; /* number of iterations that did not run, because their outcomes were known. For tests */

    size_t size() const /* returns how many outcomes were kept, including outcomes that were dropped later */
    {
        return n_outcomes;
    }

    /* Keeps an outcome. Does nothing if there are too many. */
    void keep(loop *to, outcome &&one);

  private:
    std::unordered_map<const jinja::for_statement *, loop> loops;
    size_t n_outcomes = 0;
    uint64_t n_given_changes = 0; /* value of chat_trace::n_given_changes when the rendering began */
};

/* Runs a loop, and returns the text that the loop writes. Throws what llama.cpp's code throws. */
jinja::value chat_loop_run(const jinja::for_statement &node, jinja::context &ctx);

/* Called after {% set object.member = item %}. */
void chat_loop_note(const jinja::member_expression &assignee, const jinja::value &item);

#endif
