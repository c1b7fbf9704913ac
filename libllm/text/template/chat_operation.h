/* chat_operation.h: makes jinja's built-in operations pay for their work. Paying means that the work is subtracted from
 * the thread's budget (chat_budget.h). An operation is one call that cannot be stopped, for example "x" * 1000000000.
 * So the operation is paid for before it runs. Some operations are refused, because they could crash the process.
 * Sorting values without a consistent order would read beyond the end of the list. A remainder by zero or by -1 would
 * end the process. All functions throw chat_limit, or a std::runtime_error about wrong values. */
#ifndef LLM_CHAT_OPERATION_H
#define LLM_CHAT_OPERATION_H

#include <common/jinja/runtime.h>

#include <string>
#include <vector>

void chat_operation_binary(const std::string &op, const jinja::value &left, const jinja::value &right);

/* Pays for calling a filter, method or function. `input` is the value to which a filter or method is applied, and NULL
 * for a function. */
void chat_operation_call(const std::string &name, const jinja::value &input,
                         const std::vector<jinja::value> &arguments);

void chat_operation_test(const std::string &name, const jinja::value &input,
                         const std::vector<jinja::value> &arguments);

/* Pays for inserting `item` into the list or object `target`. */
void chat_operation_insert(const jinja::value &target, const jinja::value &item);

#endif
