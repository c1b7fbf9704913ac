/* chat_history.h: rewrites calls and their results in a conversation, for templates that cannot write them, or refuse
 * several at once or their ids. A conversation that was begun with another model would otherwise be refused for ever,
 * since each turn sends the same history again. Messages in OpenAI's form, as they came. Private to the chat folder.
 * Pure. */
#ifndef LLM_CHAT_HISTORY_H
#define LLM_CHAT_HISTORY_H

#include <common/json.h>

#include <cstddef>
#include <string>

bool has_ids(const common_json &messages); /* whether an id of a call is not nine letters and digits */

/* Turns each id into nine letters and digits, always the same for the same id: results keep their calls, and the next
 * turn renders the same text. */
void rename_ids(common_json &messages);

bool has_parallel_calls(const common_json &messages); /* in one message */

/* Makes each call a message of its own, followed by its results: for templates that refuse several calls at once (Llama
 * 3.x). */
common_json with_calls_in_turns(const common_json &messages);

/* Turns calls into text of the assistant, and results into text of the user: for templates without calls. */
common_json with_written_calls(const common_json &messages);

/* Returns the tools to show to the template: without those marked is_deferred in `given`, which messages introduce.
 * `tools`: the same tools in the same order, as the template takes them. Null: none. */
common_json tools_for_template(const common_json &given, const common_json &tools);

/* Adds to the first system message what the template does not say: the list of tools, and the form of a call. */
void describe_tools(const common_json &tools, bool lists_tools, bool shows_form, common_json &messages);

bool chat_has_calls(const common_json &message);

constexpr size_t CHAT_DEPTH_MAX = 128; /* reading and rendering recurse once per level of nesting */

/* Reads JSON of a bounded depth that a client or a model wrote. False: it is none. */
bool chat_read_json(const std::string &text, common_json *out);

/* Returns the text of a content: the text itself, or its parts, one a line. */
std::string chat_text_of(const common_json &content);

#endif
