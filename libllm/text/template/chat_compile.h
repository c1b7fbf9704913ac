/* chat_compile.h: compiles a template's source into a program that pays for its work (chat_budget.h). */
#ifndef LLM_CHAT_COMPILE_H
#define LLM_CHAT_COMPILE_H

#include <common/chat.h>

#include <memory>
#include <string>

/* Compiles the template and runs it to find out its capabilities. The thread must therefore have a chat_budget and the
 * stack of chat_call_with_stack. Throws chat_limit and the exceptions of jinja. */
std::unique_ptr<const common_chat_template> chat_compile(const std::string &source, const std::string &bos,
                                                         const std::string &eos);

/* Returns the message with which the template called raise_exception, or the first error, without the stack trace. */
std::string chat_reason(const std::exception &e);

#endif
