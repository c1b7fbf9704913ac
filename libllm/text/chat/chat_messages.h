/* chat_messages.h: a conversation as one template takes it. Private to the chat door. Pure. */
#ifndef LLM_CHAT_MESSAGES_H
#define LLM_CHAT_MESSAGES_H

#include <common/chat.h>

#include <string>

/* Messages in OpenAI's form, in the form that this template takes: text or typed content, arguments of calls as objects or
 * strings, a system role or none, and what its family needs besides (chat_family.h). Arguments that are no JSON object stay
 * a string, or with `encloses_arguments` become the member of one; `unread_arguments`: the first such, or "". Throws what
 * llama.cpp throws about malformed messages. */
common_json chat_messages_fit(const common_json &messages, const common_chat_template &tmpl,
                              const common_json &variables, bool encloses_arguments, std::string *unread_arguments);

#endif
