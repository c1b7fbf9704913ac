/* chat_messages.h: changes a conversation so that one template accepts it. Used only in this folder. Pure functions. */
#ifndef LLM_CHAT_MESSAGES_H
#define LLM_CHAT_MESSAGES_H

#include <common/chat.h>

#include <string>

/* Changes messages as in OpenAI's API so that this template accepts them. Templates differ in these points:
 * - Content can be a string or a list of typed parts.
 * - Arguments of tool calls can be objects or strings.
 * - Some templates have no system role.
 * - Some families of models need further changes (chat_family.h).
 * Arguments that are not a JSON object stay a string, or become a member of an object if `encloses_arguments` is true.
 * *unread_arguments receives the arguments of the first tool call whose arguments are not a JSON object, or "". Throws
 * llama.cpp's exceptions about malformed messages. */
common_json chat_messages_fit(const common_json &messages, const common_chat_template &tmpl,
                              const common_json &variables, bool encloses_arguments, std::string *unread_arguments);

#endif
