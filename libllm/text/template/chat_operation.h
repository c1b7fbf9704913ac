/* chat_operation.h: what jinja's built-in operations cost, spent before they run: each is one call that nobody can stop. Some
 * would do worse than take long. All throw chat_limit (chat_budget.h), or a std::runtime_error about wrong values. */
#ifndef LLM_CHAT_OPERATION_H
#define LLM_CHAT_OPERATION_H

#include <common/jinja/runtime.h>

#include <string>
#include <vector>

void chat_operation_binary(const std::string &op, const jinja::value &left, const jinja::value &right);

/* A filter, method or function: `input` is what it is applied to, NULL for a function. */
void chat_operation_call(const std::string &name, const jinja::value &input,
                         const std::vector<jinja::value> &arguments);

void chat_operation_test(const std::string &name, const jinja::value &input,
                         const std::vector<jinja::value> &arguments);

/* `item` is going to be a part of `target`. */
void chat_operation_insert(const jinja::value &target, const jinja::value &item);

#endif
