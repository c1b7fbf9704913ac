/* chat_history.h: rewrites tool calls and their results in a conversation. Some templates cannot write tool calls,
 * refuse the ids of the calls, or refuse several calls in one message. A client sends the whole history in every turn.
 * Without these changes, a conversation that began with another model could be refused in every turn. Messages are as
 * in OpenAI's API, without markers. Used only in this folder. Pure functions. */
#ifndef LLM_CHAT_HISTORY_H
#define LLM_CHAT_HISTORY_H

#include <common/json.h>

#include <cstddef>
#include <string>

bool has_ids(const common_json &messages); /* returns whether the id of some tool call is not nine letters and digits */

/* Replaces the id of each tool call by nine letters and digits. Equal ids stay equal. So each result still refers to
 * its call, and the next turn renders the same text. */
void rename_ids(common_json &messages);

bool has_parallel_calls(const common_json &messages); /* returns whether some message has several tool calls */

/* Moves each tool call to a message of its own, followed by its results. Some templates refuse several calls in one
 * message, for example Llama 3.x. */
common_json with_calls_in_turns(const common_json &messages);

/* Turns tool calls into text of the assistant, and their results into text of the user, for templates that cannot write
 * tool calls. */
common_json with_written_calls(const common_json &messages);

/* Returns the tools that are passed to the template. These are `tools` without the deferred tools (is_deferred in
 * `given`). A message of the conversation describes the deferred tools. Returns null if no tools remain. Both lists
 * have the same tools in the same order: `given` as in the request, `tools` as the template accepts them. */
common_json tools_for_template(const common_json &given, const common_json &tools);

/* Adds texts for the model to the first system message, for templates that do not write these texts. `lists_tools` adds
 * the list of tools. `shows_form` adds the syntax of a tool call. */
void describe_tools(const common_json &tools, bool lists_tools, bool shows_form, common_json &messages);

bool chat_has_calls(const common_json &message);

constexpr size_t CHAT_DEPTH_MAX = 128; /* limit on the nesting of JSON. Parsing and rendering recurse once per level */

/* Parses JSON of limited depth that a client or a model wrote. Returns false if the text is not JSON or nests too
 * deeply. */
bool chat_read_json(const std::string &text, common_json *out);

/* Returns the text of a message's `content`, which is either a text or a list of parts. The texts of parts are on
 * separate lines. */
std::string chat_text_of(const common_json &content);

#endif
