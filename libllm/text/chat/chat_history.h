/* chat_history.h: calls and their results in a conversation, for templates that do not write them or refuse their ids.
 * Messages in OpenAI's form, as they came. Private to the chat door. Pure. */
#ifndef LLM_CHAT_HISTORY_H
#define LLM_CHAT_HISTORY_H

#include <common/json.h>

#include <cstddef>
#include <string>

bool has_ids(const common_json &messages); /* of calls, that are not nine letters and digits */

/* Each id becomes nine letters and digits, the same always. */
void rename_ids(common_json &messages);

bool has_parallel_calls(const common_json &messages); /* in one message */

/* Each call becomes a message of its own, with its results behind it: for templates that refuse several calls at once. */
common_json with_calls_in_turns(const common_json &messages);

/* Calls become text of the assistant, results text of the user. */
common_json with_written_calls(const common_json &messages);

/* Those that the template is told of: not those marked is_deferred in `given`, of which the messages tell. `tools`: the same
 * in the same order, as the template takes them. Null: none. */
common_json told_tools(const common_json &given, const common_json &tools);

/* The first system message tells what the template does not: which tools there are, what a call looks like. */
void describe_tools(const common_json &tools, bool lists_tools, bool shows_form, common_json &messages);

bool chat_has_calls(const common_json &message);

constexpr size_t CHAT_DEPTH_MAX = 128; /* reading and rendering recurse once per level of nesting */

/* JSON of a bounded depth: what a client or a model wrote. False: it is none. */
bool chat_read_json(const std::string &text, common_json *out);

/* The text of a content: as it is, or its parts, one a line. */
std::string chat_text_of(const common_json &content);

#endif
