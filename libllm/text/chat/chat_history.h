/* chat_history.h: rewrites calls and their results in a conversation, for templates that cannot write them, or that
 * refuse several calls at once or their ids. Otherwise a conversation that began with another model would be refused
 * in every turn, because each turn sends the same history again. Messages have OpenAI's form and no markers. Private
 * to the chat folder. Pure. */
#ifndef LLM_CHAT_HISTORY_H
#define LLM_CHAT_HISTORY_H

#include <common/json.h>

#include <cstddef>
#include <string>

bool has_ids(const common_json &messages); /* whether the id of some call is not nine letters and digits */

/* Turns each id into nine letters and digits. Equal ids stay equal, so that results keep their calls, and the next
 * turn renders the same text. */
void rename_ids(common_json &messages);

bool has_parallel_calls(const common_json &messages); /* whether some message has several calls */

/* Makes each call a message of its own, followed by its results, for templates that refuse several calls at once
 * (Llama 3.x). */
common_json with_calls_in_turns(const common_json &messages);

/* Turns calls into text of the assistant, and results into text of the user, for templates without calls. */
common_json with_written_calls(const common_json &messages);

/* Returns the tools to show to the template: without those marked is_deferred in `given`, which messages introduce.
 * `tools`: the same tools in the same order, as the template takes them. Null: none. */
common_json tools_for_template(const common_json &given, const common_json &tools);

/* Adds to the first system message what the template leaves out: the list of tools, and the form of a call. */
void describe_tools(const common_json &tools, bool lists_tools, bool shows_form, common_json &messages);

bool chat_has_calls(const common_json &message);

constexpr size_t CHAT_DEPTH_MAX = 128; /* reading and rendering recurse once per level of nesting */

/* Reads JSON of limited depth that a client or a model wrote. Returns false if the text is not such JSON. */
bool chat_read_json(const std::string &text, common_json *out);

/* Returns the text of a content: the text itself, or its text parts, one per line. */
std::string chat_text_of(const common_json &content);

#endif
