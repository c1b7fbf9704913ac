/* chat_messages.h: brings a conversation into the shape that one template accepts. Private to the chat folder. Pure. */
#ifndef LLM_CHAT_MESSAGES_H
#define LLM_CHAT_MESSAGES_H

#include <common/chat.h>

#include <string>

/* Turns messages of OpenAI's form into the shape of this template: text or typed content, arguments of calls as
 * objects or strings, a system role or none, and the changes of its family (chat_family.h). Arguments that are not a
 * JSON object stay a string, or become a member of an object if `encloses_arguments`. `unread_arguments` receives
 * the first such arguments, or "". Throws what llama.cpp throws about malformed messages. */
common_json chat_messages_fit(const common_json &messages, const common_chat_template &tmpl,
                              const common_json &variables, bool encloses_arguments, std::string *unread_arguments);

#endif
