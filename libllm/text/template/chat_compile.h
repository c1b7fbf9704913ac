/* chat_compile.h: compiles a template's source into a program that pays for its work (chat_budget.h). */
#ifndef LLM_CHAT_COMPILE_H
#define LLM_CHAT_COMPILE_H

#include <common/chat.h>

#include <memory>
#include <string>

/* Needs a chat_budget, since it runs the template to find out its capabilities, and the stack of
 * chat_call_with_stack. Throws chat_limit, or what jinja throws. */
std::unique_ptr<const common_chat_template> chat_compile(const std::string &source, const std::string &bos,
                                                         const std::string &eos);

/* Returns the template's own message (raise_exception), or the first error, without the trace. */
std::string chat_reason(const std::exception &e);

#endif
