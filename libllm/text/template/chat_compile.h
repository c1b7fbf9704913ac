/* chat_compile.h: from a template's source to a program that pays for what it does. */
#ifndef LLM_CHAT_COMPILE_H
#define LLM_CHAT_COMPILE_H

#include <common/chat.h>

#include <memory>
#include <string>

/* Needs a chat_budget, for trying out what the template can do, and the stack of chat_call_with_stack. Throws chat_limit, or
 * what jinja throws. */
std::unique_ptr<const common_chat_template> chat_compile(const std::string &source, const std::string &bos,
                                                         const std::string &eos);

/* What the template itself said with raise_exception, or the first thing that went wrong, without the trace. */
std::string chat_reason(const std::exception &e);

#endif
