/* chat_compile.h: compiles the source of a chat template into a program. A budget limits the program's work
 * (chat_budget.h). */
#ifndef LLM_CHAT_COMPILE_H
#define LLM_CHAT_COMPILE_H

#include <common/chat.h>

#include <memory>
#include <string>

/* Compiles the template, and runs it with a few short messages to find out its capabilities. The thread must therefore
 * have a chat_budget, and must run in chat_call_with_stack. Throws chat_limit and the exceptions of jinja. */
std::unique_ptr<const common_chat_template> chat_compile(const std::string &source, const std::string &bos,
                                                         const std::string &eos);

/* Returns the error message in an exception of jinja, without the stack trace. This is the text that the template
 * passed to raise_exception, or the first error. */
std::string chat_reason(const std::exception &e);

#endif
