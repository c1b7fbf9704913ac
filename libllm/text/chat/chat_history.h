/* chat_history.h: rewrites calls and their results in a conversation, for templates that cannot write calls, or that
 * refuse their ids or several calls at once. Otherwise a conversation that began with another model would be refused in
 * every turn, because each turn sends the same history again. Messages are as in OpenAI's API, without markers. Used
 * only in this folder. Pure. */
#ifndef LLM_CHAT_HISTORY_H
#define LLM_CHAT_HISTORY_H

#include <common/json.h>

#include <cstddef>
#include <string>

bool has_ids(const common_json &messages); /* returns whether some call's id is not nine letters and digits */

/* Replaces each id by nine letters and digits. Equal ids stay equal, so that each result still refers to its call, and
 * the next turn renders the same text. */
void rename_ids(common_json &messages);

bool has_parallel_calls(const common_json &messages); /* returns whether some message has several calls */

/* Moves each call to a separate message, followed by the call's results, for templates that refuse several calls at
 * once (Llama 3.x). */
common_json with_calls_in_turns(const common_json &messages);

/* Turns calls into text of the assistant, and results into text of the user, for templates without calls. */
common_json with_written_calls(const common_json &messages);

/* Returns the tools that the template gets: `tools` without tools that have is_deferred in `given`, which messages
 * describe. Returns null if no tools remain. `tools` are the tools of `given` in the same order, in the template's
 * shape. */
common_json tools_for_template(const common_json &given, const common_json &tools);

/* Adds the list of tools and the form of a call to the first system message, if the template does not write them. */
void describe_tools(const common_json &tools, bool lists_tools, bool shows_form, common_json &messages);

bool chat_has_calls(const common_json &message);

constexpr size_t CHAT_DEPTH_MAX = 128; /* parsing and rendering recurse once per level of nesting */

/* Parses JSON of limited depth that a client or a model wrote. Returns false if the text is not JSON or nests too
 * deeply. */
bool chat_read_json(const std::string &text, common_json *out);

/* Returns the text of a content, which is either a text or a list of parts. The texts of parts are on separate
 * lines. */
std::string chat_text_of(const common_json &content);

#endif
