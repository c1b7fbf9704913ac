/* chat_operation.h: the costs of jinja's built-in operations. Costs are paid before an operation runs, because an
 * operation is one call that cannot be stopped ("x" * 1000000000). Some operations could even crash: sorting values
 * without an order reads beyond the list, and dividing by zero or by -1 ends the process. All functions throw
 * chat_limit (chat_budget.h), or a std::runtime_error about wrong values. */
#ifndef LLM_CHAT_OPERATION_H
#define LLM_CHAT_OPERATION_H

#include <common/jinja/runtime.h>

#include <string>
#include <vector>

void chat_operation_binary(const std::string &op, const jinja::value &left, const jinja::value &right);

/* Pays for a filter, method or function. `input` is the value to which a filter or method is applied; NULL for a
 * function. */
void chat_operation_call(const std::string &name, const jinja::value &input,
                         const std::vector<jinja::value> &arguments);

void chat_operation_test(const std::string &name, const jinja::value &input,
                         const std::vector<jinja::value> &arguments);

/* Pays for inserting `item` into `target`. */
void chat_operation_insert(const jinja::value &target, const jinja::value &item);

#endif
