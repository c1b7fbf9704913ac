/* chat_messages.h: a conversation in the shape that one template accepts. Private to the chat folder. Pure. */
#ifndef LLM_CHAT_MESSAGES_H
#define LLM_CHAT_MESSAGES_H

#include <common/chat.h>

#include <string>

/* Turns messages of OpenAI's form into the shape of this template: text or typed content, arguments of calls as objects
 * or strings, a system role or none, and the changes of its family (chat_family.h). Arguments that are no JSON object
 * stay a string; with `encloses_arguments` they become a member of an object. `unread_arguments`: the first of them, or
 * "". Throws what llama.cpp throws about malformed messages. */
common_json chat_messages_fit(const common_json &messages, const common_chat_template &tmpl,
                              const common_json &variables, bool encloses_arguments, std::string *unread_arguments);

#endif
