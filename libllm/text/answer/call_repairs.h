/* call_repairs.h: changes llama.cpp's parsers and grammars so that they accept parts of answers that llama.cpp does not
 * expect. These parts are ids of tool calls, separate messages for text and calls, and the name of the answer's format.
 * The functions change nothing but their arguments, and are used only in libllm/text. */
#ifndef LLM_CALL_REPAIRS_H
#define LLM_CALL_REPAIRS_H

#include <common/chat-auto-parser.h>
#include <common/chat.h>

#include <string>

/* Some templates write the id of a tool call before the tool's name. llama.cpp analyzes a template by rendering an
 * example call, and mistakes the example's id for a fixed text. Removes this id from the analysis, and returns the
 * delimiter between id and name. Returns "" if the template does not write the id there. */
std::string split_id_from_name(autoparser::autoparser *analysis);

/* Makes the parser and the grammar in `form` accept an optional id before the delimiter `id_end`, which
 * split_id_from_name returned. */
void allow_ids(const std::string &id_end, common_chat_params *form);

/* Returns whether a parser already accepts ids of tool calls, as llama.cpp's parser for Mistral Nemo does. If so,
 * libllm adds no id to the grammar. Otherwise a tool call could have two ids. */
bool reads_ids(const common_peg_arena &parser);

/* Solar Open writes reasoning, text and tool calls as separate messages. The template of Solar Open expects reasoning
 * in another member of a message than the one that llama.cpp's analysis uses. If `source` is the source of such a
 * template, stores the delimiters of its reasoning in *found and returns true. */
bool find_messages(const std::string &source, autoparser::autoparser *found);

/* For a template with separate messages (find_messages), makes the parser in `form` accept a message with text next to
 * tool calls. Without this change, llama.cpp expects the delimiters of such a message only if no tools are offered.
 * `continued` is the text that the answer continues, or "". This text also becomes such a message. */
void allow_messages(const autoparser::autoparser &found, const std::string &continued, common_chat_params *form);

/* Changes llama.cpp's parser so that it also accepts an answer that names its own format, for example with
 * <|constrain|>json. The parser is JSON, as in parser_text.h. */
common_json with_named_format(common_json parser);

#endif
