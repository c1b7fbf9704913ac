/* chat_messages.h: brings a conversation into the shape that one template accepts. Used only in this folder. Pure. */
#ifndef LLM_CHAT_MESSAGES_H
#define LLM_CHAT_MESSAGES_H

#include <common/chat.h>

#include <string>

/* Brings messages as in OpenAI's API into the shape that this template accepts: with plain or typed content, with
 * arguments of calls as objects or strings, with or without a system role, and with the changes of its family
 * (chat_family.h). Arguments that are not a JSON object stay a string, or become a member of an object if
 * `encloses_arguments`. *unread_arguments receives the first arguments that are not a JSON object, or "". Throws
 * llama.cpp's exceptions about malformed messages. */
common_json chat_messages_fit(const common_json &messages, const common_chat_template &tmpl,
                              const common_json &variables, bool encloses_arguments, std::string *unread_arguments);

#endif
